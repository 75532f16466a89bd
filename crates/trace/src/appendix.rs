//! Adds facts that somebody else observed to the trace of a process that has ended, in chunks of their own behind
//! all others.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use msmemscope_event::{Fact, StackId};
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::{self, CodecState};
use crate::layout::{CHUNK_BYTES, CHUNK_HEADER_BYTES, CHUNK_MAGIC, ChunkState, FILE_HEADER_BYTES, chunk_offset};
use crate::layout::{chunk_file_offset, file_offset};
use crate::reader::{check_header, u32_at};

/// Nobody's thread: the facts come from outside the process.
const NO_THREAD: u32 = 0;

/// Appends facts, each with its CLOCK_MONOTONIC nanoseconds, in the order given. The process must have ended. A file
/// that was cut off is left alone: what is missing from it must stay visible.
pub fn append_facts(path: &Path, facts: &[(u64, Fact<'_>)]) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let mut header = [0; FILE_HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    check_header(&header).map_err(io::Error::other)?;
    let content_bytes = file.metadata()?.len() - FILE_HEADER_BYTES as u64;
    if u32_at(&header, file_offset::CHUNK_BYTES) as usize != CHUNK_BYTES
        || !content_bytes.is_multiple_of(CHUNK_BYTES as u64)
    {
        return Ok(());
    }
    let in_file = u32::try_from(content_bytes / CHUNK_BYTES as u64).map_err(io::Error::other)?;
    let mut index = in_file.max(u32_at(&header, file_offset::CHUNKS_ALLOCATED));
    let mut rest = facts;
    while let Some((first_ns, _)) = rest.first() {
        let (mut chunk, taken) = encode_chunk(index, *first_ns, rest);
        let checksum = xxh3_64(&chunk[CHUNK_HEADER_BYTES..]);
        chunk[chunk_offset::CHECKSUM..][..8].copy_from_slice(&checksum.to_le_bytes());
        let offset = chunk_file_offset(index);
        // The header comes last: without it a reader takes the chunk for one that was never used.
        file.set_len(offset + CHUNK_BYTES as u64)?;
        file.write_all_at(&chunk[CHUNK_HEADER_BYTES..], offset + CHUNK_HEADER_BYTES as u64)?;
        file.write_all_at(&chunk[..CHUNK_HEADER_BYTES], offset)?;
        (index, rest) = (index + 1, &rest[taken..]);
    }
    Ok(())
}

/// As many facts as fit into one chunk, and how many those are.
fn encode_chunk(index: u32, base_monotonic_ns: u64, facts: &[(u64, Fact<'_>)]) -> (Vec<u8>, usize) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut used_bytes = CHUNK_HEADER_BYTES;
    let mut state = CodecState::new(base_monotonic_ns, NO_THREAD);
    let mut taken = 0;
    for (monotonic_ns, fact) in facts {
        if CHUNK_BYTES - used_bytes < codec::largest_encoded_bytes(fact) {
            break;
        }
        // SAFETY: the room was checked.
        used_bytes += unsafe {
            let destination = chunk.as_mut_ptr().add(used_bytes);
            codec::encode(&mut state, *monotonic_ns, StackId::NONE, StackId::NONE, fact, destination)
        };
        taken += 1;
    }
    chunk.truncate(used_bytes);
    let committed_bytes = (used_bytes - CHUNK_HEADER_BYTES) as u32;
    for (offset, bytes) in [
        (chunk_offset::INDEX, index.to_le_bytes()),
        (chunk_offset::STATE, (ChunkState::Sealed as u32).to_le_bytes()),
        (chunk_offset::COMMITTED_BYTES, committed_bytes.to_le_bytes()),
        (chunk_offset::THREAD_ID, NO_THREAD.to_le_bytes()),
        (chunk_offset::MAGIC, CHUNK_MAGIC),
    ] {
        chunk[offset..offset + 4].copy_from_slice(&bytes);
    }
    chunk[chunk_offset::BASE_MONOTONIC_NS..][..8].copy_from_slice(&base_monotonic_ns.to_le_bytes());
    (chunk, taken)
}
