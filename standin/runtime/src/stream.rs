//! Streams: queues of work with a worker thread each, started when the first work arrives.

use crate::error::RuntimeError;
use crate::event::Event;
use crate::state::{lock, state};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Work of a stream.
pub type Work = Box<dyn FnOnce() + Send>;

/// The queue of a stream.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    submitted: u64,
    finished: u64,
    has_worker: bool,
    closed: bool,
}

/// A stream.
pub struct Stream {
    /// Small number that names the stream.
    pub id: i32,
    /// Logical device of the stream.
    pub device: i32,
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Stream {
    /// A stream of `device` without work.
    pub fn new(device: i32) -> Self {
        static NEXT_ID: AtomicI32 = AtomicI32::new(0);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { id, device, queue: Mutex::new(Queue::default()), changed: Condvar::new() }
    }

    /// The stream behind a handle; null is the default stream of the thread's device.
    pub fn find(handle: u64) -> Result<Arc<Self>, RuntimeError> {
        if handle == 0 {
            let device = state().current_device()?;
            let mut defaults = lock(&state().default_streams);
            let stream = defaults.entry(device).or_insert_with(|| Arc::new(Self::new(device)));
            return Ok(Arc::clone(stream));
        }
        let streams = state().streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(&handle).cloned().ok_or(RuntimeError::InvalidStream)
    }

    /// Adds work; with `ASCEND_LAUNCH_BLOCKING=1` also waits for it.
    pub fn submit(self: &Arc<Self>, work: Work) -> Result<(), RuntimeError> {
        let mut queue = lock(&self.queue);
        if queue.closed {
            return Err(RuntimeError::InvalidStream);
        }
        queue.waiting.push_back(work);
        queue.submitted += 1;
        if !queue.has_worker {
            queue.has_worker = true;
            let stream = Arc::clone(self);
            start_worker(move || stream.run());
        }
        self.changed.notify_all();
        drop(queue);
        if state().blocking { self.synchronize(None) } else { Ok(()) }
    }

    /// Waits until everything submitted so far is done.
    pub fn synchronize(&self, timeout_ms: Option<u64>) -> Result<(), RuntimeError> {
        let deadline = timeout_ms.map(|milliseconds| Instant::now() + Duration::from_millis(milliseconds));
        let mut queue = lock(&self.queue);
        let target = queue.submitted;
        while queue.finished < target {
            queue = match deadline {
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(RuntimeError::Timeout);
                    }
                    self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Ok(())
    }

    /// Whether everything submitted so far is done.
    pub fn is_idle(&self) -> bool {
        let queue = lock(&self.queue);
        queue.finished == queue.submitted
    }

    /// Lets the worker end once the queue is empty; no more work is taken.
    pub fn close(&self) {
        lock(&self.queue).closed = true;
        self.changed.notify_all();
    }

    /// Queues a recording of `event`.
    pub fn record(self: &Arc<Self>, event: Arc<Event>) -> Result<(), RuntimeError> {
        let number = event.begin_recording();
        self.submit(Box::new(move || event.complete(number)))
    }

    /// Makes later work wait for the latest recording of `event`, or its first one.
    pub fn wait_for(self: &Arc<Self>, event: Arc<Event>) -> Result<(), RuntimeError> {
        let number = event.awaited_recording();
        self.submit(Box::new(move || event.wait(number)))
    }

    fn run(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(work) = queue.waiting.pop_front() {
                drop(queue);
                // A panic in an operator must not take the job down silently: the message is printed by the panic
                // itself and the stream goes on.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                queue = lock(&self.queue);
                queue.finished += 1;
                self.changed.notify_all();
            } else if queue.closed {
                return;
            } else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Starts a thread that receives none of the job's signals.
fn start_worker(body: impl FnOnce() + Send + 'static) {
    // SAFETY: blocks all signals around the start, so the new thread inherits the full mask, then restores it.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = std::thread::Builder::new().name("standin-stream".to_owned()).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        if started.is_err() {
            eprintln!("stand-in device: no thread for a stream");
            std::process::abort();
        }
    }
}

/// Waits for all streams of a logical device.
pub fn synchronize_device(device: i32, timeout_ms: Option<u64>) -> Result<(), RuntimeError> {
    let mut streams: Vec<_> = {
        let all = state().streams.read().unwrap_or_else(PoisonError::into_inner);
        all.values().filter(|stream| stream.device == device).cloned().collect()
    };
    streams.extend(lock(&state().default_streams).get(&device).cloned());
    streams.iter().try_for_each(|stream| stream.synchronize(timeout_ms))
}
