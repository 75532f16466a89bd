//! Queues of tensors, by device and name.

use crate::dataset::{DataItem, Dataset};
use crate::{INVALID_PARAMETER, QUEUE_EMPTY, QUEUE_FULL};
use standin_support::ProcessCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString, c_char};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many datasets wait in a channel whose maker does not say.
const USUAL_CAPACITY: usize = 1024;

/// What lies in a channel.
#[derive(Default)]
struct Contents {
    waiting: VecDeque<Vec<DataItem>>,
    is_stopped: bool,
}

/// The queue that all handles of one device and name share.
struct Queue {
    contents: Mutex<Contents>,
    changed: Condvar,
    capacity: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the contents allow it, the channel is stopped, or the time is over: -1 ms is for ever.
    fn wait_until(&self, timeout_ms: i32, is_ready: impl Fn(&Contents) -> bool) -> MutexGuard<'_, Contents> {
        let must_wait = |contents: &mut Contents| !contents.is_stopped && !is_ready(contents);
        let contents = self.lock();
        match u64::try_from(timeout_ms) {
            Ok(timeout_ms) => {
                let waited = self.changed.wait_timeout_while(contents, Duration::from_millis(timeout_ms), must_wait);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            Err(_) => self.changed.wait_while(contents, must_wait).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// `acltdtChannelHandle`.
pub struct Channel {
    name: CString,
    queue: Arc<Queue>,
}

type Queues = Mutex<HashMap<(u32, CString), Arc<Queue>>>;

static QUEUES: ProcessCell<Queues> = ProcessCell::new();

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtCreateChannel(device: u32, name: *const c_char) -> *mut Channel {
    // SAFETY: as for the function called.
    unsafe { acltdtCreateChannelWithCapacity(device, name, USUAL_CAPACITY) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtCreateChannelWithCapacity(
    device: u32,
    name: *const c_char,
    capacity: usize,
) -> *mut Channel {
    if name.is_null() || capacity == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: terminated by the contract of the C function.
    let name = unsafe { CStr::from_ptr(name) }.to_owned();
    let mut queues = QUEUES.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let queue = queues
        .entry((device, name.clone()))
        .or_insert_with(|| Arc::new(Queue { contents: Mutex::default(), changed: Condvar::new(), capacity }));
    Box::into_raw(Box::new(Channel { name, queue: Arc::clone(queue) }))
}

/// Wakes whoever waits at the channel; nobody waits there any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtStopChannel(channel: *mut Channel) -> i32 {
    // SAFETY: null or a live channel, by the contract of the C function.
    let Some(channel) = (unsafe { channel.as_ref() }) else { return INVALID_PARAMETER };
    channel.queue.lock().is_stopped = true;
    channel.queue.changed.notify_all();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtDestroyChannel(channel: *mut Channel) -> i32 {
    if channel.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: made by `acltdtCreateChannelWithCapacity` and destroyed once, by the contract of the C function.
    let channel = unsafe { Box::from_raw(channel) };
    let mut queues = QUEUES.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    queues.retain(|_, queue| !Arc::ptr_eq(queue, &channel.queue) || Arc::strong_count(queue) > 2);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtSendTensor(channel: *const Channel, dataset: *const Dataset, timeout_ms: i32) -> i32 {
    // SAFETY: null or live objects, by the contract of the C function.
    let (Some(channel), Some(dataset)) = (unsafe { (channel.as_ref(), dataset.as_ref()) }) else {
        return INVALID_PARAMETER;
    };
    let queue = &channel.queue;
    let mut contents = queue.wait_until(timeout_ms, |contents| contents.waiting.len() < queue.capacity);
    if contents.is_stopped || contents.waiting.len() >= queue.capacity {
        return QUEUE_FULL;
    }
    contents.waiting.push_back(dataset.contents());
    drop(contents);
    queue.changed.notify_all();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtReceiveTensor(channel: *const Channel, dataset: *mut Dataset, timeout_ms: i32) -> i32 {
    // SAFETY: null or live objects, by the contract of the C function; nobody else uses the dataset now.
    let (Some(channel), Some(dataset)) = (unsafe { (channel.as_ref(), dataset.as_mut()) }) else {
        return INVALID_PARAMETER;
    };
    let mut contents = channel.queue.wait_until(timeout_ms, |contents| !contents.waiting.is_empty());
    let Some(items) = contents.waiting.pop_front() else { return QUEUE_EMPTY };
    drop(contents);
    channel.queue.changed.notify_all();
    dataset.receive(items, &channel.name);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtQueryChannelSize(channel: *const Channel, size: *mut usize) -> i32 {
    // SAFETY: null or a live channel, by the contract of the C function.
    let Some(channel) = (unsafe { channel.as_ref() }) else { return INVALID_PARAMETER };
    if size.is_null() {
        return INVALID_PARAMETER;
    }
    let waiting = channel.queue.lock().waiting.len();
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { size.write(waiting) };
    0
}

/// Throws away what nobody has received.
#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtCleanChannel(channel: *mut Channel) -> i32 {
    // SAFETY: null or a live channel, by the contract of the C function.
    let Some(channel) = (unsafe { channel.as_ref() }) else { return INVALID_PARAMETER };
    channel.queue.lock().waiting.clear();
    channel.queue.changed.notify_all();
    0
}
