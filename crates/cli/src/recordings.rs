//! Finds recordings on disk and tells whether their process still runs.

use std::io;
use std::path::{Path, PathBuf};

use msmemscope_output::is_finished;
use msmemscope_trace::reader::TraceIdentity;
use msmemscope_trace::{TRACE_FILE_NAME, Trace, TraceError};

/// The directory of one recorded process.
#[derive(Clone, Debug)]
pub struct RecordingDirectory {
    /// The directory.
    pub path: PathBuf,
    /// Who was recorded.
    pub identity: TraceIdentity,
}

impl RecordingDirectory {
    /// Opens one directory.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let identity = Trace::identify(&path.join(TRACE_FILE_NAME))?;
        Ok(Self { path: path.to_owned(), identity })
    }

    /// The trace inside.
    pub fn trace_path(&self) -> PathBuf {
        self.path.join(TRACE_FILE_NAME)
    }

    /// Whether its results are written.
    pub fn is_finished(&self) -> bool {
        is_finished(&self.path)
    }

    /// Whether the recorded process still writes to this trace. A process id alone would not do: it
    /// may belong to somebody else by now, so the process must have the trace mapped.
    pub fn is_running(&self) -> bool {
        if self.identity.closed {
            return false;
        }
        let maps = match std::fs::read(format!("/proc/{}/maps", self.identity.process_id)) {
            Ok(maps) => maps,
            // Processes of other users cannot be looked into; believe that they run.
            Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
        };
        let path = self.trace_path().canonicalize().unwrap_or_else(|_| self.trace_path());
        let needle = escaped_like_maps(&path);
        maps.windows(needle.len()).any(|window| window == needle)
    }
}

/// The kernel writes a newline in a path as `\012`.
fn escaped_like_maps(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let mut escaped = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'\n' => escaped.extend_from_slice(b"\\012"),
            byte => escaped.push(byte),
        }
    }
    escaped
}

/// Every recording in a directory: the directory itself, or the process directories in it, by name.
/// Directories without a readable trace are left out.
pub fn recordings_in(directory: &Path) -> io::Result<Vec<RecordingDirectory>> {
    if directory.join(TRACE_FILE_NAME).exists() {
        return Ok(RecordingDirectory::open(directory).into_iter().collect());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if let Ok(recording) = RecordingDirectory::open(&path) {
            found.push(recording);
        }
    }
    found.sort_by(|first, second| first.path.cmp(&second.path));
    Ok(found)
}

/// The recordings of one launch.
pub fn recordings_of_run(output: &Path, run_id: u64) -> Vec<RecordingDirectory> {
    let mut recordings = recordings_in(output).unwrap_or_default();
    recordings.retain(|recording| recording.identity.run_id == run_id);
    recordings
}
