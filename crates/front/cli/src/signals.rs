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

use crate::at_start::ignores_pipes;

/// Signals that a terminal sends to the whole group, the job included.
const OF_TERMINAL: [i32; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGHUP,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Signals that a program gets from its own faults. They can be passed on, but must keep their effect on us afterwards.
const OF_FAULTS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Every signal that can be passed on to the job: all but those that nobody can catch, the one that tells of children,
/// and the two that the C library keeps for itself.
fn passed_on() -> impl Iterator<Item = i32> {
    let ordinary = (1..32).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD].contains(signal));
    ordinary.chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// Signals that people and batch systems use to end a program.
const ENDING: [i32; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGXCPU];

/// What to do about a signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A child changed its state.
    Child,
    /// Somebody sent us this signal for the job.
    Forward(Sent),
    /// The terminal sent it to the whole group, or it needs no action.
    Ignore,
}

/// A signal, and the value that may have been sent with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    signal: i32,
    value: Option<usize>,
}

impl Sent {
    /// The number of the signal.
    pub fn signal(self) -> i32 {
        self.signal
    }

    /// Sends the same to another process.
    pub fn pass_on_to(self, process_id: libc::pid_t) {
        // SAFETY: plain system calls; the value is only carried.
        unsafe {
            match self.value {
                Some(value) => {
                    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
                    libc::sigqueue(process_id, self.signal, value)
                }
                None => libc::kill(process_id, self.signal),
            };
        }
    }
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
        let blocked = set_of(passed_on().chain([libc::SIGCHLD]));
        let mut mask = MaybeUninit::uninit();
        // SAFETY: plain system calls; the mask is filled in before it is read. An ignored SIGCHLD would
        // keep the end of the job from us.
        unsafe {
            let ignores_children = libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_IGN;
            libc::sigprocmask(libc::SIG_BLOCK, &blocked, mask.as_mut_ptr());
            let mask = mask.assume_init();
            let ignores_pipes = ignores_pipes();
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
            Some(information) if information.si_signo == libc::SIGCHLD => Arrived::Child,
            Some(information) => meant_for_job(&information).map_or(Arrived::Ignore, Arrived::Forward),
            None => Arrived::Ignore,
        }
    }

    /// Opens the gate after the job has ended: signals that came with its end are forgotten, and from now on a signal
    /// that people use to end a program ends us after `farewell` was written. Others that were meant for the job come
    /// too late and wait in vain.
    pub fn open(self, farewell: CString) {
        while self.take(Duration::ZERO).is_some() {}
        FAREWELL.store(farewell.into_raw(), Ordering::Release);
        let handler: extern "C" fn(i32) = say_farewell;
        ignore_size_limit();
        let unblocked = set_of(ENDING.into_iter().chain(OF_TERMINAL).chain(OF_FAULTS).chain([libc::SIGCHLD]));
        // SAFETY: the handler only makes async-signal-safe calls; the sets are initialised.
        unsafe {
            for signal in ENDING {
                let before = libc::signal(signal, handler as libc::sighandler_t);
                if before == libc::SIG_IGN {
                    libc::signal(signal, libc::SIG_IGN);
                }
            }
            libc::sigprocmask(libc::SIG_UNBLOCK, &unblocked, std::ptr::null_mut());
            // What whoever started us had blocked stays blocked.
            libc::sigprocmask(libc::SIG_BLOCK, &self.original.mask, std::ptr::null_mut());
        }
    }

    /// What is known of the next signal.
    fn take(&self, limit: Duration) -> Option<libc::siginfo_t> {
        let limit = libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() };
        let mut information = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: all pointers are valid; the kernel fills the information if a signal is returned.
        unsafe {
            let signal = libc::sigtimedwait(&self.blocked, information.as_mut_ptr(), &limit);
            (signal > 0).then(|| information.assume_init())
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
        let set = set_of(signals.into_iter());
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

/// Whether a signal was meant for the job and has not reached it by itself.
fn meant_for_job(information: &libc::siginfo_t) -> Option<Sent> {
    let signal = information.si_signo;
    let is_from_process = information.si_code <= 0;
    // SAFETY: plain system calls; the process id is part of what processes send.
    let (is_from_us, leads_session) = unsafe {
        let own = libc::getpid();
        (is_from_process && information.si_pid() == own, libc::getsid(0) == own)
    };
    let is_meant = match signal {
        // A write of our own to a pipe without a reader, or beyond the size limit, looks as if we had sent it.
        _ if is_from_us => false,
        _ if is_from_process => true,
        // The end of a terminal is told to the leader of its session alone.
        libc::SIGHUP => leads_session,
        _ if OF_TERMINAL.contains(&signal) => false,
        // A timer set before we were started was meant to end the job.
        libc::SIGALRM => true,
        _ => false,
    };
    // SAFETY: a value is there if it was sent with the signal, which the code says.
    let value = (information.si_code == libc::SI_QUEUE).then(|| unsafe { information.si_value().sival_ptr.addr() });
    is_meant.then_some(Sent { signal, value })
}

/// Lets a write beyond the limit of file sizes fail instead of ending us. Not before the job is started, which would
/// inherit it.
pub fn ignore_size_limit() {
    // SAFETY: plain system call.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

fn set_of(signals: impl Iterator<Item = i32>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: initialised by sigemptyset before anything else.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
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
        libc::sigprocmask(libc::SIG_UNBLOCK, &set_of([signal].into_iter()), std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
        // PID 1 of a container cannot be killed by its own signals: say it the way shells do.
        libc::_exit(128 + signal)
    }
}
