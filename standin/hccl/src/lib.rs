//! Stand-in for CANN's `libhccl.so`: collective operations between the processes of one machine.
//!
//! Ranks share a file: between each two of them lies a ring for each direction, and everything else is made of sending and
//! receiving. Operations run on the worker of their stream, in its order, as on a card. A communicator takes its two buffers
//! through the driver, as memory of the module HCCL, so that tools see them.
//!
//! * `exports`: the C functions.
//! * `communicator`: one rank of a group: who takes part, buffers, errors.
//! * `group`: operations that are kept until a group of them ends.
//! * `rings`: the shared file, and moving bytes through it.
//! * `collective`: the operations.
//! * `reduction`: sums, products, largest and smallest of every type.

mod collective;
mod communicator;
mod exports;
mod group;
mod reduction;
mod rings;

/// What went wrong, by HCCL's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Failure {
    Parameter = 1,
    Pointer = 2,
    NotSupported = 5,
    SystemCall = 8,
    Timeout = 9,
    OpenFile = 10,
    Runtime = 14,
    Remote = 21,
}

impl Failure {
    /// In words.
    pub(crate) fn text(number: i32) -> &'static std::ffi::CStr {
        match number {
            0 => c"no error",
            1 => c"parameter error",
            2 => c"empty pointer",
            5 => c"not supported",
            8 => c"system call failed",
            9 => c"timed out",
            10 => c"cannot open a file",
            14 => c"the runtime failed",
            21 => c"a process that takes part has ended",
            _ => c"unknown error",
        }
    }
}
