//! Hands out addresses (or file offsets) from one range. Freed spans are reused for the same size, as a driver's
//! caches do; fresh ones are taken from the untouched rest. Spans are never merged: the range is far larger than
//! any card, and what this costs is address space only.

use std::collections::HashMap;

/// A range of addresses with its free spans.
#[derive(Debug)]
pub struct AddressSpace {
    next: u64,
    end: u64,
    free: HashMap<(u64, u64), Vec<u64>>,
}

impl AddressSpace {
    /// The range from `start` to `end`.
    pub fn new(start: u64, end: u64) -> Self {
        Self { next: start, end, free: HashMap::new() }
    }

    /// A span of `size` rounded up to `alignment` (a power of two), starting at a multiple of it.
    pub fn take(&mut self, size: u64, alignment: u64) -> Option<u64> {
        let size = round_up(size, alignment)?;
        if let Some(address) = self.free.get_mut(&(size, alignment)).and_then(Vec::pop) {
            return Some(address);
        }
        let address = round_up(self.next, alignment)?;
        let next = address.checked_add(size)?;
        if next > self.end {
            return None;
        }
        self.next = next;
        Some(address)
    }

    /// Gives back a span taken with the same size and alignment.
    pub fn give_back(&mut self, address: u64, size: u64, alignment: u64) {
        if let Some(size) = round_up(size, alignment) {
            self.free.entry((size, alignment)).or_default().push(address);
        }
    }
}

/// `value` rounded up to a multiple of `alignment`, a power of two.
pub fn round_up(value: u64, alignment: u64) -> Option<u64> {
    Some(value.checked_add(alignment - 1)? & !(alignment - 1))
}

#[cfg(test)]
mod tests {
    use super::AddressSpace;

    #[test]
    fn spans_are_aligned_disjoint_and_reused() {
        let mut space = AddressSpace::new(0x1000, 0x10_0000);
        let small = space.take(10, 0x1000).expect("room");
        let large = space.take(0x3001, 0x4000).expect("room");
        assert_eq!((small, large), (0x1000, 0x4000));
        assert_eq!(space.take(1, 0x1000), Some(0x8000));
        space.give_back(small, 10, 0x1000);
        assert_eq!(space.take(4096, 0x1000), Some(small));
        assert_eq!(space.take(0x10_0000, 0x1000), None);
        assert_eq!(space.take(u64::MAX, 0x1000), None);
    }
}
