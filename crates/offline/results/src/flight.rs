//! Writes out what a flight recorder holds: copies of recordings at a moment, numbered, below the output directory
//! (`flight/3-oom/...`). They are recordings like any other.

use std::io;
use std::path::{Path, PathBuf};

use msmemscope_report::shell::quoted_path;
use msmemscope_trace::{TRACE_FILE_NAME, copy_moment};

use crate::following::monotonic_ns;
use crate::recordings::{RecordingDirectory, recordings_in};

/// The directory below the output directory.
const DIRECTORY: &str = "flight";

/// Copies recordings as they are now; gives the directory that the copies are in.
pub fn write_out(output: &Path, what: &str, recordings: &[RecordingDirectory]) -> Result<PathBuf, String> {
    let directory = next_directory(output, what).map_err(|error| format!("{}: {error}", quoted_path(output)))?;
    for recording in recordings {
        let target = directory.join(recording.path.file_name().unwrap_or_default());
        let copied = std::fs::create_dir(&target)
            .and_then(|()| copy_moment(&recording.trace_path(), &target.join(TRACE_FILE_NAME), monotonic_ns()));
        copied.map_err(|error| format!("{}: {error}", quoted_path(&target)))?;
    }
    Ok(directory)
}

/// What results can be written of while the processes run: copies of recordings that forget, the others as they are.
pub fn that_stay(recordings: Vec<RecordingDirectory>, what: &str) -> Result<Vec<RecordingDirectory>, String> {
    let forgets = |recording: &RecordingDirectory| recording.identity.keeps_newest && recording.is_running();
    let (forgetting, mut staying): (Vec<_>, Vec<_>) = recordings.into_iter().partition(forgets);
    let Some(output) = forgetting.first().and_then(|recording| recording.path.parent()) else { return Ok(staying) };
    let directory = write_out(output, what, &forgetting)?;
    let copies = recordings_in(&directory).map_err(|error| format!("{}: {error}", quoted_path(&directory)))?;
    staying.extend(copies);
    Ok(staying)
}

/// Makes a directory with the next number.
fn next_directory(output: &Path, what: &str) -> io::Result<PathBuf> {
    let parent = output.join(DIRECTORY);
    std::fs::create_dir_all(&parent)?;
    let number = |entry: io::Result<std::fs::DirEntry>| -> Option<u64> {
        entry.ok()?.file_name().to_str()?.split_once('-')?.0.parse().ok()
    };
    let mut next = std::fs::read_dir(&parent)?.filter_map(number).max().unwrap_or(0) + 1;
    loop {
        let directory = parent.join(format!("{next}-{what}"));
        match std::fs::create_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => next += 1,
            result => return result.map(|()| directory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_numbered_on() {
        let home = tempfile::tempdir().expect("temporary directory");
        let name = |what| {
            let directory = write_out(home.path(), what, &[]).expect("written");
            directory.strip_prefix(home.path()).expect("below").to_owned()
        };
        assert_eq!([name("oom"), name("growth")], ["flight/1-oom", "flight/2-growth"].map(PathBuf::from));
        std::fs::create_dir(home.path().join("flight/41-signal")).expect("made");
        std::fs::write(home.path().join("flight/notes"), "").expect("made");
        assert_eq!(name("oom"), Path::new("flight/42-oom"));
    }
}
