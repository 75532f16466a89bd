//! Finds recordings on disk and tells whether their process still runs.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use msmemscope_output::is_finished;
use msmemscope_trace::reader::TraceIdentity;
use msmemscope_trace::{TRACE_FILE_NAME, Trace, TraceError, open_regular_file};

use msmemscope_report::shell::quoted_path;

/// The directory of one recorded process.
#[derive(Clone, Debug)]
pub struct RecordingDirectory {
    /// The directory.
    pub path: PathBuf,
    /// Who was recorded.
    pub identity: TraceIdentity,
    /// Whether the user named this very directory, as opposed to one that it is in.
    pub is_named: bool,
}

impl RecordingDirectory {
    /// Opens one directory.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let identity = Trace::identify(&path.join(TRACE_FILE_NAME))?;
        Ok(Self { path: path.to_owned(), identity, is_named: false })
    }

    /// The trace inside.
    pub fn trace_path(&self) -> PathBuf {
        self.path.join(TRACE_FILE_NAME)
    }

    /// Whether results may be written into it without further asking: it belongs to the user we run as, or was named.
    pub fn is_ours_to_finish(&self) -> bool {
        self.is_named || (is_own(&self.path) && is_own(&self.trace_path()))
    }

    /// Whether its results are written.
    pub fn is_finished(&self) -> bool {
        is_finished(&self.path)
    }

    /// Whether the recorded process still writes to this trace. A process id alone would not do: it
    /// may belong to somebody else by now, so the process must have the trace mapped, under this name
    /// or under the one it had before its recording was moved.
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
        let inode = std::fs::metadata(&path).map_or(0, |metadata| metadata.ino());
        maps.split(|&byte| byte == b'\n').any(|line| is_mapping_of(line, &path, inode))
    }
}

/// Whether a line of a process's memory map is a mapping of the trace: by its path, or by the number
/// of the file, which stays when the file gets another name.
fn is_mapping_of(line: &[u8], path: &Path, inode: u64) -> bool {
    let contains = |needle: &[u8]| line.windows(needle.len()).any(|window| window == needle);
    if contains(&escaped_like_maps(path)) {
        return true;
    }
    let number = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty()).nth(4);
    contains(TRACE_FILE_NAME.as_bytes()) && inode != 0 && number == Some(inode.to_string().as_bytes())
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

/// Whether something belongs to the user we run as; of a link, whether the link does.
fn is_own(path: &Path) -> bool {
    // SAFETY: plain system call.
    let user = unsafe { libc::geteuid() };
    path.symlink_metadata().is_ok_and(|metadata| metadata.uid() == user)
}

/// Every recording in a directory: the directory itself, or the process directories in it, by name.
/// Directories without a readable trace are left out.
pub fn recordings_in(directory: &Path) -> io::Result<Vec<RecordingDirectory>> {
    if directory.join(TRACE_FILE_NAME).exists() {
        // Results are not written through a link; of one that was named, what it leads to is meant.
        let is_link = directory.is_symlink();
        let directory = if is_link { directory.canonicalize()? } else { directory.to_owned() };
        let named = |recording| RecordingDirectory { is_named: true, ..recording };
        return Ok(RecordingDirectory::open(&directory).map(named).into_iter().collect());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // What others put here as a link may lead anywhere.
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            continue;
        }
        let path = entry.path();
        if let Ok(recording) = RecordingDirectory::open(&path) {
            found.push(recording);
        }
    }
    found.sort_by(|first, second| first.path.cmp(&second.path));
    Ok(found)
}

/// The recording that a result file was written from: `<recording>/device_0/dump/<file>`.
pub fn recording_of(file: &Path) -> Option<PathBuf> {
    const LEVELS_ABOVE: usize = 3;
    let absolute = file.canonicalize().ok()?;
    absolute
        .ancestors()
        .skip(1)
        .take(LEVELS_ABOVE)
        .find(|above| above.join(TRACE_FILE_NAME).is_file())
        .map(Path::to_owned)
}

/// Recordings in a directory whose header cannot be read, and why. Those of processes that were killed while they made
/// the file are left out: nothing was recorded there. What others left here is their business.
pub fn unreadable_in(directory: &Path) -> Vec<(PathBuf, TraceError)> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let own = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_own(path) && !path.is_symlink());
    let candidates = own.chain([directory.to_owned()]);
    let mut found: Vec<_> = candidates
        .filter_map(|path| match RecordingDirectory::open(&path) {
            Ok(_) | Err(TraceError::Io(_) | TraceError::HeaderCut { .. }) => None,
            Err(error) => (!was_never_made(&path)).then_some((path, error)),
        })
        .collect();
    found.sort_by(|first, second| first.0.cmp(&second.0));
    found
}

/// Whether a process was killed before it had made its trace: the first bytes are written last.
fn was_never_made(directory: &Path) -> bool {
    let mut first_bytes = [0; 8];
    let read = open_regular_file(&directory.join(TRACE_FILE_NAME)).and_then(|mut file| file.read(&mut first_bytes));
    read.is_ok() && first_bytes == [0; 8]
}

/// The recordings in a directory that the user named; an error says why there are none.
pub fn recordings_named(directory: &Path, program: &str) -> Result<Vec<RecordingDirectory>, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("{}: {reason}", quoted_path(directory));
    if directory.is_file() {
        let advice = format!("this is a file; name the directory of a recording, or use '{program} analyze'");
        return Err(failed(&advice));
    }
    let recordings = recordings_in(directory).map_err(|error| failed(&error))?;
    if !recordings.is_empty() {
        return Ok(recordings);
    }
    if let Some((path, error)) = unreadable_in(directory).first() {
        return Err(format!("{}: {error}", quoted_path(path)));
    }
    if directory.join(TRACE_FILE_NAME).exists()
        && let Err(error) = RecordingDirectory::open(directory)
    {
        return Err(failed(&error));
    }
    Err(failed(&"no recording in this directory"))
}

/// The directories of the run below an output directory that started last.
pub fn latest_run(output: &Path) -> Vec<PathBuf> {
    let recordings = recordings_in(output).unwrap_or_default();
    let started = |recording: &RecordingDirectory| {
        recording.trace_path().metadata().and_then(|found| found.created().or_else(|_| found.modified())).ok()
    };
    let Some(latest) = recordings.iter().max_by_key(|recording| started(recording)) else { return Vec::new() };
    let run_id = latest.identity.run_id;
    recordings.iter().filter(|other| other.identity.run_id == run_id).map(|other| other.path.clone()).collect()
}

/// The recording that a process writes, found by what it has mapped.
pub fn recording_of_process(process_id: u32) -> Option<RecordingDirectory> {
    let maps = std::fs::read_to_string(format!("/proc/{process_id}/maps")).ok()?;
    let traces = maps.lines().filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])));
    let directories = traces.filter(|path| path.ends_with(TRACE_FILE_NAME)).filter_map(Path::parent);
    let mut recordings = directories.filter_map(|directory| RecordingDirectory::open(directory).ok());
    // A fork has its parent's mapped, too.
    recordings.find(|recording| recording.identity.process_id == process_id)
}

/// The recordings of one launch.
pub fn recordings_of_run(output: &Path, run_id: u64) -> Vec<RecordingDirectory> {
    let mut recordings = recordings_in(output).unwrap_or_default();
    recordings.retain(|recording| recording.identity.run_id == run_id);
    recordings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_was_never_made_is_not_called_unreadable() {
        let home = tempfile::tempdir().expect("temporary directory");
        let zeros = [0; 8192];
        for (name, content) in [("empty", &b""[..]), ("zeros", &zeros[..]), ("overwritten", &[b'x'; 8192][..])] {
            std::fs::create_dir(home.path().join(name)).expect("directory");
            std::fs::write(home.path().join(name).join(TRACE_FILE_NAME), content).expect("file");
        }
        let found: Vec<_> = unreadable_in(home.path()).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, [home.path().join("overwritten")]);
    }

    #[test]
    fn a_mapping_is_known_by_its_path_or_its_number() {
        let path = Path::new("/results/new/recording.trace");
        let line = |number: u64, path: &str| format!("7f00-7f01 rw-s 00001000 fe:00 {number}      {path}");
        let is_mapping = |line: String| is_mapping_of(line.as_bytes(), path, 77);
        assert!(is_mapping(line(5, "/results/new/recording.trace")));
        assert!(is_mapping(line(77, "/results/old/recording.trace (deleted)")));
        assert!(!is_mapping(line(78, "/results/old/recording.trace (deleted)")));
        assert!(!is_mapping(line(77, "/usr/lib/libc.so.6")));
        assert!(!is_mapping("7f00-7f01 rw-p 00000000 00:00 0".to_owned()));
    }
}
