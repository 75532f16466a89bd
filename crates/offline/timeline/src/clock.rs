//! Times of events: wall clock, never going back, strictly increasing within a block.

use crate::blocks::BlockKey;

/// How many ends of blocks at one time are remembered. A coarse clock may show any number of events at
/// one time, and looking through them all for each would take forever.
const MOST_ENDS_PER_TICK: usize = 64;

/// Gives each event its time.
#[derive(Debug)]
pub(crate) struct OutputClock {
    wall_offset_ns: i64,
    latest_ns: u64,
    /// Blocks that ended at the latest time: the next one at the same place must begin later.
    ended_at_latest: Vec<BlockKey>,
}

impl OutputClock {
    pub(crate) fn new(wall_offset_ns: i64) -> Self {
        Self { wall_offset_ns, latest_ns: 0, ended_at_latest: Vec::new() }
    }

    /// Time of an event that concerns no block.
    #[inline]
    pub(crate) fn plain(&mut self, monotonic_ns: u64) -> u64 {
        self.not_before(monotonic_ns, 0)
    }

    /// Time of the first event of a block.
    #[inline]
    pub(crate) fn block_begin(&mut self, monotonic_ns: u64, key: BlockKey) -> u64 {
        let earliest_ns = if self.ended_at_latest.contains(&key) { self.latest_ns.saturating_add(1) } else { 0 };
        self.not_before(monotonic_ns, earliest_ns)
    }

    /// Time of a later event of a block.
    #[inline]
    pub(crate) fn block_next(&mut self, monotonic_ns: u64, previous_ns: u64) -> u64 {
        self.not_before(monotonic_ns, previous_ns.saturating_add(1))
    }

    /// Time of the last event of a block whose place may be used again.
    #[inline]
    pub(crate) fn block_end(&mut self, monotonic_ns: u64, previous_ns: u64, key: BlockKey) -> u64 {
        let timestamp_ns = self.not_before(monotonic_ns, previous_ns.saturating_add(1));
        if self.ended_at_latest.len() < MOST_ENDS_PER_TICK {
            self.ended_at_latest.push(key);
        } else {
            // Too many to remember: everything that follows is later than all of them.
            self.latest_ns = self.latest_ns.saturating_add(1);
            self.ended_at_latest.clear();
        }
        timestamp_ns
    }

    #[inline]
    fn not_before(&mut self, monotonic_ns: u64, earliest_ns: u64) -> u64 {
        let wall_ns = monotonic_ns.wrapping_add(self.wall_offset_ns as u64);
        let timestamp_ns = wall_ns.max(earliest_ns).max(self.latest_ns);
        if timestamp_ns > self.latest_ns {
            self.latest_ns = timestamp_ns;
            self.ended_at_latest.clear();
        }
        timestamp_ns
    }

    /// Wall clock time of a moment, unchanged.
    pub(crate) fn wall_ns(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.wrapping_add(self.wall_offset_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use msmemscope_event::Device;

    use super::*;
    use msmemscope_event::AddressSpace;

    #[test]
    fn a_place_is_never_left_and_taken_at_one_time_however_coarse_the_clock() {
        let mut clock = OutputClock::new(0);
        let key = |number| BlockKey::new(AddressSpace::Atb, Device::Npu(0), number);
        for round in 0..3 {
            let ends: Vec<u64> = (0..200).map(|number| clock.block_end(10, 0, key(number))).collect();
            assert!(ends.iter().all(|&end| end < 10 + 8 * (round + 1)), "hardly later than the clock said");
            for (number, end) in (0..200).zip(ends) {
                assert!(clock.block_begin(10, key(number)) > end);
            }
        }
    }
}
