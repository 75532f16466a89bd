//! `msmemscope [options] <program>`: one recorded job from start to report.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use msmemscope_config::{Recording, Settings, SettingsChange, Trigger};
use msmemscope_dump::insight;
use msmemscope_trace::TraceError;

use crate::availability::needs_python_half;
use crate::card_memory::CardWatch;
use crate::exit_status::ExitStatus;
use crate::finishing::{farewell, finish_all, tell_unfinished};
use crate::guard::Guard;
use crate::libraries::{self, RECORDER};
use crate::preload::PreloadPath;
use crate::signals::{SignalGate, die_by};
use crate::supervise::{JobEnd, wait_for_job};
use crate::terminal::Terminal;
use crate::{Outcome, launch, output_directory};
use msmemscope_report::shell::quoted_path;
use msmemscope_report::summary;
use msmemscope_results::recordings::{RecordingDirectory, recordings_of_run, unreadable_in};

/// Records a job, finishes the recordings of all its processes and returns its exit status. If a
/// signal ended the job, the same signal ends us.
pub fn run_job(mut settings: Settings, program: &[OsString], terminal: &Terminal) -> Outcome {
    let current = std::env::current_dir().map_err(|error| format!("the working directory is gone: {error}"))?;
    settings.output = settings.absolute_output(&current);
    if let Some(remark) = output_directory::check(&settings.output)? {
        terminal.warning(remark);
    }
    if settings.data_formats.db && !insight::accepts_path(&settings.output) {
        terminal.warning("MindStudio Insight opens no files below a path with quotes, brackets or shell characters");
    }
    if settings.flight_recorder_bytes.is_none() && settings.triggers != Trigger::DEFAULT {
        terminal.warning("--trigger has no effect without --flight-recorder");
    }
    let library_directory = libraries::library_directory()?;
    let recorder = library_directory.join(RECORDER);
    warn_about_trust(&recorder, terminal);
    tell_unfinished(&settings.output, |_| true, terminal);
    let preload = PreloadPath::new(&recorder)?;
    terminal.information(format!("recording into {}", quoted_path(&settings.output)));

    let recording = Recording {
        run_id: fresh_run_id(),
        wall_clock_offset_ns: wall_clock_offset_ns(),
        is_supervised: true,
        finisher: std::env::current_exe().ok(),
        python_package: if needs_python_half(&settings) { libraries::python_package_directory() } else { None },
        settings,
    };
    let unreadable_before = unreadable_in(&recording.settings.output);
    let signals = SignalGate::close();
    let job = match launch::launch(program, &launch::recording_environment(preload.path(), &recording), &signals) {
        Ok(job) => job,
        Err(error) => {
            terminal.error(error.message);
            return Ok(ExitStatus::OfJob(error.status));
        }
    };
    let cards = CardWatch::start();
    let guard = Guard::start(&recording, signals.original(), terminal);
    let end = wait_for_job(&job, &signals, |signal| guard.takes(signal));
    guard.end();
    signals.open(farewell("recover", [&*recording.settings.output].into_iter(), terminal));
    let all_ended = finish_run(&recording, &cards, &unreadable_before, terminal);
    if all_ended {
        drop(preload)
    } else {
        preload.keep()
    }
    match end {
        JobEnd::Exited(status) => Ok(ExitStatus::OfJob(status)),
        JobEnd::Killed(signal) => die_by(signal),
    }
}

fn warn_about_trust(recorder: &Path, terminal: &Terminal) {
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } == 0 {
        terminal.notice("running as root: owners and modes of files are not checked");
        return;
    }
    let directory = recorder.parent().unwrap_or(Path::new("/"));
    for (kind, path) in [("library", recorder), ("library directory", directory)] {
        if let Ok(Some(reason)) = libraries::distrust_reason(path) {
            terminal.warning(format!("the {kind} {} {reason}", quoted_path(path)));
        }
    }
}

/// Writes the results of every process of the run that has ended and names those still running.
/// Returns whether none is.
fn finish_run(
    recording: &Recording,
    cards: &CardWatch,
    unreadable_before: &[(PathBuf, TraceError)],
    terminal: &Terminal,
) -> bool {
    let output = &recording.settings.output;
    let (running, ended): (Vec<_>, Vec<_>) =
        recordings_of_run(output, recording.run_id).into_iter().partition(RecordingDirectory::is_running);
    for process in &ended {
        if let Err(message) = cards.add_to(process) {
            terminal.warning(format!("memory of the whole card is not told: {message}"));
        }
    }
    let program = terminal.program_name();
    let settings = &recording.settings;
    if settings.flight_recorder_bytes.is_some() && !settings.triggers.contains(&Trigger::End) {
        for process in &ended {
            let (id, shown) = (process.identity.process_id, quoted_path(&process.path));
            terminal.notice(format!("what the flight recorder holds of process {id}: {program} finish {shown}"));
        }
    } else {
        write_results(&ended, output, terminal);
    }
    for process in &running {
        terminal.warning(format!(
            "process {} of the job still runs; when it has ended: {program} finish {}",
            process.identity.process_id,
            quoted_path(&process.path)
        ));
    }
    let mut unreadable = unreadable_in(output);
    unreadable.retain(|(path, _)| !unreadable_before.iter().any(|(before, _)| before == path));
    for (path, error) in &unreadable {
        terminal.error(format!("{}: {error}: something has overwritten it", quoted_path(path)));
    }
    if running.is_empty() && ended.is_empty() && unreadable.is_empty() {
        terminal.warning(match recording.settings.events.collected.is_empty() {
            true => "nothing was recorded: --events selects no events".to_owned(),
            false => match output_directory::check(output) {
                Err(problem) => format!("nothing was recorded: {problem}"),
                Ok(_) => {
                    format!("no memory events were recorded; if no message above says why, '{program} doctor' explains")
                }
            },
        });
    }
    running.is_empty()
}

/// Writes the results of processes that have ended, and the report.
fn write_results(ended: &[RecordingDirectory], output: &Path, terminal: &Terminal) {
    let program = terminal.program_name();
    let reports = finish_all(ended, &SettingsChange::default(), terminal, &mut |reports| {
        terminal.report(&summary::render_found(reports, program), &summary::render_findings(reports));
    });
    if !reports.is_empty() {
        terminal.report(&summary::render_rest(&reports, program), "");
    }
    if reports.len() < ended.len() {
        terminal.warning(format!(
            "the recordings are kept; when the cause is removed: {program} recover {}",
            quoted_path(output)
        ));
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
    // Hashers start with random numbers, which the standard library gets in a way that old C libraries have.
    let random = RandomState::new().build_hasher().finish();
    (random ^ wall_clock_offset_ns() as u64 ^ u64::from(std::process::id())) | 1
}
