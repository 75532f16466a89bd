//! Rules for automatic tests: limits that a recording must keep. A rule that cannot be judged is not kept: a guard
//! that saw nothing has guarded nothing.

use serde::Serialize;

use crate::leaks::{DriverVerdict, LeakReport};
use crate::pass::{Answers, Questions};
use crate::text::{self, bytes};

/// Limits. Those that are absent are not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rules {
    /// Most bytes any pool of an NPU may use at once.
    pub maximum_peak_bytes: Option<u64>,
    /// Most bytes that may leak.
    pub maximum_leaked_bytes: Option<u64>,
    /// Largest part of a peak that inefficient use may cost, from zero to one.
    pub maximum_inefficient_share: Option<f64>,
}

impl Rules {
    /// Whether there is anything to check.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What has to be asked.
    pub fn questions(&self) -> Questions {
        Questions {
            leaks: self.maximum_leaked_bytes.is_some(),
            inefficient: self.maximum_inefficient_share.is_some().then(Default::default),
            ..Questions::default()
        }
    }
}

/// How a rule came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleOutcome {
    /// It was kept.
    Passed,
    /// It was broken.
    Broken,
    /// Not enough is known to say.
    Unjudged,
}

/// What became of one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleResult {
    /// Name of the rule, as the option is called.
    pub rule: &'static str,
    /// Whether it was kept.
    pub outcome: RuleOutcome,
    /// One line that says what was found and what was allowed.
    pub verdict: String,
}

/// Checks the answers about all processes of a recording. Every rule needs all events: if some are
/// missing, as `lost` says line by line, none can be judged.
pub fn check(answers: &[Answers], rules: &Rules, lost: &[String]) -> Vec<RuleResult> {
    let mut results = Vec::new();
    results.extend(rules.maximum_peak_bytes.map(|limit| check_peak(answers, limit)));
    results.extend(rules.maximum_leaked_bytes.map(|limit| check_leaks(answers, limit)));
    results.extend(rules.maximum_inefficient_share.map(|limit| check_inefficiency(answers, limit)));
    if !lost.is_empty() {
        for result in &mut results {
            result.outcome = RuleOutcome::Unjudged;
            result.verdict = format!("{}; recorded: {}", lost.join(", "), result.verdict);
        }
    }
    results
}

/// Kept or broken.
fn judged(is_kept: bool) -> RuleOutcome {
    if is_kept { RuleOutcome::Passed } else { RuleOutcome::Broken }
}

fn check_peak(answers: &[Answers], limit: u64) -> RuleResult {
    let pools = answers.iter().flat_map(|answers| {
        let npu_pools =
            answers.summary.pools.iter().filter(|pool| matches!(pool.device, msmemscope_event::Device::Npu(_)));
        npu_pools.map(|pool| (pool.peak_used_bytes, pool.device, pool.pool, answers.process_id))
    });
    let (outcome, verdict) = match pools.max_by_key(|(peak, ..)| *peak) {
        Some((peak, device, pool, process_id)) => (
            judged(peak <= limit),
            format!(
                "peak {} ({} on device {device}, process {process_id}), limit {}",
                bytes(peak),
                pool.title(),
                bytes(limit)
            ),
        ),
        None => (RuleOutcome::Unjudged, "no device memory was seen".to_owned()),
    };
    RuleResult { rule: "max-peak", outcome, verdict }
}

fn check_leaks(answers: &[Answers], limit: u64) -> RuleResult {
    let leaks = || answers.iter().filter_map(|answers| answers.leaks.as_ref());
    let total = |of: fn(&LeakReport) -> u64| leaks().map(of).fold(0, u64::saturating_add);
    let (leaked, suspected) = (total(LeakReport::leaked_bytes), total(LeakReport::suspected_bytes));
    let worst = leaks().flat_map(LeakReport::suspects).max_by_key(|group| group.bytes);
    let place = worst.map_or(String::new(), |group| format!("; most at {}", group.site.line));
    let (outcome, verdict) = if leaked > limit {
        (RuleOutcome::Broken, format!("{} leaked, limit {}{place}", bytes(leaked), bytes(limit)))
    } else if suspected > limit {
        let kept = format!("{} kept in two steps only, which may be a leak{place}", bytes(suspected - leaked));
        (RuleOutcome::Unjudged, kept)
    } else if let Some(reason) = answers.iter().find_map(why_leaks_cannot_be_judged) {
        (RuleOutcome::Unjudged, format!("no leaks found, but {reason}"))
    } else if leaked > 0 {
        (RuleOutcome::Passed, format!("{} leaked, limit {}{place}", bytes(leaked), bytes(limit)))
    } else {
        (RuleOutcome::Passed, "no leaks".to_owned())
    };
    RuleResult { rule: "no-leaks", outcome, verdict }
}

/// Why a process may leak although nothing was found.
fn why_leaks_cannot_be_judged(answers: &Answers) -> Option<String> {
    let report = answers.leaks.as_ref()?;
    let process = answers.process_id;
    if let Some(unseen) = answers.unseen_pools.first() {
        return Some(format!("{} (process {process})", unseen.describe()));
    }
    if !report.saw_memory {
        return Some(format!("no device memory was seen (process {process})"));
    }
    match report.steps {
        0 if report.saw_framework_pool || report.driver == DriverVerdict::NotKnown => {
            Some(format!("no steps were marked (process {process})"))
        }
        0 => None,
        _ if report.too_few_steps() => {
            let ended = report.few_steps.iter().map(|few| few.ended).min().unwrap_or(report.steps);
            Some(format!("{} cannot show a leak (process {process})", text::counted(ended, "step")))
        }
        _ => None,
    }
}

fn check_inefficiency(answers: &[Answers], limit: f64) -> RuleResult {
    let reports = || answers.iter().filter_map(|answers| answers.inefficient.as_ref());
    let share = reports().map(|report| report.peak_share()).fold(0.0, f64::max);
    let (outcome, verdict) = match reports().any(|report| report.accesses > 0) {
        true => (
            judged(share <= limit),
            format!("inefficient use costs {:.1} % of a peak, limit {:.1} %", share * 100.0, limit * 100.0),
        ),
        false => (RuleOutcome::Unjudged, "accesses were not recorded (--analysis=inefficient)".to_owned()),
    };
    RuleResult { rule: "max-inefficient", outcome, verdict }
}
