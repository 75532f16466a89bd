//! Foreign inputs as facts: dump files (csv and db) of this tool and its relatives, of any age, and
//! the recordings found in directories.
//!
//! What a file says is turned back into the facts it came from, so that the timeline and everything
//! behind it treat a csv of last year exactly like a recording of today. Nothing here ever writes:
//! inputs are opened for reading only.
//!
//! * [`open`]: decides by content what a path holds.
//! * `csv`, `database`: the two file formats, as rows.
//! * `attributes`: the `Attr` cell in both spellings.
//! * `interpret`: from one row to one fact.
//! * `process`: the facts of one process in time order, as a `FactSource`.
#![forbid(unsafe_code)]

mod attributes;
mod csv;
mod database;
mod error;
mod interpret;
mod open;
mod process;
mod report;
mod row;

pub use attributes::{AttributeText, set_attribute};
pub use csv::{CsvCells, CsvRecord, CsvRecords, DUMP_COLUMNS};
pub use database::{DUMP_TABLES, find_dump_table};
pub use error::ImportError;
pub use open::{Imported, Recording, RecordingStream, open, open_several};
pub use process::{ImportedProcess, ImportedStream};
pub use report::{ImportReport, SkipReason};
