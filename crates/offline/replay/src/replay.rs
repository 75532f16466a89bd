//! Runs recorded requests through the model of the allocator.

use serde::Serialize;

use crate::allocator::{Allocator, BlockNumber, GRANULE_BYTES};
use crate::requests::{RequestKind, Requests};
use crate::settings::AllocatorSettings;

/// What is assumed of the requests whose size is not known exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// The blocks as they were handed out: never too little.
    #[default]
    Largest,
    /// The least that could have led to these blocks.
    Smallest,
}

/// Where a request stands that could not be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Blocks that began and ended before it.
    pub changes_before: u64,
    /// Blocks that began before it.
    pub allocations_before: u64,
    /// Bytes of the request.
    pub size_bytes: u64,
    /// Bytes asked of the driver in the end.
    pub asked_bytes: u64,
    /// What the pool held.
    pub reserved_bytes: u64,
    /// What was in use.
    pub used_bytes: u64,
    /// Its step, zero if none.
    pub step: u64,
}

/// What came of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Most bytes held from the driver.
    pub peak_reserved_bytes: u64,
    /// Bytes in use when most were held.
    pub used_at_peak_bytes: u64,
    /// Most bytes in use.
    pub peak_used_bytes: u64,
    /// What the pool and everybody else held together at most.
    pub peak_card_bytes: u64,
    /// Calls of the driver that gave memory.
    pub driver_allocations: u64,
    /// Calls that took it back.
    pub driver_frees: u64,
    /// Times when everything unused was given back to meet a request.
    pub retries: u64,
    /// The request that could not be met; the job ends there.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// Whether the job runs to its end.
    pub fn fits(&self) -> bool {
        self.failure.is_none()
    }

    /// Calls of the driver.
    pub fn driver_calls(&self) -> u64 {
        self.driver_allocations + self.driver_frees
    }

    /// Part of what was held at the peak that nobody used.
    pub fn fragmentation(&self) -> f64 {
        match self.peak_reserved_bytes {
            0 => 0.0,
            peak => 1.0 - self.used_at_peak_bytes as f64 / peak as f64,
        }
    }
}

/// The conditions of a replay.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Settings of the allocator.
    pub settings: AllocatorSettings,
    /// Bytes of the card; without, it never runs out.
    pub card_bytes: Option<u64>,
    /// How inexact sizes are read.
    pub sizes: Sizes,
}

/// Runs all requests.
pub fn replay(requests: &Requests, conditions: &Conditions) -> Outcome {
    replay_watched(requests, conditions, |_, _| {})
}

/// Runs all requests and tells what is in use and held after each block that begins or ends.
pub fn replay_watched(requests: &Requests, conditions: &Conditions, mut watch: impl FnMut(u64, u64)) -> Outcome {
    let mut allocator = Allocator::new(&conditions.settings, conditions.card_bytes);
    let mut blocks: Vec<BlockNumber> = Vec::new();
    let mut outcome = Outcome::default();
    let (mut changes, mut allocations, mut outside_bytes) = (0, 0, 0);
    for (position, request) in requests.list.iter().enumerate() {
        match request.kind {
            RequestKind::Allocate => {
                let slack_bytes = match conditions.sizes {
                    Sizes::Largest => 0,
                    Sizes::Smallest => u64::from(request.slack_granules) * GRANULE_BYTES,
                };
                let size_bytes = (request.size_bytes - slack_bytes).max(GRANULE_BYTES);
                match allocator.allocate(size_bytes, u16::from(request.stream)) {
                    Ok(block) => {
                        let slot = request.slot as usize;
                        if blocks.len() <= slot {
                            blocks.resize(slot + 1, BlockNumber::MAX);
                        }
                        blocks[slot] = block;
                    }
                    Err(refusal) => {
                        outcome.failure = Some(Failure {
                            changes_before: changes,
                            allocations_before: allocations,
                            size_bytes,
                            asked_bytes: refusal.asked_bytes,
                            reserved_bytes: allocator.reserved_bytes,
                            used_bytes: allocator.used_bytes,
                            step: requests.step_at(position),
                        });
                        break;
                    }
                }
                changes += 1;
                allocations += 1;
                if allocator.reserved_bytes > outcome.peak_reserved_bytes {
                    outcome.peak_reserved_bytes = allocator.reserved_bytes;
                    outcome.used_at_peak_bytes = allocator.used_bytes;
                }
                if allocator.reserved_bytes == outcome.peak_reserved_bytes {
                    outcome.used_at_peak_bytes = outcome.used_at_peak_bytes.max(allocator.used_bytes);
                }
                outcome.peak_used_bytes = outcome.peak_used_bytes.max(allocator.used_bytes);
                outcome.peak_card_bytes = outcome.peak_card_bytes.max(allocator.reserved_bytes + outside_bytes);
            }
            kind @ (RequestKind::Free | RequestKind::FreeLater) => {
                // A block that was there before the recording has no number here.
                if let Some(block) = blocks.get_mut(request.slot as usize)
                    && *block != BlockNumber::MAX
                {
                    match kind {
                        RequestKind::Free => allocator.free(*block),
                        _ => allocator.free_later(*block, request.size_bytes),
                    }
                    *block = BlockNumber::MAX;
                }
                changes += 1;
            }
            RequestKind::Release => {
                allocator.release_waiting(request.size_bytes);
                continue;
            }
            RequestKind::Refused => {
                if let Ok(block) = allocator.allocate(request.size_bytes, u16::from(request.stream)) {
                    allocator.free(block);
                }
                continue;
            }
            RequestKind::EmptyCache => {
                allocator.empty_cache();
                continue;
            }
            RequestKind::Outside => {
                outside_bytes = request.size_bytes;
                allocator.driver.set_outside(outside_bytes);
                continue;
            }
        }
        watch(allocator.used_bytes, allocator.reserved_bytes);
    }
    outcome.driver_allocations = allocator.driver.allocations;
    outcome.driver_frees = allocator.driver.frees;
    outcome.retries = allocator.retries;
    outcome
}

impl Requests {
    /// The step in which a request was made, zero if in none.
    fn step_at(&self, position: usize) -> u64 {
        let next = self.steps.partition_point(|step| step.first_request <= position);
        next.checked_sub(1).map_or(0, |index| self.steps[index].step)
    }
}
