//! Watching on a device that is a piece of host memory.

mod automatic;
mod explicit;
mod kernels;
mod support;
