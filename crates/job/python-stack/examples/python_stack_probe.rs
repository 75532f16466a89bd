//! A library that real interpreters load in the tests: captures the caller's Python stack and says
//! what it saw, through plain C functions.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use msmemscope_event::{StackId, StringId};
use msmemscope_python_stack::{Attachment, Captured, CodeDefinition, Config, Loss, PythonStacks, Sink, ThreadState};

static STACKS: PythonStacks = PythonStacks::new(Config::DEFAULT);
static DEFINITIONS: Mutex<Option<Definitions>> = Mutex::new(None);
static ALLOCATOR_LOCK: Mutex<()> = Mutex::new(());
static WANTS_ALLOCATOR_LOCK: AtomicBool = AtomicBool::new(false);
static FAKE_VERSION: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: std::cell::RefCell<ThreadState> = const { std::cell::RefCell::new(ThreadState::new()) };
}

#[derive(Default)]
struct Definitions {
    strings: Vec<Vec<u8>>,
    string_ids: HashMap<Vec<u8>, u32>,
    codes: HashMap<u32, Code>,
    stacks: HashMap<u32, Vec<u8>>,
}

struct Code {
    name: StringId,
    file: StringId,
    first_line: u32,
    python_version: u32,
    line_table: Vec<u8>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_definitions<T>(work: impl FnOnce(&mut Definitions) -> T) -> T {
    work(lock(&DEFINITIONS).get_or_insert_default())
}

/// Keeps definitions in memory.
struct Keeper;

impl Sink for Keeper {
    fn string(&mut self, text: &[u8]) -> Option<StringId> {
        with_definitions(|definitions| {
            let next = definitions.strings.len() as u32 + 1;
            let id = *definitions.string_ids.entry(text.to_vec()).or_insert(next);
            if id == next {
                definitions.strings.push(text.to_vec());
            }
            Some(StringId(id))
        })
    }

    fn define_code(&mut self, code: &CodeDefinition<'_>) -> bool {
        let CodeDefinition { id, name, file, first_line, python_version, line_table } = *code;
        let kept = Code { name, file, first_line, python_version, line_table: line_table.to_vec() };
        with_definitions(|definitions| definitions.codes.insert(id.0, kept));
        true
    }

    fn define_stack(&mut self, id: StackId, frames: &[u8]) -> bool {
        with_definitions(|definitions| definitions.stacks.insert(id.0, frames.to_vec()));
        true
    }
}

extern "C" fn pretended_version() -> *const c_char {
    FAKE_VERSION.load(Ordering::Relaxed) as *const c_char
}

/// Looks for the interpreter: 0 attached, 1 not yet, 2 refused. A version other than null is believed
/// instead of the interpreter's own.
///
/// # Safety
/// `version` must be null or a C string that stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_attach(version: *const c_char) -> c_int {
    FAKE_VERSION.store(version as u64, Ordering::Relaxed);
    let lookup = |name: &CStr| {
        if !version.is_null() && name == c"Py_GetVersion" {
            return Some(pretended_version as *const () as usize);
        }
        // SAFETY: a valid name.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
        (address != 0).then_some(address)
    };
    // SAFETY: the process has one interpreter, which stays loaded.
    match unsafe { STACKS.try_attach(&lookup) } {
        Attachment::Attached => 0,
        Attachment::NotYet => 1,
        Attachment::Refused(_) => 2,
    }
}

/// Copies a text as far as it fits; returns its whole length.
///
/// # Safety
/// `buffer` must have `length` bytes.
unsafe fn answer(text: &[u8], buffer: *mut u8, length: usize) -> usize {
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len().min(length)) };
    text.len()
}

/// How stacks are taken.
///
/// # Safety
/// `buffer` must have `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_status(buffer: *mut u8, length: usize) -> usize {
    // SAFETY: promised by the caller.
    unsafe { answer(STACKS.status().to_string().as_bytes(), buffer, length) }
}

fn capture(depth: usize) -> Captured {
    THREAD.with_borrow_mut(|thread| STACKS.capture(thread, depth, &mut Keeper))
}

/// Captures: id in the lower half, loss in the upper (0 none, 1 cut, 2 unreadable, 3 not defined, 4 too many).
#[unsafe(no_mangle)]
pub extern "C" fn probe_capture(depth: usize) -> u64 {
    let captured = capture(depth);
    let loss = match captured.loss {
        None => 0,
        Some(Loss::Cut) => 1,
        Some(Loss::Unreadable) => 2,
        Some(Loss::NotDefined) => 3,
        Some(Loss::TooMany) => 4,
    };
    loss << 32 | u64::from(captured.stack.0)
}

/// Captures in a thread that the interpreter does not know.
#[unsafe(no_mangle)]
pub extern "C" fn probe_capture_elsewhere(depth: usize) -> u64 {
    std::thread::spawn(move || probe_capture(depth)).join().unwrap_or(u64::MAX)
}

/// Frames of a stack: a line each of name, file, first line, instruction offset, version, and line
/// table in hexadecimal digits; a line `...` where it goes on further out.
///
/// # Safety
/// `buffer` must have `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_describe(stack: u32, buffer: *mut u8, length: usize) -> usize {
    let text = with_definitions(|definitions| {
        let mut text = Vec::new();
        let Some(frames) = definitions.stacks.get(&stack) else { return text };
        for frame in frames.as_chunks::<8>().0 {
            let number = u64::from_le_bytes(*frame);
            if number == 0 {
                text.extend_from_slice(b"...\n");
                continue;
            }
            let code = &definitions.codes[&(number as u32)];
            let mut rest = format!("\t{}\t{}\t{:#x}\t", code.first_line, number >> 32, code.python_version);
            code.line_table.iter().for_each(|byte| write!(rest, "{byte:02x}").expect("memory"));
            text.extend_from_slice(&definitions.strings[code.name.0 as usize - 1]);
            text.push(b'\t');
            text.extend_from_slice(&definitions.strings[code.file.0 as usize - 1]);
            text.extend_from_slice(rest.as_bytes());
            text.push(b'\n');
        }
        text
    });
    // SAFETY: promised by the caller.
    unsafe { answer(&text, buffer, length) }
}

/// Number of defined stacks and code objects, in the lower and upper half.
#[unsafe(no_mangle)]
pub extern "C" fn probe_definition_count() -> u64 {
    with_definitions(|definitions| (definitions.codes.len() as u64) << 32 | definitions.stacks.len() as u64)
}

/// Forgets all definitions, as a forked child does that writes its own trace.
#[unsafe(no_mangle)]
pub extern "C" fn probe_forget() {
    with_definitions(|definitions| *definitions = Definitions::default());
}

/// Captures with an allocator's lock held, as soon as another thread wants that lock.
#[unsafe(no_mangle)]
pub extern "C" fn probe_hold_lock_and_capture(depth: usize) -> u64 {
    let _guard = lock(&ALLOCATOR_LOCK);
    while !WANTS_ALLOCATOR_LOCK.swap(false, Ordering::AcqRel) {
        std::thread::yield_now();
    }
    probe_capture(depth)
}

/// Takes the allocator's lock, then captures.
#[unsafe(no_mangle)]
pub extern "C" fn probe_want_lock_and_capture(depth: usize) -> u64 {
    WANTS_ALLOCATOR_LOCK.store(true, Ordering::Release);
    let _guard = lock(&ALLOCATOR_LOCK);
    probe_capture(depth)
}

/// Nanoseconds per capture in the best of `batches` short batches, which others on the machine hardly
/// disturb. With `alternate` the depth changes from capture to capture, so that none finds what the
/// thread remembers.
#[unsafe(no_mangle)]
pub extern "C" fn probe_measure(depth: usize, batches: u32, alternate: c_int) -> f64 {
    const BATCH: usize = 1000;
    let variation = if alternate != 0 { 2 } else { 1 };
    let mut best_ns = f64::INFINITY;
    for _ in 0..batches {
        let start = Instant::now();
        THREAD.with_borrow_mut(|thread| {
            for round in 0..BATCH {
                black_box(STACKS.capture(thread, depth - round % variation, &mut Keeper));
            }
        });
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    best_ns
}

/// Nanoseconds of the median capture when other work has just used the processor's caches, above that
/// of an empty measurement.
#[unsafe(no_mangle)]
pub extern "C" fn probe_measure_after_other_work(depth: usize, rounds: u32) -> f64 {
    const OTHER_WORK_BYTES: usize = 256 << 10;
    let mut other_work = vec![1_u8; OTHER_WORK_BYTES];
    let mut median_ns = |work: &mut dyn FnMut()| {
        let mut times: Vec<u128> = (0..rounds)
            .map(|_| {
                other_work.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
                let start = Instant::now();
                work();
                start.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2] as f64
    };
    let empty_ns = median_ns(&mut || ());
    median_ns(&mut || {
        black_box(capture(depth));
    }) - empty_ns
}

/// Calls a function of the user's from C.
///
/// # Safety
/// `function` must be callable with `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_call(function: extern "C" fn(*mut c_void), argument: *mut c_void) {
    function(argument);
}
