//! A chunk put together in memory, by those who do not write into a mapping.

use msmemscope_event::{Fact, StackId};
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::{self, CodecState};
use crate::layout::{CHUNK_BYTES, CHUNK_HEADER_BYTES, CHUNK_MAGIC, ChunkState, chunk_offset};

/// The bytes of a chunk in the making.
pub(crate) struct ChunkImage {
    bytes: Vec<u8>,
    used_bytes: usize,
    base_monotonic_ns: u64,
    first_thread_id: u32,
    state: CodecState,
}

impl ChunkImage {
    /// An empty chunk.
    pub(crate) fn new(thread_id: u32, base_monotonic_ns: u64) -> Self {
        Self {
            bytes: vec![0; CHUNK_BYTES],
            used_bytes: CHUNK_HEADER_BYTES,
            base_monotonic_ns,
            first_thread_id: thread_id,
            state: CodecState::new(base_monotonic_ns, thread_id),
        }
    }

    /// The thread whose records are being added.
    pub(crate) fn thread_id(&self) -> u32 {
        self.state.thread_id
    }

    /// Adds a record. Returns false, and does nothing, if it does not fit.
    pub(crate) fn append(
        &mut self,
        monotonic_ns: u64,
        native_stack: StackId,
        python_stack: StackId,
        fact: &Fact<'_>,
    ) -> bool {
        if CHUNK_BYTES - self.used_bytes < codec::largest_encoded_bytes(fact) {
            return false;
        }
        // SAFETY: the room was checked; `used_bytes` never exceeds the buffer.
        self.used_bytes += unsafe {
            let destination = self.bytes.as_mut_ptr().add(self.used_bytes);
            codec::encode(&mut self.state, monotonic_ns, native_stack, python_stack, fact, destination)
        };
        true
    }

    /// The sealed chunk as it goes into the file, up to its last record. `made_in` is the round of compaction, if any.
    pub(crate) fn into_sealed(mut self, index: u32, made_in: u32) -> Vec<u8> {
        self.bytes.truncate(self.used_bytes);
        let checksum = xxh3_64(&self.bytes[CHUNK_HEADER_BYTES..]);
        let committed_bytes = (self.used_bytes - CHUNK_HEADER_BYTES) as u32;
        for (offset, value) in [
            (chunk_offset::MAGIC, CHUNK_MAGIC),
            (chunk_offset::INDEX, index.to_le_bytes()),
            (chunk_offset::STATE, (ChunkState::Sealed as u32).to_le_bytes()),
            (chunk_offset::COMMITTED_BYTES, committed_bytes.to_le_bytes()),
            (chunk_offset::THREAD_ID, self.first_thread_id.to_le_bytes()),
            (chunk_offset::MADE_IN, made_in.to_le_bytes()),
        ] {
            self.bytes[offset..][..4].copy_from_slice(&value);
        }
        for (offset, value) in
            [(chunk_offset::BASE_MONOTONIC_NS, self.base_monotonic_ns), (chunk_offset::CHECKSUM, checksum)]
        {
            self.bytes[offset..][..8].copy_from_slice(&value.to_le_bytes());
        }
        self.bytes
    }
}
