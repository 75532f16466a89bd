//! Call stacks of events: taken in the hook, before the event is written down.
//!
//! What a stack refers to is written by the same thread, right before the event that has it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use msmemscope_event::{Fact, LossReason, ModuleId, StackId};
use msmemscope_settings::Settings;
use msmemscope_unwind::{ModuleDescription, StackSink, ThreadState, Unwinder};

use crate::workplaces::Workplaces;
use crate::{errno, losses, message, python_stacks, stack_room, state, strings, thread};

/// Depth of the stack of an allocation that failed, whatever the settings say.
const FAILURE_DEPTH: u32 = 50;

/// Stack of the thread that must be left to work out rules of frames met for the first time.
const UNWINDING_BYTES: usize = 16 << 10;

/// Frames of native stacks of allocations; zero if none are wanted.
static NATIVE_DEPTH: AtomicU32 = AtomicU32::new(0);
/// The same of frees.
static NATIVE_FREE_DEPTH: AtomicU32 = AtomicU32::new(0);
/// Frames of Python stacks that the user wants; zero if none.
static PYTHON_DEPTH: AtomicU32 = AtomicU32::new(0);
/// The same of frees.
static PYTHON_FREE_DEPTH: AtomicU32 = AtomicU32::new(0);
/// Frames of Python stacks of allocations, which are taken in any case: a report without a line of
/// code is no answer.
static PYTHON_ALLOCATION_DEPTH: AtomicU32 = AtomicU32::new(0);

/// The stacks of one event.
#[derive(Clone, Copy)]
pub struct Stacks {
    /// Native frames.
    pub native: StackId,
    /// Python frames.
    pub python: StackId,
}

impl Stacks {
    /// No stacks.
    pub const NONE: Self = Self { native: StackId::NONE, python: StackId::NONE };
}

/// What the unwinder knows about a thread; null before its first stack.
type Unwinding = Cell<*mut ThreadState>;

thread_local! {
    static UNWINDING: Workplaces<Unwinding> = const { Workplaces::new(Cell::new(std::ptr::null_mut())) };
}

/// Puts settings in force.
pub fn configure(settings: &Settings) {
    let stacks = settings.call_stacks;
    let native_depth = stacks.native_depth.map_or(0, u32::from);
    let python_depth = stacks.python_depth.map_or(0, u32::from);
    let unless = |is_left_out: bool, depth: u32| if is_left_out { 0 } else { depth };
    NATIVE_DEPTH.store(native_depth, Ordering::Relaxed);
    NATIVE_FREE_DEPTH.store(unless(stacks.native_at_allocations_only, native_depth), Ordering::Relaxed);
    PYTHON_DEPTH.store(python_depth, Ordering::Relaxed);
    PYTHON_FREE_DEPTH.store(unless(stacks.python_at_allocations_only, python_depth), Ordering::Relaxed);
    PYTHON_ALLOCATION_DEPTH.store(python_depth.max(u32::from(settings.python_frames)), Ordering::Relaxed);
}

/// Whether a memory event has stacks. In programs without Python and without native stacks this is
/// all that events pay for the possibility.
#[inline(always)]
pub fn are_wanted(monotonic_ns: u64, is_allocation: bool) -> bool {
    let has_python = python_depth(is_allocation) != 0 && python_stacks::may_be_there(monotonic_ns);
    (has_python || native_depth(is_allocation) != 0) && state::records_everything()
}

/// The stacks of a memory event that happens now or, for frees, happened at `monotonic_ns`.
pub fn of_event(monotonic_ns: u64, is_allocation: bool) -> Stacks {
    let native_depth = native_depth(is_allocation);
    let python_depth = python_depth(is_allocation);
    Stacks {
        native: if native_depth == 0 { StackId::NONE } else { take_native(monotonic_ns, native_depth) },
        python: take_python(monotonic_ns, python_depth),
    }
}

#[inline(always)]
fn native_depth(is_allocation: bool) -> u32 {
    if is_allocation { &NATIVE_DEPTH } else { &NATIVE_FREE_DEPTH }.load(Ordering::Relaxed)
}

#[inline(always)]
fn python_depth(is_allocation: bool) -> u32 {
    if is_allocation { &PYTHON_ALLOCATION_DEPTH } else { &PYTHON_FREE_DEPTH }.load(Ordering::Relaxed)
}

#[inline(always)]
fn take_python(monotonic_ns: u64, depth: u32) -> StackId {
    if depth == 0 { StackId::NONE } else { python_stacks::take(monotonic_ns, depth) }
}

/// Whether the user wants Python stacks.
pub fn python_is_asked_for() -> bool {
    PYTHON_DEPTH.load(Ordering::Relaxed) != 0
}

/// The stack of an access: the line of code that uses memory is as good to know as the one that allocates.
pub fn of_access(monotonic_ns: u64) -> Stacks {
    let depth = PYTHON_ALLOCATION_DEPTH.load(Ordering::Relaxed);
    Stacks { native: StackId::NONE, python: take_python(monotonic_ns, depth) }
}

/// The stacks of an allocation that failed.
#[cold]
pub fn of_failure(monotonic_ns: u64) -> Stacks {
    let depth = NATIVE_DEPTH.load(Ordering::Relaxed).max(FAILURE_DEPTH);
    let python_depth = PYTHON_ALLOCATION_DEPTH.load(Ordering::Relaxed);
    Stacks { native: take_native(monotonic_ns, depth), python: take_python(monotonic_ns, python_depth) }
}

/// Takes the native stack of the caller.
#[inline(never)]
fn take_native(monotonic_ns: u64, depth: u32) -> StackId {
    if !stack_room::has(UNWINDING_BYTES) {
        losses::count(LossReason::StackMissing, 1);
        return StackId::NONE;
    }
    UNWINDING.with(|places| {
        let own = places.take_own();
        let Some(place) = own.or_else(|| errno::preserved(|| places.take_spare(Unwinding::default))) else {
            losses::count(LossReason::StackMissing, 1);
            return StackId::NONE;
        };
        let taken = errno::preserved(|| catch_unwind(AssertUnwindSafe(|| take(&place, monotonic_ns, depth))));
        taken.unwrap_or_else(|_| {
            losses::count(LossReason::Internal, 1);
            NATIVE_DEPTH.store(0, Ordering::Relaxed);
            NATIVE_FREE_DEPTH.store(0, Ordering::Relaxed);
            message::say("internal error: native stacks end here, the job and the recording go on");
            StackId::NONE
        })
    })
}

#[inline(always)]
fn take(unwinding: &Unwinding, monotonic_ns: u64, depth: u32) -> StackId {
    let Some(unwinder) = Unwinder::global() else {
        losses::count(LossReason::StackMissing, 1);
        return StackId::NONE;
    };
    if unwinding.get().is_null() {
        unwinding.set(Box::into_raw(ThreadState::boxed()));
    }
    // SAFETY: not null, belongs to this thread, and to whoever has taken the place it is at.
    let unwinding = unsafe { &mut *unwinding.get() };
    let capture = unwinder.capture(depth as usize, unwinding, &mut Definitions { monotonic_ns });
    if let Some(reason) = capture.loss {
        losses::count(reason, 1);
    }
    capture.stack
}

/// Gives back what the unwinder knows about a thread that ends.
pub fn forget_thread() {
    UNWINDING.with(|places| {
        places.clear_up(|unwinding| {
            let unwinding = unwinding.replace(std::ptr::null_mut());
            if !unwinding.is_null() {
                // SAFETY: made from a box in this thread, and no longer used.
                drop(unsafe { Box::from_raw(unwinding) });
            }
        });
    });
}

/// Writes down what stacks consist of, with the time of the event that has them.
struct Definitions {
    monotonic_ns: u64,
}

impl StackSink for Definitions {
    fn define_stack(&mut self, id: StackId, frames: &[u64]) -> bool {
        // SAFETY: plain words, looked at as bytes. The machines we run on are little-endian.
        let frames = unsafe { std::slice::from_raw_parts(frames.as_ptr().cast::<u8>(), size_of_val(frames)) };
        thread::record(self.monotonic_ns, &Fact::DefineNativeStack { id, frames })
    }

    fn define_module(&mut self, module: &ModuleDescription<'_>) {
        let path = strings::intern(module.path);
        let ModuleDescription { id, start_address, end_address, load_bias, build_id, .. } = *module;
        let fact = Fact::DefineModule { id, start_address, end_address, load_bias, path, build_id };
        thread::record(self.monotonic_ns, &fact);
    }

    fn module_gone(&mut self, id: ModuleId) {
        thread::record(self.monotonic_ns, &Fact::ModuleGone { id });
    }
}
