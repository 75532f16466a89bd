//! The C functions for streams and events.

use crate::error::{RuntimeError, code};
use crate::event::Event;
use crate::state::state;
use crate::stream::{Stream, Task, Work};
use crate::task_reports::ApiCall;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

#[unsafe(no_mangle)]
unsafe extern "C" fn rtStreamCreate(stream: *mut *mut c_void, _priority: i32) -> i32 {
    if stream.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    code(state().current_device().map(|device| {
        let created = Arc::new(Stream::new(device));
        let handle = Arc::as_ptr(&created) as u64;
        state().streams.write().unwrap_or_else(PoisonError::into_inner).insert(handle, created);
        // SAFETY: checked above; writable by the contract of the C function.
        unsafe { stream.write(handle as *mut c_void) };
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rtStreamDestroy(stream: *mut c_void) -> i32 {
    let _call = ApiCall::begin();
    let removed = state().streams.write().unwrap_or_else(PoisonError::into_inner).remove(&(stream as u64));
    code(removed.ok_or(RuntimeError::InvalidStream).and_then(|stream| {
        let result = stream.synchronize(None);
        stream.close();
        result
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rtStreamSynchronize(stream: *mut c_void) -> i32 {
    code(Stream::find(stream as u64).and_then(|stream| stream.synchronize(None)))
}

#[unsafe(no_mangle)]
extern "C" fn rtStreamSynchronizeWithTimeout(stream: *mut c_void, timeout_ms: i32) -> i32 {
    let timeout = u64::try_from(timeout_ms).ok();
    code(Stream::find(stream as u64).and_then(|stream| stream.synchronize(timeout)))
}

/// 0 when the stream is idle, `RT_ERROR_STREAM_NOT_COMPLETE` (1) while it works, else an error.
#[unsafe(no_mangle)]
extern "C" fn rtStreamQuery(stream: *mut c_void) -> i32 {
    Stream::find(stream as u64).map_or_else(|error| error as i32, |stream| i32::from(!stream.is_idle()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtGetStreamId(stream: *mut c_void, id: *mut i32) -> i32 {
    if id.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    code(Stream::find(stream as u64).map(|stream| {
        // SAFETY: checked above; writable by the contract of the C function.
        unsafe { id.write(stream.id) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rtStreamWaitEvent(stream: *mut c_void, event: *mut c_void) -> i32 {
    let _call = ApiCall::begin();
    code(Stream::find(stream as u64).and_then(|stream| stream.wait_for(Event::find_for_waiting(event as u64)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtEventCreate(event: *mut *mut c_void) -> i32 {
    if event.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    let handle = state().events.write().unwrap_or_else(PoisonError::into_inner).create();
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { event.write(handle as *mut c_void) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn rtEventDestroy(event: *mut c_void) -> i32 {
    code(state().events.write().unwrap_or_else(PoisonError::into_inner).destroy(event as u64))
}

#[unsafe(no_mangle)]
extern "C" fn rtEventRecord(event: *mut c_void, stream: *mut c_void) -> i32 {
    let _call = ApiCall::begin();
    code(Event::find(event as u64).and_then(|event| Stream::find(stream as u64)?.record(event)))
}

#[unsafe(no_mangle)]
extern "C" fn rtEventReset(event: *mut c_void, stream: *mut c_void) -> i32 {
    code(Event::find(event as u64).and_then(|_| Stream::find(stream as u64).map(drop)))
}

#[unsafe(no_mangle)]
extern "C" fn rtEventSynchronize(event: *mut c_void) -> i32 {
    code(Event::find_for_waiting(event as u64).map(|event| event.wait(event.latest_recording())))
}

/// 0 when everything recorded was reached, 1 when not, else an error.
#[unsafe(no_mangle)]
extern "C" fn rtEventQuery(event: *mut c_void) -> i32 {
    Event::find_for_waiting(event as u64).map_or_else(|error| error as i32, |event| i32::from(!event.is_complete()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) -> i32 {
    if milliseconds.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    let elapsed = || -> Result<f32, RuntimeError> {
        let reached = |event: *mut c_void| Event::find(event as u64)?.completed_at().ok_or(RuntimeError::InvalidEvent);
        let (start, end) = (reached(start)?, reached(end)?);
        let forward = end.saturating_duration_since(start).as_secs_f32();
        let backward = start.saturating_duration_since(end).as_secs_f32();
        Ok((forward - backward) * 1000.0)
    };
    code(elapsed().map(|value| {
        // SAFETY: checked above; writable by the contract of the C function.
        unsafe { milliseconds.write(value) }
    }))
}

/// An argument that travels to a worker.
struct Argument(*mut c_void);

// SAFETY: the caller of `standinSubmit` gives the argument away to the worker.
unsafe impl Send for Argument {}
// SAFETY: as above; nobody but the worker looks at it.
unsafe impl Sync for Argument {}

impl Argument {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Our own: runs `function(argument)` on the stream, after everything submitted before. `function` is called
/// exactly once when 0 is returned and not at all otherwise, as while the stream is captured.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinSubmit(
    stream: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> i32 {
    let argument = Argument(argument);
    // SAFETY: function and argument belong together by the contract of this function.
    let work: Work = Arc::new(move || unsafe { function(argument.pointer()) });
    code(Stream::find(stream as u64).and_then(|stream| stream.submit(Task::Unseen, work)))
}
