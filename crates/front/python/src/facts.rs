//! Single facts for the recorder. Without a recorder they go nowhere.

use std::ffi::{c_int, c_void};

use msmemscope_control::{PoolRefusalFact, PoolSegmentFact, Recorder, SnapshotFact};
use msmemscope_event::{AutogradPhase, Device, LoopKind, Pool, PythonCallPhase, Severity};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::panics::contained;
use crate::session::{recorder, records_operators};

/// Longest text taken from the user, in bytes.
const LONGEST_TEXT_BYTES: usize = 4096;

/// Bytes of a text, cut at a character boundary if it is too long.
fn bounded(text: &str) -> &[u8] {
    let mut end = text.len().min(LONGEST_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

/// The recorder's id of a text; zero without a recorder.
#[pyfunction]
pub fn intern(text: &str) -> u32 {
    recorder().map_or(0, |recorder| recorder.intern(bounded(text)))
}

/// The user ended a step; gives its number, zero while not recording.
#[pyfunction]
fn step() -> u64 {
    recorder().map_or(0, Recorder::step)
}

/// A mark in the recording. Nothing happens while not recording.
#[pyfunction]
fn mark(message: &str) {
    if let Some(recorder) = recorder() {
        recorder.mark(bounded(message));
    }
}

/// How many marks and ranges this thread has sent through the tools interface.
#[pyfunction]
fn message_count() -> u64 {
    recorder().map_or(0, Recorder::message_count)
}

/// A mark that a framework keeps from the tools interface.
#[pyfunction]
fn relay_mark(domain: &str, message: &str) {
    if let Some(recorder) = recorder() {
        recorder.relay_mark(bounded(domain), bounded(message));
    }
}

/// A range that a framework keeps from it; gives its id, zero if it is not recorded.
#[pyfunction]
fn relay_range_start(domain: &str, message: &str) -> u64 {
    recorder().map_or(0, |recorder| recorder.relay_range_start(bounded(domain), bounded(message)))
}

/// The end of such a range.
#[pyfunction]
fn relay_range_end(domain: &str, range_id: u64) {
    if let Some(recorder) = recorder() {
        recorder.relay_range_end(bounded(domain), range_id);
    }
}

/// A message for the recording's log: 0 debug, 1 information, 2 warning, 3 error.
#[pyfunction]
fn message(severity: u64, text: &str) {
    if let Some(recorder) = recorder() {
        recorder.message(Severity::from_code(severity), bounded(text));
    }
}

/// Pools of frameworks that this process uses and the recorder cannot see, `POOL=reason` each on a line.
#[pyfunction]
fn unseen_pools(text: &str) {
    if let Some(recorder) = recorder() {
        recorder.unseen_pools(bounded(text));
    }
}

/// The job has limited PyTorch's pool on a device to a part of the card's memory.
#[pyfunction]
fn memory_fraction(device_id: i64, fraction: f64) {
    if let Some(recorder) = recorder() {
        recorder.memory_fraction(Device::from_id(device_id), fraction);
    }
}

/// The place of this process in its job: its rank, and of how many.
#[pyfunction]
fn place(rank: u32, world_size: u32) {
    if let Some(recorder) = recorder() {
        recorder.place(rank, world_size);
    }
}

/// People are told from now on when a framework has run out of memory.
#[pyfunction]
fn failures_are_told() {
    if let Some(recorder) = recorder() {
        recorder.leave_failures_to_guest();
    }
}

/// A phase of training started: 0 forward, 1 backward, 2 an optimizer's step, 3 none of them.
#[pyfunction]
fn autograd(phase: u64) {
    if let Some(recorder) = recorder().filter(|recorder| records_operators(*recorder)) {
        recorder.autograd(AutogradPhase::from_code(phase), recorder.current_device());
    }
}

/// A loop of the job went around: 0 the step of a profiler, 1 of an optimizer, 2 a call of a module, and which one.
#[pyfunction]
fn loop_turn(kind: u64, loop_id: u64) {
    if let Some(recorder) = recorder().filter(|recorder| records_operators(*recorder)) {
        recorder.loop_turn(LoopKind::from_code(kind), loop_id);
    }
}

/// Who keeps the live block at an address alive: a path of references, interned.
#[pyfunction]
fn holder(address: u64, path: u32) {
    if let Some(recorder) = recorder() {
        recorder.holder(address, path);
    }
}

/// The thread calls a module, or returns from it.
#[pyfunction]
fn module_call(begins: bool, name: u32) {
    if let Some(recorder) = recorder().filter(|recorder| records_operators(*recorder)) {
        recorder.module(begins, name);
    }
}

/// Counters of a framework: device id or nothing for the host, name, and reserved, maximum reserved,
/// allocated, maximum allocated, total and free bytes.
#[pyfunction]
fn snapshot(device_id: Option<i64>, name: &str, numbers: [u64; 6]) {
    if let Some(recorder) = recorder() {
        let device = device_id.map_or(Device::Host, Device::from_id).code();
        let fact = SnapshotFact { device, name: intern(name), numbers };
        recorder.snapshot(&fact);
    }
}

/// MindSpore's pool has refused memory without asking the driver: on which device, how many bytes, zero if it does not
/// say, and whether the job has set it a limit.
#[pyfunction]
fn mindspore_refused(device_id: i64, size_bytes: u64, is_limited: bool) {
    if let Some(recorder) = recorder() {
        recorder.pool_refused(Pool::Mindspore, Device::from_id(device_id), size_bytes, is_limited);
    }
}

/// PyTorch's pool has given up: on which device; bytes asked for, allowed by the job (zero: no limit), held, free and of
/// the device; the stream; and of every segment address, size, unused bytes, largest gap, stream and traits.
#[pyfunction]
fn pool_gave_up(device_id: i64, numbers: [u64; 5], stream: u64, segments: Vec<[u64; 6]>) {
    let Some(recorder) = recorder() else { return };
    let segments: Vec<PoolSegmentFact> = segments
        .into_iter()
        .map(|[address, size_bytes, unused_bytes, largest_gap_bytes, stream, traits]| PoolSegmentFact {
            address,
            size_bytes,
            unused_bytes,
            largest_gap_bytes,
            stream,
            traits,
        })
        .collect();
    let [requested_bytes, limit_bytes, reserved_bytes, free_bytes, total_bytes] = numbers;
    recorder.pool_gave_up(&PoolRefusalFact {
        device: Device::from_id(device_id).code(),
        requested_bytes,
        limit_bytes,
        reserved_bytes,
        free_bytes,
        total_bytes,
        stream,
        segments: segments.as_ptr(),
        segment_count: segments.len(),
    });
}

/// A region named by the user begins.
#[pyfunction]
fn region_begin(name: u32) {
    if let Some(recorder) = recorder() {
        recorder.python_call(PythonCallPhase::NamedBegin, name);
    }
}

/// It ends.
#[pyfunction]
fn region_end() {
    if let Some(recorder) = recorder() {
        recorder.python_call(PythonCallPhase::End, 0);
    }
}

/// Calls `action` on the main thread as soon as it is back in Python code.
#[pyfunction]
fn call_soon(action: Py<PyAny>) -> PyResult<()> {
    let action = Box::into_raw(Box::new(action));
    // SAFETY: the callback takes the box back, exactly once.
    if unsafe { ffi::Py_AddPendingCall(Some(run_pending), action.cast()) } == 0 {
        return Ok(());
    }
    // SAFETY: the interpreter did not take it.
    drop(unsafe { Box::from_raw(action) });
    Err(PyRuntimeError::new_err("too many pending calls"))
}

extern "C" fn run_pending(action: *mut c_void) -> c_int {
    // SAFETY: made by `call_soon`, run once by the interpreter, which holds its lock.
    let action = unsafe { Box::from_raw(action.cast::<Py<PyAny>>()) };
    contained((), || {
        Python::attach(|py| {
            if let Err(error) = action.call0(py) {
                error.write_unraisable(py, None);
            }
            drop(action);
        });
    });
    0
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(intern, module)?)?;
    module.add_function(wrap_pyfunction!(step, module)?)?;
    module.add_function(wrap_pyfunction!(mark, module)?)?;
    module.add_function(wrap_pyfunction!(message_count, module)?)?;
    module.add_function(wrap_pyfunction!(relay_mark, module)?)?;
    module.add_function(wrap_pyfunction!(relay_range_start, module)?)?;
    module.add_function(wrap_pyfunction!(relay_range_end, module)?)?;
    module.add_function(wrap_pyfunction!(message, module)?)?;
    module.add_function(wrap_pyfunction!(unseen_pools, module)?)?;
    module.add_function(wrap_pyfunction!(memory_fraction, module)?)?;
    module.add_function(wrap_pyfunction!(place, module)?)?;
    module.add_function(wrap_pyfunction!(failures_are_told, module)?)?;
    module.add_function(wrap_pyfunction!(autograd, module)?)?;
    module.add_function(wrap_pyfunction!(loop_turn, module)?)?;
    module.add_function(wrap_pyfunction!(module_call, module)?)?;
    module.add_function(wrap_pyfunction!(holder, module)?)?;
    module.add_function(wrap_pyfunction!(snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(mindspore_refused, module)?)?;
    module.add_function(wrap_pyfunction!(pool_gave_up, module)?)?;
    module.add_function(wrap_pyfunction!(region_begin, module)?)?;
    module.add_function(wrap_pyfunction!(region_end, module)?)?;
    module.add_function(wrap_pyfunction!(call_soon, module)?)
}
