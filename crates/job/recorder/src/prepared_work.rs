//! Work of operators that one thread prepares and another launches, so that kernels are known to their operators.
//!
//! An operator of CANN has two phases. The first makes an executor, on the thread on which the framework runs the operator;
//! the second, which torch_npu puts into a queue for a thread of its own, runs the executor and launches its kernels.
//! While an executor waits nobody else has its address, so the address is what ties the two together. Whichever of the
//! hundreds of operators it is, its executor comes from and goes through these few functions of `libnnopbase.so`.
//!
//! Nothing of this is touched unless kernels were asked for.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use msmemscope_event::{Fact, WorkPhase};

use crate::hooks::Hook;
use crate::real::RealFunction;
use crate::{acl, elf, errno, kernels, state, thread};

const LIBRARY: &str = "libnnopbase.so";
/// What the library returns when something inside it is missing (`ACLNN_ERR_INNER`).
const INTERNAL_ERROR: i32 = 561_000;

type Finished = unsafe extern "C-unwind" fn(*mut c_void);
type Cached = unsafe extern "C-unwind" fn(u64, *mut u64) -> *mut c_void;
type Found = unsafe extern "C-unwind" fn(*const u8, usize, *mut u64) -> *mut c_void;
type Run = unsafe extern "C-unwind" fn(*mut c_void, u64, *mut c_void, *mut c_void) -> i32;
type Measured = unsafe extern "C-unwind" fn(*mut c_void, *mut u64) -> i32;
type RunSingle = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void, u64) -> i32;

/// `aclOpExecutor::AddCache()`: the last thing that is done to a new executor before its caller gets it.
static FINISHED: RealFunction<Finished> = RealFunction::new(LIBRARY, &[c"_ZN13aclOpExecutor8AddCacheEv"]);
/// The framework gets an executor that an earlier call of the same operator has left behind.
static CACHED: RealFunction<Cached> = RealFunction::new(LIBRARY, &[c"PTAGetExecCache"]);
/// The same by another key.
static FOUND: RealFunction<Found> = RealFunction::new(LIBRARY, &[c"PTAFindExecCache"]);
/// `CommonOpExecutorRun(void *, uint64_t, aclOpExecutor *, aclrtStream)`: the second phase.
static RUN: RealFunction<Run> = RealFunction::new(LIBRARY, &[c"_Z19CommonOpExecutorRunPvmP13aclOpExecutorS_"]);
/// The end of the first phase of operators with a kernel of their own and executors of another kind ...
static MEASURED: RealFunction<Measured> = RealFunction::new(LIBRARY, &[c"NnopbaseRunForWorkspace"]);
/// ... and their second.
static RUN_SINGLE: RealFunction<RunSingle> = RealFunction::new(LIBRARY, &[c"NnopbaseRunWithWorkspace"]);

/// The hooks of these functions.
pub static HOOKS: &[Hook] = &[
    Hook::optional(FINISHED.erased(), finished as *const ()),
    Hook::optional(CACHED.erased(), cached as *const ()),
    Hook::optional(FOUND.erased(), found as *const ()),
    Hook::optional(RUN.erased(), run as *const ()),
    Hook::optional(MEASURED.erased(), measured as *const ()),
    Hook::optional(RUN_SINGLE.erased(), run_single as *const ()),
];

/// How many libraries had been loaded when the tables of all were last looked through.
static LOOKED_AFTER: AtomicU64 = AtomicU64::new(0);

/// The job asks for a function by name. Libraries with operators are loaded when the first operator is needed, long after
/// the runtime; who asks for an operator has just loaded its library.
#[inline]
pub fn note_lookup(name: &CStr) {
    if name.to_bytes().starts_with(b"aclnn") && kernels::are_wanted() {
        operator_looked_up();
    }
}

#[cold]
fn operator_looked_up() {
    let _ = errno::aside(|| {
        std::panic::catch_unwind(|| {
            let loads = elf::load_count();
            if LOOKED_AFTER.swap(loads, Ordering::Relaxed) != loads {
                acl::redirect_optional_functions();
            }
        })
    });
}

#[inline(always)]
fn note(phase: WorkPhase, executor: *mut c_void) {
    if !executor.is_null() && kernels::are_wanted() && state::records_everything() {
        thread::record_own_now(|| Fact::PreparedWork { phase, address: executor as u64 });
    }
}

/// Runs an executor. It is gone afterwards, and also if it ends by an exception.
#[inline(always)]
fn running(executor: *mut c_void, run: impl FnOnce() -> i32) -> i32 {
    struct Running(*mut c_void);
    impl Drop for Running {
        fn drop(&mut self) {
            note(WorkPhase::Ends, self.0);
        }
    }
    note(WorkPhase::Begins, executor);
    let _running = Running(executor);
    run()
}

unsafe extern "C-unwind" fn finished(executor: *mut c_void) {
    let Some(real) = FINISHED.function() else { return };
    // SAFETY: the library's function of this name has this signature; the argument is the caller's.
    unsafe { real(executor) };
    note(WorkPhase::Prepared, executor);
}

unsafe extern "C-unwind" fn cached(key: u64, workspace_bytes: *mut u64) -> *mut c_void {
    let Some(real) = CACHED.function() else { return std::ptr::null_mut() };
    // SAFETY: the library's function of this name has this signature; arguments are the caller's.
    let executor = unsafe { real(key, workspace_bytes) };
    note(WorkPhase::Prepared, executor);
    executor
}

unsafe extern "C-unwind" fn found(key: *const u8, key_bytes: usize, workspace_bytes: *mut u64) -> *mut c_void {
    let Some(real) = FOUND.function() else { return std::ptr::null_mut() };
    // SAFETY: the library's function of this name has this signature; arguments are the caller's.
    let executor = unsafe { real(key, key_bytes, workspace_bytes) };
    note(WorkPhase::Prepared, executor);
    executor
}

unsafe extern "C-unwind" fn measured(executor: *mut c_void, workspace_bytes: *mut u64) -> i32 {
    let Some(real) = MEASURED.function() else { return INTERNAL_ERROR };
    // SAFETY: the library's function of this name has this signature; arguments are the caller's.
    let result = unsafe { real(executor, workspace_bytes) };
    note(WorkPhase::Prepared, executor);
    result
}

unsafe extern "C-unwind" fn run(
    workspace: *mut c_void,
    workspace_bytes: u64,
    executor: *mut c_void,
    stream: *mut c_void,
) -> i32 {
    let Some(real) = RUN.function() else { return INTERNAL_ERROR };
    // SAFETY: the library's function of this name has this signature; arguments are the caller's.
    running(executor, || unsafe { real(workspace, workspace_bytes, executor, stream) })
}

unsafe extern "C-unwind" fn run_single(
    executor: *mut c_void,
    stream: *mut c_void,
    workspace: *mut c_void,
    workspace_bytes: u64,
) -> i32 {
    let Some(real) = RUN_SINGLE.function() else { return INTERNAL_ERROR };
    // SAFETY: the library's function of this name has this signature; arguments are the caller's.
    running(executor, || unsafe { real(executor, stream, workspace, workspace_bytes) })
}
