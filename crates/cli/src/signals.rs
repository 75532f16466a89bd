//! Signals while a job runs: the terminal reaches the job by itself, `kill` is passed on.
//!
//! We stay in the job's process group, so a Ctrl-C of the terminal goes to both; passing it on would
//! deliver it twice. A signal that somebody sent to us by `kill` was meant for the job. All signals
//! concerned are blocked and taken synchronously, which also works for PID 1 of a container.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Signals that are passed on to the job when somebody sends them to us.
const FORWARDED: [i32; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGCONT,
];

/// What to do about a signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A child changed its state.
    Child,
    /// Somebody sent us this signal for the job.
    Forward(i32),
    /// The terminal sent it to the whole group, or it needs no action.
    Ignore,
}

/// Keeps the signals blocked; gives them out one by one.
pub struct SignalGate {
    blocked: libc::sigset_t,
    original: libc::sigset_t,
}

/// Puts the original mask back in the child, between fork and exec.
#[derive(Clone, Copy)]
pub struct MaskRestorer(libc::sigset_t);

impl MaskRestorer {
    /// Async-signal-safe.
    pub fn restore(self) -> io::Result<()> {
        // SAFETY: plain system call on an initialised set.
        match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl SignalGate {
    /// Blocks the signals from now on.
    pub fn close() -> Self {
        let mut blocked = MaybeUninit::uninit();
        let mut original = MaybeUninit::uninit();
        // SAFETY: the sets are initialised by sigemptyset and sigprocmask before they are read.
        unsafe {
            libc::sigemptyset(blocked.as_mut_ptr());
            for signal in FORWARDED.iter().chain(&[libc::SIGCHLD]) {
                libc::sigaddset(blocked.as_mut_ptr(), *signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, blocked.as_ptr(), original.as_mut_ptr());
            Self { blocked: blocked.assume_init(), original: original.assume_init() }
        }
    }

    /// What the child must do before exec.
    pub fn restorer(&self) -> MaskRestorer {
        MaskRestorer(self.original)
    }

    /// Waits for the next signal, at most the given time.
    pub fn wait(&self, limit: Duration) -> Arrived {
        let limit = libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() };
        let mut information = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: all pointers are valid; the kernel fills the information if a signal is returned.
        let signal = unsafe { libc::sigtimedwait(&self.blocked, information.as_mut_ptr(), &limit) };
        match signal {
            libc::SIGCHLD => Arrived::Child,
            signal if signal > 0 => {
                // SAFETY: filled in, see above.
                let sent_by_process = unsafe { information.assume_init() }.si_code <= 0;
                if sent_by_process { Arrived::Forward(signal) } else { Arrived::Ignore }
            }
            _ => Arrived::Ignore,
        }
    }
}

/// Ends this process the way the job ended, without a core file of our own.
pub fn die_by(signal: i32) -> ! {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls; the signal set is initialised before use.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
    // PID 1 of a container cannot be killed by its own signals: say it the way shells do.
    std::process::exit(128 + signal)
}
