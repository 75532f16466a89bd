//! Fragmentation of pools over time: what a pool holds, what of it is in use, and how large the
//! largest gap is.

use msmemscope_event::{Device, Pool};
use msmemscope_timeline::TimelineEvent;
use serde::Serialize;

use crate::device_text::{device_text, pool_text};
use crate::gaps::{self, Gaps};
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, Situation, StepChange};
use crate::small_map::SmallMap;

/// Samples kept per pool; later ones replace every second one.
const KEPT_SAMPLES: usize = 1024;
/// Looking at every gap costs time in proportion to the live blocks, so it is done only this often.
const GAP_LOOKS: u32 = 64;
/// The same at new peaks: again when the pool has grown by one part in this many.
const PEAK_LOOK_GROWTH: u64 = 100;

/// A pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PoolSample {
    /// When.
    pub timestamp_ns: u64,
    /// In which step, zero if none.
    pub step: u64,
    /// Bytes the pool holds.
    pub reserved_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Gaps, where they were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Gaps>,
}

impl PoolSample {
    /// Bytes held but not in use.
    pub fn idle_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.used_bytes)
    }

    /// Part of the held bytes that is not in use.
    pub fn idle_ratio(&self) -> f64 {
        match self.reserved_bytes {
            0 => 0.0,
            reserved => self.idle_bytes() as f64 / reserved as f64,
        }
    }
}

/// Fragmentation of one pool on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolFragmentation {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// When the pool held most.
    pub at_peak_reserved: PoolSample,
    /// When the most bytes in use were reached.
    pub at_peak_used: PoolSample,
    /// When the most bytes were held but not in use, among step ends and the end.
    pub most_idle: PoolSample,
    /// At the end.
    pub at_end: PoolSample,
    /// The number of what comes after the last step, if anything does.
    #[serde(skip)]
    pub after_last_step: Option<u64>,
    /// At step ends; all of them unless there are thousands.
    pub samples: Vec<PoolSample>,
}

/// Fragmentation of all pools that say what they hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FragmentationReport {
    /// By device and pool.
    pub pools: Vec<PoolFragmentation>,
}

#[derive(Debug, Default)]
struct PoolState {
    reserved_bytes: u64,
    used_bytes: u64,
    at_end: Option<PoolSample>,
    at_peak_reserved: Option<PoolSample>,
    at_peak_used: Option<PoolSample>,
    most_idle: Option<PoolSample>,
    samples: Vec<PoolSample>,
    samples_seen: usize,
    keep_every: usize,
    gap_looks: u32,
    /// Gaps are looked at again when the pool holds as much.
    next_peak_look_bytes: u64,
}

/// Follows pools.
#[derive(Debug, Default)]
pub struct Fragmentation {
    pools: SmallMap<(Device, Pool), PoolState>,
}

impl Fragmentation {
    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, situation: &Situation) {
        let (BlockChange::Begins(block, event) | BlockChange::Ends(block, event)) = change;
        // Rows of what happened while recording was off do not say what the pool held.
        if event.total_bytes == 0 || event.shadow {
            return;
        }
        let state = self.pools.entry((block.properties.device, block.properties.pool));
        (state.reserved_bytes, state.used_bytes) = (event.total_bytes, event.used_bytes);
        let most_used = state.at_peak_used.is_none_or(|peak| event.used_bytes > peak.used_bytes);
        let most_reserved = state.at_peak_reserved.is_none_or(|peak| event.total_bytes > peak.reserved_bytes);
        if most_used || most_reserved {
            let mut sample = state.sample(situation.steps(block.properties.device).number, situation);
            state.at_peak_used = if most_used { Some(sample) } else { state.at_peak_used };
            if most_reserved {
                if sample.reserved_bytes >= state.next_peak_look_bytes {
                    let next = sample.reserved_bytes.saturating_add(sample.reserved_bytes / PEAK_LOOK_GROWTH);
                    state.next_peak_look_bytes = next;
                    sample.gaps =
                        Some(gaps::find(situation, block.properties.device, block.properties.pool, |_| false));
                }
                state.at_peak_reserved = Some(sample);
            }
        }
    }

    /// A step began or ended.
    pub fn step(&mut self, change: &StepChange, situation: &Situation) {
        if change.begins {
            return;
        }
        for ((device, pool), state) in self.pools.iter_mut() {
            if change.device == Device::Unknown || change.device == *device {
                state.look(*device, *pool, change.number, situation);
            }
        }
    }

    /// What was found.
    pub fn finish(mut self, situation: &Situation) -> FragmentationReport {
        for ((device, pool), state) in self.pools.iter_mut() {
            state.gap_looks = 0;
            let step = situation.steps(*device).number;
            state.look(*device, *pool, step, situation);
        }
        let mut pools: Vec<PoolFragmentation> = self
            .pools
            .into_entries()
            .filter_map(|((device, pool), mut state)| {
                // The last look is the end, not the end of a step.
                state.samples.pop();
                let steps = situation.steps(device);
                Some(PoolFragmentation {
                    device,
                    pool,
                    at_peak_reserved: state.at_peak_reserved?,
                    at_peak_used: state.at_peak_used?,
                    most_idle: state.most_idle?,
                    at_end: state.at_end?,
                    after_last_step: steps.is_after_last(steps.number).then_some(steps.number),
                    samples: state.samples,
                })
            })
            .collect();
        pools.sort_by_key(|pool| (pool.device, pool.pool));
        FragmentationReport { pools }
    }
}

impl PoolState {
    fn sample(&self, step: u64, situation: &Situation) -> PoolSample {
        PoolSample {
            timestamp_ns: situation.latest_ns(),
            step,
            reserved_bytes: self.reserved_bytes,
            used_bytes: self.used_bytes,
            gaps: None,
        }
    }

    fn look(&mut self, device: Device, pool: Pool, step: u64, situation: &Situation) {
        let mut sample = self.sample(step, situation);
        if self.gap_looks < GAP_LOOKS {
            self.gap_looks += 1;
            sample.gaps = Some(gaps::find(situation, device, pool, |_| false));
        }
        self.at_end = Some(sample);
        if self.most_idle.is_none_or(|known| sample.idle_bytes() > known.idle_bytes()) {
            self.most_idle = Some(sample);
        }
        self.keep_every = self.keep_every.max(1);
        if self.samples_seen.is_multiple_of(self.keep_every) || self.gap_looks == 1 {
            self.samples.push(sample);
        }
        self.samples_seen += 1;
        if self.samples.len() >= KEPT_SAMPLES {
            let mut position = 0;
            self.samples.retain(|_| {
                position += 1;
                position % 2 == 1
            });
            self.keep_every *= 2;
        }
    }
}

impl Question for Fragmentation {
    type Finding = FragmentationReport;

    fn ask(questions: &mut Questions) -> bool {
        questions.fragmentation = true;
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.fragmentation.then(Self::default)
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, _event: &TimelineEvent, view: View<'_>) {
        self.block(change, view.situation);
    }

    fn step(&mut self, change: &StepChange, view: View<'_>) {
        self.step(change, view.situation);
    }

    fn finish(self, view: View<'_>, _end: &mut End<'_>) -> Option<FragmentationReport> {
        Some(self.finish(view.situation))
    }
}
