//! Between the two phases of an operator: the executor holds the computation until it is given to a stream.

use crate::kernel::{Unit, launch_kernels};
use standin_support::{ProcessCell, size_from_environment};
use standin_truth::format::HOST_DEVICE;
use standin_truth::{Kind, Record, TruthWriter};
use std::collections::HashSet;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// What a stream's worker runs.
pub type Work = Box<dyn Computation>;

/// A computation with its operands. Those of captured graphs are run more than once, each time a copy.
pub trait Computation: Send {
    /// Computes.
    fn run(self: Box<Self>);

    /// The same with the same operands.
    fn copy(&self) -> Work;
}

impl<F: FnOnce() + Clone + Send + 'static> Computation for F {
    fn run(self: Box<Self>) {
        self();
    }

    fn copy(&self) -> Work {
        Box::new(self.clone())
    }
}

/// `aclOpExecutor`. `libnnopbase.so` knows its start.
#[repr(C)]
pub struct Executor {
    launch: unsafe extern "C" fn(*mut Self, *mut c_void) -> i32,
    unit: Unit,
    name: &'static str,
    work: Work,
}

struct State {
    log: Option<TruthWriter>,
    workspace: Workspace,
    unknown: Unknown,
    said: Mutex<HashSet<String>>,
}

/// How much workspace operators ask for (`STANDIN_WORKSPACE_BYTES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workspace {
    /// Always as much.
    Bytes(u64),
    /// This many times their largest operand.
    Times(u64),
}

impl Workspace {
    const VARIABLE: &str = "STANDIN_WORKSPACE_BYTES";

    fn from_environment() -> Self {
        let times = std::env::var(Self::VARIABLE).ok().and_then(|text| text.trim().strip_prefix('x')?.parse().ok());
        times.map_or_else(|| Self::Bytes(size_from_environment(Self::VARIABLE, 0)), Self::Times)
    }

    fn for_operand(self, operand_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Times(times) => times.saturating_mul(operand_bytes),
        }
    }
}

/// What happens with an operator that is not computed (`STANDIN_UNKNOWN_OPERATORS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unknown {
    /// It does nothing and says so once.
    Warn,
    /// It does nothing.
    Quiet,
    /// It is refused.
    Error,
}

impl Unknown {
    fn from_environment() -> Self {
        match std::env::var("STANDIN_UNKNOWN_OPERATORS").as_deref() {
            Ok("quiet") => Self::Quiet,
            Ok("error") => Self::Error,
            _ => Self::Warn,
        }
    }
}

/// What a refused operator returns (`ACLNN_ERR_RUNTIME_ERROR`).
const REFUSED: i32 = 361_001;

static STATE: ProcessCell<State> = ProcessCell::new();

fn state() -> &'static State {
    STATE.get(|| State {
        log: TruthWriter::from_environment("opapi"),
        workspace: Workspace::from_environment(),
        unknown: Unknown::from_environment(),
        said: Mutex::default(),
    })
}

unsafe extern "C" {
    fn rtStreamSynchronize(stream: *mut c_void) -> i32;
    fn rtStreamGetCaptureInfo(stream: *mut c_void, status: *mut i32, model: *mut *mut c_void) -> i32;
    /// `aclOpExecutor::AddCache()`
    #[link_name = "_ZN13aclOpExecutor8AddCacheEv"]
    fn add_cache(executor: *mut c_void);
    /// `CommonOpExecutorRun`
    #[link_name = "_Z19CommonOpExecutorRunPvmP13aclOpExecutorS_"]
    fn run_executor(workspace: *mut c_void, workspace_bytes: u64, executor: *mut c_void, stream: *mut c_void) -> i32;
}

/// First phase: keeps the computation and tells the workspace size, which may depend on the largest operand. Without a computation the operator does nothing.
pub unsafe fn prepare(
    name: &'static str,
    work: Option<Work>,
    operand_bytes: u64,
    workspace_bytes: *mut u64,
    executor: *mut *mut Executor,
) -> i32 {
    let Some(work) = work else {
        return unknown(name, "is not computed for these operands");
    };
    // SAFETY: both pointers are null or writable by the contract of the C functions.
    unsafe {
        if let Some(workspace_bytes) = workspace_bytes.as_mut() {
            *workspace_bytes = state().workspace.for_operand(operand_bytes);
        }
        if !executor.is_null() {
            let made = Box::into_raw(Box::new(Executor { launch: launch_executor, unit: Unit::of(name), name, work }));
            add_cache(made.cast());
            executor.write(made);
        }
    }
    0
}

/// Second phase: gives the computation to the stream, as a kernel.
pub unsafe fn launch(name: &'static str, executor: *mut Executor, stream: *mut c_void) -> i32 {
    // SAFETY: as for the function called.
    unsafe { launch_on(Unit::of(name), name, executor, stream) }
}

unsafe fn launch_on(unit: Unit, name: &'static str, executor: *mut Executor, stream: *mut c_void) -> i32 {
    log(name, stream);
    if executor.is_null() {
        return 0;
    }
    // SAFETY: the executor was made by `prepare` and is used once.
    unsafe {
        (*executor).unit = unit;
        run_executor(std::ptr::null_mut(), 0, executor.cast(), stream)
    }
}

/// What an executor does when it is run.
unsafe extern "C" fn launch_executor(executor: *mut Executor, stream: *mut c_void) -> i32 {
    // SAFETY: the executor was made by `prepare` and is used once: `run` takes it over, or the graph into which it is
    // captured, which may be run as long as the process lives.
    unsafe {
        let mut status = 0;
        let is_captured = rtStreamGetCaptureInfo(stream, &raw mut status, std::ptr::null_mut()) == 0 && status != 0;
        let function = if is_captured { run_copy } else { run };
        let result = launch_kernels((*executor).unit, (*executor).name, stream, function, executor.cast());
        if result != 0 {
            drop(Box::from_raw(executor));
        }
        result
    }
}

/// Second phase of an operator whose caller needs the result at once.
pub unsafe fn launch_and_wait(name: &'static str, executor: *mut Executor, stream: *mut c_void) -> i32 {
    // SAFETY: as for the functions called.
    unsafe {
        let result = launch_on(Unit::AiCpu, name, executor, stream);
        if result == 0 { rtStreamSynchronize(stream) } else { result }
    }
}

/// Runs on the worker of the stream.
unsafe extern "C" fn run(executor: *mut c_void) {
    // SAFETY: `launch` gave up the executor.
    let executor = unsafe { Box::from_raw(executor.cast::<Executor>()) };
    let Executor { name, work, .. } = *executor;
    compute(name, work);
}

/// Runs on the worker of the stream, whenever the graph is run.
unsafe extern "C" fn run_copy(executor: *mut c_void) {
    // SAFETY: the executor is kept for the graph, and only looked at.
    let Executor { name, work, .. } = unsafe { &*executor.cast::<Executor>() };
    compute(name, work.copy());
}

fn compute(name: &str, work: Work) {
    if catch_unwind(AssertUnwindSafe(|| work.run())).is_err() {
        eprintln!("stand-in device: operator {name} failed, its outputs are undefined");
    }
}

/// First phase of an operator that nobody computes.
pub fn prepare_nothing(name: &'static str) -> i32 {
    unknown(name, "is not computed")
}

/// Second phase of an operator that nobody computes.
pub fn launch_nothing(name: &'static str, stream: *mut c_void) -> i32 {
    log(name, stream);
    0
}

/// Refuses an operator or lets it do nothing, as the settings say.
fn unknown(name: &str, why: &str) -> i32 {
    let state = state();
    let is_refused = state.unknown == Unknown::Error;
    if state.unknown != Unknown::Quiet {
        let mut said = state.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.insert(name.to_owned()) {
            let outcome = if is_refused { "it is refused" } else { "its outputs are left as they are" };
            eprintln!("stand-in device: operator {name} {why}, {outcome}");
        }
    }
    if is_refused { REFUSED } else { 0 }
}

fn log(name: &str, stream: *mut c_void) {
    if let Some(log) = &state().log {
        let stamp = log.stamp();
        let record = Record {
            kind: Kind::Operator,
            text_bytes: 0,
            sequence: stamp.sequence,
            time_ns: stamp.time_ns,
            address: stream as u64,
            size_bytes: 0,
            flags: 0,
            device: HOST_DEVICE,
            result: 0,
            thread: 0,
        };
        log.append(record, Some(name.as_bytes()));
    }
}
