//! `analyze` and `check`, and the findings at the end of a run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use msmemscope_analysis::annotate::{RowNotes, annotate};
use msmemscope_analysis::check::{RuleOutcome, Rules, check};
use msmemscope_analysis::inefficient::InefficientSettings;
use msmemscope_analysis::leaks::LeakReport;
use msmemscope_analysis::marks::{MarkLeakReport, MarkSettings};
use msmemscope_analysis::out_of_memory::OutOfMemoryReport;
use msmemscope_analysis::{Answers, Notes, OwnerQuestion, Owners, Questions, analyze, text};
use msmemscope_config::{AnalysisSet, Invocation, ReportStyle, size_bytes};
use msmemscope_event::{is_steering, visible_keeping};
use msmemscope_import::{Imported, Recording, SkipReason, open_several};
use msmemscope_output::BlockNotes;
use msmemscope_timeline::{FactSource, TimelineEvent};
use msmemscope_trace::Completeness;

use crate::colour;
use crate::progress::Bar;
use crate::summary::{lost_events, missing};
use crate::terminal::Terminal;
use crate::{FAILURE, LAYOUT, Outcome, print, print_text, unwatched};

/// Exit status of a check that found a rule broken.
const RULE_BROKEN: u8 = 1;
/// Exit status of a check with a rule that cannot be judged, and none that is broken.
const RULE_UNJUDGED: u8 = 3;

/// Blocks listed when memory ran out and nobody asked for more.
const FEW_BLOCKS: usize = 3;

/// Questions that belong to the analyses a user chose. Whether memory ran out is always looked at.
pub fn questions(chosen: AnalysisSet, listed_blocks: usize) -> Questions {
    let leaks = chosen.contains(AnalysisSet::LEAKS);
    let listed_blocks = if chosen.contains(AnalysisSet::OOM) { listed_blocks } else { FEW_BLOCKS };
    Questions {
        leaks,
        fluctuation: leaks,
        owners: chosen.contains(AnalysisSet::DECOMPOSE).then(OwnerQuestion::default),
        inefficient: chosen.contains(AnalysisSet::INEFFICIENT).then(InefficientSettings::default),
        out_of_memory: Some(listed_blocks),
        watch: true,
        ..Questions::default()
    }
}

/// Asks about one process.
pub fn ask(recording: &Recording, questions: &Questions) -> Answers {
    let mut bar = Bar::new("analysing");
    analyze(recording, questions, &mut |done, total| bar.show(done, total))
}

/// Whether the answers belong into rows of blocks as well, so that they must be known before writing.
pub fn says_something_about_rows(questions: &Questions) -> bool {
    questions.owners.is_some() || questions.inefficient.is_some()
}

/// The answers as text. An out-of-memory report comes only if memory ran out, unless `all` is wanted.
pub fn render(answers: &Answers, all: bool, style: text::Style) -> String {
    let mut parts = Vec::new();
    let ran_out = answers.out_of_memory.as_ref().is_some_and(OutOfMemoryReport::has_failures);
    if let Some(report) = answers.out_of_memory.as_ref().filter(|report| all || report.has_failures()) {
        parts.push(text::out_of_memory(report));
    }
    if let Some(report) = &answers.watch {
        parts.push(text::watch(report));
    }
    // That nothing is known about leaks is no news to somebody whose memory ran out.
    let has_news = |report: &&LeakReport| !ran_out || report.steps > 0 || report.suspects().next().is_some();
    if let Some(report) = answers.leaks.as_ref().filter(has_news) {
        parts.push(text::leaks(report, &answers.unseen_pools, style));
    }
    if let Some(pools) = &answers.fluctuation {
        parts.push(text::fluctuation(pools, style));
    }
    if let Some(report) = &answers.marks {
        parts.push(text::marks(report));
    }
    if let Some(report) = &answers.moments {
        parts.push(text::moments(report));
    }
    if let Some(report) = &answers.owners {
        parts.push(text::owners(report));
    }
    if let Some(report) = &answers.inefficient {
        parts.push(text::inefficient(report));
    }
    if let Some(report) = &answers.fragmentation {
        parts.push(text::fragmentation(report));
    }
    let parts: Vec<String> = parts
        .iter()
        .map(|part| part.trim_end())
        .filter(|part| !part.is_empty())
        .map(|part| format!("{part}\n"))
        .collect();
    parts.join("\n")
}

/// The leaks and fluctuations in the words of earlier versions.
pub fn render_classic(answers: &Answers) -> String {
    let leaks = answers.leaks.as_ref().map(|report| text::leaks(report, &answers.unseen_pools, text::Style::Classic));
    let fluctuation = answers.fluctuation.as_ref().map(|pools| text::fluctuation(pools, text::Style::Classic));
    [leaks, fluctuation].into_iter().flatten().collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// The style of reports, said in the words of the analyses.
pub fn text_style(style: ReportStyle) -> text::Style {
    match style {
        ReportStyle::Full => text::Style::Full,
        ReportStyle::Classic => text::Style::Classic,
    }
}

/// Whether something was found that a user must not miss.
pub fn has_alarm(answers: &Answers) -> bool {
    answers.leaks.as_ref().is_some_and(|leaks| leaks.suspects().next().is_some())
        || answers.watch.as_ref().is_some_and(|watch| watch.corruptions().next().is_some())
        || answers.out_of_memory.as_ref().is_some_and(OutOfMemoryReport::is_alarming)
}

/// What rows of files should say about blocks.
pub struct FoundNotes {
    /// Owners, if they were asked for.
    pub owners: Option<Owners>,
    /// Inefficient use, and what was alive when memory ran out.
    pub notes: Notes,
    /// Whether inefficient use was asked for.
    pub inefficient: bool,
    /// Blocks listed per failure if failures were asked for.
    pub failure_blocks: Option<u16>,
}

impl BlockNotes for FoundNotes {
    fn owner(&self, allocation_id: u64) -> Option<&str> {
        self.owners.as_ref()?.owner(allocation_id)
    }

    fn inefficiency(&self, allocation_id: u64) -> Option<&str> {
        self.notes.inefficiency(allocation_id)
    }

    fn behind(&self, event: &TimelineEvent) -> &[TimelineEvent] {
        match self.failure_blocks {
            Some(_) => self.notes.alive_at_failure(event.timestamp_ns, event.thread_id),
            None => &[],
        }
    }

    fn fingerprint(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.inefficient.then(|| "inefficient".to_owned()));
        words.extend(self.failure_blocks.map(|blocks| format!("failures={blocks}")));
        words.join(" ")
    }
}

/// `analyze <path>...`
pub fn analyze_paths(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let paths: Vec<PathBuf> = invocation.operands.iter().map(PathBuf::from).collect();
    let imported = open_all(&paths, terminal)?;
    let questions = asked_questions(invocation)?;
    let wants_annotation = invocation.has_flag("annotate");
    if wants_annotation && questions.inefficient.is_none() {
        return Err("--annotate needs --analysis=inefficient".to_owned());
    }
    let mut all_answers = Vec::new();
    let mut row_notes = RowNotes::default();
    for recording in &imported.recordings {
        let answers = ask(recording, &questions);
        row_notes.add(recording, &answers.notes);
        all_answers.push(answers);
    }
    if wants_annotation {
        annotate_files(&paths, &imported, &row_notes)?;
    }
    let all_missing: Vec<Vec<String>> = imported
        .recordings
        .iter()
        .zip(&all_answers)
        .map(|(recording, answers)| {
            completeness(recording).map_or(Vec::new(), |known| missing(known, &answers.summary))
        })
        .collect();
    // A question about marks that are not there is a wrong question.
    let marks = all_answers.iter().filter_map(|answers| answers.marks.as_ref());
    let status =
        if marks.clone().count() > 0 && !marks.into_iter().any(MarkLeakReport::is_answered) { FAILURE } else { 0 };
    if invocation.has_flag("json") {
        let with_missing = |(answers, missing): (&Answers, &Vec<String>)| {
            let mut value = serde_json::json!(answers);
            value["missing"] = serde_json::json!(missing);
            value
        };
        let processes: Vec<serde_json::Value> = all_answers.iter().zip(&all_missing).map(with_missing).collect();
        print_json(&serde_json::json!({ "processes": processes }))?;
        return Ok(status);
    }
    let mut report = String::new();
    let style = text_style(invocation.change.report.unwrap_or(terminal.variant().default_report()));
    for (answers, missing) in all_answers.iter().zip(&all_missing) {
        let asked_for_failures = invocation.change.analysis.is_some_and(|set| set.contains(AnalysisSet::OOM));
        report.push_str(&heading(answers, all_answers.len()));
        missing.iter().for_each(|line| report.push_str(&format!("Missing: {line}\n")));
        answers.unseen_pools.iter().for_each(|unseen| report.push_str(&format!("Note: {}\n", unseen.describe())));
        report.push_str(&render(answers, asked_for_failures, style));
        report.push('\n');
    }
    print_report(&report)?;
    Ok(status)
}

/// How complete a recording of our own is. Rows of dump files do not say.
fn completeness(recording: &Recording) -> Option<&Completeness> {
    match recording {
        Recording::Trace { trace, .. } => Some(trace.completeness()),
        Recording::Process(_) => None,
    }
}

fn heading(answers: &Answers, processes: usize) -> String {
    match processes {
        1 => String::new(),
        _ => format!("Process {}\n", answers.process_id),
    }
}

/// Questions of an `analyze` command: those that were named, else all.
fn asked_questions(invocation: &Invocation) -> Result<Questions, String> {
    let listed_blocks = usize::from(invocation.change.oom_block_count.unwrap_or(10));
    let mut asked = match invocation.change.analysis {
        Some(chosen) => {
            let mut asked = questions(chosen, listed_blocks);
            asked.out_of_memory = asked.out_of_memory.filter(|_| chosen.contains(AnalysisSet::OOM));
            asked
        }
        None => Questions { out_of_memory: Some(listed_blocks), ..Questions::all() },
    };
    if let Some(message) = invocation.flag_value("marks") {
        let message = message.to_string_lossy().into_owned();
        if message.trim().is_empty() {
            return Err("--marks needs the text of the marks".to_owned());
        }
        let start_index = number(invocation, "mark-index")?.unwrap_or(0);
        asked = Questions { marks: Some(MarkSettings { message, start_index }), ..Questions::default() };
    }
    if let Some(step) = number(invocation, "step")? {
        asked.owners = Some(OwnerQuestion { step: Some(step) });
    }
    if let Some(settings) = &mut asked.inefficient {
        settings.idle_threshold = number(invocation, "idle-threshold")?.unwrap_or(settings.idle_threshold);
        settings.minimum_size_bytes = size(invocation, "min-size")?.unwrap_or(0);
        if settings.idle_threshold == 0 {
            return Err("--idle-threshold must be larger than 0".to_owned());
        }
    }
    Ok(asked)
}

fn number(invocation: &Invocation, name: &str) -> Result<Option<u64>, String> {
    let parse = |value: &OsStr| {
        let text = value.to_string_lossy();
        text.parse().map_err(|_| format!("--{name} must be a whole number, not '{text}'"))
    };
    invocation.flag_value(name).map(parse).transpose()
}

fn size(invocation: &Invocation, name: &str) -> Result<Option<u64>, String> {
    let parse = |value: &OsStr| {
        let text = value.to_string_lossy();
        size_bytes(&text).ok_or_else(|| format!("--{name} must be a size such as 20GiB, not '{text}'"))
    };
    invocation.flag_value(name).map(parse).transpose()
}

/// Opens inputs and tells what of them could not be used.
pub fn open_all(paths: &[PathBuf], terminal: &Terminal) -> Result<Imported, String> {
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let imported = open_several(&paths).map_err(|error| error.to_string())?;
    if let Some(notice) = imported.report.notice() {
        terminal.warning(notice);
    }
    Ok(imported)
}

fn annotate_files(paths: &[PathBuf], imported: &Imported, notes: &RowNotes) -> Result<(), String> {
    if imported.recordings.iter().any(|recording| matches!(recording, Recording::Trace { .. })) {
        return Err(
            "--annotate needs csv or db files; recordings get their attributes when they are finished".to_owned()
        );
    }
    if let Some(directory) = paths.iter().find(|path| path.is_dir()) {
        return Err(format!("--annotate needs files, not the directory '{}'", directory.display()));
    }
    paths.iter().try_for_each(|path| annotate(path, notes).map_err(|error| error.to_string()))
}

/// `watch-report <dir>...`
pub fn report_watched(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let paths: Vec<PathBuf> = invocation.operands.iter().map(PathBuf::from).collect();
    let imported = open_all(&paths, terminal)?;
    let questions = Questions { watch: true, ..Questions::default() };
    let all_answers: Vec<Answers> = imported.recordings.iter().map(|recording| ask(recording, &questions)).collect();
    let watched: Vec<&Answers> = all_answers.iter().filter(|answers| answers.watch.is_some()).collect();
    if invocation.has_flag("json") {
        let processes: Vec<serde_json::Value> = watched
            .iter()
            .map(|answers| serde_json::json!({ "process_id": answers.process_id, "watch": answers.watch }))
            .collect();
        return print_json(&serde_json::json!({ "processes": processes }));
    }
    let mut reasons: Vec<String> =
        imported.recordings.iter().filter_map(unwatched::wanted).map(|watch| unwatched::reason(&watch)).collect();
    reasons.dedup();
    if watched.is_empty() && !reasons.is_empty() {
        let lines: String = reasons.iter().map(|reason| format!("  {reason}.\n")).collect();
        return print_text(&format!("Nothing was watched, although --watch asked for it:\n{lines}"));
    }
    if watched.is_empty() {
        let program = terminal.program_name();
        let nothing = format!("No memory was watched here; record with --watch, or use {program}.watcher.\n");
        return print(nothing.as_bytes());
    }
    let mut report = String::new();
    for answers in &watched {
        report.push_str(&heading(answers, watched.len()));
        report.push_str(&answers.watch.as_ref().map_or(String::new(), text::watch));
    }
    print_text(&report)
}

/// `check <path>...`
pub fn check_paths(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let percent = |value: &OsStr| {
        let text = value.to_string_lossy().into_owned();
        let digits = text.strip_suffix('%').unwrap_or(&text);
        let share = digits.trim().parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
        share.map(|share| share / 100.0).ok_or_else(|| format!("--max-inefficient must be a percentage, not '{text}'"))
    };
    let no_leaks = invocation.has_flag("no-leaks").then_some(0);
    let rules = Rules {
        maximum_peak_bytes: size(invocation, "max-peak")?,
        maximum_leaked_bytes: size(invocation, "max-leaks")?.or(no_leaks),
        maximum_inefficient_share: invocation.flag_value("max-inefficient").map(percent).transpose()?,
    };
    if rules.is_empty() {
        return Err("nothing to check: give --max-peak, --no-leaks, --max-leaks or --max-inefficient".to_owned());
    }
    let paths: Vec<PathBuf> = invocation.operands.iter().map(|path: &OsString| PathBuf::from(path)).collect();
    let imported = open_all(&paths, terminal)?;
    let questions = rules.questions();
    let answers: Vec<Answers> = imported.recordings.iter().map(|recording| ask(recording, &questions)).collect();
    let lost = lost_of_all(&imported);
    let results = check(&answers, &rules, &lost);
    let any = |outcome| results.iter().any(|result| result.outcome == outcome);
    let is_allowed = invocation.has_flag("allow-unjudged");
    let status = match (any(RuleOutcome::Broken), any(RuleOutcome::Unjudged) && !is_allowed) {
        (true, _) => RULE_BROKEN,
        (false, true) => RULE_UNJUDGED,
        (false, false) => 0,
    };
    if invocation.has_flag("json") {
        let unseen: Vec<_> = answers.iter().flat_map(|answers| &answers.unseen_pools).collect();
        let value = serde_json::json!({
            "passed": status == 0, "rules": results, "missing": lost, "unseen_pools": unseen,
        });
        print_json(&value)?;
        return Ok(status);
    }
    let mut report = String::new();
    for result in &results {
        let verdict = match result.outcome {
            RuleOutcome::Passed => "passed",
            RuleOutcome::Broken => "FAILED",
            RuleOutcome::Unjudged if is_allowed => "cannot be judged (allowed)",
            RuleOutcome::Unjudged => "CANNOT BE JUDGED",
        };
        report.push_str(&format!("{verdict}  {}: {}\n", result.rule, result.verdict));
    }
    print_report(&report)?;
    Ok(status)
}

/// Events that are missing from an input, and from which process. Rows of events that nobody knows say
/// nothing about memory.
fn lost_of_all(imported: &Imported) -> Vec<String> {
    let report = &imported.report;
    let rows = report.notice().filter(|_| report.rows_skipped() > report.skipped(SkipReason::UnknownEvent));
    let of_recording = |recording: &Recording| {
        let process = recording.process_id();
        let lines = completeness(recording).map_or(Vec::new(), lost_events);
        lines.into_iter().map(move |line| format!("{line} (process {process})"))
    };
    imported.recordings.iter().flat_map(of_recording).chain(rows).collect()
}

fn print_report(text: &str) -> Outcome {
    let text = visible_keeping(text, &LAYOUT);
    print(colour::report(&text, colour::is_shown_on(&std::io::stdout())).as_bytes())
}

pub(crate) fn print_json(value: &serde_json::Value) -> Outcome {
    // JSON spells controls below U+0020 out by itself; the others can only be in texts, where they may be spelled too.
    let mut text = String::new();
    for character in format!("{value:#}\n").chars() {
        match character {
            _ if character != '\n' && is_steering(character) => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => text.push(character),
        }
    }
    print(text.as_bytes())
}
