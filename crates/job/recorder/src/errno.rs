//! Keeps errno of the job as it was while our own system calls run, and its cancellations out of them.

use msmemscope_courtesy::uncancelled;

/// Runs `work` and puts errno back to what it was before. For what has no system calls that may wait.
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

/// Runs slow work as if it did not happen: errno stays, and no cancellation of the thread takes effect in it.
pub fn aside<Value>(work: impl FnOnce() -> Value) -> Value {
    preserved(|| uncancelled(work))
}

/// The errno of the last failed system call.
pub fn last() -> i32 {
    // SAFETY: always valid for the calling thread.
    unsafe { *libc::__errno_location() }
}
