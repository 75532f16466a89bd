//! Streams.

use crate::error::INVALID_PARAMETER;
use crate::runtime::{
    aclrtStreamGetIdImpl, rtStreamCreate, rtStreamDestroy, rtStreamQuery, rtStreamSynchronize,
    rtStreamSynchronizeWithTimeout, rtStreamWaitEvent,
};
use std::ffi::c_void;

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtCreateStream(stream: *mut *mut c_void) -> i32 {
    // SAFETY: the runtime checks the pointer.
    unsafe { rtStreamCreate(stream, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtCreateStreamWithConfig(stream: *mut *mut c_void, priority: u32, _flags: u32) -> i32 {
    // SAFETY: the runtime checks the pointer.
    unsafe { rtStreamCreate(stream, priority as i32) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtDestroyStream(stream: *mut c_void) -> i32 {
    // SAFETY: the runtime checks the handle.
    unsafe { rtStreamDestroy(stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtDestroyStreamForce(stream: *mut c_void) -> i32 {
    // SAFETY: the runtime checks the handle.
    unsafe { rtStreamDestroy(stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtSynchronizeStream(stream: *mut c_void) -> i32 {
    // SAFETY: the runtime checks the handle.
    unsafe { rtStreamSynchronize(stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtSynchronizeStreamWithTimeout(stream: *mut c_void, timeout_ms: i32) -> i32 {
    // SAFETY: the runtime checks the handle.
    unsafe { rtStreamSynchronizeWithTimeout(stream, timeout_ms) }
}

/// Status 0: all work is done, 1: not yet.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtStreamQuery(stream: *mut c_void, status: *mut i32) -> i32 {
    if status.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: the runtime checks the handle; the status was checked.
    unsafe {
        let state = rtStreamQuery(stream);
        if state > 1 {
            return state;
        }
        status.write(state);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtStreamWaitEvent(stream: *mut c_void, event: *mut c_void) -> i32 {
    // SAFETY: the runtime checks both handles.
    unsafe { rtStreamWaitEvent(stream, event) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtStreamGetId(stream: *mut c_void, id: *mut i32) -> i32 {
    // SAFETY: the runtime checks handle and pointer.
    unsafe { aclrtStreamGetIdImpl(stream, id) }
}

/// Priorities that streams may have; the smaller number goes first.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> i32 {
    const LEAST: i32 = 7;
    const GREATEST: i32 = 0;
    if least.is_null() || greatest.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe {
        least.write(LEAST);
        greatest.write(GREATEST);
    }
    0
}
