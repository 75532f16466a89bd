//! Brings the records of all chunks into one order: time, frees first, thread, sequence.
//!
//! Records of one thread that carry the same time keep the order they were written in.
//! Only chunks whose time ranges overlap are in memory at once: about one per thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use msmemscope_event::Record;

use crate::codec::{self, CodecState, Decoded};
use crate::layout::CHUNK_HEADER_BYTES;
use crate::reader::{ChunkSummary, Source, Trace};

/// Position of a record in the order of all records.
type Key = (u64, u8, u32, u32, u32);

/// Where a record begins and what it is encoded relative to.
#[derive(Clone, Copy)]
struct Place {
    state: CodecState,
    offset: usize,
}

/// A chunk that is being read.
struct OpenChunk {
    index: u32,
    bytes: Vec<u8>,
    /// Place of the record that comes next, and its number in the chunk.
    head: Place,
    record_number: u32,
    /// For chunks whose records are not in time order: all places, next one last.
    sorted: Option<Vec<(Key, Place)>>,
}

impl OpenChunk {
    fn new(source: &Source, summary: &ChunkSummary) -> Self {
        let offset = summary.file_offset + CHUNK_HEADER_BYTES as u64;
        // A file that shrank since the first pass simply has fewer records.
        let bytes = source.read(offset, summary.usable_bytes).unwrap_or_default();
        let head = Place { state: CodecState::new(summary.base_monotonic_ns, summary.thread_id), offset: 0 };
        let mut chunk = Self { index: summary.index, bytes, head, record_number: 0, sorted: None };
        if !summary.in_time_order {
            let mut places = Vec::new();
            while let Some(entry) = chunk.next_place() {
                places.push(entry);
            }
            places
                .sort_unstable_by_key(|&((monotonic_ns, .., record_number), _)| Reverse((monotonic_ns, record_number)));
            chunk.sorted = Some(places);
        }
        chunk
    }

    /// Key and place of the next record in order; advances past it.
    fn next_place(&mut self) -> Option<(Key, Place)> {
        if let Some(sorted) = &mut self.sorted {
            return sorted.pop();
        }
        loop {
            let place = self.head;
            let rest = self.bytes.get(self.head.offset..)?;
            match codec::decode(&mut self.head.state, rest) {
                Decoded::Record(record, taken_bytes) => {
                    self.head.offset += taken_bytes;
                    self.record_number += 1;
                    let key =
                        (record.monotonic_ns, record.tie_rank(), record.thread_id, self.index, self.record_number);
                    return Some((key, place));
                }
                Decoded::Damaged(taken_bytes) => self.head.offset += taken_bytes,
                Decoded::Torn => return None,
            }
        }
    }
}

/// Entry of the heap: the next record of one open chunk.
struct Head {
    key: Key,
    slot: usize,
    place: Place,
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Head {}
impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Streams the records of a trace in order.
pub struct RecordStream {
    source: Arc<Source>,
    /// Chunks not opened yet, earliest last.
    waiting: Vec<ChunkSummary>,
    open: Vec<Option<OpenChunk>>,
    free_slots: Vec<usize>,
    heads: BinaryHeap<Reverse<Head>>,
    /// The chunk read from last, kept out of the heap while it stays the earliest.
    current: Option<Head>,
    /// Chunk that gave its last record with the previous call.
    exhausted: Option<usize>,
    records_done: u64,
    records_total: u64,
}

impl RecordStream {
    pub(crate) fn new(trace: &Trace) -> Self {
        let mut waiting = trace.chunks.clone();
        waiting.sort_by_key(|chunk| Reverse((chunk.earliest_monotonic_ns, chunk.index)));
        Self {
            source: Arc::clone(&trace.source),
            waiting,
            open: Vec::new(),
            free_slots: Vec::new(),
            heads: BinaryHeap::new(),
            current: None,
            exhausted: None,
            records_done: 0,
            records_total: trace.completeness().records,
        }
    }

    /// Records given so far, and all of them.
    pub fn progress(&self) -> (u64, u64) {
        (self.records_done, self.records_total)
    }

    /// The next record. It borrows from the stream; copy what must be kept.
    #[expect(clippy::should_implement_trait, reason = "a lending iterator cannot implement Iterator")]
    pub fn next(&mut self) -> Option<Record<'_>> {
        if let Some(slot) = self.exhausted.take() {
            self.open[slot] = None;
            self.free_slots.push(slot);
        }
        self.open_due_chunks();
        let head = match (self.current.take(), self.heads.peek()) {
            (Some(current), Some(Reverse(earliest))) if earliest.key < current.key => {
                self.heads.push(Reverse(current));
                self.heads.pop()?.0
            }
            (Some(current), _) => current,
            (None, _) => self.heads.pop()?.0,
        };
        match self.open[head.slot].as_mut()?.next_place() {
            Some((key, place)) => self.current = Some(Head { key, slot: head.slot, place }),
            None => self.exhausted = Some(head.slot),
        }
        self.records_done += 1;
        let chunk = self.open[head.slot].as_ref()?;
        let mut state = head.place.state;
        match codec::decode(&mut state, chunk.bytes.get(head.place.offset..)?) {
            Decoded::Record(record, _) => Some(record),
            Decoded::Damaged(_) | Decoded::Torn => None,
        }
    }

    /// Opens every chunk that may hold a record earlier than all known ones.
    fn open_due_chunks(&mut self) {
        while let Some(chunk) = self.waiting.last() {
            let earliest_known = match (&self.current, self.heads.peek()) {
                (Some(current), Some(Reverse(head))) => Some(current.key.0.min(head.key.0)),
                (Some(current), None) => Some(current.key.0),
                (None, Some(Reverse(head))) => Some(head.key.0),
                (None, None) => None,
            };
            if earliest_known.is_some_and(|earliest| earliest < chunk.earliest_monotonic_ns) {
                return;
            }
            let mut opened = OpenChunk::new(&self.source, chunk);
            self.waiting.pop();
            if let Some((key, place)) = opened.next_place() {
                let slot = self.free_slots.pop().unwrap_or_else(|| {
                    self.open.push(None);
                    self.open.len() - 1
                });
                self.open[slot] = Some(opened);
                self.heads.push(Reverse(Head { key, slot, place }));
            }
        }
    }
}
