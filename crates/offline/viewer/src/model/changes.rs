//! Bytes in use of a pool over time, with level of detail.
//!
//! The begins and ends of the blocks of a pool, in order, are cut into leaves of a few hundred. Of each leaf the level
//! before it, the least and the most are known, so that the curve of any window takes the leaves inside each pixel as
//! they are and walks only through those at its edges. A [`Stacking`] adds to each leaf how much each owner (or call
//! site, or size class) held before it.

use msmemscope_columns::Column;
use rustc_hash::FxHashMap;

use super::Model;
use super::blocks::Blocks;
use super::filter::BlockFilter;

/// Changes per leaf.
const LEAF: usize = 256;

/// Most series that are told apart; what remains is one series of its own.
pub(crate) const MOST_SERIES: usize = 30;
const OTHER: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    before: u64,
    least: u64,
    most: u64,
    /// Changes made when the most is reached.
    most_at: u32,
}

/// The begins and ends of blocks, in order.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Number of the block, times two, plus one at its end.
    list: Column<u32>,
    leaves: Vec<Leaf>,
    last: u64,
    /// Most bytes, and how many changes had been made then.
    pub(crate) peak_bytes: u64,
    pub(crate) peak_at: usize,
}

/// The curve within a piece of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) least: u64,
    pub(crate) most: u64,
    /// Changes made when the most is reached.
    pub(crate) most_at: usize,
    /// Bytes in use at its end.
    pub(crate) last: u64,
}

impl Changes {
    /// The changes of the blocks of a group that pass a filter.
    pub(crate) fn new(model: &Model, group: u16, filter: &BlockFilter<'_>) -> Self {
        let mut changes = Self::default();
        let events = &model.events;
        for (&code, &block) in events.code.iter().zip(&events.reference) {
            if code <= 1 && model.blocks.group[block as usize] == group && filter.passes(block) {
                changes.list.push(block << 1 | u32::from(code));
            }
        }
        changes.list.shrink_to_fit();
        changes.sum_up(&model.blocks);
        changes
    }

    fn sum_up(&mut self, blocks: &Blocks) {
        let mut level = 0u64;
        for (index, piece) in self.list.chunks(LEAF).enumerate() {
            let mut leaf = Leaf { before: level, least: level, most: level, most_at: (index * LEAF) as u32 };
            for (offset, &change) in piece.iter().enumerate() {
                level = step(level, change, blocks);
                leaf.least = leaf.least.min(level);
                if level > leaf.most {
                    leaf.most = level;
                    leaf.most_at = (index * LEAF + offset + 1) as u32;
                }
            }
            if leaf.most > self.peak_bytes {
                (self.peak_bytes, self.peak_at) = (leaf.most, leaf.most_at as usize);
            }
            self.leaves.push(leaf);
        }
        self.last = level;
    }

    fn time(&self, position: usize, blocks: &Blocks) -> u64 {
        let change = self.list[position];
        let block = (change >> 1) as usize;
        if change & 1 == 0 { blocks.start[block] } else { blocks.end[block] }
    }

    /// When this many changes had just been made; zero if none.
    pub(crate) fn time_of(&self, made: usize, blocks: &Blocks) -> u64 {
        made.checked_sub(1).map_or(0, |position| self.time(position, blocks))
    }

    /// Changes made before a time.
    pub(crate) fn made_before(&self, time: u64, blocks: &Blocks) -> usize {
        self.made_before_within(time, (0, self.list.len()), blocks)
    }

    /// The same, quicker if it is little more than `near`.
    pub(crate) fn made_before_near(&self, time: u64, near: usize, blocks: &Blocks) -> usize {
        let is_before = |position: usize| position < self.list.len() && self.time(position, blocks) < time;
        let mut low = near.min(self.list.len());
        if low > 0 && !is_before(low - 1) {
            return self.made_before(time, blocks);
        }
        let mut distance = 1;
        while is_before(low + distance - 1) {
            low += distance;
            distance *= 2;
        }
        self.made_before_within(time, (low, self.list.len().min(low + distance - 1)), blocks)
    }

    fn made_before_within(&self, time: u64, (mut low, mut high): (usize, usize), blocks: &Blocks) -> usize {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.time(middle, blocks) < time {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Bytes in use after this many changes.
    pub(crate) fn bytes_after(&self, made: usize, blocks: &Blocks) -> u64 {
        let Some(leaf) = self.leaves.get(made / LEAF) else { return self.last };
        let first = made / LEAF * LEAF;
        self.list[first..made].iter().fold(leaf.before, |level, &change| step(level, change, blocks))
    }

    /// Bytes in use at a time, after everything that happened then.
    pub(crate) fn bytes_at(&self, time: u64, blocks: &Blocks) -> u64 {
        self.bytes_after(self.made_before(time.saturating_add(1), blocks), blocks)
    }

    /// By how much each key holds more after one number of changes than after another; it may be less.
    pub(crate) fn growth(
        &self,
        from: usize,
        to: usize,
        blocks: &Blocks,
        key: impl Fn(usize) -> u32,
    ) -> FxHashMap<u32, i64> {
        let mut growth = FxHashMap::default();
        for change in self.list.get(from..to).unwrap_or_default() {
            let block = (change >> 1) as usize;
            let bytes = blocks.bytes[block] as i64;
            let held: &mut i64 = growth.entry(key(block)).or_default();
            *held = held.saturating_add(if change & 1 == 0 { bytes } else { bytes.saturating_neg() });
        }
        growth
    }

    /// Least and most bytes between one number of changes and another, both included.
    pub(crate) fn piece(&self, from: usize, to: usize, blocks: &Blocks) -> Piece {
        self.piece_from(self.bytes_after(from, blocks), from, to, blocks)
    }

    /// The same, if it is known what was in use at its start.
    pub(crate) fn piece_from(&self, mut level: u64, from: usize, to: usize, blocks: &Blocks) -> Piece {
        let mut found = Piece { least: level, most: level, most_at: from, last: level };
        let mut position = from;
        while position < to {
            if position.is_multiple_of(LEAF) && position + LEAF <= to {
                let leaf = self.leaves[position / LEAF];
                found.least = found.least.min(leaf.least);
                if leaf.most > found.most {
                    (found.most, found.most_at) = (leaf.most, leaf.most_at as usize);
                }
                position += LEAF;
                level = self.leaves.get(position / LEAF).map_or(self.last, |next| next.before);
                continue;
            }
            level = step(level, self.list[position], blocks);
            position += 1;
            found.least = found.least.min(level);
            if level > found.most {
                (found.most, found.most_at) = (level, position);
            }
        }
        found.last = level;
        found
    }

    /// The curve between the edges of pieces.
    pub(crate) fn curve(&self, edges: &[u64], blocks: &Blocks) -> Vec<Piece> {
        let made: Vec<usize> = edges.iter().map(|&edge| self.made_before(edge, blocks)).collect();
        made.windows(2).map(|pair| self.piece(pair[0], pair[1], blocks)).collect()
    }

    /// Calls back for every block in use after this many changes.
    pub(crate) fn for_each_alive(
        &self,
        made: usize,
        blocks: &Blocks,
        group: u16,
        filter: &BlockFilter<'_>,
        mut take: impl FnMut(u32),
    ) {
        let Some(last) = made.checked_sub(1) else { return };
        let time = self.time(last, blocks);
        // What else happened in the same nanosecond has not happened yet.
        let later: Vec<u32> = self.list[made..]
            .iter()
            .copied()
            .enumerate()
            .take_while(|(offset, _)| self.time(made + offset, blocks) == time)
            .map(|(_, change)| change)
            .collect();
        blocks.for_each_alive(time, |block| {
            if blocks.group[block as usize] == group && filter.passes(block) && !later.contains(&(block << 1)) {
                take(block);
            }
        });
        for change in later.iter().filter(|change| **change & 1 == 1) {
            // Begun and ended within it: not there yet.
            if !later.contains(&(change & !1)) {
                take(change >> 1);
            }
        }
    }
}

#[inline]
fn step(level: u64, change: u32, blocks: &Blocks) -> u64 {
    let bytes = blocks.bytes[(change >> 1) as usize];
    if change & 1 == 0 { level.saturating_add(bytes) } else { level.saturating_sub(bytes) }
}

/// What series are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dimension {
    Owner,
    Line,
    Size,
}

/// Size classes: their upper ends and names.
pub(crate) const SIZE_CLASSES: [(u64, &str); 7] = [
    (1 << 10, "< 1 KiB"),
    (64 << 10, "< 64 KiB"),
    (1 << 20, "< 1 MiB"),
    (16 << 20, "< 16 MiB"),
    (256 << 20, "< 256 MiB"),
    (1 << 30, "< 1 GiB"),
    (u64::MAX, ">= 1 GiB"),
];

impl Dimension {
    /// The number of what a block belongs to.
    #[inline]
    pub(crate) fn key(self, model: &Model, block: usize) -> u32 {
        match self {
            Dimension::Owner => model.blocks.owner[block],
            Dimension::Line => model.stacks.sites[model.blocks.site[block] as usize].line,
            Dimension::Size => size_class(model.blocks.bytes[block]),
        }
    }

    fn keys(self, model: &Model) -> usize {
        match self {
            Dimension::Owner => model.owners.len(),
            Dimension::Line => model.stacks.lines.len(),
            Dimension::Size => SIZE_CLASSES.len(),
        }
    }

    /// What a number stands for, in words.
    pub(crate) fn label(self, model: &Model, key: u32) -> &str {
        match self {
            Dimension::Owner => &model.owners[key as usize],
            Dimension::Line => &model.stacks.lines[key as usize].text,
            Dimension::Size => SIZE_CLASSES[key as usize].1,
        }
    }
}

/// The class of a size.
pub(crate) fn size_class(bytes: u64) -> u32 {
    SIZE_CLASSES.iter().position(|&(end, _)| bytes < end).unwrap_or(SIZE_CLASSES.len() - 1) as u32
}

/// How changes divide into series.
#[derive(Debug)]
pub(crate) struct Stacking {
    dimension: Dimension,
    /// Keys of the series with their peaks, the highest first.
    pub(crate) series: Vec<(u32, u64)>,
    /// Whether there is more than the series.
    pub(crate) has_other: bool,
    by_key: Vec<u8>,
    /// What the series hold before each leaf.
    before: Vec<u64>,
}

impl Stacking {
    pub(crate) fn new(model: &Model, changes: &Changes, dimension: Dimension) -> Self {
        let keys = dimension.keys(model);
        let mut held = vec![0u64; keys];
        let mut peaks = vec![0u64; keys];
        for &change in &changes.list {
            let key = dimension.key(model, (change >> 1) as usize) as usize;
            held[key] = step(held[key], change, &model.blocks);
            peaks[key] = peaks[key].max(held[key]);
        }
        let mut series: Vec<(u32, u64)> = (0u32..).zip(peaks).filter(|(_, peak)| *peak > 0).collect();
        series.sort_by_key(|&(key, peak)| (u64::MAX - peak, key));
        let has_other = series.len() > MOST_SERIES;
        series.truncate(MOST_SERIES);
        let mut by_key = vec![OTHER; keys];
        series.iter().enumerate().for_each(|(index, (key, _))| by_key[*key as usize] = index as u8);
        let mut stacking = Self { dimension, series, has_other, by_key, before: Vec::new() };
        let mut level = vec![0u64; stacking.series.len()];
        for leaf in changes.list.chunks(LEAF) {
            stacking.before.extend_from_slice(&level);
            leaf.iter().for_each(|&change| stacking.apply(model, change, &mut level));
        }
        stacking.before.extend_from_slice(&level);
        stacking
    }

    fn apply(&self, model: &Model, change: u32, level: &mut [u64]) {
        let key = self.dimension.key(model, (change >> 1) as usize);
        if let Some(level) = level.get_mut(self.by_key[key as usize] as usize) {
            *level = step(*level, change, &model.blocks);
        }
    }

    /// What each series holds after this many changes.
    pub(crate) fn after(&self, made: usize, model: &Model, changes: &Changes) -> Vec<u64> {
        let (leaf, count) = (made / LEAF, self.series.len());
        let mut level = self.before[leaf * count..(leaf + 1) * count].to_vec();
        changes.list[leaf * LEAF..made].iter().for_each(|&change| self.apply(model, change, &mut level));
        level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_found_from_anywhere() {
        // Two blocks begin with every third nanosecond.
        let count = 1000;
        let start = || (0..count).map(|block| 10 + block / 2 * 3).collect();
        let blocks = Blocks { end: start(), start: start(), ..Blocks::default() };
        let changes = Changes { list: (0..count as u32).map(|block| block << 1).collect(), ..Changes::default() };
        for time in 0..10 + count * 3 / 2 + 5 {
            let expected = blocks.start.iter().filter(|start| **start < time).count();
            for near in [0, 1, 7, 500, 501, 999, 1000, 5000] {
                assert_eq!(changes.made_before_near(time, near, &blocks), expected, "{time} from {near}");
            }
        }
    }
}
