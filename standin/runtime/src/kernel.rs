//! Kernels given as binaries cannot run here; programs that only link against these functions still load.

use std::ffi::{c_char, c_void};

/// The feature does not exist.
const UNSUPPORTED: i32 = 207_000;

#[unsafe(no_mangle)]
extern "C" fn rtDevBinaryRegister(_binary: *const c_void, _handle: *mut *mut c_void) -> i32 {
    UNSUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn rtFunctionRegister(
    _binary: *mut c_void,
    _stub: *const c_void,
    _name: *const c_char,
    _information: *const c_void,
    _mode: u32,
) -> i32 {
    UNSUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn rtKernelLaunch(
    _stub: *const c_void,
    _blocks: u32,
    _arguments: *mut c_void,
    _argument_bytes: u32,
    _description: *mut c_void,
    _stream: *mut c_void,
) -> i32 {
    UNSUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn rtGetC2cCtrlAddr(_address: *mut u64, _length: *mut u32) -> i32 {
    UNSUPPORTED
}
