//! Turns one recording into results, with the settings it was recorded with.

use std::path::Path;

use msmemscope_analysis::unseen::{UnseenPool, unseen_pools};
use msmemscope_analysis::{Answers, Questions, analyze};
use msmemscope_config::{AnalysisSet, CollectMode, ReportStyle, Settings, SettingsChange, config_json};
use msmemscope_event::ProcessInfoKey;
use msmemscope_import::Recording as Process;
use msmemscope_output::directory::Directory;
use msmemscope_output::{BlockNotes, FinishOptions, Formats, SymbolStacks, finish_opened};
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
/// The activity of writing files.
pub const WRITING: &str = "writing results";

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
    Answered::of(recording, change, progress)?.write_files(progress)
}

/// A recording with the answers to the questions about it. Its files take longer and are still to be written.
pub struct Answered<'a> {
    recording: &'a RecordingDirectory,
    scopes: Scopes,
    /// The recording and what its rows are to say besides, unless both are to be read again.
    opened: Option<(Process, Option<FoundNotes>)>,
    /// What there is to say by now: everything but the files.
    report: ProcessReport,
    was_anything_watched: bool,
}

impl<'a> Answered<'a> {
    /// Asks the questions of a recording's settings, and writes down what was found, which is there whatever becomes of
    /// the files.
    pub fn of(
        recording: &'a RecordingDirectory,
        change: &SettingsChange,
        progress: &mut dyn Progress,
    ) -> Result<Self, String> {
        let process = open(recording)?;
        let trace = trace_of(&process);
        let scopes = Scopes::of(trace.definitions(), change);
        let settings = &scopes.settings;
        let mut answers = ask(&process, &wanted(settings), progress);
        let found = found_notes(settings, &mut answers);
        let summary_error = summary_file::write(recording, trace, &answers).err();
        let was_anything_watched = answers.watch.is_some();
        let mut report = report_of(recording, trace, settings, answers);
        if !recording.is_finished() {
            let (program, shown) = (settings.variant.program_name(), quoted_path(&recording.path));
            let mut early = report.clone();
            early.notes.push(format!("the files with the events are not written yet: {program} finish {shown}"));
            report_file::write(&mut early, program);
        }
        report.notes.extend(summary_error.map(|error| format!("cannot write the summary: {error}")));
        let opened = Some((process, found));
        Ok(Self { recording, scopes, opened, report, was_anything_watched })
    }

    /// The recording.
    pub fn recording(&self) -> &'a RecordingDirectory {
        self.recording
    }

    /// What was found, without files.
    pub fn report(&self) -> &ProcessReport {
        &self.report
    }

    /// Gives back the memory and the open file; both are there again when files are written.
    pub fn close(&mut self) {
        self.opened = None;
    }

    /// Writes the files of the recording and reports on all.
    pub fn write_files(&self, progress: &mut dyn Progress) -> Result<ProcessReport, String> {
        let Self { recording, scopes, opened, report: process, was_anything_watched } = self;
        let settings = &scopes.settings;
        let reopened = if opened.is_none() { Some(reopen(recording, settings)?) } else { None };
        let Some((opened, found)) = opened.as_ref().or(reopened.as_ref()) else { unreachable!("opened above") };
        let trace = trace_of(opened);
        let stacks_wanted = settings.call_stacks;
        let stacks = SymbolStacks::new(trace, scopes.shown_stacks.clone());
        let mut options = options(scopes, !recording.is_running());
        if stacks_wanted.native_depth.is_some() || stacks_wanted.python_depth.is_some() {
            options.stack_formatter = Some(&stacks);
        }
        options.notes = found.as_ref().map(|found| found as &dyn BlockNotes);
        progress.start(WRITING);
        let report = finish_opened(&recording.path, trace, &options, &mut |done, total| progress.show(done, total))
            .map_err(|error| error.to_string())?;
        write_config(&recording.path, settings);
        let mut notes = report.notes;
        notes.extend(process.notes.iter().cloned());
        notes.extend(stacks.notes());
        notes.extend(unseen_pools(opened, &report.summary).iter().map(UnseenPool::describe));
        notes.extend(unmatched_filters(&options.timeline, &report.summary));
        if report.files.iter().all(|file| file.rows == 0) && settings.collect_mode == CollectMode::Deferred {
            notes.push("nothing to write: the job never called start() (--collect-mode=deferred)".to_owned());
        }
        if let (Some(watch), false) = (&settings.watch, was_anything_watched) {
            notes.push(format!("--watch: nothing was watched: {}", unwatched::reason(watch)));
        }
        let mut process = ProcessReport {
            summary: report.summary,
            completeness: report.completeness,
            files: report.files,
            notes,
            ..process.clone()
        };
        log_file::write(&mut process, report.messages, settings);
        report_file::write(&mut process, settings.variant.program_name());
        Ok(process)
    }
}

fn open(recording: &RecordingDirectory) -> Result<Process, String> {
    let path = recording.trace_path();
    let trace = Trace::open(&path).map_err(|error| format!("{}: {error}", quoted_path(&path)))?;
    Ok(Process::Trace { trace: Box::new(trace), path })
}

fn reopen(recording: &RecordingDirectory, settings: &Settings) -> Result<(Process, Option<FoundNotes>), String> {
    let process = open(recording)?;
    let found = match needs_notes(settings) {
        true => found_notes(settings, &mut ask(&process, &wanted(settings), &mut Unwatched)),
        false => None,
    };
    Ok((process, found))
}

fn trace_of(process: &Process) -> &Trace {
    let Process::Trace { trace, .. } = process else { unreachable!("recordings are opened as traces") };
    trace
}

/// What the user asked for, if anything.
fn asked(settings: &Settings) -> Option<Questions> {
    (!settings.analysis.is_empty() || settings.watch.is_some())
        .then(|| questions(settings.analysis, usize::from(settings.oom_block_count)))
}

/// Everything that is asked: by the user, for the summary and for the rows.
fn wanted(settings: &Settings) -> Questions {
    let asked = asked(settings);
    let mut wanted = with_summary(&asked.clone().unwrap_or_default());
    wanted.owners_of_all = needs_notes(settings) && asked.is_some_and(|asked| asked.owners.is_some());
    wanted
}

/// Whether rows are to say something that only an analysis finds.
fn needs_notes(settings: &Settings) -> bool {
    settings.analysis.contains(AnalysisSet::OOM) || asked(settings).as_ref().is_some_and(says_something_about_rows)
}

/// What rows are to say, taken out of the answers.
fn found_notes(settings: &Settings, answers: &mut Answers) -> Option<FoundNotes> {
    needs_notes(settings).then(|| FoundNotes {
        owners: answers.owners_of_all.take(),
        notes: std::mem::take(&mut answers.notes),
        inefficient: wanted(settings).inefficient.is_some(),
        failure_blocks: settings.analysis.contains(AnalysisSet::OOM).then_some(settings.oom_block_count),
    })
}

/// The report on a recording as far as answers go.
fn report_of(recording: &RecordingDirectory, trace: &Trace, settings: &Settings, answers: Answers) -> ProcessReport {
    let summary = answers.summary.clone();
    // Whatever was switched off, nobody wants to miss why memory ran out.
    let shown = match asked(settings) {
        None if summary.failed_allocations > 0 => Some(questions(settings.analysis, 0)),
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
    ProcessReport {
        place: trace.definitions().place(),
        leak_keys: answers.as_ref().map_or(Vec::new(), leak_keys),
        directory: recording.path.clone(),
        command: command_line(trace),
        summary,
        completeness: trace.completeness().clone(),
        files: Vec::new(),
        notes: Vec::new(),
        findings,
        classic_findings,
        log_findings,
        has_alarm,
        answers_questions,
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

/// Writes the settings beside the results, as earlier versions did. Not being able to is no reason to
/// call the recording unfinished.
fn write_config(directory: &Path, settings: &Settings) {
    use std::io::Write;
    let file = Directory::open(directory).and_then(|opened| opened.create_new(Path::new("config.json"), 0o640));
    if let Ok(mut file) = file {
        let _ = file.write_all(config_json(settings, directory, false).as_bytes());
    }
}
