//! Owners, inefficiency, out of memory and fragmentation as text.

use std::cmp::Reverse;

use msmemscope_analysis::decompose::{OwnerReport, OwnerUse, tree};
use msmemscope_analysis::fragmentation::{FragmentationReport, PoolSample};
use msmemscope_analysis::gaps::{Gaps, SegmentUse};
use msmemscope_analysis::inefficient::{Finding, FindingKind, InefficientReport, PeakPotential, Tally};
use msmemscope_analysis::out_of_memory::{Failure, ListedBlock, OutOfMemoryReport, PoolThen};
use msmemscope_analysis::verdict::{Unusable, Verdict};
use msmemscope_event::Pool;

use crate::holders::push_holders;
use crate::layout::{fit, near, push_way, push_wrapped, width};
use crate::moments::{LISTED_LINES, line_table};
use crate::table::{Align, Table};
use crate::tree::{TreeStyle, percent, push_tree};
use crate::units::{bytes, counted};
use crate::verdict::reason;

/// Savings below a thousandth of a peak are not worth a sentence.
const SMALLEST_SHARE: f64 = 0.001;
/// Rows per table.
const LISTED_ROWS: usize = 15;

/// Owners of every pool as trees.
pub fn owners(report: &OwnerReport) -> String {
    let mut text = String::new();
    for pool in &report.pools {
        text.push_str(&format!(
            "{} on device {}: peak {}{}\n",
            pool.pool.title(),
            pool.device,
            bytes(pool.peak_bytes),
            if pool.peak_step > 0 { format!(" in step {}", pool.peak_step) } else { String::new() }
        ));
        let at_step = pool.at_step.as_ref().zip(report.step);
        push_owners(&mut text, "at the peak", &pool.at_peak, pool.peak_bytes);
        if let Some((owners, step)) = at_step {
            push_owners(&mut text, &format!("at the end of step {step}"), owners, total(owners));
        }
        push_owners(&mut text, "at the end", &pool.at_end, total(&pool.at_end));
        text.push('\n');
    }
    if report.pools.is_empty() {
        text.push_str("No memory was allocated.\n");
    }
    push_unplaced(&mut text, report.labels_beyond_the_third, "ignored: the block had three others");
    push_unplaced(&mut text, report.labels_without_block, "ignored: no block was alive at the address");
    text
}

fn push_unplaced(text: &mut String, labels: u64, why: &str) {
    if labels > 0 {
        let noun = if labels == 1 { "label was" } else { "labels were" };
        text.push_str(&format!("{labels} {noun} {why}.\n"));
    }
}

fn total(owners: &[OwnerUse]) -> u64 {
    owners.iter().map(|owner| owner.bytes).fold(0, u64::saturating_add)
}

fn push_owners(text: &mut String, title: &str, owners: &[OwnerUse], whole_bytes: u64) {
    if !owners.is_empty() {
        text.push_str(&format!("  {title}:\n"));
        push_tree(text, TreeStyle { name: "owner", whole_bytes, smallest_share: 0.0 }, &tree(owners));
    }
}

/// The report of inefficient use.
pub fn inefficient(report: &InefficientReport) -> String {
    if report.accesses == 0 {
        let mut text = String::new();
        let reason = "No accesses were recorded, so unused memory cannot be found. To find it, record with \
                      --analysis=inefficient; this needs the Python package (make wheel, then pip install dist/*.whl).";
        push_wrapped(&mut text, reason, "");
        return text;
    }
    let mut text = String::new();
    let mut table = Table::new(&[("kind", Align::Left), ("blocks", Align::Right), ("bytes", Align::Right)]);
    let mut row = |name: &str, tally: Tally| {
        table.row([name.to_owned(), tally.blocks.to_string(), bytes(tally.bytes)]);
    };
    row("early allocation", report.early_allocation);
    row("  of these, results kept for later", report.results_kept);
    row("late deallocation", report.late_deallocation);
    row("  of these, could share with an equal block", report.shareable);
    row("temporary idleness", report.temporary_idleness);
    row("never used", report.never_used);
    text.push_str(&format!("Inefficient memory over {} operators:\n{}\n", report.operators, table.render()));
    let is_worth_telling = |peak: &&PeakPotential| peak.saved_share() >= SMALLEST_SHARE;
    for peak in report.peaks.iter().filter(is_worth_telling) {
        let potential = format!(
            "Without early allocation and late deallocation the peak of {} on device {} would fall from {} to {} ({}).",
            peak.pool.title(),
            peak.device,
            bytes(peak.peak_bytes),
            bytes(peak.peak_if_fixed_bytes),
            percent(peak.peak_bytes - peak.peak_if_fixed_bytes, peak.peak_bytes)
        );
        push_wrapped(&mut text, &potential, "");
        text.push('\n');
    }
    if report.findings.is_empty() {
        text.push_str("Nothing worth changing was found.\n");
        return text;
    }
    let columns = [
        ("bytes x operators", Align::Right),
        ("kind", Align::Left),
        ("blocks", Align::Right),
        ("largest", Align::Right),
        ("allocated at", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for finding in report.findings.iter().take(LISTED_ROWS) {
        table.row([
            bytes(finding.wasted_byte_operators),
            short_kind(finding.kind).to_owned(),
            finding.count.to_string(),
            bytes(finding.largest_bytes),
            near(&finding.site.line).to_owned(),
        ]);
    }
    text.push_str(&format!("Largest waste first (bytes times operators that did not need them):\n{}", table.render()));
    let more = report.findings.len().saturating_sub(LISTED_ROWS) as u64 + report.findings_not_listed;
    if more > 0 {
        text.push_str(&format!("  ... and {more} more.\n"));
    }
    if let Some(first) = report.findings.first() {
        text.push_str(&advice(first));
    }
    text
}

fn short_kind(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::EarlyAllocation => "early",
        FindingKind::LateDeallocation => "late",
        FindingKind::TemporaryIdleness => "idle",
        FindingKind::NeverUsed => "unused",
    }
}

fn advice(finding: &Finding) -> String {
    let (used, doing) = match finding.kind {
        FindingKind::EarlyAllocation => ("first needed", "allocate it just before that"),
        FindingKind::LateDeallocation => ("last used", "drop it (del) right after that"),
        FindingKind::TemporaryIdleness => ("used again", "free, offload or recompute it in between"),
        FindingKind::NeverUsed => ("never used", "do not allocate it"),
    };
    let blocks = match finding.count {
        1 => format!("the block of {}", bytes(finding.largest_bytes)),
        count => format!("{count} blocks of up to {}", bytes(finding.largest_bytes)),
    };
    let mut text = format!("\nWhat to do first: {blocks}\n");
    text.push_str(&format!("  allocated at {}\n", fit(near(&finding.site.line), width() - 16)));
    if !finding.use_line.is_empty() {
        text.push_str(&format!("  {used} by {}\n", fit(near(&finding.use_line), width() - 18)));
    }
    text.push_str(&format!("  {doing}.\n"));
    if finding.could_share > 0 {
        let sharing = format!(
            "{} of {} could then share memory with one of equal size that is allocated meanwhile.",
            finding.could_share,
            counted(finding.count, "such block")
        );
        push_wrapped(&mut text, &sharing, "  ");
    }
    text
}

/// The report of out-of-memory failures.
pub fn out_of_memory(report: &OutOfMemoryReport) -> String {
    let Some(failure) = report.decisive() else { return "The driver never ran out of memory.\n".to_owned() };
    if failure.recovered {
        return recovered(report, failure);
    }
    let mut text = String::new();
    let reason = reason(failure);
    for line in &reason.explanation {
        push_wrapped(&mut text, line, "  ");
    }
    push_way(&mut text, "Asked for at, innermost first:", &failure.site);
    text.push_str("What to do:\n");
    for line in &reason.advice {
        push_wrapped(&mut text, line, "  ");
    }
    let held: u64 = failure.lines.iter().map(|line| line.bytes).fold(0, u64::saturating_add);
    if !failure.lines.is_empty() {
        let table = line_table(&failure.lines[..failure.lines.len().min(LISTED_LINES)], held);
        text.push_str(&format!("\nMemory then, by line:\n{}", table.render()));
    }
    push_holders(&mut text, failure.held_by.iter());
    push_pools(&mut text, failure);
    let mut table = Table::new(&[("owner", Align::Left), ("bytes", Align::Right), ("blocks", Align::Right)]);
    for owner in failure.owners.iter().take(LISTED_ROWS) {
        table.row([owner_words(&owner.owner).to_owned(), bytes(owner.bytes), owner.blocks.to_string()]);
    }
    if !failure.owners.is_empty() {
        text.push_str(&format!("\nWho held memory then:\n{}", table.render()));
    }
    push_blocks(&mut text, "Largest blocks then", &failure.largest);
    push_blocks(&mut text, "Latest blocks then", &failure.recent);
    if report.failures > 1 {
        text.push_str(&format!("\nMemory ran out {} times in all.\n", report.failures));
    }
    if report.limit_failures > 1 {
        text.push_str(&format!("\nThe limit of the job refused memory {} times in all.\n", report.limit_failures));
    }
    text
}

/// An owner for people: one that is no more than a pool has the pool's name.
pub(crate) fn owner_words(owner: &str) -> &str {
    let pool = Pool::ALL.iter().find(|pool| pool.event_type() == owner);
    pool.map_or(owner, |pool| pool.short_title())
}

/// Why memory ran out, in a few words.
pub(crate) fn verdict_words(failure: &Failure) -> String {
    let words = match failure.verdict {
        Verdict::Demand if failure.exceeds_card() => "the request is larger than the whole card",
        Verdict::Leak => "a leak",
        Verdict::Growth => "one line of code holds more and more memory",
        Verdict::Fragmentation => match failure.unusable() {
            Unusable::InPieces => "fragmentation",
            Unusable::Reserved | Unusable::OnOtherStream => "the memory that is unused belongs to another stream",
            Unusable::InPrivatePool => "the memory that is unused is kept for graphs or pools of the job's own",
            Unusable::Unsplit => "fragmentation: the memory that is unused may not be split",
            Unusable::InOtherClass if failure.is_for_small_blocks() => "fragmentation: only larger blocks find room",
            Unusable::InOtherClass => "fragmentation: only small blocks find room",
        },
        Verdict::OtherProcesses => "other processes on the card",
        Verdict::Demand => "the job needs more memory than there is",
        Verdict::OwnLimit => match failure.limit_bytes {
            Some(limit_bytes) => return format!("a limit that the job has set itself, {}", bytes(limit_bytes)),
            None => "a limit that the job has set itself",
        },
        Verdict::Driver => "the driver refused although enough memory was free",
    };
    words.to_owned()
}

/// A failure after which the job got its memory is worth a note, no more.
fn recovered(report: &OutOfMemoryReport, failure: &Failure) -> String {
    let mut text = String::new();
    push_wrapped(&mut text, &recovery(report, failure), "");
    let segments: u64 = failure.pools.iter().map(|pool| pool.gaps.free_segments).sum();
    if segments > 0 {
        let free: u64 = failure.pools.iter().map(|pool| pool.gaps.free_segment_bytes).fold(0, u64::saturating_add);
        let noun = if segments == 1 { "segment" } else { "segments" };
        let cache = format!(
            "The framework held {segments} {noun} that {} entirely free ({}), which it can give back. If this happens \
             in every step it costs time.",
            if segments == 1 { "was" } else { "were" },
            bytes(free)
        );
        push_wrapped(&mut text, &cache, "  ");
    }
    text.push_str(&format!("  Asked for at {}\n", fit(near(&failure.site.line), width() - 15)));
    text
}

/// That there was such a failure.
pub(crate) fn recovery(report: &OutOfMemoryReport, failure: &Failure) -> String {
    let times = match report.failures {
        1 => String::new(),
        count => format!(" for the last of {count} times"),
    };
    format!(
        "Note: the driver refused {} on device {}{times}, but a later attempt got its memory, so the job went on.",
        bytes(failure.requested_bytes),
        failure.device
    )
}

/// The largest gap in what a pool holds, as far as there are blocks between which gaps can be.
fn gap_cell(gaps: Gaps, used_bytes: u64, idle_bytes: u64) -> String {
    match (used_bytes, gaps.segments) {
        (_, 0) if idle_bytes == 0 => bytes(0),
        (0, _) => "all free".to_owned(),
        (_, 0) => "unknown".to_owned(),
        _ => bytes(gaps.largest_gap_bytes),
    }
}

fn push_pools(text: &mut String, failure: &Failure) {
    if failure.pools.is_empty() {
        return;
    }
    let columns = [
        ("pool", Align::Left),
        ("held", Align::Right),
        ("in use", Align::Right),
        ("unused", Align::Right),
        ("largest gap", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for pool in &failure.pools {
        table.row([
            pool.pool.title().to_owned(),
            bytes(pool.reserved_bytes),
            bytes(pool.used_bytes),
            bytes(pool.idle_bytes()),
            match pool.classes.iter().map(|class| class.segments.largest_gap_bytes).max() {
                Some(largest_gap_bytes) => bytes(largest_gap_bytes),
                None => gap_cell(pool.gaps, pool.used_bytes, pool.idle_bytes()),
            },
        ]);
        for (name, kind) in kinds_of_segments(pool) {
            table.row([
                format!("  {name}"),
                bytes(kind.segment_bytes),
                bytes(kind.segment_bytes.saturating_sub(kind.gap_bytes)),
                bytes(kind.gap_bytes),
                bytes(kind.largest_gap_bytes),
            ]);
        }
    }
    text.push_str(&format!("\nFramework pools then:\n{}", table.render()));
}

/// The segments of PyTorch's pool by who may use what is free in them, if they differ in that.
fn kinds_of_segments(pool: &PoolThen) -> Vec<(String, SegmentUse)> {
    let size = |is_small: bool| if is_small { "for blocks up to 1 MiB" } else { "for larger blocks" };
    let mut kinds: Vec<(String, SegmentUse)> = Vec::new();
    for class in &pool.classes {
        let of = match (class.is_private, class.is_of_another_stream) {
            (true, _) => ", kept for graphs or own pools",
            (false, true) => ", another stream",
            (false, false) => "",
        };
        let grows = if class.is_expandable { ", expandable" } else { "" };
        kinds.push((format!("{}{of}{grows}", size(class.is_for_small_blocks)), class.segments));
    }
    kinds.sort_by_key(|(_, kind)| Reverse(kind.gap_bytes));
    if pool.classes.is_empty() && pool.pool == Pool::PytorchCaching {
        kinds.extend([(size(true).to_owned(), pool.gaps.small), (size(false).to_owned(), pool.gaps.large)]);
        kinds.retain(|(_, kind)| kind.segments > 0);
    }
    if kinds.len() > 1 { kinds } else { Vec::new() }
}

fn push_blocks(text: &mut String, title: &str, blocks: &[ListedBlock]) {
    if blocks.is_empty() {
        return;
    }
    let columns = [
        ("bytes", Align::Right),
        ("pool", Align::Left),
        ("address", Align::Right),
        ("step", Align::Right),
        ("allocated at", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for block in blocks {
        table.row([
            bytes(block.size_bytes),
            block.pool.short_title().to_owned(),
            format!("{:#x}", block.address),
            block.step.to_string(),
            near(&block.site.line).to_owned(),
        ]);
    }
    text.push_str(&format!("\n{title}:\n{}", table.render()));
}

/// The report of fragmentation.
pub fn fragmentation(report: &FragmentationReport) -> String {
    if report.pools.is_empty() {
        return "No pool said how much memory it holds, so fragmentation is not known.\n".to_owned();
    }
    let mut text = String::new();
    for pool in &report.pools {
        text.push_str(&format!("{} on device {}:\n", pool.pool.title(), pool.device));
        let columns = [
            ("moment", Align::Left),
            ("step", Align::Right),
            ("held", Align::Right),
            ("in use", Align::Right),
            ("unused", Align::Right),
            ("share", Align::Right),
            ("largest gap", Align::Right),
        ];
        let mut table = Table::new(&columns);
        let mut row = |name: &str, sample: &PoolSample| {
            table.row([
                name.to_owned(),
                match pool.after_last_step {
                    Some(number) if number == sample.step => format!("after {}", number - 1),
                    _ => sample.step.to_string(),
                },
                bytes(sample.reserved_bytes),
                bytes(sample.used_bytes),
                bytes(sample.idle_bytes()),
                format!("{:.1} %", sample.idle_ratio() * 100.0),
                sample.gaps.map_or(String::new(), |gaps| gap_cell(gaps, sample.used_bytes, sample.idle_bytes())),
            ]);
        };
        row("most held", &pool.at_peak_reserved);
        row("most in use", &pool.at_peak_used);
        row("most unused", &pool.most_idle);
        row("end", &pool.at_end);
        text.push_str(&table.render());
        let (held, needed) = (pool.at_peak_reserved.reserved_bytes, pool.at_peak_used.used_bytes);
        // Rows that do not tell all of what a pool holds tell nothing of its overhead.
        if let Some(avoidable) = held.checked_sub(needed) {
            let overhead = format!(
                "The pool held at most {}, its blocks never needed more than {}: {} ({}) is overhead of the pool.",
                bytes(held),
                bytes(needed),
                bytes(avoidable),
                percent(avoidable, held)
            );
            push_wrapped(&mut text, &overhead, "  ");
        }
        text.push('\n');
    }
    text
}
