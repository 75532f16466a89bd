//! Who owns the memory: bytes per owner and pool at the peak, at the end, and at the end of a step.

use msmemscope_event::{Device, Pool};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::device_text::{device_text, pool_text};
use crate::names::Names;
use crate::situation::{BlockChange, StepChange};
use crate::small_map::SmallMap;

/// What blocks without owner are called.
pub const UNKNOWN_OWNER: &str = "unknown";

/// Bytes of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnerUse {
    /// The owner, levels joined by `@`.
    pub owner: String,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Owners of one pool on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolOwners {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Most bytes in live blocks at once.
    pub peak_bytes: u64,
    /// When that was.
    pub peak_timestamp_ns: u64,
    /// Step in which that was, zero if none.
    pub peak_step: u64,
    /// Owners then, the largest first.
    pub at_peak: Vec<OwnerUse>,
    /// Owners at the end.
    pub at_end: Vec<OwnerUse>,
    /// Owners at the end of the step asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_step: Option<Vec<OwnerUse>>,
}

/// Owners of all pools.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OwnerReport {
    /// The step asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// By device and pool.
    pub pools: Vec<PoolOwners>,
}

/// A level of the owner tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OwnerNode {
    /// Name of this level.
    pub name: String,
    /// Bytes of this owner and everything below.
    pub bytes: u64,
    /// Blocks of this owner and everything below.
    pub blocks: u64,
    /// Levels below, the largest first.
    pub children: Vec<OwnerNode>,
}

/// Owners as a tree.
pub fn tree(owners: &[OwnerUse]) -> Vec<OwnerNode> {
    let mut root = OwnerNode::default();
    for owner in owners {
        let mut node = &mut root;
        for part in owner.owner.split('@') {
            let position = match node.children.iter().position(|child| child.name == part) {
                Some(position) => position,
                None => {
                    node.children.push(OwnerNode { name: part.to_owned(), ..OwnerNode::default() });
                    node.children.len() - 1
                }
            };
            node = &mut node.children[position];
            node.bytes += owner.bytes;
            node.blocks += owner.blocks;
        }
    }
    sort(&mut root.children);
    root.children
}

fn sort(nodes: &mut [OwnerNode]) {
    nodes.sort_by(|left, right| right.bytes.cmp(&left.bytes).then_with(|| left.name.cmp(&right.name)));
    nodes.iter_mut().for_each(|node| sort(&mut node.children));
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: u64,
    blocks: u64,
}

#[derive(Debug, Default)]
struct PoolState {
    bytes: u64,
    held: Vec<Held>,
    peak_bytes: u64,
    peak_timestamp_ns: u64,
    peak_step: u64,
    /// The peak is now; the owners are copied once it is over.
    peak_is_now: bool,
    at_peak: Vec<Held>,
    at_step: Option<Vec<Held>>,
}

impl PoolState {
    fn keep_peak(&mut self) {
        if self.peak_is_now {
            self.at_peak.clone_from(&self.held);
            self.peak_is_now = false;
        }
    }
}

/// Follows owners.
#[derive(Debug)]
pub struct Decomposition {
    step: Option<u64>,
    pools: SmallMap<(Device, Pool), PoolState>,
    /// Dense numbers of owners, by the id the recording gives them.
    numbers: FxHashMap<u32, u32>,
    owners: Vec<String>,
}

impl Decomposition {
    /// Nothing seen yet.
    pub fn new(step: Option<u64>) -> Self {
        Self { step, pools: SmallMap::default(), numbers: FxHashMap::default(), owners: Vec::new() }
    }

    fn number(&mut self, allocation_id: u64, names: &dyn Names) -> usize {
        let id = names.owner_id(allocation_id);
        let (owners, next) = (&mut self.owners, self.numbers.len() as u32);
        let number = *self.numbers.entry(id).or_insert_with(|| {
            owners.push(names.owner(allocation_id).unwrap_or(UNKNOWN_OWNER).to_owned());
            next
        });
        number as usize
    }

    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, names: &dyn Names) {
        let (BlockChange::Begins(block, _) | BlockChange::Ends(block, _)) = change;
        let number = self.number(block.allocation_id, names);
        let state = self.pools.entry((block.properties.device, block.properties.pool));
        if state.held.len() <= number {
            state.held.resize(number + 1, Held::default());
        }
        match change {
            BlockChange::Begins(..) => {
                let held = &mut state.held[number];
                held.bytes = held.bytes.saturating_add(block.size_bytes);
                held.blocks += 1;
                state.bytes = state.bytes.saturating_add(block.size_bytes);
                if state.bytes > state.peak_bytes {
                    (state.peak_bytes, state.peak_is_now) = (state.bytes, true);
                    (state.peak_timestamp_ns, state.peak_step) = (block.timestamp_ns, block.step);
                }
            }
            BlockChange::Ends(..) => {
                state.keep_peak();
                let held = &mut state.held[number];
                held.bytes = held.bytes.saturating_sub(block.size_bytes);
                held.blocks = held.blocks.saturating_sub(1);
                state.bytes = state.bytes.saturating_sub(block.size_bytes);
            }
        }
    }

    /// A step began or ended.
    pub fn step(&mut self, change: &StepChange) {
        if change.begins || self.step != Some(change.number) {
            return;
        }
        for ((device, _), state) in self.pools.iter_mut() {
            if change.device == Device::Unknown || change.device == *device {
                state.at_step = Some(state.held.clone());
            }
        }
    }

    /// What was found.
    pub fn finish(self) -> OwnerReport {
        let owners = &self.owners;
        let uses = |held: &[Held]| {
            let mut uses: Vec<OwnerUse> = held
                .iter()
                .zip(owners)
                .filter(|(held, _)| held.blocks > 0)
                .map(|(held, owner)| OwnerUse { owner: owner.clone(), bytes: held.bytes, blocks: held.blocks })
                .collect();
            uses.sort_by(|left, right| right.bytes.cmp(&left.bytes).then_with(|| left.owner.cmp(&right.owner)));
            uses
        };
        let mut pools: Vec<PoolOwners> = self
            .pools
            .into_entries()
            .map(|((device, pool), mut state)| {
                state.keep_peak();
                PoolOwners {
                    device,
                    pool,
                    peak_bytes: state.peak_bytes,
                    peak_timestamp_ns: state.peak_timestamp_ns,
                    peak_step: state.peak_step,
                    at_peak: uses(&state.at_peak),
                    at_end: uses(&state.held),
                    at_step: state.at_step.as_deref().map(uses),
                }
            })
            .collect();
        pools.sort_by_key(|pool| (pool.device, pool.pool));
        OwnerReport { step: self.step, pools }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_sums_every_level() {
        let owner = |owner: &str, bytes| OwnerUse { owner: owner.into(), bytes, blocks: 1 };
        let nodes =
            tree(&[owner("PTA@ops@aten", 5), owner("PTA@model@weight", 7), owner("PTA", 1), owner("CANN@HCCL", 20)]);
        assert_eq!(
            nodes.iter().map(|node| (node.name.as_str(), node.bytes)).collect::<Vec<_>>(),
            [("CANN", 20), ("PTA", 13)]
        );
        let below: Vec<_> =
            nodes[1].children.iter().map(|node| (node.name.as_str(), node.bytes, node.blocks)).collect();
        assert_eq!(below, [("model", 7, 1), ("ops", 5, 1)]);
    }
}
