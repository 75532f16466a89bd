//! Opens what must be a file: whoever can create names in a shared directory must not be able to make a reader wait.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Unit in which the system counts the room a file takes.
const BLOCK_BYTES: u64 = 512;

/// Holes of a file are only cared about if they are larger than this in all; fewer are quickly read.
pub const BYTES_OF_HOLES_READ: u64 = 1 << 30;

/// Bytes of a file that take no room on disk: they cost nothing to make and much to read.
pub fn hole_bytes(metadata: &Metadata) -> u64 {
    metadata.len().saturating_sub(metadata.blocks().saturating_mul(BLOCK_BYTES))
}

/// Opens a regular file for reading. Anything else, such as a pipe or a device, is an error, and is never waited for.
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    // Opening alone may wait or, with some devices, do something: so the name is asked first. What it stands for may
    // have changed by the time it is opened: so the descriptor is asked again.
    let not_a_file = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(not_a_file());
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_refused_at_once() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("pipe");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        // SAFETY: a valid C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let error = open_regular_file(&path).expect_err("no file");
        assert_eq!(error.to_string(), "not a regular file");
        assert!(open_regular_file(Path::new("/dev/zero")).is_err());
        assert!(open_regular_file(directory.path()).is_err());
    }
}
