//! One table of all options of the command line and of the Python `config()`, and all that follows
//! from it: parsing, linking, errors, help, reference page, `config.json` and the hand-over of the
//! settings to the recorder.
//!
//! The crate does no I/O and has no dependencies, because the recorder links it into the traced job.
//!
//! ```
//! use msmemscope_config::{Command, Variant, parse};
//! use std::ffi::OsString;
//!
//! let arguments = ["python", "train.py", "--level=kernel"].map(OsString::from);
//! let Ok(Command::Run { settings, program, .. }) = parse(Variant::Msmemscope, &arguments) else {
//!     panic!("a program to run");
//! };
//! assert_eq!(program, ["python", "train.py"]);
//! assert_eq!(settings.level.to_string(), "kernel");
//! ```
#![forbid(unsafe_code)]

mod change;
mod error;
mod handover;
mod help;
mod json;
mod link;
mod note;
mod parse;
mod python;
mod reference;
mod sets;
mod settings;
mod suggest;
mod table;
mod value;
mod watch;

pub use change::SettingsChange;
pub use error::{ConfigError, UsageError, ValueError};
pub use handover::{HandoverError, RECORDING_VARIABLE, Recording};
pub use help::help;
pub use json::config_json;
pub use link::EventSelection;
pub use note::Note;
pub use parse::{Command, Invocation, parse};
pub use python::{apply_python_config, python_keys, takes_list};
pub use reference::reference_page;
pub use sets::{AnalysisSet, EventSet, LevelSet};
pub use settings::{
    CallStacks, CollectMode, DataFormats, DeviceSelection, LogLevel, ReportStyle, Settings, Variant, Watch, WatchTarget,
};
pub use table::{COMMANDS, CommandSpec, FlagSpec, Group, OPTIONS, OptionId, OptionSpec};
pub use value::size_bytes;
