//! Memory that is held without being used, told by the order of operators.
//!
//! Operators get consecutive numbers; an allocation, free or access outside any operator counts as an
//! operator of its own, and operators inside another belong to it. For a block of a framework pool:
//!
//! * *early allocation*: between the operator that allocates it and the first other operator that
//!   accesses it, some operator frees another block.
//! * *late deallocation*: between the last operator that accesses it and the one that frees it, some
//!   operator allocates another block.
//! * *temporary idleness*: more than a threshold of operators between two accesses in a row.
//!
//! Beyond these: blocks that no operator ever touched, and blocks that idle at their end while a block
//! of the same size is allocated (the two could share memory).
//!
//! A block that its allocating operator fills is a result; if it is used much later it is flagged as
//! allocated early like any other, but counted apart and never called waste: nothing but recomputing
//! it would help.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use msmemscope_config::{AnalysisSet, EventSet};
use msmemscope_event::{AccessKind, Device, Framework, Pool, StackId, StringId};
use msmemscope_timeline::{EventKind, TimelineEvent};
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::Serialize;

use crate::device_text::{device_text, pool_text};
use crate::names::{Frame, Names, Site, SiteText, user_frame};
use crate::notes::Notes;
use crate::peak_window::PeakWindow;
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, LiveBlock, Situation};
use crate::small_map::SmallMap;

/// Operators between two accesses beyond which a block idles.
pub const DEFAULT_IDLE_THRESHOLD: u64 = 3000;
/// Findings listed; all are counted.
const LISTED_FINDINGS: usize = 200;
/// Operators with frees or allocations remembered, so that several threads do not hide each other.
const REMEMBERED_OPERATORS: usize = 8;

/// Ways in which a block is used inefficiently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InefficiencyKinds(u8);

impl InefficiencyKinds {
    /// Allocated long before its first use.
    pub const EARLY: Self = Self(1);
    /// Freed long after its last use.
    pub const LATE: Self = Self(2);
    /// Not used for long between two uses.
    pub const IDLE: Self = Self(4);
    /// The three of them.
    pub const ALL: Self = Self(7);

    /// The kind with this name in files and options.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "early_allocation" => Some(Self::EARLY),
            "late_deallocation" => Some(Self::LATE),
            "temporary_idleness" => Some(Self::IDLE),
            _ => None,
        }
    }

    /// Whether all of these are included.
    #[inline]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[inline]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names joined by commas, as the `inefficient_type` attribute has them.
    pub fn attribute(self) -> &'static str {
        match self.0 & 7 {
            1 => "early_allocation",
            2 => "late_deallocation",
            3 => "early_allocation,late_deallocation",
            4 => "temporary_idleness",
            5 => "early_allocation,temporary_idleness",
            6 => "late_deallocation,temporary_idleness",
            7 => "early_allocation,late_deallocation,temporary_idleness",
            _ => "",
        }
    }
}

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InefficientSettings {
    /// Blocks smaller than this are left out.
    pub minimum_size_bytes: u64,
    /// Kinds to report.
    pub kinds: InefficiencyKinds,
    /// Operators between two accesses beyond which a block idles.
    pub idle_threshold: u64,
}

impl Default for InefficientSettings {
    fn default() -> Self {
        Self { minimum_size_bytes: 0, kinds: InefficiencyKinds::ALL, idle_threshold: DEFAULT_IDLE_THRESHOLD }
    }
}

/// What is wrong with the blocks of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Allocated before it is needed.
    EarlyAllocation,
    /// Freed after it was needed.
    LateDeallocation,
    /// Not used for long in between.
    TemporaryIdleness,
    /// No operator ever touched it.
    NeverUsed,
}

impl FindingKind {
    /// All of them, in order.
    const ALL: [Self; 4] = [Self::EarlyAllocation, Self::LateDeallocation, Self::TemporaryIdleness, Self::NeverUsed];

    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            FindingKind::EarlyAllocation => "early allocation",
            FindingKind::LateDeallocation => "late deallocation",
            FindingKind::TemporaryIdleness => "temporary idleness",
            FindingKind::NeverUsed => "never used",
        }
    }
}

/// Blocks of one call site that are used inefficiently in one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// In which way.
    pub kind: FindingKind,
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Where they are allocated.
    pub site: SiteText,
    /// Where one of them was used last (or first, for early allocation).
    pub use_line: String,
    /// How many blocks.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Largest block.
    pub largest_bytes: u64,
    /// Bytes times operators during which they were not needed.
    pub wasted_byte_operators: u64,
    /// Of the blocks freed late, those that could have given their memory to a block of the same size
    /// that was allocated meanwhile.
    pub could_share: u64,
}

/// How many blocks and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, size_bytes: u64) {
        self.blocks += 1;
        self.bytes = self.bytes.saturating_add(size_bytes);
    }
}

/// What the peak of a pool would be if early and late blocks were not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeakPotential {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// The peak as it was.
    pub peak_bytes: u64,
    /// The peak as it could be.
    pub peak_if_fixed_bytes: u64,
}

impl PeakPotential {
    /// The part of the peak that would be saved, from zero to one.
    pub fn saved_share(&self) -> f64 {
        match self.peak_bytes {
            0 => 0.0,
            bytes => 1.0 - self.peak_if_fixed_bytes as f64 / bytes as f64,
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InefficientReport {
    /// Operators seen.
    pub operators: u64,
    /// Accesses seen. Without any there is nothing to say.
    pub accesses: u64,
    /// Blocks flagged as allocated early, as files have it.
    pub early_allocation: Tally,
    /// Blocks flagged as freed late.
    pub late_deallocation: Tally,
    /// Blocks flagged as idle.
    pub temporary_idleness: Tally,
    /// Of the early ones, those that hold a result from the start.
    pub results_kept: Tally,
    /// Blocks no operator ever touched.
    pub never_used: Tally,
    /// Blocks that could have given their memory to a later block of the same size.
    pub shareable: Tally,
    /// Findings, the largest waste first.
    pub findings: Vec<Finding>,
    /// Findings that are not listed.
    pub findings_not_listed: u64,
    /// What fixing would bring.
    pub peaks: Vec<PeakPotential>,
}

impl InefficientReport {
    /// The largest part of a peak that fixing would save, from zero to one.
    pub fn peak_share(&self) -> f64 {
        self.peaks.iter().map(PeakPotential::saved_share).fold(0.0, f64::max)
    }
}

/// The latest operators that did something.
#[derive(Clone, Copy, Debug, Default)]
struct RecentOperators([u32; REMEMBERED_OPERATORS]);

impl RecentOperators {
    fn add(&mut self, operator: u32) {
        if self.0[0] != operator {
            self.0.copy_within(0..REMEMBERED_OPERATORS - 1, 1);
            self.0[0] = operator;
        }
    }

    fn any_between(&self, after: u32, before: u32) -> bool {
        self.0.iter().any(|&operator| after < operator && operator < before)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct ThreadState {
    /// Operators that are open.
    depth: u32,
    /// Those of them that are ATB's: a whole model may be one of them, so that those inside count by themselves.
    atb_depth: u32,
    operator: u32,
    /// An operator inside has ended: what comes next in the one around it is later, and has a number of its own.
    is_past: bool,
    /// Pools in which the open operator allocated or freed, one bit each.
    allocated: u8,
    freed: u8,
}

/// What is known about the use of a live block. Small, because one of very many is touched with every
/// access; so operators have numbers of 32 bits, and what follows the first four billion of them counts
/// as one.
#[derive(Clone, Copy, Debug, Default)]
struct UseState {
    /// Zero where there is no block.
    born: u32,
    first_use: u32,
    last_use: u32,
    idle_operators: u32,
    last_operator: StringId,
    last_stack: StackId,
    filled_at_birth: bool,
    latest_is_access: bool,
    kinds: InefficiencyKinds,
}

/// Blocks of one site that have the same fault.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    count: u64,
    bytes: u64,
    largest_bytes: u64,
    wasted: u64,
    could_share: u32,
    /// Position of its sample.
    sample: u32,
}

/// The groups of one site, one per kind. Small and found once per block, because one of very many is
/// touched with every block that ends.
#[derive(Clone, Copy, Debug)]
struct SiteGroups {
    key: SiteKey,
    groups: [Group; FindingKind::ALL.len()],
}

/// The largest block of a group.
#[derive(Clone, Copy, Debug)]
struct Sample {
    block: LiveBlock,
    used_by: StringId,
    used_at: StackId,
}

/// What blocks of a site have in common.
type SiteKey = (Device, Pool, Site);

/// What is followed per pool of a device.
#[derive(Debug, Default)]
struct PoolUse {
    window: PeakWindow,
    /// Operator of the latest allocation, by size.
    latest_allocation: FxHashMap<u64, u32>,
}

/// Follows the use of blocks.
#[derive(Debug)]
pub struct Inefficient {
    settings: InefficientSettings,
    operators: u64,
    accesses: u64,
    threads: SmallMap<u32, ThreadState>,
    allocations: [RecentOperators; 2],
    frees: [RecentOperators; 2],
    /// By slot.
    blocks: Vec<UseState>,
    sites: Vec<SiteGroups>,
    /// Positions of sites, by their keys.
    site_positions: HashTable<u32>,
    /// One of each group.
    samples: Vec<Sample>,
    pools: SmallMap<(Device, Pool), PoolUse>,
    allocating_only: FxHashMap<StringId, bool>,
    report: InefficientReport,
    notes: Notes,
}

fn pool_index(pool: Pool) -> Option<usize> {
    match pool {
        Pool::PytorchCaching => Some(0),
        Pool::Atb => Some(1),
        _ => None,
    }
}

impl Inefficient {
    /// Nothing seen yet.
    pub fn new(settings: InefficientSettings) -> Self {
        Self {
            settings,
            operators: 0,
            accesses: 0,
            threads: SmallMap::default(),
            allocations: Default::default(),
            frees: Default::default(),
            blocks: Vec::new(),
            sites: Vec::new(),
            site_positions: HashTable::default(),
            samples: Vec::new(),
            pools: SmallMap::default(),
            allocating_only: FxHashMap::default(),
            report: InefficientReport::default(),
            notes: Notes::default(),
        }
    }

    /// Number of the operator an event of a thread belongs to.
    #[inline]
    fn operator_of(&mut self, thread_id: u32) -> (u32, bool) {
        match self.threads.get(thread_id) {
            Some(thread) if thread.depth > 0 && thread.is_past => {
                let operator = self.next_operator();
                let thread = self.threads.entry(thread_id);
                (thread.operator, thread.is_past) = (operator, false);
                (operator, true)
            }
            Some(thread) if thread.depth > 0 => (thread.operator, true),
            _ => (self.next_operator(), false),
        }
    }

    #[inline]
    fn next_operator(&mut self) -> u32 {
        self.operators += 1;
        self.latest_operator()
    }

    #[inline]
    fn latest_operator(&self) -> u32 {
        u32::try_from(self.operators).unwrap_or(u32::MAX)
    }

    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent) {
        let (BlockChange::Begins(block, said) | BlockChange::Ends(block, said)) = change;
        let Some(index) = pool_index(block.properties.pool) else { return };
        let (operator, is_open) = self.operator_of(event.thread_id);
        let pool = self.pools.entry((block.properties.device, block.properties.pool));
        pool.window.used(u64::from(operator), said.used_bytes);
        match change {
            BlockChange::Begins(..) => {
                pool.latest_allocation.insert(block.size_bytes, operator);
                self.remember(index, operator, is_open.then_some(event.thread_id), true);
                let slot = block.slot as usize;
                if self.blocks.len() <= slot {
                    self.blocks.resize(slot + 1, UseState::default());
                }
                // Nobody knows when a block began that was there before.
                let born = if block.shadow { 0 } else { operator };
                self.blocks[slot] = UseState { born, ..UseState::default() };
            }
            BlockChange::Ends(..) => {
                if let Some(state) = self.blocks.get_mut(block.slot as usize).map(std::mem::take)
                    && state.born != 0
                {
                    self.end(index, operator, block, &state, true);
                }
                self.remember(index, operator, is_open.then_some(event.thread_id), false);
            }
        }
    }

    /// Notes that an operator allocated or freed. Open operators count when they end.
    fn remember(&mut self, index: usize, operator: u32, thread_id: Option<u32>, allocates: bool) {
        match thread_id.map(|thread_id| self.threads.entry(thread_id)) {
            Some(thread) if allocates => thread.allocated |= 1 << index,
            Some(thread) => thread.freed |= 1 << index,
            None if allocates => self.allocations[index].add(operator),
            None => self.frees[index].add(operator),
        }
    }

    /// An operator began or ended, or touched memory.
    #[inline]
    pub fn event(&mut self, event: &TimelineEvent, situation: &Situation, names: &dyn Names) {
        match event.kind {
            EventKind::Operator { begins: true, framework, .. } => self.operator_begins(event.thread_id, framework),
            EventKind::Operator { begins: false, framework, .. } => self.operator_ends(event.thread_id, framework),
            EventKind::Access { kind, allocation_id, slot, operator, output_position, .. } if allocation_id != 0 => {
                self.accesses += 1;
                let (number, _) = self.operator_of(event.thread_id);
                let Some(state) = self.blocks.get_mut(slot as usize).filter(|state| state.born != 0) else { return };
                if number == state.born {
                    let is_output = output_position > 0 || kind != AccessKind::Read;
                    let allocating_only =
                        *self.allocating_only.entry(operator).or_insert_with(|| names.text(operator).contains("empty"));
                    state.filled_at_birth |= is_output && !allocating_only;
                } else {
                    if state.first_use == 0 {
                        state.first_use = number;
                        let index = situation.block(slot).and_then(|block| pool_index(block.properties.pool));
                        if index.is_some_and(|index| self.frees[index].any_between(state.born, number)) {
                            state.kinds = state.kinds.with(InefficiencyKinds::EARLY);
                        }
                    }
                    let idle = number.saturating_sub(state.last_use);
                    if state.latest_is_access && u64::from(idle) > self.settings.idle_threshold {
                        state.kinds = state.kinds.with(InefficiencyKinds::IDLE);
                        state.idle_operators = state.idle_operators.max(idle);
                    }
                }
                state.latest_is_access = true;
                state.last_use = number;
                state.last_operator = operator;
                state.last_stack = event.python_stack;
            }
            _ => {}
        }
    }

    fn operator_begins(&mut self, thread_id: u32, framework: Framework) {
        let is_atb = framework == Framework::Atb;
        let is_inside = self.threads.entry(thread_id).atb_depth > 0 && is_atb;
        if is_inside {
            self.close_number(thread_id);
        }
        let thread = self.threads.entry(thread_id);
        thread.depth += 1;
        thread.atb_depth += u32::from(is_atb);
        if is_inside || thread.depth == 1 {
            let operator = self.next_operator();
            let thread = self.threads.entry(thread_id);
            *thread = ThreadState { operator, is_past: false, allocated: 0, freed: 0, ..*thread };
        }
    }

    fn operator_ends(&mut self, thread_id: u32, framework: Framework) {
        let thread = self.threads.entry(thread_id);
        thread.depth = thread.depth.saturating_sub(1);
        thread.atb_depth = thread.atb_depth.saturating_sub(u32::from(framework == Framework::Atb));
        if thread.depth == 0 {
            thread.atb_depth = 0;
            self.close_number(thread_id);
        } else if thread.atb_depth > 0 && framework == Framework::Atb {
            thread.is_past = true;
            self.close_number(thread_id);
        }
    }

    /// What a thread has done in its operator counts from now on.
    fn close_number(&mut self, thread_id: u32) {
        let thread = self.threads.entry(thread_id);
        let ended = *thread;
        (thread.allocated, thread.freed) = (0, 0);
        for index in 0..2 {
            if ended.allocated >> index & 1 == 1 {
                self.allocations[index].add(ended.operator);
            }
            if ended.freed >> index & 1 == 1 {
                self.frees[index].add(ended.operator);
            }
        }
    }

    /// Judges a block at its end, or at the end of the run.
    fn end(&mut self, index: usize, operator: u32, block: &LiveBlock, state: &UseState, freed: bool) {
        let size_bytes = block.size_bytes;
        if size_bytes < self.settings.minimum_size_bytes {
            return;
        }
        let mut kinds = state.kinds;
        let idle_at_end = freed && state.latest_is_access && state.last_use != operator;
        if idle_at_end && self.allocations[index].any_between(state.last_use, operator) {
            kinds = kinds.with(InefficiencyKinds::LATE);
        }
        kinds = kinds.and(self.settings.kinds);
        let is_never_used = state.last_use == 0 && self.accesses > 0 && operator.saturating_sub(state.born) > 1;
        if kinds.is_empty() && !is_never_used {
            return;
        }
        if !kinds.is_empty() {
            self.notes.set_inefficiency(block.allocation_id, kinds);
        }
        let site = self.site_of(block);
        let pool = self.pools.entry((block.properties.device, block.properties.pool));
        let groups = &mut self.sites[site].groups;
        let mut find = |kind: FindingKind, operators: u32, could_share: bool| {
            groups[kind as usize].add(&mut self.samples, block, state, operators, could_share);
        };
        if kinds.contains(InefficiencyKinds::EARLY) {
            self.report.early_allocation.add(size_bytes);
            if state.filled_at_birth {
                self.report.results_kept.add(size_bytes);
            } else {
                pool.window.saved(u64::from(state.born), u64::from(state.first_use - 1), size_bytes);
                find(FindingKind::EarlyAllocation, state.first_use - state.born, false);
            }
        }
        if kinds.contains(InefficiencyKinds::LATE) {
            self.report.late_deallocation.add(size_bytes);
            pool.window.saved(u64::from(state.last_use) + 1, u64::from(operator), size_bytes);
            let could_share = pool.latest_allocation.get(&size_bytes).is_some_and(|&latest| latest > state.last_use);
            if could_share {
                self.report.shareable.add(size_bytes);
            }
            find(FindingKind::LateDeallocation, operator - state.last_use, could_share);
        }
        if kinds.contains(InefficiencyKinds::IDLE) {
            self.report.temporary_idleness.add(size_bytes);
            find(FindingKind::TemporaryIdleness, state.idle_operators, false);
        }
        if is_never_used {
            self.report.never_used.add(size_bytes);
            find(FindingKind::NeverUsed, operator - state.born, false);
        }
    }

    /// Position of the site of a block.
    fn site_of(&mut self, block: &LiveBlock) -> usize {
        let key = (block.properties.device, block.properties.pool, Site::of(block));
        let hash = |key: &SiteKey| FxBuildHasher.hash_one(key);
        let sites = &mut self.sites;
        if let Some(&position) = self.site_positions.find(hash(&key), |&position| sites[position as usize].key == key) {
            return position as usize;
        }
        let position = sites.len();
        sites.push(SiteGroups { key, groups: Default::default() });
        self.site_positions.insert_unique(hash(&key), position as u32, |&other| hash(&sites[other as usize].key));
        position
    }

    /// What was found; blocks still alive are judged now.
    pub fn finish(mut self, situation: &Situation, names: &dyn Names, notes: &mut Notes) -> InefficientReport {
        let states = std::mem::take(&mut self.blocks);
        let mut alive: Vec<&LiveBlock> = situation.live_blocks().collect();
        alive.sort_unstable_by_key(|block| block.allocation_id);
        for block in alive {
            if let Some(state) = states.get(block.slot as usize).filter(|state| state.born != 0)
                && let Some(index) = pool_index(block.properties.pool)
            {
                self.end(index, self.latest_operator(), block, state, false);
            }
        }
        *notes = std::mem::take(&mut self.notes);
        let mut groups: Vec<(FindingKind, SiteKey, Group)> = Vec::new();
        for site in &self.sites {
            let of_kinds = FindingKind::ALL.iter().zip(site.groups);
            groups.extend(of_kinds.filter(|(_, group)| group.count > 0).map(|(&kind, group)| (kind, site.key, group)));
        }
        groups.sort_by_key(|(kind, key, group)| (std::cmp::Reverse(group.wasted), *kind, *key));
        let mut report = self.report;
        report.findings_not_listed = groups.len().saturating_sub(LISTED_FINDINGS) as u64;
        report.findings = groups
            .iter()
            .take(LISTED_FINDINGS)
            .map(|&(kind, (device, pool, _), group)| {
                let sample = &self.samples[group.sample as usize];
                Finding {
                    kind,
                    device,
                    pool,
                    site: SiteText::of(&sample.block, situation, names),
                    use_line: use_line(sample, names),
                    count: group.count,
                    bytes: group.bytes,
                    largest_bytes: group.largest_bytes,
                    wasted_byte_operators: group.wasted,
                    could_share: u64::from(group.could_share),
                }
            })
            .collect();
        let mut peaks: Vec<PeakPotential> = self
            .pools
            .into_entries()
            .map(|((device, pool), used)| {
                let (peak_bytes, peak_if_fixed_bytes) = used.window.finish();
                PeakPotential { device, pool, peak_bytes, peak_if_fixed_bytes }
            })
            .collect();
        peaks.sort_by_key(|peak| (peak.device, peak.pool));
        report.peaks = peaks;
        report.operators = self.operators;
        report.accesses = self.accesses;
        report
    }
}

impl Group {
    /// Adds a block that was not needed for this many operators.
    fn add(
        &mut self,
        samples: &mut Vec<Sample>,
        block: &LiveBlock,
        state: &UseState,
        operators: u32,
        could_share: bool,
    ) {
        let sample = || Sample { block: *block, used_by: state.last_operator, used_at: state.last_stack };
        if self.count == 0 {
            self.largest_bytes = block.size_bytes;
            self.sample = samples.len() as u32;
            samples.push(sample());
        } else if block.size_bytes > self.largest_bytes {
            self.largest_bytes = block.size_bytes;
            samples[self.sample as usize] = sample();
        }
        self.count += 1;
        self.bytes = self.bytes.saturating_add(block.size_bytes);
        self.wasted = self.wasted.saturating_add(block.size_bytes.saturating_mul(u64::from(operators)));
        self.could_share = self.could_share.saturating_add(u32::from(could_share));
    }
}

fn use_line(sample: &Sample, names: &dyn Names) -> String {
    let frames: Vec<Frame> = if sample.used_at.is_some() { names.python_frames(sample.used_at) } else { Vec::new() };
    match (user_frame(&frames), sample.used_by.is_some()) {
        (Some(frame), true) => format!("{} ({})", frame.describe(), names.text(sample.used_by)),
        (Some(frame), false) => frame.describe(),
        (None, true) => names.text(sample.used_by),
        (None, false) => String::new(),
    }
}

impl Question for Inefficient {
    type Finding = InefficientReport;

    const ANALYSIS: AnalysisSet = AnalysisSet::INEFFICIENT;
    const NEEDS: EventSet = EventSet::MEMORY.union(EventSet::ACCESS).union(EventSet::LAUNCH);

    fn ask(questions: &mut Questions) -> bool {
        questions.inefficient = Some(InefficientSettings::default());
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.inefficient.clone().map(Self::new)
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent, _view: View<'_>) {
        self.block(change, event);
    }

    #[inline]
    fn event(&mut self, event: &TimelineEvent, view: View<'_>) {
        if matches!(event.kind, EventKind::Operator { .. } | EventKind::Access { .. }) {
            self.event(event, view.situation, view.names);
        }
    }

    fn finish(self, view: View<'_>, end: &mut End<'_>) -> Option<InefficientReport> {
        Some(self.finish(view.situation, view.names, &mut end.notes))
    }
}
