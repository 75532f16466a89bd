//! The numbers of an accepted recording, small enough for a file beside the code, and what became of them since.

use std::collections::BTreeMap;

use msmemscope_event::{Device, Pool};
use serde::{Deserialize, Serialize};

use crate::check::{Ground, RuleOutcome, RuleResult, Subject, judged, why_leaks_cannot_be_judged};
use crate::leaks::LeakReport;
use crate::moment::MomentQuestion;
use crate::names::SiteText;
use crate::question::{Answers, Questions};

/// Version of the form; other ones are refused.
const FORM: u32 = 1;

/// Numbers of a recording that later ones are compared with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Version of this form.
    msmemscope_baseline: u32,
    /// Bytes that leak, of all processes; absent if that could not be judged.
    leaked_bytes: Option<u64>,
    /// By device and pool: the largest numbers of any process.
    pools: Vec<PoolNumbers>,
}

/// Numbers of one pool on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PoolNumbers {
    device: String,
    pool: String,
    /// Most bytes in use at once.
    peak_bytes: u64,
    /// What stays from step to step; absent without steps enough to tell.
    growth_bytes_per_step: Option<u64>,
}

impl Baseline {
    /// What has to be asked for it.
    pub fn questions() -> Questions {
        Questions { leaks: true, moments: MomentQuestion::at_peak(), ..Questions::default() }
    }

    /// The numbers of all processes of a recording.
    pub fn of(answers: &[Answers]) -> Self {
        let mut pools: BTreeMap<(Device, Pool), (u64, Option<u64>)> = BTreeMap::new();
        for answers in answers {
            for pool in answers.summary.pools.iter().filter(|pool| matches!(pool.device, Device::Npu(_))) {
                let numbers = pools.entry((pool.device, pool.pool)).or_default();
                numbers.0 = numbers.0.max(pool.peak_used_bytes);
            }
            let report = answers.leaks.iter().filter(|report| !report.too_few_steps());
            for growth in report.flat_map(|report| &report.growth) {
                let Some(per_step) = growth.bytes_per_step() else { continue };
                let per_step = if growth.is_growing() { per_step.max(0.0) as u64 } else { 0 };
                if let Some(numbers) = pools.get_mut(&(growth.device, growth.pool)) {
                    numbers.1 = numbers.1.max(Some(per_step));
                }
            }
        }
        let is_judged = !answers.iter().any(|answers| why_leaks_cannot_be_judged(answers).is_some());
        let numbers = |((device, pool), (peak_bytes, growth_bytes_per_step)): ((Device, Pool), _)| PoolNumbers {
            device: device.to_string(),
            pool: pool.event_type().to_owned(),
            peak_bytes,
            growth_bytes_per_step,
        };
        Self {
            msmemscope_baseline: FORM,
            leaked_bytes: is_judged.then(|| leaked_bytes(answers)),
            pools: pools.into_iter().map(numbers).collect(),
        }
    }

    /// Whether no memory of a card is in it.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// As the text of a file.
    pub fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }

    /// Reads the text of a file; else why not.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let read: Self = serde_json::from_str(text).map_err(|error| format!("not a baseline: {error}"))?;
        match read.msmemscope_baseline {
            FORM => Ok(read),
            other => Err(format!("a baseline of form {other}; this program reads form {FORM}")),
        }
    }

    /// What became of the numbers; each may be larger by `tolerance`, a share. What is in only one of both cannot be
    /// judged.
    pub fn compare(&self, answers: &[Answers], tolerance: f64) -> Vec<(&'static str, RuleOutcome, Ground)> {
        let now = Self::of(answers);
        let mut results = Vec::new();
        let mut add = |rule, subject: Subject, base: Option<u64>, now: Option<u64>, worst: Option<&SiteText>| {
            let limit_bytes = base.map(|base| base.saturating_add((base as f64 * tolerance) as u64));
            let outcome = match (limit_bytes, now) {
                (Some(limit), Some(now)) => judged(now <= limit),
                _ => RuleOutcome::Unjudged,
            };
            let worst = worst.cloned().map(Box::new);
            results.push((
                rule,
                outcome,
                Ground::Compared { subject, base_bytes: base, now_bytes: now, limit_bytes, worst },
            ));
        };
        let mut keys: Vec<(&str, &str)> = Vec::new();
        for numbers in self.pools.iter().chain(&now.pools) {
            let key = (numbers.device.as_str(), numbers.pool.as_str());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        for (device, pool) in keys {
            let find = |baseline: &'_ Self| {
                let found = baseline.pools.iter().find(|numbers| numbers.device == device && numbers.pool == pool);
                found.map(|numbers| (numbers.peak_bytes, numbers.growth_bytes_per_step))
            };
            let (base, current) = (find(self), find(&now));
            let subject =
                |what: &str| Subject { what: what.to_owned(), device: device.to_owned(), pool: pool.to_owned() };
            let peak = |numbers: Option<(u64, _)>| numbers.map(|(peak_bytes, _)| peak_bytes);
            add("baseline-peak", subject("peak"), peak(base), peak(current), worst_at_peak(answers, device, pool));
            // What the accepted recording could not say is not compared.
            if let Some(growth) = base.and_then(|(_, growth)| growth) {
                let current = current.and_then(|(_, growth)| growth);
                add("baseline-growth", subject("growth per step"), Some(growth), current, worst_leak(answers));
            }
        }
        if let Some(leaked) = self.leaked_bytes {
            let subject = Subject { what: "leaked".to_owned(), device: String::new(), pool: String::new() };
            let current = match now.leaked_bytes {
                // What leaks for certain is broken, whatever else could not be seen.
                None => Some(leaked_bytes(answers)).filter(|bytes| *bytes > leaked),
                judged => judged,
            };
            add("baseline-leaks", subject, Some(leaked), current, worst_leak(answers));
        }
        results
    }
}

fn leaked_bytes(answers: &[Answers]) -> u64 {
    let reports = answers.iter().filter_map(|answers| answers.leaks.as_ref());
    reports.map(LeakReport::leaked_bytes).fold(0, u64::saturating_add)
}

fn worst_leak(answers: &[Answers]) -> Option<&SiteText> {
    let reports = answers.iter().filter_map(|answers| answers.leaks.as_ref());
    reports.flat_map(LeakReport::suspects).max_by_key(|group| group.bytes).map(|group| &group.site)
}

fn worst_at_peak<'a>(answers: &'a [Answers], device: &str, pool: &str) -> Option<&'a SiteText> {
    let moments = answers.iter().filter_map(|answers| answers.moments.as_ref()).flat_map(|report| &report.pools);
    let here = moments.filter(|moment| moment.device.to_string() == device && moment.pool.event_type() == pool);
    here.max_by_key(|moment| moment.used_bytes)?.lines.first().map(|line| &line.site)
}

/// The results of a comparison in the form of other rules.
pub fn results(compared: Vec<(&'static str, RuleOutcome, Ground)>, lost: &[String]) -> Vec<RuleResult> {
    compared.into_iter().map(|(rule, outcome, ground)| RuleResult::new(rule, outcome, ground, lost)).collect()
}
