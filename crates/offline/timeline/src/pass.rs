//! The pass over all facts.
//!
//! Recording states: while recording is on, allocations and frees become events as they come. While
//! it is not (in the *shadow*), allocations are only remembered. When recording starts, every
//! remembered block that is still alive gets its MALLOC at the time of the start and counts from then
//! on; a remembered block that ends before that leaves no trace, also not in the numbers. A block of a recorded scope that ends in the shadow gets its
//! FREE at its real time. Blocks alive at the process end get a FREE there. All of these are marked
//! as shadow events.

use std::sync::Arc;

use msmemscope_event::{
    AddressSpace, BlockProperties, Device, DeviceMap, Fact, Framework, KernelPhase, Pool, ProcessInfoKey, Record,
    RecordingState, STEP_RANGE_MESSAGE, SnapshotNumbers, StackId, StringId, SystemEvent, WatchDetail,
};
use msmemscope_trace::Definitions;
use rustc_hash::FxHashMap;

use crate::blocks::{Block, BlockKey, BlockTable};
use crate::clock::OutputClock;
use crate::event::{BlockEvent, CardUse, EventKind, LabelChange, OperatorPlace, TimelineEvent, WatchObservation};
use crate::kernels::{Early, Kernel, KernelTracker};
use crate::places::Places;
use crate::pools::PoolBook;
use crate::python_calls::PythonCallTracker;
use crate::refusals::Refusals;
use crate::settings::{EventFilter, TimelineSettings};
use crate::source::{FactSource, FactStream};
use crate::steps::{StepTracker, is_default_domain};
use crate::summary::Summary;

/// Takes the events of a pass.
pub trait EventSink {
    /// The next event.
    fn take(&mut self, event: TimelineEvent);
}

impl<F: FnMut(TimelineEvent)> EventSink for F {
    #[inline]
    fn take(&mut self, event: TimelineEvent) {
        self(event);
    }
}

/// How often [`run`] reports progress, in facts.
const PROGRESS_INTERVAL: u64 = 1 << 16;

/// Makes a whole pass. `progress` is told facts done and all facts from time to time.
pub fn run<S: FactSource>(
    source: &S,
    settings: &TimelineSettings,
    sink: &mut impl EventSink,
    progress: &mut dyn FnMut(u64, u64),
) -> Summary {
    let mut timeline = Timeline::new(source, settings);
    let mut facts = source.facts();
    let mut until_progress = PROGRESS_INTERVAL;
    while let Some(record) = facts.next() {
        timeline.record(&record, sink);
        until_progress -= 1;
        if until_progress == 0 {
            until_progress = PROGRESS_INTERVAL;
            let (done, total) = facts.progress();
            progress(done, total);
        }
    }
    let (done, total) = facts.progress();
    progress(done, total);
    timeline.finish(source.end_monotonic_ns(), sink)
}

/// What an event takes over from its record.
#[derive(Clone, Copy)]
struct Origin {
    thread_id: u32,
    native_stack: StackId,
    python_stack: StackId,
}

/// What else an allocation says about its block: the name it is freed by and its stream, zero if there is none.
#[derive(Clone, Copy, Default)]
struct Names {
    handle: u64,
    stream: u32,
}

/// How a block ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockEnd {
    /// It was freed while recording was on.
    Recorded,
    /// It was freed while recording was not on, or replaced without a free.
    Unrecorded,
    /// Nobody freed it.
    WithProcess,
}

/// Whole-card memory as last sampled.
#[derive(Clone, Copy)]
struct CardState {
    used_bytes: u64,
    process_bytes: u64,
    total_bytes: u64,
}

/// The state of a pass.
pub struct Timeline<'s> {
    settings: &'s TimelineSettings,
    /// What is shown now.
    filter: &'s EventFilter,
    /// Settings of the process met so far.
    settings_met: usize,
    device_map: DeviceMap,
    /// Ids of domain names that mean "no domain".
    default_domains: Vec<StringId>,
    clock: OutputClock,
    blocks: BlockTable,
    pools: PoolBook,
    steps: StepTracker,
    python_calls: PythonCallTracker,
    places: Places,
    kernels: KernelTracker,
    cards: FxHashMap<Device, CardState>,
    refusals: Refusals,
    state: Option<RecordingState>,
    /// Whether a thread ever entered a labelled region.
    saw_regions: bool,
    summary: Summary,
}

impl<'s> Timeline<'s> {
    /// A pass at its start.
    pub fn new<S: FactSource>(source: &S, settings: &'s TimelineSettings) -> Self {
        let mut timeline = Self {
            settings,
            filter: &settings.filter,
            settings_met: 0,
            device_map: DeviceMap::default(),
            default_domains: Vec::new(),
            clock: OutputClock::new(source.wall_offset_ns()),
            blocks: BlockTable::default(),
            pools: PoolBook::new(),
            steps: StepTracker::new(settings.step_source),
            python_calls: PythonCallTracker::default(),
            places: Places::default(),
            kernels: KernelTracker::default(),
            cards: FxHashMap::default(),
            refusals: Refusals::default(),
            state: None,
            saw_regions: false,
            summary: Summary { process_id: source.process_id(), ..Summary::default() },
        };
        timeline.learn(source.definitions());
        timeline
    }

    /// Takes in what has been defined, before the facts that may refer to it.
    pub fn learn(&mut self, definitions: &Definitions) {
        self.device_map = definitions.device_map().map(DeviceMap::parse).unwrap_or_default();
        self.default_domains = definitions.string_ids_where(|text| is_default_domain(Some(text)));
        self.refusals.learn(definitions);
    }

    /// Takes in one fact.
    #[inline]
    pub fn record(&mut self, record: &Record<'_>, sink: &mut impl EventSink) {
        self.summary.facts += 1;
        let time = record.monotonic_ns;
        let origin = Origin {
            thread_id: record.thread_id,
            native_stack: record.native_stack,
            python_stack: record.python_stack,
        };
        match record.fact {
            Fact::Allocation { properties, address, size_bytes } => {
                self.allocation(time, origin, properties, (address, size_bytes), Names::default(), sink);
            }
            Fact::AllocationWithHandle { properties, address, size_bytes, handle } => {
                let names = Names { handle, ..Names::default() };
                self.allocation(time, origin, properties, (address, size_bytes), names, sink);
            }
            Fact::AllocationOnStream { properties, address, size_bytes, stream } => {
                let names = Names { stream, ..Names::default() };
                self.allocation(time, origin, properties, (address, size_bytes), names, sink);
            }
            Fact::Free { properties, address } => {
                let properties = self.with_physical_device(properties);
                let found = self.blocks.take(AddressSpace::of(&properties), properties.device, address);
                self.free(time, origin, properties.pool, found, sink);
            }
            Fact::FreeByHandle { properties, handle } => {
                let key = self.blocks.find_handle(properties.pool, handle);
                let found = key.and_then(|key| self.blocks.remove(key).map(|block| (key, block)));
                self.free(time, origin, properties.pool, found, sink);
            }
            Fact::HeapRegistered { properties, address, size_bytes } => {
                let properties = self.with_physical_device(properties);
                self.pools.heap_registered(properties.pool, properties.device, address, size_bytes);
            }
            Fact::HeapUnregistered { properties, address } => {
                let known = self.pools.heap_unregistered(properties.pool, address);
                self.summary.unknown_heaps += u64::from(!known);
            }
            Fact::Recording { state } => self.recording(time, origin, state, sink),
            Fact::LabelPush { level, label } => {
                self.saw_regions = true;
                self.about_blocks(time, origin, EventKind::Label(LabelChange::Push { level, label }), sink);
            }
            Fact::LabelPop { level, label } => {
                self.about_blocks(time, origin, EventKind::Label(LabelChange::Pop { level, label }), sink)
            }
            Fact::LabelAddress { address, level, label } => {
                let change = match self.framework_block(address) {
                    Some((allocation_id, slot)) => LabelChange::Block { allocation_id, slot, level, label },
                    None => LabelChange::NoBlock { level },
                };
                self.about_blocks(time, origin, EventKind::Label(change), sink);
            }
            Fact::Holder { address, path } => {
                if let Some((allocation_id, slot)) = self.framework_block(address) {
                    self.about_blocks(time, origin, EventKind::Holder { allocation_id, slot, path }, sink);
                }
            }
            _ => self.other_fact(time, origin, &record.fact, sink),
        }
    }

    /// Allocation and slot of a framework's live block. Whoever means a part of a tensor names an address inside it.
    fn framework_block(&mut self, address: u64) -> Option<(u64, u32)> {
        let (_, slot) = [AddressSpace::PytorchCaching, AddressSpace::Mindspore]
            .into_iter()
            .find_map(|space| self.blocks.find_holding(space, Device::Unknown, address))?;
        Some((self.blocks.get(slot).allocation_id, slot))
    }

    /// Labels and holders are for who follows blocks; they neither are filtered nor count as events.
    fn about_blocks(&mut self, time: u64, origin: Origin, kind: EventKind, sink: &mut impl EventSink) {
        let Origin { thread_id, native_stack, python_stack } = origin;
        sink.take(TimelineEvent {
            timestamp_ns: self.clock.plain(time),
            thread_id,
            device: Device::Unknown,
            step: self.steps.step_of(Device::Unknown),
            native_stack,
            python_stack,
            kind,
        });
    }

    /// Facts that are neither allocation nor free.
    fn other_fact(&mut self, time: u64, origin: Origin, fact: &Fact<'_>, sink: &mut impl EventSink) {
        let (device, kind) = match *fact {
            Fact::Access { .. } => return self.access(time, origin, fact, sink),
            Fact::Kernel { .. } => return self.kernel(time, origin, fact, sink),
            Fact::KernelCaptured { device, name, stream_id, task_id } => {
                let kernel = Kernel { name, stream_id, task_number: task_id, is_of_graph: true };
                return self.kernels.captured(device, kernel);
            }
            Fact::ProcessInfo { key: ProcessInfoKey::Settings, .. } => return self.settings_changed(),
            Fact::RangeBegin { domain, device, range_id, message } => {
                let device = self.device_map.physical(device);
                let in_default_domain = !domain.is_some() || self.default_domains.contains(&domain);
                if message == STEP_RANGE_MESSAGE && in_default_domain {
                    self.steps.range_begins(device, range_id);
                }
                let is_step = self.steps.step_of_range(range_id).is_some();
                (device, EventKind::RangeBegin { domain, range_id, message: text(message), is_step })
            }
            Fact::RangeEnd { domain, device, range_id } => {
                let device = self.device_map.physical(device);
                let step = self.steps.step_of_range(range_id).unwrap_or_else(|| self.steps.step_of(device));
                self.steps.range_ends(range_id);
                return self.emit_in_step(time, origin, device, step, EventKind::RangeEnd { domain, range_id }, sink);
            }
            Fact::Step { device, number } => {
                let device = self.device_map.physical(device);
                let step = self.steps.step_ended(device, number);
                return self.emit_in_step(time, origin, device, step, EventKind::StepEnd { number }, sink);
            }
            Fact::LoopTurn { kind, device, loop_id } => {
                let Some(number) = self.steps.loop_turned(kind, loop_id) else { return };
                let device = self.device_map.physical(device);
                return self.emit_in_step(time, origin, device, number, EventKind::StepEnd { number }, sink);
            }
            Fact::OperatorBegin { device, name, .. } => {
                // The operator that starts a round belongs to it already.
                if let Some(number) = self.steps.operator_begins(origin.thread_id, name) {
                    let device = self.device_map.physical(device);
                    self.emit_in_step(time, origin, device, number, EventKind::StepEnd { number }, sink);
                }
                match self.plain_kind(time, origin.thread_id, fact) {
                    Some(device_and_kind) => device_and_kind,
                    None => return,
                }
            }
            Fact::System { event, result, .. } => match event {
                SystemEvent::AclInit => (Device::Unknown, EventKind::AclInit { result }),
                SystemEvent::AclFinalize => (Device::Unknown, EventKind::AclFinalize { result }),
                _ => return,
            },
            Fact::PythonCall { phase, code, name } => {
                let wall_ns = self.clock.wall_ns(time);
                match self.python_calls.take(origin.thread_id, wall_ns, phase, code, name) {
                    Some(span) => (Device::Unknown, EventKind::PythonCall(span)),
                    None => return,
                }
            }
            Fact::CardSample { device, used_bytes, process_bytes, total_bytes } => {
                self.cards.insert(device, CardState { used_bytes, process_bytes, total_bytes });
                (device, EventKind::CardSample { used_bytes, process_bytes, total_bytes })
            }
            Fact::AllocationFailed { properties, size_bytes, flag, error } => {
                self.summary.failed_allocations += 1;
                let BlockProperties { interface, device, .. } = self.with_physical_device(properties);
                let kind = EventKind::AllocationFailed { interface, size_bytes, flag, error };
                let step = self.steps.step_of(device);
                self.emit_in_step(time, origin, device, step, kind, sink);
                match self.snapshot_at_refusal(device, origin) {
                    Some(numbers) => (device, EventKind::SnapshotAtRefusal { numbers: Box::new(numbers) }),
                    None => return,
                }
            }
            Fact::PoolSegment { segment, .. } => return self.refusals.segment(origin.thread_id, segment),
            Fact::PoolRefusal { device, refusal } => {
                let device = self.device_map.physical(device);
                let Origin { thread_id, native_stack, python_stack } = origin;
                let (native_stack, python_stack) =
                    self.refusals.stacks_at_end(thread_id, device, (native_stack, python_stack));
                let origin = Origin { thread_id, native_stack, python_stack };
                let kind = EventKind::PoolGaveUp(Box::new(self.refusals.gave_up(thread_id, refusal)));
                return self.emit_in_step(time, origin, device, self.steps.step_of(device), kind, sink);
            }
            Fact::Snapshot { device, name, numbers } => {
                let device = self.device_map.physical(device);
                let Origin { thread_id, native_stack, python_stack } = origin;
                let (is_repeated, (native_stack, python_stack)) =
                    self.refusals.snapshot(name, thread_id, device, (native_stack, python_stack));
                let origin = Origin { thread_id, native_stack, python_stack };
                let kind = EventKind::Snapshot { name, numbers: Box::new(numbers), is_repeated };
                return self.emit_in_step(time, origin, device, self.steps.step_of(device), kind, sink);
            }
            Fact::FreeFailed { properties, address, error } => {
                self.summary.failed_frees += 1;
                let interface = properties.interface;
                (properties.device, EventKind::FreeFailed { interface, address, error })
            }
            _ => match self.plain_kind(time, origin.thread_id, fact) {
                Some(device_and_kind) => device_and_kind,
                None => return,
            },
        };
        let step = self.steps.step_of(device);
        self.emit_in_step(time, origin, device, step, kind, sink);
    }

    /// The host launches a kernel or runs one of ATB, or a card starts or ends a task. The runtime and the cards give
    /// physical numbers of devices.
    fn kernel(&mut self, time: u64, origin: Origin, fact: &Fact<'_>, sink: &mut impl EventSink) {
        let Fact::Kernel { phase, device, name, stream_id, task_id, detail } = *fact else { return };
        let mut emit = |this: &mut Self, moment, origin, phase, device, kernel: Kernel| {
            let Kernel { name, stream_id, is_of_graph, .. } = kernel;
            let (at_ns, task_id) = (this.clock.wall_ns(moment), kernel.task_id());
            let kind = EventKind::Kernel { phase, at_ns, name, stream_id, task_id, is_of_graph, detail, place: None };
            this.emit_in_step(time, origin, device, this.steps.step_of(device), kind, sink);
        };
        let told = Kernel { name, stream_id, task_number: task_id, is_of_graph: false };
        match phase {
            KernelPhase::Launch => {
                self.summary.kernels_launched += 1;
                let early = self.kernels.launch(time, device, told);
                emit(self, time, origin, phase, device, told);
                if let Some(Early { start, end, thread_id }) = early {
                    // Told in the order it must have been, with the times that the card has said.
                    let card = Origin { thread_id, native_stack: StackId::NONE, python_stack: StackId::NONE };
                    emit(self, start, card, KernelPhase::ExecuteStart, device, told);
                    if let Some(end) = end {
                        self.summary.kernels_ended += 1;
                        emit(self, end, card, KernelPhase::ExecuteEnd, device, told);
                    }
                }
            }
            KernelPhase::ExecuteStart => {
                let known = self.kernels.start(time, device, stream_id, task_id, origin.thread_id);
                if let Some(kernel) = if name.is_some() { Some(told) } else { known } {
                    emit(self, time, origin, phase, device, kernel);
                }
            }
            KernelPhase::ExecuteEnd => {
                let known = self.kernels.end(time, device, stream_id, task_id);
                if let Some(kernel) = if name.is_some() { Some(told) } else { known } {
                    self.summary.kernels_ended += 1;
                    emit(self, time, origin, phase, device, kernel);
                }
            }
            _ => {
                let device = self.device_map.physical(device);
                emit(self, time, origin, phase, device, told);
            }
        }
    }

    /// What a framework held when the driver refused memory to this thread, unless it has refused some already and
    /// given none since.
    fn snapshot_at_refusal(&mut self, device: Device, origin: Origin) -> Option<SnapshotNumbers> {
        let frameworks = [Pool::PytorchCaching, Pool::Mindspore];
        let pool = frameworks.into_iter().find(|pool| self.pools.state(*pool, device).total_bytes() > 0)?;
        let stacks = (origin.native_stack, origin.python_stack);
        if !self.refusals.refused(origin.thread_id, device, stacks) {
            return None;
        }
        let mut numbers = self.pools.state(pool, device).snapshot();
        if let Some(card) = self.cards.get(&device) {
            numbers.total_bytes = card.total_bytes;
            numbers.free_bytes = card.total_bytes.saturating_sub(card.used_bytes);
        }
        Some(numbers)
    }

    /// The first settings of a process are those it begins with.
    fn settings_changed(&mut self) {
        if let Some(filter) = self.settings_met.checked_sub(1).and_then(|later| self.settings.later_filters.get(later))
        {
            self.filter = filter;
        }
        self.settings_met += 1;
    }

    /// Facts that become events without changing anything.
    fn plain_kind(&mut self, time: u64, thread_id: u32, fact: &Fact<'_>) -> Option<(Device, EventKind)> {
        let (device, kind) = match *fact {
            Fact::OperatorBegin { framework, device, name, detail } => {
                let is_on_card = framework == Framework::Aten && matches!(device, Device::Npu(_));
                self.summary.pytorch_operators += u64::from(is_on_card);
                (device, EventKind::Operator { framework, begins: true, name, detail, place: None })
            }
            Fact::OperatorEnd { framework, device, name, detail } => {
                let place = if framework == Framework::Atb { self.places.end(thread_id, name) } else { None };
                (device, EventKind::Operator { framework, begins: false, name, detail, place })
            }
            Fact::PlacedOperatorBegin { framework, device, name, workspace_address, workspace_bytes, path } => {
                let workspace = Some((workspace_address, workspace_bytes));
                let place = Arc::new(OperatorPlace { path: text(path), workspace });
                self.places.begin(thread_id, name, &place);
                let (detail, place) = (StringId::NONE, Some(place));
                (device, EventKind::Operator { framework, begins: true, name, detail, place })
            }
            Fact::PlacedKernel { phase, device, name, path } => {
                let place = Some(Arc::new(OperatorPlace { path: text(path), workspace: None }));
                let kind = EventKind::Kernel {
                    phase,
                    at_ns: self.clock.wall_ns(time),
                    name,
                    stream_id: 0,
                    task_id: 0,
                    is_of_graph: false,
                    detail: StringId::NONE,
                    place,
                };
                (device, kind)
            }
            Fact::Mark { domain, device, message } => (device, EventKind::Mark { domain, message: text(message) }),
            Fact::PreparedWork { phase, address } => (Device::Unknown, EventKind::Work { phase, address }),
            Fact::Autograd { phase, device } => (device, EventKind::Autograd { phase }),
            Fact::ModuleBegin { name } => (Device::Unknown, EventKind::Module { begins: true, name }),
            Fact::ModuleEnd { name } => (Device::Unknown, EventKind::Module { begins: false, name }),
            Fact::Watch { name, operator, output_position, after, address, size_bytes, content_hash, detail } => {
                let device = WatchDetail::from_text(detail).device;
                let detail = detail.into();
                let observation = WatchObservation {
                    name,
                    operator,
                    output_position,
                    after,
                    address,
                    size_bytes,
                    content_hash,
                    detail,
                };
                (device, EventKind::Watch(Box::new(observation)))
            }
            Fact::Message { severity, text: message } => {
                (Device::Unknown, EventKind::Message { severity, text: text(message) })
            }
            Fact::Unknown { .. } => {
                self.summary.unknown_facts += 1;
                return None;
            }
            _ => return None,
        };
        Some((self.device_map.physical(device), kind))
    }

    /// Driver facts carry physical ids already; everybody else counts through the device map.
    #[inline]
    fn with_physical_device(&self, mut properties: BlockProperties) -> BlockProperties {
        if properties.pool != Pool::Hal {
            properties.device = self.device_map.physical(properties.device);
        }
        properties
    }

    fn is_recording(&self) -> bool {
        matches!(self.state, None | Some(RecordingState::On))
    }

    #[inline]
    fn allocation(
        &mut self,
        time: u64,
        origin: Origin,
        properties: BlockProperties,
        (address, size_bytes): (u64, u64),
        Names { handle, stream }: Names,
        sink: &mut impl EventSink,
    ) {
        let properties = self.with_physical_device(properties);
        if properties.pool == Pool::Atb && !self.pools.has_heap(Pool::Atb, properties.device) {
            self.summary.regions_without_heap += 1;
            return;
        }
        let key = BlockKey::new(AddressSpace::of(&properties), properties.device, address);
        while let Some((key, residual)) = self.blocks.take_replaced(key, &properties) {
            self.end_block(time, None, key, residual, true, sink);
        }
        if properties.pool == Pool::Hal {
            self.refusals.granted(origin.thread_id);
        }
        self.summary.allocation_ids += 1;
        let recording = self.is_recording();
        let latest_ns = if recording { self.clock.block_begin(time, key) } else { 0 };
        if recording {
            self.pools.state(properties.pool, properties.device).block_begins(size_bytes, latest_ns);
        }
        let mut block = Block {
            allocation_id: self.summary.allocation_ids,
            size_bytes,
            properties,
            thread_id: origin.thread_id,
            latest_ns,
            handle,
            stream,
            in_shadow: !recording,
            free_is_wanted: false,
            slot: self.blocks.next_slot(),
        };
        if recording {
            block.free_is_wanted = self.emit_malloc(origin, address, &block, false, sink);
        } else if self.saw_regions && properties.pool != Pool::HostTensor {
            let Block { allocation_id, slot, .. } = block;
            let change = LabelChange::ShadowBlock { allocation_id, slot };
            self.about_blocks(time, origin, EventKind::Label(change), sink);
        }
        self.blocks.insert(key, block);
    }

    fn block_event(&mut self, address: u64, block: &Block, shadow: bool) -> BlockEvent {
        let BlockProperties { pool, device, .. } = block.properties;
        let card = match self.cards.is_empty() {
            true => None,
            false => self
                .cards
                .get(&device)
                .map(|card| CardUse { process_bytes: card.process_bytes, device_bytes: card.used_bytes }),
        };
        let state = self.pools.state(pool, device);
        BlockEvent {
            allocation_id: block.allocation_id,
            slot: block.slot,
            address,
            size_bytes: block.size_bytes,
            properties: block.properties,
            used_bytes: state.used_bytes(),
            total_bytes: state.total_bytes(),
            card,
            shadow,
            alive_at_process_end: false,
            stream: block.stream,
        }
    }

    /// Emits the MALLOC of a block at its latest time. Returns whether the filters want to see its FREE, whatever
    /// they are by then.
    #[inline]
    fn emit_malloc(
        &mut self,
        origin: Origin,
        address: u64,
        block: &Block,
        shadow: bool,
        sink: &mut impl EventSink,
    ) -> bool {
        let device = block.properties.device;
        let step = self.steps.step_of(device);
        let event = self.block_event(address, block, shadow);
        let passes = self.passes(device, step);
        let shown = self.filter.kinds.allocations && passes;
        self.deliver(shown, block.latest_ns, origin, device, step, EventKind::Malloc(event), sink);
        self.filter.kinds.frees && passes
    }

    #[inline]
    fn free(
        &mut self,
        time: u64,
        origin: Origin,
        pool: Pool,
        found: Option<(BlockKey, Block)>,
        sink: &mut impl EventSink,
    ) {
        match found {
            Some((key, block)) => self.end_block(time, Some(origin), key, block, false, sink),
            None => self.summary.count_unknown_free(pool),
        }
    }

    /// Ends a block that is no longer in the table. Without an origin nobody freed it.
    fn end_block(
        &mut self,
        time: u64,
        origin: Option<Origin>,
        key: BlockKey,
        block: Block,
        residual: bool,
        sink: &mut impl EventSink,
    ) {
        if block.in_shadow {
            self.summary.shadow_only_blocks += 1;
            return;
        }
        let BlockProperties { pool, device, .. } = block.properties;
        self.pools.state(pool, device).block_ends(block.size_bytes, residual);
        let end = if origin.is_some() && self.is_recording() { BlockEnd::Recorded } else { BlockEnd::Unrecorded };
        let timestamp_ns = self.clock.block_end(time, block.latest_ns, key);
        self.emit_free(timestamp_ns, origin, key, &block, end, sink);
    }

    fn emit_free(
        &mut self,
        timestamp_ns: u64,
        origin: Option<Origin>,
        key: BlockKey,
        block: &Block,
        end: BlockEnd,
        sink: &mut impl EventSink,
    ) {
        let origin = origin.unwrap_or(Origin {
            thread_id: block.thread_id,
            native_stack: StackId::NONE,
            python_stack: StackId::NONE,
        });
        let device = block.properties.device;
        let step = self.steps.step_of(device);
        let mut event = self.block_event(key.address(), block, end != BlockEnd::Recorded);
        event.alive_at_process_end = end == BlockEnd::WithProcess;
        let shown = block.free_is_wanted || (self.filter.kinds.frees && self.passes(device, step));
        self.deliver(shown, timestamp_ns, origin, device, step, EventKind::Free(event), sink);
    }

    fn access(&mut self, time: u64, origin: Origin, fact: &Fact<'_>, sink: &mut impl EventSink) {
        let Fact::Access {
            kind,
            framework,
            device,
            operator,
            address,
            size_bytes,
            element_type,
            shape,
            format,
            output_position,
        } = *fact
        else {
            return;
        };
        const DEVICE_SPACES: [AddressSpace; 6] = [
            AddressSpace::PytorchCaching,
            AddressSpace::PytorchWorkspace,
            AddressSpace::Mindspore,
            AddressSpace::Atb,
            AddressSpace::DriverAlloc,
            AddressSpace::HostTensor,
        ];
        let device = self.device_map.physical(device);
        let preferred = (framework == msmemscope_event::Framework::Atb).then_some(AddressSpace::Atb);
        let key = preferred
            .into_iter()
            .chain(DEVICE_SPACES)
            .find_map(|space| self.blocks.find_holding(space, device, address));
        let (timestamp_ns, allocation_id, slot, block_address) = match key {
            Some((key, slot)) => {
                let block = self.blocks.get_mut(slot);
                block.latest_ns = self.clock.block_next(time, block.latest_ns);
                (block.latest_ns, block.allocation_id, slot, key.address())
            }
            None => {
                self.summary.unknown_accesses += 1;
                (self.clock.plain(time), 0, 0, address)
            }
        };
        let event = EventKind::Access {
            kind,
            framework,
            allocation_id,
            slot,
            block_address,
            address,
            size_bytes,
            operator,
            element_type,
            shape,
            format,
            output_position,
        };
        let step = self.steps.step_of(device);
        let shown = self.filter.kinds.accesses && self.passes(device, step);
        self.deliver(shown, timestamp_ns, origin, device, step, event, sink);
    }

    fn recording(&mut self, time: u64, origin: Origin, state: RecordingState, sink: &mut impl EventSink) {
        let previous = self.state.replace(state);
        let is_on = state == RecordingState::On;
        self.pools.recording(is_on);
        if is_on == (previous == Some(RecordingState::On)) {
            return;
        }
        if !is_on {
            return self.emit_plain(time, origin, EventKind::StopTrace, sink);
        }
        let first_card = self.cards.get(&Device::Npu(0));
        let card = first_card.map(|card| (card.total_bytes.saturating_sub(card.used_bytes), card.total_bytes));
        self.emit_plain(time, origin, EventKind::StartTrace { card }, sink);
        // All are in use at the start, so all count before the first is told.
        let promoted = self.blocks.keys_where(|block| block.in_shadow);
        for &key in &promoted {
            let Some(slot) = self.blocks.slot(key) else { continue };
            let timestamp_ns = self.clock.block_begin(time, key);
            let block = self.blocks.get_mut(slot);
            block.in_shadow = false;
            block.latest_ns = timestamp_ns;
            let BlockProperties { pool, device, .. } = block.properties;
            self.pools.state(pool, device).block_begins(block.size_bytes, timestamp_ns);
        }
        for key in promoted {
            let Some(slot) = self.blocks.slot(key) else { continue };
            let block = *self.blocks.get(slot);
            let origin =
                Origin { thread_id: block.thread_id, native_stack: StackId::NONE, python_stack: StackId::NONE };
            let free_is_wanted = self.emit_malloc(origin, key.address(), &block, true, sink);
            self.blocks.get_mut(slot).free_is_wanted = free_is_wanted;
        }
    }

    /// Ends the pass: closes what is open if the process has ended, and gives the numbers.
    pub fn finish(mut self, end_monotonic_ns: u64, sink: &mut impl EventSink) -> Summary {
        let live = self.blocks.keys_where(|block| !block.in_shadow);
        self.summary.live_blocks = live.len() as u64;
        if self.settings.process_ended {
            // Files have a row for each of these ends, but nothing happened there.
            let happened = (self.summary.events_shown, self.summary.events_hidden);
            for key in live {
                let Some(block) = self.blocks.remove(key) else { continue };
                let timestamp_ns = self.clock.block_next(end_monotonic_ns, block.latest_ns);
                self.emit_free(timestamp_ns, None, key, &block, BlockEnd::WithProcess, sink);
            }
            (self.summary.events_shown, self.summary.events_hidden) = happened;
        }
        for (thread_id, span) in self.python_calls.end_all(self.clock.wall_ns(end_monotonic_ns)) {
            let origin = Origin { thread_id, native_stack: StackId::NONE, python_stack: StackId::NONE };
            self.emit_plain(end_monotonic_ns, origin, EventKind::PythonCall(span), sink);
        }
        let (steps, nested_steps, steps_of_other_source) = self.steps.counts();
        self.summary.steps = steps;
        self.summary.latest_step = self.steps.latest();
        self.summary.nested_steps = nested_steps;
        self.summary.steps_of_other_source = steps_of_other_source;
        self.summary.unmatched_python_ends = self.python_calls.unmatched_ends();
        self.summary.unknown_frees.sort_unstable();
        self.summary.pools = self.pools.into_summaries();
        self.summary
    }

    #[inline]
    fn passes(&self, device: Device, step: u64) -> bool {
        let in_step = self.settings.steps.is_empty() || self.settings.steps.contains(&step);
        in_step && self.filter.devices.includes(device)
    }

    fn emit_plain(&mut self, time: u64, origin: Origin, kind: EventKind, sink: &mut impl EventSink) {
        let step = self.steps.step_of(Device::Unknown);
        self.emit_in_step(time, origin, Device::Unknown, step, kind, sink);
    }

    fn emit_in_step(
        &mut self,
        time: u64,
        origin: Origin,
        device: Device,
        step: u64,
        kind: EventKind,
        sink: &mut impl EventSink,
    ) {
        let wanted = match kind {
            EventKind::Operator { .. } | EventKind::Kernel { .. } => self.filter.kinds.launches,
            _ => true,
        };
        let timestamp_ns = self.clock.plain(time);
        let shown = wanted && self.passes(device, step);
        self.deliver(shown, timestamp_ns, origin, device, step, kind, sink);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one event")]
    #[inline]
    fn deliver(
        &mut self,
        shown: bool,
        timestamp_ns: u64,
        origin: Origin,
        device: Device,
        step: u64,
        kind: EventKind,
        sink: &mut impl EventSink,
    ) {
        if self.summary.first_timestamp_ns == 0 {
            self.summary.first_timestamp_ns = timestamp_ns;
        }
        self.summary.last_timestamp_ns = timestamp_ns;
        if !shown {
            self.summary.events_hidden += 1;
            return;
        }
        self.summary.events_shown += 1;
        let Origin { thread_id, native_stack, python_stack } = origin;
        sink.take(TimelineEvent { timestamp_ns, thread_id, device, step, native_stack, python_stack, kind });
    }
}

fn text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}
