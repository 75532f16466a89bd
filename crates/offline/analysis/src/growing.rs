//! Call sites whose blocks become more and more, without steps to go by.
//!
//! A site *grows* if it has made several blocks of one size that are alive, hardly any of them has ended, and
//! they came into being all along, from the first one up to now. Weights that were loaded once and a result that
//! is kept do not. Whether all of them are needed only the user can say.

use msmemscope_event::{Device, Pool};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::fluctuation::is_framework_pool;
use crate::holders::HeldBy;
use crate::names::{Names, Site, SiteText};
use crate::situation::{BlockChange, LiveBlock, Situation};

/// Fewer blocks than this are no growth.
const FEWEST_BLOCKS: usize = 5;
/// One block in this many may have ended.
const LIVE_PER_ENDED: u64 = 4;
/// The time since the first block is cut into this many parts; each must have seen a block.
const PARTS: u64 = 4;
/// Owners whose memory is there for good.
const LASTING_OWNERS: [&str; 3] = ["weight", "gradient", "optimizer_state"];

type Key = (Pool, Site, u64);

/// Counts blocks that have ended, by site and size.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    ended: FxHashMap<Key, u64>,
}

/// Sites that grow, together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growing {
    /// The largest of them.
    pub site: SiteText,
    /// Its blocks.
    pub blocks: u64,
    /// Bytes of each of them.
    pub block_bytes: u64,
    /// When the first of them was allocated.
    pub since_ns: u64,
    /// Bytes of all blocks of all sites that grow.
    pub bytes: u64,
    /// Who holds the blocks of the largest, those that hold most first.
    pub held_by: Vec<HeldBy>,
    /// Whether a module was being called when they were made.
    #[serde(skip)]
    pub(crate) is_of_module: bool,
    /// Numbers of those blocks.
    #[serde(skip)]
    pub(crate) numbers: Vec<u64>,
}

fn key(block: &LiveBlock) -> Key {
    (block.properties.pool, Site::of(block), block.size_bytes)
}

impl Growth {
    /// A block began or ended.
    #[inline]
    pub(crate) fn block(&mut self, change: &BlockChange<'_>) {
        if let BlockChange::Ends(block, _) = change
            && is_framework_pool(block.properties.pool)
        {
            *self.ended.entry(key(block)).or_default() += 1;
        }
    }

    /// The sites on a device that grow.
    pub(crate) fn find(&self, device: Device, situation: &Situation, names: &dyn Names) -> Option<Growing> {
        let mut groups: FxHashMap<Key, Vec<&LiveBlock>> = FxHashMap::default();
        let of_interest = |block: &&LiveBlock| {
            block.properties.device == device && is_framework_pool(block.properties.pool) && !block.shadow
        };
        for block in situation.live_blocks().filter(of_interest) {
            groups.entry(key(block)).or_default().push(block);
        }
        let (mut bytes, mut largest) = (0u64, None);
        for (key, mut blocks) in groups {
            blocks.sort_unstable_by_key(|block| block.birth);
            let ended = self.ended.get(&key).copied().unwrap_or(0);
            let lasts = || {
                let owner = situation.owner_text(blocks[0].owner, names).unwrap_or_default();
                owner.split('@').any(|part| LASTING_OWNERS.contains(&part))
            };
            if !grows(&blocks, ended, situation.births()) || lasts() {
                continue;
            }
            let group_bytes = key.2.saturating_mul(blocks.len() as u64);
            bytes = bytes.saturating_add(group_bytes);
            let rank = (group_bytes, blocks[0].birth);
            if largest.as_ref().is_none_or(|(known, _)| rank > *known) {
                largest = Some((rank, blocks));
            }
        }
        let (_, blocks) = largest?;
        let first = blocks[0];
        Some(Growing {
            site: SiteText::of(first, situation, names),
            blocks: blocks.len() as u64,
            block_bytes: first.size_bytes,
            since_ns: first.timestamp_ns,
            bytes,
            held_by: Vec::new(),
            is_of_module: first.module.is_some(),
            numbers: blocks.iter().map(|block| block.allocation_id).collect(),
        })
    }
}

/// Whether blocks, oldest first, came into being all along.
fn grows(blocks: &[&LiveBlock], ended: u64, births: u64) -> bool {
    if blocks.len() < FEWEST_BLOCKS || ended.saturating_mul(LIVE_PER_ENDED) > blocks.len() as u64 {
        return false;
    }
    let first = blocks[0].birth;
    let length = births.saturating_sub(first) + 1;
    let part_of = |block: &&LiveBlock| (block.birth - first).saturating_mul(PARTS) / length;
    let mut seen = [false; PARTS as usize];
    for part in blocks.iter().map(part_of) {
        seen[part.min(PARTS - 1) as usize] = true;
    }
    seen.iter().all(|seen| *seen)
}
