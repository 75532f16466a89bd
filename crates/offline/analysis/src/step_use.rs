//! Memory of every pool step by step: the most in use during a step, and what was in use at its end.
//!
//! [`StepFollower`] tells of every step as it ends, for those who write all of them down. The question keeps a limited
//! number: when there are too many, neighbours are drawn together in pairs.

use msmemscope_event::{Device, Pool};
use msmemscope_timeline::TimelineEvent;
use serde::Serialize;

use crate::device_text::{device_text, pool_text};
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, StepChange};
use crate::small_map::SmallMap;

/// Most entries kept of a pool.
const MOST_ENTRIES: usize = 256;

/// A pool during one step, or during some that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepMemory {
    /// Number of the step, or of the last of them.
    pub step: u64,
    /// How many steps.
    pub steps: u64,
    /// When it began, wall clock.
    pub began_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// Most bytes in use.
    pub peak_bytes: u64,
    /// Bytes in use at the end.
    pub end_bytes: u64,
}

impl StepMemory {
    fn with(self, next: Self) -> Self {
        Self {
            steps: self.steps + next.steps,
            began_ns: self.began_ns,
            peak_bytes: self.peak_bytes.max(next.peak_bytes),
            ..next
        }
    }
}

/// The steps of one pool on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolSteps {
    /// Device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// Pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// In order.
    pub steps: Vec<StepMemory>,
}

#[derive(Debug, Default)]
struct Level {
    used_bytes: u64,
    most_bytes: u64,
}

/// Follows all pools over steps.
#[derive(Debug, Default)]
pub struct StepFollower {
    levels: SmallMap<(Device, Pool), Level>,
    /// When the latest step of a device began, or the one before ended.
    began_ns: SmallMap<Device, u64>,
    first_ns: Option<u64>,
}

impl StepFollower {
    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, timestamp_ns: u64) {
        let (BlockChange::Begins(_, event) | BlockChange::Ends(_, event)) = change;
        if self.first_ns.is_none() {
            self.first_ns = Some(timestamp_ns);
        }
        let level = self.levels.entry((event.properties.device, event.properties.pool));
        level.used_bytes = event.used_bytes;
        level.most_bytes = level.most_bytes.max(event.used_bytes);
    }

    /// A step began or ended; `ended` is told of every pool whose step ended.
    pub fn step(&mut self, change: &StepChange, timestamp_ns: u64, ended: &mut dyn FnMut(Device, Pool, StepMemory)) {
        let first_ns = self.first_ns.unwrap_or(timestamp_ns);
        for (&(device, pool), level) in self.levels.iter_mut() {
            if change.device != Device::Unknown && change.device != device {
                continue;
            }
            if !change.begins {
                let memory = StepMemory {
                    step: change.number,
                    steps: 1,
                    began_ns: self.began_ns.get(change.device).copied().unwrap_or(first_ns),
                    ended_ns: timestamp_ns,
                    peak_bytes: level.most_bytes,
                    end_bytes: level.used_bytes,
                };
                ended(device, pool, memory);
            }
            level.most_bytes = level.used_bytes;
        }
        *self.began_ns.entry(change.device) = timestamp_ns;
    }
}

/// Keeps what the follower tells, in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct StepUses {
    follower: StepFollower,
    pools: SmallMap<(Device, Pool), Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    steps: Vec<StepMemory>,
    /// Steps that an entry stands for, as a power of two.
    shift: u32,
}

impl Kept {
    fn add(&mut self, memory: StepMemory) {
        match self.steps.last_mut() {
            Some(last) if last.steps < 1 << self.shift => *last = last.with(memory),
            _ => self.steps.push(memory),
        }
        if self.steps.len() > MOST_ENTRIES {
            self.shift += 1;
            let pairs = self.steps.chunks(2).map(|pair| pair[1..].iter().fold(pair[0], |sum, next| sum.with(*next)));
            self.steps = pairs.collect();
        }
    }
}

impl Question for StepUses {
    type Finding = Vec<PoolSteps>;

    const IS_USUAL: bool = false;
    const IS_FOR_PEOPLE: bool = false;

    fn ask(questions: &mut Questions) -> bool {
        questions.step_use = true;
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.step_use.then(Self::default)
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent, _view: View<'_>) {
        self.follower.block(change, event.timestamp_ns);
    }

    fn step(&mut self, change: &StepChange, view: View<'_>) {
        let pools = &mut self.pools;
        let mut ended = |device, pool, memory| pools.entry((device, pool)).add(memory);
        self.follower.step(change, view.situation.latest_ns(), &mut ended);
    }

    fn finish(self, _view: View<'_>, _end: &mut End<'_>) -> Option<Vec<PoolSteps>> {
        let pools = self.pools.into_entries();
        let mut pools: Vec<PoolSteps> =
            pools.map(|((device, pool), kept)| PoolSteps { device, pool, steps: kept.steps }).collect();
        pools.sort_unstable_by_key(|pool| (pool.device, pool.pool));
        Some(pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_steps_the_most_and_the_last_are_kept() {
        for count in [1u64, 256, 257, 1000, 100_000] {
            let mut kept = Kept::default();
            for step in 1..=count {
                let peak_bytes = if step == count / 2 { 1 << 40 } else { step };
                let (began_ns, ended_ns) = (step * 10, step * 10 + 9);
                kept.add(StepMemory { step, steps: 1, began_ns, ended_ns, peak_bytes, end_bytes: step });
            }
            assert!(kept.steps.len() <= MOST_ENTRIES && kept.steps.len() as u64 >= count.min(128), "{count}");
            assert_eq!(kept.steps.iter().map(|step| step.steps).sum::<u64>(), count);
            assert_eq!((kept.steps[0].began_ns, kept.steps.last().unwrap().end_bytes), (10, count));
            let most = kept.steps.iter().map(|step| step.peak_bytes).max().unwrap();
            assert_eq!(most, if count > 1 { 1 << 40 } else { 1 });
        }
    }
}
