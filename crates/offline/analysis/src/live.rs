//! What a job holds right now and what has grown recently, while it runs.
//!
//! Sums are taken of the live blocks from time to time: at ends of steps if there are steps, since in the middle of one
//! every activation would look like growth, otherwise whenever somebody looks. What has grown is the difference of the
//! newest and the oldest of them.

use std::collections::VecDeque;

use msmemscope_event::{Device, Pool};
use msmemscope_timeline::refusals::OUT_OF_MEMORY_SNAPSHOT;
use msmemscope_timeline::{EventKind, StepSource, TimelineEvent};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::curve::{CurveReport, Curves};
use crate::decompose::UNKNOWN_OWNER;
use crate::device_text::{device_text, pool_text};
use crate::fluctuation::is_framework_pool;
use crate::moment::{Places, merged_lines, places_of};
use crate::names::{Names, SiteText};
use crate::situation::{LiveBlock, Situation, StepChange};
use crate::small_map::SmallMap;

/// Sums kept, and the shortest time between two of them.
const MOST_SUMS: usize = 16;
const SUMS_INTERVAL_NS: u64 = 1_000_000_000;
/// Steps kept.
const MOST_STEPS: usize = 16;
/// Lines and owners shown; more do not fit on a screen.
const MOST_LINES: usize = 50;

/// A pool of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LivePool {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that the pool has reserved, zero if it does not say.
    pub reserved_bytes: u64,
    /// The most bytes that were in use.
    pub peak_bytes: u64,
}

/// What somebody owns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveOwner {
    /// Who.
    pub owner: String,
    /// Bytes of the blocks.
    pub bytes: u64,
    /// How many blocks.
    pub blocks: u64,
}

/// What a line of code has allocated and is still there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveLine {
    /// Where.
    pub site: SiteText,
    /// Bytes of its blocks now.
    pub bytes: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Bytes by which it has grown between the oldest and the newest sums.
    pub grown_bytes: u64,
}

/// A step that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LiveStep {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// Its number.
    pub number: u64,
    /// How long it took, zero if its start is not known.
    pub duration_ns: u64,
    /// The most bytes in use during the step in the pool that is looked at.
    pub peak_bytes: u64,
    /// Bytes in use at its end.
    pub end_bytes: u64,
    /// By how much that is more than at the end of the step before; less than zero if it is less.
    pub change_bytes: i64,
}

/// What is growing is measured between these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Span {
    /// Steps, zero if sums are not taken at ends of steps.
    pub steps: u64,
    /// Nanoseconds.
    pub duration_ns: u64,
}

/// The state of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LivePicture {
    /// Time from the first event to the moment of the picture.
    pub since_start_ns: u64,
    /// Events so far.
    pub events: u64,
    /// Pools, those of frameworks first.
    pub pools: Vec<LivePool>,
    /// Bytes in use over time.
    pub curve: CurveReport,
    /// Owners of what is in use, those with most first.
    pub owners: Vec<LiveOwner>,
    /// Lines that grow, fastest first, then those that hold most.
    pub lines: Vec<LiveLine>,
    /// What growth of the lines refers to.
    pub grown_over: Span,
    /// The latest steps, the newest last.
    pub steps: Vec<LiveStep>,
    /// When memory was last refused, wall clock; zero if never.
    #[serde(skip)]
    pub latest_refusal_ns: u64,
}

/// Sums of the live blocks at one moment.
#[derive(Debug)]
struct Sums {
    timestamp_ns: u64,
    /// Steps ended before, if there are steps.
    steps: u64,
    places: Places,
}

#[derive(Debug, Default)]
struct PoolState {
    used_bytes: u64,
    reserved_bytes: u64,
    peak_bytes: u64,
    peak_of_step_bytes: u64,
    last_end_bytes: u64,
    has_ended_step: bool,
}

/// Follows a job.
#[derive(Debug, Default)]
pub struct LiveMemory {
    situation: Situation,
    first_ns: Option<u64>,
    events: u64,
    pools: SmallMap<(Device, Pool), PoolState>,
    curves: Curves,
    sums: VecDeque<Sums>,
    steps: VecDeque<LiveStep>,
    steps_ended: u64,
    latest_refusal_ns: u64,
    /// When the latest step of a device began, or that of all of them.
    step_starts_ns: SmallMap<Device, u64>,
}

impl LiveMemory {
    /// Of a job whose steps come from a source, as far as that is known.
    pub fn new(step_source: Option<StepSource>) -> Self {
        let mut memory = Self::default();
        if let Some(first_number) = step_source.and_then(StepSource::first_number) {
            memory.situation.begin_with_step(first_number);
        }
        memory
    }

    /// Takes in an event.
    pub fn event(&mut self, event: &TimelineEvent, names: &dyn Names) {
        self.events += 1;
        self.first_ns.get_or_insert(event.timestamp_ns);
        let (_, step) = self.situation.update(event, names);
        if let EventKind::Malloc(block) | EventKind::Free(block) = &event.kind {
            let state = self.pools.entry((block.properties.device, block.properties.pool));
            (state.used_bytes, state.reserved_bytes) = (block.used_bytes, block.total_bytes);
            state.peak_bytes = state.peak_bytes.max(block.used_bytes);
            state.peak_of_step_bytes = state.peak_of_step_bytes.max(block.used_bytes);
            let (device, pool) = (block.properties.device, block.properties.pool);
            self.curves.add(device, pool, event.timestamp_ns, block.used_bytes);
        }
        let is_refusal = match &event.kind {
            EventKind::AllocationFailed { .. } => true,
            EventKind::Snapshot { name, .. } => names.text(*name) == OUT_OF_MEMORY_SNAPSHOT,
            _ => false,
        };
        if is_refusal {
            self.latest_refusal_ns = event.timestamp_ns;
        }
        if let Some(change) = step {
            self.step(&change, event.timestamp_ns);
        }
    }

    fn step(&mut self, change: &StepChange, now_ns: u64) {
        let main_pools = self.main_pools();
        let started_ns = self.step_starts_ns.get(change.device).copied();
        for (&(device, pool), state) in self.pools.iter_mut() {
            if change.device != Device::Unknown && change.device != device {
                continue;
            }
            if !change.begins && main_pools.contains(&(device, pool)) {
                self.steps.push_back(LiveStep {
                    device,
                    number: change.number,
                    duration_ns: started_ns.map_or(0, |started_ns| now_ns.saturating_sub(started_ns)),
                    peak_bytes: state.peak_of_step_bytes,
                    end_bytes: state.used_bytes,
                    change_bytes: match state.has_ended_step {
                        true => state.used_bytes as i64 - state.last_end_bytes as i64,
                        false => 0,
                    },
                });
                (state.last_end_bytes, state.has_ended_step) = (state.used_bytes, true);
            }
            state.peak_of_step_bytes = state.used_bytes;
        }
        // Steps that are counted by their ends begin where the one before ends.
        *self.step_starts_ns.entry(change.device) = now_ns;
        let surplus = self.steps.len().saturating_sub(MOST_STEPS);
        self.steps.drain(..surplus);
        if !change.begins {
            self.steps_ended += 1;
            self.add_sums(now_ns);
        }
    }

    /// Pools that tell most: of each device those of frameworks, or what came from the driver if there are none.
    fn main_pools(&self) -> Vec<(Device, Pool)> {
        let all = || self.pools.iter().map(|(key, _)| *key);
        let has_framework = |device: Device| all().any(|(of, pool)| of == device && is_framework_pool(pool));
        all().filter(|(device, pool)| is_framework_pool(*pool) || !has_framework(*device)).collect()
    }

    fn main_blocks(&self) -> impl Iterator<Item = &LiveBlock> {
        let pools = self.main_pools();
        let blocks = self.situation.live_blocks();
        blocks.filter(move |block| pools.contains(&(block.properties.device, block.properties.pool)))
    }

    fn add_sums(&mut self, now_ns: u64) {
        let is_due = self.sums.back().is_none_or(|last| now_ns.saturating_sub(last.timestamp_ns) >= SUMS_INTERVAL_NS);
        if !is_due {
            return;
        }
        // With the first end of a step, sums taken at other moments mean nothing any more.
        if self.steps_ended > 0 {
            self.sums.retain(|sums| sums.steps > 0);
        }
        let places = places_of(self.main_blocks());
        self.sums.push_back(Sums { timestamp_ns: now_ns, steps: self.steps_ended, places });
        let surplus = self.sums.len().saturating_sub(MOST_SUMS);
        self.sums.drain(..surplus);
    }

    /// The state at a moment, which is not before the latest event.
    pub fn picture(&mut self, now_ns: u64, names: &dyn Names) -> LivePicture {
        let now_ns = now_ns.max(self.situation.latest_ns());
        if self.steps_ended == 0 && self.first_ns.is_some() {
            self.add_sums(now_ns);
        }
        let mut pools: Vec<LivePool> = self.pools.iter().map(live_pool).collect();
        pools.sort_by_key(|pool| (pool.device, !is_framework_pool(pool.pool), std::cmp::Reverse(pool.used_bytes)));
        LivePicture {
            since_start_ns: self.first_ns.map_or(0, |first_ns| now_ns - first_ns),
            events: self.events,
            pools,
            curve: self.curves.until(now_ns),
            owners: self.owners(names),
            lines: self.lines(names),
            grown_over: self.span(),
            steps: self.steps.iter().copied().collect(),
            latest_refusal_ns: self.latest_refusal_ns,
        }
    }

    fn span(&self) -> Span {
        match (self.sums.front(), self.sums.back()) {
            (Some(first), Some(last)) => Span {
                steps: last.steps - first.steps,
                duration_ns: last.timestamp_ns.saturating_sub(first.timestamp_ns),
            },
            _ => Span::default(),
        }
    }

    fn owners(&self, names: &dyn Names) -> Vec<LiveOwner> {
        let mut sums = FxHashMap::<_, (u64, u64)>::default();
        for block in self.main_blocks() {
            let (bytes, blocks) = sums.entry(block.owner).or_default();
            (*bytes, *blocks) = (bytes.saturating_add(block.size_bytes), *blocks + 1);
        }
        let mut by_text = FxHashMap::<String, (u64, u64)>::default();
        for (owner, (bytes, blocks)) in sums {
            let text = self.situation.owner_text(owner, names).unwrap_or_else(|| UNKNOWN_OWNER.to_owned());
            let (all_bytes, all_blocks) = by_text.entry(text).or_default();
            (*all_bytes, *all_blocks) = (all_bytes.saturating_add(bytes), *all_blocks + blocks);
        }
        let owned = by_text.into_iter().map(|(owner, (bytes, blocks))| LiveOwner { owner, bytes, blocks });
        let mut owners: Vec<LiveOwner> = owned.collect();
        owners.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.owner.cmp(&b.owner)));
        owners.truncate(MOST_LINES);
        owners
    }

    fn lines(&self, names: &dyn Names) -> Vec<LiveLine> {
        let bytes_by_line = |sums: Option<&Sums>| -> FxHashMap<String, u64> {
            let lines = sums.map_or(Vec::new(), |sums| merged_lines(sums.places.clone(), &self.situation, names));
            lines.into_iter().map(|line| (line.site.line, line.bytes)).collect()
        };
        let (before, after) = (bytes_by_line(self.sums.front()), bytes_by_line(self.sums.back()));
        let grown = |line: &str| {
            let bytes = |sums: &FxHashMap<String, u64>| sums.get(line).copied().unwrap_or(0);
            bytes(&after).saturating_sub(bytes(&before))
        };
        let now = merged_lines(places_of(self.main_blocks()), &self.situation, names);
        let mut lines: Vec<LiveLine> = now
            .into_iter()
            .map(|line| LiveLine {
                grown_bytes: grown(&line.site.line),
                site: line.site,
                bytes: line.bytes,
                blocks: line.blocks,
            })
            .collect();
        lines.sort_by_key(|line| std::cmp::Reverse((line.grown_bytes, line.bytes)));
        lines.truncate(MOST_LINES);
        lines
    }
}

fn live_pool((&(device, pool), state): (&(Device, Pool), &PoolState)) -> LivePool {
    LivePool {
        device,
        pool,
        used_bytes: state.used_bytes,
        reserved_bytes: state.reserved_bytes,
        peak_bytes: state.peak_bytes,
    }
}

#[cfg(test)]
mod tests {
    use msmemscope_event::{BlockProperties, StackId, StringId};
    use msmemscope_timeline::BlockEvent;
    use msmemscope_trace::Definitions;

    use super::*;
    use crate::installation::Origin;
    use crate::names::Frame;

    const SECOND_NS: u64 = 1_000_000_000;

    /// The number of a stack is its line in the user's script.
    struct Lines;

    impl Names for Lines {
        fn text(&self, _: StringId) -> String {
            String::new()
        }

        fn python_frames(&self, stack: StackId) -> Vec<Frame> {
            vec![Frame {
                function: "step".to_owned(),
                file: "train.py".to_owned(),
                line: stack.0,
                origin: Origin::Program,
            }]
        }

        fn native_frames(&self, _: StackId, _: u64) -> Vec<Frame> {
            Vec::new()
        }

        fn definitions(&self) -> Option<&Definitions> {
            None
        }

        fn stated_owner_id(&self, _: u64) -> u32 {
            0
        }

        fn stated_owner(&self, _: u32) -> Option<String> {
            None
        }

        fn row_id(&self, allocation_id: u64) -> u64 {
            allocation_id
        }
    }

    /// A job that keeps a block of line 5 in every step and one of line 3 for all of them, and in its steps uses line 9.
    #[derive(Default)]
    struct Job {
        memory: LiveMemory,
        now_ns: u64,
        used_bytes: u64,
        blocks: u32,
    }

    impl Job {
        fn event(&mut self, line: u32, step: u64, kind: EventKind) {
            self.now_ns += SECOND_NS;
            let event = TimelineEvent {
                timestamp_ns: self.now_ns,
                thread_id: 1,
                device: Device::Npu(0),
                step,
                native_stack: StackId::NONE,
                python_stack: StackId(line),
                kind,
            };
            self.memory.event(&event, &Lines);
        }

        fn block(&self, slot: u32, size_bytes: u64) -> BlockEvent {
            BlockEvent {
                allocation_id: u64::from(slot) + 1,
                slot,
                address: u64::from(slot) << 20,
                size_bytes,
                properties: BlockProperties::framework(Pool::PytorchCaching, Device::Npu(0)),
                used_bytes: self.used_bytes,
                total_bytes: 1 << 30,
                card: None,
                shadow: false,
                alive_at_process_end: false,
                stream: 0,
            }
        }

        fn allocate(&mut self, line: u32, size_bytes: u64) -> u32 {
            self.used_bytes += size_bytes;
            self.blocks += 1;
            self.event(line, 0, EventKind::Malloc(self.block(self.blocks, size_bytes)));
            self.blocks
        }

        fn free(&mut self, slot: u32, size_bytes: u64) {
            self.used_bytes -= size_bytes;
            self.event(0, 0, EventKind::Free(self.block(slot, size_bytes)));
        }
    }

    #[test]
    fn growth_is_measured_between_ends_of_steps() {
        let mut job = Job { memory: LiveMemory::new(Some(StepSource::Api { first_number: 1 })), ..Job::default() };
        job.allocate(3, 10_000);
        for step in 1..=30 {
            let activation = job.allocate(9, 50_000);
            job.allocate(5, 100);
            job.free(activation, 50_000);
            job.event(0, step, EventKind::StepEnd { number: step });
        }
        // In the middle of a step what it uses is there, and no growth.
        job.allocate(9, 50_000);
        let picture = job.memory.picture(0, &Lines);
        let lines: Vec<(&str, u64, u64)> =
            picture.lines.iter().map(|line| (line.site.line.as_str(), line.grown_bytes, line.bytes)).collect();
        assert_eq!(picture.grown_over.steps, 15);
        assert_eq!(
            lines,
            [("train.py:5 step", 1_500, 3_000), ("train.py:9 step", 0, 50_000), ("train.py:3 step", 0, 10_000)]
        );
        let last = picture.steps.last().expect("steps");
        assert_eq!((last.number, last.peak_bytes, last.end_bytes, last.change_bytes), (30, 63_000, 13_000, 100));
        assert_eq!(picture.steps.len(), MOST_STEPS);
        let pool = &picture.pools[0];
        assert_eq!((pool.used_bytes, pool.peak_bytes, pool.reserved_bytes), (63_000, 63_000, 1 << 30));
        assert_eq!(picture.curve.pools[0].most_bytes.iter().max(), Some(&63_000));
    }

    #[test]
    fn without_steps_growth_is_measured_between_looks() {
        let mut job = Job::default();
        job.allocate(5, 100);
        job.memory.picture(0, &Lines);
        job.allocate(5, 70);
        let picture = job.memory.picture(0, &Lines);
        assert_eq!((picture.lines[0].grown_bytes, picture.lines[0].bytes), (70, 170));
        assert_eq!(picture.grown_over, Span { steps: 0, duration_ns: SECOND_NS });
    }
}
