//! The trace file: facts of one process, written by its threads into mapped chunks.
//!
//! The file outlives the process: whatever a thread has committed is on its way to the disk even if
//! the process is killed a nanosecond later. `docs/trace-format.md` describes every byte.
//!
//! * [`layout`] and [`codec`] say what the bytes mean.
//! * [`writer`] is the half the recorder links: it never allocates on the way of an event.
//! * [`reader`] is the half everyone else links: it accepts any truncated or torn file and says
//!   what is missing.
//! * [`requests`] is how others ask a running process to do something with its recording.

pub mod codec;
pub mod layout;
pub mod reader;
pub mod requests;
pub mod writer;

mod appendix;
mod catching_up;
mod chunk_image;
mod chunk_table;
mod compaction;
mod definitions;
mod fingerprint;
mod merge;
mod moment;
mod passing_blocks;
mod past;
mod past_blocks;
mod quick_hash;
mod read_chunk;
mod regular_file;

pub use appendix::append_facts;
pub use definitions::{Definitions, Module, PythonCode, RecordedSettings};
pub use fingerprint::Fingerprint;
pub use merge::RecordStream;
pub use moment::copy_moment;
pub use reader::{Completeness, Damage, Introduction, MOST_DAMAGE_SHOWN, Trace, TraceError};
pub use regular_file::{BYTES_OF_HOLES_READ, hole_bytes, open_regular_file};

/// Name of the trace file inside the directory of a process.
pub const TRACE_FILE_NAME: &str = "recording.trace";
