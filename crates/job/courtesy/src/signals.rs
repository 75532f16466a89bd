//! Keeps signal handlers away: while files and mappings are made, or a lock is held that handlers may need, too.

/// Signals that a thread raises by its own fault; blocking them would kill the process.
const SYNCHRONOUS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Runs `work` with all other signals blocked in this thread.
pub fn signals_blocked<Value>(work: impl FnOnce() -> Value) -> Value {
    // SAFETY: plain old data that sigfillset initialises.
    let mut all: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: as above; filled by pthread_sigmask.
    let mut before: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: the sets outlive the calls.
    unsafe {
        libc::sigfillset(&mut all);
        for signal in SYNCHRONOUS {
            libc::sigdelset(&mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let value = work();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
    value
}
