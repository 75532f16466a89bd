//! Stacks and code objects get ids; what is new goes to a sink once.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use msmemscope_event::{CodeId, PythonFrame, StackId};
use msmemscope_intern::{Hasher, InternTable, Interned, Key};

use crate::check::{self, Verdict};
use crate::code::{Identity, Text, line_table};
use crate::code_deaths;
use crate::fingerprint::Fingerprint;
use crate::gate::Gate;
use crate::interpreter::{Absence, Interpreter};
use crate::last_walk::LastWalk;
use crate::layout::{KnownLayout, Layout};
use crate::memo::Memo;
use crate::memory::Address;
use crate::preparation::Request;
use crate::sink::{CodeDefinition, Sink};
use crate::status::{Attachment, FallbackReason, PythonVersion, Refusal, Status};
use crate::walk::{End, Frames};

/// Deepest stack that can be asked for.
pub const LARGEST_DEPTH: usize = 1000;
const FRAME_BYTES: usize = 8;

/// Sizes of the tables, as powers of two.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Slots for stacks, 16 bytes each; three quarters can be used.
    pub stack_slot_bits: u32,
    /// Slots for code objects.
    pub code_slot_bits: u32,
}

impl Config {
    /// 196,608 stacks in 4 MiB and 49,152 code objects in 1 MiB, of which only what is used is touched. More follow in
    /// larger tables when these are full.
    pub const DEFAULT: Self = Self { stack_slot_bits: 18, code_slot_bits: 16 };
}

/// What a thread remembers between captures.
#[derive(Debug)]
pub struct ThreadState {
    last_walk: LastWalk,
    generation: u64,
    key: Key,
    stack: StackId,
}

impl ThreadState {
    /// Nothing remembered.
    pub const fn new() -> Self {
        Self { last_walk: LastWalk::new(), generation: 0, key: Key::NONE, stack: StackId::NONE }
    }
}

impl Default for ThreadState {
    fn default() -> Self {
        Self::new()
    }
}

/// A captured stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its id; none if the thread runs no Python code, or if it could not be taken.
    pub stack: StackId,
    /// What is missing.
    pub loss: Option<Loss>,
}

/// What is missing of a captured stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is deeper than asked for; the outer frames are missing.
    Cut,
    /// The frames could not be read: a damaged chain, or the fallback without the interpreter's lock.
    Unreadable,
    /// The sink refused a definition, or there are too many code objects.
    NotDefined,
    /// There are more distinct stacks than the table holds.
    TooMany,
}

impl Captured {
    const NOTHING: Self = Self { stack: StackId::NONE, loss: None };

    fn lost(loss: Loss) -> Self {
        Self { stack: StackId::NONE, loss: Some(loss) }
    }
}

const MODE_UNCHECKED: u8 = 0;
const MODE_WALKING: u8 = 1;
/// Plus the reason.
const MODE_FALLBACK: u8 = 2;

/// Ids of stacks and code objects. Never freed: they outlive interpreters.
struct Tables {
    stacks: InternTable,
    codes: InternTable,
}

/// Everything that exists once an interpreter was found. Never freed.
struct Attached {
    interpreter: Interpreter,
    known_layout: Option<KnownLayout>,
    mode: AtomicU8,
    gate: Gate,
    preparation: Request,
    memo: Memo,
    tables: &'static Tables,
    owner: &'static PythonStacks,
}

/// Python stacks of this process.
pub struct PythonStacks {
    attached: AtomicPtr<Attached>,
    tables: AtomicPtr<Tables>,
    config: Config,
}

impl PythonStacks {
    /// No interpreter known yet. Takes no memory.
    pub const fn new(config: Config) -> Self {
        let (attached, tables) = (AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut()));
        Self { attached, tables, config }
    }

    /// Looks for the interpreter, if none is known. `lookup` says where a symbol is. An interpreter
    /// that has shut down is forgotten; the next one may be found again.
    ///
    /// # Safety
    /// All addresses must be those of one CPython, which stays loaded until it has shut down.
    #[cold]
    pub unsafe fn try_attach(&'static self, lookup: &dyn Fn(&CStr) -> Option<usize>) -> Attachment {
        if self.attached().is_some() {
            return Attachment::Attached;
        }
        // SAFETY: promised by the caller.
        let interpreter = match unsafe { Interpreter::find(lookup) } {
            Ok(interpreter) => interpreter,
            Err(Absence::NotYet) => return Attachment::NotYet,
            Err(Absence::Refused(refusal)) => return Attachment::Refused(refusal),
        };
        let Some(tables) = self.tables() else { return Attachment::Refused(Refusal::NoMemory) };
        let mode = AtomicU8::new(match interpreter.layout {
            Ok(_) => MODE_UNCHECKED,
            Err(reason) => MODE_FALLBACK + reason as u8,
        });
        let known_layout = interpreter.layout.as_ref().ok().and_then(KnownLayout::recognise);
        let (gate, preparation) = (Gate::new(), Request::new());
        let memo = Memo::new();
        let attached = Attached { interpreter, known_layout, mode, gate, preparation, memo, tables, owner: self };
        // If another thread was faster, ours is forgotten.
        publish(&self.attached, Box::new(attached));
        Attachment::Attached
    }

    /// The tables, which are made at the first call.
    fn tables(&self) -> Option<&'static Tables> {
        // SAFETY: null or never freed.
        if let Some(tables) = unsafe { self.tables.load(Ordering::Acquire).as_ref() } {
            return Some(tables);
        }
        let stacks = InternTable::new(self.config.stack_slot_bits)?;
        let codes = InternTable::new(self.config.code_slot_bits)?;
        Some(publish(&self.tables, Box::new(Tables { stacks, codes })))
    }

    #[inline(always)]
    fn attached(&self) -> Option<&'static Attached> {
        // SAFETY: null or never freed.
        unsafe { self.attached.load(Ordering::Acquire).as_ref() }
    }

    /// Whether an interpreter was found.
    #[inline(always)]
    pub fn is_attached(&self) -> bool {
        self.attached().is_some()
    }

    /// Version of the interpreter that was found.
    pub fn version(&self) -> Option<PythonVersion> {
        self.attached().map(|attached| attached.interpreter.version)
    }

    /// How stacks are taken.
    pub fn status(&self) -> Status {
        let Some(attached) = self.attached() else { return Status::NotAttached };
        let version = attached.interpreter.version;
        match attached.mode.load(Ordering::Relaxed) {
            MODE_UNCHECKED => Status::WalkingUnchecked(version),
            MODE_WALKING => Status::Walking(version),
            mode => {
                let reason = fallback_reason(mode);
                let has_api = attached.interpreter.api.is_some();
                if has_api { Status::Fallback(version, reason) } else { Status::Off(version, reason) }
            }
        }
    }

    /// The calling thread's Python stack, up to `depth` frames from the innermost.
    ///
    /// Never waits and never takes the interpreter's lock.
    #[inline]
    pub fn capture(&self, thread: &mut ThreadState, depth: usize, sink: &mut impl Sink) -> Captured {
        let Some(attached) = self.attached() else { return Captured::NOTHING };
        let depth = depth.min(LARGEST_DEPTH);
        match &attached.interpreter.layout {
            Ok(layout) if attached.mode.load(Ordering::Relaxed) < MODE_FALLBACK => {
                attached.capture_from_frames(layout, thread, depth, sink)
            }
            _ => attached.capture_with_api(depth, sink),
        }
    }
}

/// Puts something where all threads see it, for good; returns what is there then.
fn publish<T>(place: &AtomicPtr<T>, value: Box<T>) -> &'static T {
    let value = Box::into_raw(value);
    let published = match place.compare_exchange(null_mut(), value, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => value,
        Err(other) => other,
    };
    // SAFETY: neither is ever freed.
    unsafe { &*published }
}

fn fallback_reason(mode: u8) -> FallbackReason {
    const REASONS: [FallbackReason; 4] = [
        FallbackReason::UnknownVersion,
        FallbackReason::TracedReferences,
        FallbackReason::FramesDiffer,
        FallbackReason::CodeDiffers,
    ];
    REASONS[usize::from(mode.saturating_sub(MODE_FALLBACK)).min(REASONS.len() - 1)]
}

/// # Safety
/// `subject` must be an [`Attached`].
unsafe fn attached_at<'a>(subject: *const c_void) -> &'a Attached {
    // SAFETY: promised by the caller; these are never freed.
    unsafe { &*subject.cast() }
}

/// The pending call.
unsafe extern "C" fn prepare(subject: *mut c_void) -> c_int {
    // SAFETY: the subject passed with the request.
    unsafe { attached_at(subject) }.prepare();
    0
}

fn end_begins(subject: *const c_void) {
    // SAFETY: the subject passed to `listen`.
    unsafe { attached_at(subject) }.gate.close();
}

fn end_is_over(subject: *const c_void) {
    // SAFETY: the subject passed to `listen`.
    let owner = unsafe { attached_at(subject) }.owner;
    owner.attached.store(null_mut(), Ordering::Release);
    code_deaths::stop();
}

/// Bytes of the longest definition: behind the frames is said that there are more.
const DEFINITION_BYTES: usize = (LARGEST_DEPTH + 1) * FRAME_BYTES;

/// Bytes of a stack's definition in the making.
struct FrameBytes {
    bytes: [u8; DEFINITION_BYTES],
    length: usize,
    is_complete: bool,
}

impl FrameBytes {
    fn new() -> Self {
        Self { bytes: [0; DEFINITION_BYTES], length: 0, is_complete: true }
    }

    fn push(&mut self, frame: Option<PythonFrame>) {
        let Some(frame) = frame.filter(|_| self.length + FRAME_BYTES <= self.bytes.len()) else {
            self.is_complete = false;
            return;
        };
        let place = &mut self.bytes[self.length..self.length + FRAME_BYTES];
        place[..4].copy_from_slice(&frame.code.0.to_le_bytes());
        place[4..].copy_from_slice(&frame.instruction_offset.to_le_bytes());
        self.length += FRAME_BYTES;
    }

    /// Says of a stack that goes on further out that it does.
    fn end(&mut self, end: End) {
        if end == End::Limit {
            self.push(Some(PythonFrame::NOT_RECORDED_FURTHER));
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Attached {
    fn subject(&self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }

    /// Self-check and arrangements for the end, in the interpreter's main thread with its lock held.
    fn prepare(&self) {
        let interpreter = &self.interpreter;
        let (Some(functions), Ok(layout)) = (&interpreter.preparation, &interpreter.layout) else { return };
        // SAFETY: this is the main thread, it holds the lock, and `self` is never freed.
        if unsafe { functions.listen(self.subject(), end_begins, end_is_over) } {
            self.gate.note_main_thread();
            if let Some(code_type) = interpreter.code_type {
                // SAFETY: the lock is held.
                unsafe { code_deaths::count(code_type) };
            }
        }
        let (Some(api), true) = (&interpreter.api, interpreter.holds_lock()) else { return };
        let Some(state) = interpreter.readable_thread_state(layout) else { return };
        // SAFETY: this thread holds the lock, and the state is its own.
        let mode = match unsafe { check::compare(api, layout, state) } {
            Verdict::Undecided => return,
            Verdict::Same => MODE_WALKING,
            Verdict::Different(reason) => MODE_FALLBACK + reason as u8,
        };
        let _ = self.mode.compare_exchange(MODE_UNCHECKED, mode, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline(always)]
    fn capture_from_frames(
        &self,
        layout: &Layout,
        thread: &mut ThreadState,
        depth: usize,
        sink: &mut impl Sink,
    ) -> Captured {
        let Some(_pass) = self.gate.enter() else { return Captured::NOTHING };
        let Some(state) = self.interpreter.readable_thread_state(layout) else { return Captured::NOTHING };
        self.preparation.once(self.interpreter.preparation.as_ref(), prepare, self.subject());
        let memo = code_deaths::counted().map(|deaths| self.memo.at(deaths));
        // SAFETY: the state is the calling thread's.
        let fingerprint =
            unsafe { Fingerprint::take(layout, self.known_layout, state, depth, memo, &mut thread.last_walk) };
        let loss = match fingerprint.end {
            End::Outermost => None,
            End::Limit => Some(Loss::Cut),
            End::Damaged => return Captured::lost(Loss::Unreadable),
        };
        if fingerprint.frame_count == 0 {
            return Captured { stack: StackId::NONE, loss };
        }
        let key = fingerprint.key;
        let generation = self.tables.stacks.generation();
        if thread.key == key && thread.generation == generation {
            return Captured { stack: thread.stack, loss };
        }
        let stack = match self.tables.stacks.intern(key) {
            Interned::Known(id) => StackId(id),
            Interned::New { id, slot } => {
                if !self.define_from_frames(layout, state, depth, StackId(id), sink) {
                    return Captured::lost(Loss::NotDefined);
                }
                self.tables.stacks.publish(slot);
                StackId(id)
            }
            Interned::Full => return Captured::lost(Loss::TooMany),
        };
        (thread.generation, thread.key, thread.stack) = (generation, key, stack);
        Captured { stack, loss }
    }

    /// Walks again and defines what is seen.
    #[cold]
    #[inline(never)]
    fn define_from_frames(
        &self,
        layout: &Layout,
        state: Address,
        depth: usize,
        stack: StackId,
        sink: &mut impl Sink,
    ) -> bool {
        let mut frames = FrameBytes::new();
        // SAFETY: as in `capture_from_frames`.
        let mut walk = unsafe { Frames::of_thread(layout, state, depth) };
        for frame in walk.by_ref() {
            // SAFETY: the frame is alive, so is its executable.
            let code = unsafe { self.code_id(layout, frame.code, sink) };
            let instruction_offset = frame.instruction_offset(layout);
            frames.push(code.map(|code| PythonFrame { code, instruction_offset }));
        }
        frames.end(walk.end());
        frames.is_complete && sink.define_stack(stack, frames.as_bytes())
    }

    /// The id of a code object, which is defined if need be.
    ///
    /// # Safety
    /// `code` must be the executable of a live frame of this thread.
    unsafe fn code_id(&self, layout: &Layout, code: Address, sink: &mut impl Sink) -> Option<CodeId> {
        // SAFETY: promised by the caller.
        let (identity, name) = unsafe { (Identity::of(layout, code), code.load::<usize>(layout.code_name)) };
        let mut hasher = Hasher::new();
        hasher.add([code.get() as u64, name as u64, identity.file_and_table, identity.line_and_serial]);
        match self.tables.codes.intern(hasher.finish(0)) {
            Interned::Known(id) => Some(CodeId(id)),
            Interned::New { id, slot } => {
                // SAFETY: promised by the caller.
                let is_defined = unsafe { self.define_code(layout, code, CodeId(id), sink) };
                is_defined.then(|| {
                    self.tables.codes.publish(slot);
                    CodeId(id)
                })
            }
            Interned::Full => None,
        }
    }

    /// # Safety
    /// As for [`Attached::code_id`].
    unsafe fn define_code(&self, layout: &Layout, code: Address, id: CodeId, sink: &mut impl Sink) -> bool {
        let mut text = Text::new();
        // SAFETY: promised by the caller. Other kinds of executables have no such fields.
        unsafe {
            if !self.interpreter.is_code(code) {
                return false;
            }
            let mut read = |field: u16| {
                let readable = code.follow(field).and_then(|object| text.read(layout, object));
                sink.string(if readable.is_some() { text.as_bytes() } else { b"?" })
            };
            let Some((name, file)) = read(layout.code_name).zip(read(layout.code_file)) else { return false };
            let first_line = code.load(layout.code_first_line);
            let python_version = self.interpreter.version.code();
            let line_table = line_table(layout, code);
            sink.define_code(&CodeDefinition { id, name, file, first_line, python_version, line_table })
        }
    }

    /// The fallback: through the interpreter's functions, if this thread holds the lock.
    #[cold]
    #[inline(never)]
    fn capture_with_api(&self, depth: usize, sink: &mut impl Sink) -> Captured {
        let Some(api) = &self.interpreter.api else { return Captured::NOTHING };
        if !self.interpreter.holds_lock() {
            return Captured::lost(Loss::Unreadable);
        }
        // SAFETY: this thread holds the lock.
        unsafe { api.undisturbed(|| self.capture_undisturbed(api, depth, sink)) }
    }

    /// # Safety
    /// Inside [`crate::api::ApiFunctions::undisturbed`].
    unsafe fn capture_undisturbed(
        &self,
        api: &crate::api::ApiFunctions,
        depth: usize,
        sink: &mut impl Sink,
    ) -> Captured {
        let mut hasher = Hasher::new();
        let mut count = 0;
        // SAFETY: promised by the caller.
        let end = unsafe {
            api.walk(depth, |code, offset| {
                hasher.add([code as u64, u64::from(offset), 0, 0]);
                count += 1;
            })
        };
        let loss = match end {
            End::Outermost => None,
            End::Limit => Some(Loss::Cut),
            End::Damaged => return Captured::lost(Loss::Unreadable),
        };
        if count == 0 {
            return Captured { stack: StackId::NONE, loss };
        }
        match self.tables.stacks.intern(hasher.finish(end.counted(count))) {
            Interned::Known(id) => Captured { stack: StackId(id), loss },
            Interned::New { id, slot } => {
                let mut frames = FrameBytes::new();
                // SAFETY: promised by the caller; the frames keep their code objects alive.
                let end = unsafe {
                    api.walk(depth, |code, instruction_offset| {
                        let code = self.code_id_with_api(api, code, sink);
                        frames.push(code.map(|code| PythonFrame { code, instruction_offset }));
                    })
                };
                frames.end(end);
                if !frames.is_complete || !sink.define_stack(StackId(id), frames.as_bytes()) {
                    return Captured::lost(Loss::NotDefined);
                }
                self.tables.stacks.publish(slot);
                Captured { stack: StackId(id), loss }
            }
            Interned::Full => Captured::lost(Loss::TooMany),
        }
    }

    /// The id of a code object. It is kept alive for good: its address is all we know it by.
    ///
    /// # Safety
    /// As for [`Attached::capture_undisturbed`], with a live code object.
    unsafe fn code_id_with_api(
        &self,
        api: &crate::api::ApiFunctions,
        code: usize,
        sink: &mut impl Sink,
    ) -> Option<CodeId> {
        let mut hasher = Hasher::new();
        hasher.add([code as u64, 0, 0, 0]);
        match self.tables.codes.intern(hasher.finish(0)) {
            Interned::Known(id) => Some(CodeId(id)),
            Interned::New { id, slot } => {
                let id = CodeId(id);
                let python_version = self.interpreter.version.code();
                // SAFETY: promised by the caller.
                unsafe {
                    let texts = api.texts_of(code)?;
                    let name = sink.string(texts.name.as_bytes())?;
                    let file = sink.string(texts.file.as_bytes())?;
                    let first_line = texts.first_line;
                    let is_defined = api.with_line_table(code, |line_table| {
                        sink.define_code(&CodeDefinition { id, name, file, first_line, python_version, line_table })
                    });
                    if !is_defined {
                        return None;
                    }
                    api.keep_alive(code);
                }
                self.tables.codes.publish(slot);
                Some(id)
            }
            Interned::Full => None,
        }
    }
}
