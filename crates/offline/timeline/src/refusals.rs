//! Refusals of the driver that a framework has not got over yet.
//!
//! A framework that is refused memory frees what it has cached and asks again, perhaps several times, before it
//! gives up. The state before all that is the one at the first refusal, so that one has a snapshot. The one that
//! the Python half takes when the framework gives up repeats it too late; the one it takes afterwards belongs to
//! the same call stack.

use msmemscope_event::{Device, PoolRefusal, PoolSegment, StackId, StringId};
use msmemscope_trace::Definitions;
use rustc_hash::FxHashMap;

use crate::event::PoolGaveUp;

/// Name of the snapshot that is taken when a framework runs out of memory.
pub const OUT_OF_MEMORY_SNAPSHOT: &str = "OOM_Snapshot";
/// Name of the one that follows it.
pub const AFTER_OUT_OF_MEMORY_SNAPSHOT: &str = "OOM_Snapshot After";

/// Stacks of an event.
pub(crate) type Stacks = (StackId, StackId);

/// What is open, by thread, and the stacks of the latest failure by device.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    open_threads: Vec<u32>,
    stacks: FxHashMap<Device, Stacks>,
    snapshot_names: Vec<StringId>,
    after_names: Vec<StringId>,
    /// Segments that threads have told of pools that are about to give up.
    segments: Vec<(u32, PoolSegment)>,
}

impl Refusals {
    /// Takes in which snapshots are about refusals.
    pub(crate) fn learn(&mut self, definitions: &Definitions) {
        let named = |name: &str| definitions.string_ids_where(|text| text == name.as_bytes());
        self.snapshot_names = named(OUT_OF_MEMORY_SNAPSHOT);
        self.after_names = named(AFTER_OUT_OF_MEMORY_SNAPSHOT);
    }

    /// A thread tells of a segment of a pool that is about to give up.
    pub(crate) fn segment(&mut self, thread_id: u32, segment: PoolSegment) {
        self.segments.push((thread_id, segment));
    }

    /// The pool gives up: with the segments that the thread has told of, if none is missing.
    pub(crate) fn gave_up(&mut self, thread_id: u32, refusal: PoolRefusal) -> PoolGaveUp {
        let of_thread = self.segments.extract_if(.., |(of, _)| *of == thread_id);
        let mut segments: Vec<PoolSegment> = of_thread.map(|(_, segment)| segment).collect();
        if segments.len() as u64 != refusal.segments {
            segments.clear();
        }
        PoolGaveUp { refusal, segments }
    }

    /// The stacks of the failure that a pool gives up after, or its own.
    pub(crate) fn stacks_at_end(&self, thread_id: u32, device: Device, own: Stacks) -> Stacks {
        let of_failure = self.stacks.get(&device).filter(|_| self.open_threads.contains(&thread_id));
        of_failure.copied().unwrap_or(own)
    }

    /// The driver refused memory. True for the first time since it gave some to this thread.
    pub(crate) fn refused(&mut self, thread_id: u32, device: Device, stacks: Stacks) -> bool {
        if self.open_threads.contains(&thread_id) {
            return false;
        }
        self.open_threads.push(thread_id);
        self.stacks.insert(device, stacks);
        true
    }

    /// The driver gave memory.
    #[inline]
    pub(crate) fn granted(&mut self, thread_id: u32) {
        if !self.open_threads.is_empty() {
            self.open_threads.retain(|open| *open != thread_id);
        }
    }

    /// A snapshot was taken. Gives whether it repeats that of a refusal, and the stacks that it belongs to.
    pub(crate) fn snapshot(&mut self, name: StringId, thread_id: u32, device: Device, own: Stacks) -> (bool, Stacks) {
        if self.after_names.contains(&name) {
            return (false, self.stacks.get(&device).copied().unwrap_or(own));
        }
        if !self.snapshot_names.contains(&name) {
            return (false, own);
        }
        let is_repeated = self.open_threads.contains(&thread_id);
        self.granted(thread_id);
        if !is_repeated {
            self.stacks.insert(device, own);
        }
        (is_repeated, own)
    }
}
