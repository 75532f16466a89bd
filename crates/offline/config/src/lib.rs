//! One table of all options of the command line and of the Python `config()`, and all that follows
//! from it: parsing, linking, errors, help, reference page and `config.json`. What comes of it are the settings of
//! `msmemscope-settings`, which the job knows; of the grammar it knows nothing. The crate does no I/O.
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
mod help;
mod json;
mod link;
mod note;
mod parse;
mod python;
mod reference;
mod suggest;
mod table;
mod trigger;
mod value;
mod watch;

pub use change::SettingsChange;
pub use error::{ConfigError, UsageError, ValueError};
pub use help::help;
pub use json::config_json;
pub use msmemscope_settings::{
    AnalysisSet, CallStacks, CollectMode, ColorChoice, DataFormats, DeviceSelection, EventSelection, EventSet,
    GrowthRate, HandoverError, LevelSet, LogLevel, RECORDING_VARIABLE, Reaction, Recording, ReportStyle, Settings,
    Trigger, Variant, Watch, WatchTarget,
};
pub use note::Note;
pub use parse::{Command, Invocation, parse, takes_option};
pub use python::{apply_python_config, python_keys, takes_list};
pub use reference::reference_page;
pub use suggest::nearest_command;
pub use table::{COMMANDS, CommandSpec, EXIT_STATUSES, FlagSpec, Group, OPTIONS, OptionId, OptionSpec};
pub use value::size_bytes;
