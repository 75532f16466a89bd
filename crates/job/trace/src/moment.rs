//! A copy of the trace of a process that is running, as it is at one moment.
//!
//! The process goes on writing meanwhile. What it writes after the moment is left out, so that nothing ends in the copy
//! that does not start in it. Only a round in which the file makes room would tear a copy; then it is made again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::codec::{self, CodecState, Decoded};
use crate::layout::{
    self, CHUNK_BYTES, CHUNK_HEADER_BYTES, ChunkState, FILE_HEADER_BYTES, chunk_file_offset, chunk_offset, file_offset,
};
use crate::reader::{check_header, u32_at, u64_at};
use crate::regular_file::open_regular_file;

/// A copy takes much less time than goes by between two rounds.
const MOST_ATTEMPTS: usize = 20;

/// Copies a trace as it is at this moment, in nanoseconds of CLOCK_MONOTONIC, which is now. The target must not exist.
pub fn copy_moment(from: &Path, to: &Path, now_monotonic_ns: u64) -> io::Result<()> {
    let source = open_regular_file(from)?;
    let target = OpenOptions::new().write(true).create_new(true).mode(0o640).custom_flags(libc::O_NOFOLLOW).open(to)?;
    for _ in 0..MOST_ATTEMPTS {
        if try_copy(&source, &target, now_monotonic_ns)? {
            return Ok(());
        }
    }
    Err(io::Error::other("the process makes room in its recording too often"))
}

/// False if the file made room meanwhile.
fn try_copy(source: &File, target: &File, until_ns: u64) -> io::Result<bool> {
    let mut header = [0; FILE_HEADER_BYTES];
    source.read_exact_at(&mut header, 0)?;
    check_header(&header).map_err(io::Error::other)?;
    if u32_at(&header, file_offset::CHUNK_BYTES) as usize != CHUNK_BYTES {
        return Err(io::Error::other("chunks of another size"));
    }
    target.set_len(0)?;
    let mut chunks = 0;
    for index in 0..u32_at(&header, file_offset::CHUNKS_ALLOCATED) {
        if let Some(chunk) = read_chunk(source, index, until_ns)? {
            let mut chunk_header = chunk.header;
            chunk_header[chunk_offset::INDEX..][..4].copy_from_slice(&u32::to_le_bytes(chunks));
            target.write_all_at(&chunk_header, chunk_file_offset(chunks))?;
            target.write_all_at(&chunk.payload, chunk_file_offset(chunks) + CHUNK_HEADER_BYTES as u64)?;
            chunks += 1;
        }
    }
    let flags = (u32_at(&header, file_offset::FLAGS) | layout::FLAG_MOMENT) & !layout::FLAG_NEWEST;
    header[file_offset::FLAGS..][..4].copy_from_slice(&flags.to_le_bytes());
    header[file_offset::CHUNKS_ALLOCATED..][..4].copy_from_slice(&chunks.to_le_bytes());
    // Requests are for the process, not for a copy.
    header[file_offset::REQUEST_NUMBER..].fill(0);
    target.set_len(chunk_file_offset(chunks))?;
    target.write_all_at(&header, 0)?;
    let mut compactions = [0; 4];
    source.read_exact_at(&mut compactions, file_offset::COMPACTIONS as u64)?;
    Ok(u32::from_le_bytes(compactions) == u32_at(&header, file_offset::COMPACTIONS))
}

struct ChunkCopy {
    header: [u8; CHUNK_HEADER_BYTES],
    payload: Vec<u8>,
}

/// A chunk with what was in it at a moment. None if it is not in use.
fn read_chunk(source: &File, index: u32, until_ns: u64) -> io::Result<Option<ChunkCopy>> {
    let mut header = [0; CHUNK_HEADER_BYTES];
    let offset = chunk_file_offset(index);
    source.read_exact_at(&mut header, offset)?;
    let committed_bytes = u32_at(&header, chunk_offset::COMMITTED_BYTES) as usize;
    if header[chunk_offset::MAGIC..][..4] != layout::CHUNK_MAGIC || committed_bytes > CHUNK_BYTES - CHUNK_HEADER_BYTES {
        return Ok(None);
    }
    let mut payload = vec![0; committed_bytes];
    source.read_exact_at(&mut payload, offset + CHUNK_HEADER_BYTES as u64)?;
    let kept_bytes = bytes_until(&header, &payload, until_ns);
    if kept_bytes < committed_bytes {
        payload.truncate(kept_bytes);
        let state = ChunkState::Open as u32;
        header[chunk_offset::COMMITTED_BYTES..][..4].copy_from_slice(&(kept_bytes as u32).to_le_bytes());
        header[chunk_offset::STATE..][..4].copy_from_slice(&state.to_le_bytes());
    }
    Ok(Some(ChunkCopy { header, payload }))
}

/// Bytes of the records in front of the first one that is later than a moment.
fn bytes_until(header: &[u8], payload: &[u8], until_ns: u64) -> usize {
    let base_ns = u64_at(header, chunk_offset::BASE_MONOTONIC_NS);
    let mut state = CodecState::new(base_ns, u32_at(header, chunk_offset::THREAD_ID));
    let mut kept_bytes = 0;
    while kept_bytes < payload.len() {
        match codec::decode(&mut state, &payload[kept_bytes..]) {
            Decoded::Record(record, _) if record.monotonic_ns > until_ns => return kept_bytes,
            Decoded::Record(_, taken_bytes) => kept_bytes += taken_bytes,
            // Whoever reads the copy says what is wrong with it.
            Decoded::Damaged(_) | Decoded::Torn => return payload.len(),
        }
    }
    kept_bytes
}
