//! The table itself: what crosses the door, laid out for C.

use std::ffi::c_void;

/// Name of the function that returns the table.
pub const ENTRY_SYMBOL: &std::ffi::CStr = c"msmemscope_control";

/// Raised when a function changes its meaning; appending functions does not raise it.
pub const TABLE_VERSION: u32 = 1;

/// Type of the function behind [`ENTRY_SYMBOL`].
pub type EntryFunction = unsafe extern "C" fn() -> *const ControlTable;

/// Bytes that are only lent for the time of a call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Region {
    /// First byte.
    pub start: *const u8,
    /// Number of bytes.
    pub length: usize,
}

impl Region {
    /// The bytes of a slice.
    pub fn of(bytes: &[u8]) -> Self {
        Self { start: bytes.as_ptr(), length: bytes.len() }
    }

    /// The bytes again.
    ///
    /// # Safety
    /// The region must still be valid; a null start means no bytes.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.start.is_null() {
            return &[];
        }
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// A block of framework memory that the recorder cannot see by itself (CPU tensors).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocationFact {
    /// Code of the pool ([`msmemscope_event::Pool`]).
    pub pool: u32,
    /// Code of the device ([`msmemscope_event::Device::code`]).
    pub device: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
}

/// An operator touched memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AccessFact {
    /// Code of [`msmemscope_event::AccessKind`].
    pub kind: u32,
    /// Code of [`msmemscope_event::Framework`].
    pub framework: u32,
    /// Code of the device.
    pub device: u32,
    /// String id of the operator.
    pub operator: u32,
    /// String id of the element type.
    pub element_type: u32,
    /// String id of the shape.
    pub shape: u32,
    /// String id of the memory format, or zero.
    pub format: u32,
    /// One-based position among the operator's outputs, or zero.
    pub output_position: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
}

/// Which events are wanted, so that callers need not prepare what nobody records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CollectionPlan {
    /// Non-zero if operators are recorded.
    pub operators: u32,
    /// Non-zero if accesses are recorded.
    pub accesses: u32,
    /// Non-zero if Python calls are recorded.
    pub python_calls: u32,
    /// Non-zero if CPU tensors are recorded.
    pub cpu_tensors: u32,
}

/// Counters of a framework at one moment.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SnapshotFact {
    /// Code of the device.
    pub device: u32,
    /// String id of the name.
    pub name: u32,
    /// Reserved, maximum reserved, allocated, maximum allocated, total, free; in bytes.
    pub numbers: [u64; 6],
}

/// A segment of a framework's pool; see [`msmemscope_event::PoolSegment`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolSegmentFact {
    /// First byte; zero for several together.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes that no block uses.
    pub unused_bytes: u64,
    /// The largest piece of these.
    pub largest_gap_bytes: u64,
    /// The stream whose blocks lie in it.
    pub stream: u64,
    /// Sum of the constants of [`msmemscope_event::PoolSegment`].
    pub traits: u64,
}

/// The pool of a framework has given up; see [`msmemscope_event::PoolRefusal`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolRefusalFact {
    /// Code of the device.
    pub device: u32,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// What the job lets the pool have, or zero.
    pub limit_bytes: u64,
    /// What the pool holds.
    pub reserved_bytes: u64,
    /// Free memory of the device.
    pub free_bytes: u64,
    /// Memory of the device.
    pub total_bytes: u64,
    /// The stream for which it was asked.
    pub stream: u64,
    /// Its segments.
    pub segments: *const PoolSegmentFact,
    /// How many these are.
    pub segment_count: usize,
}

/// A watched block was looked at.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WatchFact {
    /// String id of the block's name.
    pub name: u32,
    /// String id of the operator.
    pub operator: u32,
    /// Position among the operator's outputs.
    pub output_position: u32,
    /// Non-zero after the operator.
    pub after: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Strong hash of the contents.
    pub content_hash: u64,
    /// Further data.
    pub detail: Region,
}

/// A guest's function that is told about blocks of framework pools: non-zero if one begins, code of the
/// pool, code of the device as far as known, address, size (zero at the end). Called inside the
/// framework's allocator: it must be short, and must neither allocate device memory nor wait.
pub type BlockObserver = unsafe extern "C" fn(begins: u32, pool: u32, device: u32, address: u64, size_bytes: u64);

/// A guest's function that is called around every launch of a kernel, on the launching thread: before it (`begins`
/// non-zero, without a name), and when the launching function has returned, with the name of the kernel, empty if nothing
/// was launched. `stream` is what the launching function was given.
pub type LaunchObserver = unsafe extern "C" fn(begins: u32, stream: *mut c_void, name: Region);

/// A result of an operator.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TensorFact {
    /// First byte on the device; zero if it is not there.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
}

/// An operator that a library runs by itself, as ATB does.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OperatorFact {
    /// Code of [`msmemscope_event::Framework`].
    pub framework: u32,
    /// Code of the device.
    pub device: u32,
    /// Its path.
    pub name: Region,
    /// Its results.
    pub outputs: *const TensorFact,
    /// How many these are.
    pub output_count: usize,
}

/// A guest's function that is called around operators that libraries run by themselves, on the thread that runs them:
/// before (`begins` non-zero), and when the work of the operator was launched. The fact is lent for the call.
pub type OperatorObserver = unsafe extern "C" fn(begins: u32, operator: *const OperatorFact);

/// The functions of the recorder. All may be called from any thread at any time.
///
/// States are codes of [`msmemscope_event::RecordingState`], devices codes of
/// [`msmemscope_event::Device::code`], texts string ids from `intern`. Functions that return `i32` give
/// zero on success and an errno otherwise.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ControlTable {
    /// Size of the table this recorder has.
    pub size_bytes: u32,
    /// [`TABLE_VERSION`] of this recorder.
    pub version: u32,
    /// Version text of the recorder; static.
    pub recorder_version: Region,

    /// What the recorder does now.
    pub state: unsafe extern "C" fn() -> u32,
    /// Starts, pauses or stops; what was alive before is known if the state was shadow.
    pub set_state: unsafe extern "C" fn(state: u32) -> i32,
    /// Takes new settings, in the form of the environment variable.
    pub configure: unsafe extern "C" fn(settings: Region) -> i32,
    /// Which kinds of events are wanted now; changes with state and settings.
    pub plan: unsafe extern "C" fn(plan: *mut CollectionPlan),
    /// Copies the directory of this process into the buffer and returns its length, zero if there is
    /// no recording yet. Nothing is copied if it does not fit.
    pub process_directory: unsafe extern "C" fn(buffer: *mut u8, capacity: usize) -> usize,
    /// Brings buffered records into the file; needed only where mappings cannot be trusted.
    pub flush: unsafe extern "C" fn() -> i32,
    /// Losses counted for a code of [`msmemscope_event::LossReason`].
    pub loss_count: unsafe extern "C" fn(reason: u32) -> u64,

    /// Gives a text its id, the same for the same text; zero if the table is full.
    pub intern: unsafe extern "C" fn(text: Region) -> u32,
    /// Code of the calling thread's current device.
    pub current_device: unsafe extern "C" fn() -> u32,

    /// The user ended a step; gives its number, zero while not recording.
    pub step: unsafe extern "C" fn() -> u64,
    /// A point marked by the user.
    pub mark: unsafe extern "C" fn(message: Region),
    /// An operator began (`begins` non-zero) or ended.
    pub operator: unsafe extern "C" fn(begins: u32, framework: u32, device: u32, name: u32, detail: u32),
    /// An operator touched memory.
    pub access: unsafe extern "C" fn(fact: *const AccessFact),
    /// A phase of training started: a code of [`msmemscope_event::AutogradPhase`].
    pub autograd: unsafe extern "C" fn(phase: u32, device: u32),
    /// Memory the recorder cannot see by itself came into being.
    pub allocation: unsafe extern "C" fn(fact: *const AllocationFact),
    /// Such memory ended.
    pub free: unsafe extern "C" fn(pool: u32, device: u32, address: u64),
    /// The thread entered a labelled region.
    pub label_push: unsafe extern "C" fn(level: u32, label: u32),
    /// The thread left it.
    pub label_pop: unsafe extern "C" fn(level: u32, label: u32),
    /// The live block at this address got a label.
    pub label_address: unsafe extern "C" fn(address: u64, level: u32, label: u32),
    /// Counters of a framework; recorded in every state.
    pub snapshot: unsafe extern "C" fn(fact: *const SnapshotFact),
    /// A Python call began or ended: code of [`msmemscope_event::PythonCallPhase`], the code object (a
    /// `PyCodeObject` pointer, or null) and a string id for C functions and user regions. Recorded in
    /// every state: the caller asks the plan, or the user asked for this very region.
    pub python_call: unsafe extern "C" fn(phase: u32, code: *const c_void, name: u32),
    /// A watched block was looked at.
    pub watch: unsafe extern "C" fn(fact: *const WatchFact),
    /// Memory of a whole card: device, used, used by this process, total.
    pub card_sample: unsafe extern "C" fn(device: u32, used: u64, process: u64, total: u64),
    /// A message for the recording's log; a code of [`msmemscope_event::Severity`].
    pub message: unsafe extern "C" fn(severity: u32, text: Region),

    /// Redirects the import tables of all loaded libraries to the hooks; gives the number of slots
    /// changed. For processes in which the recorder was not preloaded.
    pub patch_imports: unsafe extern "C" fn() -> u64,

    /// Which sources have reported something in this process, whether it was recorded or not: the sum
    /// of [`SOURCE_RUNTIME`], [`SOURCE_DRIVER`], [`SOURCE_MSTX`] and [`SOURCE_POOL`]. Tells what can
    /// still be seen when the recorder was not preloaded.
    pub sources: unsafe extern "C" fn() -> u32,
    /// Redirects one imported function of all loaded libraries to a function of the caller, which must
    /// stay loaded; gives the number of slots changed. Zero with an unknown name.
    pub redirect_import: unsafe extern "C" fn(name: Region, replacement: *const c_void) -> u64,
    /// Tells a guest about blocks of framework pools from now on, or no longer with a null pointer.
    /// The function must stay loaded.
    pub observe_blocks: unsafe extern "C" fn(observer: Option<BlockObserver>),
    /// Pools of frameworks that this process uses and the recorder cannot see: `POOL=reason` each on a line, with
    /// the pool's event type. Part of every recording of the process from now on; the first text counts.
    pub unseen_pools: unsafe extern "C" fn(text: Region),
    /// How many marks and ranges the calling thread has sent through the tools interface.
    pub message_count: unsafe extern "C" fn() -> u64,
    /// A mark that a framework keeps from the tools interface.
    pub relay_mark: unsafe extern "C" fn(domain: Region, message: Region),
    /// A range that a framework keeps from the tools interface; gives its id, zero if it is not recorded.
    pub relay_range_start: unsafe extern "C" fn(domain: Region, message: Region) -> u64,
    /// The end of such a range.
    pub relay_range_end: unsafe extern "C" fn(domain: Region, range_id: u64),

    /// A loop of the job went around: a code of [`msmemscope_event::LoopKind`] and which loop of that kind.
    pub loop_turn: unsafe extern "C" fn(kind: u32, loop_id: u64),
    /// The thread calls a module (`begins` non-zero) or returns from it.
    pub module: unsafe extern "C" fn(begins: u32, name: u32),
    /// Who keeps the live block at an address alive: an interned path of references.
    pub holder: unsafe extern "C" fn(address: u64, path: u32),

    /// The place of this process in its job, as the framework knows it: its rank, and of how many. The first counts, and
    /// more than what launchers say.
    pub place: unsafe extern "C" fn(rank: u32, world_size: u32),
    /// A guest tells people from now on when a framework has run out of memory, so that the recorder need not say what
    /// the driver refused.
    pub failures_are_told: unsafe extern "C" fn(),

    /// Calls a guest around launches of kernels from now on, or no longer with a null pointer. Only while kernels are
    /// recorded. The function must stay loaded.
    pub observe_launches: unsafe extern "C" fn(observer: Option<LaunchObserver>),
    /// Calls a guest around operators that libraries run by themselves from now on, or no longer with a null pointer.
    /// Only while recording. The function must stay loaded.
    pub observe_operators: unsafe extern "C" fn(observer: Option<OperatorObserver>),

    /// The settings in force, in the form in which they are handed over; gives their length, and copies them if there is
    /// room. They change without a guest's doing if somebody controls the job from outside.
    pub settings_text: unsafe extern "C" fn(buffer: *mut u8, capacity: usize) -> usize,
    /// A guest has met a request from outside that was left to it: zero, or an errno.
    pub answer_request: unsafe extern "C" fn(number: u32, result: i32),

    /// The pool of a framework has refused memory without asking the driver: its code, that of the device, the bytes
    /// that were asked for, zero if nobody says, and non-zero if the job has set a limit to the pool.
    pub pool_refused: unsafe extern "C" fn(pool: u32, device: u32, size_bytes: u64, is_limited: u32),

    /// The pool of a framework has given up, and says what it was asked for and how its segments look.
    pub pool_gave_up: unsafe extern "C" fn(fact: *const PoolRefusalFact),

    /// The job has limited PyTorch's pool on a device, given by its code, to this part of the card's memory.
    pub memory_fraction: unsafe extern "C" fn(device: u32, fraction: f64),
}

/// The runtime was initialised or a device was chosen.
pub const SOURCE_RUNTIME: u32 = 1;
/// The driver was asked for memory.
pub const SOURCE_DRIVER: u32 = 2;
/// A library connected its mstx functions.
pub const SOURCE_MSTX: u32 = 4;
/// A memory pool of a framework reported a block.
pub const SOURCE_POOL: u32 = 8;

// SAFETY: the table holds function pointers and a static text; it is never written after creation.
unsafe impl Sync for ControlTable {}
// SAFETY: as above.
unsafe impl Send for ControlTable {}
