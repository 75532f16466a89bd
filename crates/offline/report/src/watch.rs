//! Watched blocks as text.

use std::time::Duration;

use msmemscope_analysis::names::Frame;
use msmemscope_analysis::watch::{Corruption, HuntReport, WatchReport, WatchedBlock};

use crate::layout::{fit, near, push_wrapped};
use crate::table::{Align, Table};
use crate::units::bytes;

/// Changes told at length.
const TOLD_CHANGES: usize = 5;
/// Ranges told per change.
const TOLD_SPANS: usize = 4;
/// Frames told per change.
const TOLD_FRAMES: usize = 6;
/// Blocks in the table.
const TOLD_BLOCKS: usize = 20;

/// The report on watched blocks; empty if nothing was watched.
pub fn watch(report: &WatchReport) -> String {
    let mut text = String::new();
    if report.is_empty() {
        return text;
    }
    let found = report.corruptions().count() as u64 + report.further_corruptions;
    match found {
        0 => text.push_str("Watched memory: no change that no operator declared.\n"),
        1 => text.push_str("Watched memory: 1 CHANGE THAT NO OPERATOR DECLARED.\n"),
        found => text.push_str(&format!("Watched memory: {found} CHANGES THAT NO OPERATOR DECLARED, the first:\n")),
    }
    let mut told: Vec<(Option<&WatchedBlock>, &Corruption)> = Vec::new();
    for block in &report.blocks {
        told.extend(block.corruptions.iter().map(|corruption| (Some(block), corruption)));
    }
    told.extend(report.hunt.iter().flat_map(|hunt| &hunt.corruptions).map(|corruption| (None, corruption)));
    told.sort_by_key(|(_, corruption)| corruption.timestamp_ns);
    for (block, corruption) in told.iter().take(TOLD_CHANGES) {
        push_corruption(&mut text, *block, corruption);
    }
    if found > TOLD_CHANGES as u64 {
        text.push_str(&format!(
            "\n  ... and {} more; later ones may follow from the first.\n",
            found - TOLD_CHANGES as u64
        ));
    }
    if !report.blocks.is_empty() {
        text.push('\n');
        push_blocks(&mut text, &report.blocks);
    }
    if let Some(hunt) = &report.hunt {
        text.push('\n');
        push_coverage(&mut text, hunt);
    }
    if report.has_kernels {
        text.push('\n');
        let note = "Looks were taken before and after each kernel; every launch waited for its stream, so nothing ran \
                    beside it there.";
        push_wrapped(&mut text, note, "");
    }
    if !report.is_blocking {
        text.push('\n');
        let warning = "ASCEND_LAUNCH_BLOCKING was not 1: the device was waited for around each operator, but work \
                       that other threads launched meanwhile may be taken for the operator's. Set it to 1 to be sure \
                       of the names.";
        push_wrapped(&mut text, warning, "");
    }
    text
}

/// The first change that no operator declared.
pub(crate) fn first(report: &WatchReport) -> Option<&Corruption> {
    report.corruptions().min_by_key(|corruption| corruption.timestamp_ns)
}

/// The same in one sentence.
pub(crate) fn sentence(report: &WatchReport) -> Option<String> {
    let first = first(report)?;
    let origin = first.origin.as_ref().map_or(String::new(), |origin| format!(" allocated at {}", near(&origin.line)));
    let line = match (first.line.is_empty(), first.is_by_operator) {
        (true, _) => String::new(),
        (false, true) => format!(" Called at {}.", near(&first.line)),
        (false, false) => format!(" Seen at {}.", near(&first.line)),
    };
    let more = match report.corruptions().count() as u64 + report.further_corruptions - 1 {
        0 => String::new(),
        1 => " Another change may follow from it.".to_owned(),
        more => format!(" {more} more changes may follow from it."),
    };
    let size = bytes(first.size_bytes);
    Some(format!("Corrupted memory: a block of {size}{origin} changed {}{line}{more}", moment(first)))
}

/// `torch._ops.` says nothing.
fn short(operator: &str) -> &str {
    operator.strip_prefix("torch._ops.").unwrap_or(operator)
}

fn push_corruption(text: &mut String, block: Option<&WatchedBlock>, corruption: &Corruption) {
    let what = match block {
        Some(block) => format!("'{}' output {}", short(&block.name), block.output_index),
        None => "A block".to_owned(),
    };
    let size = bytes(corruption.size_bytes);
    text.push('\n');
    push_wrapped(text, &format!("{what} ({size} at {:#x}) changed {}", corruption.address, moment(corruption)), "  ");
    let line = |text: &mut String, title: &str, content: &str| {
        let content = fit(content, crate::layout::WIDTH - 4 - title.len() - 1);
        text.push_str(&format!("    {title} {content}\n"));
    };
    line(text, "bytes:", &spans(corruption));
    if corruption.is_by_operator && !corruption.line.is_empty() {
        line(text, "called at:", &corruption.line);
    } else if !corruption.line.is_empty() {
        line(text, "seen at:", &corruption.line);
    }
    if let Some(origin) = &corruption.origin {
        line(text, "block from:", &origin.line);
    }
    if let Some(earlier) = &corruption.earlier {
        let size = bytes(earlier.size_bytes);
        let time = Duration::from_nanos(earlier.freed_before_ns);
        line(text, "memory before:", &format!("{size} at {:#x}, freed {time:.1?} earlier", earlier.address));
        line(text, "  from:", &earlier.site.line);
    }
    for neighbour in &corruption.neighbours {
        let place = if neighbour.is_below { "below" } else { "above" };
        let distance = match neighbour.distance_bytes {
            0 => "right".to_owned(),
            distance => bytes(distance),
        };
        let written = if neighbour.is_written { ", written by this operator" } else { "" };
        let size = bytes(neighbour.size_bytes);
        line(text, &format!("{distance} {place}:"), &format!("{size} at {:#x}{written}", neighbour.address));
        line(text, "  from:", &neighbour.site.line);
    }
    if let Some(guess) = guess(corruption) {
        push_wrapped(text, &guess, "    ");
    }
    // From the user's own line outwards: what libraries do inside says little.
    let described = corruption.python.iter().map(Frame::describe);
    let frames: Vec<String> = described.skip_while(|frame| *frame != corruption.line).take(TOLD_FRAMES).collect();
    for (index, frame) in frames.iter().enumerate() {
        line(text, if index == 0 { "stack:" } else { "      " }, frame);
    }
}

fn moment(corruption: &Corruption) -> String {
    let operator = short(&corruption.operator);
    let since = short(&corruption.since_operator);
    if corruption.is_by_operator {
        let call = corruption.call;
        return match corruption.launched_by.as_deref().map(short) {
            None => format!("during {operator} (call {call}), which does not declare to write it."),
            Some("") => format!("during the kernel {operator} (launch {call}), which no operator launched."),
            Some(launcher) => {
                format!(
                    "during the kernel {operator} (launch {call}) of {launcher}, which does not declare to write it."
                )
            }
        };
    }
    let seen = if operator.is_empty() { "at the last look".to_owned() } else { format!("before {operator}") };
    if corruption.operators_since == 0 {
        return match since.is_empty() {
            true => format!("{seen}, since watching began: no operator did it."),
            false => format!("between {since} and {operator}: no operator did it."),
        };
    }
    let from = if corruption.since_after { "after" } else { "before" };
    let to = if operator.is_empty() { "the last look" } else { operator };
    format!(
        "somewhere {from} {since} and up to {to} ({} operators in between, none of which declares to write it).",
        corruption.operators_since
    )
}

fn spans(corruption: &Corruption) -> String {
    let list: Vec<String> =
        corruption.spans.iter().take(TOLD_SPANS).map(|span| format!("{}-{}", span.start, span.end)).collect();
    let more = if corruption.spans.len() > TOLD_SPANS || corruption.spans_cut { " and more" } else { "" };
    let how = if corruption.is_exact { "" } else { "within " };
    format!("{how}{}{more} ({} in all)", list.join(", "), bytes(corruption.changed_bytes))
}

/// What probably happened.
pub(crate) fn guess(corruption: &Corruption) -> Option<String> {
    if !corruption.is_by_operator {
        let mut text = "Look for copies the program makes itself, work on other streams that memory did not wait \
                        for (record_stream), and other threads."
            .to_owned();
        if corruption.earlier.is_some() {
            text.push_str(" Work that was begun for the block that had this memory before may have ended too late.");
        }
        return (corruption.operators_since == 0).then_some(text);
    }
    let operator = short(&corruption.operator);
    let begins_at_start = corruption.spans.first().is_some_and(|span| span.start == 0);
    let below = corruption.neighbours.iter().find(|neighbour| neighbour.is_below && neighbour.is_written);
    match below {
        Some(_) if begins_at_start => {
            Some(format!("{operator} writes memory right below: it probably writes past its end."))
        }
        _ => {
            Some(format!("{operator} probably uses an address that is not its own any more, or computes a wrong one."))
        }
    }
}

fn push_blocks(text: &mut String, blocks: &[WatchedBlock]) {
    let columns = [
        ("looks", Align::Right),
        ("declared", Align::Right),
        ("undeclared", Align::Right),
        ("bytes", Align::Right),
        ("ended", Align::Left),
        ("watched", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for block in blocks.iter().take(TOLD_BLOCKS) {
        table.row([
            block.looks.to_string(),
            block.declared_changes.to_string(),
            block.corruptions.len().to_string(),
            bytes(block.size_bytes),
            block.end.as_ref().map_or("-", |end| end.reason).to_owned(),
            format!("{} output {}", short(&block.name), block.output_index),
        ]);
    }
    text.push_str(&table.render());
    if blocks.len() > TOLD_BLOCKS {
        text.push_str(&format!("  ... and {} more blocks\n", blocks.len() - TOLD_BLOCKS));
    }
}

fn push_coverage(text: &mut String, hunt: &HuntReport) {
    let share = match hunt.looks_due {
        0 => 100.0,
        due => (hunt.looks_taken as f64 * 100.0 / due as f64).min(100.0),
    };
    let owner = hunt.owner.as_ref().map_or_else(String::new, |owner| format!(" of '{owner}'"));
    let kernels = if hunt.kernels > 0 { format!(" and {} kernels", hunt.kernels) } else { String::new() };
    let mut line = format!(
        "Automatic hunt: {} operators{kernels}, {} of {} looks at live blocks{owner} taken ({share:.1} %), {} hashed.",
        hunt.operators,
        hunt.looks_taken,
        hunt.looks_due,
        bytes(hunt.hashed_bytes)
    );
    if !owner.is_empty() && hunt.looks_due == 0 {
        line.push_str(
            " NO BLOCK HAD THIS LABEL, so nothing was looked at. Labels come from msmemscope.describe, from framework \
             components, from modules (weight) and from optimizers (gradient, optimizer_state, after a step).",
        );
    }
    if hunt.looks_taken < hunt.looks_due {
        line.push_str(&format!(
            " Not covered: the rest; a change there shows up to {} operators late, or not at all. A larger SIZE in \
             --watch=auto:SIZE covers more.",
            hunt.longest_gap
        ));
    }
    if hunt.blind_operators > 0 {
        line.push_str(&format!(" Nothing could be looked at around {} operators.", hunt.blind_operators));
    }
    push_wrapped(text, &line, "");
}
