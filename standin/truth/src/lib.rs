//! The ground-truth log of the stand-in device: what the device really did, written by the device itself.
//!
//! It knows nothing of any tool that observes the job, so a recording can be compared with it. When the
//! environment variable `STANDIN_LOG` names a directory, every library of the stand-in writes one file per
//! process there. The files are mapped shared, so everything completed before a `SIGKILL` is in them.
//!
//! [`TruthWriter`] is used inside the libraries, [`read_directory`] in tests. The layout is in [`mod@format`].

pub mod format;
mod reader;
mod writer;

pub use format::{Kind, Record};
pub use reader::{Entry, TruthError, TruthFile, read_directory, read_file};
pub use writer::{DIRECTORY_VARIABLE, Stamp, TruthWriter};
