//! Follows the free blocks of the recorded pool by their addresses, to see which blocks were handed out whole and how
//! much smaller than such a block its request may have been.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocator::{GRANULE_BYTES, SMALL_BYTES};
use crate::requests::most_slack_bytes;
use crate::settings::AllocatorSettings;

/// Free parts of the segments of a pool, as they lie.
#[derive(Debug)]
pub(crate) struct FreeRegions {
    settings: AllocatorSettings,
    /// Sizes of segments by address.
    segments: BTreeMap<u64, u64>,
    /// Sizes of free regions by address.
    free: BTreeMap<u64, u64>,
    /// The same by size.
    by_size: BTreeSet<(u64, u64)>,
}

impl FreeRegions {
    pub(crate) fn new(settings: &AllocatorSettings) -> Self {
        Self { settings: settings.clone(), segments: BTreeMap::new(), free: BTreeMap::new(), by_size: BTreeSet::new() }
    }

    /// The driver gave memory; whether to this pool will show when a block of the pool lies in it.
    pub(crate) fn add_segment(&mut self, address: u64, size_bytes: u64) {
        self.segments.insert(address, size_bytes);
    }

    pub(crate) fn remove_segment(&mut self, address: u64) {
        if self.segments.remove(&address).is_some() {
            self.remove_free(address);
        }
    }

    /// A block was handed out; says how much smaller its request may have been.
    pub(crate) fn take(&mut self, address: u64, size_bytes: u64) -> u64 {
        let most = most_slack_bytes(&self.settings, size_bytes);
        let found = self.free.range(..=address).next_back().map(|(&start, &size)| (start, size));
        let (start, free_bytes) = match found {
            Some((start, free_bytes)) if address - start < free_bytes => (start, free_bytes),
            // The first block of a segment.
            _ => match self.segments.get(&address) {
                Some(&segment_bytes) if segment_bytes >= size_bytes => (address, segment_bytes),
                _ => return most,
            },
        };
        self.remove_free(start);
        let left_over = (start + free_bytes).saturating_sub(address + size_bytes);
        if left_over > 0 {
            self.insert_free(address + size_bytes, left_over);
        }
        if most == 0 || left_over > 0 || start != address {
            return 0;
        }
        // A smaller free block would have been taken if the request had fitted into it.
        let next_smaller = self.by_size.range(..(size_bytes, 0)).next_back().map_or(0, |&(size, _)| size);
        most.min(size_bytes - next_smaller.max(SMALL_BYTES) - GRANULE_BYTES)
    }

    /// A block came back.
    pub(crate) fn give_back(&mut self, address: u64, size_bytes: u64) {
        let Some((&segment, &segment_bytes)) = self.segments.range(..=address).next_back() else { return };
        if address + size_bytes > segment + segment_bytes {
            return;
        }
        let (mut start, mut end) = (address, address + size_bytes);
        if let Some((&before, &before_bytes)) = self.free.range(segment..address).next_back()
            && before + before_bytes == start
        {
            self.remove_free(before);
            start = before;
        }
        if end < segment + segment_bytes
            && let Some(&after_bytes) = self.free.get(&end)
        {
            self.remove_free(end);
            end += after_bytes;
        }
        self.insert_free(start, end - start);
    }

    fn insert_free(&mut self, address: u64, size_bytes: u64) {
        self.free.insert(address, size_bytes);
        self.by_size.insert((size_bytes, address));
    }

    fn remove_free(&mut self, address: u64) {
        if let Some(size_bytes) = self.free.remove(&address) {
            self.by_size.remove(&(size_bytes, address));
        }
    }
}
