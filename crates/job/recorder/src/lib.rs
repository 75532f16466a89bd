//! The recorder: a library preloaded into the job that writes down what its memory calls do.
//!
//! A hook finds the real function, calls it, appends one record to the trace and returns what the
//! real function returned. It holds nothing across the real call, so exceptions and long jumps may
//! pass through it. Everything that can go wrong here is counted and, once, told on stderr; the job
//! goes on as if we were not there.
//!
//! * [`hooks`] makes symbols, entries and real functions of the table of hooks, [`exports`] the few other symbols;
//!   [`hal`], [`acl`], [`mstx`] and [`mstx_memory`] are what hooks do.
//!   [`torch_streams`] asks which stream a block of PyTorch is for.
//! * [`real`] finds the functions behind them, with [`elf`]; [`lookup`] answers `dlsym`;
//!   [`import_tables`] redirects functions that must not be exported.
//! * [`thread`] appends records, each at one of the [`workplaces`] of its thread; [`process`] owns the trace file
//!   ([`owner`]: whose it is after a fork; [`directory`]: where it is; [`introduction`]: what it says first; [`adoption`]:
//!   chunks of threads that have ended; [`failures`]: when it cannot be written). [`state`] says what is recorded.
//! * [`stacks`] takes the call stacks of events, [`python_stacks`] those of Python.
//! * [`kernels`] sees launches of kernels; [`kernel_channel`] reads when cards start and finish them, with [`task_records`]
//!   and [`device_clock`]. Only if kernels were asked for. [`launches`] calls a guest around each of them.
//! * [`atb`] sees operators and kernels of ATB, whatever the ABI of its library.
//! * [`card`] asks how full a card is when memory runs out.
//! * [`control`] lets guests in, such as the Python package; [`block_observer`] tells one of them about blocks.
//! * [`python_half`] brings the Python package into jobs that do not import it.
//! * [`life`] is what happens when the library is loaded and when the process exits.

#![cfg_attr(test, allow(dead_code, reason = "unit tests must not interpose anything"))]

mod acl;
mod adoption;
mod atb;
mod block_observer;
mod card;
mod clock;
mod control;
mod device_clock;
mod directory;
mod domains;
mod elf;
mod errno;
mod exports;
mod failures;
mod finisher;
mod hal;
mod hccl;
mod hooks;
mod import_tables;
mod introduction;
mod kernel_channel;
mod kernels;
mod launches;
mod life;
mod live_chunks;
mod lookup;
mod losses;
mod message;
mod mstx;
mod mstx_memory;
mod native_watch;
mod open_labels;
mod owner;
mod prepared_work;
mod process;
mod python_half;
mod python_stacks;
mod real;
mod refusals;
mod requests;
mod settings;
mod sources;
mod stack_room;
mod stacks;
mod state;
mod strings;
mod task_records;
mod thread;
mod ticks;
mod told_totals;
mod torch_streams;
mod wiped_page;
mod workplaces;
