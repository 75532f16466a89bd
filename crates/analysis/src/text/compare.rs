//! Comparisons as text.

use super::{Align, Table, bytes, signed_bytes};
use crate::compare::{Comparison, ContributionList};

const LISTED_ROWS: usize = 15;

/// The summary of a comparison.
pub fn comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    let noun = comparison.level.noun();
    if comparison.recorded_steps.iter().any(|steps| !steps.is_empty()) {
        let part = |steps: &[u64]| if steps.is_empty() { "all steps".to_owned() } else { super::step_list(steps) };
        let [base, other] = &comparison.recorded_steps;
        let heading = format!("Compared: {} of the base, {} of the other, as recorded.", part(base), part(other));
        super::push_wrapped(&mut text, &heading, "");
    }
    for (side, unseen) in ["base", "other"].into_iter().zip(&comparison.unseen_pools) {
        for unseen in unseen {
            super::push_wrapped(&mut text, &format!("Note on the {side}: {}", unseen.describe()), "");
        }
    }
    if comparison.is_equal() {
        let items: i64 = comparison.devices.iter().map(|device| device.items.base).sum();
        text.push_str(&format!("No differences in {items} {noun}.\n"));
    }
    for device in &comparison.devices {
        let heading = format!(
            "Device {}: {} and {} {noun}, {} aligned, {} only in base, {} only in other",
            device.device, device.items.base, device.items.other, device.aligned, device.only_base, device.only_other
        );
        super::push_wrapped(&mut text, &heading, "");
        let columns = [("", Align::Left), ("base", Align::Right), ("other", Align::Right), ("change", Align::Right)];
        let mut table = Table::new(&columns);
        for (title, pair) in [("peak in use", device.peak_bytes), ("in use at the end", device.end_bytes)] {
            let cell = |value: i64| bytes(value.unsigned_abs());
            table.row([title.to_owned(), cell(pair.base), cell(pair.other), signed_bytes(pair.difference())]);
        }
        let inside = format!("change inside {noun}");
        for (title, pair) in [(inside.as_str(), device.inside_bytes), ("change outside", device.outside_bytes)] {
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
            list.bytes_text(entry.bytes.base),
            list.bytes_text(entry.bytes.other),
            entry.times(),
            entry.name.clone(),
        ]);
    }
    text.push_str(&format!("{}:\n{}", list.title, table.render()));
    if list.entries.len() > LISTED_ROWS {
        text.push_str(&format!("  ... and {} more\n", list.entries.len() - LISTED_ROWS));
    }
    text.push('\n');
}
