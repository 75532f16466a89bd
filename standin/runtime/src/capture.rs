//! Captured graphs: while a stream is captured its tasks are not run but kept, and run as a whole, as often as somebody
//! wants, under the numbers they were captured with.

use crate::error::{RuntimeError, code};
use crate::state::lock;
use crate::stream::{Stream, Task, Work};
use crate::task_reports::ApiCall;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

/// A task that was captured.
#[derive(Clone)]
pub struct Captured {
    /// What it is.
    pub task: Task,
    /// Its number in the stream.
    pub number: u32,
    /// What it does.
    pub work: Work,
}

/// A graph: tasks of the stream from which they were captured.
pub struct Graph {
    stream: Arc<Stream>,
    tasks: Mutex<Vec<Captured>>,
}

impl Graph {
    /// An empty graph of a stream, which is known by its address.
    pub fn new(stream: Arc<Stream>) -> Arc<Self> {
        Arc::new(Self { stream, tasks: Mutex::default() })
    }

    /// Adds a task.
    pub fn add(&self, captured: Captured) {
        lock(&self.tasks).push(captured);
    }

    fn handle(self: &Arc<Self>) -> u64 {
        Arc::as_ptr(self) as u64
    }

    fn run(&self) {
        lock(&self.tasks).iter().for_each(|captured| self.stream.run_task(captured));
    }
}

/// Graphs by handle.
static GRAPHS: Mutex<Option<HashMap<u64, Arc<Graph>>>> = Mutex::new(None);

/// How a thread treats calls that would disturb a capture; only remembered here.
static MODE: AtomicI32 = AtomicI32::new(0);

/// Nothing is captured.
const STATUS_NONE: i32 = 0;
/// The stream is captured.
const STATUS_ACTIVE: i32 = 1;

fn graph(handle: u64) -> Result<Arc<Graph>, RuntimeError> {
    let graphs = lock(&GRAPHS);
    graphs.as_ref().and_then(|graphs| graphs.get(&handle)).cloned().ok_or(RuntimeError::InvalidParameter)
}

#[unsafe(no_mangle)]
extern "C" fn rtStreamBeginCapture(stream: *mut c_void, _mode: i32) -> i32 {
    code(Stream::find(stream as u64).and_then(|stream| stream.begin_capture()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtStreamEndCapture(stream: *mut c_void, model: *mut *mut c_void) -> i32 {
    if model.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    code(Stream::find(stream as u64).and_then(|stream| {
        let graph = stream.end_capture()?;
        let handle = graph.handle();
        lock(&GRAPHS).get_or_insert_default().insert(handle, graph);
        // SAFETY: checked above; writable by the contract of the C function.
        unsafe { model.write(handle as *mut c_void) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtStreamGetCaptureInfo(stream: *mut c_void, status: *mut i32, model: *mut *mut c_void) -> i32 {
    code(Stream::find(stream as u64).map(|found| {
        let graph = found.graph();
        // SAFETY: null or writable by the contract of the C function.
        unsafe {
            if let Some(status) = status.as_mut() {
                *status = if graph.is_some() { STATUS_ACTIVE } else { STATUS_NONE };
            }
            if let Some(model) = model.as_mut() {
                *model = graph.map_or(0, |graph| graph.handle()) as *mut c_void;
            }
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtThreadExchangeCaptureMode(mode: *mut i32) -> i32 {
    // SAFETY: null or writable by the contract of the C function.
    let Some(mode) = (unsafe { mode.as_mut() }) else { return RuntimeError::InvalidParameter as i32 };
    *mode = MODE.swap(*mode, Ordering::Relaxed);
    0
}

#[unsafe(no_mangle)]
extern "C" fn rtModelExecute(model: *mut c_void, stream: *mut c_void, _flag: u32) -> i32 {
    let _call = ApiCall::begin();
    code(
        graph(model as u64)
            .and_then(|graph| Stream::find(stream as u64)?.submit(Task::Unseen, Arc::new(move || graph.run()))),
    )
}

/// Whoever still runs it keeps it.
#[unsafe(no_mangle)]
extern "C" fn rtModelDestroy(model: *mut c_void) -> i32 {
    let mut graphs = lock(&GRAPHS);
    let removed = graphs.as_mut().and_then(|graphs| graphs.remove(&(model as u64)));
    code(removed.map(drop).ok_or(RuntimeError::InvalidParameter))
}
