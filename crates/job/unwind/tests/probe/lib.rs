//! The unwinder behind a C interface, as a recorder would link it, for test programs in C.
//!
//! `MSMEMSCOPE_PROBE_WALK=1` makes it find modules as on old C libraries.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock};

use msmemscope_event::{LossReason, ModuleId, StackId};
use msmemscope_unwind::{ModuleDescription, StackSink, ThreadState, Unwinder};

#[derive(Default)]
struct Written {
    stacks: HashMap<u32, Vec<u64>>,
    modules_defined: u32,
    modules_gone: u32,
}

static WRITTEN: Mutex<Option<Written>> = Mutex::new(None);

struct Sink;

fn with_written<T>(action: impl FnOnce(&mut Written) -> T) -> T {
    action(WRITTEN.lock().expect("no panics").get_or_insert_default())
}

impl StackSink for Sink {
    fn define_stack(&mut self, id: StackId, frames: &[u64]) -> bool {
        with_written(|written| {
            let known = written.stacks.entry(id.0).or_insert_with(|| frames.to_vec());
            assert_eq!(known, frames, "an id means one stack");
        });
        true
    }

    fn define_module(&mut self, module: &ModuleDescription<'_>) {
        assert!(module.start_address < module.end_address);
        with_written(|written| written.modules_defined += 1);
    }

    fn module_gone(&mut self, _id: ModuleId) {
        with_written(|written| written.modules_gone += 1);
    }
}

thread_local! {
    static THREAD: RefCell<Box<ThreadState>> = RefCell::new(Box::new(ThreadState::new()));
}

fn unwinder() -> &'static Unwinder {
    static WALKING: OnceLock<Unwinder> = OnceLock::new();
    if std::env::var_os("MSMEMSCOPE_PROBE_WALK").is_some() {
        return WALKING.get_or_init(|| Unwinder::with_linker_walk().expect("memory"));
    }
    Unwinder::global().expect("memory")
}

/// Takes the stack of the caller and returns its id; the frames go to `frames`, at most `room` of
/// them, their number to `count`. A cut stack has a negative id.
///
/// # Safety
/// `frames` has room for `room` words, `count` for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_capture(depth: usize, frames: *mut u64, room: usize, count: *mut usize) -> c_int {
    THREAD.with_borrow_mut(|thread| {
        let capture = unwinder().capture(depth, thread, &mut Sink);
        let taken = thread.frames();
        if capture.stack.is_some() {
            with_written(|written| assert_eq!(written.stacks.get(&capture.stack.0).map(Vec::as_slice), Some(taken)));
        }
        let length = taken.len().min(room);
        // SAFETY: promised by the caller.
        unsafe {
            std::ptr::copy_nonoverlapping(taken.as_ptr(), frames, length);
            *count = length;
        }
        let id = capture.stack.0 as c_int;
        if capture.loss == Some(LossReason::StackCut) { -id } else { id }
    })
}

/// Takes the stack of the caller and returns its id, nothing else: for measurements.
#[unsafe(no_mangle)]
pub extern "C" fn probe_measure(depth: usize) -> c_int {
    THREAD.with_borrow_mut(|thread| unwinder().capture(depth, thread, &mut Sink).stack.0 as c_int)
}

/// How many modules were written down, and how many of them went.
///
/// # Safety
/// Both pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_modules(defined: *mut u32, gone: *mut u32) {
    // SAFETY: promised by the caller.
    with_written(|written| unsafe {
        *defined = written.modules_defined;
        *gone = written.modules_gone;
    });
}

/// Forgets what was written, as in the child of a fork, which writes a trace of its own.
#[unsafe(no_mangle)]
pub extern "C" fn probe_forget() {
    *WRITTEN.lock().expect("no panics") = None;
}
