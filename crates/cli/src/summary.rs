//! The table at the end of a run: per device and pool what it took, what is left, what is missing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use msmemscope_event::LossReason;
use msmemscope_timeline::{PoolSummary, Summary};
use msmemscope_trace::Completeness;

use crate::units::{bytes, count, seconds};

/// Widest table; a terminal nobody has enlarged.
const WIDTH: u16 = 80;
/// A line under the header, nothing else.
const TABLE_STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// What became of one recorded process.
pub struct ProcessReport<'a> {
    /// Its directory.
    pub directory: &'a Path,
    /// What it was called as.
    pub command: String,
    /// What its events say.
    pub summary: &'a Summary,
    /// What is missing from its trace.
    pub completeness: &'a Completeness,
    /// Files written.
    pub files: &'a [PathBuf],
}

/// The report on one process: a heading, the table of pools, losses and files.
pub fn render(report: &ProcessReport<'_>) -> String {
    let summary = report.summary;
    let mut text = String::new();
    let duration_ns = summary.last_timestamp_ns.saturating_sub(summary.first_timestamp_ns);
    let _ = writeln!(
        text,
        "Process {}: {} ({} events in {}{})",
        summary.process_id,
        shortened(&report.command, 40),
        count(report.completeness.records),
        seconds(duration_ns),
        if summary.steps > 0 { format!(", {} steps", summary.steps) } else { String::new() },
    );
    if summary.pools.is_empty() {
        text.push_str("No memory events.\n");
    } else {
        let _ = writeln!(text, "{}", pool_table(&summary.pools));
    }
    for line in missing(report.completeness, summary) {
        let _ = writeln!(text, "Missing: {line}");
    }
    let _ = writeln!(text, "Results in {}", report.directory.display());
    for file in report.files {
        let shown = file.strip_prefix(report.directory).unwrap_or(file);
        let size_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = writeln!(text, "  {} ({})", shown.display(), bytes(size_bytes));
    }
    text
}

/// One row per device and pool.
pub fn pool_table(pools: &[PoolSummary]) -> Table {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE).set_width(WIDTH);
    table.set_header(["Device", "Pool", "Peak", "Reserved", "At end", "Alive", "Allocs", "Frees"]);
    let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    for pool in pools {
        let reserved = if pool.peak_total_bytes > 0 { bytes(pool.peak_total_bytes) } else { "-".to_owned() };
        table.add_row([
            Cell::new(pool.device),
            Cell::new(pool.pool.title()),
            number(bytes(pool.peak_used_bytes)),
            number(reserved),
            number(bytes(pool.end_used_bytes)),
            number(count(pool.live_blocks())),
            number(count(pool.allocations)),
            number(count(pool.frees)),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}

/// Everything that is not in the results, one line each.
pub fn missing(completeness: &Completeness, summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    for &(reason, number) in &completeness.losses {
        if number > 0 {
            lines.push(format!("{} {}", count(number), LossReason::describe(reason)));
        }
    }
    if !completeness.damage.is_empty() {
        lines.push(format!(
            "{} places of the trace cannot be read (see 'info')",
            count(completeness.damage.len() as u64)
        ));
    }
    if completeness.buffered && !completeness.closed {
        lines.push("the last events of each thread: this file system allows buffered writing only".to_owned());
    }
    if summary.unknown_free_count() > 0 {
        lines.push(format!("{} frees of blocks allocated before recording began", count(summary.unknown_free_count())));
    }
    lines
}

/// A text cut in the middle, so that begin and end stay readable.
fn shortened(text: &str, longest: usize) -> String {
    let characters: Vec<char> =
        text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    if characters.len() <= longest {
        return characters.into_iter().collect();
    }
    let half = (longest - 3) / 2;
    let front: String = characters[..longest - 3 - half].iter().collect();
    let back: String = characters[characters.len() - half..].iter().collect();
    format!("{front}...{back}")
}
