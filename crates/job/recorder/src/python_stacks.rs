//! Python stacks of events, and their definitions in the trace.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use msmemscope_event::{Fact, LossReason, ProcessInfoKey, StackId, StringId};
use msmemscope_python_stack::{
    Attachment, Captured, CodeDefinition, Config, Loss, PythonStacks, Sink, Status, ThreadState,
};
use msmemscope_trace::codec::LARGEST_TEXT_BYTES;

use crate::{elf, errno, losses, message, process, real, stacks, strings, thread};

/// Time between two looks for an interpreter.
const PAUSE_BETWEEN_LOOKS_NS: u64 = 10_000_000;
const NEVER: u64 = u64::MAX;

static STACKS: PythonStacks = PythonStacks::new(Config::DEFAULT);
/// When to look for an interpreter next; in the past once one was found.
static NEXT_LOOK_NS: AtomicU64 = AtomicU64::new(0);
/// The loader's count when all libraries were looked at and none had an interpreter.
static SEEN_LOADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: RefCell<ThreadState> = const { RefCell::new(ThreadState::new()) };
}

/// Writes definitions into the trace, with the time of the event that needs them.
struct Definitions {
    monotonic_ns: u64,
}

impl Sink for Definitions {
    fn string(&mut self, text: &[u8]) -> Option<StringId> {
        let id = strings::intern(text);
        (id.is_some() || text.is_empty()).then_some(id)
    }

    fn define_code(&mut self, code: &CodeDefinition<'_>) -> bool {
        let CodeDefinition { id, name, file, first_line, python_version, line_table } = *code;
        if line_table.len() > LARGEST_TEXT_BYTES {
            losses::count(LossReason::TextCut, 1);
        }
        let line_table = &line_table[..line_table.len().min(LARGEST_TEXT_BYTES)];
        let fact = Fact::DefineCode { id, name, file, first_line, python_version, line_table };
        thread::record(self.monotonic_ns, &fact)
    }

    fn define_stack(&mut self, id: StackId, frames: &[u8]) -> bool {
        thread::record(self.monotonic_ns, &Fact::DefinePythonStack { id, frames })
    }
}

/// The calling thread's Python stack at an event. That it is deeper counts as a loss only if the user
/// has asked for a depth.
#[inline]
pub fn take(monotonic_ns: u64, depth: u32) -> StackId {
    if may_be_there(monotonic_ns) { take_or_look(monotonic_ns, depth) } else { StackId::NONE }
}

/// Whether there is an interpreter, or it is time to look for one again.
#[inline(always)]
pub fn may_be_there(monotonic_ns: u64) -> bool {
    monotonic_ns >= NEXT_LOOK_NS.load(Ordering::Relaxed)
}

#[inline(never)]
fn take_or_look(monotonic_ns: u64, depth: u32) -> StackId {
    if !STACKS.is_attached() && !look_for_interpreter(monotonic_ns) {
        return StackId::NONE;
    }
    let captured = THREAD.with(|thread| match thread.try_borrow_mut() {
        Ok(mut thread) => capture(monotonic_ns, depth, &mut thread),
        // In a signal handler, while the thread was taking a stack.
        Err(_) => capture(monotonic_ns, depth, &mut ThreadState::new()),
    });
    match captured.loss {
        None => {}
        Some(Loss::Cut) if !stacks::python_is_asked_for() => {}
        Some(Loss::Cut) => losses::count(LossReason::StackCut, 1),
        Some(Loss::TooMany) => losses::count(LossReason::StackTableFull, 1),
        Some(Loss::Unreadable | Loss::NotDefined) => miss(),
    }
    captured.stack
}

fn capture(monotonic_ns: u64, depth: u32, thread: &mut ThreadState) -> Captured {
    errno::preserved(|| STACKS.capture(thread, depth as usize, &mut Definitions { monotonic_ns }))
}

/// Version of the interpreter, if one was found.
pub fn version() -> Option<String> {
    STACKS.version().map(|version| version.to_string())
}

/// A stack is missing; if that will not change, why is told once.
#[cold]
fn miss() {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    losses::count(LossReason::StackMissing, 1);
    let status = STACKS.status();
    let is_limited = matches!(status, Status::Fallback(..) | Status::Off(..));
    if is_limited && !IS_TOLD.swap(true, Ordering::Relaxed) {
        message::say(&status.to_string());
    }
}

/// Looks for an interpreter, and if there is none, not again for a while.
#[cold]
fn look_for_interpreter(monotonic_ns: u64) -> bool {
    let is_found = errno::aside(|| try_attach(monotonic_ns));
    if !is_found {
        NEXT_LOOK_NS.fetch_max(monotonic_ns + PAUSE_BETWEEN_LOOKS_NS, Ordering::Relaxed);
    }
    is_found
}

fn try_attach(monotonic_ns: u64) -> bool {
    let loads = elf::load_count();
    if SEEN_LOADS.load(Ordering::Relaxed) == loads {
        return false;
    }
    let mut attachment = None;
    elf::for_each_module(|module| {
        if real::is_own(module) || module.exported_symbol(c"PyGILState_GetThisThreadState").is_none() {
            return ControlFlow::Continue(());
        }
        // SAFETY: all symbols are those of this module. An interpreter that runs is not unloaded.
        attachment = Some(unsafe { STACKS.try_attach(&|name| module.exported_symbol(name)) });
        ControlFlow::Break(())
    });
    match attachment {
        None => SEEN_LOADS.store(loads, Ordering::Relaxed),
        Some(Attachment::NotYet) => {}
        Some(Attachment::Attached) => {
            // A trace that is yet to be made tells it by itself.
            if process::existing().is_some()
                && let Some(version) = version()
            {
                let (key, text) = (ProcessInfoKey::PythonVersion, version.as_bytes());
                thread::record(monotonic_ns, &Fact::ProcessInfo { key, text });
            }
            return true;
        }
        Some(Attachment::Refused(refusal)) => {
            NEXT_LOOK_NS.store(NEVER, Ordering::Relaxed);
            message::say(&format!("{refusal}; events are recorded without Python stacks"));
        }
    }
    false
}
