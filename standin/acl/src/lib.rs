//! Stand-in for CANN's `libascendcl.so`: AscendCL on top of the stand-in runtime.
//!
//! Only functions that the stand-in really implements are exported: programs that probe for optional functions
//! must not find empty ones.

mod attribute;
mod callback;
mod descriptor;
mod device;
mod error;
mod event;
mod exception;
mod graph;
mod host_register;
mod information;
mod initialization;
mod kernel;
mod log;
mod memory;
mod runtime;
mod setting;
mod stream;
mod virtual_memory;
