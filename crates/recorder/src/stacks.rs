//! Call stacks of events: taken in the hook, before the event is written down.
//!
//! What a stack refers to is written by the same thread, right before the event that has it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use msmemscope_config::CallStacks;
use msmemscope_event::{Fact, LossReason, ModuleId, StackId};
use msmemscope_unwind::{ModuleDescription, StackSink, ThreadState, Unwinder};

use crate::{errno, losses, message, state, strings, thread};

/// Depth of the stack of an allocation that failed, whatever the settings say.
const FAILURE_DEPTH: u32 = 50;

/// Frames of native stacks; zero if none are wanted.
static NATIVE_DEPTH: AtomicU32 = AtomicU32::new(0);

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

struct Context {
    /// Where on the stack a stack is being taken, zero if none is.
    taking: Cell<usize>,
    /// What the unwinder knows about this thread; null before its first stack.
    unwinding: Cell<*mut ThreadState>,
}

thread_local! {
    static CONTEXT: Context =
        const { Context { taking: Cell::new(0), unwinding: Cell::new(std::ptr::null_mut()) } };
}

/// Puts settings in force.
pub fn configure(settings: CallStacks) {
    NATIVE_DEPTH.store(settings.native_depth.map_or(0, u32::from), Ordering::Relaxed);
}

/// Whether memory events have stacks now.
#[inline(always)]
pub fn are_wanted() -> bool {
    NATIVE_DEPTH.load(Ordering::Relaxed) != 0 && state::records_everything()
}

/// The stacks of a memory event that happens now or, for frees, happened at `monotonic_ns`.
pub fn of_event(monotonic_ns: u64) -> Stacks {
    let depth = NATIVE_DEPTH.load(Ordering::Relaxed);
    Stacks { native: take_native(monotonic_ns, depth), python: StackId::NONE }
}

/// The stacks of an allocation that failed.
#[cold]
pub fn of_failure(monotonic_ns: u64) -> Stacks {
    let depth = NATIVE_DEPTH.load(Ordering::Relaxed).max(FAILURE_DEPTH);
    Stacks { native: take_native(monotonic_ns, depth), python: StackId::NONE }
}

/// Takes the native stack of the caller.
#[inline(never)]
fn take_native(monotonic_ns: u64, depth: u32) -> StackId {
    CONTEXT.with(|context| {
        let marker = Cell::new(0u8);
        let here = marker.as_ptr() as usize;
        let earlier = context.taking.get();
        if earlier != 0 && !thread::is_abandoned(earlier, here) {
            losses::count(LossReason::StackMissing, 1);
            return StackId::NONE;
        }
        context.taking.set(here);
        compiler_fence(Ordering::SeqCst);
        let taken = errno::preserved(|| catch_unwind(AssertUnwindSafe(|| take(context, monotonic_ns, depth))));
        compiler_fence(Ordering::SeqCst);
        context.taking.set(0);
        taken.unwrap_or_else(|_| {
            losses::count(LossReason::Internal, 1);
            NATIVE_DEPTH.store(0, Ordering::Relaxed);
            message::say("internal error: native stacks end here, the job and the recording go on");
            StackId::NONE
        })
    })
}

#[inline(always)]
fn take(context: &Context, monotonic_ns: u64, depth: u32) -> StackId {
    let Some(unwinder) = Unwinder::global() else {
        losses::count(LossReason::StackMissing, 1);
        return StackId::NONE;
    };
    if context.unwinding.get().is_null() {
        context.unwinding.set(Box::into_raw(ThreadState::boxed()));
    }
    // SAFETY: not null, belongs to this thread, and `taking` keeps signal handlers away from it.
    let unwinding = unsafe { &mut *context.unwinding.get() };
    let capture = unwinder.capture(depth as usize, unwinding, &mut Definitions { monotonic_ns });
    if let Some(reason) = capture.loss {
        losses::count(reason, 1);
    }
    capture.stack
}

/// Gives back what the unwinder knows about a thread that ends.
pub fn forget_thread() {
    CONTEXT.with(|context| {
        let unwinding = context.unwinding.get();
        if context.taking.get() == 0 && !unwinding.is_null() {
            context.unwinding.set(std::ptr::null_mut());
            // SAFETY: made from a box in this thread, and no longer used.
            drop(unsafe { Box::from_raw(unwinding) });
        }
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
