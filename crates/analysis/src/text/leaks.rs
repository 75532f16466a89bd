//! Leak reports as text. The first part keeps the wording scripts of users look for.

use msmemscope_event::Device;

use super::{Align, Table, bytes, general_number, megabytes, signed_bytes};
use crate::device_text::pool_name_in_reports;
use crate::fluctuation::{PoolFluctuation, Swing};
use crate::leaks::{DriverVerdict, LEAK_STEPS, LeakGroup, LeakReport, LeakedBlock, PoolGrowth};
use crate::marks::{MarkLeakReport, MarkOutcome};

/// Blocks listed one by one per device.
const LISTED_BLOCKS: usize = 20;
/// Call sites listed per table.
const LISTED_SITES: usize = 10;
/// Steps shown at the begin and at the end of a growth table.
const LISTED_STEPS: usize = 4;

/// Longest name of a mark in a sentence.
const LONGEST_NAME: usize = 40;

/// The report of leaks over steps.
pub fn leaks(report: &LeakReport) -> String {
    let mut text = String::new();
    let mut devices: Vec<Device> =
        report.leaks.iter().chain(&report.after_finalize).map(|group| group.device).collect();
    devices.sort_unstable();
    devices.dedup();
    for device in devices {
        push_device(&mut text, report, device);
    }
    if report.leaks.is_empty() && report.after_finalize.is_empty() {
        super::push_wrapped(&mut text, &nothing_found(report), "");
        text.push('\n');
    }
    push_sites(&mut text, "Call sites that keep more memory with every step:", &report.leaks);
    push_sites(&mut text, "Driver memory alive after aclFinalize:", &report.after_finalize);
    push_sites(&mut text, "Kept once and not freed (no leak as far as the steps tell):", &report.retained_once);
    for growth in report.growth.iter().filter(|growth| is_growing(growth)) {
        push_growth(&mut text, growth);
    }
    push_advice(&mut text, report);
    text
}

fn nothing_found(report: &LeakReport) -> String {
    match (report.steps, report.driver) {
        (0, DriverVerdict::NotKnown) => {
            "No steps were marked and aclFinalize was not seen, so leaks cannot be told from \
                                         memory that is still needed. Mark steps with mstx ranges named \"step start\" \
                                         or with msmemscope.step()."
                .to_owned()
        }
        (0, _) => "No driver memory is alive after aclFinalize. Mark steps with mstx ranges named \"step start\" or \
                   with msmemscope.step() to find leaks in framework pools."
            .to_owned(),
        (steps, _) if report.too_few_steps() => {
            let doubt = match report.few_steps.iter().find(|few| few.ended < steps) {
                Some(few) => format!(
                    "No leaks found in {steps} step(s), but those that device {} has ended, {}, are too few",
                    few.device, few.ended
                ),
                None => format!("No leaks found, but {steps} step(s) are too few"),
            };
            format!("{doubt} to be sure: a leak shows when {LEAK_STEPS} steps after the first have left memory behind.")
        }
        (steps, _) => format!("No leaks found in {steps} steps."),
    }
}

/// The part with one line per block.
fn push_device(text: &mut String, report: &LeakReport, device: Device) {
    let groups = || report.leaks.iter().chain(&report.after_finalize).filter(|group| group.device == device);
    let mut blocks: Vec<(&LeakGroup, &LeakedBlock)> =
        groups().flat_map(|group| group.blocks.iter().map(move |block| (group, block))).collect();
    blocks.sort_by_key(|(_, block)| (block.step, block.allocation_id));
    text.push_str(&format!("====== ERROR: Detected memory leaks on device {device} ======\n"));
    for (group, block) in blocks.iter().take(LISTED_BLOCKS) {
        text.push_str(&format!(
            "Direct {} leak of {:.6} Mb(s) at 0x{:x} in kernel_{} at step {}.\n",
            pool_name_in_reports(group.pool),
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
        "====== SUMMARY: {} Mb(s) leaked in {count} allocation(s) ======\n\n",
        general_number(megabytes(total))
    ));
}

fn push_sites(text: &mut String, title: &str, groups: &[LeakGroup]) {
    let Some(first) = groups.first() else { return };
    let columns = [
        ("per step", Align::Right),
        ("total", Align::Right),
        ("blocks", Align::Right),
        ("steps", Align::Right),
        ("device", Align::Right),
        ("allocated at", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for group in groups.iter().take(LISTED_SITES) {
        let steps = match group.step_range {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        table.row([
            bytes(group.bytes_per_step),
            bytes(group.bytes),
            group.count.to_string(),
            steps,
            format!("{} {}", group.device, group.pool.event_type()),
            group.site.line.clone(),
        ]);
    }
    text.push_str(&format!("{title}\n{}", table.render()));
    if groups.len() > LISTED_SITES {
        text.push_str(&format!("  ... and {} more call sites.\n", groups.len() - LISTED_SITES));
    }
    push_first(text, first);
    let freed: u64 = groups.iter().map(|group| group.freed_at_the_end).sum();
    if freed > 0 {
        text.push_str(&format!("  {freed} of these blocks were freed only after the last step.\n"));
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

fn is_growing(growth: &PoolGrowth) -> bool {
    growth.bytes_per_step().is_some_and(|bytes| bytes >= 1.0)
}

fn push_growth(text: &mut String, growth: &PoolGrowth) {
    let average = growth.bytes_per_step().unwrap_or(0.0);
    let heading = format!(
        "{} on device {} in use at step ends ({} per step on average):",
        growth.pool.title(),
        growth.device,
        signed_bytes(average as i64)
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
    let Some(first) = report.leaks.first() else { return };
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
pub fn fluctuation(pools: &[PoolFluctuation]) -> String {
    let mut text = String::new();
    let cell = |text: &str| format!("{text:<25}");
    for pool in pools.iter().filter(|pool| pool.steps > 0) {
        let name = pool_name_in_reports(pool.pool);
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
                let noun = if device.marks == 1 { "mark" } else { "marks" };
                let found = format!("ERROR: device {id} has {} {noun} named {name}; three are needed.", device.marks);
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
                "INFO: {} driver block(s) with {} that framework pools keep for later are not listed.",
                device.kept_by_pools,
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
                pool_name_in_reports(leak.pool),
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
