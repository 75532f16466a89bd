//! Leaks over the steps of a run.
//!
//! A *candidate* was allocated in the second step of its device or later, has survived the end of at
//! least one more step, and is alive at the end of the last step: what a program frees on its way out
//! was not freed while it mattered. Candidates of one call site (stack; without stacks operator, size
//! and owner) are one group. A group with candidates from three or more steps is a *leak*: it grows
//! again and again. One with candidates from two steps, whose site has given nothing back, is a
//! *possible leak*. Otherwise it is *retained once*: a cache that was filled late, a result that is
//! kept. So is every group of a site that gives earlier blocks back and holds no more of them at the end
//! than when it did so first, or has given back as many candidates as it still holds: a history, a
//! cache or a buffer of a limited number of steps does not grow.
//!
//! Driver memory that backs a framework pool is left out: it grows because the pool does, and the
//! pool's own blocks say why. Without any step the only thing that can be said is which driver memory
//! is alive after aclFinalize; what a pool still holds then is alive because a script ended with tensors.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use msmemscope_config::AnalysisSet;
use msmemscope_event::{Device, Pool};
use msmemscope_timeline::TimelineEvent;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::backing::Backing;
use crate::device_text::{device_text, pool_text};
use crate::fluctuation::is_framework_pool;
use crate::holders::{HeldBy, merged};
use crate::moment::phase_word;
use crate::names::{Names, Site, SiteText};
use crate::owners::OwnerId;
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, LiveBlock, Situation, StepChange};
use crate::small_map::SmallMap;

/// What was allocated before this step of a device is kept for good reasons.
const FIRST_STEP: u64 = 2;
/// Candidates from this many steps make a leak.
pub const LEAK_STEPS: usize = 3;
/// Candidates from this many steps may be one.
const POSSIBLE_LEAK_STEPS: u64 = 2;
/// This many steps can show a leak: step 1 never counts, the last one only closes the others.
const ENOUGH_STEPS: u64 = LEAK_STEPS as u64 + 2;
/// Blocks listed per group; all are counted.
const LISTED_BLOCKS: usize = 1000;
/// Step ends remembered per pool; later ones replace every second one.
const REMEMBERED_STEPS: usize = 4096;

/// A block that was not freed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeakedBlock {
    /// Number of the allocation.
    pub allocation_id: u64,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// When it was allocated.
    pub timestamp_ns: u64,
    /// Step it was allocated in.
    pub step: u64,
    /// Kernels that the process had launched before.
    pub kernel_index: u64,
    /// The latest of them, if kernels were recorded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel: String,
}

/// Blocks of one call site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeakGroup {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Where they were allocated.
    pub site: SiteText,
    /// The phase of training in which they were, if anybody has said.
    pub phase: Option<&'static str>,
    /// The module that was being called, if one was.
    pub module: String,
    /// How many blocks.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// From how many different steps.
    pub steps: u64,
    /// First and last of these steps.
    pub step_range: (u64, u64),
    /// Growth: bytes divided by the steps from the first to the last.
    pub bytes_per_step: u64,
    /// How many of them were freed after the last step, when the program ended.
    pub freed_at_the_end: u64,
    /// Who held them when the job looked, those that held most first; nothing if it never saw any of them.
    pub held_by: Vec<HeldBy>,
    /// The blocks in allocation order, at most a thousand of them.
    pub blocks: Vec<LeakedBlock>,
}

/// Use of a pool at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepUse {
    /// The step.
    pub step: u64,
    /// The same counted on the device only.
    pub device_step: u64,
    /// Bytes in use when it ended.
    pub used_bytes: u64,
}

/// How a pool grew from step to step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolGrowth {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Use at step ends, in order; every one unless there are thousands.
    pub step_ends: Vec<StepUse>,
}

impl PoolGrowth {
    /// The step ends of the second half: what came in while memory was settling is no growth.
    pub fn settled(&self) -> &[StepUse] {
        &self.step_ends[self.step_ends.len().saturating_sub(1) / 2..]
    }

    /// Average growth per step in the second half.
    pub fn bytes_per_step(&self) -> Option<f64> {
        let (first, last) = (self.settled().first()?, self.settled().last()?);
        let steps = last.device_step.checked_sub(first.device_step).filter(|&steps| steps > 0)?;
        Some((last.used_bytes as f64 - first.used_bytes as f64) / steps as f64)
    }

    /// Whether it still grew in the second half, and not in a single step only.
    pub fn is_growing(&self) -> bool {
        let rises = self.settled().windows(2).filter(|pair| pair[1].used_bytes > pair[0].used_bytes).count();
        rises > 1 && self.bytes_per_step().is_some_and(|bytes| bytes >= 1.0)
    }
}

/// Why driver memory alive at the end is or is not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverVerdict {
    /// Steps told what leaks.
    ByStep,
    /// There were no steps; what is alive after aclFinalize is reported.
    AfterFinalize,
    /// There were no steps and aclFinalize was not seen, so nothing can be said.
    #[default]
    NotKnown,
}

/// A device whose own steps are too few to tell a leak from a block retained once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FewSteps {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// Its steps that have ended.
    pub ended: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LeakReport {
    /// Steps of the process, of all devices together.
    pub steps: u64,
    /// Devices with memory and too few of these steps, in order.
    pub few_steps: Vec<FewSteps>,
    /// Groups that grow, the largest first.
    pub leaks: Vec<LeakGroup>,
    /// Groups that kept memory in two steps, which may be a leak; the largest first.
    pub possible_leaks: Vec<LeakGroup>,
    /// Groups that do not grow, the largest first.
    pub retained_once: Vec<LeakGroup>,
    /// Driver memory alive after aclFinalize, if there were no steps.
    pub after_finalize: Vec<LeakGroup>,
    /// What is behind the former list.
    pub driver: DriverVerdict,
    /// Driver memory alive at the end because framework pools hold it.
    pub driver_bytes_of_pools: u64,
    /// Whether any block was seen of a pool that can leak.
    pub saw_memory: bool,
    /// Whether any of them was a framework's.
    pub saw_framework_pool: bool,
    /// Whether all of it is a snapshot of another tool, in which there are no steps.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_snapshot: bool,
    /// Growth of every pool.
    pub growth: Vec<PoolGrowth>,
}

impl LeakReport {
    /// What is certain: groups that grow, and driver memory alive after aclFinalize.
    pub fn certain(&self) -> impl Iterator<Item = &LeakGroup> {
        self.leaks.iter().chain(&self.after_finalize)
    }

    /// Everything that is reported as a leak, certain or not.
    pub fn suspects(&self) -> impl Iterator<Item = &LeakGroup> {
        self.certain().chain(&self.possible_leaks)
    }

    /// Bytes of all leaks that are certain.
    pub fn leaked_bytes(&self) -> u64 {
        sum_of_bytes(self.certain())
    }

    /// The same with possible leaks.
    pub fn suspected_bytes(&self) -> u64 {
        sum_of_bytes(self.suspects())
    }

    /// Whether there are too few steps to tell a leak from a block retained once.
    pub fn too_few_steps(&self) -> bool {
        self.steps < ENOUGH_STEPS || !self.few_steps.is_empty()
    }
}

fn sum_of_bytes<'a>(groups: impl Iterator<Item = &'a LeakGroup>) -> u64 {
    groups.map(|group| group.bytes).fold(0, u64::saturating_add)
}

/// A call site on a device.
type SiteKey = (Device, Pool, Site);

/// Blocks that had survived the end of a later step when their site gave them back, while steps went on.
#[derive(Clone, Copy, Debug, Default)]
struct Returned {
    /// Those that had been candidates.
    candidates: u64,
    /// Steps that had ended when the first was given back.
    first_ended: u64,
    /// Those that were there by then.
    early: u64,
    /// Blocks of the site at the end, as old as those.
    held: u64,
    /// Those of them that were there when the first was given back.
    held_early: u64,
}

impl Returned {
    /// Whether the site, which still has this many candidates, does not grow.
    fn is_bounded(&self, candidates: u64) -> bool {
        self.held <= self.early + self.held_early || self.candidates >= candidates
    }
}

fn key_of(block: &LiveBlock) -> SiteKey {
    (block.properties.device, block.properties.pool, Site::of(block))
}

#[derive(Debug, Default)]
struct GrowthState {
    used_bytes: u64,
    step_ends: Vec<StepUse>,
    ends_seen: usize,
    keep_every: usize,
}

/// Follows blocks over steps.
#[derive(Debug, Default)]
pub struct Leaks {
    /// Whether the report is wanted too.
    is_asked: bool,
    is_snapshot: bool,
    growth: SmallMap<(Device, Pool), GrowthState>,
    backing: Backing,
    /// Survivors freed since the latest step end, with the steps that had ended then.
    freed_since_step_end: Vec<(LiveBlock, u64)>,
    /// What sites gave back while steps went on.
    returned: FxHashMap<SiteKey, Returned>,
}

impl Leaks {
    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, situation: &Situation) {
        if let BlockChange::Ends(block, _) = change
            && self.is_survivor(block, situation)
        {
            let ended = situation.steps(block.properties.device).ended;
            self.freed_since_step_end.push((**block, ended));
        }
        let (BlockChange::Begins(block, event) | BlockChange::Ends(block, event)) = change;
        let (device, pool) = (block.properties.device, block.properties.pool);
        self.backing.block(change);
        if pool == Pool::Hal || pool == Pool::PytorchWorkspace || is_framework_pool(pool) {
            self.growth.entry((device, pool)).used_bytes = event.used_bytes;
        }
    }

    /// A step began or ended.
    pub fn step(&mut self, change: &StepChange, situation: &Situation) {
        if change.begins {
            return;
        }
        let of_this_device = |device: Device| change.device == Device::Unknown || change.device == device;
        let all = &mut self.returned;
        self.freed_since_step_end.retain(|(block, ended)| {
            let is_meant = of_this_device(block.properties.device);
            if is_meant {
                let first = Returned { first_ended: *ended, ..Returned::default() };
                let returned = all.entry(key_of(block)).or_insert(first);
                returned.candidates += u64::from(block.device_step >= FIRST_STEP);
                returned.early += u64::from(block.device_step < returned.first_ended);
            }
            !is_meant
        });
        for ((device, _), state) in self.growth.iter_mut() {
            if of_this_device(*device) {
                let device_step = situation.steps(*device).ended;
                state.remember(StepUse { step: change.number, device_step, used_bytes: state.used_bytes });
            }
        }
    }

    /// Whether a block has survived the end of a step after its own.
    #[inline]
    fn is_survivor(&self, block: &LiveBlock, situation: &Situation) -> bool {
        let properties = &block.properties;
        if situation.steps(properties.device).ended <= block.device_step {
            return false;
        }
        let of_interest = match properties.pool {
            Pool::Hal => !self.backing.backs_pool(block),
            pool => is_framework_pool(pool),
        };
        of_interest && !block.shadow
    }

    /// Whether a driver block belongs to a framework pool, as far as seen.
    pub(crate) fn backs_pool(&self, block: &LiveBlock) -> bool {
        self.backing.backs_pool(block)
    }

    /// Whether a device has had enough steps to show a leak.
    pub(crate) fn has_enough_steps(device: Device, situation: &Situation) -> bool {
        situation.steps(device).ended >= ENOUGH_STEPS
    }

    /// The blocks that would be called leaks if the run ended now, as bytes per device.
    pub fn leaked_bytes_now(&self, device: Device, situation: &Situation) -> u64 {
        let is_held = |block: &&LiveBlock| {
            let on_device = block.properties.device == device && block.properties.pool != Pool::Hal;
            on_device && self.is_survivor(block, situation)
        };
        let held: Vec<&LiveBlock> = situation.live_blocks().filter(is_held).collect();
        let all_returned = self.returned_beside(&held);
        let mut groups: FxHashMap<SiteKey, (FxHashSet<u64>, u64, u64)> = FxHashMap::default();
        for block in held.iter().filter(|block| block.device_step >= FIRST_STEP) {
            let (steps, count, bytes) = groups.entry(key_of(block)).or_default();
            steps.insert(block.device_step);
            *count += 1;
            *bytes = bytes.saturating_add(block.size_bytes);
        }
        let grows =
            |site: &SiteKey, count: u64| all_returned.get(site).is_none_or(|returned| !returned.is_bounded(count));
        groups
            .iter()
            .filter(|(site, (steps, count, _))| steps.len() >= LEAK_STEPS && grows(site, *count))
            .map(|(_, (_, _, bytes))| *bytes)
            .fold(0, u64::saturating_add)
    }

    /// What sites gave back, with what they hold.
    fn returned_beside(&self, held: &[&LiveBlock]) -> FxHashMap<SiteKey, Returned> {
        let mut all_returned = self.returned.clone();
        for block in held {
            if let Some(returned) = all_returned.get_mut(&key_of(block)) {
                returned.held += 1;
                returned.held_early += u64::from(block.device_step < returned.first_ended);
            }
        }
        all_returned
    }

    /// What was found in this many steps.
    pub fn finish(self, steps: u64, situation: &Situation, names: &dyn Names) -> LeakReport {
        let mut held: Vec<&LiveBlock> =
            situation.live_blocks().filter(|block| self.is_survivor(block, situation)).collect();
        // Frees inside a step that never ended belong to its work.
        let is_exit = |block: &&LiveBlock| !situation.steps(block.properties.device).is_open_range();
        held.extend(self.freed_since_step_end.iter().map(|(block, _)| block).filter(is_exit));
        held.sort_unstable_by_key(|block| block.allocation_id);
        let all_returned = self.returned_beside(&held);
        held.retain(|block| block.device_step >= FIRST_STEP);
        let freed: FxHashSet<u64> = self.freed_since_step_end.iter().map(|(block, _)| block.allocation_id).collect();
        let (mut leaks, mut possible_leaks, mut retained_once) = (Vec::new(), Vec::new(), Vec::new());
        for (site, group) in group(&held, &freed, situation, names) {
            let returned = all_returned.get(&(group.device, group.pool, site));
            let list = match group.steps >= LEAK_STEPS as u64 {
                true if returned.is_none_or(|returned| !returned.is_bounded(group.count)) => &mut leaks,
                false if group.steps == POSSIBLE_LEAK_STEPS && returned.is_none() => &mut possible_leaks,
                _ => &mut retained_once,
            };
            list.push(group);
        }
        let [leaks, possible_leaks, retained_once] = [leaks, possible_leaks, retained_once].map(joined_by_line);
        let driver = match (steps > 0, situation.is_acl_finalized()) {
            (true, _) => DriverVerdict::ByStep,
            (false, true) => DriverVerdict::AfterFinalize,
            (false, false) => DriverVerdict::NotKnown,
        };
        let mut after_finalize = Vec::new();
        if driver == DriverVerdict::AfterFinalize {
            let is_candidate = |block: &&LiveBlock| {
                block.properties.pool == Pool::Hal && !block.shadow && !self.backing.backs_pool(block)
            };
            let mut alive: Vec<&LiveBlock> = situation.live_blocks().filter(is_candidate).collect();
            alive.sort_unstable_by_key(|block| block.allocation_id);
            let groups = group(&alive, &FxHashSet::default(), situation, names);
            after_finalize = joined_by_line(groups.into_iter().map(|(_, group)| group).collect());
        }
        let driver_bytes_of_pools = situation
            .live_blocks()
            .filter(|block| block.properties.pool == Pool::Hal && self.backing.backs_pool(block))
            .map(|block| block.size_bytes)
            .fold(0, u64::saturating_add);
        let saw_framework_pool = self.growth.iter().any(|((_, pool), _)| is_framework_pool(*pool));
        let saw_memory = self.growth.iter().next().is_some();
        let mut few_steps: Vec<FewSteps> = self
            .growth
            .iter()
            .map(|((device, _), _)| FewSteps { device: *device, ended: situation.steps(*device).ended })
            .filter(|few| few.ended < ENOUGH_STEPS)
            .collect();
        few_steps.sort_unstable_by_key(|few| few.device);
        few_steps.dedup();
        let mut growth: Vec<PoolGrowth> = self
            .growth
            .into_entries()
            .filter(|(_, state)| !state.step_ends.is_empty())
            .map(|((device, pool), state)| PoolGrowth { device, pool, step_ends: state.step_ends })
            .collect();
        growth.sort_by_key(|growth| (growth.device, growth.pool));
        LeakReport {
            steps,
            few_steps,
            leaks,
            possible_leaks,
            retained_once,
            after_finalize,
            driver,
            driver_bytes_of_pools,
            saw_memory,
            saw_framework_pool,
            is_snapshot: self.is_snapshot,
            growth,
        }
    }
}

impl GrowthState {
    fn remember(&mut self, step_use: StepUse) {
        self.keep_every = self.keep_every.max(1);
        if self.ends_seen.is_multiple_of(self.keep_every) {
            self.step_ends.push(step_use);
        }
        self.ends_seen += 1;
        if self.step_ends.len() >= REMEMBERED_STEPS {
            let mut position = 0;
            self.step_ends.retain(|_| {
                position += 1;
                position % 2 == 1
            });
            self.keep_every *= 2;
        }
    }
}

/// Groups whose calls read the same are one: a line may call an operator twice. What has no stack stays apart.
fn joined_by_line(groups: Vec<LeakGroup>) -> Vec<LeakGroup> {
    let mut joined: Vec<LeakGroup> = Vec::new();
    let mut of_line: FxHashMap<(Device, Pool, String), Vec<usize>> = FxHashMap::default();
    for group in groups {
        let has_stack = !group.site.python.is_empty() || !group.site.native.is_empty();
        let known = of_line.entry((group.device, group.pool, group.site.line.clone())).or_default();
        match known.iter().find(|&&index| has_stack && joined[index].site == group.site) {
            Some(&index) => joined[index].join(group),
            None => {
                known.push(joined.len());
                joined.push(group);
            }
        }
    }
    sort(&mut joined);
    joined
}

/// The largest first.
fn sort(groups: &mut [LeakGroup]) {
    groups.sort_by_key(|group| (Reverse((group.bytes_per_step, group.bytes)), group.device));
}

impl LeakGroup {
    fn join(&mut self, other: LeakGroup) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.steps = self.steps.max(other.steps);
        self.step_range = (self.step_range.0.min(other.step_range.0), self.step_range.1.max(other.step_range.1));
        self.bytes_per_step = self.bytes_per_step.saturating_add(other.bytes_per_step);
        self.freed_at_the_end += other.freed_at_the_end;
        self.held_by = merged(self.held_by.iter().chain(&other.held_by));
        self.blocks.extend(other.blocks);
        self.blocks.sort_unstable_by_key(|block| block.allocation_id);
        self.blocks.truncate(LISTED_BLOCKS);
    }
}

/// Blocks by site, the largest group first. Sites without stacks also differ by owner.
fn group(
    blocks: &[&LiveBlock],
    freed: &FxHashSet<u64>,
    situation: &Situation,
    names: &dyn Names,
) -> Vec<(Site, LeakGroup)> {
    let mut groups: BTreeMap<(Device, Pool, Site, Option<OwnerId>), Vec<&LiveBlock>> = BTreeMap::new();
    for block in blocks {
        let site = Site::of(block);
        let owner = match site {
            Site::Bare { .. } => Some(block.owner),
            _ => None,
        };
        groups.entry((block.properties.device, block.properties.pool, site, owner)).or_default().push(block);
    }
    let mut found: Vec<(Site, LeakGroup)> = groups
        .into_iter()
        .map(|((device, pool, site, _), blocks)| {
            // In allocation order, so step numbers never decrease.
            let mut steps: Vec<(u64, u64)> = blocks.iter().map(|block| (block.device_step, block.step)).collect();
            steps.dedup();
            let (first, last) = (steps[0], steps[steps.len() - 1]);
            let bytes: u64 = blocks.iter().map(|block| block.size_bytes).fold(0, u64::saturating_add);
            let leaked = |block: &&LiveBlock| LeakedBlock {
                allocation_id: block.allocation_id,
                address: block.address,
                size_bytes: block.size_bytes,
                timestamp_ns: block.timestamp_ns,
                step: block.step,
                kernel_index: block.kernel_index,
                kernel: if block.kernel.is_some() { names.text(block.kernel) } else { String::new() },
            };
            let group = LeakGroup {
                device,
                pool,
                site: SiteText::of(blocks[0], situation, names),
                phase: blocks[0].phase.map(phase_word),
                module: names.text(blocks[0].module),
                count: blocks.len() as u64,
                bytes,
                steps: steps.len() as u64,
                step_range: (first.1, last.1),
                bytes_per_step: bytes / (last.0 - first.0 + 1),
                freed_at_the_end: blocks.iter().filter(|block| freed.contains(&block.allocation_id)).count() as u64,
                held_by: situation
                    .holders()
                    .of_blocks(blocks.iter().map(|block| (block.allocation_id, block.size_bytes)), names),
                blocks: blocks.iter().take(LISTED_BLOCKS).map(leaked).collect(),
            };
            (site, group)
        })
        .collect();
    found.sort_by_key(|(_, group)| (Reverse((group.bytes_per_step, group.bytes)), group.device));
    found
}

impl Question for Leaks {
    type Finding = LeakReport;

    const ANALYSIS: AnalysisSet = AnalysisSet::LEAKS;

    fn ask(questions: &mut Questions) -> bool {
        questions.leaks = true;
        true
    }

    /// The reason of an out-of-memory failure may be a leak.
    fn start(questions: &Questions, about: &About<'_>) -> Option<Self> {
        let (is_asked, is_snapshot) = (questions.leaks, about.is_snapshot);
        (is_asked || questions.out_of_memory.is_some()).then(|| Self { is_asked, is_snapshot, ..Self::default() })
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, _event: &TimelineEvent, view: View<'_>) {
        self.block(change, view.situation);
    }

    fn step(&mut self, change: &StepChange, view: View<'_>) {
        self.step(change, view.situation);
    }

    fn finish(self, view: View<'_>, end: &mut End<'_>) -> Option<LeakReport> {
        self.is_asked.then(|| self.finish(end.summary.steps, view.situation, view.names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(line: u32, operator: &str, allocation_ids: [u64; 2], path: &str) -> LeakGroup {
        let block = |allocation_id| LeakedBlock {
            allocation_id,
            address: 0,
            size_bytes: 8,
            timestamp_ns: 0,
            step: allocation_id,
            kernel_index: 0,
            kernel: String::new(),
        };
        let frame =
            crate::names::Frame { function: "main".into(), file: "train.py".into(), line, ..Default::default() };
        let line = frame.describe();
        let held_by = vec![HeldBy { path: path.into(), blocks: 2, bytes: 16 }];
        LeakGroup {
            device: Device::Npu(0),
            pool: Pool::PytorchCaching,
            site: SiteText { line, operator: operator.into(), python: vec![frame], ..SiteText::default() },
            phase: None,
            module: String::new(),
            count: 2,
            bytes: 16,
            steps: 2,
            step_range: (allocation_ids[0], allocation_ids[1]),
            bytes_per_step: 8,
            freed_at_the_end: 1,
            held_by,
            blocks: allocation_ids.map(block).to_vec(),
        }
    }

    #[test]
    fn an_operator_that_a_line_calls_twice_is_one_row() {
        let groups = vec![
            group(7, "mm", [2, 6], "keys"),
            group(9, "mm", [1, 8], "keys"),
            group(7, "mm", [3, 7], "values"),
            group(7, "cat", [4, 5], "keys"),
            group(7, "mm", [9, 10], "keys"),
        ];
        let joined = joined_by_line(groups);
        let rows: Vec<_> =
            joined.iter().map(|group| (&group.site.line[..], &group.site.operator[..], group.count)).collect();
        assert_eq!(rows, [("train.py:7 main", "mm", 6), ("train.py:9 main", "mm", 2), ("train.py:7 main", "cat", 2)]);
        let first = &joined[0];
        assert_eq!((first.bytes, first.bytes_per_step, first.step_range), (48, 24, (2, 10)));
        assert_eq!(first.blocks.iter().map(|block| block.allocation_id).collect::<Vec<_>>(), [2, 3, 6, 7, 9, 10]);
        let held: Vec<_> = first.held_by.iter().map(|held| (&held.path[..], held.blocks, held.bytes)).collect();
        assert_eq!(held, [("keys", 4, 32), ("values", 2, 16)]);
    }

    #[test]
    fn what_has_no_stack_is_not_joined() {
        let bare = || LeakGroup { site: SiteText::default(), ..group(7, "mm", [1, 2], "keys") };
        assert_eq!(joined_by_line(vec![bare(), bare()]).len(), 2);
    }
}
