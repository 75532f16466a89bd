//! Chunks whose threads have ended, waiting for threads that begin: without them, a job that starts thread after thread
//! would fill the trace with chunks that are nearly empty.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use msmemscope_trace::writer::{Chunk, ChunkView};

const ADOPTION_SLOTS: usize = 256;

/// Place for a chunk whose thread has ended.
struct AdoptionSlot {
    state: AtomicU32,
    chunk: UnsafeCell<MaybeUninit<Chunk>>,
}

const SLOT_EMPTY: u32 = 0;

const SLOT_BUSY: u32 = 1;

const SLOT_FULL: u32 = 2;

// SAFETY: `chunk` is only touched by whoever moved `state` to busy.
unsafe impl Sync for AdoptionSlot {}

impl AdoptionSlot {
    fn empty() -> Self {
        Self { state: AtomicU32::new(SLOT_EMPTY), chunk: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    fn claim(&self, from: u32) -> bool {
        self.state.load(Ordering::Relaxed) == from
            && self.state.compare_exchange(from, SLOT_BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Places for chunks whose threads have ended.
pub struct Adoption {
    slots: Box<[AdoptionSlot]>,
}

impl Adoption {
    /// Nothing waits yet.
    pub fn new() -> Self {
        Self { slots: (0..ADOPTION_SLOTS).map(|_| AdoptionSlot::empty()).collect() }
    }

    /// A chunk whose thread has ended.
    pub fn take(&self) -> Option<Chunk> {
        let slot = self.slots.iter().find(|slot| slot.claim(SLOT_FULL))?;
        // SAFETY: the slot is ours and was full.
        let chunk = unsafe { (*slot.chunk.get()).assume_init_read() };
        slot.state.store(SLOT_EMPTY, Ordering::Release);
        Some(chunk)
    }

    /// Keeps the chunk of a thread that ends for one that begins; gives it back if there is no room.
    pub fn put(&self, chunk: Chunk) -> Option<Chunk> {
        let Some(slot) = self.slots.iter().find(|slot| slot.claim(SLOT_EMPTY)) else { return Some(chunk) };
        // SAFETY: the slot is ours.
        unsafe { (*slot.chunk.get()).write(chunk) };
        slot.state.store(SLOT_FULL, Ordering::Release);
        None
    }

    /// Goes through the chunks that wait.
    pub fn for_each(&self, mut take: impl FnMut(&ChunkView)) {
        for slot in self.slots.iter().filter(|slot| slot.claim(SLOT_FULL)) {
            // SAFETY: the slot is ours and was full.
            take(&unsafe { (*slot.chunk.get()).assume_init_ref() }.view());
            slot.state.store(SLOT_FULL, Ordering::Release);
        }
    }
}
