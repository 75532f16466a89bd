//! Leak reports as text. The first part keeps the wording scripts of users look for.

use msmemscope_event::Device;

use super::{Align, Style, Table, bytes, general_number, megabytes, signed_bytes};
use crate::device_text::pool_name_in_reports;
use crate::fluctuation::{PoolFluctuation, Swing};
use crate::leaks::{DriverVerdict, LEAK_STEPS, LeakGroup, LeakReport, LeakedBlock, PoolGrowth};
use crate::marks::{MarkLeakReport, MarkOutcome};
use crate::unseen::UnseenPool;

/// Blocks listed one by one per device.
const LISTED_BLOCKS: usize = 20;
/// Call sites listed per table.
const LISTED_SITES: usize = 10;
/// Steps shown at the begin and at the end of a growth table.
const LISTED_STEPS: usize = 4;

/// Longest name of a mark in a sentence.
const LONGEST_NAME: usize = 40;

/// The report of leaks over steps, of a process some of whose pools may not have been seen. Nothing is said about a
/// process without memory.
pub fn leaks(report: &LeakReport, unseen: &[UnseenPool], style: Style) -> String {
    let mut text = String::new();
    if !report.saw_memory && unseen.is_empty() {
        return text;
    }
    let mut devices: Vec<Device> = report.suspects().map(|group| group.device).collect();
    devices.sort_unstable();
    devices.dedup();
    for device in &devices {
        push_device(&mut text, report, *device, style);
    }
    if devices.is_empty() {
        super::push_wrapped(&mut text, &nothing_found(report, unseen), "");
        text.push('\n');
    }
    if style == Style::Classic {
        return text;
    }
    push_sites(&mut text, "Call sites that keep more memory with every step:", &report.leaks, true);
    let possible = "Call sites that kept memory in two steps (perhaps a leak; more steps would show it):";
    push_sites(&mut text, possible, &report.possible_leaks, true);
    push_sites(&mut text, "Driver memory alive after aclFinalize:", &report.after_finalize, false);
    let once = "Kept once and not freed (no leak as far as the steps show):";
    push_sites(&mut text, once, &report.retained_once, false);
    for growth in report.growth.iter().filter(|growth| growth.is_growing()) {
        push_growth(&mut text, growth);
    }
    push_advice(&mut text, report);
    text
}

fn nothing_found(report: &LeakReport, unseen: &[UnseenPool]) -> String {
    const MARK_STEPS: &str = "mark steps with mstx ranges named \"step start\" or with step() of the Python package";
    let (place, but) = match unseen.first() {
        Some(unseen) => (" in driver memory", format!("; {} was not seen", unseen.name())),
        None => ("", String::new()),
    };
    let steps = super::counted(report.steps, "step");
    match (report.steps, report.driver) {
        (0, DriverVerdict::NotKnown) => {
            format!(
                "No steps were marked, so leaks cannot be told from memory that is still needed{but}; {MARK_STEPS}."
            )
        }
        (0, _) => {
            let held = match report.driver_bytes_of_pools {
                0 => "the driver got all of its memory back".to_owned(),
                bytes => format!("what is left at the end, {}, belongs to framework pools", super::bytes(bytes)),
            };
            format!("No leaks found in driver memory: {held}{but}. To find leaks in framework pools, {MARK_STEPS}.")
        }
        (number, _) if report.too_few_steps() => {
            let doubt = match report.few_steps.iter().find(|few| few.ended < number) {
                Some(few) => format!(
                    "No leaks found{place} in {steps}{but}, but those that device {} has ended, {}, are too few",
                    few.device, few.ended
                ),
                None if number == 1 => format!("No leaks found{place}{but}, but 1 step is too few"),
                None => format!("No leaks found{place}{but}, but {steps} are too few"),
            };
            format!("{doubt} to be sure: a leak shows when {LEAK_STEPS} steps after the first have left memory behind.")
        }
        _ => format!("No leaks found{place} in {steps}{but}."),
    }
}

/// The part with one line per block.
fn push_device(text: &mut String, report: &LeakReport, device: Device, style: Style) {
    let groups = || report.suspects().filter(|group| group.device == device);
    let mut blocks: Vec<(&LeakGroup, &LeakedBlock)> =
        groups().flat_map(|group| group.blocks.iter().map(move |block| (group, block))).collect();
    blocks.sort_by_key(|(_, block)| (block.step, block.allocation_id));
    text.push_str(&format!("====== ERROR: Detected memory leaks on device {device} ======\n"));
    for (group, block) in blocks.iter().take(LISTED_BLOCKS) {
        text.push_str(&format!(
            "Direct {} leak of {:.6} Mb(s) at 0x{:x} in kernel_{} at step {}.\n",
            pool_name_in_reports(group.pool, style),
            megabytes(block.size_bytes),
            block.address,
            block.kernel_index,
            block.step
        ));
    }
    let count: u64 = groups().map(|group| group.count).sum();
    if count > LISTED_BLOCKS as u64 {
        text.push_str(&format!("... and {} more.\n", count - LISTED_BLOCKS as u64));
    }
    let total: u64 = groups().map(|group| group.bytes).fold(0, u64::saturating_add);
    text.push_str(&format!(
        "====== SUMMARY: {} Mb(s) leaked in {count} allocation(s) ======\n",
        general_number(megabytes(total))
    ));
    let possible = report.possible_leaks.iter().filter(|group| group.device == device);
    let possible: u64 = possible.map(|group| group.count).sum();
    if possible > 0 {
        let which = if possible == count { "These allocations" } else { &format!("{possible} of these allocations") };
        let doubt = format!(
            "{which} may be kept on purpose: call sites that kept memory in two steps only. A leak is certain from \
             {LEAK_STEPS} steps on."
        );
        super::push_wrapped(text, &doubt, "");
    }
    text.push('\n');
}

fn push_sites(text: &mut String, title: &str, groups: &[LeakGroup], is_growth: bool) {
    let Some(first) = groups.first() else { return };
    let columns = [
        ("per step", Align::Right),
        ("total", Align::Right),
        ("blocks", Align::Right),
        ("steps", Align::Right),
        ("device", Align::Right),
        ("allocated at", Align::Left),
    ];
    // What does not grow has no growth per step.
    let skipped = usize::from(!is_growth);
    let mut table = Table::new(&columns[skipped..]);
    for group in groups.iter().take(LISTED_SITES) {
        let steps = match group.step_range {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        let cells = [
            bytes(group.bytes_per_step),
            bytes(group.bytes),
            group.count.to_string(),
            steps,
            format!("{} {}", group.device, group.pool.event_type()),
            group.site.line.clone(),
        ];
        table.row(cells.into_iter().skip(skipped));
    }
    super::push_wrapped(text, title, "");
    text.push_str(&table.render());
    if groups.len() > LISTED_SITES {
        text.push_str(&format!("  ... and {} more call sites.\n", groups.len() - LISTED_SITES));
    }
    push_first(text, first);
    let freed: u64 = groups.iter().map(|group| group.freed_at_the_end).sum();
    if freed > 0 {
        let were = if freed == 1 { "was" } else { "were" };
        text.push_str(&format!("  {freed} of these blocks {were} freed only after the last step.\n"));
    }
    text.push('\n');
}

/// How the program came to the largest group.
fn push_first(text: &mut String, group: &LeakGroup) {
    if !super::push_way(text, "  The way to the first one, innermost first:", &group.site) {
        return;
    }
    for (title, value) in [("operator", &group.site.operator), ("owner", &group.site.owner)] {
        if !value.is_empty() {
            text.push_str(&format!("    {title}: {}\n", super::fit(value, super::WIDTH - 15)));
        }
    }
}

fn push_growth(text: &mut String, growth: &PoolGrowth) {
    let average = growth.bytes_per_step().unwrap_or(0.0);
    let heading = format!(
        "{} on device {} at step ends ({} per step since step {}):",
        growth.pool.title(),
        growth.device,
        signed_bytes(average as i64),
        growth.settled().first().map_or(0, |end| end.step)
    );
    super::push_wrapped(text, &heading, "");
    let mut table = Table::new(&[("step", Align::Right), ("in use", Align::Right), ("change", Align::Right)]);
    let ends = &growth.step_ends;
    let mut previous = None;
    for (position, end) in ends.iter().enumerate() {
        let shown = position < LISTED_STEPS || position + LISTED_STEPS >= ends.len();
        if shown {
            let change =
                previous.map_or(String::new(), |before: u64| signed_bytes(end.used_bytes as i64 - before as i64));
            table.row([end.step.to_string(), bytes(end.used_bytes), change]);
        } else if position == LISTED_STEPS {
            table.row(["...".to_owned()]);
        }
        previous = Some(end.used_bytes);
    }
    text.push_str(&table.render());
    text.push('\n');
}

fn push_advice(text: &mut String, report: &LeakReport) {
    let Some(first) = report.leaks.first().or(report.possible_leaks.first()) else { return };
    text.push_str("What to do:\n");
    if first.site.python.is_empty() && first.site.native.is_empty() {
        text.push_str("  Run again with --call-stack=python,c to see the line of code that allocates.\n");
    } else {
        text.push_str(&format!("  Look at {}\n", super::fit(&first.site.line, super::WIDTH - 10)));
    }
    let usual = "Look for what keeps its result: a list or attribute that only grows, a closure, or a loss kept with \
                 its graph (append loss.item() or loss.detach() instead).";
    super::push_wrapped(text, usual, "  ");
}

/// The report of fluctuation within steps.
pub fn fluctuation(pools: &[PoolFluctuation], style: Style) -> String {
    let mut text = String::new();
    let cell = |text: &str| format!("{text:<25}");
    for pool in pools.iter().filter(|pool| pool.steps > 0) {
        let name = pool_name_in_reports(pool.pool, style);
        text.push_str(&format!("======= {name} Gap Analysis of Device {} =======\n", pool.device));
        let header = ["MinAlloc/MaxAlloc(%)", "MinAllocMem(MB)", "StepId"].map(cell).concat();
        text.push_str(&format!("\t{}\n", header.trim_end()));
        for (title, swing) in [("MinGap", pool.smallest), ("MaxGap", pool.largest)] {
            let Some(Swing { ratio, minimum_bytes, step, .. }) = swing else { continue };
            let cells = [format!("{:.4}", ratio * 100.0), format!("{:.4}", megabytes(minimum_bytes)), step.to_string()];
            let cells = cells.iter().map(|text| cell(text)).collect::<String>();
            text.push_str(&format!("{title}\t{}\n", cells.trim_end()));
        }
    }
    text
}

/// The report of leaks between three marks.
pub fn marks(report: &MarkLeakReport) -> String {
    let mut text = String::new();
    let name = super::fit_middle(&format!("{:?}", report.message), LONGEST_NAME);
    for device in &report.devices {
        let id = device.device;
        text.push_str(&format!("INFO: Starting to analyze data for device {id}...\n"));
        match device.outcome {
            MarkOutcome::Complete => {}
            MarkOutcome::TooFewMarks => {
                let found = format!(
                    "ERROR: device {id} has {} named {name}; three are needed.",
                    super::counted(device.marks, "mark")
                );
                super::push_wrapped(&mut text, &found, "");
            }
            MarkOutcome::IndexOutOfRange => {
                let found = format!(
                    "ERROR: device {id} has {} marks named {name}; three are needed from index {} on.",
                    device.marks, report.start_index
                );
                super::push_wrapped(&mut text, &found, "");
            }
        }
    }
    if report.devices.is_empty() {
        text.push_str("ERROR: no device memory was recorded.\n");
    }
    if !report.is_answered() {
        return text;
    }
    text.push_str("\nLeak Analysis Results for the Custom Range:\n");
    for device in report.devices.iter().filter(|device| device.outcome == MarkOutcome::Complete) {
        let id = device.device;
        if device.kept_by_pools > 0 {
            let kept = format!(
                "INFO: not listed: {} with {} that framework pools keep for later.",
                super::counted(device.kept_by_pools, "driver block"),
                bytes(device.kept_by_pools_bytes)
            );
            super::push_wrapped(&mut text, &kept, "");
        }
        if device.leaks.is_empty() {
            text.push_str(&format!("No hal memory leaks detected on device {id}.\n"));
            continue;
        }
        text.push_str(&format!("====== ERROR: Detected memory leaks on device {id} ======\n"));
        for leak in &device.leaks {
            text.push_str(&format!(
                "Direct {} leak of {} Mb(s) at 0x{:016x} in Index {}.\n",
                pool_name_in_reports(leak.pool, Style::Full),
                megabytes(leak.size_bytes),
                leak.address,
                leak.index
            ));
            if !leak.site.python.is_empty() || !leak.site.native.is_empty() {
                text.push_str(&format!("    {}\n", super::fit(&leak.site.line, super::WIDTH - 4)));
            }
        }
    }
    text
}
