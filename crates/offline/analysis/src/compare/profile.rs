//! What one side of a comparison did: its operators or kernels in order, with the memory of each.

use std::collections::BTreeMap;

use msmemscope_event::{Device, Pool, StringId};
use msmemscope_import::Recording;
use msmemscope_timeline::{EventKind, EventSink, FactSource, TimelineEvent, TimelineSettings, detect_step_source};
use rustc_hash::FxHashMap;

use super::Level;
use crate::decompose::Decomposition;
use crate::fluctuation::is_framework_pool;
use crate::names::{Names, RecordingNames, Site, SiteText};
use crate::situation::{BlockChange, LiveBlock, Situation};
use crate::small_map::SmallMap;
use crate::unseen::{UnseenPool, unseen_pools};

/// Names of operators and kernels, numbered the same for both sides.
#[derive(Debug, Default)]
pub struct SharedNames {
    ids: FxHashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl SharedNames {
    fn intern(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.into());
        self.ids.insert(name.into(), id);
        id
    }

    /// The name with a number.
    pub fn get(&self, id: u32) -> &str {
        &self.names[id as usize]
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// One operator or kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: u32,
    /// What the framework pools gained or lost.
    pub change_bytes: i64,
    /// Bytes in use in framework pools of the device at its end.
    pub in_use_bytes: u64,
}

/// One device.
#[derive(Clone, Debug, Default)]
pub struct DeviceProfile {
    /// Operators or kernels in order.
    pub items: Vec<Item>,
    /// Most bytes in use in framework pools.
    pub peak_bytes: u64,
    /// Bytes in use at the end.
    pub end_bytes: u64,
    /// Change of memory outside operators.
    pub outside_bytes: i64,
    /// Bytes and blocks of call sites at the peak.
    peak_sites: BTreeMap<String, (u64, u64)>,
}

/// Blocks by where they come from, with one of them, their bytes and their number.
type Sites = FxHashMap<Site, (LiveBlock, u64, u64)>;

fn add_to_site(sites: &mut Sites, block: &LiveBlock) {
    let (_, bytes, count) = sites.entry(Site::of(block)).or_insert((*block, 0, 0));
    *bytes += block.size_bytes;
    *count += 1;
}

/// Blocks alive at the peak of a device. They are counted as they end: which peak is the highest is not
/// known before.
#[derive(Debug, Default)]
struct Peak {
    /// Blocks born until then.
    births: u64,
    sites: Sites,
}

impl Peak {
    fn now(&mut self, births: u64) {
        self.births = births;
        self.sites.clear();
    }

    #[inline]
    fn count(&mut self, block: &LiveBlock) {
        if block.birth <= self.births {
            add_to_site(&mut self.sites, block);
        }
    }
}

/// Which events of an input count.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    /// All of them.
    Everything,
    /// Those of one step; memory that was in use before it is in use there, too.
    Step(u64),
    /// Those that were chosen when each recording was made. As in the files written then, nothing else is known.
    Chosen(&'a dyn Fn(&Recording) -> TimelineSettings),
}

/// One side of a comparison.
#[derive(Debug)]
pub struct Profile {
    level: Level,
    step: Option<u64>,
    /// Steps that were chosen when the recordings were made, ascending; empty means all.
    recorded_steps: Vec<u64>,
    unseen_pools: Vec<UnseenPool>,
    devices: BTreeMap<Device, DeviceProfile>,
    pools: BTreeMap<Pool, u64>,
    owners: BTreeMap<String, (u64, u64)>,
    sites: BTreeMap<String, (u64, u64)>,
    items_of_other_level: u64,
}

impl Profile {
    /// What is compared.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The chosen step.
    pub fn step(&self) -> Option<u64> {
        self.step
    }

    /// Steps that were chosen when the recordings were made, ascending; empty means all.
    pub fn recorded_steps(&self) -> &[u64] {
        &self.recorded_steps
    }

    /// Pools that the recordings know nothing of.
    pub fn unseen_pools(&self) -> &[UnseenPool] {
        &self.unseen_pools
    }

    /// Devices with items or memory.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.devices.keys().copied()
    }

    /// One device; empty if it has nothing.
    pub fn device(&self, device: Device) -> &DeviceProfile {
        static EMPTY: DeviceProfile = DeviceProfile {
            items: Vec::new(),
            peak_bytes: 0,
            end_bytes: 0,
            outside_bytes: 0,
            peak_sites: BTreeMap::new(),
        };
        self.devices.get(&device).unwrap_or(&EMPTY)
    }

    /// Whether there is nothing to align.
    pub fn is_empty(&self) -> bool {
        self.devices.values().all(|device| device.items.is_empty())
    }

    /// Whether any memory was used.
    pub fn has_memory(&self) -> bool {
        self.devices.values().any(|device| device.peak_bytes > 0)
    }

    /// Whether the level that was not asked for has something.
    pub fn other_level_has_items(&self) -> bool {
        self.items_of_other_level > 0
    }

    /// The framework: the pool of PyTorch or MindSpore with most blocks.
    pub fn framework(&self) -> Option<Pool> {
        let frameworks = self.pools.iter().filter(|(pool, _)| matches!(pool, Pool::PytorchCaching | Pool::Mindspore));
        frameworks.max_by_key(|(_, count)| **count).map(|(pool, _)| *pool)
    }

    /// Bytes and blocks of owners at the peak.
    pub fn owners(&self) -> &BTreeMap<String, (u64, u64)> {
        &self.owners
    }

    /// Bytes and blocks of call sites at the peaks of the devices.
    pub fn peak_sites(&self) -> BTreeMap<String, (u64, u64)> {
        let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (line, (bytes, blocks)) in self.devices.values().flat_map(|device| &device.peak_sites) {
            let site = all.entry(line.clone()).or_default();
            site.0 += bytes;
            site.1 += blocks;
        }
        all
    }

    /// Bytes and blocks of call sites alive at the end.
    pub fn sites(&self) -> &BTreeMap<String, (u64, u64)> {
        &self.sites
    }
}

/// Makes the profile of all processes of one input.
pub fn profile(recordings: &[Recording], level: Level, part: Part<'_>, names: &mut SharedNames) -> Profile {
    let mut profile = Profile {
        level,
        step: match part {
            Part::Step(step) => Some(step),
            Part::Everything | Part::Chosen(_) => None,
        },
        recorded_steps: Vec::new(),
        unseen_pools: Vec::new(),
        devices: BTreeMap::new(),
        pools: BTreeMap::new(),
        owners: BTreeMap::new(),
        sites: BTreeMap::new(),
        items_of_other_level: 0,
    };
    for recording in recordings {
        let recording_names = RecordingNames::new(recording);
        let chosen = match part {
            Part::Chosen(of) => of(recording),
            Part::Everything | Part::Step(_) => TimelineSettings::default(),
        };
        let settings = TimelineSettings { process_ended: false, step_source: detect_step_source(recording), ..chosen };
        profile.recorded_steps.extend(&settings.steps);
        let mut profiler = Profiler::new(recording, &recording_names, names, &mut profile);
        let summary = msmemscope_timeline::run(recording, &settings, &mut profiler, &mut |_, _| {});
        profiler.finish();
        profile.unseen_pools.extend(unseen_pools(recording, &summary));
    }
    profile.recorded_steps.sort_unstable();
    profile.recorded_steps.dedup();
    profile
}

struct OpenItem {
    name: StringId,
    device: Device,
    change_bytes: i64,
    counts: bool,
}

/// Follows one process.
pub struct Profiler<'a> {
    recording: &'a Recording,
    names: &'a dyn Names,
    shared: &'a mut SharedNames,
    profile: &'a mut Profile,
    known_names: FxHashMap<StringId, u32>,
    threads: FxHashMap<u32, Vec<OpenItem>>,
    since_launch: FxHashMap<Device, i64>,
    used: FxHashMap<Device, u64>,
    peaks: SmallMap<Device, Peak>,
    situation: Situation,
    decomposition: Decomposition,
}

impl<'a> Profiler<'a> {
    fn new(
        recording: &'a Recording,
        names: &'a dyn Names,
        shared: &'a mut SharedNames,
        profile: &'a mut Profile,
    ) -> Self {
        let decomposition = Decomposition::new(profile.step);
        Self {
            recording,
            names,
            shared,
            profile,
            known_names: FxHashMap::default(),
            threads: FxHashMap::default(),
            since_launch: FxHashMap::default(),
            used: FxHashMap::default(),
            peaks: SmallMap::default(),
            situation: Situation::of(recording),
            decomposition,
        }
    }

    fn shared_name(&mut self, name: StringId) -> u32 {
        let (shared, recording) = (&mut *self.shared, self.recording);
        *self.known_names.entry(name).or_insert_with(|| match name.is_some() {
            true => shared.intern(&recording.definitions().string(name)),
            false => shared.intern("N/A"),
        })
    }

    fn counts(&self, event: &TimelineEvent) -> bool {
        self.profile.step.is_none_or(|step| step == event.step)
    }

    fn item(&mut self, device: Device, name: StringId, change_bytes: i64) {
        let name = self.shared_name(name);
        let in_use_bytes = self.used.get(&device).copied().unwrap_or(0);
        self.profile.devices.entry(device).or_default().items.push(Item { name, change_bytes, in_use_bytes });
    }

    fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent) {
        let (BlockChange::Begins(block, _) | BlockChange::Ends(block, _)) = change;
        self.decomposition.block(change);
        if !is_framework_pool(block.properties.pool) {
            return;
        }
        let device = block.properties.device;
        let is_begin = matches!(change, BlockChange::Begins(..));
        let used = self.used.entry(device).or_default();
        *used = if is_begin { *used + block.size_bytes } else { used.saturating_sub(block.size_bytes) };
        let used = *used;
        let peak = self.peaks.entry(device);
        if !is_begin {
            peak.count(block);
        }
        if !self.counts(event) {
            return;
        }
        *self.profile.pools.entry(block.properties.pool).or_default() += 1;
        let change_bytes = if is_begin { block.size_bytes as i64 } else { -(block.size_bytes as i64) };
        let profile = self.profile.devices.entry(device).or_default();
        if used > profile.peak_bytes {
            profile.peak_bytes = used;
            self.peaks.entry(device).now(block.birth);
        }
        profile.end_bytes = used;
        match self.profile.level {
            Level::Operator => match self.threads.get_mut(&event.thread_id).and_then(|stack| stack.last_mut()) {
                Some(open) if open.device == device && open.counts => open.change_bytes += change_bytes,
                _ => profile.outside_bytes += change_bytes,
            },
            Level::Kernel => *self.since_launch.entry(device).or_default() += change_bytes,
        }
    }

    fn other(&mut self, event: &TimelineEvent) {
        let EventKind::Operator { begins, name, .. } = event.kind else { return };
        let counts = self.counts(event);
        if self.profile.level != Level::Operator {
            self.profile.items_of_other_level += u64::from(counts);
            return;
        }
        let stack = self.threads.entry(event.thread_id).or_default();
        if begins {
            stack.push(OpenItem { name, device: event.device, change_bytes: 0, counts });
            return;
        }
        let Some(position) = stack.iter().rposition(|open| open.name == name) else {
            // Recording began inside the operator.
            if counts && event.device != Device::Unknown {
                self.item(event.device, name, 0);
            }
            return;
        };
        let ended: Vec<OpenItem> = stack.drain(position..).collect();
        for (index, open) in ended.iter().enumerate() {
            if index > 0 {
                self.outside(open);
            }
        }
        let open = &ended[0];
        match open.counts && open.device != Device::Unknown {
            true => self.item(open.device, open.name, open.change_bytes),
            false => self.outside(open),
        }
    }

    /// A kernel counts from now on.
    fn kernel(&mut self, event: &TimelineEvent) {
        let counts = self.counts(event);
        if self.profile.level != Level::Kernel {
            self.profile.items_of_other_level += u64::from(counts);
        } else if counts && event.device != Device::Unknown {
            let (_, name) = self.situation.kernels();
            let change_bytes = self.since_launch.remove(&event.device).unwrap_or(0);
            self.item(event.device, name, change_bytes);
        }
    }

    /// Memory of an operator that never ended.
    fn outside(&mut self, open: &OpenItem) {
        if open.change_bytes != 0 {
            self.profile.devices.entry(open.device).or_default().outside_bytes += open.change_bytes;
        }
    }

    fn finish(mut self) {
        let open: Vec<OpenItem> = std::mem::take(&mut self.threads).into_values().flatten().collect();
        open.iter().for_each(|open| self.outside(open));
        for (device, change_bytes) in std::mem::take(&mut self.since_launch) {
            self.profile.devices.entry(device).or_default().outside_bytes += change_bytes;
        }
        let with_step = self.profile.step.is_some();
        for pool in self
            .decomposition
            .finish(&self.situation, self.names)
            .pools
            .iter()
            .filter(|pool| is_framework_pool(pool.pool))
        {
            let owners = match with_step {
                true => pool.at_step.as_deref().unwrap_or_default(),
                false => &pool.at_peak,
            };
            for owner in owners {
                let (bytes, blocks) = self.profile.owners.entry(owner.owner.clone()).or_default();
                *bytes += owner.bytes;
                *blocks += owner.blocks;
            }
        }
        let mut alive = Sites::default();
        for block in self.situation.live_blocks().filter(|block| is_framework_pool(block.properties.pool)) {
            add_to_site(&mut alive, block);
            self.peaks.entry(block.properties.device).count(block);
        }
        let (situation, names) = (&self.situation, self.names);
        add_lines(&mut self.profile.sites, alive, situation, names);
        for (device, peak) in self.peaks.iter_mut().filter(|(_, peak)| peak.births > 0) {
            // The peak of this process is higher than those of the processes before.
            let lines = &mut self.profile.devices.entry(*device).or_default().peak_sites;
            lines.clear();
            add_lines(lines, std::mem::take(&mut peak.sites), situation, names);
        }
    }
}

/// Names the sites.
fn add_lines(lines: &mut BTreeMap<String, (u64, u64)>, sites: Sites, situation: &Situation, names: &dyn Names) {
    for (sample, bytes, count) in sites.into_values() {
        let line = lines.entry(SiteText::of(&sample, situation, names).line).or_default();
        line.0 += bytes;
        line.1 += count;
    }
}

impl EventSink for Profiler<'_> {
    #[inline]
    fn take(&mut self, event: TimelineEvent) {
        let (kernels, _) = self.situation.kernels();
        let (ended, step) = self.situation.update(&event, self.names);
        if self.situation.kernels().0 > kernels {
            self.kernel(&event);
        }
        match &event.kind {
            EventKind::Malloc(block) => {
                if let Some(live) = self.situation.block(block.slot).copied() {
                    self.block(&BlockChange::Begins(&live, block), &event);
                }
            }
            EventKind::Free(block) => {
                if let Some(live) = ended {
                    self.block(&BlockChange::Ends(&live, block), &event);
                }
            }
            _ => self.other(&event),
        }
        if let Some(change) = step {
            self.decomposition.step(&change, &self.situation);
        }
    }
}
