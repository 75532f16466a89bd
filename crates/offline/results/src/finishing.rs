//! Turns one recording into results, with the settings it was recorded with.

use std::path::Path;

use msmemscope_analysis::unseen::{UnseenPool, unseen_pools};
use msmemscope_analysis::{Answers, Questions, analyze};
use msmemscope_config::{AnalysisSet, CollectMode, ReportStyle, Settings, SettingsChange, config_json};
use msmemscope_event::ProcessInfoKey;
use msmemscope_import::Recording as Process;
use msmemscope_output::directory::Directory;
use msmemscope_output::{FinishOptions, FinishReport, Formats, SymbolStacks, finish_opened};
use msmemscope_report::ranks::leak_keys;
use msmemscope_report::shell::quoted_path;
use msmemscope_report::summary::ProcessReport;
use msmemscope_report::{Style, answers};
use msmemscope_trace::Trace;

use crate::notes::FoundNotes;
use crate::questions::{questions, says_something_about_rows, with_summary, without_summary};
use crate::recordings::RecordingDirectory;
use crate::scopes::Scopes;
use crate::unmatched::unmatched_filters;
use crate::{log_file, report_file, summary_file, unwatched};

/// Shows people how far long work has got.
pub trait Progress {
    /// Another activity starts.
    fn start(&mut self, activity: &'static str);

    /// This much of the whole is done.
    fn show(&mut self, done: u64, total: u64);
}

/// The activity of asking questions.
pub const ANALYSING: &str = "analysing";

/// Nobody is watching.
pub struct Unwatched;

impl Progress for Unwatched {
    fn start(&mut self, _activity: &'static str) {}

    fn show(&mut self, _done: u64, _total: u64) {}
}

/// Asks about one process.
pub fn ask(recording: &Process, questions: &Questions, progress: &mut dyn Progress) -> Answers {
    progress.start(ANALYSING);
    analyze(recording, questions, &mut |done, total| progress.show(done, total))
}

/// The style of reports, said in the words of the analyses.
pub fn text_style(style: ReportStyle) -> Style {
    match style {
        ReportStyle::Full => Style::Full,
        ReportStyle::Classic => Style::Classic,
    }
}

/// Finishes one recording and reports on it.
pub fn finish_recording(
    recording: &RecordingDirectory,
    change: &SettingsChange,
    progress: &mut dyn Progress,
) -> Result<ProcessReport, String> {
    let path = recording.trace_path();
    let trace = Trace::open(&path).map_err(|error| format!("{}: {error}", quoted_path(&path)))?;
    let scopes = Scopes::of(trace.definitions(), change);
    let (settings, command) = (&scopes.settings, command_line(&trace));
    let process = Process::Trace { trace: Box::new(trace), path };
    let Process::Trace { trace, .. } = &process else { unreachable!("made above") };
    let wanted = settings.call_stacks;
    let stacks = SymbolStacks::new(trace, scopes.shown_stacks.clone());
    let mut options = options(&scopes, !recording.is_running());
    if wanted.native_depth.is_some() || wanted.python_depth.is_some() {
        options.stack_formatter = Some(&stacks);
    }
    let timeline = options.timeline.clone();
    let failure_blocks = settings.analysis.contains(AnalysisSet::OOM).then_some(settings.oom_block_count);
    let asked = (!settings.analysis.is_empty() || settings.watch.is_some())
        .then(|| questions(settings.analysis, usize::from(settings.oom_block_count)));
    let mut wanted = with_summary(&asked.clone().unwrap_or_default());
    let goes_into_rows = asked.as_ref().is_some_and(says_something_about_rows);
    let (answers, report) = if failure_blocks.is_some() || goes_into_rows {
        wanted.owners_of_all = asked.as_ref().is_some_and(|asked| asked.owners.is_some());
        let mut answers = ask(&process, &wanted, progress);
        let owners = answers.owners_of_all.take();
        let notes = std::mem::take(&mut answers.notes);
        let inefficient = wanted.inefficient.is_some();
        let found = FoundNotes { owners, notes, inefficient, failure_blocks };
        options.notes = Some(&found);
        (answers, write_files(&recording.path, trace, &options, progress)?)
    } else {
        std::thread::scope(|scope| {
            let analysis = scope.spawn(|| analyze(&process, &wanted, &mut |_, _| {}));
            let report = write_files(&recording.path, trace, &options, progress)?;
            let answers = analysis.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, String>((answers, report))
        })?
    };
    let summary_error = summary_file::write(recording, trace, &answers).err();
    // Whatever was switched off, nobody wants to miss why memory ran out.
    let shown = match asked {
        None if report.summary.failed_allocations > 0 => Some(questions(settings.analysis, 0)),
        asked => asked,
    };
    let answers = shown.map(|shown| without_summary(answers, &shown));
    let style = text_style(settings.report);
    let findings = answers.as_ref().map_or(String::new(), |answers| answers::render(answers, false, style));
    let older = |style| answers.as_ref().map_or(String::new(), |answers| answers::render_older(answers, style));
    let (classic_findings, log_findings) = (older(Style::Classic), older(Style::Log));
    let has_alarm = answers.as_ref().is_some_and(answers::has_alarm);
    let answers_questions = answers.as_ref().is_some_and(|answers| {
        has_alarm || answers.owners.is_some() || answers.inefficient.is_some() || answers.watch.is_some()
    });
    write_config(&recording.path, settings);
    let mut notes = report.notes;
    notes.extend(summary_error.map(|error| format!("cannot write the summary: {error}")));
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
        place: trace.definitions().place(),
        leak_keys: answers.as_ref().map_or(Vec::new(), leak_keys),
        directory: recording.path.clone(),
        command,
        summary: report.summary,
        completeness: report.completeness,
        files: report.files,
        notes,
        findings,
        classic_findings,
        log_findings,
        has_alarm,
        answers_questions,
    };
    log_file::write(&mut process, report.messages, settings);
    report_file::write(&mut process, settings.variant.program_name());
    Ok(process)
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

fn write_files(
    directory: &Path,
    trace: &Trace,
    options: &FinishOptions<'_>,
    progress: &mut dyn Progress,
) -> Result<FinishReport, String> {
    progress.start("writing results");
    finish_opened(directory, trace, options, &mut |done, total| progress.show(done, total))
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
