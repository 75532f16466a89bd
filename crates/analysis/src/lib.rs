//! From events to findings people can act on. One module per question, all fed by one pass.
//!
//! * [`situation`]: what holds at the current event; kept once for all questions.
//! * [`leaks`], [`marks`], [`moment`], [`fluctuation`], [`decompose`], [`inefficient`], [`out_of_memory`],
//!   [`fragmentation`]: one question each, as consumers of events whose memory is bounded by live
//!   blocks, and a plain result.
//! * [`pass`]: several of them in one pass over a recording.
//! * [`compare`]: two runs or steps.
//! * [`watch`]: watched blocks that changed without an operator declaring it.
//! * [`unseen`]: pools that the recording knows nothing of.
//! * [`check`]: rules for automatic tests.
//! * [`annotate`]: writes findings back into dump files, safely.
//! * [`text`]: results as text for the terminal.
#![forbid(unsafe_code)]

pub mod annotate;
pub mod check;
pub mod compare;
pub mod decompose;
pub mod fluctuation;
pub mod fragmentation;
pub mod gaps;
pub mod growing;
pub mod inefficient;
pub mod installation;
pub mod leaks;
pub mod marks;
pub mod moment;
pub mod names;
pub mod notes;
pub mod out_of_memory;
pub mod owners;
pub mod pass;
pub mod situation;
pub mod text;
pub mod unseen;
pub mod verdict;
pub mod watch;

mod backing;
mod device_text;
mod peak_window;
mod pool_use;
mod small_map;

pub use names::{Frame, Names, RecordingNames};
pub use notes::Notes;
pub use owners::Owners;
pub use pass::{Answers, OwnerQuestion, Questions, analyze};
