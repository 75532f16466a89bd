//! Writes what people and other tools read. One module per format, all fed by one row type.
//!
//! * [`row`]: what a row says, once for all formats.
//! * [`csv`] and [`sqlite`]: how a row is stored.
//! * [`directory`]: where files are written, without following links.
//! * [`finish`]: from the directory of a recorded process to its files.
//! * [`insight`]: checks that a database will load in MindStudio Insight.

pub mod csv;
pub mod directory;
pub mod files;
pub mod finish;
pub mod insight;
pub mod log;
pub mod row;
pub mod sqlite;
pub mod stacks;
mod symbol_stacks;

mod device;
mod manifest;
mod pipeline;
mod python_trace;
mod result_names;
mod text;
mod watch_rows;

pub use finish::{
    FinishError, FinishOptions, FinishOutcome, FinishReport, Formats, WrittenFile, finish, finish_opened, is_finished,
};
#[doc(hidden)]
pub use manifest::is_believed as manifest_is_believed;
pub use row::{BlockNotes, NoNotes, Row, RowContext};
pub use stacks::StackFormatter;
pub use symbol_stacks::SymbolStacks;
