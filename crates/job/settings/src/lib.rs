//! What a recording is told to do: the typed settings, and their hand-over into the job as one environment value.
//!
//! The crate does no I/O and has no dependencies, because the recorder links it into the traced job. How users spell
//! settings, the help and the reference page are the business of `msmemscope-config`.
#![forbid(unsafe_code)]

mod handover;
mod quoting;
mod sets;
mod settings;
mod trigger;

pub use handover::{HandoverError, RECORDING_VARIABLE, Recording};
pub use quoting::{printable, quoted};
pub use sets::{AnalysisSet, EventSet, LevelSet};
pub use settings::{
    CallStacks, CollectMode, ColorChoice, DataFormats, DeviceSelection, EventSelection, LogLevel, ReportStyle,
    Settings, Variant, Watch, WatchTarget, word_of,
};
pub use trigger::{GrowthRate, Reaction, Trigger};
