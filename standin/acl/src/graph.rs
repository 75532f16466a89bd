//! Graphs captured from streams, which run as a whole.

use crate::runtime::{
    rtModelDestroy, rtModelExecute, rtStreamBeginCapture, rtStreamEndCapture, rtStreamGetCaptureInfo,
    rtStreamSynchronize, rtThreadExchangeCaptureMode,
};
use std::ffi::c_void;

#[unsafe(no_mangle)]
unsafe extern "C" fn aclmdlRICaptureBegin(stream: *mut c_void, mode: i32) -> i32 {
    // SAFETY: the runtime checks the handle.
    unsafe { rtStreamBeginCapture(stream, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclmdlRICaptureGetInfo(stream: *mut c_void, status: *mut i32, graph: *mut *mut c_void) -> i32 {
    // SAFETY: the runtime checks handle and pointers.
    unsafe { rtStreamGetCaptureInfo(stream, status, graph) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclmdlRICaptureEnd(stream: *mut c_void, graph: *mut *mut c_void) -> i32 {
    // SAFETY: the runtime checks handle and pointer.
    unsafe { rtStreamEndCapture(stream, graph) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclmdlRICaptureThreadExchangeMode(mode: *mut i32) -> i32 {
    // SAFETY: the runtime checks the pointer.
    unsafe { rtThreadExchangeCaptureMode(mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclmdlRIExecuteAsync(graph: *mut c_void, stream: *mut c_void) -> i32 {
    // SAFETY: the runtime checks the handles.
    unsafe { rtModelExecute(graph, stream, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclmdlRIExecute(graph: *mut c_void, _timeout_ms: i32) -> i32 {
    let default_stream = std::ptr::null_mut();
    // SAFETY: the runtime checks the handle.
    unsafe {
        match rtModelExecute(graph, default_stream, 0) {
            0 => rtStreamSynchronize(default_stream),
            error => error,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclmdlRIDestroy(graph: *mut c_void) -> i32 {
    // SAFETY: the runtime checks the handle.
    unsafe { rtModelDestroy(graph) }
}
