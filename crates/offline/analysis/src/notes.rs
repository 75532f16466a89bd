//! What the rows of a block should say that is known only later.

use msmemscope_dump::annotate::RowNotes;
use msmemscope_import::Recording;
use msmemscope_timeline::FactSource;
use msmemscope_timeline::event::FailureList;
use msmemscope_timeline::{EventKind, TimelineEvent};
use rustc_hash::FxHashMap;

use crate::inefficient::InefficiencyKinds;
use crate::out_of_memory::{Failure, ListedBlock};

/// Notes by allocation id, and by failure.
#[derive(Debug, Default)]
pub struct Notes {
    /// By allocation id: one byte each, because very many blocks may be used inefficiently.
    inefficiency: Vec<InefficiencyKinds>,
    /// What was alive at a failure, by its time and thread.
    alive_at_failures: FxHashMap<(u64, u32), Vec<TimelineEvent>>,
}

impl Notes {
    pub(crate) fn set_inefficiency(&mut self, allocation_id: u64, kinds: InefficiencyKinds) {
        let index = allocation_id as usize;
        if self.inefficiency.len() <= index {
            self.inefficiency.resize(index + 1, InefficiencyKinds::default());
        }
        self.inefficiency[index] = kinds;
    }

    /// In which ways the use of a block is inefficient, joined by commas.
    pub fn inefficiency(&self, allocation_id: u64) -> Option<&'static str> {
        let kinds = self.inefficiency.get(usize::try_from(allocation_id).ok()?)?;
        (!kinds.is_empty()).then(|| kinds.attribute())
    }

    /// Adds what rows of a file should say about the blocks of a process that was read from it.
    pub fn add_to_rows(&self, recording: &Recording, rows: &mut RowNotes) {
        let Recording::Process(process) = recording else { return };
        let mut allocation_id = 1;
        while let Some(row_id) = process.row_id(allocation_id) {
            if let Some(text) = self.inefficiency(allocation_id) {
                rows.insert(recording.process_id(), row_id, text);
            }
            allocation_id += 1;
        }
    }

    pub(crate) fn add_failure(&mut self, failure: &Failure) {
        let event = |list: FailureList, block: &ListedBlock| TimelineEvent {
            timestamp_ns: failure.timestamp_ns,
            thread_id: failure.thread_id,
            device: failure.device,
            step: failure.step,
            native_stack: block.stacks.native,
            python_stack: block.stacks.python,
            kind: EventKind::AliveAtFailure {
                list,
                pool: block.pool,
                address: block.address,
                size_bytes: block.size_bytes,
                allocated_ns: block.timestamp_ns,
            },
        };
        let recent = failure.recent.iter().map(|block| event(FailureList::Recent, block));
        let largest = failure.largest.iter().map(|block| event(FailureList::Largest, block));
        self.alive_at_failures.insert((failure.timestamp_ns, failure.thread_id), recent.chain(largest).collect());
    }

    /// Events that list what was alive when this allocation failed.
    pub fn alive_at_failure(&self, timestamp_ns: u64, thread_id: u32) -> &[TimelineEvent] {
        self.alive_at_failures.get(&(timestamp_ns, thread_id)).map_or(&[], |events| events)
    }
}
