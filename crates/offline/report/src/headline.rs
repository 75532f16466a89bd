//! The answer in one to three sentences: what is wrong, how much, and at which line of code.
//!
//! Everything else in a report is evidence for these sentences, or what to do about them.

use msmemscope_analysis::Answers;
use msmemscope_analysis::causes::{LeakCause, cause};
use msmemscope_analysis::holders::HeldBy;
use msmemscope_analysis::leaks::{LeakGroup, LeakReport};
use msmemscope_analysis::moment::PoolMoment;
use msmemscope_analysis::out_of_memory::Failure;
use msmemscope_analysis::step_source::StepsFrom;
use msmemscope_analysis::unseen::UnseenPool;
use msmemscope_analysis::verdict::Verdict;
use msmemscope_event::Pool;

use crate::findings::verdict_words;
use crate::holders;
use crate::layout::near;
use crate::leaks::nothing_found;
use crate::moments::{short_operator, shown, step_words};
use crate::standing;
use crate::units::{bytes, counted};
use crate::watch;

/// The sentences, most important first.
pub fn headline(answers: &Answers) -> Vec<String> {
    let mut said = Vec::new();
    let decisive = answers.out_of_memory.as_ref().and_then(|report| report.decisive());
    let failure = decisive.filter(|failure| !failure.recovered);
    if let Some(failure) = failure {
        said.push(out_of_memory(failure, answers.leaks.as_ref()));
    }
    said.extend(answers.watch.as_ref().and_then(watch::sentence));
    let ran_out = failure.is_some();
    let standing = standing::causes(answers);
    if let Some(report) = &answers.leaks {
        // A run in which something swells has no leaks, but is not clean either.
        let is_news = report.suspects().next().is_some() || standing.is_empty();
        said.extend(leaks(report, &answers.unseen_pools, ran_out).filter(|_| is_news));
        said.extend(standing.into_iter().map(|cause| cause.sentence));
        said.extend(step_source(report, answers.steps_from));
    }
    if !ran_out {
        said.extend(peak(answers));
    }
    said
}

/// When and where memory ran out, why, and who held most of it.
pub fn out_of_memory(failure: &Failure, leaks: Option<&LeakReport>) -> String {
    let step = if failure.step > 0 { format!(" in step {}", failure.step) } else { String::new() };
    let is_told = |phase: &&str| matches!(*phase, "backward" | "optimizer") || failure.is_in_forward();
    let phase = failure.phase.filter(is_told);
    let phase = match (phase, failure.module.as_str()) {
        (None, "") => String::new(),
        (None, module) => format!(" (in {module})"),
        (Some(phase), "") => format!(" ({phase})"),
        (Some(phase), module) => format!(" ({phase}, in {module})"),
    };
    // The line that called for a backward pass says less than the operator that autograd has come to.
    let is_backward = failure.phase == Some("backward") && !failure.site.line.ends_with(&failure.site.operator);
    let operator = match is_backward {
        true => format!(" for {}", short_operator(&failure.site.operator)),
        false => String::new(),
    };
    let asked = match (failure.site.is_known(), failure.requested_bytes) {
        (_, 0) => String::new(),
        (true, requested) => format!("{} asked for {}{operator}. ", near(&failure.site.line), bytes(requested)),
        (false, requested) => format!("{} were asked for. ", bytes(requested)),
    };
    let reason = verdict_words(failure);
    let reason = if asked.is_empty() { reason.to_owned() } else { format!("Reason: {reason}") };
    let culprit = culprit(failure, leaks);
    let (words, holder) = (culprit.words, holders::sentence(culprit.held_by));
    format!("Out of memory on device {}{step}{phase}: {asked}{reason}{words}.{holder}", failure.device)
}

/// The blocks that a failure is put down to.
pub(crate) struct Culprit<'a> {
    /// What is said of them, after the reason; empty if none are.
    words: String,
    /// Who holds these blocks; where none are named, who holds most.
    pub(crate) held_by: &'a [HeldBy],
}

pub(crate) fn culprit<'a>(failure: &'a Failure, leaks: Option<&'a LeakReport>) -> Culprit<'a> {
    if failure.exceeds_card() {
        // Whatever is held: it would not fit an empty card.
        return Culprit { words: String::new(), held_by: &[] };
    }
    match failure.verdict {
        Verdict::Leak => {
            let mut leaks = leaks.iter().flat_map(|leaks| &leaks.leaks);
            if let Some(leak) = leaks.find(|leak| leak.device == failure.device) {
                return Culprit { words: leaked(failure, leak), held_by: &leak.held_by };
            }
        }
        Verdict::Growth => {
            if let Some(growing) = &failure.growing {
                let held = growing.block_bytes.saturating_mul(growing.blocks);
                let blocks = counted(growing.blocks, "block");
                let line = near(&growing.site.line);
                let words = format!("; {} are held by {blocks} allocated at {line}", bytes(held));
                return Culprit { words, held_by: &growing.held_by };
            }
        }
        Verdict::Driver | Verdict::OtherProcesses => {
            return Culprit { words: String::new(), held_by: &failure.held_by };
        }
        _ => {}
    }
    match failure.lines.first().filter(|line| line.site.is_known()) {
        Some(line) => {
            let (held, blocks) = (bytes(line.bytes), counted(line.blocks, "block"));
            let words = format!("; most, {held}, is held by {blocks} allocated at {}", near(&line.site.line));
            Culprit { words, held_by: &line.held_by }
        }
        None => Culprit { words: String::new(), held_by: &failure.held_by },
    }
}

/// What a leak held of the memory that ran out. Something else may have held more.
fn leaked(failure: &Failure, leak: &LeakGroup) -> String {
    let blocks = blocks_of(&leak.site.line);
    match failure.lines.iter().position(|line| line.site.line == leak.site.line) {
        Some(0) => format!("; most is held by {blocks}"),
        Some(place) => {
            let used = failure.pools.iter().map(|pool| pool.used_bytes).fold(0, u64::saturating_add);
            let whole = if used > 0 { used } else { failure.process_bytes };
            format!("; {} of {} are held by {blocks}", bytes(failure.lines[place].bytes), bytes(whole))
        }
        None => format!("; {} are held by {blocks}", bytes(leak.bytes)),
    }
}

/// What there is to say about leaks; `ran_out` if memory ran out, which makes it no news that nothing is known.
pub fn leaks(report: &LeakReport, unseen: &[UnseenPool], ran_out: bool) -> Option<String> {
    if !report.saw_memory && unseen.is_empty() {
        return None;
    }
    match (&report.leaks[..], &report.after_finalize[..], &report.possible_leaks[..]) {
        (leaks @ [_, ..], ..) => Some(leak(cause(report).as_ref(), &leaks.iter().collect::<Vec<_>>())),
        (_, kept @ [_, ..], _) => Some(after_finalize(&kept.iter().collect::<Vec<_>>())),
        (.., possible @ [_, ..]) => Some(possible_leak(&possible.iter().collect::<Vec<_>>())),
        _ => (!ran_out || report.steps > 0).then(|| nothing_found(report, unseen)),
    }
}

/// A leak of some call sites, at least one, all of which have this cause.
pub(crate) fn leak(cause: Option<&LeakCause>, groups: &[&LeakGroup]) -> String {
    let group = groups[0];
    if let Some(LeakCause::KeptGraphs(graphs)) = cause {
        let (first, last) = graphs.step_range;
        return format!(
            "Leak: the graphs made at {} in steps {first}-{last} are kept: {} more with every step, {} in {} of the forward \
             pass by now.{}",
            near(&graphs.calling_line),
            bytes(graphs.bytes_per_step),
            bytes(graphs.bytes),
            counted(graphs.sites, "call site"),
            holders::sentence(&graphs.held_by)
        );
    }
    if let Some(LeakCause::Driver { module, bytes_per_step, bytes: held, blocks }) = cause {
        return format!(
            "Leak: driver memory of {module}, outside of all pools: {} more with every step, {} by now, held by {} of {}; \
             most is allocated at {}.",
            bytes(*bytes_per_step),
            bytes(*held),
            counted(*blocks, "block"),
            steps(group),
            near(&group.site.line)
        );
    }
    let what = match cause {
        Some(LeakCause::Hook) => "a hook keeps what it sees: ",
        Some(LeakCause::Cache) => "a cache is never emptied: ",
        Some(LeakCause::Traceback) => "exceptions that are kept hold the variables of the functions they came from: ",
        Some(LeakCause::OptimizerStates) => "optimizers are made anew, and the states of the old ones kept: ",
        _ => "",
    };
    format!(
        "Leak: {what}{} more with every step, {}{}.{}",
        bytes(group.bytes_per_step),
        held_now(group, " by now"),
        others(groups),
        holders::sentence(&group.held_by)
    )
}

/// Driver memory of some call sites, at least one, that nobody freed.
pub(crate) fn after_finalize(groups: &[&LeakGroup]) -> String {
    let group = groups[0];
    format!(
        "Leak: {} of driver memory in {} never freed, allocated at {}{}.",
        bytes(group.bytes),
        counted(group.count, "block"),
        near(&group.site.line),
        others(groups)
    )
}

/// What may be a leak of some call sites, at least one.
pub(crate) fn possible_leak(groups: &[&LeakGroup]) -> String {
    let group = groups[0];
    format!(
        "Perhaps a leak: {}{}; more steps would show it.{}",
        held_now(group, ""),
        others(groups),
        holders::sentence(&group.held_by)
    )
}

/// Blocks by the line that allocated them. Who holds these blocks is another question.
fn blocks_of(line: &str) -> String {
    format!("blocks allocated at {}", near(line))
}

/// How much a group holds, and the line that allocated it if that is known. Who holds it is said after that; where no
/// variable is known, its blocks are all that holds memory.
fn held_now(group: &LeakGroup, now: &str) -> String {
    let (held, blocks, steps) = (bytes(group.bytes), counted(group.count, "block"), steps(group));
    let line = near(&group.site.line);
    match (group.site.is_known(), group.held_by.is_empty()) {
        (true, true) => format!("{held}{now}, held by {blocks} of {steps} allocated at {line}"),
        (true, false) => format!("{held} in {blocks} of {steps}{now}, allocated at {line}"),
        (false, _) => {
            let remedy = match group.pool {
                Pool::Mindspore => "mindspore.runtime.launch_blocking()",
                _ => "--call-stack=python,c",
            };
            format!("{held} in {blocks} of {steps}{now}, from a line that was not recorded ({remedy} names it)")
        }
    }
}

fn steps(group: &LeakGroup) -> String {
    match group.step_range {
        (first, last) if first == last => format!("step {first}"),
        (first, last) => format!("steps {first}-{last}"),
    }
}

fn others(groups: &[&LeakGroup]) -> String {
    let rest = groups.get(1..).unwrap_or_default();
    let more: u64 = rest.iter().map(|group| group.bytes).fold(0, u64::saturating_add);
    match rest.len() {
        0 => String::new(),
        1 => format!(", and {} by one more call site", bytes(more)),
        count => format!(", and {} by {count} more call sites", bytes(more)),
    }
}

/// Whose steps are meant, where the job did not say so itself.
fn step_source(report: &LeakReport, source: Option<StepsFrom>) -> Option<String> {
    let ends = match source? {
        StepsFrom::Marks | StepsFrom::Api => return None,
        StepsFrom::ProfilerStep => "with a step of the profiler",
        StepsFrom::FrameworkStep => "with a step of the framework",
        StepsFrom::OptimizerStep => "with a step of the optimizer",
        StepsFrom::ModuleCall => "with a call of the model",
        StepsFrom::OperatorPattern => "where the same operators come again",
        StepsFrom::OtherLoop => "with a turn of a loop",
    };
    (report.steps > 0).then(|| {
        format!(
            "Nobody marked steps, so each of the {} ends {ends}; msmemscope.step() chooses others.",
            counted(report.steps, "step")
        )
    })
}

/// The peak of the pool that held most, and the line that held most of it.
pub fn peak(answers: &Answers) -> Option<String> {
    let moments = shown(answers.moments.as_ref()?).filter(|moment| moment.moment == "peak");
    moments.max_by_key(|moment| moment.used_bytes).and_then(peak_of)
}

/// The peak of a pool, and the line that held most of it.
pub fn peak_of(moment: &PoolMoment) -> Option<String> {
    let line = moment.lines.first()?;
    let step = step_words(moment).map_or(String::new(), |words| format!(", {words}"));
    let share = line.bytes as f64 * 100.0 / moment.used_bytes.max(1) as f64;
    let most = match line.site.is_known() {
        true => format!("; {share:.0} % of it held by {}", blocks_of(&line.site.line)),
        false => String::new(),
    };
    let (held, pool) = (bytes(moment.used_bytes), moment.pool.title());
    Some(format!("Peak: {held} ({pool} on device {}{step}){most}.", moment.device))
}
