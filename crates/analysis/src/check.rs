//! Rules for automatic tests: limits that a recording must keep.

use serde::Serialize;

use crate::pass::{Answers, Questions};
use crate::text::bytes;

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

/// What became of one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleResult {
    /// Name of the rule, as the option is called.
    pub rule: &'static str,
    /// Whether it was kept.
    pub passed: bool,
    /// One line that says what was found and what was allowed.
    pub verdict: String,
}

/// Checks the answers about all processes of a recording. Every rule needs all events: if some are
/// missing, as `lost` says line by line, none can be checked, and so none is kept.
pub fn check(answers: &[Answers], rules: &Rules, lost: &[String]) -> Vec<RuleResult> {
    let mut results = check_recorded(answers, rules);
    if !lost.is_empty() {
        for result in &mut results {
            result.passed = false;
            result.verdict = format!("cannot be checked: {}; recorded: {}", lost.join(", "), result.verdict);
        }
    }
    results
}

fn check_recorded(answers: &[Answers], rules: &Rules) -> Vec<RuleResult> {
    let mut results = Vec::new();
    if let Some(limit) = rules.maximum_peak_bytes {
        let pools = answers.iter().flat_map(|answers| {
            let npu_pools =
                answers.summary.pools.iter().filter(|pool| matches!(pool.device, msmemscope_event::Device::Npu(_)));
            npu_pools.map(|pool| (pool.peak_used_bytes, pool.device, pool.pool, answers.process_id))
        });
        let verdict = match pools.max_by_key(|(peak, ..)| *peak) {
            Some((peak, device, pool, process_id)) => (
                peak <= limit,
                format!(
                    "peak {} ({} on device {device}, process {process_id}), limit {}",
                    bytes(peak),
                    pool.title(),
                    bytes(limit)
                ),
            ),
            None => (true, "no device memory was used".to_owned()),
        };
        results.push(RuleResult { rule: "max-peak", passed: verdict.0, verdict: verdict.1 });
    }
    if let Some(limit) = rules.maximum_leaked_bytes {
        let leaks = || answers.iter().filter_map(|answers| answers.leaks.as_ref());
        let leaked: u64 = leaks().map(|leaks| leaks.leaked_bytes()).fold(0, u64::saturating_add);
        let worst =
            leaks().flat_map(|leaks| leaks.leaks.iter().chain(&leaks.after_finalize)).max_by_key(|group| group.bytes);
        let verdict = match worst {
            Some(group) => {
                format!("{} leaked, limit {}; most at {}", bytes(leaked), bytes(limit), group.site.line)
            }
            None if leaks().all(|leaks| leaks.steps == 0) => {
                "no leaks found, but without steps leaks in framework pools cannot be told".to_owned()
            }
            None if leaks().any(|leaks| leaks.too_few_steps()) => {
                "no leaks found, but there are too few steps to be sure".to_owned()
            }
            None => "no leaks".to_owned(),
        };
        results.push(RuleResult { rule: "no-leaks", passed: leaked <= limit, verdict });
    }
    if let Some(limit) = rules.maximum_inefficient_share {
        let reports = || answers.iter().filter_map(|answers| answers.inefficient.as_ref());
        let share = reports().map(|report| report.peak_share()).fold(0.0, f64::max);
        let recorded = reports().any(|report| report.accesses > 0);
        let verdict = match recorded {
            true => format!("inefficient use costs {:.1} % of a peak, limit {:.1} %", share * 100.0, limit * 100.0),
            false => "accesses were not recorded (--analysis=inefficient), so this rule cannot be checked".to_owned(),
        };
        results.push(RuleResult { rule: "max-inefficient", passed: recorded && share <= limit, verdict });
    }
    results
}
