//! Keeps errno of the job as it was while our own system calls run.

/// Runs `work` and puts errno back to what it was before.
#[inline]
pub fn preserved<Value>(work: impl FnOnce() -> Value) -> Value {
    // SAFETY: always valid for the calling thread.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *location };
    let value = work();
    // SAFETY: as above.
    unsafe { *location = before };
    value
}

/// The errno of the last failed system call.
pub fn last() -> i32 {
    // SAFETY: always valid for the calling thread.
    unsafe { *libc::__errno_location() }
}
