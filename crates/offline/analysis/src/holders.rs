//! Who holds blocks: the references that the job saw leading to them when it last looked.
//!
//! The job looks now and then, and names only some blocks each time. What is known of a block counts from when it was
//! said until it is said again, and for reports about earlier moments, too: whoever held a block that is alive at both
//! moments most likely held it then.

use msmemscope_event::StringId;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::moment::Place;
use crate::names::Names;
use crate::situation::LiveBlock;

/// Ways listed per group of blocks.
const LISTED_PATHS: usize = 3;

/// Blocks that are held in one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldBy {
    /// The references that lead to them, outermost first: `local 'history' of main (train.py:11) > list of 800`.
    pub path: String,
    /// How many of the blocks were seen to be held so. Others may be, too.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Blocks and bytes by path.
type Tally = FxHashMap<StringId, (u64, u64)>;

/// Blocks and bytes of one place that are held in one way: those that are alive, and the most that ever were.
///
/// Where each step makes blocks anew, those of different looks never existed together.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    now: (u64, u64),
    most: (u64, u64),
}

impl Together {
    fn add(&mut self, size_bytes: u64) {
        self.now = (self.now.0 + 1, self.now.1.saturating_add(size_bytes));
        if self.now.1 > self.most.1 {
            self.most = self.now;
        }
    }

    /// A block ended.
    fn ended(&mut self, size_bytes: u64) {
        self.now = less(self.now, size_bytes);
    }

    /// A block is held in another way, and may always have been.
    fn moved(&mut self, size_bytes: u64) {
        self.ended(size_bytes);
        self.most = less(self.most, size_bytes);
    }
}

fn less((blocks, bytes): (u64, u64), size_bytes: u64) -> (u64, u64) {
    (blocks.saturating_sub(1), bytes.saturating_sub(size_bytes))
}

/// Follows who holds blocks.
#[derive(Debug, Default)]
pub struct Holders {
    by_allocation: FxHashMap<u64, StringId>,
    by_place: FxHashMap<Place, FxHashMap<StringId, Together>>,
}

impl Holders {
    /// Somebody saw who holds a block.
    pub(crate) fn note(&mut self, block: &LiveBlock, path: StringId) {
        let before = self.by_allocation.insert(block.allocation_id, path);
        if before == Some(path) {
            return;
        }
        let ways = self.by_place.entry(Place::of(block)).or_default();
        if let Some(together) = before.and_then(|before| ways.get_mut(&before)) {
            together.moved(block.size_bytes);
        }
        ways.entry(path).or_default().add(block.size_bytes);
    }

    /// A block ended. Who held it stays known.
    pub(crate) fn ended(&mut self, block: &LiveBlock) {
        let Some(path) = self.by_allocation.get(&block.allocation_id) else { return };
        let together = self.by_place.get_mut(&Place::of(block)).and_then(|ways| ways.get_mut(path));
        if let Some(together) = together {
            together.ended(block.size_bytes);
        }
    }

    /// The way in which a block is held, if anybody has said.
    pub(crate) fn path_of(&self, allocation_id: u64) -> Option<StringId> {
        self.by_allocation.get(&allocation_id).copied()
    }

    /// Who holds a block, if anybody has said.
    pub fn of_block(&self, allocation_id: u64, names: &dyn Names) -> Option<String> {
        self.by_allocation.get(&allocation_id).map(|path| names.text(*path))
    }

    /// Who holds some blocks, given by number and size; those that hold most first.
    pub fn of_blocks(&self, blocks: impl Iterator<Item = (u64, u64)>, names: &dyn Names) -> Vec<HeldBy> {
        let mut tally = Tally::default();
        for (allocation_id, size_bytes) in blocks {
            if let Some(path) = self.by_allocation.get(&allocation_id) {
                add(&mut tally, *path, size_bytes);
            }
        }
        listed(&tally, names)
    }

    /// Who holds the blocks of some places, as many as existed together.
    pub(crate) fn of_places<'a>(&self, places: impl Iterator<Item = &'a Place>, names: &dyn Names) -> Vec<HeldBy> {
        let mut sum = Tally::default();
        for (path, together) in places.filter_map(|place| self.by_place.get(place)).flatten() {
            let (blocks, bytes) = together.most;
            let entry = sum.entry(*path).or_default();
            *entry = (entry.0 + blocks, entry.1.saturating_add(bytes));
        }
        listed(&sum, names)
    }
}

/// Several lists as one, each way once; those that hold most first.
pub fn merged<'a>(lists: impl Iterator<Item = &'a HeldBy>) -> Vec<HeldBy> {
    let mut sums: Vec<HeldBy> = Vec::new();
    for held in lists {
        match sums.iter_mut().find(|sum| sum.path == held.path) {
            Some(sum) => {
                sum.blocks += held.blocks;
                sum.bytes = sum.bytes.saturating_add(held.bytes);
            }
            None => sums.push(held.clone()),
        }
    }
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.bytes));
    sums
}

fn add(tally: &mut Tally, path: StringId, size_bytes: u64) {
    let (blocks, bytes) = tally.entry(path).or_default();
    *blocks += 1;
    *bytes = bytes.saturating_add(size_bytes);
}

fn listed(tally: &Tally, names: &dyn Names) -> Vec<HeldBy> {
    let mut paths: Vec<HeldBy> = tally
        .iter()
        .filter(|(_, (blocks, _))| *blocks > 0)
        .map(|(path, (blocks, bytes))| HeldBy { path: names.text(*path), blocks: *blocks, bytes: *bytes })
        .collect();
    paths.sort_by(|a, b| (b.bytes, b.blocks, &a.path).cmp(&(a.bytes, a.blocks, &b.path)));
    paths.truncate(LISTED_PATHS);
    paths
}
