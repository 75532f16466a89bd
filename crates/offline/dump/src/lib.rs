//! The dump files that people and MindStudio Insight read: `memscope_dump_*.csv` and `.db`.
//!
//! Everything about the format is said once, for writers and readers:
//!
//! * [`columns`]: the columns; [`words`]: what stands in `Event` and `Event Type`; [`keys`]: the keys of `Attr`.
//! * [`csv_writer`] and [`database_writer`] write rows, [`csv_reader`] and [`database_reader`] read them, also those of
//!   other tools and other ages. [`attributes`] is the `Attr` cell in both spellings.
//! * [`cells`]: a row to be written; [`row`]: a row that was read.
//! * [`annotate`]: writes findings into existing files, safely.
//! * [`insight`]: the contract with MindStudio Insight, as a checker that tests use.
//!
//! What rows *mean* is not decided here: `output` makes them of events, `import` makes facts of them.

pub mod annotate;
pub mod attributes;
pub mod cells;
pub mod columns;
pub mod csv_reader;
pub mod csv_writer;
pub mod database_reader;
pub mod database_writer;
pub mod insight;
pub mod keys;
pub mod row;
pub mod text;
pub mod words;
