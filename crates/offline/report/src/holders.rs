//! Who holds blocks, in words: the variables that keep them alive.

use msmemscope_analysis::holders::{HeldBy, merged};

use crate::layout::push_wrapped;
use crate::units::{bytes, counted};

/// Ways listed below a table.
const LISTED_PATHS: usize = 4;

/// The sentence about who holds most of some blocks; nothing if nobody was seen.
pub(crate) fn sentence(holders: &[HeldBy]) -> String {
    holders.first().map_or(String::new(), |held| format!(" Held by {}.", held.path))
}

/// Who holds the blocks of several groups, those that hold most first; whether anybody was seen.
pub(crate) fn push_holders<'a>(text: &mut String, holders: impl Iterator<Item = &'a HeldBy>) -> bool {
    let sums = merged(holders);
    if sums.is_empty() {
        return false;
    }
    text.push_str("  Held by, when the job was looked at:\n");
    for sum in sums.iter().take(LISTED_PATHS) {
        let line = format!("{} in {}: {}", bytes(sum.bytes), counted(sum.blocks, "block"), sum.path);
        push_wrapped(text, &line, "    ");
    }
    true
}
