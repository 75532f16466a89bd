//! Events: marks in a stream that others can wait for.

use crate::error::RuntimeError;
use crate::state::{lock, state};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Destroyed events that are still known.
const REMEMBERED: usize = 16_384;

/// Events by handle. Programs with several queues may destroy an event in one while another is about to wait for it; a
/// card takes the wait nevertheless. So destroyed events are remembered for a while, and with them their handles, which
/// are addresses, are not given out again.
#[derive(Debug, Default)]
pub struct Events {
    alive: HashMap<u64, Arc<Event>>,
    destroyed: HashMap<u64, Arc<Event>>,
    order_of_destruction: VecDeque<u64>,
}

impl Events {
    /// Adds an event; returns its handle.
    pub fn create(&mut self) -> u64 {
        let event = Arc::new(Event::default());
        let handle = Arc::as_ptr(&event) as u64;
        self.alive.insert(handle, event);
        handle
    }

    /// Destroys an event, which stays known to those that wait for it.
    pub fn destroy(&mut self, handle: u64) -> Result<(), RuntimeError> {
        let event = self.alive.remove(&handle).ok_or(RuntimeError::InvalidEvent)?;
        event.end();
        self.destroyed.insert(handle, event);
        self.order_of_destruction.push_back(handle);
        if self.order_of_destruction.len() > REMEMBERED
            && let Some(oldest) = self.order_of_destruction.pop_front()
        {
            self.destroyed.remove(&oldest);
        }
        Ok(())
    }
}

/// How often an event was recorded, and up to which recording the device has come.
#[derive(Debug, Default)]
struct Progress {
    recorded: u64,
    completed: u64,
    completed_at: Option<Instant>,
}

/// An event.
#[derive(Debug, Default)]
pub struct Event {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Event {
    /// The event behind a handle.
    pub fn find(handle: u64) -> Result<Arc<Self>, RuntimeError> {
        let events = state().events.read().unwrap_or_else(PoisonError::into_inner);
        events.alive.get(&handle).cloned().ok_or(RuntimeError::InvalidEvent)
    }

    /// The event behind a handle, for those that only wait: it may have been destroyed a while ago.
    pub fn find_for_waiting(handle: u64) -> Result<Arc<Self>, RuntimeError> {
        let events = state().events.read().unwrap_or_else(PoisonError::into_inner);
        events.alive.get(&handle).or_else(|| events.destroyed.get(&handle)).cloned().ok_or(RuntimeError::InvalidEvent)
    }

    /// Notes that a recording was queued; returns its number.
    pub fn begin_recording(&self) -> u64 {
        let mut progress = lock(&self.progress);
        progress.recorded += 1;
        progress.recorded
    }

    /// Notes that the device reached recording `number`.
    pub fn complete(&self, number: u64) {
        let mut progress = lock(&self.progress);
        progress.completed = progress.completed.max(number);
        progress.completed_at = Some(Instant::now());
        self.changed.notify_all();
    }

    /// Number of the latest recording, 0 when there was none.
    pub fn latest_recording(&self) -> u64 {
        lock(&self.progress).recorded
    }

    /// Number of the recording that a stream waits for: the latest one, or the first if it is still to come, because it
    /// may be on its way in another queue of the program. As on a card, nothing but a recording ends that wait.
    pub fn awaited_recording(&self) -> u64 {
        self.latest_recording().max(1)
    }

    /// Lets those go who wait for a recording that will not come any more.
    fn end(&self) {
        let mut progress = lock(&self.progress);
        if progress.recorded == 0 {
            progress.completed = u64::MAX;
            self.changed.notify_all();
        }
    }

    /// Waits until the device has reached recording `number`.
    pub fn wait(&self, number: u64) {
        let mut progress = lock(&self.progress);
        while progress.completed < number {
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether everything recorded so far has been reached.
    pub fn is_complete(&self) -> bool {
        let progress = lock(&self.progress);
        progress.completed >= progress.recorded
    }

    /// When the latest recording was reached.
    pub fn completed_at(&self) -> Option<Instant> {
        lock(&self.progress).completed_at
    }
}
