//! What holds memory at the peak or at another moment, by line of code, as text.

use msmemscope_event::Pool;

use super::{Align, Table, bytes};
use crate::moment::{LineUse, MomentReport, PoolMoment};

/// Rows of a table.
const LISTED_LINES: usize = 10;

/// A table per pool and moment. Driver memory below a framework's pool is the same memory once more, so it is left
/// out where the device has such a pool.
pub fn moments(report: &MomentReport) -> String {
    let has_pool = |driver: &PoolMoment| {
        report.pools.iter().any(|other| other.device == driver.device && is_pool_of_framework(other.pool))
    };
    let shown = report.pools.iter().filter(|moment| moment.pool != Pool::Hal || !has_pool(moment));
    shown.filter(|moment| moment.used_bytes > 0).map(pool_moment).collect::<Vec<_>>().join("\n")
}

fn is_pool_of_framework(pool: Pool) -> bool {
    matches!(pool, Pool::PytorchCaching | Pool::Mindspore | Pool::Atb)
}

fn pool_moment(moment: &PoolMoment) -> String {
    let mut columns = vec![
        ("held by", Align::Left),
        ("bytes", Align::Right),
        ("share", Align::Right),
        ("blocks", Align::Right),
        ("operator", Align::Left),
    ];
    let has_modules = moment.lines.iter().take(LISTED_LINES).any(|line| !line.modules.is_empty());
    let has_phases = moment.lines.iter().take(LISTED_LINES).any(|line| !line.phases.is_empty());
    columns.extend(has_modules.then_some(("module", Align::Left)));
    columns.extend(has_phases.then_some(("phase", Align::Left)));
    let mut table = Table::new(&columns);
    for line in moment.lines.iter().take(LISTED_LINES) {
        let mut cells = vec![
            line.site.line.clone(),
            bytes(line.bytes),
            format!("{:.1} %", line.bytes as f64 * 100.0 / moment.used_bytes as f64),
            line.blocks.to_string(),
            several(&line.operators.iter().map(|name| short_operator(name)).collect::<Vec<_>>()),
        ];
        if has_modules {
            cells.push(several(&line.modules.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        if has_phases {
            cells.push(several(&line.phases));
        }
        table.row(cells);
    }
    format!("{}\n{}{}", heading(moment), table.render(), rest(moment))
}

fn heading(moment: &PoolMoment) -> String {
    let when = match (moment.moment.as_str(), moment.step) {
        ("peak", 0) => "At the peak".to_owned(),
        ("peak", step) => format!("At the peak, in step {step}"),
        (word, _) => match word.strip_prefix("step:") {
            Some(number) => format!("At the end of step {number}"),
            None => format!("At {word}"),
        },
    };
    format!(
        "{when}, {:.1} s after the first event: {} of {} on device {}, by line:",
        moment.since_start_ns as f64 / 1e9,
        bytes(moment.used_bytes),
        moment.pool.title(),
        moment.device
    )
}

fn rest(moment: &PoolMoment) -> String {
    let unlisted = moment.lines.get(LISTED_LINES..).unwrap_or_default();
    let lines = unlisted.len() as u64 + moment.other_lines;
    let held = unlisted.iter().map(|line: &LineUse| line.bytes).sum::<u64>() + moment.other_bytes;
    match lines {
        0 => String::new(),
        1 => format!("  One more line holds {}.\n", bytes(held)),
        lines => format!("  {lines} more lines hold {}.\n", bytes(held)),
    }
}

/// The first of several, and how many there are besides.
fn several(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    }
}

/// `torch._ops.aten.mm.default` is `aten.mm` to people.
fn short_operator(name: &str) -> &str {
    let name = name.strip_prefix("torch._ops.").unwrap_or(name);
    name.strip_suffix(".default").unwrap_or(name)
}
