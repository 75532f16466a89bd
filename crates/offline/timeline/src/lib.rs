//! Gives facts their meaning: one streaming pass turns them into [`TimelineEvent`]s.
//!
//! A fact says "this address was freed"; an event says "this block of this many bytes, allocation 17,
//! ended, and its pool now uses so much". Everything downstream (files, analyses, viewer) works on
//! events, so all of them agree. Memory is bounded by the blocks that are alive, not by the recording.
//!
//! * [`source`]: where facts come from.
//! * [`pass`]: the pass itself; its parts are blocks, pools, steps, labels and Python calls.
//! * [`ahead`]: the pass in a thread of its own.
//! * [`refusals`]: what a framework held when the driver refused it memory.
//! * [`event`]: what comes out.
//! * [`settings`]: filters. They hide events, they never change what the remaining ones say.
//! * [`operator_pattern`]: rounds of a loop that only operators show.
//! * [`owner`]: who owns a block, known only after a whole pass.
#![forbid(unsafe_code)]

pub mod ahead;
pub mod event;
pub mod operator_pattern;
pub mod owner;
pub mod pass;
pub mod refusals;
pub mod settings;
pub mod source;
pub mod steps;
pub mod summary;

mod blocks;
mod clock;
mod kernels;
mod places;
mod pools;
mod python_calls;

pub use ahead::run_ahead;
pub use event::{BlockEvent, EventKind, PoolGaveUp, PythonSpan, TimelineEvent, WatchObservation};
pub use owner::{OwnerBook, OwnerTable, UnplacedLabels, collect_owners};
pub use pass::{EventSink, Timeline, run};
pub use settings::{DeviceFilter, EventFilter, EventKinds, TimelineSettings};
pub use source::{FactSource, FactStream, possible_devices};
pub use steps::{LoopSet, StepSource, detect_step_source};
pub use summary::{PoolSummary, Summary};
