//! The driver below the allocator: how much a card has, what was asked of it, and which addresses it gives.
//!
//! Addresses decide which of two equally large blocks is taken first. They rise from one allocation to the next, and what
//! was given back is given again to the next who asks for the same size, the latest first.

use rustc_hash::FxHashMap;

/// Large ranges start at multiples of this.
const ALIGNMENT_BYTES: u64 = 2 << 20;
/// Where addresses start; zero is nobody's.
const FIRST_ADDRESS: u64 = 1 << 40;

/// The driver's side of one card.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    /// Bytes of the card that can be had, or the largest number if it does not matter.
    capacity_bytes: u64,
    /// Bytes that others hold: contexts, workspaces, communication, other processes.
    outside_bytes: u64,
    held_bytes: u64,
    next_address: u64,
    returned: FxHashMap<u64, Vec<u64>>,
    /// Calls that gave memory.
    pub(crate) allocations: u64,
    /// Calls that took memory back.
    pub(crate) frees: u64,
    /// Calls that were refused.
    pub(crate) refusals: u64,
}

impl Driver {
    pub(crate) fn new(capacity_bytes: Option<u64>) -> Self {
        Self {
            capacity_bytes: capacity_bytes.unwrap_or(u64::MAX),
            outside_bytes: 0,
            held_bytes: 0,
            next_address: FIRST_ADDRESS,
            returned: FxHashMap::default(),
            allocations: 0,
            frees: 0,
            refusals: 0,
        }
    }

    /// What everybody else holds from now on.
    pub(crate) fn set_outside(&mut self, outside_bytes: u64) {
        self.outside_bytes = outside_bytes;
    }

    /// Addresses without memory.
    pub(crate) fn reserve_addresses(&mut self, size_bytes: u64) -> u64 {
        let size_bytes = size_bytes.next_multiple_of(ALIGNMENT_BYTES);
        if let Some(address) = self.returned.get_mut(&size_bytes).and_then(Vec::pop) {
            return address;
        }
        let address = self.next_address;
        self.next_address += size_bytes;
        address
    }

    pub(crate) fn release_addresses(&mut self, address: u64, size_bytes: u64) {
        self.returned.entry(size_bytes.next_multiple_of(ALIGNMENT_BYTES)).or_default().push(address);
    }

    /// Memory without addresses; false if the card has none left.
    pub(crate) fn take_memory(&mut self, size_bytes: u64) -> bool {
        let wanted = self.held_bytes.saturating_add(self.outside_bytes).saturating_add(size_bytes);
        if wanted > self.capacity_bytes {
            self.refusals += 1;
            return false;
        }
        self.held_bytes += size_bytes;
        self.allocations += 1;
        true
    }

    pub(crate) fn return_memory(&mut self, size_bytes: u64) {
        self.held_bytes -= size_bytes;
        self.frees += 1;
    }

    /// Memory with addresses.
    pub(crate) fn allocate(&mut self, size_bytes: u64) -> Option<u64> {
        self.take_memory(size_bytes).then(|| self.reserve_addresses(size_bytes))
    }

    pub(crate) fn free(&mut self, address: u64, size_bytes: u64) {
        self.return_memory(size_bytes);
        self.release_addresses(address, size_bytes);
    }
}
