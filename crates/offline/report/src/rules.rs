//! What became of rules for automatic tests, one line each.

use msmemscope_analysis::check::{Doubt, Ground, RuleOutcome, RuleResult, Subject};
use msmemscope_analysis::names::SiteText;
use msmemscope_event::Pool;
use serde_json::{Value, json};

use crate::layout::near;
use crate::units::{bytes, counted};

/// What was found and what was allowed.
pub fn verdict(result: &RuleResult) -> String {
    let found = ground(&result.ground, result.outcome == RuleOutcome::Passed);
    match result.lost.is_empty() {
        true => found,
        false => format!("{}; recorded: {found}", result.lost.join(", ")),
    }
}

/// The result for programs.
pub fn json(result: &RuleResult) -> Value {
    let culprit = result.ground.culprit().map(|frame| json!({ "file": frame.file, "line": frame.line }));
    json!({ "rule": result.rule, "outcome": result.outcome, "verdict": verdict(result), "culprit": culprit })
}

/// Where memory comes from is said of leaks, and of other rules that did not pass.
fn ground(ground: &Ground, has_passed: bool) -> String {
    let place = |worst: &Option<Box<SiteText>>| match worst {
        Some(site) if site.is_known() => format!("; most at {}", near(&site.line)),
        Some(_) => "; call stacks were not recorded".to_owned(),
        None => String::new(),
    };
    let place_if_broken = |worst| if has_passed { String::new() } else { place(worst) };
    match ground {
        Ground::Compared { subject, base_bytes, now_bytes, limit_bytes, worst } => {
            let what = in_full(subject);
            match (base_bytes, now_bytes, limit_bytes) {
                (Some(base), Some(now), Some(limit)) => {
                    let (now, base, limit) = (bytes(*now), bytes(*base), bytes(*limit));
                    format!("{what} {now}, accepted {base}, limit {limit}{}", place_if_broken(worst))
                }
                (None, Some(now), _) => format!("{what} {}, of which the baseline says nothing", bytes(*now)),
                (Some(base), _, _) => format!("{what} not known, accepted {}", bytes(*base)),
                (None, ..) => format!("{what} not known"),
            }
        }
        Ground::Peak { peak_bytes, limit_bytes, device, pool, process, worst } => format!(
            "peak {} ({} on device {device}, {process}), limit {}{}",
            bytes(*peak_bytes),
            pool.title(),
            bytes(*limit_bytes),
            place_if_broken(worst)
        ),
        Ground::Leaked { leaked_bytes, limit_bytes, worst, processes } => {
            let (leaked, limit) = (bytes(*leaked_bytes), bytes(*limit_bytes));
            format!("{leaked} leaked{}, limit {limit}{}", by_processes(processes), place(worst))
        }
        Ground::KeptTwice { bytes: kept, worst, processes } => {
            let (kept, by) = (bytes(*kept), by_processes(processes));
            format!("{kept} kept in two steps only{by}, which may be a leak{}", place(worst))
        }
        Ground::NoLeaks => "no leaks".to_owned(),
        Ground::LeaksUnknown { process, doubt } => {
            format!("no leaks found, but {} ({process})", in_words(doubt))
        }
        Ground::NoDeviceMemory => "no device memory was seen".to_owned(),
        Ground::Inefficiency { share, limit_share } => {
            format!("inefficient use costs {:.1} % of a peak, limit {:.1} %", share * 100.0, limit_share * 100.0)
        }
        Ground::NoAccesses => "accesses were not recorded (--analysis=inefficient)".to_owned(),
    }
}

/// The processes that did something, the first of many.
fn by_processes(processes: &[String]) -> String {
    const NAMED: usize = 4;
    match processes.len() {
        0 => String::new(),
        count if count <= NAMED => format!(" by {}", processes.join(", ")),
        count => format!(" by {} and {} more", processes[..NAMED].join(", "), count - NAMED),
    }
}

/// A number of a baseline by its full name.
pub(crate) fn in_full(subject: &Subject) -> String {
    let title = Pool::ALL.iter().find(|pool| pool.event_type() == subject.pool).map(|pool| pool.title());
    match (title.unwrap_or(&subject.pool), subject.device.as_str()) {
        ("", "") => subject.what.clone(),
        (pool, device) => format!("{} ({pool} on device {device})", subject.what),
    }
}

fn in_words(doubt: &Doubt) -> String {
    match doubt {
        Doubt::UnseenPool(unseen) => unseen.describe(),
        Doubt::NoDeviceMemory => "no device memory was seen".to_owned(),
        Doubt::NoSteps => "no steps were marked".to_owned(),
        Doubt::FewSteps(ended) => format!("{} cannot show a leak", counted(*ended, "step")),
    }
}
