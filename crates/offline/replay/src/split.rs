//! Follows the free blocks of the recorded pool by their addresses. They show two things that no recording says:
//!
//! * Which blocks were handed out whole, and how much smaller than such a block its request may have been.
//! * Which blocks the pool could not use again for a while after they were freed, because another stream still worked on
//!   them (`record_stream`): a request got something else although such a block would have suited it best. That it was
//!   held back so far is certain; it is taken to be held back until a block is handed out there, or the cache is emptied.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::allocator::{ALIGNED_REQUEST_BYTES, GRANULE_BYTES};
use crate::requests::most_slack_bytes;
use crate::settings::{AllocatorSettings, SMALL_BYTES};

/// Blocks that are taken to be held back because of one request, at most: if that does not explain it, nothing will.
const MOST_EXPLANATIONS: usize = 64;

/// Requests that may share free blocks: those of one stream that are small, or large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Class {
    stream: u8,
    is_small: bool,
}

impl Class {
    fn of(size_bytes: u64, stream: u8) -> Self {
        Self { stream, is_small: size_bytes <= SMALL_BYTES }
    }
}

/// A part of a segment that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FreeRegion {
    size_bytes: u64,
    class: Class,
}

/// A block that was freed, and that nothing was handed out of since.
#[derive(Clone, Copy, Debug)]
struct Piece {
    size_bytes: u64,
    /// The request that freed it.
    request: usize,
}

/// A block that is held back.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    size_bytes: u64,
    class: Class,
    number: u64,
}

/// What is found out when a block is handed out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// How much smaller than the block its request may have been.
    pub(crate) slack_bytes: u64,
    /// Requests that freed blocks which are held back since, with numbers for these.
    pub(crate) held_back: Vec<(usize, u64)>,
    /// Numbers of blocks that are held back no longer.
    pub(crate) released: Vec<u64>,
}

/// Free parts of the segments of a pool, as they lie.
#[derive(Debug)]
pub(crate) struct FreeRegions {
    settings: AllocatorSettings,
    /// Sizes of segments by address, unless they are expandable.
    segments: BTreeMap<u64, u64>,
    /// Free regions by address.
    free: BTreeMap<u64, FreeRegion>,
    /// The same by class and size.
    by_size: BTreeSet<(Class, u64, u64)>,
    /// What free regions were joined of, by address.
    pieces: BTreeMap<u64, Piece>,
    /// Blocks that are held back, by address.
    waiting: BTreeMap<u64, Waiting>,
    held_back_so_far: u64,
    /// Free regions that went back to the driver since the last block came or went.
    gone: Vec<(Class, u64)>,
    /// Behind the last block so far. What follows may grow if segments are expandable.
    ends: FxHashMap<Class, u64>,
}

impl FreeRegions {
    pub(crate) fn new(settings: &AllocatorSettings) -> Self {
        Self {
            settings: settings.clone(),
            segments: BTreeMap::new(),
            free: BTreeMap::new(),
            by_size: BTreeSet::new(),
            pieces: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held_back_so_far: 0,
            gone: Vec::new(),
            ends: FxHashMap::default(),
        }
    }

    /// The driver gave memory; whether to this pool will show when a block of the pool lies in it.
    pub(crate) fn add_segment(&mut self, address: u64, size_bytes: u64) {
        self.segments.insert(address, size_bytes);
    }

    pub(crate) fn remove_segment(&mut self, address: u64) {
        if let Some(size_bytes) = self.segments.remove(&address) {
            if let Some(region) = self.remove_free(address) {
                self.gone.push((region.class, region.size_bytes));
            }
            let span = address..address + size_bytes;
            let pieces: Vec<u64> = self.pieces.range(span.clone()).map(|(&piece, _)| piece).collect();
            pieces.iter().for_each(|piece| _ = self.pieces.remove(piece));
            let waiting: Vec<u64> = self.waiting.range(span).map(|(&waiting, _)| waiting).collect();
            waiting.iter().for_each(|waiting| _ = self.waiting.remove(waiting));
        }
    }

    /// The pool has given back what nobody uses, after it has waited for all streams. Gives the numbers of blocks that
    /// were held back until then.
    pub(crate) fn empty_cache(&mut self) -> Vec<u64> {
        let waiting = std::mem::take(&mut self.waiting);
        let released = waiting.values().map(|waiting| waiting.number).collect();
        if self.settings.expandable_segments {
            // Which parts have memory behind them is not known any more.
            self.free.clear();
            self.by_size.clear();
            self.pieces.clear();
        } else {
            for (address, Waiting { size_bytes, class, .. }) in waiting {
                self.join(address, size_bytes, class);
            }
        }
        released
    }

    /// Whether a request could have been met without the driver, before memory went back to it.
    pub(crate) fn had_room(&self, size_bytes: u64, stream: u8) -> bool {
        let class = Class::of(size_bytes, stream);
        let could_take =
            |&(of_class, free_bytes): &(Class, u64)| of_class == class && self.may_take(size_bytes, free_bytes);
        self.gone.iter().any(could_take) || self.better_than(None, size_bytes, class).is_some()
    }

    /// Whether more went back to the driver than a request had to have: one block that is too large to be split would do.
    pub(crate) fn gave_back_more_than_needed(&self, size_bytes: u64) -> bool {
        let is_enough = |most: u64| self.gone.iter().any(|&(_, free_bytes)| free_bytes >= size_bytes.max(most));
        self.gone.len() > 1 && self.settings.max_split_bytes.is_some_and(is_enough)
    }

    /// Whether a request may have a free region of some size.
    fn may_take(&self, size_bytes: u64, free_bytes: u64) -> bool {
        let is_allowed = match self.settings.max_split_bytes {
            Some(most) if size_bytes < most => free_bytes < most,
            Some(_) => free_bytes < size_bytes.saturating_add(self.settings.max_non_split_rounding_bytes),
            None => true,
        };
        is_allowed && free_bytes >= size_bytes
    }

    /// A block was handed out.
    pub(crate) fn take(&mut self, address: u64, size_bytes: u64, stream: u8) -> Taken {
        let mut taken = Taken::default();
        self.gone.clear();
        let class = Class::of(size_bytes, stream);
        self.release_below(address, size_bytes, &mut taken);
        self.explain(address, size_bytes, class, &mut taken);
        taken.slack_bytes = self.take_out(address, size_bytes, class);
        let end = self.ends.entry(class).or_default();
        *end = (*end).max(address + size_bytes);
        taken
    }

    /// What lies where a block is handed out waits no longer.
    fn release_below(&mut self, address: u64, size_bytes: u64, taken: &mut Taken) {
        while let Some((&start, waiting)) = self.waiting.range(..address + size_bytes).next_back()
            && start + waiting.size_bytes > address
        {
            self.release(start, taken);
        }
    }

    fn release(&mut self, address: u64, taken: &mut Taken) {
        if let Some(Waiting { size_bytes, class, number }) = self.waiting.remove(&address) {
            taken.released.push(number);
            self.join(address, size_bytes, class);
        }
    }

    /// Finds out which blocks must have been held back, or no longer been so, for this one to be handed out.
    fn explain(&mut self, address: u64, size_bytes: u64, class: Class, taken: &mut Taken) {
        for _ in 0..MOST_EXPLANATIONS {
            if self.hold_back_before(address, size_bytes, taken) {
                continue;
            }
            let chosen = self.region_at(address).map(|(start, region)| (region.size_bytes, start));
            let Some((start, region)) = self.better_than(chosen, size_bytes, class) else { return };
            let is_better = |size_bytes| chosen.is_none_or(|(chosen_bytes, _)| size_bytes < chosen_bytes);
            let neighbours = [
                self.waiting.range(..start).next_back().filter(|(at, waiting)| *at + waiting.size_bytes == start),
                self.waiting.get_key_value(&(start + region.size_bytes)),
            ];
            let joined = neighbours
                .into_iter()
                .flatten()
                .find(|(_, waiting)| waiting.class == class && !is_better(region.size_bytes + waiting.size_bytes));
            if let Some((&neighbour, _)) = joined {
                self.release(neighbour, taken);
                continue;
            }
            let pieces = self.pieces.range(start..start + region.size_bytes);
            let too_small_without = |(at, piece): &(&u64, &Piece)| {
                let before = **at - start;
                before < size_bytes && region.size_bytes - before - piece.size_bytes < size_bytes
            };
            let suspect = pieces.clone().filter(too_small_without).max_by_key(|(_, piece)| piece.request);
            let suspect = suspect.or(pieces.max_by_key(|(_, piece)| piece.request)).map(|(&at, &piece)| (at, piece));
            let Some((at, piece)) = suspect else { return };
            self.hold_back(at, piece, start, region, taken);
        }
    }

    /// Blocks are handed out from the start of a free region: what seems to be free right before one was held back. False if
    /// there is no such block.
    fn hold_back_before(&mut self, address: u64, size_bytes: u64, taken: &mut Taken) -> bool {
        let Some((start, region)) = self.region_at(address) else { return false };
        let is_aligned = self.settings.expandable_segments && size_bytes >= ALIGNED_REQUEST_BYTES;
        let most_before = if is_aligned { self.settings.base_alignment_bytes } else { 0 };
        if address - start <= most_before {
            return false;
        }
        let Some((&at, &piece)) = self.pieces.range(start..address).next_back() else { return false };
        if at + piece.size_bytes > address {
            return false;
        }
        self.hold_back(at, piece, start, region, taken);
        true
    }

    /// The free region that the pool would have taken instead of the one that was chosen, if there was one (size and
    /// address) and not new memory.
    fn better_than(&self, chosen: Option<(u64, u64)>, size_bytes: u64, class: Class) -> Option<(u64, FreeRegion)> {
        let mut candidates = self.by_size.range((class, size_bytes, 0)..).take_while(|entry| entry.0 == class);
        let mut best = candidates.next()?;
        if self.settings.expandable_segments && self.ends.get(&class) == Some(&(best.1 + best.2)) {
            // What may grow is not taken if anything else will do.
            best = match (candidates.next(), chosen) {
                (Some(next), _) => next,
                (None, None) => best,
                (None, Some(_)) => return None,
            };
        }
        let &(_, free_bytes, address) = best;
        let is_better = chosen.is_none_or(|chosen| (free_bytes, address) < chosen);
        (is_better && self.may_take(size_bytes, free_bytes))
            .then_some((address, FreeRegion { size_bytes: free_bytes, class }))
    }

    /// Takes a piece out of the free region that it belongs to.
    fn hold_back(&mut self, at: u64, piece: Piece, start: u64, region: FreeRegion, taken: &mut Taken) {
        self.pieces.remove(&at);
        self.remove_free(start);
        let end = at + piece.size_bytes;
        if at > start {
            self.insert_free(start, at - start, region.class);
        }
        if start + region.size_bytes > end {
            self.insert_free(end, start + region.size_bytes - end, region.class);
        }
        let number = self.held_back_so_far;
        self.held_back_so_far += 1;
        self.waiting.insert(at, Waiting { size_bytes: piece.size_bytes, class: region.class, number });
        taken.held_back.push((piece.request, number));
    }

    /// The free region that an address lies in.
    fn region_at(&self, address: u64) -> Option<(u64, FreeRegion)> {
        let (&start, &region) = self.free.range(..=address).next_back()?;
        (address - start < region.size_bytes).then_some((start, region))
    }

    /// Takes a block out of the free region where it lies; says how much smaller its request may have been.
    fn take_out(&mut self, address: u64, size_bytes: u64, class: Class) -> u64 {
        let most = most_slack_bytes(&self.settings, size_bytes);
        let (start, free_bytes) = match self.region_at(address) {
            Some((start, region)) => (start, region.size_bytes),
            // The first block of a segment.
            None => match self.segments.get(&address) {
                Some(&segment_bytes) if segment_bytes >= size_bytes => (address, segment_bytes),
                _ => return most,
            },
        };
        self.remove_free(start);
        while let Some((&piece, known)) = self.pieces.range(..address + size_bytes).next_back()
            && piece + known.size_bytes > address
        {
            self.pieces.remove(&piece);
        }
        if self.settings.expandable_segments {
            while let Some((&next, _)) = self.free.range(address..address + size_bytes).next() {
                self.remove_free(next);
            }
            if address > start {
                // Alignment leaves something before the block.
                self.insert_free(start, address - start, class);
            }
        }
        let left_over = (start + free_bytes).saturating_sub(address + size_bytes);
        if left_over > 0 {
            self.insert_free(address + size_bytes, left_over, class);
        }
        if most == 0 || left_over > 0 || start != address {
            return 0;
        }
        // A smaller free block would have been taken if the request had fitted into it.
        let smaller = self.by_size.range((class, 0, 0)..(class, size_bytes, 0)).next_back();
        let next_smaller = smaller.map_or(0, |&(_, size_bytes, _)| size_bytes);
        most.min(size_bytes - next_smaller.max(SMALL_BYTES) - GRANULE_BYTES)
    }

    /// A block came back with a request.
    pub(crate) fn give_back(&mut self, address: u64, size_bytes: u64, stream: u8, request: usize) {
        self.gone.clear();
        if self.join(address, size_bytes, Class::of(size_bytes, stream)) {
            self.pieces.insert(address, Piece { size_bytes, request });
        }
    }

    /// Makes a block free and joins it with its free neighbours; false if it lies in no known segment.
    fn join(&mut self, address: u64, size_bytes: u64, class: Class) -> bool {
        let (first, last) = match self.segments.range(..=address).next_back() {
            _ if self.settings.expandable_segments => (0, u64::MAX),
            Some((&segment, &segment_bytes)) if address + size_bytes <= segment + segment_bytes => {
                (segment, segment + segment_bytes)
            }
            _ => return false,
        };
        let (mut start, mut end) = (address, address + size_bytes);
        if let Some((&before, region)) = self.free.range(first..address).next_back()
            && before + region.size_bytes == start
            && region.class == class
        {
            self.remove_free(before);
            start = before;
        }
        if end < last
            && let Some(&after) = self.free.get(&end)
            && after.class == class
        {
            self.remove_free(end);
            end += after.size_bytes;
        }
        self.insert_free(start, end - start, class);
        true
    }

    fn insert_free(&mut self, address: u64, size_bytes: u64, class: Class) {
        self.free.insert(address, FreeRegion { size_bytes, class });
        self.by_size.insert((class, size_bytes, address));
    }

    fn remove_free(&mut self, address: u64) -> Option<FreeRegion> {
        let region = self.free.remove(&address)?;
        self.by_size.remove(&(region.class, region.size_bytes, address));
        Some(region)
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
            regions.give_back(64 * MIB, smaller_bytes, other_stream, 2);
            regions.give_back(0, 40 * MIB, 0, 3);
            regions.take(0, 40 * MIB, 0).slack_bytes
        };
        assert_eq!(slack_bytes(0), MIB / 2 - GRANULE_BYTES);
        assert_eq!(slack_bytes(1), MIB);
    }

    #[test]
    fn a_block_that_nobody_gets_is_held_back_until_somebody_does() {
        let mut regions = FreeRegions::new(&AllocatorSettings::default());
        regions.add_segment(0, 40 * MIB);
        assert_eq!(regions.take(0, 40 * MIB, 0).held_back, []);
        regions.give_back(0, 40 * MIB, 0, 1);
        regions.add_segment(64 * MIB, 40 * MIB);
        assert_eq!(
            regions.take(64 * MIB, 40 * MIB, 1),
            Taken { slack_bytes: MIB, ..Taken::default() },
            "its own stream"
        );
        regions.add_segment(128 * MIB, 40 * MIB);
        assert_eq!(regions.take(128 * MIB, 40 * MIB, 0).held_back, [(1, 0)], "the first segment would have done");
        assert_eq!(regions.take(0, 40 * MIB, 0).released, [0]);
    }

    #[test]
    fn of_joined_blocks_the_one_without_which_there_is_no_room_was_held_back() {
        let mut regions = FreeRegions::new(&AllocatorSettings::default());
        regions.add_segment(0, 20 * MIB);
        let (first, second) = (6 * MIB, 14 * MIB);
        regions.take(0, first, 0);
        regions.take(first, second, 0);
        regions.give_back(first, second, 0, 2);
        regions.give_back(0, first, 0, 3);
        regions.add_segment(64 * MIB, 20 * MIB);
        assert_eq!(regions.take(64 * MIB, 9 * MIB, 0).held_back, [(2, 0)]);
        let third = regions.take(0, 5 * MIB, 0);
        assert_eq!((third.held_back, third.released), (vec![], vec![]), "what was not held back is there");
    }

    #[test]
    fn what_is_not_handed_out_first_was_held_back() {
        let mut regions = FreeRegions::new(&AllocatorSettings::default());
        regions.add_segment(0, 20 * MIB);
        regions.take(0, 4 * MIB, 0);
        regions.give_back(0, 4 * MIB, 0, 1);
        assert_eq!(regions.take(4 * MIB, 3 * MIB, 0).held_back, [(1, 0)]);
        assert_eq!(regions.take(0, 2 * MIB, 0).released, [0]);
    }

    #[test]
    fn an_emptied_cache_holds_nothing_back() {
        let mut regions = FreeRegions::new(&AllocatorSettings::default());
        for segment in 0..2 {
            regions.add_segment(segment * 64 * MIB, 40 * MIB);
            regions.take(segment * 64 * MIB, 20 * MIB, 0);
        }
        regions.give_back(0, 20 * MIB, 0, 2);
        regions.add_segment(128 * MIB, 40 * MIB);
        assert_eq!(regions.take(128 * MIB, 40 * MIB, 0).held_back, [(2, 0)]);
        assert_eq!(regions.empty_cache(), [0]);
        assert_eq!(regions.take(0, 40 * MIB, 0), Taken { slack_bytes: MIB, ..Taken::default() });
    }
}
