//! Events.

use crate::error::INVALID_PARAMETER;
use crate::runtime::{
    rtEventCreate, rtEventDestroy, rtEventElapsedTime, rtEventQuery, rtEventRecord, rtEventReset, rtEventSynchronize,
};
use std::ffi::c_void;

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtCreateEvent(event: *mut *mut c_void) -> i32 {
    // SAFETY: the runtime checks the pointer.
    unsafe { rtEventCreate(event) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtCreateEventWithFlag(event: *mut *mut c_void, _flags: u32) -> i32 {
    // SAFETY: the runtime checks the pointer.
    unsafe { rtEventCreate(event) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtCreateEventExWithFlag(event: *mut *mut c_void, _flags: u32) -> i32 {
    // SAFETY: the runtime checks the pointer.
    unsafe { rtEventCreate(event) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtDestroyEvent(event: *mut c_void) -> i32 {
    // SAFETY: the runtime checks the handle.
    unsafe { rtEventDestroy(event) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtRecordEvent(event: *mut c_void, stream: *mut c_void) -> i32 {
    // SAFETY: the runtime checks both handles.
    unsafe { rtEventRecord(event, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtResetEvent(event: *mut c_void, stream: *mut c_void) -> i32 {
    // SAFETY: the runtime checks both handles.
    unsafe { rtEventReset(event, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtSynchronizeEvent(event: *mut c_void) -> i32 {
    // SAFETY: the runtime checks the handle.
    unsafe { rtEventSynchronize(event) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) -> i32 {
    // SAFETY: the runtime checks all arguments.
    unsafe { rtEventElapsedTime(milliseconds, start, end) }
}

/// Writes `complete` or `pending` for the state of an event.
unsafe fn write_status(event: *mut c_void, status: *mut i32, complete: i32, pending: i32) -> i32 {
    if status.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: the runtime checks the handle; the status was checked.
    unsafe {
        match rtEventQuery(event) {
            0 => status.write(complete),
            1 => status.write(pending),
            error => return error,
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtQueryEvent(event: *mut c_void, status: *mut i32) -> i32 {
    // SAFETY: as for the function called.
    unsafe { write_status(event, status, 0, 1) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtQueryEventStatus(event: *mut c_void, status: *mut i32) -> i32 {
    // SAFETY: as for the function called.
    unsafe { write_status(event, status, 1, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtQueryEventWaitStatus(event: *mut c_void, status: *mut i32) -> i32 {
    // SAFETY: as for the function called.
    unsafe { write_status(event, status, 0, 1) }
}
