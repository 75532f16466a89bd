//! Waits for the job: reaps, passes signals on, stops when it stops, and tells how it ended.

use std::process::Child;
use std::time::Duration;

use crate::signals::{Arrived, SignalGate};

/// How the job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// With an exit status.
    Exited(u8),
    /// By a signal.
    Killed(i32),
}

/// Waits until the job itself has ended. Its descendants may live on. Signals that somebody takes do not get to the job.
///
/// All children are reaped, not only the job: as PID 1 of a container we inherit every orphan.
pub fn wait_for_job(job: &Child, signals: &SignalGate, takes: impl Fn(i32) -> bool) -> JobEnd {
    let job_id = job.id() as libc::pid_t;
    loop {
        if let Some(end) = reap(job_id) {
            return end;
        }
        // SIGCHLD tells at once; the time limit only guards against a lost one.
        if let Arrived::Forward(sent) = signals.wait(Duration::from_secs(1))
            && !takes(sent.signal())
        {
            // The job is our child and not reaped yet, so the id is still its own.
            sent.pass_on_to(job_id);
        }
    }
}

/// Collects every child that changed its state; gives the end of the job if it was among them.
fn reap(job_id: libc::pid_t) -> Option<JobEnd> {
    loop {
        let mut status = 0;
        // SAFETY: plain system call.
        let child = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED) };
        if child <= 0 {
            return None;
        }
        if child != job_id {
            continue;
        }
        if libc::WIFEXITED(status) {
            return Some(JobEnd::Exited(libc::WEXITSTATUS(status) as u8));
        }
        if libc::WIFSIGNALED(status) {
            return Some(JobEnd::Killed(libc::WTERMSIG(status)));
        }
        if libc::WIFSTOPPED(status) {
            stop_with(job_id);
        }
    }
}

/// The job was stopped: stop as well, so that the shell sees it; go on together.
fn stop_with(job_id: libc::pid_t) {
    // SAFETY: plain system calls; the job is our child and not reaped yet.
    unsafe {
        if libc::getpid() != 1 {
            libc::kill(libc::getpid(), libc::SIGSTOP);
            libc::kill(job_id, libc::SIGCONT);
        }
    }
}
