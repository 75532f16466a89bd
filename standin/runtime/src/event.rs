//! Events: marks in a stream that others can wait for.

use crate::error::RuntimeError;
use crate::state::{lock, state};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

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
        events.get(&handle).cloned().ok_or(RuntimeError::InvalidEvent)
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
