//! Python call stacks of the calling thread, read without the interpreter's lock.
//!
//! A thread may read its own chain of frames at any time: only it pushes and pops them, and a live
//! frame keeps its code object alive. So a stack costs some loads per frame and never waits for
//! anybody. CPython 3.9 and later; every symbol is found at run time, nothing is linked.
//!
//! * `interpreter` finds the functions of the interpreter, `layout` knows where its structures
//!   keep what, `memory` reads them.
//! * `walk` goes through the frames, `code` reads code objects and their texts.
//! * `api` does the same through the interpreter's own functions, for the self-check and as the
//!   fallback when the self-check fails.
//! * `fingerprint` is the hot path. `last_walk` spares it the work if the thread stands where it stood, `memo` from
//!   looking into the same code objects again and again, both until `code_deaths` says that one is gone.
//! * `stacks` gives ids to stacks and code objects and hands what is new to a [`Sink`].
//!
//! * `preparation` runs once in the interpreter's main thread, soon after the first capture: it does
//!   the self-check (`check`) and has `gate` closed before the interpreter shuts down.

mod api;
mod check;
mod code;
mod code_deaths;
mod fingerprint;
mod gate;
mod interpreter;
mod last_walk;
mod layout;
mod memo;
mod memory;
mod preparation;
mod sink;
mod stacks;
mod status;
mod walk;

pub use sink::{CodeDefinition, Sink};
pub use stacks::{Captured, Config, LARGEST_DEPTH, Loss, PythonStacks, ThreadState};
pub use status::{Attachment, FallbackReason, PythonVersion, Refusal, Status};
