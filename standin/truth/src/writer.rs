//! The writing half: lines are reserved by one atomic addition in the mapped file and completed by storing the
//! kind, so no lock is taken, nothing is buffered, and a kill loses only calls that had not returned.

use crate::format::{CONTINUATION, CONTINUATION_BYTES, LINE_BYTES, MAGIC, NO_TEXT, Record};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The variable that names the directory; without it nothing is logged.
pub const DIRECTORY_VARIABLE: &str = "STANDIN_LOG";
/// Largest size of one log file. The file is sparse: only what is written takes room on disk.
const FILE_BYTES: usize = 8 << 30;
const RESERVED_AT: usize = 16;
const LOST_AT: usize = 24;
const NAME_AT: usize = 32;

/// Place of a call in the order of all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Position among all calls that log into the same directory.
    pub sequence: u64,
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
}

/// An open log file of this process. The mappings live as long as the process.
pub struct TruthWriter {
    base: *mut u8,
    sequence: &'static AtomicU64,
}

// SAFETY: the mapping is shared by all threads; every line is written by the one thread that reserved it, and the
// header fields are only touched as atomics.
unsafe impl Send for TruthWriter {}
// SAFETY: as above.
unsafe impl Sync for TruthWriter {}

impl TruthWriter {
    /// Opens the log of this process and `library` in the directory named by the environment. `None` when nothing
    /// is to be logged; a directory that cannot be used is reported on stderr once per library.
    #[must_use]
    pub fn from_environment(library: &str) -> Option<Self> {
        let directory = std::env::var_os(DIRECTORY_VARIABLE).filter(|value| !value.is_empty())?;
        let writer = Self::create(Path::new(&directory), library);
        if writer.is_none() {
            let error = std::io::Error::last_os_error();
            eprintln!("stand-in device: cannot log into {}: {error}", directory.to_string_lossy());
        }
        writer
    }

    fn create(directory: &Path, library: &str) -> Option<Self> {
        let process = std::process::id();
        let sequence = map_file(&directory.join("sequence"), LINE_BYTES, libc::O_CREAT)?;
        let base = (0..1000).find_map(|attempt| {
            let name = format!("{process}-{attempt}-{library}.truth");
            map_file(&directory.join(name), FILE_BYTES, libc::O_CREAT | libc::O_EXCL)
        })?;
        let mut name = [0u8; LINE_BYTES - NAME_AT];
        let name_bytes = library.len().min(name.len());
        name[..name_bytes].copy_from_slice(&library.as_bytes()[..name_bytes]);
        // SAFETY: both mappings are writable, page aligned and at least one line long; no other thread knows
        // `base` yet, and the sequence is only used as an atomic.
        unsafe {
            base.add(8).cast::<u32>().write(process);
            base.add(12).cast::<u32>().write(LINE_BYTES as u32);
            base.add(RESERVED_AT).cast::<u64>().write(1);
            base.add(NAME_AT).copy_from_nonoverlapping(name.as_ptr(), name.len());
            (*base.cast::<AtomicU64>()).store(MAGIC, Ordering::Release);
            Some(Self { base, sequence: &*sequence.cast::<AtomicU64>() })
        }
    }

    /// Takes the next place in the order of calls, now.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp { sequence: self.sequence.fetch_add(1, Ordering::AcqRel), time_ns: monotonic_ns() }
    }

    /// Writes `record` with the message `text`; sets its thread and text length.
    pub fn append(&self, mut record: Record, text: Option<&[u8]>) {
        let bytes = text.unwrap_or_default();
        record.thread = thread_id();
        record.text_bytes = text.map_or(NO_TEXT, |text| text.len() as u32);
        let lines = 1 + bytes.len().div_ceil(CONTINUATION_BYTES);
        let first = self.counter(RESERVED_AT).fetch_add(lines as u64, Ordering::AcqRel) as usize;
        if (first + lines) * LINE_BYTES > FILE_BYTES {
            self.counter(LOST_AT).fetch_add(1, Ordering::AcqRel);
            return;
        }
        let line = record.to_line();
        // SAFETY: the lines `first..first + lines` are inside the mapping and were reserved for this call alone;
        // the kind is the first word of the record's line, aligned, stored last.
        unsafe {
            let at = self.base.add(first * LINE_BYTES);
            at.add(4).copy_from_nonoverlapping(line.as_ptr().add(4), LINE_BYTES - 4);
            for (index, part) in bytes.chunks(CONTINUATION_BYTES).enumerate() {
                let next = at.add((index + 1) * LINE_BYTES);
                next.cast::<u32>().write(CONTINUATION);
                next.add(4).copy_from_nonoverlapping(part.as_ptr(), part.len());
            }
            (*at.cast::<AtomicU32>()).store(record.kind as u32, Ordering::Release);
        }
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the header, only used as an atomic after creation.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }
    }
}

/// Maps `path`, made at least `length` bytes long, shared and writable.
fn map_file(path: &Path, length: usize, extra_flags: i32) -> Option<*mut u8> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: plain system calls on a descriptor owned here; the mapping is checked before use.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | extra_flags, 0o600);
        if file < 0 {
            return None;
        }
        let mapped = if libc::ftruncate(file, length as libc::off_t) == 0 {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED | libc::MAP_NORESERVE, file, 0)
        } else {
            libc::MAP_FAILED
        };
        libc::close(file);
        (mapped != libc::MAP_FAILED).then_some(mapped.cast())
    }
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure given; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn thread_id() -> u32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

#[cfg(test)]
mod tests {
    use super::TruthWriter;
    use crate::format::{Kind, Record};
    use crate::reader::read_directory;

    fn record(writer: &TruthWriter, kind: Kind, address: u64) -> Record {
        let stamp = writer.stamp();
        Record {
            kind,
            text_bytes: 0,
            sequence: stamp.sequence,
            time_ns: stamp.time_ns,
            address,
            size_bytes: address * 2,
            flags: 33 << 56 | 1 << 17,
            device: 3,
            result: 0,
            thread: 0,
        }
    }

    #[test]
    fn what_many_threads_write_is_read_back_in_order() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let writer = TruthWriter::create(directory.path(), "test").expect("a writable directory");
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let writer = &writer;
                scope.spawn(move || {
                    for index in 0..1000 {
                        writer.append(record(writer, Kind::HalAlloc, thread * 1000 + index), None);
                    }
                });
            }
        });
        let long_text = "step ".repeat(50);
        writer.append(record(&writer, Kind::Mark, 0), Some(long_text.as_bytes()));
        writer.append(record(&writer, Kind::Mark, 1), Some(b""));

        let entries = read_directory(directory.path()).expect("a readable log");
        assert_eq!(entries.len(), 8002);
        assert!(entries.windows(2).all(|pair| pair[0].record.sequence < pair[1].record.sequence));
        let mut addresses: Vec<u64> = entries[..8000].iter().map(|entry| entry.record.address).collect();
        addresses.sort_unstable();
        assert_eq!(addresses, (0..8000).collect::<Vec<u64>>());
        assert_eq!(entries[0].record.module(), 33);
        assert_eq!(entries[0].record.page_type(), 1);
        assert_eq!(entries[0].text, None);
        assert_eq!(entries[8000].text.as_deref(), Some(long_text.as_str()));
        assert_eq!(entries[8001].text.as_deref(), Some(""));
        assert!(entries.iter().all(|entry| entry.process == std::process::id() && entry.library == "test"));
    }

    #[test]
    fn two_libraries_share_one_order() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = TruthWriter::create(directory.path(), "one").expect("a writable directory");
        let second = TruthWriter::create(directory.path(), "two").expect("a writable directory");
        first.append(record(&first, Kind::HalAlloc, 1), None);
        second.append(record(&second, Kind::Mark, 2), None);
        first.append(record(&first, Kind::HalFree, 3), None);
        let entries = read_directory(directory.path()).expect("a readable log");
        let order: Vec<_> = entries.iter().map(|entry| (entry.library.as_str(), entry.record.address)).collect();
        assert_eq!(order, [("one", 1), ("two", 2), ("one", 3)]);
    }

    #[test]
    fn an_unusable_directory_gives_no_writer() {
        assert!(TruthWriter::create(std::path::Path::new("/nonexistent/place"), "test").is_none());
    }
}
