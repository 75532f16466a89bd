//! `msmemscope [options] <program>`: one recorded job from start to report.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use msmemscope_config::{Recording, Settings, SettingsChange};

use crate::finishing::finish_all;
use crate::libraries::{self, RECORDER};
use crate::recordings::{RecordingDirectory, recordings_in, recordings_of_run};
use crate::signals::{SignalGate, die_by};
use crate::supervise::{JobEnd, wait_for_job};
use crate::terminal::Terminal;
use crate::{Outcome, launch, output_directory};

/// Records a job, finishes the recordings of all its processes and returns its exit status. If a
/// signal ended the job, the same signal ends us.
pub fn run_job(mut settings: Settings, program: &[OsString], terminal: &Terminal) -> Outcome {
    let current = std::env::current_dir().map_err(|error| format!("the working directory is gone: {error}"))?;
    settings.output = settings.absolute_output(&current);
    if let Some(remark) = output_directory::check(&settings.output)? {
        terminal.warning(remark);
    }
    let library_directory = libraries::library_directory()?;
    let recorder = library_directory.join(RECORDER);
    warn_about_trust(&recorder, terminal);
    tell_unfinished(&settings.output, terminal);

    let recording = Recording {
        run_id: fresh_run_id(),
        wall_clock_offset_ns: wall_clock_offset_ns(),
        is_supervised: true,
        finisher: std::env::current_exe().ok(),
        python_package: libraries::python_package_directory(),
        settings,
    };
    let signals = SignalGate::close();
    let job = match launch::launch(program, &recorder, &recording, &signals) {
        Ok(job) => job,
        Err(error) => {
            terminal.error(error.message);
            return Ok(error.status);
        }
    };
    let end = wait_for_job(&job, &signals);
    finish_run(&recording, terminal);
    match end {
        JobEnd::Exited(status) => Ok(status),
        JobEnd::Killed(signal) => die_by(signal),
    }
}

fn warn_about_trust(recorder: &Path, terminal: &Terminal) {
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } == 0 {
        terminal.information("running as root: file owners and permissions are not checked");
    } else if let Ok(Some(reason)) = libraries::distrust_reason(recorder) {
        terminal.warning(format!("the library '{}' {reason}", recorder.display()));
    }
}

/// Recordings of earlier runs that nobody finished: their launcher was killed.
fn tell_unfinished(output: &Path, terminal: &Terminal) {
    let recordings = recordings_in(output).unwrap_or_default();
    let unfinished = recordings.iter().filter(|recording| !recording.is_finished() && !recording.is_running());
    let count = unfinished.count();
    if count > 0 {
        let shown = output.display();
        terminal.warning(format!("{count} recordings in '{shown}' have no results yet: msmemscope recover '{shown}'"));
    }
}

/// Writes the results of every process of the run that has ended and names those still running.
fn finish_run(recording: &Recording, terminal: &Terminal) {
    let output = &recording.settings.output;
    let (running, ended): (Vec<_>, Vec<_>) =
        recordings_of_run(output, recording.run_id).into_iter().partition(RecordingDirectory::is_running);
    let failures = finish_all(&ended, &SettingsChange::default(), terminal);
    for process in &running {
        terminal.warning(format!(
            "process {} of the job still runs; when it has ended: msmemscope finish '{}'",
            process.identity.process_id,
            process.path.display()
        ));
    }
    if failures > 0 {
        terminal.warning(format!(
            "the recordings are kept; when the cause is removed: msmemscope recover '{}'",
            output.display()
        ));
    }
    if running.is_empty() && ended.is_empty() {
        terminal.warning("no memory events were seen; 'msmemscope doctor' explains why");
    }
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC, the same for all processes of the run.
fn wall_clock_offset_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let mut monotonic = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: plain system call into a valid structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut monotonic) };
    let monotonic_ns = monotonic.tv_sec * 1_000_000_000 + monotonic.tv_nsec;
    now.as_nanos() as i64 - monotonic_ns
}

/// A number no other run has, never zero.
fn fresh_run_id() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the buffer is valid for its length.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    let random = if filled == bytes.len() as isize { u64::from_ne_bytes(bytes) } else { 0 };
    (random ^ wall_clock_offset_ns() as u64 ^ u64::from(std::process::id())) | 1
}
