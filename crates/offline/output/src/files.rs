//! Creating files so that nobody ever sees half of one and nothing is overwritten.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::{Directory, FileFacts};
use crate::unfinished;

/// Mode of every file that holds recorded data.
pub const FILE_MODE: u32 = 0o600;
/// Mode of every directory.
pub const DIRECTORY_MODE: u32 = 0o750;

/// How names of files begin that are being written.
const PENDING_PREFIX: &str = ".pending-";

/// Creates a directory and its parents; existing ones are fine.
pub fn create_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Creates a new file; an existing one is an error.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// Writes a whole file below a directory at once: it either has all of `bytes` or does not exist under this name.
pub fn write_new(directory: &Arc<Directory>, relative: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = relative.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (pending, mut file) = PendingFile::create(directory, &name)?;
    io::Write::write_all(&mut file, bytes)?;
    pending.commit(relative)
}

/// A file that is being written. It disappears unless it is committed.
#[derive(Debug)]
pub struct PendingFile {
    directory: Arc<Directory>,
    name: PathBuf,
    committed: bool,
    _entry: unfinished::Entry,
}

impl PendingFile {
    /// Creates it in the directory where temporary files of this recording live.
    pub fn create(directory: &Arc<Directory>, name: &str) -> io::Result<(Self, File)> {
        let name = PathBuf::from(format!("{PENDING_PREFIX}{name}"));
        let (entry, file) = unfinished::Entry::of_file(directory, &name, || directory.create_new(&name, FILE_MODE))?;
        Ok((Self { directory: Arc::clone(directory), name, committed: false, _entry: entry }, file))
    }

    /// Where it is for now.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Opens it again to add to its end.
    pub fn reopen(&self) -> io::Result<File> {
        self.directory.open_for_appending(&self.name)
    }

    /// Its size and time by now.
    pub fn facts(&self) -> io::Result<FileFacts> {
        self.directory.facts(&self.name)
    }

    /// Gives it its final name below the directory, which must not exist.
    pub fn commit(mut self, relative: &Path) -> io::Result<()> {
        self.directory.rename_without_replacing(&self.name, relative)?;
        self.committed = true;
        Ok(())
    }

    /// Gives it its final name below the directory, replacing what is there.
    pub fn commit_replacing(mut self, relative: &Path) -> io::Result<()> {
        self.directory.rename(&self.name, relative)?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.committed {
            let _ = self.directory.remove_file(&self.name);
        }
    }
}

/// A buffer before a file. Space is reserved in large steps, which makes writing much cheaper on
/// file systems that would otherwise look for room page by page.
pub(crate) struct BufferedFile {
    bytes: Vec<u8>,
    file: File,
    written_bytes: u64,
    reserved_bytes: u64,
}

const BUFFER_BYTES: usize = 1 << 20;
const RESERVE_BYTES: u64 = 64 << 20;

impl BufferedFile {
    pub(crate) fn new(file: File) -> Self {
        Self { bytes: Vec::with_capacity(BUFFER_BYTES), file, written_bytes: 0, reserved_bytes: 0 }
    }

    /// The buffer to append to; call [`BufferedFile::settle`] afterwards.
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes the buffer out once it is large.
    #[inline]
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        if self.bytes.len() < BUFFER_BYTES - (16 << 10) { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        let end = self.written_bytes + self.bytes.len() as u64;
        if self.bytes.len() >= BUFFER_BYTES / 2 && end > self.reserved_bytes {
            let begin = self.reserved_bytes.max(self.written_bytes);
            // SAFETY: plain system call on a descriptor we own. A refusal is harmless: writing tells.
            unsafe {
                let length = (end - begin).max(RESERVE_BYTES) as libc::off_t;
                libc::fallocate(self.file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, begin as libc::off_t, length);
            }
            self.reserved_bytes = end.max(begin + RESERVE_BYTES);
        }
        io::Write::write_all(&mut self.file, &self.bytes)?;
        self.written_bytes = end;
        self.bytes.clear();
        Ok(())
    }

    /// Writes the rest and gives reserved space back.
    pub(crate) fn close(mut self) -> io::Result<()> {
        self.flush()?;
        if self.reserved_bytes > self.written_bytes { self.file.set_len(self.written_bytes) } else { Ok(()) }
    }
}

/// Removes what a killed writer left in a directory. Returns how many files that were.
pub fn remove_pending(directory: &Directory) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(directory.path())? {
        let name = PathBuf::from(entry?.file_name());
        let is_pending = name.as_os_str().as_bytes().starts_with(PENDING_PREFIX.as_bytes());
        if is_pending && directory.facts(&name).is_ok_and(|found| found.is_file) {
            directory.remove_file(&name)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// A moment as `YYYYmmddHHMMSS` in local time, the way file names carry it.
pub fn local_timestamp(unix_seconds: i64) -> String {
    let moment: libc::time_t = unix_seconds;
    // SAFETY: `tm` is plain old data, for which zero is a valid value.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    unsafe { libc::localtime_r(&moment, &mut parts) };
    format!(
        "{:04}{:02}{:02}{:02}{:02}{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

/// Seconds since 1970.
pub fn now_seconds() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |duration| duration.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary() -> (tempfile::TempDir, Arc<Directory>) {
        let home = tempfile::tempdir().expect("temporary directory");
        let directory = Directory::open(home.path()).expect("a directory");
        (home, Arc::new(directory))
    }

    #[test]
    fn nothing_is_overwritten_and_nothing_half_is_seen() {
        let (home, directory) = temporary();
        let name = Path::new("file.csv");
        write_new(&directory, name, b"first").expect("new file");
        let error = write_new(&directory, name, b"second").expect_err("the name is taken");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(home.path().join(name)).expect("readable"), b"first");
        let names: Vec<_> = fs::read_dir(home.path()).expect("listing").collect();
        assert_eq!(names.len(), 1, "the second try left nothing behind");
    }

    #[test]
    fn remains_of_a_killed_writer_are_removed() {
        let (home, directory) = temporary();
        let pending = PendingFile::create(&directory, "x").expect("new file");
        std::mem::forget(pending);
        fs::write(home.path().join("other"), b"").expect("writable");
        assert_eq!(remove_pending(&directory).expect("listing"), 1);
        assert_eq!(fs::read_dir(home.path()).expect("listing").count(), 1);
    }

    #[test]
    fn timestamps_have_fourteen_digits() {
        let text = local_timestamp(1_748_325_733);
        assert_eq!(text.len(), 14);
        assert!(text.starts_with("202505") && text.bytes().all(|byte| byte.is_ascii_digit()));
    }
}
