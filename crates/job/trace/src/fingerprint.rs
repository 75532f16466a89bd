//! What tells one state of a trace file from any other, without reading its records.

use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::layout::{CHUNK_HEADER_BYTES, FILE_HEADER_BYTES, file_offset};
use crate::reader::{check_header, u32_at};
use crate::regular_file::open_regular_file;

/// Files with more chunks than this (256 GiB) are not looked through.
const MOST_CHUNKS: u64 = 1 << 20;

/// One state of a trace file. The headers of chunks say how many records each has and carry the checksum of those that
/// are full, so that what is written later changes the fingerprint even where size and time stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Size of the file.
    pub file_bytes: u64,
    /// When the file was written last, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// XXH3 of the header and of the headers of all chunks.
    pub headers_hash: u64,
}

impl Fingerprint {
    /// The fingerprint of a file as it is now. An error if it is no trace.
    pub fn of(path: &Path) -> io::Result<Self> {
        let file = open_regular_file(path)?;
        let metadata = file.metadata()?;
        let mut header = [0; FILE_HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let unusable = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        check_header(&header).map_err(|error| unusable(error.to_string()))?;
        let mut hash = Xxh3::new();
        hash.update(&header);
        let chunk_bytes = u64::from(u32_at(&header, file_offset::CHUNK_BYTES));
        let content_bytes = metadata.len().saturating_sub(FILE_HEADER_BYTES as u64);
        let chunks = content_bytes.checked_div(chunk_bytes).unwrap_or(u64::MAX);
        if chunks > MOST_CHUNKS {
            return Err(unusable("the trace has too many chunks".to_owned()));
        }
        let mut chunk_header = [0; CHUNK_HEADER_BYTES];
        for chunk in 0..chunks {
            file.read_exact_at(&mut chunk_header, FILE_HEADER_BYTES as u64 + chunk * chunk_bytes)?;
            hash.update(&chunk_header);
        }
        Ok(Self {
            file_bytes: metadata.len(),
            modified_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
            headers_hash: hash.digest(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use super::*;
    use crate::layout::{CHUNK_BYTES, FILE_MAGIC, VERSION_MAJOR, chunk_offset};

    #[test]
    fn any_header_of_a_chunk_counts_even_if_size_and_time_stay() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("recording.trace");
        let mut bytes = vec![0; FILE_HEADER_BYTES + 2 * CHUNK_BYTES];
        bytes[..8].copy_from_slice(&FILE_MAGIC);
        bytes[file_offset::VERSION_MAJOR..][..2].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
        bytes[file_offset::HEADER_BYTES..][..4].copy_from_slice(&(FILE_HEADER_BYTES as u32).to_le_bytes());
        bytes[file_offset::CHUNK_BYTES..][..4].copy_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
        let time = SystemTime::UNIX_EPOCH;
        let write = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("a file");
            fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(time)).expect("a time");
            Fingerprint::of(&path)
        };
        let first = write(&bytes).expect("a trace");
        assert_eq!(write(&bytes).expect("a trace"), first);
        bytes[FILE_HEADER_BYTES + CHUNK_BYTES + chunk_offset::COMMITTED_BYTES] = 1;
        let second = write(&bytes).expect("a trace");
        assert_eq!((second.file_bytes, second.modified_ns), (first.file_bytes, first.modified_ns));
        assert_ne!(second.headers_hash, first.headers_hash);
        bytes[file_offset::CHUNK_BYTES..][..4].fill(0);
        assert!(write(&bytes).is_err(), "chunks of no size");
        assert!(write(b"something else").is_err());
    }
}
