//! Leak reports as text. The first part keeps the wording scripts of users look for.

use msmemscope_analysis::causes::{LeakCause, cause};
use msmemscope_analysis::fluctuation::{PoolFluctuation, Swing};
use msmemscope_analysis::leaks::{DriverVerdict, LEAK_STEPS, LeakGroup, LeakReport, LeakedBlock, PoolGrowth};
use msmemscope_analysis::marks::{MarkLeakReport, MarkOutcome};
use msmemscope_analysis::unseen::UnseenPool;
use msmemscope_event::{Device, Pool};

use crate::holders::push_holders;
use crate::layout::{fit, fit_middle, near, push_way, push_wrapped, width};
use crate::moments::{LINES_OF_MINDSPORE, short_operator};
use crate::table::{Align, Table};
use crate::units::{bytes, counted, general_number, megabytes, signed_bytes};

/// How leaks are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// With call sites, growth and what to do.
    #[default]
    Full,
    /// Only the lines that earlier versions printed, in the words of their documents.
    Classic,
    /// The same with the names that pools had in the programs themselves, for logs.
    Log,
}

/// What a pool is called in leak reports.
fn pool_name_in_reports(pool: Pool, style: Style) -> &'static str {
    match pool {
        Pool::PytorchCaching if style == Style::Classic => "Pytorch memory pool",
        Pool::Hal => "Hal memory",
        Pool::PytorchCaching => "Pytorch Caching memory pool",
        Pool::PytorchWorkspace => "Pytorch Workspace memory pool",
        Pool::Mindspore => "Mindspore memory pool",
        Pool::Atb => "ATB memory pool",
        Pool::HostPinned => "Host pinned memory",
        Pool::HostTensor => "Host memory",
        Pool::Unknown => "unknown pool",
    }
}

/// Call sites listed per table.
const LISTED_SITES: usize = 5;
/// Steps shown at the start and at the end of a growth table.
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
    if style != Style::Full {
        for device in &devices {
            push_device(&mut text, report, *device, style);
        }
        if devices.is_empty() {
            push_wrapped(&mut text, &nothing_found(report, unseen), "");
            text.push('\n');
        }
        return text;
    }
    push_sites(&mut text, "Call sites that hold more memory with every step:", &report.leaks, true);
    let possible = "Call sites that kept memory in two steps:";
    push_sites(&mut text, possible, &report.possible_leaks, true);
    push_sites(&mut text, "Driver memory that was never freed:", &report.after_finalize, false);
    push_advice(&mut text, report);
    let growing = report.leaks.iter().chain(&report.possible_leaks);
    if push_holders(&mut text, growing.flat_map(|group| &group.held_by)) {
        text.push('\n');
    }
    if let Some(first) = report.suspects().next() {
        push_first(&mut text, first);
    }
    let once = "Kept and not freed (no leak as far as the steps show):";
    push_sites(&mut text, once, &report.retained_once, false);
    for growth in report.growth.iter().filter(|growth| growth.is_growing()) {
        push_growth(&mut text, growth);
    }
    text
}

/// What to say where no leak was found.
pub(crate) fn nothing_found(report: &LeakReport, unseen: &[UnseenPool]) -> String {
    const MARK_STEPS: &str = "mark steps with mstx ranges named \"step start\" or with step() of the Python package";
    let (place, but) = match unseen.first() {
        Some(unseen) => (" in driver memory", format!("; {} was not seen", unseen.name())),
        None => ("", String::new()),
    };
    let steps = counted(report.steps, "step");
    match (report.steps, report.driver) {
        (0, _) if report.is_snapshot => {
            "A snapshot shows one moment, so it is not known what leaks and what is still needed; a recording of several \
             steps tells (msmemscope -- python <script>)."
                .to_owned()
        }
        (0, DriverVerdict::NotKnown) => {
            format!("No steps were seen, so it is not known what leaks and what is still needed{but}; {MARK_STEPS}.")
        }
        (0, _) if !report.saw_framework_pool && unseen.is_empty() => {
            format!("No leaks found: the driver got all of its memory back{but}.")
        }
        (0, _) => {
            format!("No leaks found in driver memory{but}. No steps were seen; to judge framework pools, {MARK_STEPS}.")
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

/// The part with one line per block: scripts may count them, so that all that are known are there.
fn push_device(text: &mut String, report: &LeakReport, device: Device, style: Style) {
    let groups = || report.suspects().filter(|group| group.device == device);
    let mut blocks: Vec<(&LeakGroup, &LeakedBlock)> =
        groups().flat_map(|group| group.blocks.iter().map(move |block| (group, block))).collect();
    blocks.sort_by_key(|(_, block)| (block.step, block.allocation_id));
    text.push_str(&format!("====== ERROR: Detected memory leaks on device {device} ======\n"));
    for (group, block) in &blocks {
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
    if count > blocks.len() as u64 {
        text.push_str(&format!("... and {} more.\n", count - blocks.len() as u64));
    }
    let total: u64 = groups().map(|group| group.bytes).fold(0, u64::saturating_add);
    text.push_str(&format!(
        "====== SUMMARY: {} Mb(s) leaked in {count} allocation(s) ======\n",
        general_number(megabytes(total))
    ));
    push_kernels(text, &blocks);
    let possible = report.possible_leaks.iter().filter(|group| group.device == device);
    let possible: u64 = possible.map(|group| group.count).sum();
    if possible > 0 {
        let which = if possible == count { "These allocations" } else { &format!("{possible} of these allocations") };
        let doubt = format!(
            "{which} may be kept on purpose: call sites that kept memory in two steps only. A leak is certain from \
             {LEAK_STEPS} steps on."
        );
        push_wrapped(text, &doubt, "");
    }
    text.push('\n');
}

/// What the kernels are called whose numbers the lines give.
fn push_kernels(text: &mut String, blocks: &[(&LeakGroup, &LeakedBlock)]) {
    const NAMED_KERNELS: usize = 8;
    let mut named: Vec<(u64, &str)> = blocks
        .iter()
        .map(|(_, block)| (block.kernel_index, &block.kernel[..]))
        .filter(|(_, name)| !name.is_empty())
        .collect();
    named.dedup();
    for (number, name) in named.iter().take(NAMED_KERNELS) {
        let title = format!("kernel_{number} is ");
        text.push_str(&format!("{title}{}\n", fit(name, width().saturating_sub(title.len()))));
    }
    if named.len() > NAMED_KERNELS {
        text.push_str(&format!("... and {} more kernels.\n", named.len() - NAMED_KERNELS));
    }
}

fn push_sites(text: &mut String, title: &str, groups: &[LeakGroup], is_growth: bool) {
    if groups.is_empty() {
        return;
    }
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
            format!("{} {}", group.device, group.pool.short_title()),
            shown_line(group),
        ];
        table.row(cells.into_iter().skip(skipped));
    }
    push_wrapped(text, title, "");
    text.push_str(&table.render());
    if groups.len() > LISTED_SITES {
        text.push_str(&format!("  ... and {} more call sites.\n", groups.len() - LISTED_SITES));
    }
    let freed: u64 = groups.iter().map(|group| group.freed_at_the_end).sum();
    if freed > 0 {
        let were = if freed == 1 { "was" } else { "were" };
        text.push_str(&format!("  {freed} of these blocks {were} freed only after the last step.\n"));
    }
    text.push('\n');
}

/// How the program came to the first group.
fn push_first(text: &mut String, group: &LeakGroup) {
    if !push_way(text, "How the program gets there, innermost first:", &group.site) {
        return;
    }
    // An owner without a part inside the pool says no more than the table, and a variable says more than any.
    let owner = Some(&group.site.owner).filter(|owner| owner.contains('@') && group.held_by.is_empty());
    if let Some(owner) = owner {
        text.push_str(&format!("    owner: {}\n", fit(owner, width() - 15)));
    }
    text.push('\n');
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
    push_wrapped(text, &heading, "");
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
    advice(first, cause(report).as_ref()).iter().for_each(|line| push_wrapped(text, line, "  "));
    text.push('\n');
}

/// What to do about a leak whose largest call site this is.
pub(crate) fn advice(first: &LeakGroup, cause: Option<&LeakCause>) -> Vec<&'static str> {
    let has_stack = !first.site.python.is_empty() || !first.site.native.is_empty();
    let unseen = match first.pool {
        Pool::Mindspore => LINES_OF_MINDSPORE,
        _ => "Run again with --call-stack=python,c to see the line of code that allocates.",
    };
    let is_outside_of_training = first.phase.is_none_or(|phase| phase == "other");
    let advice = match cause {
        Some(LeakCause::KeptGraphs(_)) => {
            "Look for what keeps a loss or an output from step to step: a list, a running total (total += loss), a hook \
             or a closure. Keep loss.item() or tensor.detach() instead, which lets the graph go."
        }
        Some(LeakCause::Hook) => {
            "Keep a number or output.detach().cpu() in the hook instead of the tensor, empty its list with every step, or \
             take the hook away when it is no longer needed (handle.remove())."
        }
        Some(LeakCause::Cache) if first.held_by.iter().any(|held| held.path.contains("functools cache of ")) => {
            "Give the cache a limit (functools.lru_cache(maxsize=...)), call its cache_clear() from time to time, or keep no \
             tensors of the device in it."
        }
        Some(LeakCause::Cache) => {
            "Drop the cache when its sequence is done, or limit its length (a sliding window, a cache of fixed size)."
        }
        Some(LeakCause::Traceback) => {
            "Keep str(error) instead of the exception, or drop what it refers to: error.__traceback__ = None, or \
             traceback.clear_frames(error.__traceback__)."
        }
        Some(LeakCause::OptimizerStates) => {
            "Make the optimizer once, before the loop. Where a new one is needed drop the old one first, also from \
             schedulers, lists and checkpoints in memory."
        }
        Some(LeakCause::Driver { module, .. }) if module == "HCCL" => {
            "Make process groups and communicators once, and destroy those that are no longer needed \
             (torch.distributed.destroy_process_group)."
        }
        Some(LeakCause::Driver { .. }) => {
            "Look for what is made with every step and not given back: memory from aclrtMalloc, streams, events, graphs \
             or communicators."
        }
        None if is_outside_of_training && first.pool != Pool::Hal => {
            "Look for what keeps its result: a list, dictionary or attribute that only grows, such as a cache of keys and \
             values that is never dropped, or a closure. Limit it, or delete what is no longer needed."
        }
        None => {
            "Look for what keeps its result: a list or attribute that only grows, a closure, or a loss kept with its \
             graph (keep loss.item() or loss.detach() instead)."
        }
    };
    [Some(unseen).filter(|_| !has_stack), Some(advice)].into_iter().flatten().collect()
}

/// The line, and the operator where several groups have the same line.
fn shown_line(group: &LeakGroup) -> String {
    let line = near(&group.site.line);
    let operator = short_operator(&group.site.operator);
    if operator.is_empty() || line.contains(operator) { line.to_owned() } else { format!("{line} ({operator})") }
}

/// The report of fluctuation within steps.
pub fn fluctuation(pools: &[PoolFluctuation], style: Style) -> String {
    let mut text = String::new();
    let cell = |text: &str| format!("{text:<25}");
    if style == Style::Full && pools.iter().any(|pool| pool.steps > 0) {
        let meaning = "Least memory in use within a step, as a part of the most, in the steps where that part is smallest \
                       (MinGap) and largest (MaxGap):";
        push_wrapped(&mut text, meaning, "");
    }
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
    let name = fit_middle(&format!("{:?}", report.message), LONGEST_NAME);
    for device in &report.devices {
        let id = device.device;
        text.push_str(&format!("INFO: Starting to analyze data for device {id}...\n"));
        match device.outcome {
            MarkOutcome::Complete => {}
            MarkOutcome::TooFewMarks => {
                let found =
                    format!("ERROR: device {id} has {} named {name}; three are needed.", counted(device.marks, "mark"));
                push_wrapped(&mut text, &found, "");
            }
            MarkOutcome::IndexOutOfRange => {
                let found = format!(
                    "ERROR: device {id} has {} marks named {name}; three are needed from index {} on.",
                    device.marks, report.start_index
                );
                push_wrapped(&mut text, &found, "");
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
                counted(device.kept_by_pools, "driver block"),
                bytes(device.kept_by_pools_bytes)
            );
            push_wrapped(&mut text, &kept, "");
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
                text.push_str(&format!("    {}\n", fit(near(&leak.site.line), width() - 4)));
            }
        }
    }
    text
}
