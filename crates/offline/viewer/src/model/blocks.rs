//! Blocks as columns, in the order in which they came into being.

use msmemscope_columns::Column;

/// End of a block that is alive at the end of the recording.
pub(crate) const ALIVE: u64 = u64::MAX;

/// Blocks per entry of the table that says when the last of them ends.
const BUNDLE: usize = 64;

/// The block was alive before recording began.
pub(crate) const BEFORE_RECORDING: u8 = 1;
/// Nobody was seen freeing it.
pub(crate) const END_NOT_SEEN: u8 = 2;
/// A driver block that has an address (as opposed to physical memory that is mapped later).
pub(crate) const IS_SEGMENT: u8 = 4;

/// All blocks of a recording.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) address: Column<u64>,
    pub(crate) bytes: Column<u64>,
    pub(crate) start: Column<u64>,
    pub(crate) end: Column<u64>,
    /// Place in the address space of the group without its gaps.
    pub(crate) y: Column<u64>,
    pub(crate) allocation: Column<u32>,
    pub(crate) site: Column<u32>,
    pub(crate) owner: Column<u32>,
    pub(crate) step: Column<u32>,
    pub(crate) group: Column<u16>,
    pub(crate) thread: Column<u16>,
    pub(crate) flags: Column<u8>,
    pub(crate) first_access: Column<u64>,
    pub(crate) last_access: Column<u64>,
    pub(crate) accesses: Column<u32>,
    pub(crate) latest_end: Vec<u64>,
}

/// What is known of a block when it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewBlock {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) start: u64,
    pub(crate) allocation: u32,
    pub(crate) site: u32,
    pub(crate) owner: u32,
    pub(crate) step: u32,
    pub(crate) group: u16,
    pub(crate) thread: u16,
    pub(crate) flags: u8,
}

impl Blocks {
    pub(crate) fn len(&self) -> usize {
        self.start.len()
    }

    /// Adds a block and returns its number.
    pub(crate) fn push(&mut self, block: NewBlock) -> u32 {
        self.address.push(block.address);
        self.bytes.push(block.bytes);
        self.start.push(block.start);
        self.end.push(ALIVE);
        self.allocation.push(block.allocation);
        self.site.push(block.site);
        self.owner.push(block.owner);
        self.step.push(block.step);
        self.group.push(block.group);
        self.thread.push(block.thread);
        self.flags.push(block.flags);
        self.start.len() as u32 - 1
    }

    /// An operator touched a block.
    pub(crate) fn touch(&mut self, block: u32, time: u64) {
        let index = block as usize;
        if self.accesses.len() <= index {
            let length = self.len();
            self.accesses.resize(length, 0);
            self.first_access.resize(length, 0);
            self.last_access.resize(length, 0);
        }
        if self.accesses[index] == 0 {
            self.first_access[index] = time;
        }
        self.accesses[index] = self.accesses[index].saturating_add(1);
        self.last_access[index] = time;
    }

    /// Accesses of a block: how many, the first and the last.
    pub(crate) fn accesses(&self, block: u32) -> Option<(u32, u64, u64)> {
        let index = block as usize;
        let count = *self.accesses.get(index)?;
        (count > 0).then(|| (count, self.first_access[index], self.last_access[index]))
    }

    /// To be called when all blocks are there.
    pub(crate) fn finish(&mut self) {
        self.latest_end = self.end.chunks(BUNDLE).map(|ends| ends.iter().copied().max().unwrap_or(0)).collect();
    }

    /// When the first block of some groups came and when their last change was.
    pub(crate) fn active_range(&self, is_meant: impl Fn(u16) -> bool) -> Option<(u64, u64)> {
        let meant = || (0..self.len()).filter(|&block| is_meant(self.group[block]));
        let first = self.start[meant().next()?];
        let change = |block: usize| if self.end[block] == ALIVE { self.start[block] } else { self.end[block] };
        Some((first, meant().map(change).max()?))
    }

    /// Calls back for every block that overlaps a window: begun before its end, ended after its start.
    pub(crate) fn for_each_in(&self, from: u64, to: u64, take: impl FnMut(u32)) {
        self.for_each_in_part(from, to, (0, 1), take);
    }

    /// The same for one of several parts of about equal size.
    pub(crate) fn for_each_in_part(
        &self,
        from: u64,
        to: u64,
        (part, parts): (usize, usize),
        mut take: impl FnMut(u32),
    ) {
        let begun = self.start.partition_point(|&start| start < to);
        let bundles = begun.div_ceil(BUNDLE);
        let (first_bundle, end_bundle) = (bundles * part / parts, bundles * (part + 1) / parts);
        for bundle in first_bundle..end_bundle {
            let latest_end = self.latest_end[bundle];
            let first = bundle * BUNDLE;
            if latest_end <= from {
                continue;
            }
            let last = (first + BUNDLE).min(begun);
            for (offset, &end) in self.end[first..last].iter().enumerate() {
                if end > from {
                    take((first + offset) as u32);
                }
            }
        }
    }

    /// Calls back for every block that is alive at a time, after everything that happened then.
    pub(crate) fn for_each_alive(&self, time: u64, take: impl FnMut(u32)) {
        self.for_each_in(time, time.saturating_add(1), take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_range_leaves_out_what_never_ends() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.active_range(|_| true), None);
        let block = |start| NewBlock {
            address: 0,
            bytes: 1,
            start,
            allocation: 0,
            site: 0,
            owner: 0,
            step: 0,
            group: 0,
            thread: 0,
            flags: 0,
        };
        blocks.push(block(5));
        assert_eq!(blocks.active_range(|_| true), Some((5, 5)));
        let second = blocks.push(block(7)) as usize;
        assert_eq!(blocks.active_range(|_| true), Some((5, 7)));
        blocks.end[second] = 9;
        assert_eq!(blocks.active_range(|_| true), Some((5, 9)));
        assert_eq!(blocks.active_range(|group| group == 1), None, "another pool");
    }
}
