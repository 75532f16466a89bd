//! Comparisons as text.

use super::{Align, Table, bytes, signed_bytes};
use crate::compare::{Comparison, Contribution, Level, Pair};

const LISTED_ROWS: usize = 15;

/// The summary of a comparison.
pub fn comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    let noun = match comparison.level {
        Level::Operator => "operators",
        Level::Kernel => "kernels",
    };
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
    push_list(&mut text, &format!("{noun} that differ, by change of memory"), "name", &comparison.names);
    push_list(&mut text, "owners at the peak that differ", "owner", &comparison.owners);
    push_list(&mut text, "call sites of memory alive at the end that differ", "allocated at", &comparison.sites);
    text
}

fn push_list(text: &mut String, title: &str, column: &str, list: &[Contribution]) {
    if list.is_empty() {
        return;
    }
    let columns = [
        ("change", Align::Right),
        ("base", Align::Right),
        ("other", Align::Right),
        ("times", Align::Right),
        (column, Align::Left),
    ];
    let mut table = Table::new(&columns);
    for entry in list.iter().take(LISTED_ROWS) {
        let times = match entry.count {
            Pair { base: 0, other } => format!("new, {other}"),
            Pair { base, other: 0 } => format!("gone, {base}"),
            Pair { base, other } if base == other => base.to_string(),
            Pair { base, other } => format!("{base} -> {other}"),
        };
        table.row([
            signed_bytes(entry.bytes.difference()),
            signed_bytes(entry.bytes.base),
            signed_bytes(entry.bytes.other),
            times,
            entry.name.clone(),
        ]);
    }
    let mut letters = title.chars();
    let capital: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    text.push_str(&format!("{capital}:\n{}", table.render()));
    if list.len() > LISTED_ROWS {
        text.push_str(&format!("  ... and {} more\n", list.len() - LISTED_ROWS));
    }
    text.push('\n');
}
