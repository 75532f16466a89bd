//! `analyze` and `watch-report`, and the findings at the end of a run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use msmemscope_analysis::grouping::Grouping;
use msmemscope_analysis::marks::{MarkLeakReport, MarkSettings};
use msmemscope_analysis::moment::{Moment, MomentQuestion, MomentReport};
use msmemscope_analysis::{Answers, OwnerQuestion, Questions};
use msmemscope_config::{AnalysisSet, Invocation, Settings, size_bytes};
use msmemscope_dump::annotate::{RowNotes, annotate};
use msmemscope_event::{Place, is_steering, visible_keeping};
use msmemscope_import::{Imported, Recording, open_several};
use msmemscope_report::answers::render;
use msmemscope_report::headline::peak;
use msmemscope_report::layout::{self, near_path, push_wrapped};
use msmemscope_report::ranks::{leak_keys, shared_by, speakers};
use msmemscope_report::shell::quoted_path;
use msmemscope_report::summary::missing;
use msmemscope_report::{self as text, colour, json};
use msmemscope_results::finishing::{self, text_style};
use msmemscope_results::questions::questions;
use msmemscope_results::recordings::latest_run;
use msmemscope_results::unwatched;
use msmemscope_timeline::FactSource;
use msmemscope_trace::Completeness;

use crate::exit_status::ExitStatus;
use crate::progress::Bars;
use crate::terminal::Terminal;
use crate::{LAYOUT, Outcome, print, print_text};

/// Asks about one process.
pub fn ask(recording: &Recording, questions: &Questions) -> Answers {
    finishing::ask(recording, questions, &mut Bars::default())
}

/// `analyze <path>...`
pub fn analyze_paths(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let mut questions = asked_questions(invocation)?;
    let shows_everything = questions.marks.is_none() && asked_moments(invocation)?.is_empty();
    questions.curve = shows_everything && !invocation.has_flag("json");
    if invocation.has_flag("ascii") {
        layout::use_plain();
    }
    let paths = named_or_latest(&invocation.operands, terminal)?;
    let mut imported = open_all(&paths, terminal)?;
    imported.recordings.sort_by_key(|recording| recording.definitions().place().rank.unwrap_or(u32::MAX));
    let wants_annotation = invocation.has_flag("annotate");
    if wants_annotation && questions.inefficient.is_none() {
        return Err("--annotate needs --analysis=inefficient".to_owned());
    }
    let mut all_answers = Vec::new();
    let mut row_notes = RowNotes::default();
    for recording in &imported.recordings {
        let answers = ask(recording, &questions);
        answers.notes.add_to_rows(recording, &mut row_notes);
        all_answers.push(answers);
    }
    if wants_annotation {
        annotate_files(&paths, &imported, &row_notes)?;
    }
    if !asked_moments(invocation)?.is_empty() {
        check_moments(&all_answers)?;
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
    let is_unanswered = marks.clone().count() > 0 && !marks.into_iter().any(MarkLeakReport::is_answered);
    let status = if is_unanswered { ExitStatus::Failure } else { ExitStatus::Success };
    if invocation.has_flag("json") {
        let with_missing = |(answers, missing): (&Answers, &Vec<String>)| {
            let mut value = json::answers(answers);
            value["missing"] = serde_json::json!(missing);
            value
        };
        let processes: Vec<serde_json::Value> = all_answers.iter().zip(&all_missing).map(with_missing).collect();
        print_json(&serde_json::json!({ "processes": processes }))?;
        return Ok(status);
    }
    let mut report = String::new();
    let keys: Vec<Vec<String>> = all_answers.iter().map(leak_keys).collect();
    let processes: Vec<(Place, &[String])> =
        all_answers.iter().zip(&keys).map(|(answers, keys)| (answers.place, &keys[..])).collect();
    let speakers = speakers(&processes);
    let style = text_style(invocation.change.report.unwrap_or(terminal.variant().default_report()));
    for (index, (answers, missing)) in all_answers.iter().zip(&all_missing).enumerate() {
        if speakers[index] != index {
            let speaker = &all_answers[speakers[index]];
            let (title, speaker) = (answers.place.title(answers.process_id), speaker.place.name(speaker.process_id));
            report
                .push_str(&format!("{title}: the same leaks as {speaker}; analyze its directory alone for the rest\n"));
            peak(answers).iter().for_each(|sentence| push_wrapped(&mut report, sentence, ""));
            report.push('\n');
            continue;
        }
        let asked_for_failures = invocation.change.analysis.is_some_and(|set| set.contains(AnalysisSet::OOM));
        report.push_str(&heading(answers, all_answers.len()));
        shared_by(&processes, &speakers, index).iter().for_each(|line| report.push_str(&format!("{line}\n")));
        missing.iter().for_each(|line| report.push_str(&format!("Missing: {line}\n")));
        answers.unseen_pools.iter().for_each(|unseen| report.push_str(&format!("Note: {}\n", unseen.describe())));
        report.push_str(&render(answers, asked_for_failures, style));
        report.push('\n');
    }
    print_report(&report)?;
    Ok(status)
}

/// How complete a recording of our own is. Rows of dump files do not say.
pub(crate) fn completeness(recording: &Recording) -> Option<&Completeness> {
    match recording {
        Recording::Trace { trace, .. } => Some(trace.completeness()),
        Recording::Process(_) => None,
    }
}

fn heading(answers: &Answers, processes: usize) -> String {
    match processes {
        1 => String::new(),
        _ => format!("{}\n", answers.place.title(answers.process_id)),
    }
}

/// Questions of an `analyze` command: those that were named, else all.
pub(crate) fn asked_questions(invocation: &Invocation) -> Result<Questions, String> {
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
    let moments = asked_moments(invocation)?;
    if !moments.is_empty() {
        asked = Questions { moments, ..Questions::default() };
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

/// What the options ask about moments.
fn asked_moments(invocation: &Invocation) -> Result<MomentQuestion, String> {
    let mut asked = MomentQuestion::default();
    if invocation.has_flag("peak") {
        asked.at.push(Moment::Peak);
    }
    if let Some(words) = invocation.flag_value("at") {
        for word in words.to_string_lossy().split(',').map(str::trim) {
            let moment = Moment::parse(word)
                .ok_or_else(|| format!("--at must be peak, step:<number>, or a time such as 12.3s, not '{word}'"))?;
            asked.at.push(moment);
        }
    }
    if let Some(words) = invocation.flag_value("grew") {
        let words = words.to_string_lossy();
        let wrong = || format!("--grew must be two moments as of --at, such as step:3..step:9, not '{words}'");
        asked.grown = Some(Moment::parse_two(&words).ok_or_else(wrong)?);
    }
    if let Some(word) = invocation.flag_value("by") {
        let word = word.to_string_lossy();
        asked.by = Grouping::parse(&word).map_err(|known| format!("--by must be one of {known}, not '{word}'"))?;
        if asked.is_empty() {
            asked.at.push(Moment::Peak);
        }
    }
    Ok(asked)
}

/// An error if no process has ever come to a moment that was asked about.
fn check_moments(all_answers: &[Answers]) -> Result<(), String> {
    let reports: Vec<&MomentReport> = all_answers.iter().filter_map(|answers| answers.moments.as_ref()).collect();
    let Some(word) = reports
        .first()
        .and_then(|first| first.missing.iter().find(|word| reports.iter().all(|report| report.missing.contains(word))))
    else {
        return Ok(());
    };
    let steps = all_answers.iter().map(|answers| answers.summary.steps).max().unwrap_or(0);
    match word.strip_prefix("step:") {
        Some(number) if steps == 1 => Err(format!("no step {number}: the job had 1 step")),
        Some(number) => Err(format!("no step {number}: the job had {steps} steps")),
        None => Err("no memory events were recorded".to_owned()),
    }
}

pub(crate) fn number(invocation: &Invocation, name: &str) -> Result<Option<u64>, String> {
    let parse = |value: &OsStr| {
        let text = value.to_string_lossy();
        text.parse().map_err(|_| format!("--{name} must be a whole number, not '{text}'"))
    };
    invocation.flag_value(name).map(parse).transpose()
}

pub(crate) fn size(invocation: &Invocation, name: &str) -> Result<Option<u64>, String> {
    let parse = |value: &OsStr| {
        let text = value.to_string_lossy();
        size_bytes(&text).ok_or_else(|| format!("--{name} must be a size such as 20GiB, not '{text}'"))
    };
    invocation.flag_value(name).map(parse).transpose()
}

/// Where recordings go if nobody says otherwise.
pub fn usual_output(terminal: &Terminal) -> Result<PathBuf, String> {
    let current = std::env::current_dir().map_err(|error| format!("the working directory is gone: {error}"))?;
    Ok(Settings::defaults(terminal.variant()).absolute_output(&current))
}

/// What the user named, or else the recordings of the latest run below the usual output directory.
pub fn named_or_latest(operands: &[OsString], terminal: &Terminal) -> Result<Vec<PathBuf>, String> {
    if !operands.is_empty() {
        return Ok(operands.iter().map(PathBuf::from).collect());
    }
    let output = usual_output(terminal)?;
    let latest = latest_run(&output);
    match latest.first() {
        Some(first) => {
            let shown = quoted_path(near_path(first));
            let others = if latest.len() > 1 { format!(" and {} more", latest.len() - 1) } else { String::new() };
            terminal.notice(format!("the latest recording: {shown}{others}"));
            Ok(latest)
        }
        None => Err(format!("no recordings in {}; name a directory or a file", quoted_path(near_path(&output)))),
    }
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
    // Beside those that watched, one whose operator was misspelt must not look clean either.
    let unwatched = imported.recordings.iter().zip(&all_answers).filter(|(_, answers)| answers.watch.is_none());
    for (watch, answers) in unwatched.filter_map(|(recording, answers)| Some((unwatched::wanted(recording)?, answers)))
    {
        let reason = unwatched::reason(&watch);
        let title = answers.place.title(answers.process_id);
        report.push_str(&format!("\n{title}: nothing was watched, although --watch asked for it:\n  {reason}.\n"));
    }
    print_text(&report)
}

pub(crate) fn print_report(text: &str) -> Outcome {
    let text = visible_keeping(text, &LAYOUT);
    print(colour::report(&text, colour::is_shown_on(&std::io::stdout())).as_bytes())
}

pub(crate) fn print_json(value: &serde_json::Value) -> Outcome {
    print(json_text(&with_schema_version(value)).as_bytes())
}

/// The number that grows when a key changes its meaning or goes away; new keys may come at any time. See docs/json.md.
const SCHEMA_VERSION: u32 = 1;

fn with_schema_version(value: &serde_json::Value) -> serde_json::Value {
    let mut value = value.clone();
    if let Some(object) = value.as_object_mut() {
        object.insert("schema_version".to_owned(), SCHEMA_VERSION.into());
    }
    value
}

/// Results as JSON that steers no terminal.
pub(crate) fn json_text(value: &serde_json::Value) -> String {
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
    text
}
