//! Turns recordings into results: with the settings they were recorded with, and a progress bar.

use std::ffi::OsString;
use std::path::Path;

use msmemscope_analysis::analyze;
use msmemscope_analysis::unseen::{UnseenPool, unseen_pools};
use msmemscope_config::{AnalysisSet, CollectMode, Settings, SettingsChange, config_json};
use msmemscope_event::ProcessInfoKey;
use msmemscope_import::Recording as Process;
use msmemscope_output::directory::Directory;
use msmemscope_output::{FinishOptions, FinishReport, Formats, SymbolStacks, finish_opened};
use msmemscope_trace::Trace;
use msmemscope_trace::reader::TraceIdentity;

use crate::analyzing::{self, FoundNotes};
use crate::log_file;
use crate::progress::Bar;
use crate::recordings::{RecordingDirectory, recordings_in, recordings_named, unreadable_in};
use crate::scopes::Scopes;
use crate::shell::quoted_path;
use crate::summary::{self, ProcessReport};
use crate::terminal::Terminal;
use crate::unmatched::unmatched_filters;
use crate::{FAILURE, Outcome, print, print_text, report_file, unwatched};

/// Finishes one recording and reports on it.
pub fn finish_recording(recording: &RecordingDirectory, change: &SettingsChange) -> Result<ProcessReport, String> {
    let path = recording.trace_path();
    let trace = Trace::open(&path).map_err(|error| format!("{}: {error}", quoted_path(&path)))?;
    let scopes = Scopes::of(trace.definitions(), change);
    let (settings, command) = (&scopes.settings, command_line(&trace));
    let process = Process::Trace { trace: Box::new(trace), path };
    let Process::Trace { trace, .. } = &process else { unreachable!("made above") };
    let wanted = settings.call_stacks;
    let stacks = SymbolStacks::new(trace, wanted.native_depth.is_some(), wanted.python_depth);
    let mut options = options(&scopes, !recording.is_running());
    if wanted.native_depth.is_some() || wanted.python_depth.is_some() {
        options.stack_formatter = Some(&stacks);
    }
    let timeline = options.timeline.clone();
    let failure_blocks = settings.analysis.contains(AnalysisSet::OOM).then_some(settings.oom_block_count);
    let questions = (!settings.analysis.is_empty() || settings.watch.is_some())
        .then(|| analyzing::questions(settings.analysis, usize::from(settings.oom_block_count)));
    let (answers, report) = match questions {
        None => (None, write_files(&recording.path, trace, &options)?),
        Some(mut questions) if failure_blocks.is_some() || analyzing::says_something_about_rows(&questions) => {
            questions.owners_of_all = questions.owners.is_some();
            let mut answers = analyzing::ask(&process, &questions);
            let owners = answers.block_owners.take();
            let notes = std::mem::take(&mut answers.notes);
            let inefficient = questions.inefficient.is_some();
            let found = FoundNotes { owners, notes, inefficient, failure_blocks };
            options.notes = Some(&found);
            (Some(answers), write_files(&recording.path, trace, &options)?)
        }
        Some(questions) => std::thread::scope(|scope| {
            let analysis = scope.spawn(|| analyze(&process, &questions, &mut |_, _| {}));
            let report = write_files(&recording.path, trace, &options)?;
            let answers = analysis.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, String>((Some(answers), report))
        })?,
    };
    // Whatever was switched off, nobody wants to miss why memory ran out.
    let answers = match answers {
        None if report.summary.failed_allocations > 0 => {
            Some(analyzing::ask(&process, &analyzing::questions(settings.analysis, 0)))
        }
        answers => answers,
    };
    let style = analyzing::text_style(settings.report);
    let findings = answers.as_ref().map_or(String::new(), |answers| analyzing::render(answers, false, style));
    let classic_findings = answers.as_ref().map_or(String::new(), analyzing::render_classic);
    let has_alarm = answers.as_ref().is_some_and(analyzing::has_alarm);
    let answers_questions = answers.as_ref().is_some_and(|answers| {
        has_alarm || answers.owners.is_some() || answers.inefficient.is_some() || answers.watch.is_some()
    });
    write_config(&recording.path, settings);
    let mut notes = report.notes;
    notes.extend(stacks.notes());
    notes.extend(unseen_pools(&process, &report.summary).iter().map(UnseenPool::describe));
    notes.extend(unmatched_filters(&timeline, &report.summary));
    if report.files.iter().all(|file| file.rows == 0) && settings.collect_mode == CollectMode::Deferred {
        notes.push("nothing to write: the job never called start() (--collect-mode=deferred)".to_owned());
    }
    if let (Some(watch), None) = (&settings.watch, answers.as_ref().and_then(|answers| answers.watch.as_ref())) {
        notes.push(format!("--watch: nothing was watched: {}", unwatched::reason(watch)));
    }
    let mut process = ProcessReport {
        directory: recording.path.clone(),
        command,
        summary: report.summary,
        completeness: report.completeness,
        files: report.files,
        notes,
        findings,
        classic_findings,
        has_alarm,
        answers_questions,
    };
    log_file::write(&mut process, report.messages, settings);
    report_file::write(&mut process);
    Ok(process)
}

/// Finishes recordings one after the other; errors go to the terminal.
pub fn finish_all(
    recordings: &[RecordingDirectory],
    change: &SettingsChange,
    terminal: &Terminal,
) -> Vec<ProcessReport> {
    let finish = |recording| finish_recording(recording, change).map_err(|message| terminal.error(message)).ok();
    recordings.iter().filter_map(finish).collect()
}

/// `finish` and `recover`: the results of the recordings in some directories. Recovering leaves out
/// what has results already.
pub fn finish_directories(
    directories: &[OsString],
    only_unfinished: bool,
    change: &SettingsChange,
    terminal: &Terminal,
) -> Outcome {
    let mut recordings = Vec::new();
    let mut all_readable = true;
    for directory in directories {
        let directory = Path::new(directory);
        let found = recordings_named(directory, terminal.program_name())?;
        let (ours, of_others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|recording| recording.is_ours_to_finish());
        tell_left_out(directory, &of_others, terminal);
        recordings.extend(ours);
        for (path, error) in unreadable_in(directory) {
            terminal.error(format!("{}: {error}", quoted_path(&path)));
            all_readable = false;
        }
    }
    if only_unfinished {
        recordings.retain(|recording| !recording.is_finished());
    }
    if recordings.is_empty() && all_readable {
        return print(b"Nothing to recover: every recording has its results.\n");
    }
    let reports = finish_all(&recordings, change, terminal);
    print_text(&summary::render(&reports, terminal.program_name()))?;
    for recording in recordings.iter().filter(|_| !only_unfinished) {
        let is_child = |other: &TraceIdentity| other.parent_process_id == recording.identity.process_id;
        if let Some(output) = recording.path.parent() {
            tell_unfinished(output, is_child, terminal);
        }
    }
    Ok(if all_readable && reports.len() == recordings.len() { 0 } else { FAILURE })
}

/// Others may have put recordings where we have ours. Whoever wants their results names them one by one.
fn tell_left_out(directory: &Path, of_others: &[RecordingDirectory], terminal: &Terminal) {
    let Some(first) = of_others.first() else { return };
    let (program, shown) = (terminal.program_name(), quoted_path(&first.path));
    let recordings = match of_others.len() {
        1 => "1 recording of another user is".to_owned(),
        count => format!("{count} recordings of other users are"),
    };
    let place = quoted_path(directory);
    terminal.warning(format!("{recordings} left out in {place}; to write results into one: {program} finish {shown}"));
}

/// Tells of recordings that nobody finished: their launcher was killed, or they are of forked processes that ended in
/// a way that leaves no time for results.
pub fn tell_unfinished(output: &Path, is_meant: impl Fn(&TraceIdentity) -> bool, terminal: &Terminal) {
    let recordings = recordings_in(output).unwrap_or_default();
    let is_left = |recording: &&RecordingDirectory| {
        is_meant(&recording.identity)
            && recording.is_ours_to_finish()
            && !recording.is_finished()
            && !recording.is_running()
    };
    let count = recordings.iter().filter(is_left).count();
    if count > 0 {
        let (program, shown) = (terminal.program_name(), quoted_path(output));
        let recordings = if count == 1 { "1 recording has" } else { &format!("{count} recordings have") };
        terminal.warning(format!("{recordings} no results yet: {program} recover {shown}"));
    }
}

/// What the process was called as.
fn command_line(trace: &Trace) -> String {
    let command = trace.definitions().process_information(ProcessInfoKey::CommandLine).unwrap_or_default();
    let words: Vec<_> = command.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    words.join(" ").trim().to_owned()
}

/// How the output crate is to finish, said in its words.
fn options<'a>(scopes: &Scopes, process_ended: bool) -> FinishOptions<'a> {
    let settings = &scopes.settings;
    FinishOptions {
        formats: Formats { csv: settings.data_formats.csv, database: settings.data_formats.db },
        timeline: scopes.timeline(process_ended),
        prefix: settings.variant.dump_name().trim_end_matches("_dump"),
        program: settings.variant.program_name(),
        owners: settings.analysis.contains(AnalysisSet::DECOMPOSE),
        ..FinishOptions::default()
    }
}

fn write_files(directory: &Path, trace: &Trace, options: &FinishOptions<'_>) -> Result<FinishReport, String> {
    let mut bar = Bar::new("writing results");
    finish_opened(directory, trace, options, &mut |done, total| bar.show(done, total))
        .map_err(|error| error.to_string())
}

/// Writes the settings beside the results, as earlier versions did. Not being able to is no reason to
/// call the recording unfinished.
fn write_config(directory: &Path, settings: &Settings) {
    use std::io::Write;
    let file = Directory::open(directory).and_then(|opened| opened.create_new(Path::new("config.json"), 0o640));
    if let Ok(mut file) = file {
        let _ = file.write_all(config_json(settings, directory, false).as_bytes());
    }
}
