//! Where recordings are on disk: the directory of a process, and how large its trace may become there.

use std::ffi::{CString, OsStr};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use msmemscope_trace::TRACE_FILE_NAME;

use crate::{clock, errno, settings};

const DIRECTORY_MODE: libc::mode_t = 0o750;

/// Default limit of a trace: this share of the free disk space, but not more than the bytes below. On small disks it is
/// half of the space, as long as that is little.
const SHARE_OF_FREE_SPACE: u64 = 10;

const LITTLE_SPACE_BYTES: u64 = 64 << 20;

const LARGEST_DEFAULT_LIMIT_BYTES: u64 = 20 << 30;

const MOST_COLLISIONS: usize = 1000;

/// Seconds of local time ahead of UTC, once known: asking again after a fork might wait for a lock
/// that a thread of the parent held.
static LOCAL_OFFSET_SECONDS: AtomicI64 = AtomicI64::new(i64::MIN);

/// Removes a directory in which nothing was recorded.
pub fn remove(directory: &Path) {
    if let (Ok(file), Ok(directory)) =
        (c_path(directory.join(TRACE_FILE_NAME).as_os_str()), c_path(directory.as_os_str()))
    {
        // SAFETY: valid paths; the directory is kept if anything else is in it.
        unsafe {
            libc::unlink(file.as_ptr());
            libc::rmdir(directory.as_ptr());
        }
    }
}

/// Removes a directory in which nothing was recorded, and the output directory if nothing else is in it.
pub fn discard(directory: &Path) {
    remove(directory);
    if let Some(output) = directory.parent().filter(|output| *output != std::env::temp_dir()) {
        remove_if_empty(output);
    }
}

fn remove_if_empty(directory: &Path) {
    if let Ok(directory) = c_path(directory.as_os_str()) {
        // SAFETY: a valid path; a directory with anything in it is kept.
        unsafe { libc::rmdir(directory.as_ptr()) };
    }
}

pub fn c_path(path: &OsStr) -> Result<CString, i32> {
    CString::new(path.as_bytes()).map_err(|_| libc::EINVAL)
}

fn make_directory(path: &Path) -> Result<(), i32> {
    let path = c_path(path.as_os_str())?;
    // SAFETY: a valid path.
    if unsafe { libc::mkdir(path.as_ptr(), DIRECTORY_MODE) } == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Makes a directory and those above it that are missing.
pub fn make_directories(path: &Path) -> Result<(), i32> {
    match make_directory(path) {
        Err(libc::ENOENT) => match path.parent() {
            Some(parent) => {
                make_directories(parent)?;
                make_directory(path)
            }
            None => Err(libc::ENOENT),
        },
        Err(libc::EEXIST) => Ok(()),
        result => result,
    }
}

/// Makes the directory of this process. If its name is taken, the time in it moves on one second.
pub fn make_process_directory(process_id: u32, output: &Path) -> Result<PathBuf, i32> {
    let prefix = settings::recording().settings.variant.program_name();
    let mut local_seconds = local_seconds();
    for _ in 0..MOST_COLLISIONS {
        let mut name = format!("{prefix}_{process_id}_");
        for digit in clock::compact_date(local_seconds) {
            name.push(char::from(digit));
        }
        let _ = write!(name, "_ascend");
        let directory = output.join(name);
        match make_directory(&directory) {
            Ok(()) => return Ok(directory),
            Err(libc::EEXIST) => local_seconds += 1,
            Err(errno) => return Err(errno),
        }
    }
    Err(libc::EEXIST)
}

fn local_seconds() -> i64 {
    let wall_seconds = (clock::wall_ns() / 1_000_000_000) as i64;
    let mut offset = LOCAL_OFFSET_SECONDS.load(Ordering::Relaxed);
    if offset == i64::MIN {
        offset = clock::local_offset_seconds(wall_seconds);
        LOCAL_OFFSET_SECONDS.store(offset, Ordering::Relaxed);
    }
    wall_seconds + offset
}

/// Largest size of the trace.
pub fn limit_bytes(directory: &Path) -> u64 {
    let settings = &settings::recording().settings;
    if let Some(limit) = settings.max_trace_size_bytes.or(settings.flight_recorder_bytes) {
        return limit;
    }
    // SAFETY: plain old data, for which zero is a valid value.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    let known = match c_path(directory.as_os_str()) {
        // SAFETY: both pointers are valid for the call.
        Ok(path) => unsafe { libc::statvfs(path.as_ptr(), &mut facts) == 0 },
        Err(_) => false,
    };
    let free_bytes = facts.f_bavail.saturating_mul(facts.f_frsize);
    if known {
        let little_bytes = (free_bytes / 2).min(LITTLE_SPACE_BYTES);
        (free_bytes / SHARE_OF_FREE_SPACE).clamp(little_bytes, LARGEST_DEFAULT_LIMIT_BYTES)
    } else {
        LARGEST_DEFAULT_LIMIT_BYTES
    }
}
