//! Signals while a job runs: the terminal reaches the job by itself, `kill` is passed on.
//!
//! We stay in the job's process group, so a Ctrl-C of the terminal goes to both; passing it on would
//! deliver it twice. A signal that somebody sent to us by `kill` was meant for the job. All signals
//! concerned are blocked and taken synchronously, which also works for PID 1 of a container.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// Signals that are passed on to the job when somebody sends them to us.
const FORWARDED: [i32; 10] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGCONT,
    libc::SIGTSTP,
];

/// Signals that people use to end a program.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

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
    original: SignalsAtStart,
}

/// How signals were handled when we were started; the job gets the same.
#[derive(Clone, Copy)]
pub struct SignalsAtStart {
    mask: libc::sigset_t,
    ignores_children: bool,
    ignores_pipes: bool,
}

impl SignalsAtStart {
    /// Puts everything back, in the child between fork and exec. Async-signal-safe.
    pub fn restore(self) -> io::Result<()> {
        // SAFETY: plain system calls on an initialised set.
        unsafe {
            if self.ignores_children {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            if self.ignores_pipes {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            match libc::sigprocmask(libc::SIG_SETMASK, &self.mask, std::ptr::null_mut()) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

impl SignalGate {
    /// Blocks the signals from now on.
    pub fn close() -> Self {
        let blocked = set_of(FORWARDED.iter().chain(&[libc::SIGCHLD]));
        let mut mask = MaybeUninit::uninit();
        // SAFETY: plain system calls; the mask is filled in before it is read. An ignored SIGCHLD would
        // keep the end of the job from us.
        unsafe {
            let ignores_children = libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_IGN;
            libc::sigprocmask(libc::SIG_BLOCK, &blocked, mask.as_mut_ptr());
            let mask = mask.assume_init();
            let ignores_pipes = at_start::ignores_pipes();
            Self { blocked, original: SignalsAtStart { mask, ignores_children, ignores_pipes } }
        }
    }

    /// What the child must put back before exec.
    pub fn original(&self) -> SignalsAtStart {
        self.original
    }

    /// Waits for the next signal, at most the given time.
    pub fn wait(&self, limit: Duration) -> Arrived {
        match self.take(limit) {
            Some((libc::SIGCHLD, _)) => Arrived::Child,
            Some((signal, true)) => Arrived::Forward(signal),
            _ => Arrived::Ignore,
        }
    }

    /// Opens the gate after the job has ended: signals that came with its end are forgotten, and from
    /// now on a signal ends us after `farewell` was written.
    pub fn open(self, farewell: CString) {
        while self.take(Duration::ZERO).is_some() {}
        FAREWELL.store(farewell.into_raw(), Ordering::Release);
        let handler: extern "C" fn(i32) = say_farewell;
        // SAFETY: the handler only makes async-signal-safe calls; the mask was filled in by the kernel.
        unsafe {
            for signal in ENDING {
                let before = libc::signal(signal, handler as libc::sighandler_t);
                if before == libc::SIG_IGN {
                    libc::signal(signal, libc::SIG_IGN);
                }
            }
            libc::sigprocmask(libc::SIG_SETMASK, &self.original.mask, std::ptr::null_mut());
        }
    }

    /// The next signal, and whether a process sent it.
    fn take(&self, limit: Duration) -> Option<(i32, bool)> {
        let limit = libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() };
        let mut information = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: all pointers are valid; the kernel fills the information if a signal is returned.
        unsafe {
            let signal = libc::sigtimedwait(&self.blocked, information.as_mut_ptr(), &limit);
            (signal > 0).then(|| (signal, information.assume_init().si_code <= 0))
        }
    }
}

/// The signals with which people end a server that has nothing to lose: blocked in this thread and in those it starts
/// from now on, until one is waited for.
pub struct EndSignals(libc::sigset_t);

impl EndSignals {
    /// Blocks them. Shells let programs in the background ignore the first; a server is asked to end by it nevertheless.
    pub fn block() -> Self {
        let signals = [libc::SIGINT, libc::SIGTERM];
        let set = set_of(signals.iter());
        // SAFETY: plain system calls on an initialised set.
        unsafe {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        Self(set)
    }

    /// Waits for one of them, at most the given time. Returns whether one came.
    pub fn wait(&self, limit: Duration) -> bool {
        let limit = libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() };
        // SAFETY: both pointers are valid; nothing is asked about the signal.
        unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &limit) > 0 }
    }
}

fn set_of<'a>(signals: impl Iterator<Item = &'a i32>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: initialised by sigemptyset before anything else.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// What to write when a signal ends us; null or a C string that is never freed.
static FAREWELL: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn say_farewell(signal: i32) {
    let text = FAREWELL.load(Ordering::Acquire);
    // SAFETY: async-signal-safe calls; the text is a C string that is never freed.
    unsafe {
        if !text.is_null() {
            libc::write(libc::STDERR_FILENO, text.cast(), libc::strlen(text));
        }
    }
    die_by(signal)
}

/// Ends this process the way the job ended, without a core file of our own. Async-signal-safe.
pub fn die_by(signal: i32) -> ! {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls; the signal set is initialised before use.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set_of([signal].iter()), std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
        // PID 1 of a container cannot be killed by its own signals: say it the way shells do.
        libc::_exit(128 + signal)
    }
}

/// What the language runtime changes before `main`, looked at before it does.
mod at_start {
    use std::sync::atomic::{AtomicBool, Ordering};

    static IGNORES_PIPES: AtomicBool = AtomicBool::new(false);

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
    }

    /// Whether SIGPIPE was ignored when we were started.
    pub fn ignores_pipes() -> bool {
        IGNORES_PIPES.load(Ordering::Relaxed)
    }
}
