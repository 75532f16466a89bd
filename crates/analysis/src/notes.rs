//! What the rows of a block should say that is known only later.

use rustc_hash::FxHashMap;

use crate::inefficient::InefficiencyKinds;

/// Notes by allocation id.
#[derive(Debug, Default)]
pub struct Notes {
    inefficiency: FxHashMap<u64, InefficiencyKinds>,
}

impl Notes {
    pub(crate) fn set_inefficiency(&mut self, allocation_id: u64, kinds: InefficiencyKinds) {
        self.inefficiency.insert(allocation_id, kinds);
    }

    /// In which ways the use of a block is inefficient, joined by commas.
    pub fn inefficiency(&self, allocation_id: u64) -> Option<&'static str> {
        self.inefficiency.get(&allocation_id).map(|kinds| kinds.attribute())
    }

    /// Blocks with a note.
    pub fn len(&self) -> usize {
        self.inefficiency.len()
    }

    /// Whether no block has one.
    pub fn is_empty(&self) -> bool {
        self.inefficiency.is_empty()
    }
}
