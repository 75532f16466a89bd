//! Who owns the memory: bytes per owner and pool at the peak, at the end, and at the end of a step.

use msmemscope_config::AnalysisSet;
use msmemscope_event::{Device, Pool};
use msmemscope_timeline::{TimelineEvent, UnplacedLabels};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::device_text::{device_text, pool_text};
use crate::grouping::{self, UseNode};
use crate::names::Names;
use crate::owners::OwnerId;
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, LiveBlock, Situation, StepChange};
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
    /// Labels of the user that were ignored because their block had three others.
    #[serde(skip_serializing_if = "is_zero")]
    pub labels_beyond_the_third: u64,
    /// Labels of the user for addresses at which no block of a framework was alive.
    #[serde(skip_serializing_if = "is_zero")]
    pub labels_without_block: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Owners as a tree.
pub fn tree(owners: &[OwnerUse]) -> Vec<UseNode> {
    grouping::tree(owners.iter().map(|owner| (owner.owner.split('@'), owner.bytes, owner.blocks)))
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: u64,
    blocks: u64,
}

/// Blocks that were alive at one moment. Who owned one of them is known for good only when it ends, so
/// they are counted when they end, or at the end of the recording.
#[derive(Debug, Default)]
struct Moment {
    /// Blocks born until then.
    births: u64,
    held: FxHashMap<OwnerId, Held>,
}

impl Moment {
    fn now(&mut self, births: u64) {
        self.births = births;
        self.held.clear();
    }

    #[inline]
    fn count(&mut self, block: &LiveBlock) {
        if block.birth <= self.births {
            let held = self.held.entry(block.owner).or_default();
            held.bytes = held.bytes.saturating_add(block.size_bytes);
            held.blocks += 1;
        }
    }
}

#[derive(Debug, Default)]
struct PoolState {
    bytes: u64,
    peak_bytes: u64,
    peak_timestamp_ns: u64,
    peak_step: u64,
    peak: Moment,
    step: Option<Moment>,
    end: Moment,
}

/// Follows owners.
#[derive(Debug)]
pub struct Decomposition {
    step: Option<u64>,
    pools: SmallMap<(Device, Pool), PoolState>,
}

impl Decomposition {
    /// Nothing seen yet.
    pub fn new(step: Option<u64>) -> Self {
        Self { step, pools: SmallMap::default() }
    }

    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>) {
        let (BlockChange::Begins(block, _) | BlockChange::Ends(block, _)) = change;
        let state = self.pools.entry((block.properties.device, block.properties.pool));
        match change {
            BlockChange::Begins(..) => {
                state.bytes = state.bytes.saturating_add(block.size_bytes);
                if state.bytes > state.peak_bytes {
                    state.peak_bytes = state.bytes;
                    (state.peak_timestamp_ns, state.peak_step) = (block.timestamp_ns, block.step);
                    state.peak.now(block.birth);
                }
            }
            BlockChange::Ends(..) => {
                state.bytes = state.bytes.saturating_sub(block.size_bytes);
                state.peak.count(block);
                if let Some(step) = &mut state.step {
                    step.count(block);
                }
            }
        }
    }

    /// A step began or ended.
    pub fn step(&mut self, change: &StepChange, situation: &Situation) {
        if change.begins || self.step != Some(change.number) {
            return;
        }
        for ((device, _), state) in self.pools.iter_mut() {
            if change.device == Device::Unknown || change.device == *device {
                state.step.get_or_insert_default().now(situation.births());
            }
        }
    }

    /// What was found.
    pub fn finish(mut self, situation: &Situation, names: &dyn Names) -> OwnerReport {
        for (_, state) in self.pools.iter_mut() {
            state.end.now(situation.births());
        }
        for block in situation.live_blocks() {
            let state = self.pools.entry((block.properties.device, block.properties.pool));
            state.peak.count(block);
            state.end.count(block);
            if let Some(step) = &mut state.step {
                step.count(block);
            }
        }
        let mut pools: Vec<PoolOwners> = self
            .pools
            .into_entries()
            .map(|((device, pool), state)| PoolOwners {
                device,
                pool,
                peak_bytes: state.peak_bytes,
                peak_timestamp_ns: state.peak_timestamp_ns,
                peak_step: state.peak_step,
                at_peak: uses(&state.peak, situation, names),
                at_end: uses(&state.end, situation, names),
                at_step: state.step.map(|step| uses(&step, situation, names)),
            })
            .collect();
        pools.sort_by_key(|pool| (pool.device, pool.pool));
        let UnplacedLabels { beyond_the_third, without_block } = situation.unplaced_labels();
        OwnerReport {
            step: self.step,
            pools,
            labels_beyond_the_third: beyond_the_third,
            labels_without_block: without_block,
        }
    }
}

/// Owners in words, the largest first.
fn uses(moment: &Moment, situation: &Situation, names: &dyn Names) -> Vec<OwnerUse> {
    let mut by_text: FxHashMap<String, Held> = FxHashMap::default();
    for (owner, held) in &moment.held {
        let text = situation.owner_text(*owner, names).unwrap_or_else(|| UNKNOWN_OWNER.to_owned());
        let sum = by_text.entry(text).or_default();
        sum.bytes = sum.bytes.saturating_add(held.bytes);
        sum.blocks += held.blocks;
    }
    let mut uses: Vec<OwnerUse> =
        by_text.into_iter().map(|(owner, held)| OwnerUse { owner, bytes: held.bytes, blocks: held.blocks }).collect();
    uses.sort_by(|left, right| right.bytes.cmp(&left.bytes).then_with(|| left.owner.cmp(&right.owner)));
    uses
}

/// What to say about owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerQuestion {
    /// Also at the end of this step.
    pub step: Option<u64>,
}

impl Question for Decomposition {
    type Finding = OwnerReport;

    const ANALYSIS: AnalysisSet = AnalysisSet::DECOMPOSE;

    fn ask(questions: &mut Questions) -> bool {
        questions.owners = Some(OwnerQuestion::default());
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.owners.map(|question| Self::new(question.step))
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, _event: &TimelineEvent, _view: View<'_>) {
        self.block(change);
    }

    fn step(&mut self, change: &StepChange, view: View<'_>) {
        self.step(change, view.situation);
    }

    fn finish(self, view: View<'_>, _end: &mut End<'_>) -> Option<OwnerReport> {
        Some(self.finish(view.situation, view.names))
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
