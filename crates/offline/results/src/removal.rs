//! Removes recordings: what the tool wrote into a process directory, and nothing else.
//!
//! Names are taken from the open directory and links are not followed, so whatever others put there, nothing outside of
//! it is touched. Files that are not ours stay, and so does the directory then.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use msmemscope_output::directory::Directory;
use msmemscope_trace::TRACE_FILE_NAME;

use crate::recordings::RecordingDirectory;

/// Names that the tool gives to files and directories of a recording besides the trace.
const OUR_NAMES: [&str; 7] =
    [".finished", "config.json", "report.txt", "summary.json", "viewer.index", "msmemscope_logs", "msleaks_logs"];
/// How other names of the tool begin.
const OUR_PREFIXES: [&str; 3] = ["device_", ".pending-", "viewer.index."];
/// Where links to dumps of watched blocks are, below the output directory.
const LINKS_TO_WATCHED: &str = "watch_dump";

/// What is left of a directory.
#[derive(Debug, PartialEq, Eq)]
pub enum Removed {
    /// Nothing.
    Everything,
    /// Files that the tool did not write.
    AllButForeign(Vec<OsString>),
}

/// Removes one recording. The trace goes last: what is interrupted is a recording still, and can be removed again.
pub fn remove_recording(recording: &RecordingDirectory) -> io::Result<Removed> {
    let directory = Directory::open(&recording.path)?;
    if !recording.is_named && !directory.is_own() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    if recording.is_running() {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "it is still running"));
    }
    let (ours, mut foreign): (Vec<_>, Vec<_>) = directory.names()?.into_iter().partition(|name| is_ours(name));
    foreign.retain(|name| name != TRACE_FILE_NAME);
    ours.iter().try_for_each(|name| directory.remove_tree(name))?;
    remove_links_to(&recording.path);
    directory.remove_tree(OsStr::new(TRACE_FILE_NAME))?;
    if !foreign.is_empty() {
        foreign.sort();
        return Ok(Removed::AllButForeign(foreign));
    }
    std::fs::remove_dir(&recording.path)?;
    Ok(Removed::Everything)
}

/// Removes the links to dumps of watched blocks that are beside the directories of processes, and their directory if it
/// is empty by then.
fn remove_links_to(recording: &Path) {
    let (Some(output), Some(name)) = (recording.parent(), recording.file_name()) else { return };
    let path = output.join(LINKS_TO_WATCHED);
    let Ok(links) = Directory::open(&path) else { return };
    let prefix = format!("{}_device_", name.to_string_lossy());
    let is_of_recording = |name: &&OsString| {
        let is_link = std::fs::symlink_metadata(path.join(name)).is_ok_and(|found| found.is_symlink());
        is_link && name.to_string_lossy().starts_with(&prefix)
    };
    for name in links.names().unwrap_or_default().iter().filter(is_of_recording) {
        let _ = links.remove_file(Path::new(name));
    }
    let _ = std::fs::remove_dir(path);
}

fn is_ours(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    OUR_NAMES.contains(&name.as_ref()) || OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
