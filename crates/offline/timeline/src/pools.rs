//! How much each pool uses and holds on each device, by the rules of each pool.
//!
//! | pool | heap registered | heap withdrawn | block begins | block ends |
//! |---|---|---|---|---|
//! | PyTorch caching, MindSpore | total becomes its size | total falls by its size | used grows | used falls |
//! | PyTorch workspace | total becomes its size | total falls by its size | used becomes its size | used falls |
//! | ATB | total grows by its size | total falls by its size | used grows | used falls |
//! | others | | | used grows | used falls |
//!
//! Blocks begin here when they are recorded: those allocated while recording is not on begin at its next start, if
//! they are still alive. So all numbers speak of the recorded scopes, as the files of a recording do.

use msmemscope_event::{Device, Pool, SnapshotNumbers};
use rustc_hash::FxHashMap;

use crate::summary::PoolSummary;

const POOL_CODES: usize = 8;
const DEVICE_CODES: usize = 4096;
const NO_SLOT: u16 = u16::MAX;

/// One pool on one device.
#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    summary: PoolSummary,
    heaps: u32,
    /// What the pool holds; the summary knows what it held when it was last recorded.
    held_bytes: u64,
}

impl PoolState {
    fn new(pool: Pool, device: Device) -> Self {
        Self { summary: PoolSummary::unused(pool, device), heaps: 0, held_bytes: 0 }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.summary.end_used_bytes
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.summary.end_total_bytes
    }

    /// The numbers of the pool as a framework would tell them.
    pub(crate) fn snapshot(&self) -> SnapshotNumbers {
        SnapshotNumbers {
            reserved_bytes: self.summary.end_total_bytes,
            maximum_reserved_bytes: self.summary.peak_total_bytes,
            allocated_bytes: self.summary.end_used_bytes,
            maximum_allocated_bytes: self.summary.peak_used_bytes,
            ..SnapshotNumbers::default()
        }
    }

    #[inline]
    pub(crate) fn block_begins(&mut self, size_bytes: u64, timestamp_ns: u64) {
        let summary = &mut self.summary;
        summary.end_used_bytes = match summary.pool {
            Pool::PytorchWorkspace => size_bytes,
            _ => summary.end_used_bytes.saturating_add(size_bytes),
        };
        if summary.end_used_bytes > summary.peak_used_bytes {
            summary.peak_used_bytes = summary.end_used_bytes;
            summary.peak_timestamp_ns = timestamp_ns;
        }
        summary.allocations += 1;
        summary.allocated_bytes = summary.allocated_bytes.saturating_add(size_bytes);
    }

    #[inline]
    pub(crate) fn block_ends(&mut self, size_bytes: u64, residual: bool) {
        let summary = &mut self.summary;
        summary.clamped_frees += u64::from(size_bytes > summary.end_used_bytes);
        summary.end_used_bytes = summary.end_used_bytes.saturating_sub(size_bytes);
        if residual {
            summary.residual_blocks += 1;
        } else {
            summary.frees += 1;
        }
    }

    fn hold(&mut self, held_bytes: u64, is_recording: bool) {
        self.held_bytes = held_bytes;
        if is_recording {
            self.tell_held();
        }
    }

    fn tell_held(&mut self) {
        self.summary.end_total_bytes = self.held_bytes;
        self.summary.peak_total_bytes = self.summary.peak_total_bytes.max(self.held_bytes);
    }
}

/// All pools on all devices.
#[derive(Debug)]
pub(crate) struct PoolBook {
    states: Vec<PoolState>,
    slots: Vec<u16>,
    /// Heaps by pool and address, with the device and size they were registered with.
    heaps: FxHashMap<(Pool, u64), (Device, u64)>,
    /// Whether recording is on; heaps change also while it is not, which shows when it is on again.
    is_recording: bool,
}

impl PoolBook {
    pub(crate) fn new() -> Self {
        let slots = vec![NO_SLOT; POOL_CODES * DEVICE_CODES];
        Self { states: Vec::new(), slots, heaps: FxHashMap::default(), is_recording: true }
    }

    /// Recording begins or pauses. What pools hold at a start counts.
    pub(crate) fn recording(&mut self, is_on: bool) {
        self.is_recording = is_on;
        if is_on {
            self.states.iter_mut().for_each(PoolState::tell_held);
        }
    }

    /// The state of a pool on a device.
    #[inline]
    pub(crate) fn state(&mut self, pool: Pool, device: Device) -> &mut PoolState {
        let slot = &mut self.slots[pool as usize * DEVICE_CODES + device.code() as usize];
        if *slot == NO_SLOT {
            *slot = self.states.len() as u16;
            self.states.push(PoolState::new(pool, device));
        }
        &mut self.states[usize::from(*slot)]
    }

    /// A heap was registered.
    #[inline]
    pub(crate) fn heap_registered(&mut self, pool: Pool, device: Device, address: u64, size_bytes: u64) {
        let replaced = self.heaps.insert((pool, address), (device, size_bytes));
        let is_recording = self.is_recording;
        if pool != Pool::Atb {
            self.state(pool, device).hold(size_bytes, is_recording);
            return;
        }
        if let Some((old_device, old_size_bytes)) = replaced {
            self.withdraw(pool, old_device, old_size_bytes);
        }
        let state = self.state(pool, device);
        state.heaps += 1;
        state.hold(state.held_bytes.saturating_add(size_bytes), is_recording);
    }

    /// A heap was withdrawn. Returns false if nobody had registered it.
    pub(crate) fn heap_unregistered(&mut self, pool: Pool, address: u64) -> bool {
        match self.heaps.remove(&(pool, address)) {
            Some((device, size_bytes)) => {
                self.withdraw(pool, device, size_bytes);
                true
            }
            None => false,
        }
    }

    fn withdraw(&mut self, pool: Pool, device: Device, size_bytes: u64) {
        let is_recording = self.is_recording;
        let state = self.state(pool, device);
        state.heaps = state.heaps.saturating_sub(1);
        state.hold(state.held_bytes.saturating_sub(size_bytes), is_recording);
    }

    /// Whether a device has a heap of this pool.
    pub(crate) fn has_heap(&mut self, pool: Pool, device: Device) -> bool {
        self.state(pool, device).heaps > 0
    }

    /// Results in pool and device order; pools that were only asked about are left out.
    pub(crate) fn into_summaries(self) -> Vec<PoolSummary> {
        let mut summaries: Vec<PoolSummary> = self
            .states
            .into_iter()
            .map(|state| state.summary)
            .filter(|summary| summary.allocations > 0 || summary.peak_total_bytes > 0)
            .collect();
        summaries.sort_by_key(|summary| (summary.pool, summary.device));
        summaries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device::Npu(0);

    #[test]
    fn caching_and_mindspore_heaps_say_the_total() {
        for pool in [Pool::PytorchCaching, Pool::Mindspore, Pool::PytorchWorkspace] {
            let mut book = PoolBook::new();
            book.heap_registered(pool, DEVICE, 0x10, 500);
            book.heap_registered(pool, DEVICE, 0x20, 300);
            assert_eq!(book.state(pool, DEVICE).total_bytes(), 300);
            assert!(book.heap_unregistered(pool, 0x10));
            assert_eq!(book.state(pool, DEVICE).total_bytes(), 0, "500 taken from 300 stops at zero");
            assert!(!book.heap_unregistered(pool, 0x10), "a second withdrawal is not known");
        }
    }

    #[test]
    fn atb_heaps_add_up_per_device() {
        let mut book = PoolBook::new();
        assert!(!book.has_heap(Pool::Atb, DEVICE));
        book.heap_registered(Pool::Atb, DEVICE, 0x10, 500);
        book.heap_registered(Pool::Atb, DEVICE, 0x20, 300);
        assert!(book.has_heap(Pool::Atb, DEVICE));
        assert!(!book.has_heap(Pool::Atb, Device::Npu(1)));
        assert_eq!(book.state(Pool::Atb, DEVICE).total_bytes(), 800);
        assert!(book.heap_unregistered(Pool::Atb, 0x10));
        assert_eq!(book.state(Pool::Atb, DEVICE).total_bytes(), 300);
    }

    #[test]
    fn an_atb_heap_registered_twice_counts_once() {
        let mut book = PoolBook::new();
        book.heap_registered(Pool::Atb, DEVICE, 0x10, 500);
        book.heap_registered(Pool::Atb, DEVICE, 0x10, 700);
        assert_eq!(book.state(Pool::Atb, DEVICE).total_bytes(), 700);
        book.heap_unregistered(Pool::Atb, 0x10);
        assert!(!book.has_heap(Pool::Atb, DEVICE));
    }

    #[test]
    fn workspace_use_is_assigned_and_others_add() {
        let mut book = PoolBook::new();
        for (pool, expected) in [(Pool::PytorchWorkspace, 30), (Pool::PytorchCaching, 130), (Pool::Hal, 130)] {
            let state = book.state(pool, DEVICE);
            state.block_begins(100, 1);
            state.block_begins(30, 2);
            assert_eq!(state.used_bytes(), expected);
        }
    }

    #[test]
    fn use_never_becomes_negative() {
        let mut book = PoolBook::new();
        let state = book.state(Pool::PytorchWorkspace, DEVICE);
        state.block_begins(100, 1);
        state.block_begins(30, 2);
        state.block_ends(100, false);
        assert_eq!(state.used_bytes(), 0);
        assert_eq!(state.summary.clamped_frees, 1);
    }

    #[test]
    fn the_peak_is_the_first_time_it_was_reached() {
        let mut book = PoolBook::new();
        let state = book.state(Pool::Hal, DEVICE);
        state.block_begins(100, 5);
        state.block_ends(100, false);
        state.block_begins(100, 9);
        let summaries = book.into_summaries();
        assert_eq!((summaries[0].peak_used_bytes, summaries[0].peak_timestamp_ns), (100, 5));
        assert_eq!((summaries[0].end_used_bytes, summaries[0].live_blocks()), (100, 1));
    }
}
