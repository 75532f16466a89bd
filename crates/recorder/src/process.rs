//! The recording of this process: its directory and trace file, made at the first event.
//!
//! A word in a page that the kernel wipes in a forked child says whose recording it is. A child
//! therefore notices at its first event that it needs its own, however it was made, and touches
//! neither the files nor the counters of its parent before that.

use std::cell::UnsafeCell;
use std::ffi::{CString, OsStr};
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use msmemscope_config::RECORDING_VARIABLE;
use msmemscope_control::SOURCE_POOL;
use msmemscope_courtesy::Descriptor;
use msmemscope_event::{Fact, LossReason, ProcessInfoKey, RecordingState, StackId};
use msmemscope_trace::TRACE_FILE_NAME;
use msmemscope_trace::codec::LARGEST_TEXT_BYTES;
use msmemscope_trace::writer::{Chunk, ChunkError, ChunkView, Incident, ProcessIdentity, TraceFile};

use crate::live_chunks::LiveChunks;
use crate::{clock, errno, losses, message, python_stacks, settings, sources, state, strings, thread};

/// Owner of a wiped or not yet existing page.
const NOBODY: u64 = 0;
const ADOPTION_SLOTS: usize = 256;
const PAUSE_BETWEEN_ATTEMPTS_NS: u64 = 1_000_000_000;
const NEVER: u64 = u64::MAX;
const DIRECTORY_MODE: libc::mode_t = 0o750;
/// Default limit of a trace: this share of the free disk space, but not more than the bytes below. On small disks it is
/// half of the space, as long as that is little.
const SHARE_OF_FREE_SPACE: u64 = 10;
const LITTLE_SPACE_BYTES: u64 = 64 << 20;
const LARGEST_DEFAULT_LIMIT_BYTES: u64 = 20 << 30;
/// Other threads may be in a memory call that began, and was stamped, this much before the event
/// for which the recording is made.
const LONGEST_CALL_NS: u64 = 10_000_000;
const CANCELLED_AFTER_COLLISIONS: usize = 1000;
const LONGEST_WAIT_NS: u64 = 5_000_000_000;

static NO_OWNER: AtomicU64 = AtomicU64::new(NOBODY);
/// The word that says whose recording exists; in a page wiped on fork once there is one.
static OWNER: AtomicPtr<AtomicU64> = AtomicPtr::new(&raw const NO_OWNER as *mut AtomicU64);
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
static NEXT_GENERATION: AtomicU64 = AtomicU64::new(NOBODY + 1);
/// Process id of whoever is making a recording; zero if nobody is.
static STARTER: AtomicI32 = AtomicI32::new(0);

/// When the next attempt to write may be made; zero if nothing failed.
static NEXT_ATTEMPT_NS: AtomicU64 = AtomicU64::new(0);
static FAILURE: AtomicU32 = AtomicU32::new(0);
static REASONS_TOLD: AtomicU32 = AtomicU32::new(0);
/// Seconds of local time ahead of UTC, once known: asking again after a fork might wait for a lock
/// that a thread of the parent held.
static LOCAL_OFFSET_SECONDS: AtomicI64 = AtomicI64::new(i64::MIN);

/// The recording of one process. Lives until the process ends.
pub struct Process {
    /// Which of the recordings made in this process and its ancestors.
    pub generation: u64,
    /// The process itself; its children may know of it too.
    process_id: u32,
    /// The file.
    pub trace: TraceFile,
    /// The directory it is in. Replaced ones stay where they are: somebody may be reading them.
    directory: AtomicPtr<PathBuf>,
    adoption: Box<[AdoptionSlot]>,
    live: LiveChunks,
    /// Whether a thread is about to make room in a file that has reached its limit.
    makes_room: AtomicBool,
    /// Whether that is not worth trying any more.
    room_is_exhausted: AtomicBool,
    /// Threads that are about to begin or end a chunk.
    visitors: AtomicU32,
    /// The recording that this one was copied to, once it is complete but for chunks that threads have not left yet.
    successor: AtomicPtr<Process>,
    /// Where the last of its chunks are in the successor; the others have kept their places.
    moved_chunks: OnceLock<MovedChunks>,
    /// The recording that this one is the copy of.
    predecessor: Option<&'static Process>,
}

/// Chunks that have another place in the copy of a trace.
struct MovedChunks {
    first: u32,
    targets: Vec<u32>,
}

/// Place for a chunk whose thread has ended.
struct AdoptionSlot {
    state: AtomicU32,
    chunk: UnsafeCell<MaybeUninit<Chunk>>,
}

const SLOT_EMPTY: u32 = 0;
const SLOT_BUSY: u32 = 1;
const SLOT_FULL: u32 = 2;

// SAFETY: `chunk` is only touched by whoever moved `state` to busy.
unsafe impl Sync for AdoptionSlot {}

impl AdoptionSlot {
    fn empty() -> Self {
        Self { state: AtomicU32::new(SLOT_EMPTY), chunk: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    fn claim(&self, from: u32) -> bool {
        self.state.load(Ordering::Relaxed) == from
            && self.state.compare_exchange(from, SLOT_BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Whose recording exists. Compared with what a thread wrote under last.
#[inline(always)]
pub fn owner_generation() -> u64 {
    // SAFETY: points to a static or to a page that is never unmapped.
    unsafe { (*OWNER.load(Ordering::Relaxed)).load(Ordering::Acquire) }
}

/// The recording of this process, if it has one.
pub fn existing() -> Option<&'static Process> {
    // SAFETY: null or leaked.
    let process = unsafe { PROCESS.load(Ordering::Acquire).as_ref() }?;
    (process.generation == owner_generation()).then_some(process)
}

/// Why nothing can be written at the moment; nothing if it is worth trying.
pub fn unavailable(now_ns: u64) -> Option<LossReason> {
    let next_attempt_ns = NEXT_ATTEMPT_NS.load(Ordering::Relaxed);
    (now_ns < next_attempt_ns).then(|| LossReason::from_code(u64::from(FAILURE.load(Ordering::Relaxed))))
}

/// The recording of this process; makes it if there is none, for an event of the given time.
fn current(event_ns: u64) -> Result<&'static Process, LossReason> {
    if let Some(process) = existing() {
        return Ok(process);
    }
    become_starter()?;
    let result = match existing() {
        Some(process) => Ok(process),
        None => Process::start(std::process::id(), event_ns),
    };
    STARTER.store(0, Ordering::Release);
    result
}

/// The right to begin and end chunks of a recording, until dropped; it stays where it is meanwhile.
pub struct Visit(&'static Process);

impl Visit {
    /// The recording of this process, made if there is none, for an event of the given time.
    pub fn current(event_ns: u64) -> Result<Self, LossReason> {
        loop {
            if let Some(visit) = Self::of(current(event_ns)?) {
                return Ok(visit);
            }
        }
    }

    /// A recording, unless it is no longer written.
    pub fn of(process: &'static Process) -> Option<Self> {
        process.visitors.fetch_add(1, Ordering::SeqCst);
        let visit = Self(process);
        fence(Ordering::SeqCst);
        (process.generation == owner_generation()).then_some(visit)
    }

    /// The recording.
    pub fn process(&self) -> &'static Process {
        self.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.visitors.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until something is the case, but not for ever: whoever sees to it may have been cancelled.
fn wait_until(is_the_case: impl Fn() -> bool) {
    let asked_ns = clock::monotonic_ns();
    while !is_the_case() && clock::monotonic_ns() - asked_ns < LONGEST_WAIT_NS {
        std::thread::yield_now();
    }
}

/// Waits until nobody else makes a recording.
fn become_starter() -> Result<(), LossReason> {
    let process_id = std::process::id() as i32;
    let started_ns = clock::monotonic_ns();
    loop {
        // A starter with another process id is one that did not survive a fork.
        let starter = STARTER.load(Ordering::Relaxed);
        let free = starter != process_id;
        if free && STARTER.compare_exchange(starter, process_id, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        if clock::monotonic_ns() - started_ns > PAUSE_BETWEEN_ATTEMPTS_NS {
            return Err(LossReason::TraceUnavailable);
        }
        std::thread::yield_now();
    }
}

/// Does something during which nobody else makes a recording.
fn as_starter(work: impl FnOnce() -> Result<(), i32>) -> Result<(), i32> {
    become_starter().map_err(|_| libc::EBUSY)?;
    let result = work();
    STARTER.store(0, Ordering::Release);
    result
}

/// Notes a failure, tells about it once per reason, and says what the loss is called.
fn failed(error: ChunkError, directory: &Path) -> LossReason {
    let (reason, text) = match error {
        ChunkError::SizeLimit | ChunkError::System(libc::EFBIG) => {
            (LossReason::SizeLimit, "the size limit of the trace is reached (--max-trace-size)".to_string())
        }
        ChunkError::System(errno @ (libc::ENOSPC | libc::EDQUOT)) => {
            (LossReason::DiskFull, std::io::Error::from_raw_os_error(errno).to_string())
        }
        ChunkError::System(libc::ESTALE) => {
            (LossReason::TraceUnavailable, format!("somebody has put another file in the place of {TRACE_FILE_NAME}"))
        }
        ChunkError::System(errno) => {
            (LossReason::TraceUnavailable, std::io::Error::from_raw_os_error(errno).to_string())
        }
    };
    let for_good = reason == LossReason::SizeLimit;
    let next_attempt_ns = if for_good { NEVER } else { clock::monotonic_ns() + PAUSE_BETWEEN_ATTEMPTS_NS };
    FAILURE.store(reason as u32, Ordering::Relaxed);
    NEXT_ATTEMPT_NS.store(next_attempt_ns, Ordering::Relaxed);
    let bit = 1 << reason as u32;
    if REASONS_TOLD.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let place = directory.display();
        message::say(&format!("cannot record in {place}: {text}; events are lost from here on, the job goes on"));
    }
    reason
}

impl Process {
    fn new(process_id: u32, trace: TraceFile, directory: PathBuf, predecessor: Option<&'static Self>) -> Box<Self> {
        let generation = NEXT_GENERATION.fetch_add(1, Ordering::Relaxed);
        Box::new(Self {
            generation,
            process_id,
            trace,
            directory: AtomicPtr::new(Box::into_raw(Box::new(directory))),
            adoption: (0..ADOPTION_SLOTS).map(|_| AdoptionSlot::empty()).collect(),
            live: LiveChunks::new(),
            makes_room: AtomicBool::new(false),
            room_is_exhausted: AtomicBool::new(false),
            visitors: AtomicU32::new(0),
            successor: AtomicPtr::new(std::ptr::null_mut()),
            moved_chunks: OnceLock::new(),
            predecessor,
        })
    }

    fn start(process_id: u32, event_ns: u64) -> Result<&'static Process, LossReason> {
        if let Some(error) = settings::error() {
            if state::disable() {
                message::say(&format!("nothing is recorded: {error}"));
            }
            return Err(LossReason::TraceUnavailable);
        }
        make_owner_page();
        let output = settings::output_directory();
        let (directory, trace) = create(process_id, &output)
            .or_else(|errno| create_for_now(process_id).ok_or(errno))
            .map_err(|errno| failed(ChunkError::System(errno), &output))?;
        let process = Process::new(process_id, trace, directory, None);
        let mut chunk = match process.fresh_chunk(process_id, clock::monotonic_ns()) {
            Ok(chunk) => chunk,
            Err(reason) => {
                remove(process.directory());
                return Err(reason);
            }
        };
        let process: &'static Process = Box::leak(process);
        process.introduce(&mut chunk, event_ns);
        losses::settle(process);
        process.become_current();
        // After the owner is known: texts that come up from now on are written by those who bring them.
        strings::for_each(|fact| process.append(&mut chunk, fact));
        process.adopt(chunk);
        warn_about_missing_pools();
        NEXT_ATTEMPT_NS.store(0, Ordering::Relaxed);
        Ok(process)
    }

    /// Events are written here from now on. Only whoever may make a recording does this.
    fn become_current(&'static self) {
        PROCESS.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
        // SAFETY: points to the page for the owner, or to the static if there is none.
        unsafe { (*OWNER.load(Ordering::Relaxed)).store(self.generation, Ordering::SeqCst) };
    }

    /// The directory the recording is in.
    pub fn directory(&self) -> &Path {
        // SAFETY: always a path, and never freed.
        unsafe { &*self.directory.load(Ordering::Acquire) }
    }

    /// Brings the recording to where the settings want it now.
    fn follow_to(&'static self, output: &Path) -> Result<(), i32> {
        match self.move_to(output) {
            // No file can be in both places.
            Err(libc::EXDEV | libc::EPERM | libc::EOPNOTSUPP) => as_starter(|| self.copy_to(output)),
            result => result,
        }
    }

    /// Moves the recording within a file system. Settings can change as long as recording has
    /// not begun, but what is alive may have been noted before that.
    fn move_to(&self, output: &Path) -> Result<(), i32> {
        let before = self.directory();
        let process_id = std::process::id();
        make_directories(output)?;
        let directory = make_process_directory(process_id, output)?;
        let moved = c_path(directory.join(TRACE_FILE_NAME).as_os_str()).and_then(|path| self.trace.move_to(path));
        if let Err(errno) = moved {
            remove(&directory);
            return Err(errno);
        }
        self.directory.store(Box::into_raw(Box::new(directory)), Ordering::Release);
        discard(before);
        Ok(())
    }

    /// Moves the recording to another file system: a copy takes its place, and every thread goes on there with its next
    /// event.
    fn copy_to(&'static self, output: &Path) -> Result<(), i32> {
        make_directories(output)?;
        let directory = make_process_directory(self.process_id, output)?;
        wait_until(|| !self.makes_room.swap(true, Ordering::Acquire)); // And nobody does from now on.
        let _ = self.flush();
        let copied = c_path(directory.join(TRACE_FILE_NAME).as_os_str())
            .and_then(|path| self.trace.copy_to(path, limit_bytes(&directory), settings::distrusts_mappings()));
        let trace = match copied {
            Ok(trace) => trace,
            Err(errno) => {
                self.makes_room.store(false, Ordering::Release);
                remove(&directory);
                return Err(errno);
            }
        };
        let copied_chunks = trace.chunk_count();
        let process: &'static Process = Box::leak(Self::new(self.process_id, trace, directory, Some(self)));
        process.become_current();
        losses::settle(process);
        fence(Ordering::SeqCst);
        wait_until(|| self.visitors.load(Ordering::SeqCst) == 0);
        let _ = self.flush();
        let targets = process.trace.copy_rest(&self.trace, copied_chunks).unwrap_or_else(|_| {
            losses::count(LossReason::TraceUnavailable, 1);
            Vec::new()
        });
        let _ = self.moved_chunks.set(MovedChunks { first: copied_chunks, targets });
        self.successor.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
        while let Some(chunk) = self.take_adopted() {
            self.carry_over(&chunk.view());
            chunk.unmap();
        }
        self.trace.let_go();
        discard(self.directory());
        Ok(())
    }

    /// A thread leaves a chunk of an earlier recording. That of the process before a fork is not ours.
    pub fn leave(&self, chunk: Option<Chunk>, live_place: Option<usize>) {
        if self.process_id == std::process::id()
            && let Some(chunk) = chunk
        {
            self.forget_live(live_place);
            wait_until(|| self.successor().is_some()); // It is being copied.
            self.carry_over(&chunk.view());
            chunk.unmap();
        }
    }

    fn successor(&self) -> Option<&'static Process> {
        // SAFETY: null or leaked.
        unsafe { self.successor.load(Ordering::Acquire).as_ref() }
    }

    /// Brings a chunk of this recording, as it is now, into the one it was copied to: its last record may have been in
    /// the making then.
    fn carry_over(&self, chunk: &ChunkView) {
        let (mut process, mut index) = (self, Some(chunk.index()));
        while let Some(next) = process.successor() {
            let moved = process.moved_chunks.get();
            index =
                index.and_then(|index| match moved.and_then(|moved| index.checked_sub(moved.first).zip(Some(moved))) {
                    Some((position, moved)) => moved.targets.get(position as usize).copied(),
                    None => Some(index),
                });
            process = next;
        }
        let is_carried = index.is_some_and(|index| process.trace.take_over(chunk, index).is_ok());
        if !is_carried {
            losses::count(LossReason::TraceUnavailable, 1);
        }
    }

    /// Appends to a chunk that no thread owns yet; takes another one when it is full.
    fn append(&self, chunk: &mut Chunk, fact: &Fact<'_>) {
        let now_ns = clock::monotonic_ns();
        if !chunk.append(now_ns, StackId::NONE, StackId::NONE, fact)
            && let Ok(fresh) = self.fresh_chunk(chunk.thread_id(), now_ns)
        {
            self.trace.seal_chunk(std::mem::replace(chunk, fresh));
            chunk.append(now_ns, StackId::NONE, StackId::NONE, fact);
        }
    }

    fn fresh_chunk(&self, thread_id: u32, monotonic_ns: u64) -> Result<Chunk, LossReason> {
        let chunk = match self.trace.allocate_chunk(thread_id, monotonic_ns) {
            Err(ChunkError::SizeLimit) => self.chunk_at_limit(thread_id, monotonic_ns),
            result => result,
        };
        if let Some(incident) = self.trace.take_incident() {
            let what = match incident {
                Incident::Replaced => "was replaced by a copy: recording goes on there, buffered",
                Incident::Cut => "was cut by somebody: what was recorded behind the cut is lost",
            };
            message::say(&format!("{}/{TRACE_FILE_NAME} {what}", self.directory().display()));
        }
        chunk.map_err(|error| failed(error, self.directory()))
    }

    /// A chunk where none is left: what came and went before recording began, or in a pause, makes room. Other threads
    /// that need one wait for that, but not for ever: who makes room may have been cancelled.
    fn chunk_at_limit(&self, thread_id: u32, monotonic_ns: u64) -> Result<Chunk, ChunkError> {
        let asked_ns = clock::monotonic_ns();
        while !self.room_is_exhausted.load(Ordering::Relaxed) && self.generation == owner_generation() {
            let is_ours = !self.makes_room.swap(true, Ordering::Acquire);
            let mut chunk = self.trace.allocate_chunk(thread_id, monotonic_ns);
            if is_ours {
                if chunk.is_err() {
                    let now_ns = clock::monotonic_ns(); // Before the question when the latest pause ends.
                    let gained = self.trace.compact(&state::pauses(), now_ns);
                    self.room_is_exhausted.store(gained == 0, Ordering::Relaxed);
                    chunk = self.trace.allocate_chunk(thread_id, monotonic_ns);
                }
                self.makes_room.store(false, Ordering::Release);
            }
            match chunk {
                Err(ChunkError::SizeLimit) if clock::monotonic_ns() - asked_ns > LONGEST_WAIT_NS => break,
                Err(ChunkError::SizeLimit) => std::thread::yield_now(),
                result => return result,
            }
        }
        self.trace.allocate_last_chunk(thread_id, monotonic_ns)
    }

    /// A chunk for a thread: that of a thread that has ended, else a new one.
    pub fn chunk_for_thread(&self, thread_id: u32, monotonic_ns: u64) -> Result<Chunk, LossReason> {
        while let Some(mut chunk) = self.take_adopted() {
            if chunk.append(monotonic_ns, StackId::NONE, StackId::NONE, &Fact::Thread { thread_id }) {
                return Ok(chunk);
            }
            self.trace.seal_chunk(chunk);
        }
        self.fresh_chunk(thread_id, monotonic_ns)
    }

    /// A chunk whose thread has ended.
    fn take_adopted(&self) -> Option<Chunk> {
        let slot = self.adoption.iter().find(|slot| slot.claim(SLOT_FULL))?;
        // SAFETY: the slot is ours and was full.
        let chunk = unsafe { (*slot.chunk.get()).assume_init_read() };
        slot.state.store(SLOT_EMPTY, Ordering::Release);
        Some(chunk)
    }

    /// Keeps the chunk of a thread that ends for one that begins.
    pub fn adopt(&self, chunk: Chunk) {
        let _ = self.trace.flush_chunk(&chunk);
        for slot in &self.adoption {
            if slot.claim(SLOT_EMPTY) {
                // SAFETY: the slot is ours.
                unsafe { (*slot.chunk.get()).write(chunk) };
                slot.state.store(SLOT_FULL, Ordering::Release);
                return;
            }
        }
        self.trace.seal_chunk(chunk);
    }

    /// Notes the chunk of a thread: the file may not see it by itself, now or later.
    pub fn note_live(&self, chunk: &Chunk) -> Option<usize> {
        self.live.add(chunk)
    }

    /// Forgets a chunk before it goes.
    pub fn forget_live(&self, place: Option<usize>) {
        if let Some(place) = place {
            self.live.remove(place);
        }
    }

    /// Brings what all threads have written so far into the file; the errno on failure.
    pub fn flush(&self) -> Result<(), i32> {
        let mut result = Ok(());
        self.for_each_chunk(|chunk| result = result.and(self.trace.flush_view(chunk)));
        result
    }

    /// Brings everything into the file for the last time; what does not get there is counted as lost.
    pub fn flush_at_end(&self) {
        let mut before = self.predecessor;
        while let Some(process) = before {
            process.for_each_chunk(|chunk| process.carry_over(chunk));
            before = process.predecessor;
        }
        self.for_each_chunk(|chunk| self.trace.flush_or_count(chunk));
    }

    /// Goes through the chunks of a buffered trace that are being written, or wait for another thread.
    fn for_each_chunk(&self, mut take: impl FnMut(&ChunkView)) {
        self.live.for_each(&mut take);
        for slot in self.adoption.iter().filter(|slot| slot.claim(SLOT_FULL)) {
            // SAFETY: the slot is ours and was full.
            take(&unsafe { (*slot.chunk.get()).assume_init_ref() }.view());
            slot.state.store(SLOT_FULL, Ordering::Release);
        }
    }

    /// Writes what is known about the process itself, as of a moment before all events.
    fn introduce(&self, chunk: &mut Chunk, event_ns: u64) {
        let introduction_ns = event_ns.saturating_sub(LONGEST_CALL_NS).max(state::last_change_ns());
        let mut put = |fact: Fact<'_>| {
            chunk.append(introduction_ns, StackId::NONE, StackId::NONE, &fact);
        };
        let mut describe = |key, text: &[u8]| {
            put(Fact::ProcessInfo { key, text: &text[..text.len().min(LARGEST_TEXT_BYTES)] });
        };
        describe(ProcessInfoKey::RecorderVersion, env!("CARGO_PKG_VERSION").as_bytes());
        if let Some(arguments) = Descriptor::read_file(c"/proc/self/cmdline") {
            describe(ProcessInfoKey::CommandLine, &arguments);
        }
        if let Ok(path) = std::env::current_exe() {
            describe(ProcessInfoKey::Executable, path.as_os_str().as_bytes());
        }
        if let Ok(path) = std::env::current_dir() {
            describe(ProcessInfoKey::WorkingDirectory, path.as_os_str().as_bytes());
        }
        describe(ProcessInfoKey::Settings, settings::recording().to_environment().as_bytes());
        describe(ProcessInfoKey::HostName, &host_name());
        describe(ProcessInfoKey::AllocatorSettings, &allocator_settings());
        if let Some(pools) = UNSEEN_POOLS.get() {
            describe(ProcessInfoKey::UnseenPools, pools);
        }
        if let Some(version) = python_stacks::version() {
            describe(ProcessInfoKey::PythonVersion, version.as_bytes());
        }
        if let Some(visible) = std::env::var_os("ASCEND_RT_VISIBLE_DEVICES") {
            put(Fact::DeviceMap { text: visible.as_bytes() });
        }
        put(Fact::ClockAnchor { wall_offset_ns: clock::wall_offset_ns() });
        put(Fact::Recording { state: state::current() });
    }
}

/// The variables of the job that tell frameworks how to allocate.
fn allocator_settings() -> Vec<u8> {
    const NAMES: [&str; 5] = [
        "PYTORCH_NPU_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_NO_NPU_MEMORY_CACHING",
        "TASK_QUEUE_ENABLE",
        "ASCEND_LAUNCH_BLOCKING",
    ];
    let mut text = Vec::new();
    for (name, value) in NAMES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))) {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(b'\n');
    }
    text
}

/// Pools of frameworks that cannot be seen here, as a guest said.
static UNSEEN_POOLS: OnceLock<Box<[u8]>> = OnceLock::new();

/// Writes down which pools cannot be seen, now or when the recording begins.
pub fn set_unseen_pools(text: &[u8]) {
    if UNSEEN_POOLS.set(text.into()).is_ok() && existing().is_some() && !state::is_disabled() {
        thread::record_now(&Fact::ProcessInfo { key: ProcessInfoKey::UnseenPools, text });
    }
}

/// Follows settings that changed: moves the recording if it belongs elsewhere now, and writes them down.
pub fn follow_settings() -> Result<(), i32> {
    // What failed elsewhere need not fail here. The limit of a trace does not change.
    if FAILURE.load(Ordering::Relaxed) != LossReason::SizeLimit as u32 {
        NEXT_ATTEMPT_NS.store(0, Ordering::Relaxed);
        REASONS_TOLD.store(0, Ordering::Relaxed);
    }
    let Some(process) = existing() else { return Ok(()) };
    let output = settings::output_directory();
    let prefix = format!("{}_", settings::recording().settings.variant.program_name());
    let directory = process.directory();
    let has_name = directory.file_name().is_some_and(|name| name.as_bytes().starts_with(prefix.as_bytes()));
    if directory.parent() != Some(&output) || !has_name {
        process.follow_to(&output)?;
    }
    let settings = settings::recording().to_environment();
    let text = &settings.as_bytes()[..settings.len().min(LARGEST_TEXT_BYTES)];
    thread::record_now(&Fact::ProcessInfo { key: ProcessInfoKey::Settings, text });
    Ok(())
}

/// Says once that frameworks will not report their pools: they do so only if they find this library,
/// under the name it has, in LD_PRELOAD. Children of a fork have the variable of a later time, when it is no longer
/// needed: they say nothing.
fn warn_about_missing_pools() {
    static JUDGED: AtomicBool = AtomicBool::new(false);
    if JUDGED.swap(true, Ordering::Relaxed) || sources::seen() & SOURCE_POOL != 0 {
        return;
    }
    let preload = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let names_us = |entry: &[u8]| {
        let real_path = std::fs::canonicalize(OsStr::from_bytes(entry));
        real_path.is_ok_and(|path| path.file_name() == Some(OsStr::new("libascend_kernel_hook.so")))
    };
    let reported = preload.as_bytes().split(|byte| matches!(byte, b':' | b' ')).any(names_us);
    if !reported {
        message::say(
            "libascend_kernel_hook.so is not in LD_PRELOAD: PyTorch and MindSpore will not report their memory pools",
        );
    }
}

fn host_name() -> Vec<u8> {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for its length and stays terminated.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    name.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

/// Makes the page that a fork wipes; a child keeps the wiped page of its parent.
fn make_owner_page() {
    if !std::ptr::eq(OWNER.load(Ordering::Relaxed), &raw const NO_OWNER) {
        return;
    }
    const PAGE_BYTES: usize = 4096;
    // SAFETY: a fresh anonymous mapping that is never unmapped; the advice only concerns it.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return;
        }
        if libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) != 0 {
            libc::pthread_atfork(None, None, Some(disown));
        }
        OWNER.store(page.cast(), Ordering::Release);
    }
}

/// Stands in for the wiping where the kernel cannot do it.
unsafe extern "C" fn disown() {
    // SAFETY: the page is never unmapped.
    unsafe { (*OWNER.load(Ordering::Relaxed)).store(NOBODY, Ordering::Release) };
}

/// Where only what is alive matters yet, and nobody has said where results belong, a place that cannot be written is no
/// reason to forget it: it waits among the temporary files until the settings are known.
fn create_for_now(process_id: u32) -> Option<(PathBuf, TraceFile)> {
    let waits = state::current() == RecordingState::Shadow && !settings::recording().is_supervised;
    if waits { create(process_id, &std::env::temp_dir()).ok() } else { None }
}

/// Recording begins: a recording that waits elsewhere goes where it belongs, or it is said where it is.
pub fn settle_place() {
    let Some(process) = existing() else { return };
    let output = settings::output_directory();
    if process.directory().parent() != Some(&output)
        && let Err(errno) = process.follow_to(&output)
    {
        let (place, error) = (process.directory().display(), std::io::Error::from_raw_os_error(errno));
        message::say(&format!("cannot record in {}: {error}; the recording is in {place}", output.display()));
    }
}

/// Makes the directory of this process and the trace file in it.
fn create(process_id: u32, output: &Path) -> Result<(PathBuf, TraceFile), i32> {
    make_directories(output)?;
    let recording = settings::recording();
    let directory = make_process_directory(process_id, output)?;
    let path = c_path(directory.join(TRACE_FILE_NAME).as_os_str())?;
    let identity = ProcessIdentity {
        process_id,
        parent_process_id: std::os::unix::process::parent_id(),
        run_id: recording.run_id,
        wall_offset_ns: recording.wall_clock_offset_ns,
        monotonic_ns: clock::monotonic_ns(),
    };
    match TraceFile::create_with(path, &identity, limit_bytes(&directory), settings::distrusts_mappings()) {
        Ok(trace) => Ok((directory, trace)),
        Err(errno) => {
            remove(&directory);
            Err(errno)
        }
    }
}

/// Removes a directory in which nothing was recorded.
fn remove(directory: &Path) {
    if let (Ok(file), Ok(directory)) =
        (c_path(directory.join(TRACE_FILE_NAME).as_os_str()), c_path(directory.as_os_str()))
    {
        // SAFETY: valid paths; the directory is kept if anything else is in it.
        unsafe {
            libc::unlink(file.as_ptr());
            libc::rmdir(directory.as_ptr());
        }
    }
}

/// Removes a directory in which nothing was recorded, and the output directory if nothing else is in it.
pub fn discard(directory: &Path) {
    remove(directory);
    if let Some(output) = directory.parent().filter(|output| *output != std::env::temp_dir()) {
        remove_if_empty(output);
    }
}

fn remove_if_empty(directory: &Path) {
    if let Ok(directory) = c_path(directory.as_os_str()) {
        // SAFETY: a valid path; a directory with anything in it is kept.
        unsafe { libc::rmdir(directory.as_ptr()) };
    }
}

fn c_path(path: &OsStr) -> Result<CString, i32> {
    CString::new(path.as_bytes()).map_err(|_| libc::EINVAL)
}

fn make_directory(path: &Path) -> Result<(), i32> {
    let path = c_path(path.as_os_str())?;
    // SAFETY: a valid path.
    if unsafe { libc::mkdir(path.as_ptr(), DIRECTORY_MODE) } == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Makes a directory and those above it that are missing.
fn make_directories(path: &Path) -> Result<(), i32> {
    match make_directory(path) {
        Err(libc::ENOENT) => match path.parent() {
            Some(parent) => {
                make_directories(parent)?;
                make_directory(path)
            }
            None => Err(libc::ENOENT),
        },
        Err(libc::EEXIST) => Ok(()),
        result => result,
    }
}

/// Makes the directory of this process. If its name is taken, the time in it moves on one second.
fn make_process_directory(process_id: u32, output: &Path) -> Result<PathBuf, i32> {
    let prefix = settings::recording().settings.variant.program_name();
    let mut local_seconds = local_seconds();
    for _ in 0..CANCELLED_AFTER_COLLISIONS {
        let mut name = format!("{prefix}_{process_id}_");
        for digit in clock::compact_date(local_seconds) {
            name.push(char::from(digit));
        }
        let _ = write!(name, "_ascend");
        let directory = output.join(name);
        match make_directory(&directory) {
            Ok(()) => return Ok(directory),
            Err(libc::EEXIST) => local_seconds += 1,
            Err(errno) => return Err(errno),
        }
    }
    Err(libc::EEXIST)
}

fn local_seconds() -> i64 {
    let wall_seconds = (clock::wall_ns() / 1_000_000_000) as i64;
    let mut offset = LOCAL_OFFSET_SECONDS.load(Ordering::Relaxed);
    if offset == i64::MIN {
        offset = clock::local_offset_seconds(wall_seconds);
        LOCAL_OFFSET_SECONDS.store(offset, Ordering::Relaxed);
    }
    wall_seconds + offset
}

/// Largest size of the trace.
fn limit_bytes(directory: &Path) -> u64 {
    if let Some(limit) = settings::recording().settings.max_trace_size_bytes {
        return limit;
    }
    // SAFETY: plain old data, for which zero is a valid value.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    let known = match c_path(directory.as_os_str()) {
        // SAFETY: both pointers are valid for the call.
        Ok(path) => unsafe { libc::statvfs(path.as_ptr(), &mut facts) == 0 },
        Err(_) => false,
    };
    let free_bytes = facts.f_bavail.saturating_mul(facts.f_frsize);
    if known {
        let little_bytes = (free_bytes / 2).min(LITTLE_SPACE_BYTES);
        (free_bytes / SHARE_OF_FREE_SPACE).clamp(little_bytes, LARGEST_DEFAULT_LIMIT_BYTES)
    } else {
        LARGEST_DEFAULT_LIMIT_BYTES
    }
}

/// Settings as the finisher's environment must not have them.
pub fn environment_without_recorder() -> Vec<CString> {
    std::env::vars_os()
        .filter(|(name, _)| name != "LD_PRELOAD" && name != RECORDING_VARIABLE)
        .filter_map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            CString::new(name.into_vec()).ok()
        })
        .collect()
}
