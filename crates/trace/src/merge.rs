//! Brings the records of all chunks into one order: time, frees first, thread, sequence.
//!
//! Records of one thread that carry the same time keep the order they were written in.
//! Only chunks whose time ranges overlap are in memory at once: about one per thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use msmemscope_event::Record;

use crate::codec::{self, CodecState, Decoded};
use crate::layout::{CHUNK_HEADER_BYTES, chunk_offset};
use crate::reader::{ChunkSummary, Source, Trace, u32_at, u64_at};

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
    /// For chunks that are not orderly: keys and places of all records, next one last.
    sorted: Option<Vec<(Key, Place)>>,
}

impl OpenChunk {
    fn new(source: &Source, summary: &ChunkSummary) -> Self {
        // A file that shrank since the first pass, or whose process has used the chunk for something else since, simply
        // has fewer records.
        let mut bytes = source.read(summary.file_offset, CHUNK_HEADER_BYTES + summary.usable_bytes).unwrap_or_default();
        if bytes.len() < CHUNK_HEADER_BYTES
            || u64_at(&bytes, chunk_offset::BASE_MONOTONIC_NS) != summary.base_monotonic_ns
            || u32_at(&bytes, chunk_offset::THREAD_ID) != summary.thread_id
        {
            bytes.clear();
        } else {
            bytes.drain(..CHUNK_HEADER_BYTES);
        }
        let head = Place { state: CodecState::new(summary.base_monotonic_ns, summary.thread_id), offset: 0 };
        let mut chunk = Self { index: summary.index, bytes, head, record_number: 0, sorted: None };
        if !summary.is_orderly {
            chunk.sorted = Some(chunk.sort());
        }
        chunk
    }

    /// Keys and places of all records that can be understood, the earliest last.
    fn sort(&self) -> Vec<(Key, Place)> {
        let mut places: Vec<(Key, Place)> = Vec::new();
        let mut place = self.head;
        while let Some(rest) = self.bytes.get(place.offset..) {
            let begin = place;
            match codec::decode(&mut place.state, rest) {
                Decoded::Record(record, taken_bytes) => {
                    place.offset += taken_bytes;
                    let record_number = places.len() as u32 + 1;
                    let key = (record.monotonic_ns, record.tie_rank(), record.thread_id, self.index, record_number);
                    places.push((key, begin));
                }
                Decoded::Damaged(taken_bytes) => place.offset += taken_bytes,
                Decoded::Torn => break,
            }
        }
        places.sort_unstable_by_key(|&((monotonic_ns, .., record_number), _)| Reverse((monotonic_ns, record_number)));
        places
    }

    /// Key of the record that comes next.
    #[inline]
    fn next_key(&self) -> Option<Key> {
        if let Some(sorted) = &self.sorted {
            return sorted.last().map(|(key, _)| *key);
        }
        let (monotonic_ns, tie_rank) = codec::peek(&self.head.state, self.bytes.get(self.head.offset..)?)?;
        Some((monotonic_ns, tie_rank, self.head.state.thread_id, self.index, self.record_number))
    }

    /// The record that comes next; advances past it.
    #[inline]
    fn next(&mut self) -> Option<Record<'_>> {
        if let Some(sorted) = &mut self.sorted {
            self.head = sorted.pop()?.1;
        }
        match codec::decode(&mut self.head.state, self.bytes.get(self.head.offset..)?) {
            Decoded::Record(record, taken_bytes) => {
                self.head.offset += taken_bytes;
                self.record_number += 1;
                Some(record)
            }
            Decoded::Damaged(_) | Decoded::Torn => None,
        }
    }
}

/// Entry of the heap: the next record of one open chunk.
struct Head {
    key: Key,
    slot: usize,
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
    /// The chunk that gave the latest record; not in the heap.
    given_from: Option<usize>,
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
            given_from: None,
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
    #[inline]
    pub fn next(&mut self) -> Option<Record<'_>> {
        let slot = self.advance()?;
        self.records_done += 1;
        self.given_from = Some(slot);
        self.open[slot].as_mut()?.next()
    }

    /// The chunk that has the next record.
    #[inline]
    fn advance(&mut self) -> Option<usize> {
        let mut current = None;
        if let Some(slot) = self.given_from.take() {
            match self.open[slot].as_ref().and_then(OpenChunk::next_key) {
                Some(key) => current = Some(Head { key, slot }),
                None => self.close(slot),
            }
        }
        // The chunk read from last stays out of the heap while it is the earliest.
        let earliest_known_ns = match (&current, self.heads.peek()) {
            (Some(current), Some(Reverse(head))) => current.key.0.min(head.key.0),
            (Some(current), None) => current.key.0,
            (None, Some(Reverse(head))) => head.key.0,
            (None, None) => u64::MAX,
        };
        if self.waiting.last().is_some_and(|chunk| chunk.earliest_monotonic_ns <= earliest_known_ns) {
            self.open_due_chunks(earliest_known_ns);
        }
        match (current, self.heads.peek()) {
            (Some(current), Some(Reverse(earliest))) if earliest.key < current.key => {
                self.heads.push(Reverse(current));
                self.heads.pop().map(|head| head.0.slot)
            }
            (Some(current), _) => Some(current.slot),
            (None, _) => self.heads.pop().map(|head| head.0.slot),
        }
    }

    #[cold]
    fn close(&mut self, slot: usize) {
        self.open[slot] = None;
        self.free_slots.push(slot);
    }

    /// Opens every chunk that may hold a record earlier than all known ones.
    #[cold]
    fn open_due_chunks(&mut self, mut earliest_known_ns: u64) {
        while let Some(chunk) = self.waiting.last() {
            if chunk.earliest_monotonic_ns > earliest_known_ns {
                return;
            }
            let opened = OpenChunk::new(&self.source, chunk);
            self.waiting.pop();
            if let Some(key) = opened.next_key() {
                earliest_known_ns = earliest_known_ns.min(key.0);
                let slot = self.free_slots.pop().unwrap_or_else(|| {
                    self.open.push(None);
                    self.open.len() - 1
                });
                self.open[slot] = Some(opened);
                self.heads.push(Reverse(Head { key, slot }));
            }
        }
    }
}
