//! Fluctuation: how far the use of a pool swings within a step.
//!
//! Per device and pool, from the second step on: the ratio of the least to the most bytes in use
//! during the step. The steps with the smallest and the largest ratio are reported.

use msmemscope_config::AnalysisSet;
use msmemscope_event::{Device, Pool};
use msmemscope_timeline::TimelineEvent;
use serde::Serialize;

use crate::device_text::{device_text, pool_text};
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, Situation, StepChange};
use crate::small_map::SmallMap;

/// Steps before this one do not count: memory has not settled yet.
const FIRST_STEP: u64 = 2;

/// One step of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Swing {
    /// Least divided by most bytes in use.
    pub ratio: f64,
    /// Least bytes in use.
    pub minimum_bytes: u64,
    /// Most bytes in use.
    pub maximum_bytes: u64,
    /// The step.
    pub step: u64,
}

/// Fluctuation of one pool on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolFluctuation {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// The step with the smallest ratio.
    pub smallest: Option<Swing>,
    /// The step with the largest ratio.
    pub largest: Option<Swing>,
    /// Steps looked at.
    pub steps: u64,
}

#[derive(Debug, Default)]
struct PoolState {
    used_bytes: u64,
    range: Option<(u64, u64)>,
    smallest: Option<Swing>,
    largest: Option<Swing>,
    steps: u64,
}

/// Follows the pools.
#[derive(Debug, Default)]
pub struct Fluctuation {
    pools: SmallMap<(Device, Pool), PoolState>,
}

/// Pools whose steps are looked at.
pub fn is_framework_pool(pool: Pool) -> bool {
    matches!(pool, Pool::PytorchCaching | Pool::Mindspore | Pool::Atb)
}

impl Fluctuation {
    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, situation: &Situation) {
        let (BlockChange::Begins(block, event) | BlockChange::Ends(block, event)) = change;
        let (device, pool) = (block.properties.device, block.properties.pool);
        if !is_framework_pool(pool) {
            return;
        }
        let state = self.pools.entry((device, pool));
        state.used_bytes = event.used_bytes;
        if situation.steps(device).begun >= FIRST_STEP {
            let (least, most) = state.range.unwrap_or((event.used_bytes, event.used_bytes));
            state.range = Some((least.min(event.used_bytes), most.max(event.used_bytes)));
        }
    }

    /// A step began or ended.
    pub fn step(&mut self, change: &StepChange, situation: &Situation) {
        for ((device, _), state) in self.pools.iter_mut() {
            if change.device != Device::Unknown && *device != change.device {
                continue;
            }
            if change.begins {
                state.range = Some((state.used_bytes, state.used_bytes));
                continue;
            }
            let steps = situation.steps(*device);
            let range = state.range.take();
            if steps.ended >= FIRST_STEP
                && let Some((minimum_bytes, maximum_bytes)) = range
                && maximum_bytes > 0
            {
                state.steps += 1;
                let ratio = minimum_bytes as f64 / maximum_bytes as f64;
                let swing = Swing { ratio, minimum_bytes, maximum_bytes, step: change.number };
                if state.smallest.is_none_or(|known| ratio < known.ratio) {
                    state.smallest = Some(swing);
                }
                if state.largest.is_none_or(|known| ratio > known.ratio) {
                    state.largest = Some(swing);
                }
            }
            if change.device == Device::Unknown {
                // The API begins the next step with the same call.
                state.range = Some((state.used_bytes, state.used_bytes));
            }
        }
    }

    /// Results in device and pool order.
    pub fn finish(self) -> Vec<PoolFluctuation> {
        let mut pools: Vec<PoolFluctuation> = self
            .pools
            .into_entries()
            .map(|((device, pool), state)| PoolFluctuation {
                device,
                pool,
                smallest: state.smallest,
                largest: state.largest,
                steps: state.steps,
            })
            .collect();
        pools.sort_by_key(|pool| (pool.device, pool.pool));
        pools
    }
}

impl Question for Fluctuation {
    type Finding = Vec<PoolFluctuation>;

    const ANALYSIS: AnalysisSet = AnalysisSet::LEAKS;

    fn ask(questions: &mut Questions) -> bool {
        questions.fluctuation = true;
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.fluctuation.then(Self::default)
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, _event: &TimelineEvent, view: View<'_>) {
        self.block(change, view.situation);
    }

    fn step(&mut self, change: &StepChange, view: View<'_>) {
        self.step(change, view.situation);
    }

    fn finish(self, _view: View<'_>, _end: &mut End<'_>) -> Option<Vec<PoolFluctuation>> {
        Some(self.finish())
    }
}
