//! The memory of a running job on one screen: curve, steps, owners and lines that grow.

use msmemscope_analysis::curve::PoolCurve;
use msmemscope_analysis::live::{LiveLine, LivePicture, LivePool, LiveStep};
use msmemscope_event::{Device, Pool};

use crate::curve;
use crate::layout::{columns, near, width};
use crate::moments::is_worth_a_table;
use crate::table::{Align, Table};
use crate::tree::percent;
use crate::units::{bytes, counted, seconds, short_count, signed_bytes};

/// Lines of a curve.
const CURVE_ROWS: usize = 5;
/// Rows of the tables, as far as there is room.
const STEP_ROWS: usize = 5;
const OWNER_ROWS: usize = 6;

/// A job in at most this many lines.
pub fn live(picture: &LivePicture, rows: usize) -> String {
    if picture.pools.is_empty() {
        return "No device memory has been used yet.\n".to_owned();
    }
    let mut parts = vec![pools(picture)];
    parts.extend(steps(&picture.steps));
    parts.extend(owners(picture));
    let used: usize = parts.iter().map(|part| part.lines().count() + 1).sum();
    // Title and heading of the table of lines.
    parts.extend(lines(picture, rows.saturating_sub(used + 2).max(3)));
    let text = parts.join("\n");
    let shown: Vec<&str> = text.lines().take(rows).collect();
    format!("{}\n", shown.join("\n"))
}

fn pools(picture: &LivePicture) -> String {
    let pools = &picture.pools;
    let all: Vec<(Device, Pool)> = pools.iter().map(|pool| (pool.device, pool.pool)).collect();
    let mut text = String::new();
    let largest = pools.iter().filter(|pool| is_worth_a_table(pool.device, pool.pool, &all));
    let drawn = largest.max_by_key(|pool| pool.peak_bytes).map(|pool| (pool.device, pool.pool));
    for pool in pools {
        let reserved = match pool.reserved_bytes {
            0 => String::new(),
            reserved => format!(", {} reserved", bytes(reserved)),
        };
        let (device, title) = (pool.device, pool.pool.title());
        let (used, peak) = (bytes(pool.used_bytes), bytes(pool.peak_bytes));
        text.push_str(&format!("{title} on device {device}: {used} in use{reserved}, peak {peak}\n"));
        if drawn == Some((pool.device, pool.pool)) {
            let is_this = |curve: &&PoolCurve| (curve.device, curve.pool) == (pool.device, pool.pool);
            picture.curve.pools.iter().filter(is_this).for_each(|curve| push_curve(&mut text, pool, curve));
        }
    }
    text
}

/// The curve with its scale.
fn push_curve(text: &mut String, pool: &LivePool, curve: &PoolCurve) {
    let top = bytes(pool.peak_bytes);
    let margin = columns(&top);
    for (row, line) in curve::lines(&curve.most_bytes, width() - margin - 1, CURVE_ROWS).iter().enumerate() {
        let label = match row {
            0 => &top,
            row if row == CURVE_ROWS - 1 => "0 B",
            _ => "",
        };
        text.push_str(&format!("{label:>margin$} {}\n", line.trim_end()));
    }
}

fn steps(steps: &[LiveStep]) -> Option<String> {
    let first = steps.len().saturating_sub(STEP_ROWS);
    let columns = [
        ("step", Align::Right),
        ("device", Align::Right),
        ("took", Align::Right),
        ("peak", Align::Right),
        ("at its end", Align::Right),
        ("change", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for step in steps[first..].iter().rev() {
        table.row([
            step.number.to_string(),
            step.device.to_string(),
            if step.duration_ns == 0 { String::new() } else { seconds(step.duration_ns) },
            bytes(step.peak_bytes),
            bytes(step.end_bytes),
            signed_bytes(step.change_bytes),
        ]);
    }
    (!steps.is_empty()).then(|| format!("Latest steps\n{}", table.render()))
}

fn owners(picture: &LivePicture) -> Option<String> {
    let whole: u64 = picture.owners.iter().map(|owner| owner.bytes).sum();
    let columns = [("in use", Align::Right), ("share", Align::Right), ("blocks", Align::Right), ("owner", Align::Left)];
    let mut table = Table::new(&columns);
    for owner in picture.owners.iter().take(OWNER_ROWS) {
        let share = percent(owner.bytes, whole);
        table.row([bytes(owner.bytes), share, short_count(owner.blocks), owner.owner.clone()]);
    }
    (!picture.owners.is_empty()).then(|| format!("Owners\n{}", table.render()))
}

/// The lines that grow or, before there is anything to compare with, those that hold most.
fn lines(picture: &LivePicture, rows: usize) -> Option<String> {
    let (steps, duration_ns) = (picture.grown_over.steps, picture.grown_over.duration_ns);
    let title = match (steps, duration_ns) {
        (0, 0) => "Lines that hold most".to_owned(),
        (0, duration_ns) => format!("Lines, by growth in {}", seconds(duration_ns)),
        (steps, _) => format!("Lines, by growth in {}", counted(steps, "step")),
    };
    let can_grow = (steps, duration_ns) != (0, 0);
    let grew = can_grow.then_some(("grew", Align::Right));
    let held = [("in use", Align::Right), ("blocks", Align::Right), ("allocated at", Align::Left)];
    let mut table = Table::new(&grew.into_iter().chain(held).collect::<Vec<_>>());
    for LiveLine { site, bytes: held, blocks, grown_bytes } in picture.lines.iter().take(rows) {
        let grown = if *grown_bytes == 0 { String::new() } else { format!("+{}", bytes(*grown_bytes)) };
        let cells = [bytes(*held), short_count(*blocks), near(&site.line).to_owned()];
        table.row(can_grow.then_some(grown).into_iter().chain(cells));
    }
    (!picture.lines.is_empty()).then(|| format!("{title}\n{}", table.render()))
}
