//! The facts a recording consists of. The trace crate says how each is stored.

use crate::block::coded_enum;
use crate::{BlockProperties, CodeId, Device, ModuleId, Pool, StackId, StringId};

/// The call by which a job limits PyTorch's pool on a device.
pub const MEMORY_FRACTION: &str = "set_per_process_memory_fraction";

/// Message of a range that is a step.
pub const STEP_RANGE_MESSAGE: &[u8] = b"step start";

coded_enum! {
    /// How an operator touched memory.
    AccessKind {
        /// Not known whether read or written.
        Unknown = 0,
        /// Read only.
        Read = 1,
        /// Written.
        Write = 2,
    } else Unknown
}

coded_enum! {
    /// Which framework's operator.
    Framework {
        /// PyTorch ATen.
        Aten = 0,
        /// Ascend Transformer Boost.
        Atb = 1,
        /// A framework this version does not know.
        Other = 2,
    } else Other
}

coded_enum! {
    /// Where work is that an operator has prepared for the device.
    WorkPhase {
        /// The thread that runs the operator has prepared it.
        Prepared = 0,
        /// A thread, perhaps another one, starts to launch it.
        Begins = 1,
        /// It is launched, and its address is free for other work.
        Ends = 2,
        /// A phase this version does not know.
        Other = 3,
    } else Other
}

coded_enum! {
    /// Where in its life a kernel is.
    KernelPhase {
        /// Submitted by the host.
        Launch = 0,
        /// Began on the device.
        ExecuteStart = 1,
        /// Ended on the device.
        ExecuteEnd = 2,
        /// Host side start of an ATB kernel.
        Start = 3,
        /// Host side end of an ATB kernel.
        End = 4,
        /// A phase this version does not know.
        Other = 5,
    } else Other
}

coded_enum! {
    /// Events of the runtime itself.
    SystemEvent {
        /// aclInit returned.
        AclInit = 0,
        /// aclFinalize returned.
        AclFinalize = 1,
        /// aclrtSetDevice returned.
        SetDevice = 2,
        /// A shared object connected its mstx functions to the recorder.
        MstxInjection = 3,
        /// The process is about to exit in the normal way.
        ProcessExit = 4,
        /// An event this version does not know.
        Other = 5,
    } else Other
}

coded_enum! {
    /// A phase of training that starts.
    AutogradPhase {
        /// Forward pass.
        Forward = 0,
        /// Backward pass.
        Backward = 1,
        /// An optimizer's step.
        Optimizer = 2,
        /// None of them: the last one has ended.
        Other = 3,
    } else Other
}

coded_enum! {
    /// What turns once in every round of a job's own loop. Steps are found by it when nobody marks them.
    LoopKind {
        /// `step()` of a profiler: the user's own word for the end of a step.
        ProfilerStep = 0,
        /// The step of an optimizer that is not part of another one's.
        OptimizerStep = 1,
        /// A call of a module that is not part of another one's.
        ModuleCall = 2,
        /// A kind this version does not know.
        Other = 3,
        /// The end of a step in the words of a framework that has a loop of its own, such as a trainer or an engine.
        FrameworkStep = 4,
    } else Other
}

coded_enum! {
    /// What the recorder does with events.
    RecordingState {
        /// Nothing is recorded.
        Off = 0,
        /// Allocations and frees only, without stacks: what is alive before the start.
        Shadow = 1,
        /// Everything asked for.
        On = 2,
    } else Off
}

coded_enum! {
    /// Why events are missing.
    LossReason {
        /// The disk or quota was full.
        DiskFull = 0,
        /// The limit of the trace size was reached.
        SizeLimit = 1,
        /// The hook was entered again while it was writing (a signal handler).
        Reentered = 2,
        /// A text was longer than a record may be and was cut.
        TextCut = 3,
        /// The recorder switched itself off after an internal error.
        Internal = 4,
        /// The trace could not be created or extended (permissions, descriptors, memory).
        TraceUnavailable = 5,
        /// A stack was deeper than asked for and was cut.
        StackCut = 6,
        /// A stack could not be taken.
        StackMissing = 7,
        /// A framework message had a form the recorder does not understand.
        BadMessage = 8,
        /// More distinct texts, domains or threads than the recorder can hold.
        TableFull = 9,
        /// A reason this version does not know.
        Other = 10,
        /// More distinct stacks than the recorder can hold.
        StackTableFull = 11,
    } else Other
}

impl LossReason {
    /// One phrase for people.
    pub fn describe(self) -> &'static str {
        match self {
            LossReason::DiskFull => "events lost: disk full",
            LossReason::SizeLimit => "events lost: trace size limit reached",
            LossReason::Reentered => "events lost: memory call inside a signal handler",
            LossReason::TextCut => "texts cut to the longest storable length",
            LossReason::Internal => "events lost: recorder switched itself off",
            LossReason::TraceUnavailable => "events lost: trace file could not be written",
            LossReason::StackCut => "stacks were recorded to the depth that was asked for; they are deeper",
            LossReason::StackMissing => "stacks that could not be taken",
            LossReason::BadMessage => "framework messages not understood",
            LossReason::TableFull => "events lost: too many distinct names",
            LossReason::Other => "losses of a newer kind",
            LossReason::StackTableFull => "events whose stack is not known: too many distinct stacks",
        }
    }

    /// Whether whole events are missing, as opposed to details of events.
    pub fn loses_events(self) -> bool {
        !matches!(
            self,
            LossReason::TextCut | LossReason::StackCut | LossReason::StackMissing | LossReason::StackTableFull
        )
    }

    /// Whether what is not there is what the user did not ask for. Nothing is missing then.
    pub fn is_as_asked(self) -> bool {
        self == LossReason::StackCut
    }
}

coded_enum! {
    /// What a text about the process says.
    ProcessInfoKey {
        /// Arguments, separated by NUL bytes.
        CommandLine = 0,
        /// Path of the executable.
        Executable = 1,
        /// The settings the recorder was started with, as passed in the environment.
        Settings = 2,
        /// Working directory at the first event.
        WorkingDirectory = 3,
        /// Host name.
        HostName = 4,
        /// Version of the recorder.
        RecorderVersion = 5,
        /// Version text of the Python interpreter.
        PythonVersion = 6,
        /// A key this version does not know.
        Other = 7,
        /// Variables that tell frameworks how to allocate, `NAME=value` each on a line; what part of a card's memory a call
        /// left to PyTorch's pool, as [`MEMORY_FRACTION`]`(device)=part`. What is said last counts.
        AllocatorSettings = 8,
        /// Pools of frameworks that are used and cannot be seen, `POOL=reason` each on a line.
        UnseenPools = 9,
        /// Place of the process among those of its job, `rank=3`, `local_rank=3`, `world_size=8`, each on a line.
        Place = 10,
        /// Id of the job that the process belongs to, as its launcher or its user gave it.
        Job = 11,
    } else Other
}

coded_enum! {
    /// How important a message is.
    Severity {
        /// Detail for developers.
        Debug = 0,
        /// Worth knowing.
        Information = 1,
        /// Something is missing or suspicious.
        Warning = 2,
        /// Something failed.
        Error = 3,
    } else Error
}

coded_enum! {
    /// Begin or end of a traced Python call.
    PythonCallPhase {
        /// A Python function was entered.
        Begin = 0,
        /// The innermost open call returned or raised.
        End = 1,
        /// A C function or a user-named region was entered; its name is a string.
        NamedBegin = 2,
        /// The function was already running when tracing began.
        AlreadyOpen = 3,
    } else End
}

/// One frame of a Python stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// The code object.
    pub code: CodeId,
    /// Byte offset of the current instruction in it.
    pub instruction_offset: u32,
}

impl PythonFrame {
    /// Stands behind the last frame of a stack that was recorded only so far: it goes on.
    pub const NOT_RECORDED_FURTHER: Self = Self { code: CodeId::NONE, instruction_offset: 0 };
}

/// Counters of a framework's device memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotNumbers {
    /// Bytes the framework holds from the driver.
    pub reserved_bytes: u64,
    /// Largest value of the former so far.
    pub maximum_reserved_bytes: u64,
    /// Bytes handed out to tensors.
    pub allocated_bytes: u64,
    /// Largest value of the former so far.
    pub maximum_allocated_bytes: u64,
    /// Memory of the device.
    pub total_bytes: u64,
    /// Free memory of the device.
    pub free_bytes: u64,
}

/// How a framework's pool was asked for memory that it did not get, as the pool says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolRefusal {
    /// Bytes asked for, as the pool rounds them up.
    pub requested_bytes: u64,
    /// What the job lets the pool have at most; zero if it has set no limit.
    pub limit_bytes: u64,
    /// What the pool holds from the driver.
    pub reserved_bytes: u64,
    /// Free memory of the device.
    pub free_bytes: u64,
    /// Memory of the device.
    pub total_bytes: u64,
    /// The stream for which it was asked.
    pub stream: u64,
    /// How many [`PoolSegment`]s the same thread has told before.
    pub segments: u64,
}

/// A segment of a framework's pool, or several of one kind together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSegment {
    /// First byte; zero for several together.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes of it that no block uses.
    pub unused_bytes: u64,
    /// The largest piece of these.
    pub largest_gap_bytes: u64,
    /// The stream whose blocks lie in it.
    pub stream: u64,
    /// Sum of the constants below.
    pub traits: u32,
}

impl PoolSegment {
    /// Only small blocks lie in it.
    pub const SMALL_BLOCKS: u32 = 1;
    /// It grows and shrinks by pages.
    pub const EXPANDABLE: u32 = 2;
    /// It is kept for a graph or another part of the job that has a pool of its own.
    pub const PRIVATE: u32 = 4;

    /// Whether it has a trait.
    pub fn is(&self, property: u32) -> bool {
        self.traits & property != 0
    }
}

/// One fact. Byte slices point into the trace; they are UTF-8 by convention, not by promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fact<'a> {
    /// A block came into being.
    Allocation {
        /// Kind of memory.
        properties: BlockProperties,
        /// First byte, or the handle of physical memory.
        address: u64,
        /// Bytes.
        size_bytes: u64,
    },
    /// A block of a pool that frees by handle came into being.
    AllocationWithHandle {
        /// Kind of memory.
        properties: BlockProperties,
        /// First byte.
        address: u64,
        /// Bytes.
        size_bytes: u64,
        /// Name under which it will be freed.
        handle: u64,
    },
    /// A block of a pool came into being that only one stream of the card uses again, where that is known: PyTorch and its
    /// snapshots say it. Those of the default stream are told as [`Fact::Allocation`].
    AllocationOnStream {
        /// Kind of memory.
        properties: BlockProperties,
        /// First byte.
        address: u64,
        /// Bytes.
        size_bytes: u64,
        /// Number of the stream, as the framework counts them.
        stream: u32,
    },
    /// A block ended. The device may be unknown; the allocation knows it.
    Free {
        /// Pool, and device if the caller said it.
        properties: BlockProperties,
        /// First byte.
        address: u64,
    },
    /// A block ended, named by handle.
    FreeByHandle {
        /// Pool, and device if the caller said it.
        properties: BlockProperties,
        /// Handle given at allocation.
        handle: u64,
    },
    /// A pool told about a heap: its new total for PyTorch and MindSpore, one more heap for ATB.
    HeapRegistered {
        /// Pool and device.
        properties: BlockProperties,
        /// Address the pool passed.
        address: u64,
        /// Size the pool passed.
        size_bytes: u64,
    },
    /// A pool withdrew a heap.
    HeapUnregistered {
        /// Pool.
        properties: BlockProperties,
        /// Address or handle the pool passed.
        address: u64,
    },
    /// The driver refused an allocation.
    AllocationFailed {
        /// Kind of memory asked for.
        properties: BlockProperties,
        /// Bytes asked for.
        size_bytes: u64,
        /// The raw flag word.
        flag: u64,
        /// What the driver returned (6 is out of memory).
        error: i64,
    },
    /// The driver refused a free.
    FreeFailed {
        /// Pool.
        properties: BlockProperties,
        /// Address passed.
        address: u64,
        /// What the driver returned.
        error: i64,
    },
    /// An operator began on the host.
    OperatorBegin {
        /// Whose operator.
        framework: Framework,
        /// Current device.
        device: Device,
        /// Operator name.
        name: StringId,
        /// Further attributes as `key:value,...`, or none.
        detail: StringId,
    },
    /// An operator began on the host that says where in its graph it is, and what it needs.
    PlacedOperatorBegin {
        /// Whose operator.
        framework: Framework,
        /// Current device.
        device: Device,
        /// Operator name.
        name: StringId,
        /// Scratch memory that it was given.
        workspace_address: u64,
        /// Bytes of that.
        workspace_bytes: u64,
        /// Its path, as the framework says it. Differs with every call, so it is no string with an id.
        path: &'a [u8],
    },
    /// The operator ended on the host. One that began with a place ends without telling it again.
    OperatorEnd {
        /// Whose operator.
        framework: Framework,
        /// Current device.
        device: Device,
        /// Operator name.
        name: StringId,
        /// Further attributes as `key:value,...`, or none.
        detail: StringId,
    },
    /// An operator touched memory.
    Access {
        /// Read or write.
        kind: AccessKind,
        /// Whose operator.
        framework: Framework,
        /// Device of the tensor.
        device: Device,
        /// Operator name.
        operator: StringId,
        /// First byte.
        address: u64,
        /// Bytes.
        size_bytes: u64,
        /// Element type.
        element_type: StringId,
        /// Shape as the framework prints it.
        shape: StringId,
        /// Memory format, or none.
        format: StringId,
        /// One-based position among the operator's outputs, or zero if it is not an output.
        output_position: u32,
    },
    /// A kernel was launched, began or ended.
    Kernel {
        /// Which of them.
        phase: KernelPhase,
        /// Device it runs on.
        device: Device,
        /// Kernel name.
        name: StringId,
        /// Stream.
        stream_id: u32,
        /// Task within the stream.
        task_id: u32,
        /// Further attributes as `key:value,...`, or none.
        detail: StringId,
    },
    /// A kernel that was launched is part of a graph: its card starts and ends it whenever the graph is run.
    KernelCaptured {
        /// Device it runs on.
        device: Device,
        /// Kernel name.
        name: StringId,
        /// Stream.
        stream_id: u32,
        /// Task within the stream.
        task_id: u32,
    },
    /// Work that an operator has prepared is prepared or launched.
    PreparedWork {
        /// Which of them.
        phase: WorkPhase,
        /// What it is known by until it ends.
        address: u64,
    },
    /// A kernel that says where in its operator it is was begun or ended by the host.
    PlacedKernel {
        /// Which of them.
        phase: KernelPhase,
        /// Current device.
        device: Device,
        /// Kernel name.
        name: StringId,
        /// Its path, as the framework says it.
        path: &'a [u8],
    },
    /// A point marked by the user.
    Mark {
        /// mstx domain, or none.
        domain: StringId,
        /// Current device of the thread.
        device: Device,
        /// The user's text.
        message: &'a [u8],
    },
    /// A range marked by the user begins.
    RangeBegin {
        /// mstx domain, or none.
        domain: StringId,
        /// Current device of the thread.
        device: Device,
        /// Id under which it ends.
        range_id: u64,
        /// The user's text.
        message: &'a [u8],
    },
    /// A range ends.
    RangeEnd {
        /// mstx domain, or none.
        domain: StringId,
        /// Current device of the thread.
        device: Device,
        /// Id it began with.
        range_id: u64,
    },
    /// Something about the runtime.
    System {
        /// What.
        event: SystemEvent,
        /// Device concerned, if any.
        device: Device,
        /// Return value of the call.
        result: i64,
    },
    /// The user ended step `number` through the API.
    Step {
        /// Current device.
        device: Device,
        /// Counted from one.
        number: u64,
    },
    /// A phase of training starts.
    Autograd {
        /// Which.
        phase: AutogradPhase,
        /// Current device.
        device: Device,
    },
    /// A loop of the job, seen without marks, has gone around once.
    LoopTurn {
        /// What turned.
        kind: LoopKind,
        /// Current device.
        device: Device,
        /// Which optimizer, profiler or module of the process, counted from one.
        loop_id: u64,
    },
    /// The thread calls a module.
    ModuleBegin {
        /// Its path in the model, such as `blocks.3.mlp`, or its class.
        name: StringId,
    },
    /// That call has ended.
    ModuleEnd {
        /// The same name.
        name: StringId,
    },
    /// A user or an out-of-memory handler asked for the framework's counters.
    Snapshot {
        /// Device.
        device: Device,
        /// Name given by the user.
        name: StringId,
        /// The counters.
        numbers: SnapshotNumbers,
    },
    /// The pool of a framework has given up: it has told its segments before, and the job gets an exception.
    PoolRefusal {
        /// Device.
        device: Device,
        /// What it was asked for, and what there was.
        refusal: PoolRefusal,
    },
    /// A segment of a pool that is about to give up.
    PoolSegment {
        /// Device.
        device: Device,
        /// The segment.
        segment: PoolSegment,
    },
    /// Memory of the whole card, sampled.
    CardSample {
        /// Device.
        device: Device,
        /// Bytes used on the card by all processes.
        used_bytes: u64,
        /// Bytes used by this process.
        process_bytes: u64,
        /// Bytes of the card.
        total_bytes: u64,
    },
    /// The thread entered a labelled region.
    LabelPush {
        /// Level of the label in the owner path.
        level: u32,
        /// The label.
        label: StringId,
    },
    /// The thread left the innermost region with this label.
    LabelPop {
        /// Level of the label in the owner path.
        level: u32,
        /// The label.
        label: StringId,
    },
    /// The live block at this address got a label.
    LabelAddress {
        /// Address.
        address: u64,
        /// Level of the label in the owner path.
        level: u32,
        /// The label.
        label: StringId,
    },
    /// Somebody looked for who keeps the live block at this address alive.
    Holder {
        /// Address.
        address: u64,
        /// The references that lead to it, outermost first, in words.
        path: StringId,
    },
    /// A watched block was looked at.
    Watch {
        /// Name of the watched block.
        name: StringId,
        /// Operator or kernel beside which it was looked at.
        operator: StringId,
        /// Position among the operator's outputs.
        output_position: u32,
        /// True after the operator, false before it.
        after: bool,
        /// First byte.
        address: u64,
        /// Bytes.
        size_bytes: u64,
        /// Strong hash of the contents.
        content_hash: u64,
        /// Further data: dump file name and checksum.
        detail: &'a [u8],
    },
    /// Recording went on, off or into the shadow.
    Recording {
        /// New state.
        state: RecordingState,
    },
    /// Events are missing from here.
    Loss {
        /// Why.
        reason: LossReason,
        /// How many.
        count: u64,
    },
    /// A Python call began or ended.
    PythonCall {
        /// Which.
        phase: PythonCallPhase,
        /// Code object of a Python function.
        code: CodeId,
        /// Name of a C function or user region.
        name: StringId,
    },
    /// Text with an id.
    DefineString {
        /// Its id.
        id: StringId,
        /// The text.
        text: &'a [u8],
    },
    /// Native stack with an id: return addresses, innermost first.
    DefineNativeStack {
        /// Its id.
        id: StackId,
        /// Little-endian 64-bit return addresses.
        frames: &'a [u8],
    },
    /// Python stack with an id: frames, innermost first.
    DefinePythonStack {
        /// Its id.
        id: StackId,
        /// Pairs of little-endian 32-bit code id and instruction offset; two zeros in the end where further frames
        /// were not recorded.
        frames: &'a [u8],
    },
    /// A Python code object.
    DefineCode {
        /// Its id.
        id: CodeId,
        /// Qualified name.
        name: StringId,
        /// Source file.
        file: StringId,
        /// First line.
        first_line: u32,
        /// `major << 8 | minor` of the interpreter, which decides how the line table is read.
        python_version: u32,
        /// The interpreter's own line table.
        line_table: &'a [u8],
    },
    /// An executable or library was mapped.
    DefineModule {
        /// Its id.
        id: ModuleId,
        /// Lowest mapped address.
        start_address: u64,
        /// End of the mapping.
        end_address: u64,
        /// What to subtract from a run-time address to get an address of the file.
        load_bias: u64,
        /// Path.
        path: StringId,
        /// Build id of the file, empty if it has none.
        build_id: &'a [u8],
    },
    /// The module is no longer mapped.
    ModuleGone {
        /// Its id.
        id: ModuleId,
    },
    /// How framework device ids map to physical ones (`ASCEND_RT_VISIBLE_DEVICES`).
    DeviceMap {
        /// Text of the variable.
        text: &'a [u8],
    },
    /// Something about the process.
    ProcessInfo {
        /// What.
        key: ProcessInfoKey,
        /// The text.
        text: &'a [u8],
    },
    /// A message of the recorder itself.
    Message {
        /// How important.
        severity: Severity,
        /// The text.
        text: &'a [u8],
    },
    /// The wall clock at one moment.
    ClockAnchor {
        /// CLOCK_REALTIME minus CLOCK_MONOTONIC, in nanoseconds.
        wall_offset_ns: i64,
    },
    /// Following records of the chunk belong to this thread.
    Thread {
        /// Kernel thread id.
        thread_id: u32,
    },
    /// A fact of a newer version.
    Unknown {
        /// Its kind code.
        kind: u8,
        /// Its bytes.
        payload: &'a [u8],
    },
}

impl Fact<'_> {
    /// The pool of facts about blocks.
    pub fn pool(&self) -> Option<Pool> {
        match self {
            Fact::Allocation { properties, .. }
            | Fact::AllocationWithHandle { properties, .. }
            | Fact::AllocationOnStream { properties, .. }
            | Fact::Free { properties, .. }
            | Fact::FreeByHandle { properties, .. }
            | Fact::HeapRegistered { properties, .. }
            | Fact::HeapUnregistered { properties, .. }
            | Fact::AllocationFailed { properties, .. }
            | Fact::FreeFailed { properties, .. } => Some(properties.pool),
            _ => None,
        }
    }

    /// The device this fact names, as it was recorded.
    pub fn device(&self) -> Option<Device> {
        match self {
            Fact::Allocation { properties, .. }
            | Fact::AllocationWithHandle { properties, .. }
            | Fact::AllocationOnStream { properties, .. }
            | Fact::Free { properties, .. }
            | Fact::FreeByHandle { properties, .. }
            | Fact::HeapRegistered { properties, .. }
            | Fact::HeapUnregistered { properties, .. }
            | Fact::AllocationFailed { properties, .. }
            | Fact::FreeFailed { properties, .. } => Some(properties.device),
            Fact::OperatorBegin { device, .. }
            | Fact::PlacedOperatorBegin { device, .. }
            | Fact::PlacedKernel { device, .. }
            | Fact::OperatorEnd { device, .. }
            | Fact::Access { device, .. }
            | Fact::Kernel { device, .. }
            | Fact::KernelCaptured { device, .. }
            | Fact::Mark { device, .. }
            | Fact::RangeBegin { device, .. }
            | Fact::RangeEnd { device, .. }
            | Fact::System { device, .. }
            | Fact::Step { device, .. }
            | Fact::Autograd { device, .. }
            | Fact::LoopTurn { device, .. }
            | Fact::Snapshot { device, .. }
            | Fact::PoolRefusal { device, .. }
            | Fact::PoolSegment { device, .. }
            | Fact::CardSample { device, .. } => Some(*device),
            _ => None,
        }
    }

    /// Whether this fact defines something instead of telling that something happened.
    pub fn is_definition(&self) -> bool {
        matches!(
            self,
            Fact::DefineString { .. }
                | Fact::DefineNativeStack { .. }
                | Fact::DefinePythonStack { .. }
                | Fact::DefineCode { .. }
                | Fact::DefineModule { .. }
                | Fact::ModuleGone { .. }
                | Fact::DeviceMap { .. }
                | Fact::ProcessInfo { .. }
        )
    }
}
