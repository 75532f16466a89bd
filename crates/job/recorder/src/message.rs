//! The recorder's rare words to people: one line on stderr, only if stderr still is what it was
//! when the process began, without ever blocking, raising SIGPIPE or changing errno.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{errno, settings};

const STDERR: i32 = 2;

/// Device and inode of stderr at load time; zero if it was closed.
static STDERR_DEVICE: AtomicU64 = AtomicU64::new(0);
static STDERR_INODE: AtomicU64 = AtomicU64::new(0);

fn identity_of_stderr() -> (u64, u64) {
    // SAFETY: plain old data, for which zero is a valid value.
    let mut facts: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `facts` outlives the call.
    match unsafe { libc::fstat(STDERR, &mut facts) } {
        0 => (facts.st_dev, facts.st_ino),
        _ => (0, 0),
    }
}

/// Remembers what stderr is, so that a file the job later opens in its place is left alone.
pub fn remember_stderr() {
    let (device, inode) = errno::aside(identity_of_stderr);
    STDERR_DEVICE.store(device, Ordering::Relaxed);
    STDERR_INODE.store(inode, Ordering::Relaxed);
}

/// Whether stderr still is what it was when the process began.
pub fn stderr_is_unchanged() -> bool {
    let remembered = (STDERR_DEVICE.load(Ordering::Relaxed), STDERR_INODE.load(Ordering::Relaxed));
    remembered != (0, 0) && remembered == identity_of_stderr()
}

/// Writes `[<tool>] <text>` as one line.
#[cold]
pub fn say(text: &str) {
    errno::aside(|| {
        if !stderr_is_unchanged() {
            return;
        }
        let mut poll = libc::pollfd { fd: STDERR, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one valid entry.
        let ready = unsafe { libc::poll(&mut poll, 1, 0) } == 1 && poll.revents & libc::POLLOUT != 0;
        if ready {
            write_without_sigpipe(text);
        }
    });
}

fn write_without_sigpipe(text: &str) {
    let parts = ["[", settings::tool_name(), "] ", text, "\n"];
    let vectors = parts.map(|part| libc::iovec { iov_base: part.as_ptr() as *mut _, iov_len: part.len() });
    // SAFETY: signal sets are initialised by sigemptyset before use; all pointers are valid for the calls.
    unsafe {
        let mut pipe_signal: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut pipe_signal);
        libc::sigaddset(&mut pipe_signal, libc::SIGPIPE);
        libc::sigpending(&mut pending);
        let was_pending = libc::sigismember(&pending, libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe_signal, &mut before);
        let written = libc::writev(STDERR, vectors.as_ptr(), vectors.len() as i32);
        if written < 0 && errno::last() == libc::EPIPE && !was_pending {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&pipe_signal, std::ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
}
