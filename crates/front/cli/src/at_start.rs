//! What the language runtime changes before `main`, looked at before it does: the job gets things as we got them.

use std::sync::atomic::{AtomicBool, Ordering};

static IGNORES_PIPES: AtomicBool = AtomicBool::new(false);
/// Which of the standard descriptors were closed; the runtime opens them on /dev/null.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: plain old data, for which zero is a valid value; the call only reads the disposition.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    };
    IGNORES_PIPES.store(ignored, Ordering::Relaxed);
    for (descriptor, closed) in CLOSED.iter().enumerate() {
        // SAFETY: plain system call that only looks.
        let is_closed = unsafe { libc::fcntl(descriptor as libc::c_int, libc::F_GETFD) } < 0;
        closed.store(is_closed, Ordering::Relaxed);
    }
}

/// Whether SIGPIPE was ignored when we were started.
pub fn ignores_pipes() -> bool {
    IGNORES_PIPES.load(Ordering::Relaxed)
}

/// The standard descriptors that were closed when we were started.
pub fn closed_at_start() -> Vec<libc::c_int> {
    let closed = CLOSED.iter().enumerate().filter(|(_, closed)| closed.load(Ordering::Relaxed));
    closed.map(|(descriptor, _)| descriptor as libc::c_int).collect()
}
