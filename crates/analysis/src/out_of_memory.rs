//! Why memory ran out.
//!
//! When the driver refuses an allocation, everything that is alive is known, so the reason can be told
//! apart: a leak that ate the memory, memory the framework holds but cannot use (fragmentation), other
//! processes on the card, or plain demand. A framework that gets its memory after giving cached memory
//! back has recovered; such failures are told as such.

use msmemscope_event::{AllocationInterface, Device, Pool};
use msmemscope_timeline::{EventKind, TimelineEvent};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::decompose::{OwnerUse, UNKNOWN_OWNER};
use crate::device_text::{device_text, pool_text};
use crate::gaps::{self, Gaps};
use crate::leaks::Leaks;
use crate::names::{Names, SiteText};
use crate::situation::{BlockChange, LiveBlock, Situation};
use crate::small_map::SmallMap;

/// Blocks listed unless the user says otherwise.
pub const DEFAULT_LISTED_BLOCKS: usize = 10;
/// What the driver returns when memory has run out.
const OUT_OF_MEMORY: i64 = 6;
/// Failures in quick succession are one story; details are collected at most this often.
const DETAIL_INTERVAL_NS: u64 = 2_000_000_000;
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
    /// Stack ids, for rows of files.
    #[serde(skip)]
    pub stacks: (msmemscope_event::StackId, msmemscope_event::StackId),
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
}

impl PoolThen {
    /// Bytes held but not in use.
    pub fn idle_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.used_bytes)
    }
}

/// Why memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Memory that leaks would have been enough.
    Leak,
    /// Memory the framework holds unused would have been enough.
    Fragmentation,
    /// Without the other processes on the card it would have been enough.
    OtherProcesses,
    /// The job needs more than there is.
    Demand,
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
    /// The driver call.
    pub function: &'static str,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// The raw flag word.
    pub flag: u64,
    /// Where it was asked for.
    pub site: SiteText,
    /// Whether an allocation of this size succeeded later on this device.
    pub recovered: bool,
    /// Why, in one word.
    pub verdict: Verdict,
    /// Why, in sentences.
    pub explanation: Vec<String>,
    /// What to do about it.
    pub advice: Vec<String>,
    /// Bytes this process holds from the driver on the device.
    pub process_bytes: u64,
    /// Bytes used on the card and its size, as last sampled.
    pub card: Option<(u64, u64)>,
    /// Bytes that leak, as far as steps tell.
    pub leaked_bytes: u64,
    /// Framework pools on the device.
    pub pools: Vec<PoolThen>,
    /// Bytes per owner, pools and driver apart.
    pub owners: Vec<OwnerUse>,
    /// The latest live blocks, newest first.
    pub recent: Vec<ListedBlock>,
    /// The largest live blocks, largest first.
    pub largest: Vec<ListedBlock>,
    #[serde(skip)]
    thread_id: u32,
}

/// All failures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OutOfMemoryReport {
    /// How often the driver refused for lack of memory.
    pub failures: u64,
    /// The ones that were looked at closely.
    pub details: Vec<Failure>,
}

impl OutOfMemoryReport {
    /// The failure that mattered: the last one that was not recovered from, else the last one.
    pub fn decisive(&self) -> Option<&Failure> {
        self.details.iter().rev().find(|failure| !failure.recovered).or_else(|| self.details.last())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct CardState {
    used_bytes: u64,
    process_bytes: u64,
    total_bytes: u64,
}

/// Follows failures.
#[derive(Debug)]
pub struct OutOfMemory {
    listed_blocks: usize,
    report: OutOfMemoryReport,
    latest_detail_ns: Option<u64>,
    pools: SmallMap<(Device, Pool), (u64, u64)>,
    cards: SmallMap<Device, CardState>,
    /// Whether physical memory was ever mapped piecewise, which is how expandable segments work.
    uses_created_memory: bool,
}

impl OutOfMemory {
    /// Nothing seen yet.
    pub fn new(listed_blocks: usize) -> Self {
        Self {
            listed_blocks,
            report: OutOfMemoryReport::default(),
            latest_detail_ns: None,
            pools: SmallMap::default(),
            cards: SmallMap::default(),
            uses_created_memory: false,
        }
    }

    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent) {
        let (BlockChange::Begins(block, said) | BlockChange::Ends(block, said)) = change;
        let (device, pool) = (block.properties.device, block.properties.pool);
        *self.pools.entry((device, pool)) = (said.used_bytes, said.total_bytes);
        if pool != Pool::Hal || !matches!(change, BlockChange::Begins(..)) {
            return;
        }
        self.uses_created_memory |= block.properties.interface == AllocationInterface::Create;
        if let Some(card) = said.card {
            let state = self.cards.entry(device);
            (state.process_bytes, state.used_bytes) = (card.process_bytes, card.device_bytes);
        }
        for failure in self.report.details.iter_mut().rev().take_while(|failure| !failure.recovered) {
            failure.recovered |= failure.device == device
                && failure.thread_id == event.thread_id
                && block.size_bytes >= failure.requested_bytes;
        }
    }

    /// The driver refused an allocation, or somebody looked at the card.
    pub fn event(&mut self, event: &TimelineEvent, situation: &Situation, leaks: Option<&Leaks>, names: &dyn Names) {
        match event.kind {
            EventKind::CardSample { used_bytes, process_bytes, total_bytes } => {
                let state = self.cards.entry(event.device);
                (state.used_bytes, state.process_bytes) = (used_bytes, process_bytes);
                state.total_bytes = if total_bytes > 0 { total_bytes } else { state.total_bytes };
            }
            EventKind::AllocationFailed { interface, size_bytes, flag, error: OUT_OF_MEMORY } => {
                self.report.failures += 1;
                let too_soon = self
                    .latest_detail_ns
                    .is_some_and(|latest| event.timestamp_ns.saturating_sub(latest) < DETAIL_INTERVAL_NS);
                if too_soon {
                    return;
                }
                self.latest_detail_ns = Some(event.timestamp_ns);
                if self.report.details.len() >= KEPT_FAILURES {
                    self.report.details.remove(KEPT_FAILURES / 2);
                }
                let function = match interface {
                    AllocationInterface::Create => "halMemCreate",
                    _ => "halMemAlloc",
                };
                let failure = self.look(event, function, size_bytes, flag, situation, leaks, names);
                self.report.details.push(failure);
            }
            _ => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one failure and who can tell about them")]
    fn look(
        &self,
        event: &TimelineEvent,
        function: &'static str,
        requested_bytes: u64,
        flag: u64,
        situation: &Situation,
        leaks: Option<&Leaks>,
        names: &dyn Names,
    ) -> Failure {
        let device = event.device;
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
            .map(|((_, pool), &(used_bytes, total_bytes))| PoolThen {
                pool: *pool,
                reserved_bytes: total_bytes.max(used_bytes),
                used_bytes,
                gaps: gaps::find(situation, device, *pool),
            })
            .collect();
        pools.sort_by_key(|pool| pool.pool);
        let card = self.cards.get(device).copied();
        let mut failure = Failure {
            timestamp_ns: event.timestamp_ns,
            step: situation.steps(device).number,
            device,
            function,
            requested_bytes,
            flag,
            site: site_of_event(event, situation, names),
            recovered: false,
            verdict: Verdict::Demand,
            explanation: Vec::new(),
            advice: Vec::new(),
            process_bytes: self.pools.get((device, Pool::Hal)).map_or(0, |(used, _)| *used),
            card: card.map(|card| (card.used_bytes, card.total_bytes)),
            leaked_bytes: leaks.map_or(0, |leaks| leaks.leaked_bytes_now(device, situation)),
            pools,
            owners: owners_of(&blocks, device, names),
            recent: self.list(&blocks, names, |block| (block.timestamp_ns, block.allocation_id)),
            largest: self.list(&blocks, names, |block| (block.size_bytes, block.allocation_id)),
            thread_id: event.thread_id,
        };
        judge(&mut failure, card, self.uses_created_memory);
        failure
    }

    /// The blocks with the largest keys.
    fn list(
        &self,
        blocks: &[&LiveBlock],
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
                site: SiteText::of(block, names),
                stacks: (block.python_stack, block.native_stack),
            })
            .collect()
    }

    /// What was found.
    pub fn finish(self) -> OutOfMemoryReport {
        self.report
    }
}

/// The site of an event, told like that of a block.
fn site_of_event(event: &TimelineEvent, situation: &Situation, names: &dyn Names) -> SiteText {
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
        operator: situation
            .operators(event.thread_id)
            .last()
            .map_or(msmemscope_event::StringId::NONE, |open| open.name),
        kernel_index: 0,
        shadow: false,
    };
    SiteText::of(&block, names)
}

fn owners_of(blocks: &[&LiveBlock], device: Device, names: &dyn Names) -> Vec<OwnerUse> {
    let mut owners: FxHashMap<&str, (u64, u64)> = FxHashMap::default();
    for block in blocks.iter().filter(|block| block.properties.device == device) {
        let fallback = match block.properties.pool {
            Pool::Hal => "CANN",
            Pool::Unknown => UNKNOWN_OWNER,
            pool => pool.event_type(),
        };
        let (bytes, count) = owners.entry(names.owner(block.allocation_id).unwrap_or(fallback)).or_default();
        *bytes += block.size_bytes;
        *count += 1;
    }
    let mut owners: Vec<OwnerUse> = owners
        .into_iter()
        .map(|(owner, (bytes, blocks))| OwnerUse { owner: owner.to_owned(), bytes, blocks })
        .collect();
    owners.sort_by(|left, right| right.bytes.cmp(&left.bytes).then_with(|| left.owner.cmp(&right.owner)));
    owners
}

/// Says why memory ran out and what to do. The order matters: a leak explains everything behind it.
fn judge(failure: &mut Failure, card: Option<CardState>, uses_created_memory: bool) {
    use crate::text::bytes;
    let requested = failure.requested_bytes;
    let idle: u64 = failure.pools.iter().map(PoolThen::idle_bytes).sum();
    let largest_gap = failure.pools.iter().map(|pool| pool.gaps.largest_gap_bytes).max().unwrap_or(0);
    let others = card.map_or(0, |card| card.used_bytes.saturating_sub(card.process_bytes.max(failure.process_bytes)));
    let mut say = |text: String| failure.explanation.push(text);
    say(format!("{} asked for {} on device {}.", failure.function, bytes(requested), failure.device));
    say(format!("This process holds {} from the driver there.", bytes(failure.process_bytes)));
    if let Some(card) = card.filter(|card| card.total_bytes > 0) {
        say(format!(
            "The card has {}, {} of it in use, {} by other processes or the system.",
            bytes(card.total_bytes),
            bytes(card.used_bytes),
            bytes(others)
        ));
    }
    let leaked = failure.leaked_bytes;
    let fits_without_others = card.is_some_and(|card| card.total_bytes == 0 || others >= requested);
    let mut advise = |text: &str| failure.advice.push(text.to_owned());
    if leaked >= requested && leaked > 0 {
        failure.verdict = Verdict::Leak;
        say(format!("{} are held by call sites that keep more blocks with every step: a leak.", bytes(leaked)));
        advise("Free what the leak report lists; its first call site holds most.");
    } else if idle >= requested && idle > 0 {
        failure.verdict = Verdict::Fragmentation;
        say(format!(
            "The framework holds {} that no tensor uses, but its largest gap is {}: fragmentation. \
             It would fit if the gaps were together.",
            bytes(idle),
            bytes(largest_gap)
        ));
        if uses_created_memory {
            advise("Expandable segments are in use already; look for long-lived blocks between short-lived ones.");
        } else {
            advise("Try PYTORCH_NPU_ALLOC_CONF=expandable_segments:True, so that gaps can be joined.");
        }
        advise("Call torch.npu.empty_cache() after phases with other tensor sizes.");
    } else if others >= requested && fits_without_others && others > failure.process_bytes / 10 {
        failure.verdict = Verdict::OtherProcesses;
        say(format!("Other processes hold {} of the card; without them it would have fitted.", bytes(others)));
        advise("Look for other jobs on this card (npu-smi info), or use another card.");
    } else {
        failure.verdict = Verdict::Demand;
        say(format!(
            "Neither leaks ({}) nor unused memory of the framework ({}) would have been enough: \
             the job needs more than there is.",
            bytes(leaked),
            bytes(idle)
        ));
        if let Some(owner) = failure.owners.first() {
            say(format!("The largest owner is {} with {}.", owner.owner, bytes(owner.bytes)));
        }
        advise("Use smaller batches, recompute activations, or shard weights and optimizer state.");
    }
}
