//! Stand-in for CANN's `libruntime.so`: devices, memory, streams and events.
//!
//! Memory comes from `libascend_hal.so` through its dynamic symbols, as on a card, so hooks of the driver see it.
//! Streams are queues with a worker thread each; work given to a stream runs later and in order.

mod capture;
mod copy;
mod device;
mod driver;
mod error;
mod event;
mod kernel;
mod launch;
mod memory;
mod state;
mod stream;
mod stream_exports;
mod task_reports;
mod virtual_memory;
