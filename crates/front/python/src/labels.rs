//! Labels that say who owns memory: facts for the recorder, and known here as well, since a hunt may keep
//! to the blocks of one owner.

use std::cell::RefCell;
use std::ffi::{CStr, c_int};
use std::sync::{Mutex, OnceLock, PoisonError};

use msmemscope_watch::Regions;
use pyo3::prelude::*;

use crate::session::recorder;
use crate::watch;

thread_local! {
    static REGIONS: RefCell<Regions> = RefCell::default();
    /// The backward pass that this thread took part in last, and the labels of the regions that called it.
    static BACKWARD: RefCell<(c_int, Vec<u32>)> = const { RefCell::new((NO_BACKWARD, Vec::new())) };
}

const LIBRARY: &CStr = c"libtorch_cpu.so";
/// `torch::autograd::get_current_graph_task_id()`.
const GRAPH_TASK: &CStr = c"_ZN5torch8autograd25get_current_graph_task_idEv";
/// What it gives outside of all backward passes.
const NO_BACKWARD: c_int = -1;

type GraphTask = unsafe extern "C-unwind" fn() -> c_int;

/// What gives the labels with which the backward pass of the calling thread was called; none while nobody was.
static CALLER_LABELS: Mutex<Option<Py<PyAny>>> = Mutex::new(None);
/// Which pass the calling thread takes part in; nothing if PyTorch does not tell.
static CURRENT_BACKWARD: OnceLock<Option<GraphTask>> = OnceLock::new();

fn current_backward() -> Option<GraphTask> {
    // SAFETY: asks for a library that is loaded already; the handle keeps it loaded.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    // SAFETY: a lookup by name in a loaded library; the mangled name says the signature.
    unsafe {
        let address = libc::dlsym(library, GRAPH_TASK.as_ptr());
        (!address.is_null()).then(|| std::mem::transmute::<*mut libc::c_void, GraphTask>(address))
    }
}

/// From now on backward passes are called with labels, which `labels` gives on the threads that run them.
/// Gives whether this PyTorch tells which pass a thread takes part in.
#[pyfunction]
fn hand_on_labels(labels: Py<PyAny>) -> bool {
    let is_known = CURRENT_BACKWARD.get_or_init(current_backward).is_some();
    if is_known {
        *CALLER_LABELS.lock().unwrap_or_else(PoisonError::into_inner) = Some(labels);
    }
    is_known
}

/// Enters the regions in which the backward pass was called that this thread runs an operator of, as far as it is not in
/// them itself; gives what [`leave_inherited`] needs. Threads of PyTorch's autograd work for several passes in turn, and
/// nothing tells when one of them is over, so they are entered and left around each operator.
#[pyfunction]
pub fn enter_inherited(py: Python<'_>) -> Vec<u32> {
    let Some(Some(current)) = CURRENT_BACKWARD.get() else { return Vec::new() };
    // SAFETY: no preconditions.
    let pass = unsafe { current() };
    if pass == NO_BACKWARD {
        return Vec::new();
    }
    let labels = BACKWARD.with_borrow_mut(|(known, labels)| {
        if *known != pass {
            *labels = caller_labels(py);
            *known = pass;
        }
        labels.iter().copied().filter(|label| !is_inside(*label)).collect::<Vec<u32>>()
    });
    for &label in &labels {
        label_push(USER_LEVEL, label);
    }
    labels
}

#[cold]
fn caller_labels(py: Python<'_>) -> Vec<u32> {
    let ask = CALLER_LABELS.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|ask| ask.clone_ref(py));
    ask.and_then(|ask| ask.call0(py).and_then(|labels| labels.extract(py)).ok()).unwrap_or_default()
}

/// Leaves them.
#[pyfunction]
pub fn leave_inherited(labels: Vec<u32>) {
    for &label in labels.iter().rev() {
        label_pop(USER_LEVEL, label);
    }
}

/// The level of labels that users give.
const USER_LEVEL: u32 = 5;

/// Whether this thread is in a region with a label. A thread at its end is in none.
pub fn is_inside(label: u32) -> bool {
    REGIONS.try_with(|regions| regions.borrow().contains(label)).unwrap_or(false)
}

/// The thread entered a labelled region.
#[pyfunction]
fn label_push(level: u32, label: u32) {
    if let Some(recorder) = recorder() {
        REGIONS.with_borrow_mut(|regions| regions.enter(label));
        recorder.label_push(level, label);
    }
}

/// The thread left it.
#[pyfunction]
fn label_pop(level: u32, label: u32) {
    if let Some(recorder) = recorder() {
        REGIONS.with_borrow_mut(|regions| regions.leave(label));
        recorder.label_pop(level, label);
    }
}

/// The live block at this address got a label.
#[pyfunction]
fn label_address(address: u64, level: u32, label: u32) {
    if let Some(recorder) = recorder() {
        recorder.label_address(address, level, label);
        watch::labelled(address, label);
    }
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(hand_on_labels, module)?)?;
    module.add_function(wrap_pyfunction!(enter_inherited, module)?)?;
    module.add_function(wrap_pyfunction!(leave_inherited, module)?)?;
    module.add_function(wrap_pyfunction!(label_push, module)?)?;
    module.add_function(wrap_pyfunction!(label_pop, module)?)?;
    module.add_function(wrap_pyfunction!(label_address, module)?)
}
