//! Memory by call stack: in use at the peak of its pool, never freed, and allocated in all.

use std::collections::BTreeMap;

use msmemscope_analysis::names::{Calls, NO_STACK, SiteText};
use msmemscope_analysis::situation::{LiveBlock, Situation};
use msmemscope_analysis::{Frame, Names, RecordingNames};
use msmemscope_event::{Device, Pool};
use msmemscope_import::Recording;
use msmemscope_timeline::{EventKind, EventSink, FactSource, TimelineEvent, run};
use rustc_hash::FxHashMap;

use crate::{MemoryKind, Progress, everything};

/// A number of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.blocks += 1;
    }

    fn remove(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.blocks = self.blocks.saturating_sub(1);
    }
}

/// Blocks that were allocated by one stack in one pool.
#[derive(Debug)]
pub(crate) struct Site {
    /// Places in the table of pools.
    pub(crate) pool: usize,
    /// Places in the table of frames, outermost first; at least one.
    pub(crate) frames: Vec<usize>,
    peak: Amount,
    alive: Amount,
    allocated: Amount,
}

impl Site {
    pub(crate) fn amount(&self, kind: MemoryKind) -> Amount {
        match kind {
            MemoryKind::Peak => self.peak,
            MemoryKind::Alive => self.alive,
            MemoryKind::Allocated => self.allocated,
        }
    }
}

/// A pool of a device in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolOfProcess {
    pub(crate) process_id: u32,
    pub(crate) device: Device,
    pub(crate) pool: Pool,
}

/// Memory of some processes by call stack.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    pub(crate) pools: Vec<PoolOfProcess>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) sites: Vec<Site>,
    /// Wall clock of the first event, and time until the last one.
    pub(crate) first_ns: u64,
    pub(crate) duration_ns: u64,
}

impl Sites {
    /// A pool in words.
    pub(crate) fn pool_text(&self, pool: usize) -> String {
        let PoolOfProcess { process_id, device, pool } = self.pools[pool];
        let place = match device {
            Device::Npu(id) => format!("NPU {id}"),
            Device::Host => "host".to_owned(),
            Device::Unknown => "unknown device".to_owned(),
        };
        match self.pools.iter().all(|other| other.process_id == process_id) {
            true => format!("{place}: {}", pool.title()),
            false => format!("process {process_id}, {place}: {}", pool.title()),
        }
    }
}

/// What tells sites apart.
type Key = (Calls, Pool, Device);

/// Counts what the sites of one process hold.
struct Counting<'a> {
    names: &'a dyn Names,
    situation: Situation,
    /// Use of each pool at its peak.
    peaks: FxHashMap<(Pool, Device), (u64, u64)>,
    numbers: FxHashMap<Key, usize>,
    /// When a block of the site was first seen, and what it has had.
    sites: Vec<(Key, u64, CountedSite)>,
}

#[derive(Clone, Copy, Default)]
struct CountedSite {
    live: Amount,
    peak: Amount,
    allocated: Amount,
}

impl Counting<'_> {
    fn site(&mut self, block: &LiveBlock) -> &mut CountedSite {
        let properties = &block.properties;
        let key = (Calls::of(block), properties.pool, properties.device);
        let next = self.sites.len();
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.sites.push((key, block.timestamp_ns, CountedSite::default()));
        }
        &mut self.sites[number].2
    }

    fn at_peak(&mut self, pool: Pool, device: Device) {
        for ((_, of_pool, of_device), _, site) in &mut self.sites {
            if (*of_pool, *of_device) == (pool, device) {
                site.peak = site.live;
            }
        }
    }
}

impl EventSink for Counting<'_> {
    fn take(&mut self, event: TimelineEvent) {
        let (ended, _) = self.situation.update(&event, self.names);
        match &event.kind {
            EventKind::Malloc(block) => {
                let Some(live) = self.situation.block(block.slot).copied() else { return };
                let site = self.site(&live);
                site.live.add(live.size_bytes);
                site.allocated.add(live.size_bytes);
                let (pool, device) = (live.properties.pool, live.properties.device);
                if self.peaks.get(&(pool, device)) == Some(&(block.used_bytes, event.timestamp_ns)) {
                    self.at_peak(pool, device);
                }
            }
            EventKind::Free(_) => {
                if let Some(block) = ended {
                    self.site(&block).live.remove(block.size_bytes);
                }
            }
            _ => {}
        }
    }
}

/// Looks at some processes. Each is read twice: when a pool used most is known only at the end.
pub(crate) fn collect(recordings: &[Recording], progress: Progress<'_>) -> Sites {
    let mut all = Sites { first_ns: u64::MAX, ..Sites::default() };
    let mut last_ns = 0;
    let mut frame_numbers = BTreeMap::new();
    for recording in recordings {
        let settings = everything(recording);
        let summary = run(recording, &settings, &mut |_: TimelineEvent| {}, progress);
        all.first_ns = all.first_ns.min(summary.first_timestamp_ns);
        last_ns = last_ns.max(summary.last_timestamp_ns);
        let names = RecordingNames::new(recording);
        let peaks = summary.pools.iter();
        let peaks = peaks.map(|pool| ((pool.pool, pool.device), (pool.peak_used_bytes, pool.peak_timestamp_ns)));
        let mut counting = Counting {
            names: &names,
            situation: Situation::of(recording),
            peaks: peaks.collect(),
            numbers: FxHashMap::default(),
            sites: Vec::new(),
        };
        run(recording, &settings, &mut counting, progress);
        let process_id = recording.process_id();
        for ((calls, pool, device), seen_ns, counted) in counting.sites {
            let pool = PoolOfProcess { process_id, device, pool };
            let pool_number = all.pools.iter().position(|known| *known == pool).unwrap_or_else(|| {
                all.pools.push(pool);
                all.pools.len() - 1
            });
            let frames = named_frames(&calls.named(seen_ns, &names)).into_iter().map(|frame| {
                *frame_numbers.entry(frame).or_insert_with_key(|frame| {
                    all.frames.push(frame.clone());
                    all.frames.len() - 1
                })
            });
            let frames = frames.collect();
            let CountedSite { live, peak, allocated } = counted;
            all.sites.push(Site { pool: pool_number, frames, peak, alive: live, allocated });
        }
    }
    all.first_ns = if last_ns == 0 { 0 } else { all.first_ns };
    all.duration_ns = last_ns.saturating_sub(all.first_ns);
    all
}

/// The frames of a site, outermost first, and the operator where no Python frame says who called.
pub(crate) fn named_frames(text: &SiteText) -> Vec<Frame> {
    let mut frames: Vec<Frame> = text.whole_stack().into_iter().map(|(frame, _)| frame.clone()).collect();
    if !text.operator.is_empty() && text.python.is_empty() {
        let function = format!("operator {}", text.operator);
        frames.insert(0, Frame { function, ..Frame::default() });
    }
    if frames.is_empty() {
        frames.push(Frame { function: NO_STACK.to_owned(), ..Frame::default() });
    }
    frames
}
