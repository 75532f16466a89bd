//! What one pass found out besides its events: numbers for the terminal and for `info`.

use msmemscope_event::{Device, Pool};

/// Use of one pool on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSummary {
    /// The pool.
    pub pool: Pool,
    /// Physical device.
    pub device: Device,
    /// Most bytes in use at once while recording was on.
    pub peak_used_bytes: u64,
    /// When that was first reached, wall clock.
    pub peak_timestamp_ns: u64,
    /// Bytes in use at the end, before blocks still alive were closed; blocks of the recorded scopes only.
    pub end_used_bytes: u64,
    /// Most bytes the pool held at once, as far as it said.
    pub peak_total_bytes: u64,
    /// Bytes the pool held at the end of the last scope.
    pub end_total_bytes: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Bytes of all blocks allocated.
    pub allocated_bytes: u64,
    /// Blocks closed because their address was allocated again without a free.
    pub residual_blocks: u64,
    /// Frees that would have made `used` negative; it was kept at zero.
    pub clamped_frees: u64,
}

impl PoolSummary {
    /// Of a pool that has had no blocks.
    pub fn unused(pool: Pool, device: Device) -> Self {
        Self {
            pool,
            device,
            peak_used_bytes: 0,
            peak_timestamp_ns: 0,
            end_used_bytes: 0,
            peak_total_bytes: 0,
            end_total_bytes: 0,
            allocations: 0,
            frees: 0,
            allocated_bytes: 0,
            residual_blocks: 0,
            clamped_frees: 0,
        }
    }

    /// Blocks alive at the end.
    pub fn live_blocks(&self) -> u64 {
        self.allocations - self.frees - self.residual_blocks
    }
}

/// What one pass found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Process that was recorded.
    pub process_id: u32,
    /// Facts read.
    pub facts: u64,
    /// Events that passed the filters. That a process ends, and its blocks with it, is none.
    pub events_shown: u64,
    /// Events that the filters hid.
    pub events_hidden: u64,
    /// Time of the first event, wall clock; zero if there was none.
    pub first_timestamp_ns: u64,
    /// Time of the last event, wall clock.
    pub last_timestamp_ns: u64,
    /// Use per pool and device, in pool order.
    pub pools: Vec<PoolSummary>,
    /// Allocation ids given out.
    pub allocation_ids: u64,
    /// Steps begun.
    pub steps: u64,
    /// The highest number of a step.
    pub latest_step: u64,
    /// `step start` ranges inside an open step of their device; they do not count.
    pub nested_steps: u64,
    /// Steps told by the source that did not come first; they do not count.
    pub steps_of_other_source: u64,
    /// Frees of addresses that no live block has, per pool.
    pub unknown_frees: Vec<(Pool, u64)>,
    /// Heaps withdrawn that were never registered.
    pub unknown_heaps: u64,
    /// ATB regions on a device without heap; ATB's protocol says they do not count.
    pub regions_without_heap: u64,
    /// Accesses that no live block holds.
    pub unknown_accesses: u64,
    /// Blocks allocated and freed while recording was not on.
    pub shadow_only_blocks: u64,
    /// Blocks of the recorded scopes alive at the end.
    pub live_blocks: u64,
    /// Operators of PyTorch that ran on an NPU.
    pub pytorch_operators: u64,
    /// Kernels launched.
    pub kernels_launched: u64,
    /// Kernels of which a card said that they have ended.
    pub kernels_ended: u64,
    /// Allocations the driver refused.
    pub failed_allocations: u64,
    /// Frees the driver refused.
    pub failed_frees: u64,
    /// Python calls that ended without having begun.
    pub unmatched_python_ends: u64,
    /// Facts of kinds this version does not know.
    pub unknown_facts: u64,
}

impl Summary {
    /// Frees of unknown addresses in all pools.
    pub fn unknown_free_count(&self) -> u64 {
        self.unknown_frees.iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn count_unknown_free(&mut self, pool: Pool) {
        match self.unknown_frees.iter_mut().find(|(known, _)| *known == pool) {
            Some((_, count)) => *count += 1,
            None => self.unknown_frees.push((pool, 1)),
        }
    }
}
