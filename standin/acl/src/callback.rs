//! Functions of the program that run in a stream.

use crate::error::INVALID_PARAMETER;
use std::ffi::c_void;

unsafe extern "C" {
    fn standinSubmit(stream: *mut c_void, function: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) -> i32;
}

type Callback = unsafe extern "C" fn(*mut c_void);

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchCallback(
    function: Option<Callback>,
    argument: *mut c_void,
    _block: i32,
    stream: *mut c_void,
) -> i32 {
    let Some(function) = function else { return INVALID_PARAMETER };
    // SAFETY: function and argument belong together by the contract of the C function.
    unsafe { standinSubmit(stream, function, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchHostFunc(
    stream: *mut c_void,
    function: Option<Callback>,
    argument: *mut c_void,
) -> i32 {
    let Some(function) = function else { return INVALID_PARAMETER };
    // SAFETY: function and argument belong together by the contract of the C function.
    unsafe { standinSubmit(stream, function, argument) }
}

/// Callbacks run on the stream's own worker, so no thread of the program has to be subscribed or to poll.
#[unsafe(no_mangle)]
extern "C" fn aclrtSubscribeReport(_thread: u64, _stream: *mut c_void) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn aclrtUnSubscribeReport(_thread: u64, _stream: *mut c_void) -> i32 {
    0
}

/// Waits as long as asked: there is never a report.
#[unsafe(no_mangle)]
extern "C" fn aclrtProcessReport(timeout_ms: i32) -> i32 {
    const NO_REPORT_IN_TIME: i32 = 100_036;
    let wait = std::time::Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(100));
    std::thread::sleep(wait);
    NO_REPORT_IN_TIME
}
