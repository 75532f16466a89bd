//! The recording of this process: its directory and trace file, made at the first event.
//!
//! A word in a page that the kernel wipes in a forked child says whose recording it is. A child
//! therefore notices at its first event that it needs its own, however it was made, and touches
//! neither the files nor the counters of its parent before that.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use msmemscope_event::{Fact, LossReason, ProcessInfoKey, RecordingState, StackId};
use msmemscope_trace::TRACE_FILE_NAME;
use msmemscope_trace::codec::LARGEST_TEXT_BYTES;
use msmemscope_trace::writer::{Chunk, ChunkError, ChunkView, Incident, ProcessIdentity, TraceFile};

use crate::adoption::Adoption;
use crate::directory::{c_path, discard, limit_bytes, make_directories, make_process_directory, remove};
use crate::live_chunks::LiveChunks;
use crate::{clock, failures, introduction, losses, message, owner, requests, settings, state, strings, thread};

const LONGEST_WAIT_NS: u64 = 5_000_000_000;
/// How long a thread that needs room sleeps before it looks again whether another one has made some.
const PAUSE_BETWEEN_QUESTIONS: Duration = Duration::from_micros(50);

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
static NEXT_GENERATION: AtomicU64 = AtomicU64::new(owner::NOBODY + 1);
/// Process id of whoever is making a recording; zero if nobody is.
static STARTER: AtomicI32 = AtomicI32::new(0);

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
    adoption: Adoption,
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

/// The recording of this process, if it has one.
pub fn existing() -> Option<&'static Process> {
    // SAFETY: null or leaked.
    let process = unsafe { PROCESS.load(Ordering::Acquire).as_ref() }?;
    (process.generation == owner::generation()).then_some(process)
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
        (process.generation == owner::generation()).then_some(visit)
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
        if clock::monotonic_ns() - started_ns > failures::PAUSE_BETWEEN_ATTEMPTS_NS {
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

impl Process {
    fn new(process_id: u32, trace: TraceFile, directory: PathBuf, predecessor: Option<&'static Self>) -> Box<Self> {
        let generation = NEXT_GENERATION.fetch_add(1, Ordering::Relaxed);
        Box::new(Self {
            generation,
            process_id,
            trace,
            directory: AtomicPtr::new(Box::into_raw(Box::new(directory))),
            adoption: Adoption::new(),
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
        owner::make_page();
        let output = settings::output_directory();
        let (directory, trace) = create(process_id, &output)
            .or_else(|errno| create_for_now(process_id).ok_or(errno))
            .map_err(|errno| failures::failed(ChunkError::System(errno), &output, false))?;
        let process = Process::new(process_id, trace, directory, None);
        let mut chunk = match process.fresh_chunk(process_id, clock::monotonic_ns()) {
            Ok(chunk) => chunk,
            Err(reason) => {
                remove(process.directory());
                return Err(reason);
            }
        };
        let process: &'static Process = Box::leak(process);
        introduction::introduce(&mut chunk, event_ns);
        losses::settle(process);
        process.become_current();
        // After the owner is known: texts that come up from now on are written by those who bring them.
        strings::for_each(|fact| process.append(&mut chunk, fact));
        process.adopt(chunk);
        introduction::warn_about_missing_pools();
        failures::try_again();
        Ok(process)
    }

    /// Events are written here from now on. Only whoever may make a recording does this.
    fn become_current(&'static self) {
        PROCESS.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
        owner::become_owner(self.generation);
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
        follow_flight_recorder(&trace);
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
        while let Some(chunk) = self.adoption.take() {
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
        chunk.map_err(|error| failures::failed(error, self.directory(), self.trace.keeps_newest()))
    }

    /// A chunk where none is left: what came and went before recording began, or in a pause, makes room. Other threads
    /// that need one wait for that, but not for ever: who makes room may have been cancelled.
    fn chunk_at_limit(&self, thread_id: u32, monotonic_ns: u64) -> Result<Chunk, ChunkError> {
        let asked_ns = clock::monotonic_ns();
        let mut is_in_vain = false;
        while !self.room_is_exhausted.load(Ordering::Relaxed) && self.generation == owner::generation() {
            let is_ours = !self.makes_room.swap(true, Ordering::Acquire);
            let mut chunk = self.trace.allocate_chunk(thread_id, monotonic_ns);
            if is_ours {
                if chunk.is_err() {
                    let now_ns = clock::monotonic_ns(); // Before the question when the latest pause ends.
                    let gained = self.trace.compact(&state::pauses(), now_ns);
                    let is_for_good = gained == 0 && !self.trace.keeps_newest();
                    self.room_is_exhausted.store(is_for_good, Ordering::Relaxed);
                    is_in_vain = gained == 0;
                    chunk = self.trace.allocate_chunk(thread_id, monotonic_ns);
                }
                self.makes_room.store(false, Ordering::Release);
            }
            match chunk {
                Err(ChunkError::SizeLimit) if is_in_vain => break,
                Err(ChunkError::SizeLimit) if clock::monotonic_ns() - asked_ns > LONGEST_WAIT_NS => break,
                // Whoever makes room takes thousands of times as long as a question.
                Err(ChunkError::SizeLimit) => std::thread::sleep(PAUSE_BETWEEN_QUESTIONS),
                result => return result,
            }
        }
        if self.trace.keeps_newest() {
            return Err(ChunkError::SizeLimit); // The last ones are needed to make room again.
        }
        self.trace.allocate_last_chunk(thread_id, monotonic_ns)
    }

    /// A chunk for a thread: to begin with that of a thread that has ended, from then on new ones, so that what a thread
    /// writes at one time is in the order of its chunks. Where there is no new one, any will do.
    pub fn chunk_for_thread(&self, thread_id: u32, monotonic_ns: u64, is_first: bool) -> Result<Chunk, LossReason> {
        let new = match is_first {
            true => None,
            false => Some(self.fresh_chunk(thread_id, monotonic_ns)),
        };
        if let Some(Ok(chunk)) = new {
            return Ok(chunk);
        }
        while let Some(mut chunk) = self.adoption.take() {
            if chunk.append(monotonic_ns, StackId::NONE, StackId::NONE, &Fact::Thread { thread_id }) {
                return Ok(chunk);
            }
            self.trace.seal_chunk(chunk);
        }
        new.unwrap_or_else(|| self.fresh_chunk(thread_id, monotonic_ns))
    }

    /// Keeps the chunk of a thread that ends for one that begins.
    pub fn adopt(&self, chunk: Chunk) {
        let _ = self.trace.flush_chunk(&chunk);
        if let Some(chunk) = self.adoption.put(chunk) {
            self.trace.seal_chunk(chunk);
        }
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
        self.adoption.for_each(take);
    }
}

/// Follows settings that changed: moves the recording if it belongs elsewhere now, and writes them down.
pub fn follow_settings() -> Result<(), i32> {
    failures::place_changed();
    let Some(process) = existing() else { return Ok(()) };
    let output = settings::output_directory();
    let prefix = format!("{}_", settings::recording().settings.variant.program_name());
    let directory = process.directory();
    let has_name = directory.file_name().is_some_and(|name| name.as_bytes().starts_with(prefix.as_bytes()));
    if directory.parent() != Some(&output) || !has_name {
        process.follow_to(&output)?;
    }
    if let Some(process) = existing() {
        follow_flight_recorder(&process.trace); // Which may be another one now.
    }
    let settings = settings::recording().to_environment();
    let text = &settings.as_bytes()[..settings.len().min(LARGEST_TEXT_BYTES)];
    thread::record_now(&Fact::ProcessInfo { key: ProcessInfoKey::Settings, text });
    Ok(())
}

/// Has a trace keep only the newest if that is asked for.
fn follow_flight_recorder(trace: &TraceFile) {
    if let Some(limit_bytes) = settings::recording().settings.flight_recorder_bytes {
        trace.keep_newest(limit_bytes);
    }
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
        Ok(trace) => {
            if requests::are_taken() {
                trace.accept_requests();
            }
            trace.show_state(state::current());
            follow_flight_recorder(&trace);
            Ok((directory, trace))
        }
        Err(errno) => {
            remove(&directory);
            Err(errno)
        }
    }
}
