//! What a recorded job asked of PyTorch's pool on each card, in order: the input of every replay.
//!
//! A recording has the blocks that the pool handed out, not the sizes that were asked for. A small block is as large as
//! its request, and so is every block of an expandable segment; a large one that was handed out whole may be up to 1 MiB
//! larger. [`Split`](crate::split) tells these apart by following the pool's free blocks, and says how much smaller the
//! request may have been. It also sees which blocks the pool could not use again for a while.

use std::collections::BTreeMap;

use msmemscope_event::{AllocationInterface, Device, MEMORY_FRACTION, Pool, StackId};
use msmemscope_timeline::{BlockEvent, EventKind, EventSink, TimelineEvent};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::agreement::with_waiting_that_explains;
use crate::allocator::GRANULE_BYTES;
use crate::course::Course;
use crate::settings::{AllocatorSettings, SMALL_BYTES};
use crate::split::{FreeRegions, Taken};

/// The variables that tell torch_npu's allocator how to behave.
const VARIABLES: [&str; 2] = ["PYTORCH_NPU_ALLOC_CONF=", "PYTORCH_ALLOC_CONF="];
/// Slot of a request that asks for no block.
const NO_SLOT: u32 = u32::MAX;

/// One request, in 16 bytes: recordings have many millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes asked for, or a number.
    pub(crate) size_bytes: u64,
    /// Number of the block among those that live at the same time.
    pub(crate) slot: u32,
    /// How many granules smaller it may have been.
    pub(crate) slack_granules: u16,
    /// Number of its stream among those that any block was allocated for.
    pub(crate) stream: u8,
    /// What is asked.
    pub(crate) kind: RequestKind,
}

/// What is asked of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RequestKind {
    /// A block.
    Allocate,
    /// To take a block back.
    Free,
    /// To take a block back that another stream still works on; a number for it takes the place of the size.
    FreeLater,
    /// Nothing: the other stream has done with a block of this number.
    Release,
    /// To give back to the driver what nobody uses.
    EmptyCache,
    /// Nothing: from now on others hold this many bytes of the card.
    Outside,
    /// A block that the recorded job did not get. It went on without.
    Refused,
}

/// What was recorded about the pool beside the requests, for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// Most bytes the pool held.
    pub peak_reserved_bytes: u64,
    /// Most bytes in use.
    pub peak_used_bytes: u64,
    /// Blocks of the driver that the pool got while requests came.
    pub driver_allocations: u64,
    /// Blocks of the driver that it gave back.
    pub driver_frees: u64,
    /// Bytes of the card, if it was seen.
    pub card_bytes: Option<u64>,
    /// Most bytes that others held.
    pub peak_outside_bytes: u64,
}

/// One step as far as memory is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepUse {
    /// Its number.
    pub step: u64,
    /// First request of the step.
    pub first_request: usize,
    /// When it started, wall clock.
    pub start_ns: u64,
    /// Most bytes in use during it.
    pub peak_used_bytes: u64,
    /// Least bytes in use during it.
    pub least_used_bytes: u64,
}

/// A request that the driver refused in the recorded job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// Requests before it.
    pub position: usize,
    /// Bytes that the pool asked the driver for.
    pub asked_bytes: u64,
    /// When the driver refused, wall clock.
    pub timestamp_ns: u64,
}

/// All requests of one process on one card.
#[derive(Clone, Debug)]
pub struct Requests {
    /// The card.
    pub device: Device,
    /// The settings under which it was recorded.
    pub settings: AllocatorSettings,
    /// Whether nobody recorded them, so that those of the allocator as delivered are assumed.
    pub settings_are_assumed: bool,
    /// What was recorded.
    pub recorded: Recorded,
    /// Steps, in order; what comes after the last one is one more.
    pub steps: Vec<StepUse>,
    /// The last step that was seen to end, where ends are told and not ranges.
    pub last_ended: Option<u64>,
    /// Streams that blocks were allocated for.
    pub streams: usize,
    /// Requests that ended in "out of memory": the job never got these blocks.
    pub refused: Vec<RefusedRequest>,
    /// Freed blocks that the pool used again only later, as it seems: another stream still worked on them.
    pub held_back: u64,
    /// Blocks that were there before the recording. They are asked for one after the other before everything else.
    pub from_before: u64,
    /// What was in use in the course of time.
    pub(crate) course: Course,
    pub(crate) list: Vec<Request>,
    /// What the pool held after each block began or ended.
    pub(crate) reserved_bytes: Vec<u64>,
    /// When each of these happened.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

impl Requests {
    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether nothing was asked of the pool.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Blocks asked for.
    pub fn allocations(&self) -> u64 {
        self.list.iter().filter(|request| request.kind == RequestKind::Allocate).count() as u64
    }

    /// Requests whose size is not known exactly.
    pub fn inexact(&self) -> usize {
        self.list.iter().filter(|request| request.slack_granules > 0).count()
    }

    /// How many steps there are.
    pub fn ended_steps(&self) -> u64 {
        let is_step = |step: &&StepUse| self.last_ended.is_none_or(|last| step.step <= last);
        self.steps.iter().filter(is_step).count() as u64
    }

    /// What the recorded job held from the driver after each block began or ended.
    pub fn recorded_curve(&self) -> &[u64] {
        &self.reserved_bytes
    }

    /// Nanoseconds from the first request to the last.
    pub fn duration_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    /// Notes whether nobody recorded the settings.
    #[must_use]
    pub fn with_settings_assumed(mut self, are_assumed: bool) -> Self {
        self.settings_are_assumed = are_assumed;
        self
    }

    /// Takes all blocks to be free as soon as they are freed.
    #[must_use]
    pub(crate) fn without_waiting(mut self) -> Self {
        self.list.retain(|request| request.kind != RequestKind::Release);
        let later = self.list.iter_mut().filter(|request| request.kind == RequestKind::FreeLater);
        later.for_each(|request| request.kind = RequestKind::Free);
        self.held_back = 0;
        self
    }

    /// Ends with a request that failed, which no block tells about: with it, the job would have gone on.
    #[must_use]
    pub fn up_to_refused(mut self, refused: Option<RefusedRequest>) -> Self {
        if let Some(refused) = refused {
            self.list.truncate(refused.position);
            let size_bytes = refused.asked_bytes.next_multiple_of(GRANULE_BYTES);
            let slot = self.list.iter().map(|request| request.slot).filter(|&slot| slot != NO_SLOT).max();
            let slot = slot.map_or(0, |slot| slot + 1);
            self.list.push(Request { size_bytes, slot, slack_granules: 0, stream: 0, kind: RequestKind::Allocate });
        }
        self
    }
}

/// Collects the requests of one process from its events.
#[derive(Debug, Default)]
pub struct Collector {
    settings: AllocatorSettings,
    /// What part of a card's memory the job had left to the pool, where it said so.
    fractions: Vec<(Device, f64)>,
    cards: BTreeMap<Device, Card>,
    card_bytes: Option<u64>,
    last_ended: Option<u64>,
}

/// What is collected about one card.
#[derive(Debug)]
struct Card {
    requests: Requests,
    regions: FreeRegions,
    /// Bytes of the card in use as the driver tells it.
    driver_bytes: u64,
    outside_bytes: u64,
    reserved_bytes: u64,
    /// What the driver was asked for and refused since the last request that was met.
    refusal: Option<Refusal>,
    /// Blocks of the driver by slot.
    driver_blocks: FxHashMap<u32, DriverBlock>,
    /// Those with an address in which no block of the pool was seen yet: size and slot by address.
    unclaimed: BTreeMap<u64, (u64, u32)>,
    /// Calls of the pool since its last event.
    recent_allocations: u64,
    recent_frees: u64,
    /// Where the program was when the pool last gave memory back since its last event.
    gave_back_at: StackId,
    /// Streams by their numbers in the recording, in the order in which they were first seen.
    streams: Vec<u32>,
}

/// What the driver refused.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    asked_bytes: u64,
    timestamp_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct DriverBlock {
    address: u64,
    size_bytes: u64,
    interface: AllocationInterface,
    /// Whether it belongs to the pool.
    is_pools: bool,
}

impl Collector {
    /// Collects from a job whose allocator had these settings.
    pub fn new(settings: AllocatorSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Collects from a job that has stated its settings like this: variables and calls, each on a line.
    ///
    /// # Errors
    /// One line if no allocator could have had these settings.
    pub fn of_job(stated: &str) -> Result<Self, String> {
        let value = stated.lines().find_map(|line| VARIABLES.iter().find_map(|name| line.strip_prefix(name)));
        let settings = AllocatorSettings::parse(value.unwrap_or_default())?;
        let fraction = |line: &str| {
            let (device, fraction) = line.strip_prefix(MEMORY_FRACTION)?.strip_prefix('(')?.split_once(")=")?;
            Some((Device::from_id(device.parse().ok()?), fraction.parse().ok()?))
        };
        Ok(Self { fractions: stated.lines().filter_map(fraction).collect(), ..Self::new(settings) })
    }

    /// The requests by card; cards on which nothing was asked are left out.
    pub fn finish(self) -> Vec<Requests> {
        let (card_bytes, last_ended) = (self.card_bytes, self.last_ended);
        let finished = self.cards.into_values().map(|mut card| {
            card.note_refused();
            card.requests.recorded.card_bytes = card_bytes;
            card.requests.last_ended = last_ended;
            card.requests.streams = card.streams.len();
            card.requests
        });
        finished.filter(|requests| !requests.reserved_bytes.is_empty()).map(with_waiting_that_explains).collect()
    }

    fn card(&mut self, device: Device) -> &mut Card {
        let (settings, fractions) = (&self.settings, &self.fractions);
        self.cards.entry(device).or_insert_with(|| {
            let mut settings = settings.clone();
            if let Some(&(_, fraction)) = fractions.iter().find(|(known, _)| *known == device) {
                settings.memory_fraction = fraction;
            }
            Card::new(device, settings)
        })
    }
}

impl EventSink for Collector {
    #[inline]
    fn take(&mut self, event: TimelineEvent) {
        match &event.kind {
            EventKind::Malloc(block) if block.properties.pool == Pool::PytorchCaching => {
                let card_bytes = self.card_bytes;
                self.card(event.device).allocated(&event, block, card_bytes);
            }
            EventKind::Free(block) if block.properties.pool == Pool::PytorchCaching && !block.alive_at_process_end => {
                self.card(event.device).freed(&event, block);
            }
            EventKind::Malloc(block) if is_card_memory(block) => self.card(event.device).driver_allocated(block),
            EventKind::Free(block) if is_card_memory(block) && !block.alive_at_process_end => {
                self.card(event.device).driver_freed(&event, block);
            }
            EventKind::AllocationFailed { size_bytes, .. } => {
                let refusal = Refusal { asked_bytes: *size_bytes, timestamp_ns: event.timestamp_ns };
                self.card(event.device).refusal = Some(refusal);
            }
            // Rows of dumps tell what is in use of a card whose size they do not know.
            EventKind::StartTrace { card: Some((_, total_bytes)) } | EventKind::CardSample { total_bytes, .. }
                if *total_bytes > 0 =>
            {
                self.card_bytes = Some(*total_bytes);
            }
            EventKind::Snapshot { numbers, .. } if numbers.total_bytes > 0 => {
                self.card_bytes = Some(numbers.total_bytes);
            }
            EventKind::StepEnd { number } if event.step == *number => self.last_ended = Some(*number),
            _ => {}
        }
    }
}

fn is_card_memory(block: &BlockEvent) -> bool {
    block.properties.pool == Pool::Hal && matches!(block.properties.device, Device::Npu(_))
}

impl Card {
    fn new(device: Device, settings: AllocatorSettings) -> Self {
        Self {
            regions: FreeRegions::new(&settings),
            requests: Requests {
                device,
                settings,
                settings_are_assumed: false,
                recorded: Recorded::default(),
                steps: Vec::new(),
                last_ended: None,
                streams: 0,
                refused: Vec::new(),
                held_back: 0,
                from_before: 0,
                course: Course::default(),
                list: Vec::new(),
                reserved_bytes: Vec::new(),
                first_ns: 0,
                last_ns: 0,
            },
            driver_bytes: 0,
            outside_bytes: 0,
            reserved_bytes: 0,
            refusal: None,
            driver_blocks: FxHashMap::default(),
            unclaimed: BTreeMap::new(),
            recent_allocations: 0,
            recent_frees: 0,
            gave_back_at: StackId::NONE,
            streams: Vec::new(),
        }
    }

    #[inline]
    fn allocated(&mut self, event: &TimelineEvent, block: &BlockEvent, card_bytes: Option<u64>) {
        let stream = self.stream(block);
        let has_given_back = block.total_bytes < self.reserved_bytes || self.recent_frees > 0;
        let makes_room = has_given_back && self.makes_room(event, block.size_bytes, stream, card_bytes);
        self.before(event, block, makes_room);
        self.refusal = None;
        let requests = &mut self.requests;
        requests.from_before += u64::from(block.shadow && requests.from_before == requests.reserved_bytes.len() as u64);
        self.claim(block.address);
        let taken = self.regions.take(block.address, block.size_bytes, stream);
        self.note_waiting(&taken);
        // A block that was handed out whole may be larger than any request is rounded to.
        let size_bytes = match taken.slack_bytes {
            0 => block.size_bytes,
            _ => self.requests.settings.rounded_down(block.size_bytes),
        };
        let slack_bytes = taken.slack_bytes.saturating_sub(block.size_bytes - size_bytes);
        self.push(Request {
            size_bytes,
            slot: block.slot,
            slack_granules: u16::try_from(slack_bytes / GRANULE_BYTES).unwrap_or(u16::MAX),
            stream,
            kind: RequestKind::Allocate,
        });
        self.after(event, block);
    }

    #[inline]
    fn freed(&mut self, event: &TimelineEvent, block: &BlockEvent) {
        self.before(event, block, false);
        let stream = self.stream(block);
        self.regions.give_back(block.address, block.size_bytes, stream, self.requests.list.len());
        let kind = RequestKind::Free;
        self.push(Request { size_bytes: block.size_bytes, slot: block.slot, slack_granules: 0, stream, kind });
        self.after(event, block);
    }

    /// Blocks that are held back since they were freed, and those that are no longer.
    #[inline]
    fn note_waiting(&mut self, taken: &Taken) {
        for &(request, number) in &taken.held_back {
            let freed = &mut self.requests.list[request];
            (freed.kind, freed.size_bytes) = (RequestKind::FreeLater, number);
            self.requests.held_back += 1;
        }
        self.note_released(&taken.released);
    }

    fn note_released(&mut self, numbers: &[u64]) {
        for &number in numbers {
            let kind = RequestKind::Release;
            self.push(Request { size_bytes: number, slot: NO_SLOT, slack_granules: 0, stream: 0, kind });
        }
    }

    /// The number of a block's stream among those of the card. More than fit are one.
    #[inline]
    fn stream(&mut self, block: &BlockEvent) -> u8 {
        let known = self.streams.iter().position(|stream| *stream == block.stream);
        let number = known.unwrap_or_else(|| {
            self.streams.push(block.stream);
            self.streams.len() - 1
        });
        u8::try_from(number).unwrap_or(u8::MAX)
    }

    /// Whether the pool has given memory back by itself for this request: after a refusal of the driver; or below a limit
    /// that the job has set. Then it did so on the line of code that made the request; where lines are not known, it may
    /// have if the request could not be met otherwise, at the limit or above the threshold of garbage collection.
    #[cold]
    fn makes_room(&self, event: &TimelineEvent, size_bytes: u64, stream: u8, card_bytes: Option<u64>) -> bool {
        let settings = &self.requests.settings;
        if self.refusal.is_some() || settings.memory_fraction >= 1.0 {
            return self.refusal.is_some();
        }
        if self.gave_back_at.is_some() && event.python_stack.is_some() {
            return self.gave_back_at == event.python_stack;
        }
        if self.regions.had_room(size_bytes, stream) || self.regions.gave_back_more_than_needed(size_bytes) {
            return false;
        }
        let allowed_bytes = card_bytes.map_or(0.0, |card_bytes| settings.memory_fraction * card_bytes as f64);
        let threshold = settings.garbage_collection_threshold;
        let is_collected = threshold > 0.0 && self.reserved_bytes as f64 > threshold * allowed_bytes;
        is_collected || (self.reserved_bytes + settings.segment_bytes(size_bytes)) as f64 > allowed_bytes
    }

    /// What must have happened since the last event of the pool. `makes_room` says whether the pool gives memory back by
    /// itself where it needs some.
    #[inline]
    fn before(&mut self, event: &TimelineEvent, block: &BlockEvent, makes_room: bool) {
        if self.requests.reserved_bytes.is_empty() {
            self.requests.first_ns = event.timestamp_ns;
        }
        if block.total_bytes < self.reserved_bytes || self.recent_frees > 0 {
            self.gave_back(makes_room);
        } else if self.refusal.is_some() && matches!(event.kind, EventKind::Free(_)) {
            self.note_refused();
        }
        self.reserved_bytes = block.total_bytes;
        let outside_bytes = self.driver_bytes.saturating_sub(block.total_bytes);
        if outside_bytes != self.outside_bytes {
            self.outside_bytes = outside_bytes;
            let kind = RequestKind::Outside;
            self.push(Request { size_bytes: outside_bytes, slot: NO_SLOT, slack_granules: 0, stream: 0, kind });
        }
        let recorded = &mut self.requests.recorded;
        // What the driver is asked after the last request is the end of the process.
        recorded.driver_allocations += std::mem::take(&mut self.recent_allocations);
        recorded.driver_frees += std::mem::take(&mut self.recent_frees);
        self.gave_back_at = StackId::NONE;
        recorded.peak_outside_bytes = recorded.peak_outside_bytes.max(outside_bytes);
        let is_new_step = self.requests.steps.last().is_none_or(|last| last.step != event.step);
        if is_new_step && event.step > 0 {
            self.requests.steps.push(StepUse {
                step: event.step,
                first_request: self.requests.list.len(),
                start_ns: event.timestamp_ns,
                peak_used_bytes: block.used_bytes,
                least_used_bytes: block.used_bytes,
            });
        }
    }

    /// The pool gave memory back to the driver. Nobody says why: either by itself, to make room, or because the job asked
    /// for it.
    #[cold]
    fn gave_back(&mut self, makes_room: bool) {
        let released = self.regions.empty_cache();
        self.note_released(&released);
        if makes_room {
            return;
        }
        self.note_refused();
        let kind = RequestKind::EmptyCache;
        self.push(Request { size_bytes: 0, slot: NO_SLOT, slack_granules: 0, stream: 0, kind });
    }

    /// A refusal after which no block was handed out: a request that failed.
    fn note_refused(&mut self) {
        if let Some(Refusal { asked_bytes, timestamp_ns }) = self.refusal.take() {
            let position = self.requests.list.len();
            self.requests.refused.push(RefusedRequest { position, asked_bytes, timestamp_ns });
            let (size_bytes, kind) = (asked_bytes.next_multiple_of(GRANULE_BYTES), RequestKind::Refused);
            self.push(Request { size_bytes, slot: NO_SLOT, slack_granules: 0, stream: 0, kind });
        }
    }

    #[inline]
    fn after(&mut self, event: &TimelineEvent, block: &BlockEvent) {
        let requests = &mut self.requests;
        requests.reserved_bytes.push(block.total_bytes);
        requests.last_ns = event.timestamp_ns;
        requests.course.note(event.timestamp_ns, block.used_bytes);
        let recorded = &mut requests.recorded;
        recorded.peak_reserved_bytes = recorded.peak_reserved_bytes.max(block.total_bytes);
        recorded.peak_used_bytes = recorded.peak_used_bytes.max(block.used_bytes);
        if let Some(step) = requests.steps.last_mut() {
            step.peak_used_bytes = step.peak_used_bytes.max(block.used_bytes);
            step.least_used_bytes = step.least_used_bytes.min(block.used_bytes);
        }
    }

    /// The driver's block around a block of the pool is the pool's.
    #[inline]
    fn claim(&mut self, address: u64) {
        if self.unclaimed.is_empty() {
            return;
        }
        let around = self.unclaimed.range(..=address).next_back().map(|(&start, &known)| (start, known));
        if let Some((start, (size_bytes, slot))) = around
            && address - start < size_bytes
        {
            self.unclaimed.remove(&start);
            self.requests.recorded.driver_allocations += 1;
            if let Some(block) = self.driver_blocks.get_mut(&slot) {
                block.is_pools = true;
            }
        }
    }

    fn driver_allocated(&mut self, block: &BlockEvent) {
        self.driver_bytes += block.size_bytes;
        let (address, size_bytes, interface) = (block.address, block.size_bytes, block.properties.interface);
        // Physical memory without an address is only asked for by the pool.
        let is_pools = interface == AllocationInterface::Create;
        self.driver_blocks.insert(block.slot, DriverBlock { address, size_bytes, interface, is_pools });
        if is_pools {
            self.recent_allocations += 1;
            return;
        }
        self.unclaimed.insert(address, (size_bytes, block.slot));
        self.regions.add_segment(address, size_bytes);
    }

    fn driver_freed(&mut self, event: &TimelineEvent, block: &BlockEvent) {
        let Some(known) = self.driver_blocks.remove(&block.slot) else { return };
        self.driver_bytes = self.driver_bytes.saturating_sub(known.size_bytes);
        self.recent_frees += u64::from(known.is_pools);
        if known.is_pools {
            self.gave_back_at = event.python_stack;
        }
        if known.interface != AllocationInterface::Create {
            self.unclaimed.remove(&known.address);
            self.regions.remove_segment(known.address);
        }
    }

    #[inline]
    fn push(&mut self, request: Request) {
        self.requests.list.push(request);
    }
}

/// The most by which a block may be larger than its request.
pub(crate) fn most_slack_bytes(settings: &AllocatorSettings, size_bytes: u64) -> u64 {
    if size_bytes <= SMALL_BYTES || settings.expandable_segments {
        return 0;
    }
    match settings.max_split_bytes {
        Some(max_split_bytes) if size_bytes >= max_split_bytes => {
            // Such blocks are never split.
            settings.max_non_split_rounding_bytes.min(size_bytes - SMALL_BYTES - GRANULE_BYTES)
        }
        _ => SMALL_BYTES.min(size_bytes - SMALL_BYTES - GRANULE_BYTES),
    }
}
