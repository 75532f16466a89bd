//! What is wrong with a run: one entry per cause, with its sentence, its number, its line, who holds the memory, and what
//! to do about it.
//!
//! The first lines of reports are made of the same sentences; the viewer and the reports that it makes show all of them.

use msmemscope_analysis::Answers;
use msmemscope_analysis::causes::LeakCause;
use msmemscope_analysis::holders::HeldBy;
use msmemscope_analysis::leaks::{LeakGroup, LeakReport};
use msmemscope_analysis::leaks_by_cause::{CausedLeaks, by_cause, by_holder, sum};
use msmemscope_analysis::names::{Frame, SiteText, user_frame};
use msmemscope_analysis::out_of_memory::{Failure, OutOfMemoryReport};
use msmemscope_analysis::watch::WatchReport;
use msmemscope_event::{Device, Pool};

use crate::findings::recovery;
use crate::headline;
use crate::layout::near;
use crate::leaks::advice;
use crate::standing;
use crate::units::{bytes, counted};
use crate::verdict::reason;
use crate::watch;

/// Causes of one kind that are told one by one.
const TOLD_PER_KIND: usize = 5;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseKind {
    /// Memory ran out, and the job did not get any.
    OutOfMemory,
    /// Memory ran out, but a later attempt got it.
    RecoveredOutOfMemory,
    /// Memory changed that no operator said it would change.
    Corruption,
    /// Memory leaks.
    Leak,
    /// Memory was kept in two steps, which may be a leak.
    PossibleLeak,
    /// A tensor or workspace that becomes larger and larger.
    Growth,
    /// Optimizer states that exist more than once.
    DoubledStates,
    /// Gradients that stay through the forward pass.
    KeptGradients,
    /// Memory of a pool in pieces that are too small.
    Pieces,
}

/// One cause.
#[derive(Clone, Debug)]
pub struct Cause {
    /// What it is.
    pub kind: CauseKind,
    /// All of it in one or two sentences.
    pub sentence: String,
    /// The device, if it is about one.
    pub device: Option<Device>,
    /// The pool, if it is about one.
    pub pool: Option<Pool>,
    /// The bytes that it is about.
    pub bytes: u64,
    /// How many blocks, refusals or changes there are, where that can be counted.
    pub count: Option<u64>,
    /// By how much it grows with every step, and the first and last step that it is from, if it is a leak.
    pub growth: Option<(u64, (u64, u64))>,
    /// The line of code to look at.
    pub line: Option<String>,
    /// The same as a place in a file.
    pub frame: Option<Frame>,
    /// Whether everything was allocated at that line.
    pub is_of_one_line: bool,
    /// The variable that holds most of it.
    pub held_by: Option<String>,
    /// The moment to look at.
    pub timestamp_ns: Option<u64>,
    /// What else is known.
    pub explanation: Vec<String>,
    /// What to do.
    pub advice: Vec<String>,
}

impl Cause {
    pub(crate) fn new(kind: CauseKind, sentence: String, bytes: u64) -> Self {
        Self {
            kind,
            sentence,
            device: None,
            pool: None,
            bytes,
            count: None,
            growth: None,
            line: None,
            frame: None,
            is_of_one_line: false,
            held_by: None,
            timestamp_ns: None,
            explanation: Vec::new(),
            advice: Vec::new(),
        }
    }

    /// The line that allocated all of it.
    pub(crate) fn at(mut self, site: &SiteText) -> Self {
        if site.is_known() {
            (self.line, self.frame, self.is_of_one_line) = (Some(site.line.clone()), site.frame().cloned(), true);
        }
        self
    }

    pub(crate) fn held_by(mut self, holders: &[HeldBy]) -> Self {
        self.held_by = holders.first().map(|held| held.path.clone());
        self
    }
}

/// All causes that the answers name, in the order in which reports tell them.
pub fn causes(answers: &Answers) -> Vec<Cause> {
    let mut found = Vec::new();
    let ran_out = answers.out_of_memory.as_ref().and_then(|report| Some((report, report.decisive()?)));
    found.extend(ran_out.map(|(report, failure)| out_of_memory(report, failure, answers.leaks.as_ref())));
    found.extend(answers.watch.as_ref().and_then(corruption));
    if let Some(report) = &answers.leaks {
        let (certain, finalized) = (by_cause(report), report.after_finalize.iter());
        found.extend(certain.iter().take(TOLD_PER_KIND).map(leak));
        found.extend(further_leaks(certain.get(TOLD_PER_KIND..).unwrap_or_default()));
        found.extend(finalized.take(TOLD_PER_KIND).map(|group| {
            let leak = leak_of(CauseKind::Leak, headline::after_finalize(&[group]), &[group], None);
            Cause { advice: Vec::new(), ..leak }
        }));
        let possible = by_holder(report.possible_leaks.iter());
        let possible = possible.iter().take(TOLD_PER_KIND);
        found.extend(
            possible.map(|groups| leak_of(CauseKind::PossibleLeak, headline::possible_leak(groups), groups, None)),
        );
    }
    found.extend(standing::causes(answers));
    found
}

fn out_of_memory(report: &OutOfMemoryReport, failure: &Failure, leaks: Option<&LeakReport>) -> Cause {
    let (kind, sentence) = match failure.recovered {
        true => (CauseKind::RecoveredOutOfMemory, recovery(report, failure)),
        false => (CauseKind::OutOfMemory, headline::out_of_memory(failure, leaks)),
    };
    let reason = reason(failure);
    let largest = failure.pools.iter().max_by_key(|pool| pool.reserved_bytes);
    let cause = Cause::new(kind, sentence, failure.requested_bytes);
    Cause {
        device: Some(failure.device),
        pool: Some(largest.map_or(Pool::Hal, |pool| pool.pool)),
        count: Some(report.failures + report.limit_failures),
        timestamp_ns: Some(failure.timestamp_ns),
        explanation: reason.explanation,
        advice: reason.advice,
        ..cause.at(&failure.site).held_by(headline::culprit(failure, leaks).held_by)
    }
}

fn corruption(report: &WatchReport) -> Option<Cause> {
    let sentence = watch::sentence(report)?;
    let first = watch::first(report)?;
    let frames = if first.python.is_empty() { &first.native } else { &first.python };
    let cause = Cause::new(CauseKind::Corruption, sentence, first.changed_bytes);
    Some(Cause {
        count: Some(report.corruptions().count() as u64 + report.further_corruptions),
        line: Some(first.line.clone()).filter(|line| !line.is_empty()),
        frame: user_frame(frames).cloned(),
        timestamp_ns: Some(first.timestamp_ns),
        explanation: watch::guess(first).into_iter().collect(),
        ..cause
    })
}

fn leak(leaks: &CausedLeaks<'_>) -> Cause {
    let (cause, groups) = (leaks.cause.as_ref(), &leaks.groups[..]);
    let mut found = leak_of(CauseKind::Leak, headline::leak(cause, groups), groups, cause);
    let Some(LeakCause::KeptGraphs(graphs)) = cause else { return found };
    let mut frames = groups.iter().flat_map(|group| &group.site.python);
    found.frame = frames.find(|frame| frame.describe() == graphs.calling_line).cloned();
    (found.line, found.is_of_one_line) = (Some(graphs.calling_line.clone()), false);
    let besides = sum(groups, |group| group.bytes).saturating_sub(graphs.bytes);
    if besides > 0 {
        let sites = counted((groups.len() as u64).saturating_sub(graphs.sites), "more call site");
        found.explanation.push(format!("{} from {sites} are held together with them.", bytes(besides)));
    }
    found.held_by(&graphs.held_by)
}

fn leak_of(kind: CauseKind, sentence: String, groups: &[&LeakGroup], cause: Option<&LeakCause>) -> Cause {
    let first = groups[0];
    let found = Cause::new(kind, sentence, sum(groups, |group| group.bytes));
    let mut explanation = Vec::new();
    if cause.is_none() {
        let further = groups.iter().skip(1).take(TOLD_PER_KIND);
        explanation.extend(further.map(|group| {
            format!(
                "{} in {}, allocated at {}",
                bytes(group.bytes),
                counted(group.count, "block"),
                near(&group.site.line)
            )
        }));
    }
    let found = Cause {
        device: Some(first.device),
        pool: Some(first.pool),
        count: Some(sum(groups, |group| group.count)),
        growth: growth(groups),
        timestamp_ns: groups.iter().filter_map(|group| group.blocks.last()).map(|block| block.timestamp_ns).max(),
        explanation,
        advice: advice(first, cause).into_iter().map(str::to_owned).collect(),
        ..found.at(&first.site).held_by(&first.held_by)
    };
    Cause { is_of_one_line: found.is_of_one_line && groups.len() == 1, ..found }
}

/// How much more of some groups there is with every step, and the first and last step that they are from.
fn growth(groups: &[&LeakGroup]) -> Option<(u64, (u64, u64))> {
    let bytes_per_step = sum(groups, |group| group.bytes_per_step);
    let first = groups.iter().map(|group| group.step_range.0).min()?;
    let last = groups.iter().map(|group| group.step_range.1).max()?;
    (bytes_per_step > 0 && last > first).then_some((bytes_per_step, (first, last)))
}

/// Leaks that are too many to be told one by one.
fn further_leaks(leaks: &[CausedLeaks<'_>]) -> Option<Cause> {
    let groups: Vec<&LeakGroup> = leaks.iter().flat_map(|leaks| leaks.groups.iter().copied()).collect();
    let first = groups.first()?;
    let held = sum(&groups, |group| group.bytes);
    let sentence = format!(
        "Leaks: {} more with every step from {}, {} by now.",
        bytes(sum(&groups, |group| group.bytes_per_step)),
        counted(groups.len() as u64, "more call site"),
        bytes(held)
    );
    let count = Some(sum(&groups, |group| group.count));
    let cause = Cause::new(CauseKind::Leak, sentence, held);
    Some(Cause { device: Some(first.device), pool: Some(first.pool), count, growth: growth(&groups), ..cause })
}
