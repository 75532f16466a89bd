//! How well the model agrees with a recording, under the settings that it was made with. It also decides what is believed
//! of blocks that seem to have been held back for other streams.

use std::time::Instant;

use serde::Serialize;

use crate::replay::{Conditions, replay_watched};
use crate::requests::Requests;

/// How well the model agrees with what was recorded, under the settings of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Blocks that began or ended in the recording.
    pub events: u64,
    /// After how many of them another amount was reserved.
    pub differing: u64,
    /// By how much at most.
    pub largest_difference_bytes: u64,
    /// Calls of the driver, as recorded, zero if they were not, and as replayed.
    pub driver_calls: [u64; 2],
    /// How long the replay took.
    pub replay_seconds: f64,
}

impl Agreement {
    /// Whether the model did exactly what the allocator did.
    pub fn is_exact(&self) -> bool {
        self.differing == 0 && (!self.knows_driver_calls() || self.driver_calls[0] == self.driver_calls[1])
    }

    /// Whether calls of the driver were recorded: snapshots of PyTorch do not have those of expandable segments.
    pub fn knows_driver_calls(&self) -> bool {
        self.driver_calls[0] > 0
    }
}

/// Requests whose freed blocks are held back for other streams only if the model agrees better with the recording then.
pub(crate) fn with_waiting_that_explains(requests: Requests) -> Requests {
    if requests.held_back == 0 {
        return requests;
    }
    let off_by = |requests: &Requests| {
        let agreement = agreement(requests);
        (agreement.differing, agreement.largest_difference_bytes)
    };
    let without = requests.clone().without_waiting();
    if off_by(&requests) < off_by(&without) { requests } else { without }
}

/// Replays as recorded and compares.
pub(crate) fn agreement(requests: &Requests) -> Agreement {
    let conditions = Conditions {
        settings: requests.settings.clone(),
        card_bytes: requests.recorded.card_bytes,
        ..Conditions::default()
    };
    // Before the recording the pool may have come to what it held in many ways.
    let mut from_before = requests.from_before;
    let events = requests.recorded_curve().len() as u64 - from_before;
    let mut agreement = Agreement { events, ..Agreement::default() };
    let started = Instant::now();
    let mut recorded = requests.recorded_curve().iter().skip(from_before as usize);
    let outcome = replay_watched(requests, &conditions, |_, reserved_bytes| {
        if from_before > 0 {
            from_before -= 1;
            return;
        }
        let Some(&recorded_bytes) = recorded.next() else { return };
        let difference = recorded_bytes.abs_diff(reserved_bytes);
        agreement.differing += u64::from(difference > 0);
        agreement.largest_difference_bytes = agreement.largest_difference_bytes.max(difference);
    });
    agreement.replay_seconds = started.elapsed().as_secs_f64();
    // Where the model ran out and the job did not, it holds nothing of what was recorded from there on.
    agreement.differing += recorded.len() as u64;
    let largest_missed = recorded.max().copied().unwrap_or(0);
    agreement.largest_difference_bytes = agreement.largest_difference_bytes.max(largest_missed);
    let counted = requests.recorded.driver_allocations + requests.recorded.driver_frees;
    agreement.driver_calls = [counted, outcome.driver_calls()];
    agreement
}
