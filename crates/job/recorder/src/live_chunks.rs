//! The chunks that threads are writing to, where the trace is buffered: nothing but the process
//! itself can bring them into the file, and only here does it know of those of other threads.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use msmemscope_trace::writer::{Chunk, ChunkView};

const SLOTS: usize = 1024;

const EMPTY: u32 = 0;
/// Somebody is putting a chunk in, taking it out or bringing it into the file.
const BUSY: u32 = 1;
const LIVE: u32 = 2;

struct Slot {
    state: AtomicU32,
    view: UnsafeCell<Option<ChunkView>>,
}

// SAFETY: `view` is only touched by whoever moved `state` to busy.
unsafe impl Sync for Slot {}

impl Slot {
    fn claim(&self, from: u32) -> bool {
        self.state.compare_exchange(from, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// All chunks in use.
pub struct LiveChunks {
    slots: Box<[Slot]>,
}

impl LiveChunks {
    /// No chunks.
    pub fn new() -> Self {
        let slot = |_| Slot { state: AtomicU32::new(EMPTY), view: UnsafeCell::new(None) };
        Self { slots: (0..SLOTS).map(slot).collect() }
    }

    /// Notes a chunk and says where; nothing if there are too many, whose records then wait until
    /// they are full.
    pub fn add(&self, chunk: &Chunk) -> Option<usize> {
        let place = self.slots.iter().position(|slot| slot.claim(EMPTY))?;
        let slot = &self.slots[place];
        // SAFETY: the slot is ours.
        unsafe { *slot.view.get() = Some(chunk.view()) };
        slot.state.store(LIVE, Ordering::Release);
        Some(place)
    }

    /// Forgets a chunk before it is unmapped; waits while it is being brought into the file.
    pub fn remove(&self, place: usize) {
        let slot = &self.slots[place];
        while !slot.claim(LIVE) {
            std::thread::yield_now();
        }
        // SAFETY: the slot is ours.
        unsafe { *slot.view.get() = None };
        slot.state.store(EMPTY, Ordering::Release);
    }

    /// Goes through all chunks in use.
    pub fn for_each(&self, take: &mut impl FnMut(&ChunkView)) {
        for slot in self.slots.iter().filter(|slot| slot.claim(LIVE)) {
            // SAFETY: the slot is ours, and its chunk stays mapped until it is removed.
            if let Some(view) = unsafe { (*slot.view.get()).as_ref() } {
                take(view);
            }
            slot.state.store(LIVE, Ordering::Release);
        }
    }
}
