//! Rules for automatic tests: limits that a recording must keep. A rule that cannot be judged is not kept: a guard
//! that saw nothing has guarded nothing.

use msmemscope_event::{Device, Pool};
use serde::Serialize;

use crate::leaks::{DriverVerdict, LeakReport};
use crate::moment::MomentQuestion;
use crate::names::{Frame, SiteText, user_frame};
use crate::question::{Answers, Questions};
use crate::unseen::UnseenPool;

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

impl Ground {
    /// The place in the code that is to blame, if one is.
    pub fn culprit(&self) -> Option<&Frame> {
        let (Ground::Compared { worst, .. }
        | Ground::Peak { worst, .. }
        | Ground::Leaked { worst, .. }
        | Ground::KeptTwice { worst, .. }) = self
        else {
            return None;
        };
        let site = worst.as_ref()?;
        let frame = user_frame(&site.python).or_else(|| user_frame(&site.native))?;
        (frame.line > 0 && !frame.file.is_empty()).then_some(frame)
    }
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
            moments: self.maximum_peak_bytes.map(|_| MomentQuestion::at_peak()).unwrap_or_default(),
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
#[derive(Clone, Debug, PartialEq)]
pub struct RuleResult {
    /// Name of the rule, as the option is called.
    pub rule: &'static str,
    /// Whether it was kept.
    pub outcome: RuleOutcome,
    /// What that rests on.
    pub ground: Ground,
    /// What is missing from the recording, line by line; with anything missing no rule can be judged.
    pub lost: Vec<String>,
}

impl RuleResult {
    /// Every rule needs all events: if some are missing, it cannot be judged.
    pub(crate) fn new(rule: &'static str, outcome: RuleOutcome, ground: Ground, lost: &[String]) -> Self {
        let outcome = if lost.is_empty() { outcome } else { RuleOutcome::Unjudged };
        Self { rule, outcome, ground, lost: lost.to_vec() }
    }
}

/// Which number of a baseline is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// In a word or three.
    pub what: String,
    /// On which device; empty if on all.
    pub device: String,
    /// In which pool, by its event type; empty if in all.
    pub pool: String,
}

/// What a judgement rests on.
#[derive(Clone, Debug, PartialEq)]
pub enum Ground {
    /// A number of an accepted recording, and what it is now.
    Compared {
        /// Which number.
        subject: Subject,
        /// What was accepted, if it is known.
        base_bytes: Option<u64>,
        /// What it is now, likewise.
        now_bytes: Option<u64>,
        /// What is allowed.
        limit_bytes: Option<u64>,
        /// Where most of it was allocated.
        worst: Option<Box<SiteText>>,
    },
    /// The largest peak of any pool, and the limit.
    Peak {
        /// The peak.
        peak_bytes: u64,
        /// The limit.
        limit_bytes: u64,
        /// Where.
        device: Device,
        /// Of which pool.
        pool: Pool,
        /// In which process: its rank, or else its id.
        process: String,
        /// The line that held most of it.
        worst: Option<Box<SiteText>>,
    },
    /// Memory that leaked, the limit, and the line that leaked most.
    Leaked {
        /// What leaked.
        leaked_bytes: u64,
        /// The limit.
        limit_bytes: u64,
        /// Where most of it was allocated.
        worst: Option<Box<SiteText>>,
        /// The processes that leaked, by rank or else by id; empty if only one was recorded.
        processes: Vec<String>,
    },
    /// Memory that was kept in two steps only.
    KeptTwice {
        /// How much.
        bytes: u64,
        /// Where most of it was allocated.
        worst: Option<Box<SiteText>>,
        /// As above.
        processes: Vec<String>,
    },
    /// No leaks, and everything that is needed to say so was seen.
    NoLeaks,
    /// No leaks were found, but they may have been missed.
    LeaksUnknown {
        /// In which process: its rank, or else its id.
        process: String,
        /// Why.
        doubt: Doubt,
    },
    /// No memory of a card was seen.
    NoDeviceMemory,
    /// The part of a peak that inefficient use costs, and the limit, from zero to one.
    Inefficiency {
        /// The part.
        share: f64,
        /// The limit.
        limit_share: f64,
    },
    /// Accesses were not recorded.
    NoAccesses,
}

/// Why a process may leak although nothing was found.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    /// A pool of a framework was not seen.
    UnseenPool(UnseenPool),
    /// No memory of a card was seen.
    NoDeviceMemory,
    /// Nothing says where steps end.
    NoSteps,
    /// So few steps ended.
    FewSteps(u64),
}

/// Checks the answers about all processes of a recording. Every rule needs all events: if some are
/// missing, as `lost` says line by line, none can be judged.
pub fn check(answers: &[Answers], rules: &Rules, lost: &[String]) -> Vec<RuleResult> {
    let mut results = Vec::new();
    let mut add = |rule, (outcome, ground)| {
        results.push(RuleResult::new(rule, outcome, ground, lost));
    };
    if let Some(limit) = rules.maximum_peak_bytes {
        add("max-peak", check_peak(answers, limit));
    }
    if let Some(limit) = rules.maximum_leaked_bytes {
        add("no-leaks", check_leaks(answers, limit));
    }
    if let Some(limit) = rules.maximum_inefficient_share {
        add("max-inefficient", check_inefficiency(answers, limit));
    }
    results
}

/// Kept or broken.
pub(crate) fn judged(is_kept: bool) -> RuleOutcome {
    if is_kept { RuleOutcome::Passed } else { RuleOutcome::Broken }
}

fn check_peak(answers: &[Answers], limit_bytes: u64) -> (RuleOutcome, Ground) {
    let pools = answers.iter().flat_map(|answers| {
        let npu_pools = answers.summary.pools.iter().filter(|pool| matches!(pool.device, Device::Npu(_)));
        npu_pools.map(move |pool| (pool.peak_used_bytes, pool.device, pool.pool, answers))
    });
    match pools.max_by_key(|(peak, ..)| *peak) {
        Some((peak_bytes, device, pool, answers)) => {
            let mut moments = answers.moments.iter().flat_map(|report| &report.pools);
            let at_peak = moments.find(|moment| (moment.device, moment.pool) == (device, pool));
            let worst = at_peak.and_then(|moment| moment.lines.first()).map(|line| Box::new(line.site.clone()));
            let process = answers.place.name(answers.process_id);
            let ground = Ground::Peak { peak_bytes, limit_bytes, device, pool, process, worst };
            (judged(peak_bytes <= limit_bytes), ground)
        }
        None => (RuleOutcome::Unjudged, Ground::NoDeviceMemory),
    }
}

fn check_leaks(answers: &[Answers], limit_bytes: u64) -> (RuleOutcome, Ground) {
    let leaks = || answers.iter().filter_map(|answers| answers.leaks.as_ref());
    let total = |of: fn(&LeakReport) -> u64| leaks().map(of).fold(0, u64::saturating_add);
    let (leaked_bytes, suspected) = (total(LeakReport::leaked_bytes), total(LeakReport::suspected_bytes));
    let worst = leaks().flat_map(LeakReport::suspects).max_by_key(|group| group.bytes);
    let worst = worst.map(|group| Box::new(group.site.clone()));
    let is_suspect = |answers: &&Answers| answers.leaks.iter().any(|report| report.suspects().next().is_some());
    let name = |answers: &Answers| answers.place.name(answers.process_id);
    let processes = || match answers {
        [_] => Vec::new(),
        _ => answers.iter().filter(is_suspect).map(name).collect(),
    };
    if leaked_bytes > limit_bytes {
        (RuleOutcome::Broken, Ground::Leaked { leaked_bytes, limit_bytes, worst, processes: processes() })
    } else if suspected > limit_bytes {
        (RuleOutcome::Unjudged, Ground::KeptTwice { bytes: suspected - leaked_bytes, worst, processes: processes() })
    } else if answers.is_empty() {
        (RuleOutcome::Unjudged, Ground::NoDeviceMemory)
    } else if let Some((process, doubt)) = answers.iter().find_map(why_leaks_cannot_be_judged) {
        (RuleOutcome::Unjudged, Ground::LeaksUnknown { process, doubt })
    } else if leaked_bytes > 0 {
        (RuleOutcome::Passed, Ground::Leaked { leaked_bytes, limit_bytes, worst, processes: processes() })
    } else {
        (RuleOutcome::Passed, Ground::NoLeaks)
    }
}

pub(crate) fn why_leaks_cannot_be_judged(answers: &Answers) -> Option<(String, Doubt)> {
    let report = answers.leaks.as_ref()?;
    let doubt = match (answers.unseen_pools.first(), report.steps) {
        (Some(unseen), _) => Doubt::UnseenPool(unseen.clone()),
        (None, _) if !report.saw_memory => Doubt::NoDeviceMemory,
        (None, 0) if report.saw_framework_pool || report.driver == DriverVerdict::NotKnown => Doubt::NoSteps,
        (None, 0) => return None,
        _ if report.too_few_steps() => {
            Doubt::FewSteps(report.few_steps.iter().map(|few| few.ended).min().unwrap_or(report.steps))
        }
        _ => return None,
    };
    Some((answers.place.name(answers.process_id), doubt))
}

fn check_inefficiency(answers: &[Answers], limit_share: f64) -> (RuleOutcome, Ground) {
    let reports = || answers.iter().filter_map(|answers| answers.inefficient.as_ref());
    let share = reports().map(|report| report.peak_share()).fold(0.0, f64::max);
    match reports().any(|report| report.accesses > 0) {
        true => (judged(share <= limit_share), Ground::Inefficiency { share, limit_share }),
        false => (RuleOutcome::Unjudged, Ground::NoAccesses),
    }
}
