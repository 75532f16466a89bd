//! `check`: rules that a recording must keep, for automatic tests.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use msmemscope_analysis::Answers;
use msmemscope_analysis::baseline::{self, Baseline};
use msmemscope_analysis::check::{RuleOutcome, RuleResult, Rules, check};
use msmemscope_config::Invocation;
use msmemscope_import::{Imported, Recording, SkipReason};
use msmemscope_report::layout::near_path;
use msmemscope_report::shell::quoted_path;
use msmemscope_report::summary::lost_events;
use msmemscope_report::{annotations, rules as rule_lines};
use msmemscope_results::recordings::recording_of;
use msmemscope_timeline::FactSource;
use msmemscope_trace::{TRACE_FILE_NAME, Trace};

use crate::analyzing::{ask, completeness, open_all, print_json, print_report, size};
use crate::exit_status::ExitStatus;
use crate::terminal::Terminal;
use crate::{Outcome, print};

/// How much larger than in the baseline a number may be.
const DEFAULT_TOLERANCE: f64 = 0.05;
/// A baseline is a few lines; whatever is larger is something else.
const LARGEST_BASELINE_BYTES: u64 = 1 << 20;

/// Where broken rules are shown beside the code.
enum Annotation {
    /// In the log of a workflow.
    GitHub,
    /// In a report of this name.
    GitLab(PathBuf),
}

/// `check <path>...`
pub fn check_paths(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let no_leaks = invocation.has_flag("no-leaks").then_some(0);
    let rules = Rules {
        maximum_peak_bytes: size(invocation, "max-peak")?,
        maximum_leaked_bytes: size(invocation, "max-leaks")?.or(no_leaks),
        maximum_inefficient_share: percent(invocation, "max-inefficient", 100.0)?,
    };
    let tolerance = percent(invocation, "tolerance", f64::MAX)?.unwrap_or(DEFAULT_TOLERANCE);
    let annotations = annotations_asked(invocation)?;
    let base = invocation.flag_value("baseline").map(|path| read_baseline(Path::new(path), terminal)).transpose()?;
    let saved = invocation.flag_value("save-baseline").map(PathBuf::from);
    if rules.is_empty() && base.is_none() && saved.is_none() {
        let rules = "--max-peak, --no-leaks, --max-leaks, --max-inefficient or --baseline";
        return Err(format!("nothing to check: give {rules}"));
    }
    let paths: Vec<PathBuf> = invocation.operands.iter().map(PathBuf::from).collect();
    let imported = open_all(&paths, terminal)?;
    let mut questions = rules.questions();
    if base.is_some() || saved.is_some() {
        let needed = Baseline::questions();
        (questions.leaks, questions.moments) = (needed.leaks, needed.moments);
    }
    let answers: Vec<Answers> = imported.recordings.iter().map(|recording| ask(recording, &questions)).collect();
    let mut lost = lost_of_all(&imported);
    lost.extend(paths.iter().flat_map(|path| lost_behind(path)));
    let mut results = check(&answers, &rules, &lost);
    if let Some(base) = &base {
        results.extend(baseline::results(base.compare(&answers, tolerance), &lost));
    }
    if let Some(path) = &saved {
        save_baseline(path, &answers, &lost, terminal)?;
    }
    let is_allowed = invocation.has_flag("allow-unjudged");
    let status = status(&results, is_allowed);
    let as_json = invocation.has_flag("json");
    if as_json {
        let unseen: Vec<_> = answers.iter().flat_map(|answers| &answers.unseen_pools).collect();
        let value = serde_json::json!({
            "passed": status == ExitStatus::Success,
            "rules": results.iter().map(rule_lines::json).collect::<Vec<_>>(), "missing": lost, "unseen_pools": unseen,
        });
        print_json(&value)?;
    } else {
        print_report(&lines(&results, is_allowed))?;
    }
    for annotation in annotations {
        match annotation {
            Annotation::GitHub if as_json => eprint!("{}", annotations::github(&results)),
            Annotation::GitHub => drop(print(annotations::github(&results).as_bytes())?),
            Annotation::GitLab(path) => {
                let recording = near_path(&paths[0]).to_string_lossy().into_owned();
                let report = format!("{:#}\n", annotations::gitlab(&results, &recording));
                std::fs::write(&path, report)
                    .map_err(|error| format!("--annotate: cannot write {}: {error}", quoted_path(&path)))?;
            }
        }
    }
    Ok(status)
}

fn status(results: &[RuleResult], is_allowed: bool) -> ExitStatus {
    let any = |outcome| results.iter().any(|result| result.outcome == outcome);
    match (any(RuleOutcome::Broken), any(RuleOutcome::Unjudged) && !is_allowed) {
        (true, _) => ExitStatus::Broken,
        (false, true) => ExitStatus::Unjudged,
        (false, false) => ExitStatus::Success,
    }
}

fn lines(results: &[RuleResult], is_allowed: bool) -> String {
    let mut report = String::new();
    for result in results {
        let verdict = match result.outcome {
            RuleOutcome::Passed => "passed",
            RuleOutcome::Broken => "FAILED",
            RuleOutcome::Unjudged if is_allowed => "cannot be judged (allowed)",
            RuleOutcome::Unjudged => "CANNOT BE JUDGED",
        };
        report.push_str(&format!("{verdict}  {}: {}\n", result.rule, rule_lines::verdict(result)));
    }
    report
}

/// A percentage as a share.
fn percent(invocation: &Invocation, name: &'static str, most: f64) -> Result<Option<f64>, String> {
    let parse = |value: &OsStr| {
        let text = value.to_string_lossy();
        let digits = text.strip_suffix('%').unwrap_or(&text);
        let share = digits.trim().parse::<f64>().ok().filter(|share| (0.0..=most).contains(share));
        share
            .map(|share| share / 100.0)
            .ok_or_else(|| format!("--{name} must be a percentage such as 5%, not '{text}'"))
    };
    invocation.flag_value(name).map(parse).transpose()
}

/// What was asked for; in a workflow of GitHub its annotations, unless something else was.
fn annotations_asked(invocation: &Invocation) -> Result<Vec<Annotation>, String> {
    let given: Vec<&OsStr> = invocation.flag_values("annotate").collect();
    if given.is_empty() {
        let is_workflow = std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true");
        return Ok(is_workflow.then_some(Annotation::GitHub).into_iter().collect());
    }
    let mut asked = Vec::new();
    for value in given {
        match value.to_string_lossy().as_ref() {
            "github" => asked.push(Annotation::GitHub),
            "none" => {}
            text => match text.strip_prefix("gitlab:").filter(|path| !path.is_empty()) {
                Some(path) => asked.push(Annotation::GitLab(PathBuf::from(path))),
                None => return Err(format!("--annotate must be github, gitlab:<FILE> or none, not '{text}'")),
            },
        }
    }
    Ok(asked)
}

/// A baseline: a file that was saved, or else the numbers of a recording.
fn read_baseline(path: &Path, terminal: &Terminal) -> Result<Baseline, String> {
    let failed = |reason: String| format!("--baseline: {}: {reason}", quoted_path(path));
    let base = if path.extension().is_some_and(|extension| extension == "json") {
        let metadata = path.metadata().map_err(|error| failed(error.to_string()))?;
        if !metadata.is_file() || metadata.len() > LARGEST_BASELINE_BYTES {
            return Err(failed("not a baseline".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Baseline::from_text(&text).map_err(failed)?
    } else {
        let imported = open_all(&[path.to_owned()], terminal).map_err(|error| format!("--baseline: {error}"))?;
        if let Some(line) = lost_of_all(&imported).into_iter().chain(lost_behind(path)).next() {
            return Err(failed(format!("nothing can be compared with an incomplete recording: {line}")));
        }
        let asked = Baseline::questions();
        Baseline::of(&imported.recordings.iter().map(|recording| ask(recording, &asked)).collect::<Vec<_>>())
    };
    if base.is_empty() { Err(failed("no device memory is in it".to_owned())) } else { Ok(base) }
}

/// Writes the numbers of a recording, which must be complete.
fn save_baseline(path: &Path, answers: &[Answers], lost: &[String], terminal: &Terminal) -> Result<(), String> {
    let failed = |reason: String| format!("--save-baseline: {}: {reason}", quoted_path(path));
    if path.extension().is_none_or(|extension| extension != "json") {
        return Err(failed("the name must end with .json".to_owned()));
    }
    let base = Baseline::of(answers);
    match lost.first() {
        Some(line) => Err(failed(format!("the recording is incomplete: {line}"))),
        None if base.is_empty() => Err(failed("no device memory was seen".to_owned())),
        None => std::fs::write(path, base.to_text()).map_err(|error| failed(error.to_string())),
    }?;
    terminal.notice(format!("numbers written to {}", quoted_path(near_path(path))));
    Ok(())
}

/// What the recording lacks that a file of rows was written from: the rows do not say, but it lies beside them.
fn lost_behind(path: &Path) -> Vec<String> {
    if !path.is_file() {
        return Vec::new();
    }
    let Some(trace) = recording_of(path).and_then(|directory| Trace::open(&directory.join(TRACE_FILE_NAME)).ok())
    else {
        return Vec::new();
    };
    let process = trace.process_id();
    lost_events(trace.completeness()).into_iter().map(|line| format!("{line} (process {process})")).collect()
}

/// Events that are missing from an input, and from which process. Rows of events that nobody knows say
/// nothing about memory.
fn lost_of_all(imported: &Imported) -> Vec<String> {
    let report = &imported.report;
    let is_lost = report.files_left_out() > 0 || report.rows_skipped() > report.skipped(SkipReason::UnknownEvent);
    let rows = report.notice().filter(|_| is_lost);
    let of_recording = |recording: &Recording| {
        let process = recording.definitions().place().name(recording.process_id());
        let lines = completeness(recording).map_or(Vec::new(), lost_events);
        lines.into_iter().map(move |line| format!("{line} ({process})"))
    };
    imported.recordings.iter().flat_map(of_recording).chain(rows).collect()
}
