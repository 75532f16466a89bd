//! Adds facts that somebody else observed to the trace of a process that has ended, in chunks of their own behind
//! all others.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use msmemscope_event::{Fact, StackId};

use crate::chunk_image::ChunkImage;
use crate::layout::{CHUNK_BYTES, CHUNK_HEADER_BYTES, FILE_HEADER_BYTES, chunk_file_offset, file_offset};
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
    while !rest.is_empty() {
        let (chunk, taken) = chunk_of(rest);
        let chunk = chunk.into_sealed(index, 0);
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
fn chunk_of(facts: &[(u64, Fact<'_>)]) -> (ChunkImage, usize) {
    let mut chunk = ChunkImage::new(NO_THREAD, facts.first().map_or(0, |(first_ns, _)| *first_ns));
    let fits =
        |(monotonic_ns, fact): &&(u64, Fact<'_>)| chunk.append(*monotonic_ns, StackId::NONE, StackId::NONE, fact);
    let taken = facts.iter().take_while(fits).count();
    (chunk, taken)
}
