//! Comparisons as text.

use msmemscope_analysis::compare::{Comparison, Contribution, ContributionList, Pair};

use crate::layout::push_wrapped;
use crate::table::{Align, Table};
use crate::units::{bytes, signed_bytes, step_list};

const LISTED_ROWS: usize = 15;

/// The summary of a comparison.
pub fn comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    let noun = comparison.level.noun();
    if comparison.recorded_steps.iter().any(|steps| !steps.is_empty()) {
        let part = |steps: &[u64]| if steps.is_empty() { "all steps".to_owned() } else { step_list(steps) };
        let [base, other] = &comparison.recorded_steps;
        let heading = format!("Compared: {} of the base, {} of the other, as recorded.", part(base), part(other));
        push_wrapped(&mut text, &heading, "");
    }
    for (side, unseen) in ["base", "other"].into_iter().zip(&comparison.unseen_pools) {
        for unseen in unseen {
            push_wrapped(&mut text, &format!("Note on the {side}: {}", unseen.describe()), "");
        }
    }
    let is_of_memory_only = comparison.is_of_memory_only();
    if is_of_memory_only {
        let has = |side: fn(&Pair) -> i64| comparison.devices.iter().any(|device| side(&device.items) > 0);
        let lacking = match (has(|items| items.base), has(|items| items.other)) {
            (true, _) => "The other has no",
            (_, true) => "The base has no",
            _ => "Neither side has",
        };
        let sentence = format!("{lacking} {noun} that could be lined up; what they hold is compared.");
        push_wrapped(&mut text, &sentence, "");
    }
    if comparison.is_equal() && is_of_memory_only {
        text.push_str("No differences in peaks, at the end, in owners or call sites.\n");
    } else if comparison.is_equal() {
        let items: i64 = comparison.devices.iter().map(|device| device.items.base).sum();
        text.push_str(&format!("No differences in {items} {noun}.\n"));
    }
    for device in &comparison.devices {
        let heading = match is_of_memory_only {
            true => format!("Device {}:", device.device),
            false => format!(
                "Device {}: {} and {} {noun}, {} aligned, {} only in base, {} only in other",
                device.device,
                device.items.base,
                device.items.other,
                device.aligned,
                device.only_base,
                device.only_other
            ),
        };
        push_wrapped(&mut text, &heading, "");
        let columns = [("", Align::Left), ("base", Align::Right), ("other", Align::Right), ("change", Align::Right)];
        let mut table = Table::new(&columns);
        for (title, pair) in [("peak in use", device.peak_bytes), ("in use at the end", device.end_bytes)] {
            let cell = |value: i64| bytes(value.unsigned_abs());
            table.row([title.to_owned(), cell(pair.base), cell(pair.other), signed_bytes(pair.difference())]);
        }
        let inside = format!("change inside {noun}");
        let parts = [(inside.as_str(), device.inside_bytes), ("change outside", device.outside_bytes)];
        for (title, pair) in parts.into_iter().filter(|_| !is_of_memory_only) {
            table.row([
                title.to_owned(),
                signed_bytes(pair.base),
                signed_bytes(pair.other),
                signed_bytes(pair.difference()),
            ]);
        }
        text.push_str(&format!("{}\n", table.render()));
    }
    for list in comparison.lists() {
        push_list(&mut text, &list);
    }
    text
}

fn push_list(text: &mut String, list: &ContributionList<'_>) {
    let columns = [
        ("change", Align::Right),
        ("base", Align::Right),
        ("other", Align::Right),
        ("times", Align::Right),
        (list.column, Align::Left),
    ];
    let mut table = Table::new(&columns);
    for entry in list.entries.iter().take(LISTED_ROWS) {
        table.row([
            signed_bytes(entry.bytes.difference()),
            bytes_text(list, entry.bytes.base),
            bytes_text(list, entry.bytes.other),
            times(entry),
            entry.name.clone(),
        ]);
    }
    text.push_str(&format!("{}:\n{}", list.title, table.render()));
    if list.entries.len() > LISTED_ROWS {
        text.push_str(&format!("  ... and {} more\n", list.entries.len() - LISTED_ROWS));
    }
    text.push('\n');
}

/// How often something occurs, in words.
pub(crate) fn times(contribution: &Contribution) -> String {
    match contribution.count {
        Pair { base: 0, other } => format!("new, {other}"),
        Pair { base, other: 0 } => format!("gone, {base}"),
        Pair { base, other } if base == other => base.to_string(),
        Pair { base, other } => format!("{base} to {other}"),
    }
}

/// Bytes of one side, in words.
pub(crate) fn bytes_text(list: &ContributionList<'_>, number: i64) -> String {
    if list.is_change { signed_bytes(number) } else { bytes(number.unsigned_abs()) }
}
