//! The report at the end of a run: per device and pool what it took, what is left, what is missing.
//!
//! A few processes are shown one by one; of many, one line each and the totals.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use msmemscope_event::{Device, LossReason, Place, Pool, is_steering, visible};
use msmemscope_output::WrittenFile;
use msmemscope_timeline::{PoolSummary, Summary};
use msmemscope_trace::Completeness;
use unicode_width::UnicodeWidthStr;

use crate::layout::{fitting, near_path};
use crate::ranks::{shared_by, speakers};
use crate::shell::quoted_path;
use crate::units::{bytes, count, counted, number_ranges, seconds, short_count};

/// A line under the header, nothing else.
const TABLE_STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
/// Up to this many processes are shown one by one.
const FEW_PROCESSES: usize = 3;
/// Most lines of one kind in a report on many processes.
const MOST_LINES: usize = 20;

/// What became of one recorded process.
#[derive(Clone, Debug)]
pub struct ProcessReport {
    /// Its directory.
    pub directory: PathBuf,
    /// What it was called as.
    pub command: String,
    /// Its place in the job.
    pub place: Place,
    /// What its leaks have in common with those of other ranks; see [`crate::ranks`].
    pub leak_keys: Vec<String>,
    /// What its events say.
    pub summary: Summary,
    /// What is missing from its trace.
    pub completeness: Completeness,
    /// Files written.
    pub files: Vec<WrittenFile>,
    /// Remarks of those who finished it.
    pub notes: Vec<String>,
    /// What the analyses found, as text.
    pub findings: String,
    /// The leaks in the words of earlier versions' documents.
    pub classic_findings: String,
    /// The same in the words of their logs.
    pub log_findings: String,
    /// Whether that is something to worry about: a leak, or memory that ran out.
    pub has_alarm: bool,
    /// Whether it is that, or an answer that the user asked for.
    pub answers_questions: bool,
}

impl ProcessReport {
    fn title(&self) -> String {
        self.place.title(self.summary.process_id)
    }
}

/// What was found in all processes of a run, which is known before the files of the rest are written. Of many processes
/// it is only what is something to worry about.
pub fn render_found(reports: &[ProcessReport], program: &str) -> String {
    let reports = &told_once(reports)[..];
    let parts: Vec<String> = match reports {
        [report] => vec![report.findings.clone()],
        _ if reports.len() <= FEW_PROCESSES => {
            reports.iter().filter(|report| !report.findings.is_empty()).map(titled_findings).collect()
        }
        _ => {
            let alarms: Vec<&ProcessReport> = reports.iter().filter(|report| report.has_alarm).collect();
            let (shown, others) = alarms.split_at(alarms.len().min(FEW_PROCESSES));
            let others = (!others.is_empty()).then(|| {
                let processes = counted(others.len() as u64, "more process");
                format!("... and findings in {processes}: {program} analyze {}\n", quoted_path(parent(reports)))
            });
            shown.iter().copied().map(titled_findings).chain(others).collect()
        }
    };
    parts.join("\n")
}

fn titled_findings(report: &ProcessReport) -> String {
    format!("{}:\n{}", report.title(), report.findings)
}

/// The report on all processes of a run, without what was found.
pub fn render_rest(reports: &[ProcessReport], program: &str) -> String {
    let reports = told_once(reports);
    if reports.len() <= FEW_PROCESSES {
        let blocks: Vec<String> = reports.iter().map(|report| render_record(report, program)).collect();
        return blocks.join("\n");
    }
    render_many(&reports)
}

/// The reports by rank, with what several ranks have found in the first of them only.
fn told_once(reports: &[ProcessReport]) -> Vec<ProcessReport> {
    let mut sorted: Vec<ProcessReport> = reports.to_vec();
    sorted.sort_by_key(|report| report.place.rank.unwrap_or(u32::MAX));
    let processes: Vec<(Place, &[String])> =
        sorted.iter().map(|report| (report.place, &report.leak_keys[..])).collect();
    let speakers = speakers(&processes);
    let introductions: Vec<Option<String>> =
        (0..sorted.len()).map(|index| shared_by(&processes, &speakers, index)).collect();
    for (index, (report, introduction)) in sorted.iter_mut().zip(introductions).enumerate() {
        if speakers[index] != index {
            report.findings.clear();
            (report.has_alarm, report.answers_questions) = (false, false);
        } else if let Some(introduction) = introduction {
            report.findings = format!("{introduction}\n{}", report.findings);
        }
    }
    sorted
}

/// Only what was found, or asked for, of all processes of a run.
pub fn render_findings(reports: &[ProcessReport]) -> String {
    let reports = &told_once(reports)[..];
    let found = || reports.iter().filter(|report| report.answers_questions);
    let of_process = |report: &ProcessReport| match reports.len() {
        1 => report.findings.clone(),
        _ => titled_findings(report),
    };
    let mut blocks: Vec<String> = found().take(FEW_PROCESSES).map(of_process).collect();
    let others = found().skip(FEW_PROCESSES);
    blocks.extend(others.map(|report| format!("More findings in {}\n", quoted_path(&report.directory))));
    blocks.join("\n")
}

/// The report on one process: what was found, a heading, the table of pools, losses and files, and how to go on.
pub fn render_process(report: &ProcessReport, program: &str) -> String {
    let record = render_record(report, program);
    if report.findings.is_empty() { record } else { format!("{}\n{record}", report.findings) }
}

/// The same without what was found.
fn render_record(report: &ProcessReport, program: &str) -> String {
    let summary = &report.summary;
    let mut text = String::new();
    let steps = match summary.steps {
        0 => String::new(),
        1 => ", 1 step".to_owned(),
        steps => format!(", {} steps", count(steps)),
    };
    let numbers = format!(" ({} events in {}{steps})", short_count(events(summary)), seconds(duration_ns(summary)));
    let heading = format!("{}: ", report.title());
    let room = 80usize.saturating_sub(heading.len() + numbers.len()).max(16);
    let _ = writeln!(text, "{heading}{}{numbers}", shortened(&report.command, room));
    if summary.pools.is_empty() {
        text.push_str("No memory events.\n");
    } else {
        let _ = writeln!(text, "{}", pool_table(&summary.pools));
    }
    for line in missing(&report.completeness, summary) {
        let _ = writeln!(text, "Missing: {line}");
    }
    for note in &report.notes {
        let _ = writeln!(text, "Note: {note}");
    }
    let _ = writeln!(text, "Results in {}", quoted_path(near_path(&report.directory)));
    for file in &report.files {
        let shown = file.path.strip_prefix(&report.directory).unwrap_or(&file.path);
        let shown = shown.to_string_lossy();
        let (rows, size) = (counted(file.rows, "row"), bytes(file.size_bytes));
        let _ = writeln!(text, "  {} ({rows}, {size})", visible(&shown));
    }
    if !summary.pools.is_empty() {
        let shown = quoted_path(near_path(&report.directory));
        let _ = writeln!(text, "Next:\n  {program} view {shown}\n  {program} analyze {shown}");
    }
    text
}

/// One line per process, then totals.
fn render_many(reports: &[ProcessReport]) -> String {
    let events = reports.iter().map(|report| events(&report.summary)).sum();
    let mut text = format!("{} processes recorded ({} events)\n", count(reports.len() as u64), count(events));
    let _ = writeln!(text, "{}", process_table(&reports[..reports.len().min(MOST_LINES)]));
    if reports.len() > MOST_LINES {
        let _ = writeln!(text, "... and {} more processes", reports.len() - MOST_LINES);
    }
    text.push_str("\nBytes of the process that has most, blocks of all processes together:\n");
    let _ = writeln!(text, "{}", pool_table(&totals(reports)));
    let remarks: Vec<String> = reports
        .iter()
        .flat_map(|report| {
            let process = report.place.name(report.summary.process_id);
            let also = process.clone();
            let missing = missing(&report.completeness, &report.summary);
            let missing = missing.into_iter().map(move |line| format!("Missing of {process}: {line}"));
            missing.chain(report.notes.iter().map(move |note| format!("Note on {also}: {note}")))
        })
        .collect();
    for remark in remarks.iter().take(MOST_LINES) {
        let _ = writeln!(text, "{remark}");
    }
    if remarks.len() > MOST_LINES {
        let _ = writeln!(text, "... and {} more remarks ('info' shows all)", remarks.len() - MOST_LINES);
    }
    let files: Vec<&WrittenFile> = reports.iter().flat_map(|report| &report.files).collect();
    let size_bytes = files.iter().map(|file| file.size_bytes).sum();
    let _ = writeln!(
        text,
        "Results in {}: {} directories with {} files ({})",
        quoted_path(parent(reports)),
        count(reports.len() as u64),
        count(files.len() as u64),
        bytes(size_bytes)
    );
    text
}

/// Where the directories of all processes are.
fn parent(reports: &[ProcessReport]) -> &Path {
    reports.first().and_then(|report| report.directory.parent()).unwrap_or(Path::new("/"))
}

/// Everything that happened, shown or not.
pub fn events(summary: &Summary) -> u64 {
    summary.events_shown + summary.events_hidden
}

fn duration_ns(summary: &Summary) -> u64 {
    summary.last_timestamp_ns.saturating_sub(summary.first_timestamp_ns)
}

fn number(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE).set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}

/// One row per device and pool.
pub fn pool_table(pools: &[PoolSummary]) -> Table {
    let mut table = table(&["Device", "Pool", "Peak", "Reserved", "At end", "Alive", "Allocs", "Frees"]);
    for pool in pools {
        let reserved = if pool.peak_total_bytes > 0 { bytes(pool.peak_total_bytes) } else { "-".to_owned() };
        table.add_row([
            Cell::new(pool.device),
            Cell::new(pool.pool.title()),
            number(bytes(pool.peak_used_bytes)),
            number(reserved),
            number(bytes(pool.end_used_bytes)),
            number(short_count(pool.live_blocks())),
            number(short_count(pool.allocations)),
            number(short_count(pool.frees)),
        ]);
    }
    table
}

/// One row per process. Memory is that of the driver; the framework pools take theirs from it.
fn process_table(reports: &[ProcessReport]) -> Table {
    let has_ranks = reports.iter().any(|report| report.place.rank.is_some());
    let mut table =
        table(&[if has_ranks { "Rank" } else { "Process" }, "Devices", "Events", "Steps", "Peak", "At end", "Command"]);
    for report in reports {
        let summary = &report.summary;
        let driver = || summary.pools.iter().filter(|pool| pool.pool == Pool::Hal);
        table.add_row([
            number(match (has_ranks, report.place.rank) {
                (true, Some(rank)) => rank.to_string(),
                (true, None) => "-".to_owned(),
                (false, _) => summary.process_id.to_string(),
            }),
            Cell::new(device_list(&summary.pools)),
            number(short_count(events(summary))),
            number(short_count(summary.steps)),
            number(bytes(driver().map(|pool| pool.peak_used_bytes).sum())),
            number(bytes(driver().map(|pool| pool.end_used_bytes).sum())),
            Cell::new(shortened(&report.command, 22)),
        ]);
    }
    table
}

/// Device numbers as ranges: `0-3,7`.
fn device_list(pools: &[PoolSummary]) -> String {
    let number = |pool: &PoolSummary| match pool.device {
        Device::Npu(number) => Some(u32::from(number)),
        _ => None,
    };
    let numbers: Vec<u32> = pools.iter().filter_map(number).collect();
    if numbers.is_empty() { "-".to_owned() } else { shortened(&number_ranges(&numbers).replace(", ", ","), 11) }
}

/// The pools of all processes: numbers of blocks added up, bytes of the process that has most.
fn totals(reports: &[ProcessReport]) -> Vec<PoolSummary> {
    let mut totals: BTreeMap<(Pool, Device), PoolSummary> = BTreeMap::new();
    for pool in reports.iter().flat_map(|report| &report.summary.pools) {
        match totals.get_mut(&(pool.pool, pool.device)) {
            None => {
                totals.insert((pool.pool, pool.device), pool.clone());
            }
            Some(total) => {
                total.peak_used_bytes = total.peak_used_bytes.max(pool.peak_used_bytes);
                total.peak_total_bytes = total.peak_total_bytes.max(pool.peak_total_bytes);
                total.end_used_bytes = total.end_used_bytes.max(pool.end_used_bytes);
                total.end_total_bytes = total.end_total_bytes.max(pool.end_total_bytes);
                total.allocations += pool.allocations;
                total.frees += pool.frees;
                total.allocated_bytes += pool.allocated_bytes;
                total.residual_blocks += pool.residual_blocks;
                total.clamped_frees += pool.clamped_frees;
            }
        }
    }
    totals.into_values().collect()
}

/// Everything that is not in the results, one line each.
pub fn missing(completeness: &Completeness, summary: &Summary) -> Vec<String> {
    let mut lines = lost_events(completeness);
    lines.extend(losses(completeness, |reason| !reason.loses_events() && !reason.is_as_asked()));
    if summary.unknown_free_count() > 0 {
        let frees = counted(summary.unknown_free_count(), "free");
        lines.push(format!("{frees} of blocks allocated before recording began"));
    }
    lines
}

/// Of what is missing, that which leaves numbers in doubt: whole events, as opposed to details of events.
pub fn lost_events(completeness: &Completeness) -> Vec<String> {
    let mut lines: Vec<String> = losses(completeness, LossReason::loses_events).collect();
    if !completeness.damage.is_empty() {
        let places = counted(completeness.damaged_places, "place");
        lines.push(format!("{places} of the trace cannot be read (see 'info')"));
    }
    if completeness.buffered && !completeness.closed {
        lines.push("the last events of each thread: this file system allows buffered writing only".to_owned());
    }
    lines.extend(forgotten(completeness));
    lines
}

/// What a flight recorder has forgotten, if it has: everything since then is there, and of what was before all that is
/// still alive.
fn forgotten(completeness: &Completeness) -> Option<String> {
    let kept_ns = completeness.latest_ns.saturating_sub(completeness.complete_since_ns?);
    Some(format!("what came and went before the last {} (flight recorder)", seconds(kept_ns)))
}

/// What was left out because the user asked for no more, one line each.
pub fn left_out_as_asked(completeness: &Completeness) -> impl Iterator<Item = String> {
    losses(completeness, LossReason::is_as_asked)
}

/// What the recorder itself counted, for some of the reasons.
fn losses(completeness: &Completeness, is_meant: impl Fn(LossReason) -> bool) -> impl Iterator<Item = String> {
    let meant = completeness.losses.iter().filter(move |(reason, number)| *number > 0 && is_meant(*reason));
    meant.map(|&(reason, number)| format!("{} {}", count(number), reason.describe()))
}

/// A text on one line, cut in the middle so that both ends stay readable. Chinese characters take
/// two columns.
fn shortened(text: &str, longest: usize) -> String {
    let text = text.replace(is_steering, " ");
    if text.width() <= longest {
        return text;
    }
    let half = (longest - 3) / 2;
    let front: String = fitting(text.chars(), longest - 3 - half).into_iter().collect();
    let back: String = fitting(text.chars().rev(), half).into_iter().rev().collect();
    format!("{front}...{back}")
}

#[cfg(test)]
mod tests;
