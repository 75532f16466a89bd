//! Why memory ran out.
//!
//! When the driver refuses an allocation, everything that is alive is known, so the reason can be told
//! apart (see [`crate::verdict`]). A framework that gets its memory after giving cached memory
//! back has recovered; such failures are told as such.
//!
//! A framework may also refuse on its own account, because the job has set a limit below the size of the
//! card. The driver is not asked then. What is left of it is the snapshot that is taken whenever PyTorch
//! says that memory has run out; if the driver has refused nothing right before, it was the limit.
//!
//! MindSpore's pool never lets the driver refuse: it knows how much it may have, and stops there. The job's exception tells
//! that it has refused, and mostly not how much was asked for.

use std::collections::BTreeMap;

use msmemscope_config::AnalysisSet;
use msmemscope_event::{
    AllocationInterface, AutogradPhase, Device, Pool, PoolRefusal, PoolSegment, SnapshotNumbers, StackId, StringId,
};
use msmemscope_timeline::refusals::OUT_OF_MEMORY_SNAPSHOT;
use msmemscope_timeline::{EventKind, PoolGaveUp, TimelineEvent};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::decompose::{OwnerUse, UNKNOWN_OWNER};
use crate::device_text::{device_text, pool_text};
use crate::fluctuation::is_framework_pool;
use crate::gaps::{self, COMMON_SEGMENT_BYTES, Gaps, SMALL_SEGMENT_BYTES, SegmentClass};
use crate::growing::{Growing, Growth};
use crate::holders::HeldBy;
use crate::leaks::Leaks;
use crate::moment::{self, LineUse, phase_word};
use crate::names::{Names, SiteText};
use crate::owners::OwnerId;
use crate::question::{About, End, Question, Questions, View};
use crate::remedy::Remedy;
use crate::situation::{BlockChange, LiveBlock, Situation};
use crate::small_map::SmallMap;
use crate::verdict::{self, AllocatorSettings, Verdict};

/// Blocks listed unless the user says otherwise.
pub const DEFAULT_LISTED_BLOCKS: usize = 10;
/// Who refuses if MindSpore's pool does.
const MINDSPORE: &str = "MindSpore";
/// What the driver returns when memory has run out.
const OUT_OF_MEMORY: i64 = 6;
/// Failures within this time are one story.
const BURST_NS: u64 = 2_000_000_000;
/// Failures of one story that are looked at closely; only the last of them is kept.
const LOOKS_PER_BURST: u32 = 8;
/// Lines kept of a failure.
const KEPT_LINES: usize = 30;
/// Failures with details kept; the first ones and the latest.
const KEPT_FAILURES: usize = 16;

/// A live block in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedBlock {
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
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
    /// Where it was allocated.
    pub site: SiteText,
    /// Who holds it, if the job has looked.
    pub held_by: Option<String>,
    /// Its stacks, for rows of files.
    #[serde(skip)]
    pub stacks: BlockStacks,
}

/// The stacks of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStacks {
    /// Of Python.
    pub python: StackId,
    /// Of native code.
    pub native: StackId,
}

/// Use of a pool at the moment of failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolThen {
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Bytes it holds.
    pub reserved_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Free space inside its segments.
    pub gaps: Gaps,
    /// Free space by who may use it, if the pool has told; segments that grow are seen only here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<SegmentClass>,
}

impl PoolThen {
    /// Bytes held but not in use.
    pub fn idle_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.used_bytes)
    }
}

/// A refused allocation and everything around it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// When.
    pub timestamp_ns: u64,
    /// In which step, zero if none.
    pub step: u64,
    /// On which device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The driver call, or who refused without asking the driver.
    pub function: &'static str,
    /// Bytes asked for; zero if that is not known.
    pub requested_bytes: u64,
    /// What the job lets PyTorch have at most, if it has set such a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// The raw flag word.
    pub flag: u64,
    /// Where it was asked for.
    pub site: SiteText,
    /// Whether an allocation of this size succeeded later on this device.
    pub recovered: bool,
    /// Why, in one word.
    pub verdict: Verdict,
    /// What other settings of the allocator would have changed, computed for the failure that ended the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
    /// Bytes this process holds from the driver on the device.
    pub process_bytes: u64,
    /// Bytes used on the card and its size, as last sampled.
    pub card: Option<(u64, u64)>,
    /// Bytes used on the card when the driver refused, if that is known.
    pub card_used_bytes: Option<u64>,
    /// Bytes of the card that other processes or the system held, as far as known.
    pub others_bytes: u64,
    /// What PyTorch said of itself, if it refused without asking the driver.
    #[serde(skip)]
    pub own_limit: Option<SnapshotNumbers>,
    /// How the framework allocates.
    #[serde(skip)]
    pub allocator: AllocatorSettings,
    /// Bytes of the card that nobody held, if that is known.
    pub free_bytes: Option<u64>,
    /// Bytes that leak, as far as steps tell.
    pub leaked_bytes: u64,
    /// Call sites that had more and more blocks, looked for where there were too few steps.
    pub growing: Option<Growing>,
    /// Framework pools on the device.
    pub pools: Vec<PoolThen>,
    /// Lines that held most of what frameworks use, or of driver memory where there is no framework; largest first.
    pub lines: Vec<LineUse>,
    /// The phase of training, if anybody has said.
    pub phase: Option<&'static str>,
    /// The module that was being called; empty if none was.
    pub module: String,
    /// Whether it is known which modules are being called.
    #[serde(skip)]
    pub knows_modules: bool,
    /// Bytes that modules have made in a forward pass that has not reached its backward pass; where it is not known which
    /// modules are called, all bytes since the pass began.
    #[serde(skip)]
    pub(crate) forward_bytes: u64,
    /// What lies in segments where this request cannot go, by the line that holds most there.
    #[serde(skip)]
    pub other_class_line: Option<LineUse>,
    /// Bytes per owner, pools and driver apart.
    pub owners: Vec<OwnerUse>,
    /// The latest live blocks, newest first.
    pub recent: Vec<ListedBlock>,
    /// The largest live blocks, largest first.
    pub largest: Vec<ListedBlock>,
    /// Who holds blocks of the device's pools, those that hold most first.
    pub held_by: Vec<HeldBy>,
    /// Numbers and sizes of those blocks.
    #[serde(skip)]
    pub(crate) pool_blocks: Vec<(u64, u64)>,
    /// Thread that asked.
    #[serde(skip)]
    pub thread_id: u32,
}

/// All failures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OutOfMemoryReport {
    /// How often there was no memory left, as the driver or MindSpore's pool said.
    pub failures: u64,
    /// How often PyTorch refused because of a limit of the job.
    pub limit_failures: u64,
    /// The ones that were looked at closely.
    pub details: Vec<Failure>,
}

impl Failure {
    /// Whether the driver refused, and no later attempt has got its memory.
    fn is_by_driver(&self) -> bool {
        !self.recovered && self.own_limit.is_none() && !self.is_of_mindspore()
    }

    /// Whether a block shows that the memory was there after all. Where PyTorch asks the driver page by page, only its own
    /// blocks can: it rounds requests of any size up to the next small segment.
    fn is_met_by(&self, block: &LiveBlock) -> bool {
        let requested = self.requested_bytes;
        let is_met = match block.properties.pool {
            Pool::Hal => block.size_bytes >= requested,
            Pool::PytorchCaching if self.knows_classes() && requested > COMMON_SEGMENT_BYTES => {
                block.size_bytes.saturating_add(SMALL_SEGMENT_BYTES) > requested
            }
            _ => false,
        };
        is_met && self.is_by_driver() && self.verdict != Verdict::OwnLimit
    }

    /// Whether MindSpore's pool refused, without asking the driver.
    pub fn is_of_mindspore(&self) -> bool {
        self.function == MINDSPORE
    }
}

impl OutOfMemoryReport {
    /// Whether memory ran out at all.
    pub fn has_failures(&self) -> bool {
        self.failures > 0 || self.limit_failures > 0
    }

    /// Whether memory ran out and the job did not get over it.
    pub fn is_alarming(&self) -> bool {
        self.decisive().is_some_and(|failure| !failure.recovered)
    }

    /// The failure that the job did not get over.
    pub(crate) fn decisive_mut(&mut self) -> Option<&mut Failure> {
        self.details.iter_mut().rev().find(|failure| !failure.recovered)
    }

    /// The failure that mattered: the last one that was not recovered from, else the last one.
    pub fn decisive(&self) -> Option<&Failure> {
        self.details.iter().rev().find(|failure| !failure.recovered).or_else(|| self.details.last())
    }
}

/// Whole-card memory as last told.
#[derive(Clone, Copy, Debug, Default)]
struct CardState {
    used_bytes: u64,
    process_bytes: u64,
    /// What others held then. They hold it still when the process has grown since.
    others_bytes: u64,
    total_bytes: u64,
}

impl CardState {
    /// As PyTorch found it when it gave up, if it knows the card's size.
    fn at_refusal(refusal: &PoolRefusal, before: Self, from_driver_bytes: u64) -> Option<Self> {
        let used_bytes = refusal.total_bytes.checked_sub(refusal.free_bytes).filter(|_| refusal.total_bytes > 0)?;
        // Somebody else may count more of it as the process's own than came through the driver's functions.
        let process_bytes = before.process_bytes.max(from_driver_bytes).min(used_bytes);
        let others_bytes = used_bytes - process_bytes;
        Some(Self { used_bytes, process_bytes, others_bytes, total_bytes: refusal.total_bytes })
    }

    /// Somebody looked at the card. What the process had from the driver then counts as its own, even if
    /// the card does not know the process by its number, as in containers.
    fn told(&mut self, used_bytes: u64, process_bytes: u64, from_driver_bytes: u64) {
        if (self.used_bytes, self.process_bytes) != (used_bytes, process_bytes) {
            self.others_bytes = used_bytes.saturating_sub(process_bytes.max(from_driver_bytes));
        }
        (self.used_bytes, self.process_bytes) = (used_bytes, process_bytes);
    }

    /// Bytes nobody held when the process held this many, if the size of the card is known.
    fn free_bytes_now(&self, from_driver_bytes: u64) -> Option<u64> {
        let total_bytes = Some(self.total_bytes).filter(|total_bytes| *total_bytes > 0)?;
        Some(total_bytes - self.used_bytes_now(from_driver_bytes))
    }

    /// Bytes in use when the process holds this many.
    fn used_bytes_now(&self, from_driver_bytes: u64) -> u64 {
        let used_bytes = self.others_bytes.saturating_add(self.process_bytes.max(from_driver_bytes));
        if self.total_bytes > 0 { used_bytes.min(self.total_bytes) } else { used_bytes }
    }
}

/// Failures that follow each other closely: an allocator that frees what it can and tries again.
#[derive(Clone, Copy, Debug)]
struct Burst {
    begin_ns: u64,
    looks: u32,
}

/// Follows failures.
#[derive(Debug)]
pub struct OutOfMemory {
    listed_blocks: usize,
    report: OutOfMemoryReport,
    burst: Option<Burst>,
    growth: Growth,
    pools: SmallMap<(Device, Pool), (u64, u64)>,
    cards: SmallMap<Device, CardState>,
    /// Whether physical memory was ever mapped piecewise, which is how expandable segments work.
    uses_created_memory: bool,
    /// Threads to which the driver has refused memory and given none since.
    refused_threads: Vec<u32>,
    /// Threads on which a pool has told everything about giving up, so that the snapshot behind it is no news.
    told_threads: Vec<u32>,
    knows_all_refusals: bool,
}

/// What was asked for, and of whom.
#[derive(Clone, Copy, Debug)]
enum Request<'a> {
    Driver {
        function: &'static str,
        size_bytes: u64,
        flag: u64,
    },
    /// PyTorch, which had these numbers then and did not ask the driver.
    Framework(SnapshotNumbers),
    /// PyTorch, which says itself what it was asked for, and may have asked the driver before.
    Told {
        gave_up: &'a PoolGaveUp,
        function: &'static str,
        flag: u64,
        is_limit: bool,
    },
}

impl Request<'_> {
    /// Whether the driver was not asked.
    fn is_limit(&self) -> bool {
        match self {
            Request::Driver { .. } => false,
            Request::Framework(_) => true,
            Request::Told { is_limit, .. } => *is_limit,
        }
    }
}

impl OutOfMemory {
    /// Nothing seen yet. Only a complete recording of our own is known to have every refusal of the driver.
    pub fn new(listed_blocks: usize, knows_all_refusals: bool) -> Self {
        Self {
            listed_blocks,
            report: OutOfMemoryReport::default(),
            burst: None,
            growth: Growth::default(),
            pools: SmallMap::default(),
            cards: SmallMap::default(),
            uses_created_memory: false,
            refused_threads: Vec::new(),
            told_threads: Vec::new(),
            knows_all_refusals,
        }
    }

    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent) {
        let (BlockChange::Begins(block, said) | BlockChange::Ends(block, said)) = change;
        let (device, pool) = (block.properties.device, block.properties.pool);
        *self.pools.entry((device, pool)) = (said.used_bytes, said.total_bytes);
        self.growth.block(change);
        if !matches!(change, BlockChange::Begins(..)) {
            return;
        }
        for failure in self.report.details.iter_mut().rev().take_while(|failure| !failure.recovered) {
            failure.recovered |=
                failure.device == device && failure.thread_id == event.thread_id && failure.is_met_by(block);
        }
        if pool != Pool::Hal {
            return;
        }
        self.refused_threads.retain(|thread_id| *thread_id != event.thread_id);
        self.uses_created_memory |= block.properties.interface == AllocationInterface::Create;
        if let Some(card) = said.card {
            self.cards.entry(device).told(card.device_bytes, card.process_bytes, said.used_bytes);
        }
    }

    /// The driver refused an allocation, or somebody looked at the card.
    pub fn event(&mut self, event: &TimelineEvent, situation: &Situation, leaks: Option<&Leaks>, names: &dyn Names) {
        match event.kind {
            EventKind::CardSample { used_bytes, process_bytes, total_bytes } => {
                let from_driver_bytes = self.pools.get((event.device, Pool::Hal)).map_or(0, |(used, _)| *used);
                let state = self.cards.entry(event.device);
                state.told(used_bytes, process_bytes, from_driver_bytes);
                state.total_bytes = if total_bytes > 0 { total_bytes } else { state.total_bytes };
            }
            EventKind::AllocationFailed { interface, size_bytes, flag, error } => {
                if !self.refused_threads.contains(&event.thread_id) {
                    self.refused_threads.push(event.thread_id);
                }
                if error != OUT_OF_MEMORY {
                    return;
                }
                self.report.failures += 1;
                let function = match interface {
                    AllocationInterface::Create => "halMemCreate",
                    AllocationInterface::Framework => MINDSPORE,
                    _ => "halMemAlloc",
                };
                let request = Request::Driver { function, size_bytes, flag };
                self.fail(event, request, situation, leaks, names);
            }
            EventKind::Snapshot { name, ref numbers, .. } if names.text(name) == OUT_OF_MEMORY_SNAPSHOT => {
                let was_refused = self.refused_threads.contains(&event.thread_id);
                self.refused_threads.retain(|thread_id| *thread_id != event.thread_id);
                let told = self.told_threads.len();
                self.told_threads.retain(|thread_id| *thread_id != event.thread_id);
                let was_told = self.told_threads.len() < told;
                if !was_told && !was_refused && self.would_have_seen_a_refusal(event.device) {
                    self.report.limit_failures += 1;
                    self.fail(event, Request::Framework(**numbers), situation, leaks, names);
                }
            }
            EventKind::PoolGaveUp(ref gave_up) => self.gave_up(event, gave_up, situation, leaks, names),
            _ => {}
        }
    }

    fn would_have_seen_a_refusal(&self, device: Device) -> bool {
        self.pools.get((device, Pool::Hal)).is_some() && self.knows_all_refusals
    }

    /// PyTorch says that it has given up, after the driver has refused what it asked for, or because of a limit. What it
    /// has asked the driver for last may be a page of what it was asked for itself, and it has given back others since.
    fn gave_up(
        &mut self,
        event: &TimelineEvent,
        gave_up: &PoolGaveUp,
        situation: &Situation,
        leaks: Option<&Leaks>,
        names: &dyn Names,
    ) {
        let PoolRefusal { requested_bytes, limit_bytes, reserved_bytes, .. } = gave_up.refusal;
        let was_refused = self.refused_threads.contains(&event.thread_id);
        let exceeds_limit = limit_bytes > 0 && reserved_bytes.saturating_add(requested_bytes) > limit_bytes;
        let is_limit = exceeds_limit || (!was_refused && self.would_have_seen_a_refusal(event.device));
        if !is_limit && !was_refused {
            return;
        }
        self.told_threads.push(event.thread_id);
        let is_of_this = |last: &mut Failure| {
            was_refused && last.is_by_driver() && last.thread_id == event.thread_id && last.device == event.device
        };
        let refused = self.report.details.pop_if(is_of_this);
        let (function, flag) = match &refused {
            Some(refused) => (refused.function, refused.flag),
            None => ("PyTorch", 0),
        };
        if refused.is_none() && !self.is_worth_a_look(event, is_limit) {
            return;
        }
        self.report.limit_failures += u64::from(is_limit);
        let request = Request::Told { gave_up, function, flag, is_limit };
        let mut failure = self.look(event, request, situation, leaks, names);
        if let Some(refused) = refused {
            (failure.timestamp_ns, failure.site) = (refused.timestamp_ns, refused.site);
        }
        self.report.details.push(failure);
    }

    fn fail(
        &mut self,
        event: &TimelineEvent,
        request: Request<'_>,
        situation: &Situation,
        leaks: Option<&Leaks>,
        names: &dyn Names,
    ) {
        if self.is_worth_a_look(event, request.is_limit()) {
            let failure = self.look(event, request, situation, leaks, names);
            self.report.details.push(failure);
        }
    }

    /// Whether to look at a failure closely. Of several in quick succession the last one looked at
    /// stays, because what could be given back has been given back by then.
    fn is_worth_a_look(&mut self, event: &TimelineEvent, is_limit: bool) -> bool {
        match &mut self.burst {
            Some(burst) if event.timestamp_ns.saturating_sub(burst.begin_ns) < BURST_NS => {
                if burst.looks >= LOOKS_PER_BURST {
                    return false;
                }
                burst.looks += 1;
                let is_retry = |last: &mut Failure| {
                    !last.recovered
                        && last.device == event.device
                        && (last.own_limit.is_some() || last.verdict == Verdict::OwnLimit) == is_limit
                };
                self.report.details.pop_if(is_retry);
            }
            burst => *burst = Some(Burst { begin_ns: event.timestamp_ns, looks: 1 }),
        }
        if self.report.details.len() >= KEPT_FAILURES {
            self.report.details.remove(KEPT_FAILURES / 2);
        }
        true
    }

    fn look(
        &self,
        event: &TimelineEvent,
        request: Request<'_>,
        situation: &Situation,
        leaks: Option<&Leaks>,
        names: &dyn Names,
    ) -> Failure {
        let device = event.device;
        let (function, requested_bytes, flag) = match request {
            Request::Driver { function, size_bytes, flag } => (function, size_bytes, flag),
            Request::Framework(_) => ("PyTorch", 0, 0),
            Request::Told { gave_up, function, flag, .. } => (function, gave_up.refusal.requested_bytes, flag),
        };
        let told = match request {
            Request::Told { gave_up, .. } => Some(gave_up),
            _ => None,
        };
        let on_device = |block: &&LiveBlock| block.properties.device == device || block.properties.pool == Pool::Hal;
        let blocks: Vec<&LiveBlock> = situation
            .live_blocks()
            .filter(on_device)
            .filter(|block| !matches!(block.properties.pool, Pool::HostPinned | Pool::HostTensor))
            .collect();
        let mut pools: Vec<PoolThen> = self
            .pools
            .iter()
            .filter(|((of, pool), (used, total))| *of == device && *pool != Pool::Hal && (*used > 0 || *total > 0))
            .map(|((_, pool), &(used_bytes, total_bytes))| {
                // What it has given back since its last block it says now.
                let told = told.filter(|_| *pool == Pool::PytorchCaching);
                let total_bytes = told.map_or(total_bytes, |told| told.refusal.reserved_bytes);
                PoolThen {
                    pool: *pool,
                    reserved_bytes: total_bytes.max(used_bytes),
                    used_bytes,
                    gaps: gaps::find(situation, device, *pool, |block| {
                        leaks.is_some_and(|leaks| leaks.backs_pool(block))
                    }),
                    classes: told.map_or(Vec::new(), gaps::classes),
                }
            })
            .collect();
        pools.sort_by_key(|pool| pool.pool);
        let process_bytes = self.pools.get((device, Pool::Hal)).map_or(0, |(used, _)| *used);
        let card = self.cards.get(device).copied();
        let card = match told {
            Some(told) => CardState::at_refusal(&told.refusal, card.unwrap_or_default(), process_bytes).or(card),
            None => card,
        };
        let growing = match Leaks::has_enough_steps(device, situation) {
            true => None,
            false => self.growth.find(device, situation, names),
        };
        let knows_modules = situation.knows_modules();
        // What one forward pass makes for its backward pass comes from few lines, and is all needed at once.
        let forward_since_ns = match situation.phase_since(device) {
            Some((AutogradPhase::Forward, since_ns)) => since_ns,
            _ => u64::MAX,
        };
        let may_be_forward = |growing: &Growing| growing.is_of_module || !knows_modules;
        let growing = growing.filter(|growing| growing.since_ns < forward_since_ns || !may_be_forward(growing));
        let is_forward = |block: &&&LiveBlock| {
            is_framework_pool(block.properties.pool)
                && block.phase == Some(AutogradPhase::Forward)
                && (block.module.is_some() || !knows_modules)
        };
        let forward_bytes = blocks.iter().filter(is_forward).map(|block| block.size_bytes).fold(0, u64::saturating_add);
        let mut failure = Failure {
            timestamp_ns: event.timestamp_ns,
            step: situation.steps(device).number,
            device,
            function,
            requested_bytes,
            limit_bytes: told.map(|told| told.refusal.limit_bytes).filter(|limit| *limit > 0),
            flag,
            site: site_of_event(event, situation, names),
            recovered: false,
            verdict: Verdict::Demand,
            remedy: None,
            process_bytes,
            free_bytes: card.and_then(|card| card.free_bytes_now(process_bytes)),
            growing,
            card: card.map(|card| (card.used_bytes, card.total_bytes)),
            card_used_bytes: card.map(|card| card.used_bytes_now(process_bytes)),
            others_bytes: card.map_or(0, |card| card.others_bytes),
            own_limit: None,
            allocator: AllocatorSettings {
                has_expandable_segments: self.uses_created_memory || told.is_some_and(gaps::has_expandable_segments),
                stated: names.allocator_settings().unwrap_or_default(),
            },
            leaked_bytes: leaks.map_or(0, |leaks| leaks.leaked_bytes_now(device, situation)),
            other_class_line: None,
            pools,
            lines: lines_of_frameworks(&blocks, device, situation, names),
            phase: situation.phase(device).map(phase_word),
            module: names.text(situation.module_of(event.thread_id)),
            knows_modules,
            forward_bytes,
            owners: owners_of(&blocks, device, situation, names),
            recent: self.list(&blocks, situation, names, |block| (block.timestamp_ns, block.allocation_id)),
            largest: self.list(&blocks, situation, names, |block| (block.size_bytes, block.allocation_id)),
            held_by: Vec::new(),
            pool_blocks: blocks
                .iter()
                .filter(|block| is_framework_pool(block.properties.pool))
                .map(|block| (block.allocation_id, block.size_bytes))
                .collect(),
            thread_id: event.thread_id,
        };
        let own_limit = match request {
            Request::Framework(numbers) => Some(numbers),
            Request::Told { gave_up: PoolGaveUp { refusal, .. }, is_limit: true, .. } => Some(SnapshotNumbers {
                reserved_bytes: refusal.reserved_bytes,
                total_bytes: refusal.total_bytes,
                free_bytes: refusal.free_bytes,
                ..SnapshotNumbers::default()
            }),
            _ => None,
        };
        failure.verdict = match own_limit {
            Some(_) if !failure.is_beyond_limit() => Verdict::OwnLimit,
            _ => verdict::judge(&failure),
        };
        failure.own_limit = own_limit;
        let segments = match told.filter(|told| !told.segments.is_empty()) {
            Some(told) => segments_of_no_use(&failure, told),
            None => segments_of_other_size(requested_bytes, device, situation),
        };
        failure.other_class_line = line_in(&segments, &blocks, situation, names);
        failure
    }

    /// The blocks with the largest keys.
    fn list(
        &self,
        blocks: &[&LiveBlock],
        situation: &Situation,
        names: &dyn Names,
        key: impl Fn(&LiveBlock) -> (u64, u64),
    ) -> Vec<ListedBlock> {
        let mut sorted: Vec<&LiveBlock> = blocks.to_vec();
        sorted.sort_unstable_by_key(|block| std::cmp::Reverse(key(block)));
        sorted.truncate(self.listed_blocks);
        sorted
            .into_iter()
            .map(|block| ListedBlock {
                pool: block.properties.pool,
                device: block.properties.device,
                allocation_id: block.allocation_id,
                address: block.address,
                size_bytes: block.size_bytes,
                timestamp_ns: block.timestamp_ns,
                step: block.step,
                site: SiteText::of(block, situation, names),
                held_by: None,
                stacks: BlockStacks { python: block.python_stack, native: block.native_stack },
            })
            .collect()
    }

    /// What was found. The job looks for holders when it has failed, so that they are known only afterwards.
    pub fn finish(mut self, situation: &Situation, names: &dyn Names) -> OutOfMemoryReport {
        let holders = situation.holders();
        for failure in &mut self.report.details {
            let pool_blocks = std::mem::take(&mut failure.pool_blocks);
            failure.held_by = holders.of_blocks(pool_blocks.into_iter(), names);
            for block in failure.recent.iter_mut().chain(&mut failure.largest) {
                block.held_by = holders.of_block(block.allocation_id, names);
            }
            let lines = failure.lines.iter_mut().chain(&mut failure.other_class_line);
            lines.for_each(|line| line.learn_holders(situation, names));
            if let Some(growing) = &mut failure.growing {
                let grown = std::mem::take(&mut growing.numbers);
                let sized = grown.into_iter().map(|number| (number, growing.block_bytes));
                growing.held_by = holders.of_blocks(sized, names);
            }
        }
        self.report
    }
}

/// The site of an event, told like that of a block.
fn site_of_event(event: &TimelineEvent, situation: &Situation, names: &dyn Names) -> SiteText {
    let operator = situation.operators(event.thread_id).last();
    let block = LiveBlock {
        allocation_id: 0,
        address: 0,
        size_bytes: 0,
        properties: msmemscope_event::BlockProperties::framework(Pool::Hal, event.device),
        timestamp_ns: event.timestamp_ns,
        step: event.step,
        device_step: 0,
        thread_id: event.thread_id,
        native_stack: event.native_stack,
        python_stack: event.python_stack,
        caller_stack: situation.caller_stack(event),
        operator: operator.map_or(StringId::NONE, |open| open.name),
        operator_place: operator.map(|open| open.place).unwrap_or_default(),
        module: situation.module_of(event.thread_id),
        phase: situation.phase(event.device),
        kernel_index: 0,
        kernel: msmemscope_event::StringId::NONE,
        shadow: false,
        slot: 0,
        birth: 0,
        owner: OwnerId::default(),
    };
    SiteText::of(&block, situation, names)
}

/// Driver memory below a framework's pool is the same memory once more.
fn lines_of_frameworks(
    blocks: &[&LiveBlock],
    device: Device,
    situation: &Situation,
    names: &dyn Names,
) -> Vec<LineUse> {
    let here = || blocks.iter().copied().filter(|block| block.properties.device == device);
    let has_framework = here().any(|block| block.properties.pool != Pool::Hal);
    let meant = here().filter(|block| !has_framework || block.properties.pool != Pool::Hal);
    moment::lines_of(meant, KEPT_LINES, situation, names)
}

/// First and last bytes of segments.
type Ranges = Vec<(u64, u64)>;

/// Those segments of PyTorch's pool in which a request finds no room because they are for blocks of another size.
fn segments_of_other_size(requested_bytes: u64, device: Device, situation: &Situation) -> Ranges {
    let layout = gaps::lay_out(situation, device, Pool::PytorchCaching, |_| false);
    let is_small = requested_bytes == SMALL_SEGMENT_BYTES;
    let others = layout.segments.iter().filter(|segment| segment.is_for_small_blocks() != is_small);
    others.map(|segment| (segment.start, segment.end)).collect()
}

/// Those segments in which most is free that the request could not have, as PyTorch tells.
fn segments_of_no_use(failure: &Failure, told: &PoolGaveUp) -> Ranges {
    let (room, is_small) = (failure.fullest_of_no_use(), failure.is_for_small_blocks());
    let is_meant = |segment: &&PoolSegment| SegmentClass::of(segment, told.refusal.stream).room(is_small) == room;
    let meant = told.segments.iter().filter(is_meant);
    let mut ranges: Ranges =
        meant.map(|segment| (segment.address, segment.address.saturating_add(segment.size_bytes))).collect();
    ranges.sort_unstable();
    ranges
}

/// The line that holds most of PyTorch's pool in some segments, which are sorted.
fn line_in(segments: &Ranges, blocks: &[&LiveBlock], situation: &Situation, names: &dyn Names) -> Option<LineUse> {
    let is_inside = |block: &&LiveBlock| {
        let behind = segments.partition_point(|(start, _)| *start <= block.address);
        behind.checked_sub(1).is_some_and(|place| block.address < segments[place].1)
    };
    let of_pool = blocks.iter().copied().filter(|block| block.properties.pool == Pool::PytorchCaching);
    moment::lines_of(of_pool.filter(is_inside), 1, situation, names).into_iter().next()
}

fn owners_of(blocks: &[&LiveBlock], device: Device, situation: &Situation, names: &dyn Names) -> Vec<OwnerUse> {
    let mut held: FxHashMap<(OwnerId, Pool), (u64, u64)> = FxHashMap::default();
    let here = || blocks.iter().filter(|block| block.properties.device == device);
    // Driver memory below a framework's pool is the same memory once more.
    let has_framework = here().any(|block| is_framework_pool(block.properties.pool));
    for block in here().filter(|block| !has_framework || block.properties.pool != Pool::Hal) {
        let (bytes, count) = held.entry((block.owner, block.properties.pool)).or_default();
        *bytes = bytes.saturating_add(block.size_bytes);
        *count += 1;
    }
    let mut owners: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for ((owner, pool), (bytes, count)) in held {
        let fallback = match pool {
            Pool::Hal => "CANN",
            Pool::Unknown => UNKNOWN_OWNER,
            pool => pool.event_type(),
        };
        let text = situation.owner_text(owner, names).unwrap_or_else(|| fallback.to_owned());
        let sum = owners.entry(text).or_default();
        *sum = (sum.0.saturating_add(bytes), sum.1 + count);
    }
    let mut owners: Vec<OwnerUse> =
        owners.into_iter().map(|(owner, (bytes, blocks))| OwnerUse { owner, bytes, blocks }).collect();
    owners.sort_by_key(|owner| std::cmp::Reverse(owner.bytes));
    owners
}

impl Question for OutOfMemory {
    type Finding = OutOfMemoryReport;

    const ANALYSIS: AnalysisSet = AnalysisSet::OOM;

    fn ask(questions: &mut Questions) -> bool {
        questions.out_of_memory = Some(DEFAULT_LISTED_BLOCKS);
        true
    }

    fn start(questions: &Questions, about: &About<'_>) -> Option<Self> {
        questions.out_of_memory.map(|listed| Self::new(listed, about.knows_all_refusals))
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent, _view: View<'_>) {
        self.block(change, event);
    }

    #[inline]
    fn event(&mut self, event: &TimelineEvent, view: View<'_>) {
        if matches!(
            event.kind,
            EventKind::AllocationFailed { .. }
                | EventKind::CardSample { .. }
                | EventKind::PoolGaveUp(_)
                | EventKind::Snapshot { .. }
        ) {
            self.event(event, view.situation, view.leaks, view.names);
        }
    }

    fn finish(self, view: View<'_>, end: &mut End<'_>) -> Option<OutOfMemoryReport> {
        let report = self.finish(view.situation, view.names);
        report.details.iter().for_each(|failure| end.notes.add_failure(failure));
        Some(report)
    }
}
