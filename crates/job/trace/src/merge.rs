//! Brings the records of all chunks into one order: time, frees first, thread, sequence.
//!
//! Records of one thread that carry the same time keep the order they were written in.
//! Only chunks whose time ranges overlap are in memory at once: about one per thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use msmemscope_event::{Fact, Record};

use crate::codec::{self, CodecState, Decoded};
use crate::layout::{CHUNK_HEADER_BYTES, chunk_offset};
use crate::reader::{ChunkSummary, Source, u32_at, u64_at};

/// Position of a record in the order of all records.
type Key = (u64, u8, u32, u32, u32);

/// A chunk that is being read. Its bytes are in order of time.
struct OpenChunk {
    index: u32,
    bytes: Vec<u8>,
    /// Where the record that comes next begins, what it is encoded relative to, and its number in the chunk.
    offset: usize,
    state: CodecState,
    record_number: u32,
}

impl OpenChunk {
    fn new(source: &Source, summary: &ChunkSummary) -> Self {
        // A file that shrank since the first pass, or whose process has used the chunk for something else since, simply
        // has fewer records.
        let mut bytes = source.read(summary.file_offset, CHUNK_HEADER_BYTES + summary.usable_bytes).unwrap_or_default();
        let unwanted_bytes = CHUNK_HEADER_BYTES + summary.skipped_bytes;
        if bytes.len() < unwanted_bytes
            || u64_at(&bytes, chunk_offset::BASE_MONOTONIC_NS) != summary.base_monotonic_ns
            || u32_at(&bytes, chunk_offset::THREAD_ID) != summary.thread_id
        {
            bytes.clear();
        } else {
            bytes.drain(..unwanted_bytes);
        }
        let state = summary.start;
        if !summary.is_orderly {
            bytes = in_order(&bytes, state);
        }
        Self { index: summary.index, bytes, offset: 0, state, record_number: 0 }
    }

    /// Key of the record that comes next.
    #[inline]
    fn next_key(&self) -> Option<Key> {
        let (monotonic_ns, tie_rank) = codec::peek(&self.state, self.bytes.get(self.offset..)?)?;
        Some((monotonic_ns, tie_rank, self.state.thread_id, self.index, self.record_number))
    }

    /// The record that comes next; advances past it.
    #[inline]
    fn next(&mut self) -> Option<Record<'_>> {
        match codec::decode(&mut self.state, self.bytes.get(self.offset..)?) {
            Decoded::Record(record, taken_bytes) => {
                self.offset += taken_bytes;
                self.record_number += 1;
                Some(record)
            }
            Decoded::Damaged(_) | Decoded::Torn => None,
        }
    }
}

/// The records of a chunk that can be understood, encoded anew in order of time: many such chunks may be open at once,
/// and tables of their records would be many times as long as the records.
fn in_order(bytes: &[u8], start: CodecState) -> Vec<u8> {
    let mut places: Vec<(u64, usize, CodecState)> = Vec::new();
    let (mut state, mut offset) = (start, 0);
    while let Some(rest) = bytes.get(offset..) {
        let before = state;
        let taken_bytes = match codec::decode(&mut state, rest) {
            Decoded::Record(Record { fact: Fact::Thread { .. }, .. }, taken_bytes) => taken_bytes,
            Decoded::Record(record, taken_bytes) => {
                places.push((record.monotonic_ns, offset, before));
                taken_bytes
            }
            Decoded::Damaged(taken_bytes) => taken_bytes,
            Decoded::Torn => break,
        };
        offset += taken_bytes;
    }
    places.sort_unstable_by_key(|&(monotonic_ns, offset, _)| (monotonic_ns, offset));
    let (mut ordered, mut state) = (Vec::with_capacity(bytes.len()), start);
    for (_, offset, mut before) in places {
        if let Decoded::Record(record, _) = codec::decode(&mut before, &bytes[offset..]) {
            codec::append_to(&mut ordered, &mut state, &record);
        }
    }
    ordered
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
    pub(crate) fn new(source: &Arc<Source>, mut waiting: Vec<ChunkSummary>, records_total: u64) -> Self {
        waiting.sort_by_key(|chunk| Reverse((chunk.earliest_monotonic_ns, chunk.index)));
        Self {
            source: Arc::clone(source),
            waiting,
            open: Vec::new(),
            free_slots: Vec::new(),
            heads: BinaryHeap::new(),
            given_from: None,
            records_done: 0,
            records_total,
        }
    }

    /// Records given so far, and all of them.
    pub fn progress(&self) -> (u64, u64) {
        // What only says whose the following records are is given, too, but not counted before.
        (self.records_done.min(self.records_total), self.records_total)
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

#[cfg(test)]
mod tests {
    use msmemscope_event::StackId;

    use super::*;

    /// The smallest records there are, each before its predecessor, of two threads in turns.
    #[test]
    fn a_chunk_that_is_out_of_order_takes_hardly_more_room_in_order() {
        const RECORDS: u64 = 20_000;
        let start = CodecState::new(1_000_000, 7);
        let (mut bytes, mut state) = (Vec::new(), start);
        for number in 0..RECORDS {
            let thread_id = 7 + (number / 10_000) as u32;
            let fact = Fact::Unknown { kind: 63, payload: b"" };
            let record = Record {
                monotonic_ns: 1_000_000 - number,
                thread_id,
                native_stack: StackId::NONE,
                python_stack: StackId::NONE,
                fact,
            };
            codec::append_to(&mut bytes, &mut state, &record);
        }
        let ordered = in_order(&bytes, start);
        assert!(ordered.capacity() <= 2 * bytes.len(), "{} {}", ordered.capacity(), bytes.len());
        let (mut state, mut rest, mut times) = (start, ordered.as_slice(), Vec::new());
        while let Decoded::Record(record, taken_bytes) = codec::decode(&mut state, rest) {
            rest = &rest[taken_bytes..];
            if !matches!(record.fact, Fact::Thread { .. }) {
                assert_eq!(record.thread_id, if record.monotonic_ns > 990_000 { 7 } else { 8 });
                times.push(record.monotonic_ns);
            }
        }
        assert!(times.is_sorted() && times.len() as u64 == RECORDS, "{}", times.len());
    }
}
