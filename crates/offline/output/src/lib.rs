//! Writes what people and other tools read. One module per format, all fed by one row type.
//!
//! * [`row`]: what a row says, once for all formats.
//!   How it is stored is the business of `msmemscope-dump`.
//! * [`directory`]: where files are written, without following links.
//! * [`mod@finish`]: from the directory of a recorded process to its files.

pub mod directory;
pub mod files;
pub mod finish;
pub mod log;
pub mod row;
pub mod stacks;
mod symbol_stacks;
pub mod unfinished;

mod device;
mod manifest;
mod pipeline;
mod python_trace;
mod result_names;
mod watch_rows;

pub use finish::{
    FinishError, FinishOptions, FinishOutcome, FinishReport, Formats, WrittenFile, finish, finish_opened, is_finished,
};
#[doc(hidden)]
pub use manifest::is_believed as manifest_is_believed;
pub use row::{BlockNotes, NoNotes, Row, RowContext};
pub use stacks::StackFormatter;
pub use symbol_stacks::{ShownStacks, SymbolStacks};
