//! What rows of files say about blocks because an analysis has found it.

use msmemscope_analysis::{Notes, Owners};
use msmemscope_output::BlockNotes;
use msmemscope_timeline::TimelineEvent;

/// What rows of files should say about blocks.
pub struct FoundNotes {
    /// Owners, if they were asked for.
    pub owners: Option<Owners>,
    /// Inefficient use, and what was alive when memory ran out.
    pub notes: Notes,
    /// Whether inefficient use was asked for.
    pub inefficient: bool,
    /// Blocks listed per failure if failures were asked for.
    pub failure_blocks: Option<u16>,
}

impl BlockNotes for FoundNotes {
    fn owner(&self, allocation_id: u64) -> Option<&str> {
        self.owners.as_ref()?.owner(allocation_id)
    }

    fn inefficiency(&self, allocation_id: u64) -> Option<&str> {
        self.notes.inefficiency(allocation_id)
    }

    fn behind(&self, event: &TimelineEvent) -> &[TimelineEvent] {
        match self.failure_blocks {
            Some(_) => self.notes.alive_at_failure(event.timestamp_ns, event.thread_id),
            None => &[],
        }
    }

    fn fingerprint(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.inefficient.then(|| "inefficient".to_owned()));
        words.extend(self.failure_blocks.map(|blocks| format!("failures={blocks}")));
        words.join(" ")
    }
}
