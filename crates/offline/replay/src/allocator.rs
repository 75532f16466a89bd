//! A model of torch_npu's caching allocator on one card: which block a request gets, when the driver is asked, and what is
//! given back to it.
//!
//! Only sizes and addresses, no memory. The rules, as far as they decide what is reserved:
//!
//! * Requests up to 1 MiB and larger ones have pools of their own, and so has every stream.
//! * A request gets the smallest free block that is large enough, of equal ones the one with the lowest address. What is
//!   left over is split off: in the pool of small blocks from 512 bytes on, in the other one if it is more than 1 MiB.
//! * If there is none, the driver is asked: 2 MiB for small requests, 20 MiB below 10 MiB, else multiples of 2 MiB.
//! * If the driver refuses, cached blocks that nobody uses any part of are given back, and it is asked once more.
//! * A freed block is joined with its free neighbours.
//! * A block that another stream still works on (`record_stream`) joins them when that has done with it, or when
//!   everything unused is given back: then it is waited for.
//! * With expandable segments there is one long range of addresses per pool and stream, into which memory is mapped in
//!   pieces of 2 or 20 MiB, at the lowest address where the request finds room.

use std::collections::{BTreeMap, BTreeSet};

use crate::driver::Driver;
use crate::settings::{AllocatorSettings, MIB, SMALL_BYTES, SMALL_SEGMENT_BYTES};

/// Smallest block and unit of all sizes.
pub(crate) const GRANULE_BYTES: u64 = 512;
/// Requests from here on are aligned in expandable segments.
pub(crate) const ALIGNED_REQUEST_BYTES: u64 = 2 * MIB;
/// Size of a card if nobody says it; only the length of address ranges depends on it.
const ASSUMED_CARD_BYTES: u64 = 1 << 40;

/// Names a block of the allocator.
pub(crate) type BlockNumber = u32;
const NO_BLOCK: BlockNumber = BlockNumber::MAX;
/// Not part of an expandable segment.
const NOT_EXPANDABLE: u64 = 0;

/// What is known of a piece of memory.
#[derive(Clone, Copy, Debug)]
struct Block {
    address: u64,
    size_bytes: u64,
    /// Neighbours in its segment.
    previous: BlockNumber,
    next: BlockNumber,
    pool: u32,
    state: State,
    /// First address of its expandable segment.
    range_start: u64,
    /// Searches it has waited for, up to when it was last put into its pool.
    age: u64,
    /// Searches of its kind of pool when it was last put there.
    waits_since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Used,
    /// Addresses without memory.
    Unmapped,
}

/// Free blocks of one kind of requests of one stream.
#[derive(Clone, Debug, Default)]
struct Pool {
    /// By size and address.
    free: BTreeSet<(u64, u64, BlockNumber)>,
    /// By address.
    unmapped: BTreeSet<(u64, BlockNumber)>,
}

/// The card has no memory left for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory {
    /// What was asked of the driver in the end.
    pub(crate) asked_bytes: u64,
}

/// The allocator of one card.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    settings: AllocatorSettings,
    max_split_bytes: u64,
    card_bytes: u64,
    /// Limit of what may be reserved, if one is set.
    allowed_bytes: Option<u64>,
    pub(crate) driver: Driver,
    blocks: Vec<Block>,
    vacant: Vec<BlockNumber>,
    /// By stream and kind: `2 * stream` has small blocks, the next one large ones.
    pools: Vec<Pool>,
    /// Blocks that were freed and cannot be used again yet, by their numbers.
    waiting: BTreeMap<u64, BlockNumber>,
    /// Searches in pools of small and of large blocks.
    searches: [u64; 2],
    pub(crate) reserved_bytes: u64,
    pub(crate) used_bytes: u64,
    /// Requests that were met only after everything unused was given back.
    pub(crate) retries: u64,
}

impl Allocator {
    pub(crate) fn new(settings: &AllocatorSettings, card_bytes: Option<u64>) -> Self {
        let card = card_bytes.unwrap_or(ASSUMED_CARD_BYTES);
        let allowed = (settings.memory_fraction < 1.0).then_some((settings.memory_fraction * card as f64) as u64);
        Self {
            settings: settings.clone(),
            max_split_bytes: settings.max_split_bytes.unwrap_or(u64::MAX),
            card_bytes: card,
            allowed_bytes: allowed,
            driver: Driver::new(card_bytes),
            blocks: Vec::new(),
            vacant: Vec::new(),
            pools: Vec::new(),
            waiting: BTreeMap::new(),
            searches: [0; 2],
            reserved_bytes: 0,
            used_bytes: 0,
            retries: 0,
        }
    }

    /// Hands out a block of at least this size, a multiple of 512.
    pub(crate) fn allocate(&mut self, size_bytes: u64, stream: u16) -> Result<BlockNumber, OutOfMemory> {
        let size_bytes = self.settings.rounded(size_bytes);
        let pool = usize::from(stream) * 2 + usize::from(size_bytes > SMALL_BYTES);
        if self.pools.len() <= pool {
            self.pools.resize_with(pool + 1, Pool::default);
        }
        let segment_bytes = self.settings.segment_bytes(size_bytes);
        let found = match self.find_free(pool, size_bytes) {
            Some(block) => block,
            None => self.block_from_driver(pool, size_bytes, segment_bytes)?,
        };
        let aligned = self.align(found, size_bytes);
        let block = self.split(aligned, size_bytes);
        self.blocks[block as usize].state = State::Used;
        self.used_bytes += self.blocks[block as usize].size_bytes;
        Ok(block)
    }

    /// The best free block, taken out of its pool.
    #[inline]
    fn find_free(&mut self, pool: usize, size_bytes: u64) -> Option<BlockNumber> {
        self.searches[pool % 2] += 1;
        let entries = &self.pools[pool].free;
        let mut candidates = entries.range((size_bytes, 0, 0)..);
        let mut best = *candidates.next()?;
        if self.settings.expandable_segments {
            // The block at the end of the mapped part counts as large as it could become.
            for &next in candidates {
                if self.possible_bytes(next.2) >= self.possible_bytes(best.2) {
                    break;
                }
                best = next;
            }
        }
        let is_oversize = best.0 >= self.max_split_bytes;
        if size_bytes < self.max_split_bytes && is_oversize
            || size_bytes >= self.max_split_bytes
                && best.0 >= size_bytes.saturating_add(self.settings.max_non_split_rounding_bytes)
        {
            return None;
        }
        self.pools[pool].free.remove(&best);
        self.blocks[best.2 as usize].age = 0;
        Some(best.2)
    }

    /// The size of a free block with the addresses without memory behind it.
    fn possible_bytes(&self, block: BlockNumber) -> u64 {
        let block = &self.blocks[block as usize];
        match self.blocks.get(block.next as usize) {
            Some(next) if next.state == State::Unmapped => block.size_bytes + next.size_bytes,
            _ => block.size_bytes,
        }
    }

    /// Asks the driver, giving back what is unused if need be.
    #[cold]
    fn block_from_driver(
        &mut self,
        pool: usize,
        size_bytes: u64,
        segment_bytes: u64,
    ) -> Result<BlockNumber, OutOfMemory> {
        self.collect_garbage();
        if let Some(block) = self.new_block(pool, size_bytes, segment_bytes) {
            return Ok(block);
        }
        if self.release_oversize(pool, size_bytes)
            && let Some(block) = self.new_block(pool, size_bytes, segment_bytes)
        {
            return Ok(block);
        }
        self.empty_cache();
        self.retries += 1;
        self.new_block(pool, size_bytes, segment_bytes).ok_or(OutOfMemory { asked_bytes: segment_bytes })
    }

    fn new_block(&mut self, pool: usize, size_bytes: u64, segment_bytes: u64) -> Option<BlockNumber> {
        if self.allowed_bytes.is_some_and(|allowed| self.reserved_bytes + segment_bytes > allowed) {
            return None;
        }
        if self.settings.expandable_segments {
            return self.expanded_block(pool, size_bytes);
        }
        let address = self.driver.allocate(segment_bytes)?;
        self.reserved_bytes += segment_bytes;
        Some(self.add(Block {
            address,
            size_bytes: segment_bytes,
            previous: NO_BLOCK,
            next: NO_BLOCK,
            pool: pool as u32,
            state: State::Used,
            range_start: NOT_EXPANDABLE,
            age: 0,
            waits_since: 0,
        }))
    }

    /// Takes a block out of expandable segments, mapping what is missing.
    fn expanded_block(&mut self, pool: usize, size_bytes: u64) -> Option<BlockNumber> {
        let mut candidate = self.find_room(pool, size_bytes);
        if self.blocks[candidate as usize].state == State::Unmapped {
            let mapped_bytes = self.blocks[candidate as usize].size_bytes.min(size_bytes);
            if !self.map(candidate, mapped_bytes) {
                return None;
            }
        }
        while self.blocks[candidate as usize].size_bytes < size_bytes {
            let block = self.blocks[candidate as usize];
            let next = self.blocks.get(block.next as usize)?;
            let missing_bytes = (size_bytes - block.size_bytes).min(next.size_bytes);
            if !self.map(block.next, missing_bytes) {
                return None;
            }
            // What was mapped has swallowed the block before it.
            candidate = block.next;
        }
        self.remove_free(candidate);
        Some(candidate)
    }

    /// The lowest place with enough addresses, free or without memory; makes a new segment if there is none.
    fn find_room(&mut self, pool: usize, size_bytes: u64) -> BlockNumber {
        for &(_, unmapped) in &self.pools[pool].unmapped {
            let before = self.blocks[unmapped as usize].previous;
            let is_free =
                |number: BlockNumber| self.blocks.get(number as usize).is_some_and(|block| block.state != State::Used);
            let first = if is_free(before) { before } else { unmapped };
            let (mut room_bytes, mut next) = (0, first);
            while room_bytes < size_bytes && is_free(next) {
                room_bytes += self.blocks[next as usize].size_bytes;
                next = self.blocks[next as usize].next;
            }
            if room_bytes >= size_bytes {
                return first;
            }
        }
        let piece_bytes = self.piece_bytes(pool);
        let range_bytes = (self.card_bytes + self.card_bytes / 8).max(size_bytes).next_multiple_of(piece_bytes);
        let address = self.driver.reserve_addresses(range_bytes);
        let block = self.add(Block {
            address,
            size_bytes: range_bytes,
            previous: NO_BLOCK,
            next: NO_BLOCK,
            pool: pool as u32,
            state: State::Unmapped,
            range_start: address,
            age: 0,
            waits_since: 0,
        });
        self.pools[pool].unmapped.insert((address, block));
        block
    }

    fn piece_bytes(&self, pool: usize) -> u64 {
        if pool.is_multiple_of(2) { SMALL_SEGMENT_BYTES } else { self.settings.piece_bytes() }
    }

    /// Maps memory at the start of a block without any; it becomes free and joins its neighbours.
    fn map(&mut self, number: BlockNumber, size_bytes: u64) -> bool {
        let block = self.blocks[number as usize];
        let pool = block.pool as usize;
        let piece_bytes = self.piece_bytes(pool);
        let pieces = size_bytes.div_ceil(piece_bytes);
        for piece in 0..pieces {
            if !self.driver.take_memory(piece_bytes) {
                (0..piece).for_each(|_| self.driver.return_memory(piece_bytes));
                return false;
            }
        }
        let mapped_bytes = pieces * piece_bytes;
        self.pools[pool].unmapped.remove(&(block.address, number));
        if mapped_bytes < block.size_bytes {
            let rest = self.add(Block {
                address: block.address + mapped_bytes,
                size_bytes: block.size_bytes - mapped_bytes,
                previous: number,
                ..block
            });
            self.link_before(rest, block.next);
            self.pools[pool].unmapped.insert((block.address + mapped_bytes, rest));
            self.blocks[number as usize].next = rest;
            self.blocks[number as usize].size_bytes = mapped_bytes;
        }
        self.blocks[number as usize].state = State::Free;
        self.join(number);
        self.insert_free(number);
        self.reserved_bytes += mapped_bytes;
        true
    }

    /// Large blocks in expandable segments start at multiples of some kilobytes; what is before them stays free.
    #[inline]
    fn align(&mut self, number: BlockNumber, size_bytes: u64) -> BlockNumber {
        let alignment = self.settings.base_alignment_bytes;
        if !self.settings.expandable_segments || size_bytes < ALIGNED_REQUEST_BYTES || alignment == 0 {
            return number;
        }
        let block = self.blocks[number as usize];
        let offset = block.address.next_multiple_of(alignment) - block.address;
        if offset == 0 || offset + size_bytes > block.size_bytes {
            return number;
        }
        let aligned = self.add(Block {
            address: block.address + offset,
            size_bytes: block.size_bytes - offset,
            previous: number,
            age: 0,
            ..block
        });
        self.link_before(aligned, block.next);
        let before = &mut self.blocks[number as usize];
        before.size_bytes = offset;
        before.next = aligned;
        before.state = State::Free;
        self.insert_free(number);
        aligned
    }

    /// Splits off what a request does not need.
    #[inline]
    fn split(&mut self, number: BlockNumber, size_bytes: u64) -> BlockNumber {
        let block = self.blocks[number as usize];
        let left_over = block.size_bytes - size_bytes;
        let splits = if block.pool.is_multiple_of(2) || self.settings.expandable_segments {
            left_over >= GRANULE_BYTES
        } else {
            size_bytes < self.max_split_bytes && left_over > SMALL_BYTES
        };
        if !splits {
            return number;
        }
        let taken = self.add(Block { size_bytes, next: number, age: 0, ..block });
        if block.previous != NO_BLOCK {
            self.blocks[block.previous as usize].next = taken;
        }
        let rest = &mut self.blocks[number as usize];
        rest.previous = taken;
        rest.address += size_bytes;
        rest.size_bytes = left_over;
        rest.state = State::Free;
        self.insert_free(number);
        taken
    }

    /// Takes a block back.
    pub(crate) fn free(&mut self, number: BlockNumber) {
        self.used_bytes -= self.blocks[number as usize].size_bytes;
        self.make_free(number);
    }

    /// Takes a block back that another stream still works on: it is not used any more, and cannot be yet.
    pub(crate) fn free_later(&mut self, number: BlockNumber, waiting: u64) {
        self.used_bytes -= self.blocks[number as usize].size_bytes;
        self.waiting.insert(waiting, number);
    }

    /// The other stream has done with a block, unless it was waited for.
    pub(crate) fn release_waiting(&mut self, waiting: u64) {
        if let Some(number) = self.waiting.remove(&waiting) {
            self.make_free(number);
        }
    }

    fn make_free(&mut self, number: BlockNumber) {
        self.blocks[number as usize].state = State::Free;
        self.join(number);
        self.insert_free(number);
    }

    /// Joins a block with neighbours that are in the same state. It must not be in a pool.
    fn join(&mut self, number: BlockNumber) {
        let block = self.blocks[number as usize];
        if let Some(&before) = self.blocks.get(block.previous as usize)
            && before.state == block.state
        {
            self.remove_from_pool(block.previous);
            let joined = &mut self.blocks[number as usize];
            joined.address = before.address;
            joined.size_bytes += before.size_bytes;
            joined.previous = before.previous;
            if before.previous != NO_BLOCK {
                self.blocks[before.previous as usize].next = number;
            }
            self.vacant.push(block.previous);
        }
        if let Some(&after) = self.blocks.get(block.next as usize)
            && after.state == block.state
        {
            self.remove_from_pool(block.next);
            let joined = &mut self.blocks[number as usize];
            joined.size_bytes += after.size_bytes;
            joined.next = after.next;
            if after.next != NO_BLOCK {
                self.blocks[after.next as usize].previous = number;
            }
            self.vacant.push(block.next);
        }
    }

    /// Gives everything back that nobody uses any part of, after all streams have done with what they work on.
    pub(crate) fn empty_cache(&mut self) {
        for number in std::mem::take(&mut self.waiting).into_values() {
            self.make_free(number);
        }
        for pool in 0..self.pools.len() {
            self.release_pool(pool);
        }
    }

    fn release_pool(&mut self, pool: usize) {
        let entries: Vec<BlockNumber> = self.pools[pool].free.iter().map(|&(.., number)| number).collect();
        let is_expandable = |number: &BlockNumber| self.blocks[*number as usize].range_start != NOT_EXPANDABLE;
        let (to_unmap, to_release): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_expandable);
        for number in to_release {
            if self.is_whole_segment(number) {
                self.release(number);
            }
        }
        for number in to_unmap {
            self.unmap(number);
        }
    }

    fn is_whole_segment(&self, number: BlockNumber) -> bool {
        let block = &self.blocks[number as usize];
        block.previous == NO_BLOCK && block.next == NO_BLOCK
    }

    /// Gives a whole segment back to the driver.
    fn release(&mut self, number: BlockNumber) {
        self.remove_free(number);
        let block = self.blocks[number as usize];
        self.driver.free(block.address, block.size_bytes);
        self.reserved_bytes -= block.size_bytes;
        self.vacant.push(number);
    }

    /// Takes the memory out of all pieces that a free block covers completely.
    fn unmap(&mut self, number: BlockNumber) {
        let block = self.blocks[number as usize];
        let pool = block.pool as usize;
        let piece_bytes = self.piece_bytes(pool);
        let offset = block.address - block.range_start;
        let first = offset.next_multiple_of(piece_bytes);
        let end = (offset + block.size_bytes) / piece_bytes * piece_bytes;
        if first >= end {
            return;
        }
        self.remove_free(number);
        (0..(end - first) / piece_bytes).for_each(|_| self.driver.return_memory(piece_bytes));
        self.reserved_bytes -= end - first;
        let (mut previous, mut next) = (block.previous, block.next);
        if first > offset {
            let before = self.add(Block { size_bytes: first - offset, next: number, age: 0, ..block });
            if previous != NO_BLOCK {
                self.blocks[previous as usize].next = before;
            }
            self.insert_free(before);
            previous = before;
        }
        if end < offset + block.size_bytes {
            let after = self.add(Block {
                address: block.range_start + end,
                size_bytes: offset + block.size_bytes - end,
                previous: number,
                age: 0,
                ..block
            });
            self.link_before(after, next);
            self.insert_free(after);
            next = after;
        }
        self.blocks[number as usize] = Block {
            address: block.range_start + first,
            size_bytes: end - first,
            previous,
            next,
            state: State::Unmapped,
            ..block
        };
        self.join(number);
        let block = self.blocks[number as usize];
        if self.is_whole_segment(number) {
            self.driver.release_addresses(block.range_start, block.size_bytes);
            self.vacant.push(number);
        } else {
            self.pools[pool].unmapped.insert((block.address, number));
        }
    }

    /// With `max_split_size_mb`: gives back just enough blocks that are too large to be split.
    fn release_oversize(&mut self, pool: usize, size_bytes: u64) -> bool {
        if self.max_split_bytes == u64::MAX {
            return false;
        }
        let wanted_bytes = size_bytes.max(self.max_split_bytes);
        if let Some(&(.., number)) = self.pools[pool].free.range((wanted_bytes, 0, 0)..).next() {
            self.release(number);
            return true;
        }
        let mut released_bytes = 0;
        while released_bytes < wanted_bytes {
            match self.pools[pool].free.last() {
                Some(&(size_bytes, _, number)) if size_bytes >= self.max_split_bytes => {
                    released_bytes += size_bytes;
                    self.release(number);
                }
                _ => return false,
            }
        }
        true
    }

    /// With `garbage_collection_threshold` and a limit: gives back whole segments that were not used for long.
    fn collect_garbage(&mut self) {
        let Some(allowed_bytes) = self.allowed_bytes else { return };
        let threshold = self.settings.garbage_collection_threshold;
        let threshold_bytes = (threshold * allowed_bytes as f64) as u64;
        if threshold <= 0.0 || self.reserved_bytes <= threshold_bytes {
            return;
        }
        let target_bytes = self.reserved_bytes - threshold_bytes;
        let large_pools = self.pools.iter().skip(1).step_by(2);
        let mut waiting: Vec<(BlockNumber, u64)> = large_pools
            .flat_map(|pool| pool.free.iter().map(|&(.., number)| number))
            .filter(|&number| self.is_whole_segment(number))
            .map(|number| (number, self.age_of(number)))
            .collect();
        let mut total_age: f64 = waiting.iter().map(|&(_, age)| age as f64).sum();
        let mut released_bytes = 0;
        while released_bytes < target_bytes && !waiting.is_empty() {
            let threshold_age = total_age / waiting.len() as f64;
            let (old, young): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|&(_, age)| age as f64 >= threshold_age);
            for (number, age) in &old {
                released_bytes += self.blocks[*number as usize].size_bytes;
                total_age -= *age as f64;
                self.release(*number);
            }
            if old.is_empty() {
                return;
            }
            waiting = young;
        }
    }

    /// Searches that a free block has waited for.
    fn age_of(&self, number: BlockNumber) -> u64 {
        let block = &self.blocks[number as usize];
        block.age + self.searches[block.pool as usize % 2] - block.waits_since
    }

    fn insert_free(&mut self, number: BlockNumber) {
        let searches = self.searches;
        let block = &mut self.blocks[number as usize];
        block.waits_since = searches[block.pool as usize % 2];
        let entry = (block.size_bytes, block.address, number);
        self.pools[block.pool as usize].free.insert(entry);
    }

    fn remove_free(&mut self, number: BlockNumber) {
        let block = self.blocks[number as usize];
        self.blocks[number as usize].age = self.age_of(number);
        self.pools[block.pool as usize].free.remove(&(block.size_bytes, block.address, number));
    }

    fn remove_from_pool(&mut self, number: BlockNumber) {
        let block = self.blocks[number as usize];
        let pool = &mut self.pools[block.pool as usize];
        match block.state {
            State::Unmapped => pool.unmapped.remove(&(block.address, number)),
            _ => pool.free.remove(&(block.size_bytes, block.address, number)),
        };
    }

    /// Tells the block after a new one who is before it.
    fn link_before(&mut self, number: BlockNumber, next: BlockNumber) {
        self.blocks[number as usize].next = next;
        if next != NO_BLOCK {
            self.blocks[next as usize].previous = number;
        }
    }

    fn add(&mut self, block: Block) -> BlockNumber {
        match self.vacant.pop() {
            Some(number) => {
                self.blocks[number as usize] = block;
                number
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as BlockNumber
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn allocator(settings: &str, card_bytes: Option<u64>) -> Allocator {
        Allocator::new(&AllocatorSettings::parse(settings).expect("settings"), card_bytes)
    }

    fn block(allocator: &mut Allocator, size_bytes: u64) -> BlockNumber {
        allocator.allocate(size_bytes, 0).expect("room")
    }

    #[test]
    fn segments_have_the_sizes_of_the_rules() {
        for (size_bytes, reserved_bytes) in [
            (512, 2 * MIB),
            (MIB, 2 * MIB),
            (MIB + 512, 20 * MIB),
            (10 * MIB - 512, 20 * MIB),
            (10 * MIB, 10 * MIB),
            (10 * MIB + 512, 12 * MIB),
        ] {
            let mut allocator = allocator("", None);
            block(&mut allocator, size_bytes);
            assert_eq!(allocator.reserved_bytes, reserved_bytes, "{size_bytes}");
        }
    }

    #[test]
    fn a_large_block_is_split_only_if_more_than_a_mebibyte_is_left() {
        let mut allocator = allocator("", None);
        block(&mut allocator, 11 * MIB);
        assert_eq!(allocator.used_bytes, 12 * MIB, "handed out whole");
        let mut allocator = super::tests::allocator("", None);
        block(&mut allocator, 11 * MIB - 512);
        assert_eq!(allocator.used_bytes, 11 * MIB - 512, "the rest is more than 1 MiB");
    }

    #[test]
    fn freed_neighbours_become_one_block_again() {
        let mut allocator = allocator("", None);
        let blocks: Vec<_> = (0..4).map(|_| block(&mut allocator, 5 * MIB)).collect();
        assert_eq!(allocator.reserved_bytes, 20 * MIB);
        for number in [2, 0, 3, 1] {
            allocator.free(blocks[number]);
        }
        block(&mut allocator, 19 * MIB);
        assert_eq!((allocator.reserved_bytes, allocator.used_bytes), (20 * MIB, 20 * MIB));
    }

    #[test]
    fn a_full_card_gets_back_what_is_unused_before_it_refuses() {
        let mut allocator = allocator("", Some(100 * MIB));
        let first = block(&mut allocator, 60 * MIB);
        allocator.free(first);
        block(&mut allocator, 80 * MIB);
        assert_eq!((allocator.reserved_bytes, allocator.retries, allocator.driver.frees), (80 * MIB, 1, 1));
        let refusal = allocator.allocate(30 * MIB, 0).expect_err("full");
        assert_eq!(refusal.asked_bytes, 30 * MIB);
    }

    #[test]
    fn expandable_segments_grow_by_pieces_and_give_them_back() {
        let mut allocator = allocator("expandable_segments:True", None);
        let first = block(&mut allocator, 30 * MIB);
        assert_eq!((allocator.reserved_bytes, allocator.driver.allocations), (40 * MIB, 2));
        let second = block(&mut allocator, 30 * MIB);
        assert_eq!((allocator.reserved_bytes, allocator.used_bytes), (60 * MIB, 60 * MIB));
        allocator.free(first);
        allocator.empty_cache();
        assert_eq!(allocator.reserved_bytes, 40 * MIB, "the second piece is half used");
        allocator.free(second);
        allocator.empty_cache();
        assert_eq!((allocator.reserved_bytes, allocator.used_bytes), (0, 0));
        assert_eq!(allocator.driver.allocations, allocator.driver.frees);
    }

    #[test]
    fn oversize_blocks_are_kept_whole() {
        let mut allocator = allocator("max_split_size_mb:64", None);
        let large = block(&mut allocator, 100 * MIB);
        allocator.free(large);
        block(&mut allocator, 30 * MIB);
        assert_eq!(allocator.reserved_bytes, 130 * MIB, "a smaller request does not get the large block");
        block(&mut allocator, 90 * MIB);
        assert_eq!(allocator.reserved_bytes, 130 * MIB, "one within 20 MiB does");
    }

    #[test]
    fn old_segments_are_collected_above_the_threshold() {
        let settings = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5";
        let mut allocator = allocator(settings, Some(400 * MIB));
        let blocks: Vec<_> = [40, 42, 44].map(|size| block(&mut allocator, size * MIB)).to_vec();
        blocks.into_iter().for_each(|number| allocator.free(number));
        block(&mut allocator, 60 * MIB);
        assert_eq!(allocator.driver.frees, 3, "all are as old as their average");
        assert_eq!(allocator.reserved_bytes, 60 * MIB);
    }

    #[test]
    fn what_other_streams_work_on_is_used_again_later() {
        let mut allocator = allocator("", Some(100 * MIB));
        let first = block(&mut allocator, 40 * MIB);
        allocator.free_later(first, 7);
        assert_eq!((allocator.reserved_bytes, allocator.used_bytes), (40 * MIB, 0));
        let second = block(&mut allocator, 40 * MIB);
        assert_eq!(allocator.reserved_bytes, 80 * MIB, "the first one is not free yet");
        allocator.release_waiting(7);
        allocator.release_waiting(7);
        let third = block(&mut allocator, 40 * MIB);
        assert_eq!(allocator.reserved_bytes, 80 * MIB, "now it is");
        allocator.free_later(second, 8);
        allocator.free_later(third, 9);
        block(&mut allocator, 90 * MIB);
        assert_eq!((allocator.reserved_bytes, allocator.retries), (90 * MIB, 1), "before it runs out, it waits");
    }

    proptest! {
        /// Whatever is asked for in whatever order, the books stay in order.
        #[test]
        fn books_balance(
            settings in prop::sample::select(vec![
                "", "expandable_segments:True", "max_split_size_mb:32", "roundup_power2_divisions:4",
                "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5", "large_segment_size_mb:64",
            ]),
            requests in prop::collection::vec((1u64..60_000, 0usize..30, 0u16..2, 0u8..40), 1..300),
        ) {
            let mut allocator = allocator(settings, Some(1 << 30));
            let mut live: Vec<(BlockNumber, u64)> = Vec::new();
            for (granules, which, stream, kind) in requests {
                if kind == 0 {
                    allocator.empty_cache();
                } else if which < live.len() {
                    let (number, _) = live.swap_remove(which);
                    allocator.free(number);
                } else if let Ok(number) = allocator.allocate(granules * GRANULE_BYTES, stream) {
                    live.push((number, granules * GRANULE_BYTES));
                }
                check(&allocator, &live)?;
            }
            live.drain(..).for_each(|(number, _)| allocator.free(number));
            allocator.empty_cache();
            prop_assert_eq!((allocator.reserved_bytes, allocator.used_bytes), (0, 0));
            prop_assert_eq!(allocator.driver.allocations, allocator.driver.frees);
        }
    }

    fn check(allocator: &Allocator, live: &[(BlockNumber, u64)]) -> Result<(), TestCaseError> {
        let mut spans = Vec::new();
        let mut used_bytes = 0;
        for &(number, wanted_bytes) in live {
            let block = &allocator.blocks[number as usize];
            prop_assert!(block.size_bytes >= wanted_bytes && block.state == State::Used);
            used_bytes += block.size_bytes;
            spans.push((block.address, block.size_bytes));
        }
        let mut free_bytes = 0;
        for pool in &allocator.pools {
            for &(size_bytes, address, number) in &pool.free {
                let block = &allocator.blocks[number as usize];
                prop_assert_eq!((block.size_bytes, block.address, block.state), (size_bytes, address, State::Free));
                free_bytes += size_bytes;
                spans.push((address, size_bytes));
            }
            for &(address, number) in &pool.unmapped {
                let block = &allocator.blocks[number as usize];
                prop_assert_eq!((block.address, block.state), (address, State::Unmapped));
                spans.push((address, block.size_bytes));
            }
        }
        prop_assert_eq!(used_bytes, allocator.used_bytes);
        prop_assert_eq!(used_bytes + free_bytes, allocator.reserved_bytes);
        spans.sort_unstable();
        for pair in spans.windows(2) {
            prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0, "blocks overlap");
        }
        Ok(())
    }
}
