//! Which settings would help most, and the smallest card on which a job runs.

use std::cmp::Reverse;

use serde::Serialize;

use crate::replay::{Conditions, Outcome, Sizes, replay};
use crate::requests::Requests;
use crate::settings::{AS_DELIVERED, AllocatorSettings, MIB};

/// Settings that are worth trying, in the words of the variable.
const CANDIDATES: [&str; 10] = [
    "",
    "expandable_segments:True",
    "expandable_segments:True,large_segment_size_mb:64",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "large_segment_size_mb:64",
    "roundup_power2_divisions:4",
];
/// What garbage collection needs beside its threshold, which is nothing without a limit.
const COLLECTING: &str = "garbage_collection_threshold:0.8,per_process_memory_fraction:0.95";
/// Cards are sold and searched in steps of this.
const CARD_STEP_BYTES: u64 = 2 * MIB;

/// A replay under some settings.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// The settings as the variable has them, or that there are none.
    pub settings: String,
    /// Whether the job was recorded with them.
    pub is_recorded: bool,
    /// What came of it.
    pub outcome: Outcome,
    /// What would come of it if all inexact sizes were as small as they may be.
    pub at_least: Outcome,
}

impl Trial {
    /// The settings as the variable has them; nothing if there are none.
    pub fn spelling(&self) -> &str {
        if self.settings == AS_DELIVERED { "" } else { &self.settings }
    }

    /// Whether the job runs to its end, or might if all inexact sizes were as small as they may be.
    pub fn may_fit(&self) -> bool {
        self.outcome.fits() || self.at_least.fits()
    }
}

/// Replays under the recorded settings and all sensible others, the best first. `done` is told how many are finished.
pub fn sweep(requests: &Requests, card_bytes: Option<u64>, mut done: impl FnMut(u64, u64)) -> Vec<Trial> {
    let mut candidates: Vec<AllocatorSettings> = vec![requests.settings.clone()];
    let collecting = card_bytes.is_some().then_some(COLLECTING);
    let sensible = CANDIDATES.into_iter().chain(collecting).filter_map(|text| AllocatorSettings::parse(text).ok());
    for settings in sensible {
        if !candidates.contains(&settings) {
            candidates.push(settings);
        }
    }
    let total = candidates.len() as u64;
    let mut trials: Vec<Trial> = Vec::new();
    for settings in candidates {
        trials.push(trial(requests, &settings, card_bytes));
        done(trials.len() as u64, total);
    }
    rank(&mut trials);
    trials
}

/// The best first: what fits, then what may fit, then what holds least, then what asks the driver least. What runs out is the better the
/// further it comes; one that ends at once holds least.
pub(crate) fn rank(trials: &mut [Trial]) {
    // Stable, so that of equals the recorded settings and the simplest come first.
    trials.sort_by_key(|trial| {
        let outcome = &trial.outcome;
        let comes_to = Reverse(outcome.failure.map(|failure| failure.changes_before));
        (!outcome.fits(), !trial.may_fit(), comes_to, outcome.peak_reserved_bytes, outcome.driver_calls())
    });
}

/// A replay under some settings.
pub fn trial(requests: &Requests, settings: &AllocatorSettings, card_bytes: Option<u64>) -> Trial {
    let mut conditions = Conditions { settings: settings.clone(), card_bytes, sizes: Sizes::Largest };
    let outcome = replay(requests, &conditions);
    conditions.sizes = Sizes::Smallest;
    let at_least = if requests.inexact() > 0 { replay(requests, &conditions) } else { outcome };
    Trial { settings: settings.to_string(), is_recorded: *settings == requests.settings, outcome, at_least }
}

/// The smallest card on which all requests can be met, in steps of 2 MiB.
pub fn smallest_card(requests: &Requests, settings: &AllocatorSettings) -> u64 {
    let on_card = |card_bytes: Option<u64>| {
        replay(requests, &Conditions { settings: settings.clone(), card_bytes, sizes: Sizes::Largest })
    };
    let roomy = on_card(None);
    // On this card the driver never refuses; less than what is in use can never do.
    let mut fits = roomy.peak_card_bytes.next_multiple_of(CARD_STEP_BYTES);
    let mut fails = roomy.peak_used_bytes.saturating_sub(1) / CARD_STEP_BYTES * CARD_STEP_BYTES;
    if settings.memory_fraction < 1.0 {
        fits = (fits as f64 / settings.memory_fraction.max(0.01)) as u64;
        fits = fits.next_multiple_of(CARD_STEP_BYTES);
    }
    while fits.saturating_sub(fails) > CARD_STEP_BYTES {
        let middle = (fails + (fits - fails) / 2).next_multiple_of(CARD_STEP_BYTES).min(fits - CARD_STEP_BYTES);
        if on_card(Some(middle)).fits() {
            fits = middle;
        } else {
            fails = middle;
        }
    }
    fits
}
