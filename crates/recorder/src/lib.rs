//! The recorder: a library preloaded into the job that writes down what its memory calls do.
//!
//! A hook finds the real function, calls it, appends one record to the trace and returns what the
//! real function returned. It holds nothing across the real call, so exceptions and long jumps may
//! pass through it. Everything that can go wrong here is counted and, once, told on stderr; the job
//! goes on as if we were not there.
//!
//! * [`exports`] is the list of symbols other code can see; [`hal`], [`acl`], [`mstx`] and [`mstx_memory`] are the hooks.
//! * [`real`] finds the functions behind them, with [`elf`]; [`lookup`] answers `dlsym`;
//!   [`import_tables`] redirects functions that must not be exported.
//! * [`thread`] appends records, each at one of the [`workplaces`] of its thread; [`process`] owns the trace file,
//!   [`state`] says what is recorded.
//! * [`stacks`] takes the call stacks of events, [`python_stacks`] those of Python.
//! * [`card`] asks how full a card is when memory runs out.
//! * [`control`] lets guests in, such as the Python package; [`block_observer`] tells one of them about blocks.
//! * [`python_half`] brings the Python package into jobs that do not import it.
//! * [`life`] is what happens when the library is loaded and when the process exits.

#![cfg_attr(test, allow(dead_code, reason = "unit tests must not interpose anything"))]

mod acl;
mod block_observer;
mod card;
mod clock;
mod control;
mod domains;
mod elf;
mod errno;
mod exports;
mod finisher;
mod hal;
mod import_tables;
mod life;
mod live_chunks;
mod lookup;
mod losses;
mod message;
mod mstx;
mod mstx_memory;
mod open_labels;
mod process;
mod python_half;
mod python_stacks;
mod real;
mod settings;
mod signals;
mod sources;
mod stack_room;
mod stacks;
mod state;
mod strings;
mod thread;
mod ticks;
mod workplaces;
