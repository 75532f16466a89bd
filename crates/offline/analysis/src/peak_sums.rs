//! Sums that remember what they were at the peak, without ever being copied.
//!
//! The peak is known only afterwards: every new maximum may be it. So a sum keeps what it was at the latest maximum when
//! it changes for the first time after it. A change costs the same however many sums there are, and a new maximum costs
//! nothing but the sums that were emptied since the last one.

use std::collections::hash_map::Entry;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// What blocks that have something in common hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held<Block> {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    /// One of the blocks, which stands for all when they get a name.
    pub(crate) example: Block,
}

impl<Block> Held<Block> {
    pub(crate) fn nothing(example: Block) -> Self {
        Self { bytes: 0, blocks: 0, example }
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.blocks += 1;
    }
}

#[derive(Debug)]
struct Sum<Block> {
    now: Held<Block>,
    /// What it was at the latest peak, if it has changed since.
    at_peak: Held<Block>,
    /// The peak that is about.
    peak: u64,
    /// It is among the emptied ones.
    is_emptied: bool,
}

impl<Block: Clone> Sum<Block> {
    /// Remembers what the sum was at a peak, before it changes for the first time after it.
    fn remember(&mut self, peak: u64) {
        if self.peak != peak {
            (self.at_peak, self.peak) = (self.now.clone(), peak);
        }
    }
}

/// Sums by what blocks have in common.
#[derive(Debug)]
pub(crate) struct PeakSums<Key, Block> {
    sums: FxHashMap<Key, Sum<Block>>,
    /// Number of the latest peak that is over.
    peak: u64,
    /// The sums are those of a peak: nothing has ended since.
    is_at_peak: bool,
    /// Sums without blocks that are here for what they were at the peak.
    emptied: Vec<Key>,
}

impl<Key, Block> Default for PeakSums<Key, Block> {
    fn default() -> Self {
        Self { sums: FxHashMap::default(), peak: 0, is_at_peak: false, emptied: Vec::new() }
    }
}

impl<Key: Copy + Eq + Hash, Block: Clone> PeakSums<Key, Block> {
    /// A block began, which may make more than ever before of all together.
    pub(crate) fn begins(&mut self, key: Key, bytes: u64, block: Block, is_peak: bool) {
        if is_peak && !self.is_at_peak {
            self.is_at_peak = true;
            self.forget_emptied();
        }
        let sum = self.sums.entry(key).or_insert_with(|| Sum {
            now: Held::nothing(block.clone()),
            at_peak: Held::nothing(block.clone()),
            peak: self.peak,
            is_emptied: false,
        });
        if !self.is_at_peak {
            sum.remember(self.peak);
        }
        sum.now.add(bytes);
        sum.now.example = block;
    }

    /// A block ended.
    pub(crate) fn ends(&mut self, key: Key, bytes: u64) {
        if self.is_at_peak {
            self.is_at_peak = false;
            self.peak += 1;
        }
        let Entry::Occupied(mut entry) = self.sums.entry(key) else { return };
        let sum = entry.get_mut();
        sum.remember(self.peak);
        sum.now.bytes = sum.now.bytes.saturating_sub(bytes);
        sum.now.blocks = sum.now.blocks.saturating_sub(1);
        if sum.now.blocks > 0 || sum.is_emptied {
            return;
        }
        if sum.at_peak.blocks > 0 {
            sum.is_emptied = true;
            self.emptied.push(key);
        } else {
            entry.remove();
        }
    }

    fn forget_emptied(&mut self) {
        for key in self.emptied.drain(..) {
            if let Entry::Occupied(mut entry) = self.sums.entry(key) {
                match entry.get().now.blocks {
                    0 => drop(entry.remove()),
                    _ => entry.get_mut().is_emptied = false,
                }
            }
        }
    }

    /// What is held now.
    pub(crate) fn now(&self) -> FxHashMap<Key, Held<Block>> {
        let held = self.sums.iter().filter(|(_, sum)| sum.now.blocks > 0);
        held.map(|(key, sum)| (*key, sum.now.clone())).collect()
    }

    /// What was held at the latest peak.
    pub(crate) fn at_peak(&self) -> FxHashMap<Key, Held<Block>> {
        let is_changed = |sum: &Sum<Block>| !self.is_at_peak && sum.peak == self.peak;
        let at_peak = |sum: &Sum<Block>| if is_changed(sum) { sum.at_peak.clone() } else { sum.now.clone() };
        let held = self.sums.iter().map(|(key, sum)| (*key, at_peak(sum)));
        held.filter(|(_, held)| held.blocks > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;

    /// The obvious way: everything is copied at every peak.
    #[derive(Default)]
    struct Model {
        now: FxHashMap<u8, Held<u64>>,
        at_peak: FxHashMap<u8, Held<u64>>,
        used_bytes: u64,
        peak_bytes: u64,
        is_at_peak: bool,
    }

    impl Model {
        fn keep_peak(&mut self) {
            if std::mem::take(&mut self.is_at_peak) {
                self.at_peak = self.now.clone();
            }
        }

        /// Returns whether this is more than ever before.
        fn begins(&mut self, key: u8, bytes: u64, block: u64) -> bool {
            let held = self.now.entry(key).or_insert(Held::nothing(block));
            held.add(bytes);
            held.example = block;
            self.used_bytes += bytes;
            let is_peak = self.used_bytes > self.peak_bytes;
            if is_peak {
                (self.peak_bytes, self.is_at_peak) = (self.used_bytes, true);
            }
            is_peak
        }

        fn ends(&mut self, key: u8, bytes: u64) {
            self.keep_peak();
            self.used_bytes -= bytes;
            let held = self.now.get_mut(&key).expect("a block of this key");
            held.bytes -= bytes;
            held.blocks -= 1;
            if held.blocks == 0 {
                self.now.remove(&key);
            }
        }
    }

    proptest! {
        #[test]
        fn sums_are_those_of_copies(events in prop::collection::vec((0..6_u8, 0..5_u64, any::<bool>()), 0..200)) {
            let (mut model, mut sums) = (Model::default(), PeakSums::default());
            let mut alive: Vec<(u8, u64)> = Vec::new();
            for (number, (key, bytes, ends)) in events.into_iter().enumerate() {
                if ends && !alive.is_empty() {
                    let (key, bytes) = alive.swap_remove(usize::from(key) % alive.len());
                    model.ends(key, bytes);
                    sums.ends(key, bytes);
                } else {
                    let block = number as u64;
                    let is_peak = model.begins(key, bytes, block);
                    sums.begins(key, bytes, block, is_peak);
                    alive.push((key, bytes));
                }
                prop_assert_eq!(sums.now(), model.now.clone());
                if model.peak_bytes > 0 {
                    let at_peak = if model.is_at_peak { &model.now } else { &model.at_peak };
                    prop_assert_eq!(&sums.at_peak(), at_peak);
                }
                let most = sums.now().len() + sums.at_peak().len();
                prop_assert!(sums.sums.len() <= most && sums.emptied.len() <= most, "no more is kept than needed");
            }
        }
    }

    static COPIES: AtomicU64 = AtomicU64::new(0);

    /// A block that counts how often it is copied.
    #[derive(Debug)]
    struct Counted;

    impl Clone for Counted {
        fn clone(&self) -> Self {
            COPIES.fetch_add(1, Ordering::Relaxed);
            Counted
        }
    }

    #[test]
    fn a_peak_does_not_cost_more_the_more_there_is() {
        let events = 20_000;
        let mut sums = PeakSums::default();
        for number in 0..events / 4 {
            // Something stays forever, something else comes and goes: a new peak each time.
            sums.begins(2 * number, 2, Counted, true);
            sums.begins(2 * number + 1, 1, Counted, true);
            sums.ends(2 * number + 1, 1);
        }
        let copies = COPIES.load(Ordering::Relaxed);
        assert!(copies <= 2 * events, "{copies} copies for {events} events");
        assert_eq!(sums.at_peak().len() as u64, events / 4 + 1);
    }
}
