//! From events to findings people can act on. One module per question, all fed by one pass.
//!
//! * [`situation`]: what holds at the current event; kept once for all questions.
//! * [`leaks`], [`standing`], [`marks`], [`moment`], [`fluctuation`], [`decompose`], [`inefficient`], [`out_of_memory`],
//!   [`fragmentation`]: one question each, as consumers of events whose memory is bounded by live
//!   blocks, and a plain result.
//! * [`curve`]: memory in use over time, for a few lines of text.
//! * [`question`]: what a question is, and the registry of all of them.
//! * [`pass`]: several of them in one pass over a recording.
//! * [`causes`], [`leaks_by_cause`]: findings that belong together.
//! * [`live`]: what a job holds while it runs.
//! * [`pieces`]: memory that a pool holds in pieces too small for what is asked of it; part of [`standing`].
//! * [`holders`]: who holds blocks, for all of the above.
//! * [`compare`]: two runs or steps.
//! * [`fleet`]: what one process says of itself in a few kilobytes, and what thousands of them say together.
//! * [`step_use`]: memory step by step.
//! * [`watch`]: watched blocks that changed without an operator declaring it.
//! * [`step_source`]: what says where steps end.
//! * [`unseen`]: pools that the recording knows nothing of.
//! * [`check`]: rules for automatic tests.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod causes;
pub mod check;
pub mod compare;
pub mod curve;
pub mod decompose;
pub mod fleet;
pub mod fluctuation;
pub mod fragmentation;
pub mod gaps;
pub mod grouping;
pub mod growing;
pub mod holders;
pub mod inefficient;
pub mod installation;
pub mod kernels;
pub mod leaks;
pub mod leaks_by_cause;
pub mod live;
pub mod marks;
mod module_frames;
pub mod moment;
pub mod names;
pub mod notes;
pub mod operator_places;
pub mod out_of_memory;
pub mod owners;
pub mod pass;
pub mod phases;
pub mod pieces;
pub mod question;
pub mod remedy;
pub mod situation;
pub mod standing;
pub mod step_source;
pub mod step_use;
pub mod unseen;
pub mod verdict;
pub mod watch;

mod allocator_lines;
mod backing;
mod device_text;
mod peak_sums;
mod peak_window;
mod pool_use;
mod prepared_work;
mod roles;
mod small_map;

pub use decompose::OwnerQuestion;
pub use names::{Frame, Names, RecordingNames};
pub use notes::Notes;
pub use owners::Owners;
pub use pass::analyze;
pub use question::{Answers, QUESTIONS, Question, QuestionInfo, Questions};
