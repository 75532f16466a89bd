//! What the writing process knows of the chunks of its file: which are in use, since when and until when. It answers
//! which chunks can be compacted, and which can be handed out once more.
//!
//! The table lies in memory that the kernel provides when it is first touched: it costs what the chunks that exist need.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A file may have more chunks than this; they are not compacted then.
const LARGEST_TABLE: u32 = 1 << 20;

/// What a chunk is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ChunkUse {
    /// Never handed out, or about to be.
    None = 0,
    /// A thread writes into it, or did so when it disappeared.
    Open = 1,
    /// A thread has filled it.
    Sealed = 2,
    /// Made by compaction.
    Compacted = 3,
    /// Replaced by compaction: to be handed out once more.
    Vacant = 4,
}

impl ChunkUse {
    fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Open,
            2 => Self::Sealed,
            3 => Self::Compacted,
            4 => Self::Vacant,
            _ => Self::None,
        }
    }
}

/// What is known of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkNote {
    /// Position in the file.
    pub(crate) index: u32,
    /// What it is used for.
    pub(crate) usage: ChunkUse,
    /// Time of its first record.
    pub(crate) begin_ns: u64,
    /// Time of its last record, once it is sealed.
    pub(crate) end_ns: u64,
}

/// Zero bytes are an entry whose chunk was never handed out.
#[repr(C)]
struct Entry {
    usage: AtomicU32,
    begin_ns: AtomicU64,
    end_ns: AtomicU64,
}

/// The notes about all chunks of a file.
pub(crate) struct ChunkTable {
    entries: &'static [Entry],
    vacant: AtomicU32,
}

impl ChunkTable {
    /// A table for this many chunks; empty if those are too many or memory is short.
    pub(crate) fn new(chunks: u32, allocate: impl FnOnce(usize) -> Option<*mut u8>) -> Self {
        let count = if chunks <= LARGEST_TABLE { chunks as usize } else { 0 };
        let memory = if count > 0 { allocate(count * size_of::<Entry>()) } else { None };
        let entries = match memory {
            // SAFETY: zeroed, aligned to a page, large enough, and given back never: the file lives as long as the process.
            Some(memory) => unsafe { std::slice::from_raw_parts(memory.cast::<Entry>(), count) },
            None => &[],
        };
        Self { entries, vacant: AtomicU32::new(0) }
    }

    /// Whether the chunks can be told apart at all.
    pub(crate) fn is_usable(&self) -> bool {
        !self.entries.is_empty()
    }

    /// A thread has this chunk from now on.
    pub(crate) fn opened(&self, index: u32, begin_ns: u64) {
        self.note(index, ChunkUse::Open, begin_ns, 0);
    }

    /// A thread has filled this chunk.
    pub(crate) fn sealed(&self, index: u32, end_ns: u64) {
        if let Some(entry) = self.entries.get(index as usize) {
            entry.end_ns.store(end_ns, Ordering::Relaxed);
            entry.usage.store(ChunkUse::Sealed as u32, Ordering::Release);
        }
    }

    /// Compaction has made this chunk.
    pub(crate) fn compacted(&self, index: u32, begin_ns: u64, end_ns: u64) {
        self.note(index, ChunkUse::Compacted, begin_ns, end_ns);
    }

    /// Nothing in this chunk is needed any more.
    pub(crate) fn vacated(&self, index: u32) {
        if self.is_usable() {
            self.note(index, ChunkUse::Vacant, 0, 0);
            self.vacant.fetch_add(1, Ordering::Release);
        }
    }

    /// This chunk is the copy of one of another file, of which nothing is known here yet.
    pub(crate) fn take_over(&self, index: u32, original: &Self, original_index: u32) {
        let Some(entry) = original.entries.get(original_index as usize) else { return };
        let (begin_ns, end_ns) = (entry.begin_ns.load(Ordering::Relaxed), entry.end_ns.load(Ordering::Relaxed));
        match ChunkUse::from_code(entry.usage.load(Ordering::Acquire)) {
            ChunkUse::Vacant => self.vacated(index),
            usage => self.note(index, usage, begin_ns, end_ns),
        }
    }

    fn note(&self, index: u32, usage: ChunkUse, begin_ns: u64, end_ns: u64) {
        if let Some(entry) = self.entries.get(index as usize) {
            entry.begin_ns.store(begin_ns, Ordering::Relaxed);
            entry.end_ns.store(end_ns, Ordering::Relaxed);
            entry.usage.store(usage as u32, Ordering::Release);
        }
    }

    /// How many chunks are vacant.
    pub(crate) fn vacant_count(&self) -> u32 {
        self.vacant.load(Ordering::Acquire)
    }

    /// Takes a vacant chunk, if there is one.
    pub(crate) fn take_vacant(&self) -> Option<u32> {
        if self.vacant_count() == 0 {
            return None;
        }
        let taken = self.entries.iter().position(|entry| {
            let (vacant, none) = (ChunkUse::Vacant as u32, ChunkUse::None as u32);
            entry.usage.load(Ordering::Relaxed) == vacant
                && entry.usage.compare_exchange(vacant, none, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        self.vacant.fetch_sub(1, Ordering::Relaxed);
        Some(taken as u32)
    }

    /// What is known of every chunk that has records, among the first ones, up to this number.
    pub(crate) fn notes(&self, chunks: u32) -> impl Iterator<Item = ChunkNote> {
        self.entries.iter().take(chunks as usize).enumerate().filter_map(|(index, entry)| {
            let usage = ChunkUse::from_code(entry.usage.load(Ordering::Acquire));
            let note = ChunkNote {
                index: index as u32,
                usage,
                begin_ns: entry.begin_ns.load(Ordering::Relaxed),
                end_ns: entry.end_ns.load(Ordering::Relaxed),
            };
            matches!(usage, ChunkUse::Open | ChunkUse::Sealed | ChunkUse::Compacted).then_some(note)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(chunks: u32) -> ChunkTable {
        ChunkTable::new(chunks, |bytes| Some(Box::leak(vec![0u64; bytes / 8].into_boxed_slice()).as_mut_ptr().cast()))
    }

    #[test]
    fn a_vacated_chunk_is_handed_out_once() {
        let table = table(4);
        for index in 0..4 {
            table.opened(index, 10);
        }
        assert_eq!(table.take_vacant(), None);
        table.sealed(2, 20);
        table.vacated(2);
        assert_eq!((table.take_vacant(), table.take_vacant()), (Some(2), None));
    }

    #[test]
    fn chunks_without_records_are_not_told() {
        let table = table(8);
        table.opened(1, 10);
        table.opened(2, 11);
        table.sealed(2, 30);
        table.compacted(3, 5, 9);
        table.vacated(4);
        let notes: Vec<_> = table.notes(8).map(|note| (note.index, note.usage, note.begin_ns, note.end_ns)).collect();
        assert_eq!(notes, [(1, ChunkUse::Open, 10, 0), (2, ChunkUse::Sealed, 11, 30), (3, ChunkUse::Compacted, 5, 9)]);
        assert_eq!(table.notes(2).count(), 1);
    }

    #[test]
    fn too_many_chunks_have_no_table() {
        let table = ChunkTable::new(u32::MAX, |_| unreachable!("nothing is allocated"));
        table.opened(5, 1);
        table.vacated(5);
        assert!(!table.is_usable() && table.take_vacant().is_none());
    }
}
