//! Signals while a job runs: the terminal reaches the job by itself, `kill` is passed on. Signals that end us while
//! results are written leave nothing half behind.
//!
//! We stay in the job's process group, so a Ctrl-C of the terminal goes to both; passing it on would
//! deliver it twice. A signal that somebody sent to us by `kill` was meant for the job. All signals
//! concerned are blocked and taken synchronously, which also works for PID 1 of a container.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::time::Duration;

use msmemscope_output::unfinished;

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
    /// that people use to end a program ends us as [`end_tidily`] says. Others that were meant for the job come too late
    /// and wait in vain.
    pub fn open(self, farewell: String) {
        while self.take(Duration::ZERO).is_some() {}
        ignore_size_limit();
        let opened = OF_TERMINAL.into_iter().chain(OF_FAULTS).chain([libc::SIGCHLD]);
        let unblocked = set_of(opened.filter(|signal| !ENDING.contains(signal)));
        let is_ours = |signal: &i32| !is_in(&self.original.mask, *signal) && !is_ignored(*signal);
        let (ours, others): (Vec<i32>, Vec<i32>) = ENDING.into_iter().partition(is_ours);
        // SAFETY: the sets are initialised.
        unsafe {
            libc::sigprocmask(libc::SIG_UNBLOCK, &unblocked, std::ptr::null_mut());
            libc::sigprocmask(libc::SIG_UNBLOCK, &set_of(others.into_iter()), std::ptr::null_mut());
            // What whoever started us had blocked stays blocked.
            libc::sigprocmask(libc::SIG_BLOCK, &self.original.mask, std::ptr::null_mut());
        }
        wait_for_end(set_of(ours.into_iter()), farewell);
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

/// From now on a signal that people use to end a program ends this one after files that are being written were removed
/// and `farewell` was told. To be called before other threads are started.
pub fn end_tidily(farewell: String) {
    let mut blocked = MaybeUninit::uninit();
    // SAFETY: the mask is filled in before it is read.
    let blocked = unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr());
        blocked.assume_init()
    };
    let ours = ENDING.into_iter().filter(|signal| !is_in(&blocked, *signal) && !is_ignored(*signal));
    wait_for_end(set_of(ours), farewell);
}

/// Blocks signals in this thread and those that it starts, and waits for one of them in a thread of its own, which may do
/// what handlers must not.
fn wait_for_end(signals: libc::sigset_t, farewell: String) {
    // SAFETY: the set is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut()) };
    let wait = move || {
        let mut signal = 0;
        // SAFETY: both pointers are valid.
        while unsafe { libc::sigwait(&signals, &mut signal) } != 0 {}
        let _nothing_unfinished = unfinished::remove_all();
        // Standard error may be closed; there is nobody left to tell.
        let _ = io::stderr().write_all(farewell.as_bytes());
        die_by(signal)
    };
    if std::thread::Builder::new().name("end".to_owned()).spawn(wait).is_err() {
        // SAFETY: as above. Without a thread they end us the way they always do.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut()) };
    }
}

fn is_in(set: &libc::sigset_t, signal: i32) -> bool {
    // SAFETY: the set is initialised.
    unsafe { libc::sigismember(set, signal) == 1 }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed; the action is filled in or stays zero, which is a valid one.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
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
