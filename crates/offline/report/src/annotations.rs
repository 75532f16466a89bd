//! Broken rules at the lines that are to blame, the way GitHub and GitLab show them beside the code.

use msmemscope_analysis::check::{Ground, RuleOutcome, RuleResult};
use serde_json::{Value, json};

use crate::layout::near;
use crate::rules::{in_full, verdict};

/// Lines for the log of a GitHub workflow; nothing for rules that passed.
pub fn github(results: &[RuleResult]) -> String {
    let mut text = String::new();
    for result in results {
        let command = match result.outcome {
            RuleOutcome::Passed => continue,
            RuleOutcome::Broken => "error",
            RuleOutcome::Unjudged => "warning",
        };
        let title = property(&format!("msmemscope {}", result.rule));
        let place = match result.ground.culprit() {
            Some(frame) => format!("file={},line={},", property(near(&frame.file)), frame.line),
            None => String::new(),
        };
        text.push_str(&format!("::{command} {place}title={title}::{}\n", data(&sentence(result))));
    }
    text
}

/// The code quality report of GitLab. It must name a place: without a line to blame, that is where the recording is.
pub fn gitlab(results: &[RuleResult], recording: &str) -> Value {
    let issue = |result: &RuleResult| {
        let severity = match result.outcome {
            RuleOutcome::Passed => return None,
            RuleOutcome::Broken => "major",
            RuleOutcome::Unjudged => "minor",
        };
        let (path, line) = match result.ground.culprit() {
            Some(frame) => (near(&frame.file), frame.line),
            None => (recording, 1),
        };
        let subject = match &result.ground {
            Ground::Compared { subject, .. } => in_full(subject),
            _ => String::new(),
        };
        Some(json!({
            "description": sentence(result),
            "check_name": format!("msmemscope-{}", result.rule),
            // The same problem has the same one in every run, so no numbers.
            "fingerprint": format!("msmemscope {} {subject} {path}:{line}", result.rule),
            "severity": severity,
            "location": { "path": path, "lines": { "begin": line } },
        }))
    };
    Value::Array(results.iter().filter_map(issue).collect())
}

fn sentence(result: &RuleResult) -> String {
    let doubt = if result.outcome == RuleOutcome::Unjudged { "cannot be judged: " } else { "" };
    format!("{}: {doubt}{}", result.rule, verdict(result))
}

/// A message of a workflow command. Whatever is in it, it stays one command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A value before the message.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use msmemscope_analysis::installation::Origin;
    use msmemscope_analysis::names::{Frame, SiteText};

    fn leak(file: &str) -> RuleResult {
        let frame = Frame { function: "f".into(), file: file.into(), line: 7, origin: Origin::Program };
        let site = SiteText { line: frame.describe(), python: vec![frame], ..SiteText::default() };
        let ground =
            Ground::Leaked { leaked_bytes: 2048, limit_bytes: 0, worst: Some(Box::new(site)), processes: Vec::new() };
        RuleResult { rule: "no-leaks", outcome: RuleOutcome::Broken, ground, lost: Vec::new() }
    }

    #[test]
    fn nothing_in_a_name_ends_a_command() {
        let text = github(&[leak("/a,b:c\n::error::100%.py")]);
        assert_eq!(
            text,
            "::error file=/a%2Cb%3Ac%0A%3A%3Aerror%3A%3A100%25.py,line=7,title=msmemscope no-leaks::no-leaks: 2.0 KiB \
             leaked, limit 0 B; most at /a,b:c%0A::error::100%25.py:7 f\n"
        );
    }

    #[test]
    fn paths_are_relative_and_passed_rules_are_silent() {
        let here = std::env::current_dir().expect("a directory").join("train.py");
        let broken = leak(&here.to_string_lossy());
        let passed =
            RuleResult { rule: "no-leaks", outcome: RuleOutcome::Passed, ground: Ground::NoLeaks, lost: Vec::new() };
        let unjudged = RuleResult { outcome: RuleOutcome::Unjudged, ground: Ground::NoDeviceMemory, ..passed.clone() };
        assert!(github(std::slice::from_ref(&broken)).starts_with("::error file=train.py,line=7,title="));
        let warning = "::warning title=msmemscope no-leaks::no-leaks: cannot be judged: no device memory was seen\n";
        assert_eq!(github(&[passed.clone(), unjudged.clone()]), warning);
        let report = gitlab(&[broken, passed, unjudged], "out");
        assert_eq!(report.as_array().map(Vec::len), Some(2));
        assert_eq!(report[0]["location"], json!({ "path": "train.py", "lines": { "begin": 7 } }));
        assert_eq!(report[0]["severity"], "major");
        assert_eq!(report[0]["fingerprint"], "msmemscope no-leaks  train.py:7");
        assert_eq!(report[1]["location"]["path"], "out");
    }
}
