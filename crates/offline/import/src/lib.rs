//! Foreign inputs as facts: dump files (csv and db) of this tool and its relatives, of any age, and
//! the recordings found in directories.
//!
//! What a file says is turned back into the facts it came from, so that the timeline and everything
//! behind it treat a csv of last year exactly like a recording of today. Nothing here ever writes:
//! inputs are opened for reading only.
//!
//! * [`mod@open`]: decides by content what a path holds.
//! * `torch_snapshot`, `pickle`: memory snapshots of PyTorch.
//! * `mindspore_blocks`: files of MindSpore's memory tracker.
//! * `interpret`: from one row, as `msmemscope-dump` reads it, to one fact.
//! * `process`: the facts of one process in time order, as a `FactSource`.
#![forbid(unsafe_code)]

mod error;
mod interpret;
mod mindspore_blocks;
mod open;
mod pickle;
mod process;
mod report;
mod torch_snapshot;

pub use error::ImportError;
pub use open::{Imported, InputFile, Recording, RecordingStream, find_all, open, open_files, open_several};
pub use process::{ImportedProcess, ImportedStream};
pub use report::{ImportReport, SkipReason};
