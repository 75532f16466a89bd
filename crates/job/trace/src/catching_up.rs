//! Reads what a process that is still running has written since the last look.
//!
//! Every record is given once, as soon as it is there, and the records of one look are in order of time. Records that are
//! later than the start of a look are left for the next one. So whatever one thread did because of another comes after
//! it: a block never ends before it was allocated.

use std::collections::HashSet;
use std::path::Path;

use crate::layout::{self, CHUNK_HEADER_BYTES, ChunkState, FILE_HEADER_BYTES, chunk_offset, file_offset};
use crate::merge::RecordStream;
use crate::reader::{ChunkSummary, Completeness, Source, Trace, TraceError, check_header, u32_at, u64_at};
use crate::regular_file::open_regular_file;

impl Trace {
    /// Opens a trace of which nothing is read before [`Trace::catch_up`] does.
    pub fn open_unread(path: &Path) -> Result<Self, TraceError> {
        let file = open_regular_file(path)?;
        let mut trace = Self::index(Source::File(file), FILE_HEADER_BYTES as u64, false)?;
        let Completeness { compactions, records_left_out, complete_since_ns, buffered, .. } = trace.completeness;
        trace.completeness =
            Completeness { compactions, records_left_out, complete_since_ns, buffered, ..Completeness::default() };
        trace.counted_losses = Default::default();
        Ok(trace)
    }

    /// The records that were written since the trace was opened or last caught up with, up to a moment. Definitions and
    /// completeness are brought up to date; [`Trace::records`] then gives these records as well.
    ///
    /// None if the file made room for other records meanwhile: which ones it left out is not known here, so the trace has
    /// to be opened again.
    pub fn catch_up(&mut self, until_monotonic_ns: u64) -> Result<Option<RecordStream>, TraceError> {
        let header = self.source.read(0, FILE_HEADER_BYTES)?;
        check_header(&header)?;
        if u32_at(&header, file_offset::COMPACTIONS) != self.completeness.compactions {
            return Ok(None);
        }
        let is_closed = u32_at(&header, file_offset::CLOSED) == 1;
        self.completeness.closed = is_closed;
        self.closed_monotonic_ns = is_closed.then(|| u64_at(&header, file_offset::CLOSED_MONOTONIC_NS));
        self.learn_losses(&header);
        let chunks_before = self.completeness.chunks_allocated;
        self.completeness.chunks_allocated = u32_at(&header, file_offset::CHUNKS_ALLOCATED);
        let records_before = self.completeness.records;
        let mut parts = Vec::new();
        for position in 0..self.chunks.len() {
            if self.chunks[position].is_sealed {
                continue;
            }
            let mut chunk = self.chunks[position];
            parts.extend(self.read_on(&mut chunk, until_monotonic_ns)?);
            self.chunks[position] = chunk;
        }
        // Chunks that were there before may have had nothing in them.
        let known: HashSet<u32> = self.chunks.iter().map(|chunk| chunk.index).collect();
        let candidates = chunks_before.saturating_sub(MOST_EMPTY_CHUNKS)..self.completeness.chunks_allocated;
        for index in candidates.filter(|index| !known.contains(index)) {
            let file_offset = FILE_HEADER_BYTES as u64 + u64::from(index) * self.chunk_bytes as u64;
            let header = self.source.read(file_offset, CHUNK_HEADER_BYTES)?;
            if header.len() < CHUNK_HEADER_BYTES || header[chunk_offset::MAGIC..][..4] != layout::CHUNK_MAGIC {
                continue;
            }
            let mut chunk = ChunkSummary { is_sealed: false, ..ChunkSummary::new(index, file_offset, &header) };
            if let Some(part) = self.read_on(&mut chunk, until_monotonic_ns)? {
                self.completeness.chunks_read += 1;
                self.chunks.push(chunk);
                parts.push(part);
            }
        }
        Ok(Some(RecordStream::new(&self.source, parts, self.completeness.records - records_before)))
    }

    /// Whether the file has made room for other records since the trace was opened: what was read since then may be of two
    /// times.
    pub fn has_made_room(&self) -> Result<bool, TraceError> {
        let header = self.source.read(0, FILE_HEADER_BYTES)?;
        check_header(&header)?;
        Ok(u32_at(&header, file_offset::COMPACTIONS) != self.completeness.compactions)
    }

    /// Reads what was added to a chunk. None if nothing was.
    fn read_on(
        &mut self,
        chunk: &mut ChunkSummary,
        until_monotonic_ns: u64,
    ) -> Result<Option<ChunkSummary>, TraceError> {
        let header = self.source.read(chunk.file_offset, CHUNK_HEADER_BYTES)?;
        if header.len() < CHUNK_HEADER_BYTES || !self.counts(&header) {
            return Ok(None);
        }
        // In this order: what is sealed afterwards is read next time.
        let is_sealed = u32_at(&header, chunk_offset::STATE) == ChunkState::Sealed as u32;
        let committed_bytes = u32_at(&header, chunk_offset::COMMITTED_BYTES) as usize;
        let known_bytes = chunk.usable_bytes;
        let new_bytes = committed_bytes.min(self.chunk_bytes - CHUNK_HEADER_BYTES).saturating_sub(known_bytes);
        let payload = self.source.read(chunk.file_offset + (CHUNK_HEADER_BYTES + known_bytes) as u64, new_bytes)?;
        let mut part = ChunkSummary {
            skipped_bytes: known_bytes,
            start: chunk.end,
            earliest_monotonic_ns: u64::MAX,
            is_orderly: true,
            ..*chunk
        };
        self.index_records(&mut part, &payload, new_bytes, until_monotonic_ns);
        chunk.usable_bytes = part.usable_bytes;
        chunk.end = part.end;
        chunk.earliest_monotonic_ns = chunk.earliest_monotonic_ns.min(part.earliest_monotonic_ns);
        // Of what came before only the last time is known.
        chunk.is_orderly &= part.is_orderly && part.earliest_monotonic_ns >= part.start.monotonic_ns;
        chunk.is_sealed = is_sealed && chunk.usable_bytes == committed_bytes;
        Ok((part.usable_bytes > known_bytes).then_some(part))
    }
}

/// Chunks taken at about the same time may get their first records in any order; there are not more of them than threads
/// that take their first chunk at once.
const MOST_EMPTY_CHUNKS: u32 = 1024;
