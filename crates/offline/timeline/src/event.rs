//! What the timeline says: events whose block, pool, device, step and time are settled.

use std::sync::Arc;

use msmemscope_event::{
    AccessKind, AllocationInterface, AutogradPhase, BlockProperties, CodeId, Device, Framework, KernelPhase, Pool,
    PoolRefusal, PoolSegment, Severity, SnapshotNumbers, StackId, StringId, WorkPhase,
};

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineEvent {
    /// Wall clock nanoseconds. Never decreases from event to event; events of one block strictly
    /// increase, also across the end of a block and the start of the next one at its address.
    pub timestamp_ns: u64,
    /// Thread that recorded it.
    pub thread_id: u32,
    /// Physical device.
    pub device: Device,
    /// Step it belongs to, zero if none.
    pub step: u64,
    /// Native call stack, if one was taken.
    pub native_stack: StackId,
    /// Python call stack, if one was taken.
    pub python_stack: StackId,
    /// What happened.
    pub kind: EventKind,
}

/// Where in its graph an operator or kernel is, and what it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorPlace {
    /// Its path, as the framework says it.
    pub path: Box<str>,
    /// Address and size of scratch memory; nothing for kernels.
    pub workspace: Option<(u64, u64)>,
}

/// What an allocation or free says about its block and pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockEvent {
    /// Number of the allocation in its process, from one.
    pub allocation_id: u64,
    /// A small number that no other live block has; used again after its end.
    pub slot: u32,
    /// First byte, or the handle of physical memory.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Kind of memory; the device is the physical one.
    pub properties: BlockProperties,
    /// Bytes in use in the pool on this device after the event.
    pub used_bytes: u64,
    /// Bytes the pool holds on this device, as far as it said.
    pub total_bytes: u64,
    /// Bytes of this process and of all processes on the card when it was last sampled.
    pub card: Option<CardUse>,
    /// True if this was not observed while recording: the block was alive before the start, ended
    /// while recording was stopped, was alive at the process end, or was replaced without a free.
    pub shadow: bool,
    /// True for the end of a block that nobody freed before the process ended.
    pub alive_at_process_end: bool,
    /// The stream of the card that it was allocated for, as the framework counts them; zero if it is the default one or
    /// nobody said.
    pub stream: u32,
}

/// Use of a card as last sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardUse {
    /// Bytes of this process.
    pub process_bytes: u64,
    /// Bytes of all processes.
    pub device_bytes: u64,
}

/// A completed Python call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonSpan {
    /// Code object, for Python functions.
    pub code: CodeId,
    /// Name, for C functions and user regions.
    pub name: StringId,
    /// When it began, wall clock.
    pub start_ns: u64,
    /// When it ended, wall clock; always later, and earlier than the start of the next sibling.
    pub end_ns: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// A block came into being.
    Malloc(BlockEvent),
    /// A block ended.
    Free(BlockEvent),
    /// An operator touched memory.
    Access {
        /// Read or write.
        kind: AccessKind,
        /// Whose operator.
        framework: Framework,
        /// Allocation of the block, zero if no live block holds the address.
        allocation_id: u64,
        /// Slot of the block, if one holds the address.
        slot: u32,
        /// First byte of the block, or the address itself if no block holds it.
        block_address: u64,
        /// First byte touched.
        address: u64,
        /// Bytes touched.
        size_bytes: u64,
        /// Operator name.
        operator: StringId,
        /// Element type.
        element_type: StringId,
        /// Shape.
        shape: StringId,
        /// Memory format, or none.
        format: StringId,
        /// One-based position among the operator's outputs, or zero.
        output_position: u32,
    },
    /// An operator began or ended on the host.
    Operator {
        /// Whose operator.
        framework: Framework,
        /// True at its start.
        begins: bool,
        /// Operator name.
        name: StringId,
        /// Further attributes as `key:value,...`, or none.
        detail: StringId,
        /// Where in its graph it is, if it says so.
        place: Option<Arc<OperatorPlace>>,
    },
    /// Work of an operator, known by its address, is prepared or launched.
    Work {
        /// Which of them.
        phase: WorkPhase,
        /// What it is known by until it ends.
        address: u64,
    },
    /// A kernel was launched, began or ended.
    Kernel {
        /// Which of them.
        phase: KernelPhase,
        /// Wall clock nanoseconds of when it happened. The event comes later if a card had started a kernel, by the
        /// comparison of clocks, before its launch.
        at_ns: u64,
        /// Kernel name.
        name: StringId,
        /// Stream.
        stream_id: u32,
        /// Task within the stream.
        task_id: u32,
        /// Whether a card runs it with the graph it is part of, which may be long after its launch and again and again.
        is_of_graph: bool,
        /// Further attributes as `key:value,...`, or none.
        detail: StringId,
        /// Where in its operator it is, if it says so.
        place: Option<Arc<OperatorPlace>>,
    },
    /// A label of a region or a block, for who follows owners.
    Label(LabelChange),
    /// Who keeps a live block alive.
    Holder {
        /// The allocation of the block.
        allocation_id: u64,
        /// Its slot.
        slot: u32,
        /// The references that lead to it, outermost first, in words.
        path: StringId,
    },
    /// A point marked by the user.
    Mark {
        /// mstx domain, or none.
        domain: StringId,
        /// The user's text.
        message: Box<str>,
    },
    /// A range marked by the user begins.
    RangeBegin {
        /// mstx domain, or none.
        domain: StringId,
        /// Id under which it ends.
        range_id: u64,
        /// The user's text.
        message: Box<str>,
        /// Whether a step begins with it, as [`crate::steps`] decides.
        is_step: bool,
    },
    /// A range ends.
    RangeEnd {
        /// mstx domain, or none.
        domain: StringId,
        /// Id it began with.
        range_id: u64,
    },
    /// aclInit returned.
    AclInit {
        /// What it returned.
        result: i64,
    },
    /// aclFinalize returned.
    AclFinalize {
        /// What it returned.
        result: i64,
    },
    /// Recording began.
    StartTrace {
        /// Free and total bytes of the first card, if it was sampled.
        card: Option<(u64, u64)>,
    },
    /// Recording paused or ended.
    StopTrace,
    /// The user ended a step through the API.
    StepEnd {
        /// Its number.
        number: u64,
    },
    /// A phase of training starts.
    Autograd {
        /// Which.
        phase: AutogradPhase,
    },
    /// The thread calls a module, or returns from it.
    Module {
        /// Whether it calls.
        begins: bool,
        /// The module's path in the model.
        name: StringId,
    },
    /// Counters of a framework.
    Snapshot {
        /// Name given by the user.
        name: StringId,
        /// The counters.
        numbers: Box<SnapshotNumbers>,
        /// Taken when a framework gave up after refusals of the driver, of which the first has its own snapshot.
        is_repeated: bool,
    },
    /// What a framework held when the driver refused it memory, before it gave anything back. Nobody took it: all
    /// of it is known from the events before.
    SnapshotAtRefusal {
        /// The counters.
        numbers: Box<SnapshotNumbers>,
    },
    /// The pool of a framework has given up, and told how it looked.
    PoolGaveUp(Box<PoolGaveUp>),
    /// Memory of a whole card.
    CardSample {
        /// Bytes used by all processes.
        used_bytes: u64,
        /// Bytes used by this process.
        process_bytes: u64,
        /// Bytes of the card.
        total_bytes: u64,
    },
    /// The driver refused an allocation.
    AllocationFailed {
        /// The call.
        interface: AllocationInterface,
        /// Bytes asked for.
        size_bytes: u64,
        /// The raw flag word.
        flag: u64,
        /// What the driver returned (6 is out of memory).
        error: i64,
    },
    /// A block that was alive when memory ran out. A pass never says this; it is added to the events
    /// of a pass by who has looked at the failure.
    AliveAtFailure {
        /// Why it is listed.
        list: FailureList,
        /// Its pool.
        pool: Pool,
        /// First byte.
        address: u64,
        /// Bytes.
        size_bytes: u64,
        /// When it was allocated, wall clock.
        allocated_ns: u64,
    },
    /// The driver refused a free.
    FreeFailed {
        /// The call that made the block.
        interface: AllocationInterface,
        /// Address passed.
        address: u64,
        /// What the driver returned.
        error: i64,
    },
    /// A watched block was looked at.
    Watch(Box<WatchObservation>),
    /// A Python call ended (the event's time is that of its end).
    PythonCall(PythonSpan),
    /// A message of the recorder.
    Message {
        /// How important.
        severity: Severity,
        /// The text.
        text: Box<str>,
    },
}

/// The last words of a framework's pool that could not give what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolGaveUp {
    /// What it was asked for, and what there was.
    pub refusal: PoolRefusal,
    /// All of its segments, or none if some were not recorded.
    pub segments: Vec<PoolSegment>,
}

/// What happened to a label; levels are those of [`crate::owner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelChange {
    /// The thread enters a region.
    Push {
        /// Level.
        level: u32,
        /// Text.
        label: StringId,
    },
    /// The thread leaves a region.
    Pop {
        /// Level.
        level: u32,
        /// Text.
        label: StringId,
    },
    /// A block came into being while recording was not on; the labels of its thread are its own.
    ShadowBlock {
        /// Its allocation.
        allocation_id: u64,
        /// Its slot.
        slot: u32,
    },
    /// A label was given to an address that no live block of a framework holds.
    NoBlock {
        /// Level.
        level: u32,
    },
    /// A live block gets a label.
    Block {
        /// Its allocation.
        allocation_id: u64,
        /// Its slot.
        slot: u32,
        /// Level.
        level: u32,
        /// Text.
        label: StringId,
    },
}

/// Lists of blocks that were alive when memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureList {
    /// The latest allocations.
    Recent,
    /// The largest blocks.
    Largest,
}

/// What was seen of a watched block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchObservation {
    /// Name of the watched block.
    pub name: StringId,
    /// Operator or kernel beside which it was looked at.
    pub operator: StringId,
    /// Position among the operator's outputs.
    pub output_position: u32,
    /// True after the operator, false before it.
    pub after: bool,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Strong hash of the contents.
    pub content_hash: u64,
    /// Further data as recorded.
    pub detail: Box<[u8]>,
}
