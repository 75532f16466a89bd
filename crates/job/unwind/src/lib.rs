//! Native call stacks of the calling thread, cheap enough to take one per event.
//!
//! The recorder links this crate. [`Unwinder::capture`] walks from the hook outwards with rules
//! worked out from the unwind tables of each module's file. A rule is a few numbers per code
//! address; it is worked out once and kept in a table that all threads read without locks. Stacks
//! get ids; a stack met for the first time is handed to a [`StackSink`], as are the modules its
//! frames lie in. Nothing is turned into names here.
//!
//! Once the code addresses of a program have been met, taking a stack allocates nothing, takes no
//! lock and makes no system call (on the stacks that threads normally run on).
//!
//! A thread's stacks mostly differ in their innermost frames only; the rest is recognised and checked
//! against the stack with a few instructions per frame: see `walked`.
//!
//! * No memory is read that might not be mapped: see `stack_memory`.
//! * No rule of an unloaded library is used for its successor at the same address: see `modules`.
//! * All memory is bounded: 1 MiB of rules, 8 MiB of stack ids, touched as needed.

mod dynamic_linker;
mod elf;
mod expression;
pub mod linker_walk;
mod modules;
mod registers;
mod rule;
mod rule_table;
mod stack_memory;
mod tables;
mod unwinder;
mod walk;
mod walked;

pub use registers::Registers;
pub use stack_memory::{main_stack, stack_of_thread};
pub use unwinder::{Capture, LARGEST_DEPTH, ModuleDescription, StackSink, ThreadState, UNKNOWN_OUTER_FRAMES, Unwinder};
