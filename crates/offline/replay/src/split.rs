//! Follows the free blocks of the recorded pool by their addresses, to see which blocks were handed out whole and how
//! much smaller than such a block its request may have been.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocator::{GRANULE_BYTES, SMALL_BYTES};
use crate::requests::most_slack_bytes;
use crate::settings::AllocatorSettings;

/// A part of a segment that nobody uses.
#[derive(Clone, Copy, Debug)]
struct FreeRegion {
    size_bytes: u64,
    /// The stream of its segment.
    stream: u8,
}

/// Free parts of the segments of a pool, as they lie.
#[derive(Debug)]
pub(crate) struct FreeRegions {
    settings: AllocatorSettings,
    /// Sizes of segments by address.
    segments: BTreeMap<u64, u64>,
    /// Free regions by address.
    free: BTreeMap<u64, FreeRegion>,
    /// The same by stream and size.
    by_size: BTreeSet<(u8, u64, u64)>,
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
    pub(crate) fn take(&mut self, address: u64, size_bytes: u64, stream: u8) -> u64 {
        let most = most_slack_bytes(&self.settings, size_bytes);
        let found = self.free.range(..=address).next_back().map(|(&start, region)| (start, region.size_bytes));
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
            self.insert_free(address + size_bytes, left_over, stream);
        }
        if most == 0 || left_over > 0 || start != address {
            return 0;
        }
        // A smaller free block would have been taken if the request had fitted into it.
        let smaller = self.by_size.range((stream, 0, 0)..(stream, size_bytes, 0)).next_back();
        let next_smaller = smaller.map_or(0, |&(_, size_bytes, _)| size_bytes);
        most.min(size_bytes - next_smaller.max(SMALL_BYTES) - GRANULE_BYTES)
    }

    /// A block came back.
    pub(crate) fn give_back(&mut self, address: u64, size_bytes: u64, stream: u8) {
        let Some((&segment, &segment_bytes)) = self.segments.range(..=address).next_back() else { return };
        if address + size_bytes > segment + segment_bytes {
            return;
        }
        let (mut start, mut end) = (address, address + size_bytes);
        if let Some((&before, region)) = self.free.range(segment..address).next_back()
            && before + region.size_bytes == start
        {
            self.remove_free(before);
            start = before;
        }
        if end < segment + segment_bytes
            && let Some(&after) = self.free.get(&end)
        {
            self.remove_free(end);
            end += after.size_bytes;
        }
        self.insert_free(start, end - start, stream);
    }

    fn insert_free(&mut self, address: u64, size_bytes: u64, stream: u8) {
        self.free.insert(address, FreeRegion { size_bytes, stream });
        self.by_size.insert((stream, size_bytes, address));
    }

    fn remove_free(&mut self, address: u64) {
        if let Some(FreeRegion { size_bytes, stream }) = self.free.remove(&address) {
            self.by_size.remove(&(stream, size_bytes, address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A free block of another stream says nothing about the size of a request.
    #[test]
    fn sizes_are_learned_from_the_free_blocks_of_the_stream() {
        let slack_bytes = |other_stream: u8| {
            let mut regions = FreeRegions::new(&AllocatorSettings::default());
            let smaller_bytes = 40 * MIB - MIB / 2;
            regions.add_segment(0, 40 * MIB);
            regions.add_segment(64 * MIB, smaller_bytes);
            regions.take(0, 40 * MIB, 0);
            regions.take(64 * MIB, smaller_bytes, other_stream);
            regions.give_back(64 * MIB, smaller_bytes, other_stream);
            regions.give_back(0, 40 * MIB, 0);
            regions.take(0, 40 * MIB, 0)
        };
        assert_eq!(slack_bytes(0), MIB / 2 - GRANULE_BYTES);
        assert_eq!(slack_bytes(1), MIB);
    }
}
