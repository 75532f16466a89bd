//! Copies and fills, at once or in a stream. Device memory is host memory here, so the direction does not matter.

use crate::error::{RuntimeError, code};
use crate::state::state;
use crate::stream::{Stream, Task, Work, synchronize_device};
use crate::task_reports::ApiCall;
use std::ffi::c_void;
use std::sync::Arc;

/// An address that travels to a worker.
#[derive(Clone, Copy)]
struct Address(*mut c_void);

// SAFETY: the caller keeps the memory alive until the work is done, as the C functions demand.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    fn pointer<T>(self) -> *mut T {
        self.0.cast()
    }
}

/// The copy, or why it cannot be made.
fn copy_work(target: *mut c_void, room: u64, source: *const c_void, count: u64) -> Result<Work, RuntimeError> {
    if count > 0 && (target.is_null() || source.is_null()) || count > room {
        return Err(RuntimeError::InvalidParameter);
    }
    let (target, source) = (Address(target), Address(source.cast_mut()));
    Ok(Arc::new(move || {
        // SAFETY: both ranges are valid for `count` bytes by the contract of the C functions; they may overlap.
        unsafe { std::ptr::copy(source.pointer::<u8>(), target.pointer::<u8>(), count as usize) }
    }))
}

/// The fill, or why it cannot be made.
fn fill_work(target: *mut c_void, room: u64, value: u32, count: u64) -> Result<Work, RuntimeError> {
    if count > 0 && target.is_null() || count > room {
        return Err(RuntimeError::InvalidParameter);
    }
    let target = Address(target);
    Ok(Arc::new(move || {
        // SAFETY: the range is valid for `count` bytes by the contract of the C functions.
        unsafe { std::ptr::write_bytes(target.pointer::<u8>(), value as u8, count as usize) }
    }))
}

/// Work of a synchronous call: the default stream is ahead of it.
fn run_now(work: Work) -> Result<(), RuntimeError> {
    if let Ok(stream) = Stream::find(0) {
        stream.synchronize(None)?;
    }
    work();
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtMemcpy(target: *mut c_void, room: u64, source: *const c_void, count: u64, _kind: i32) -> i32 {
    code(copy_work(target, room, source, count).and_then(run_now))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtMemcpyAsync(
    target: *mut c_void,
    room: u64,
    source: *const c_void,
    count: u64,
    _kind: i32,
    stream: *mut c_void,
) -> i32 {
    let _call = ApiCall::begin();
    let work = copy_work(target, room, source, count);
    code(work.and_then(|work| Stream::find(stream as u64)?.submit(Task::Copy, work)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtMemset(target: *mut c_void, room: u64, value: u32, count: u64) -> i32 {
    code(fill_work(target, room, value, count).and_then(run_now))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtMemsetAsync(target: *mut c_void, room: u64, value: u32, count: u64, stream: *mut c_void) -> i32 {
    let _call = ApiCall::begin();
    let work = fill_work(target, room, value, count);
    code(work.and_then(|work| Stream::find(stream as u64)?.submit(Task::Copy, work)))
}

/// Our own: waits for all work of the thread's device, if it has one.
#[unsafe(no_mangle)]
extern "C" fn standinFinishWork() -> i32 {
    code(state().current_device().map_or(Ok(()), |device| synchronize_device(device, None)))
}
