//! What recordings there are: the processes of each launch together, the latest launch first.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use msmemscope_event::{Place, ProcessInfoKey};
use msmemscope_trace::{Definitions, Introduction, Trace};

use crate::recordings::RecordingDirectory;

/// What became of a recorded process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its end was recorded and its results are written.
    Finished,
    /// It was killed, crashed or left with `_exit`; its results are written.
    CutOff,
    /// It has ended, and its results are not written.
    NoResults,
    /// It still writes.
    Running,
}

impl State {
    /// One or two words for people.
    pub fn describe(self) -> &'static str {
        match self {
            State::Finished => "finished",
            State::CutOff => "cut off",
            State::NoResults => "no results",
            State::Running => "running",
        }
    }
}

/// A recorded process and what one look at its recording says.
#[derive(Debug)]
pub struct ProcessEntry {
    /// Where it is.
    pub recording: RecordingDirectory,
    /// When it was first recorded, nanoseconds since 1970.
    pub start_ns: u64,
    /// What it was called as; empty if nobody knows.
    pub command: String,
    /// Its place in the job.
    pub place: Place,
    /// Bytes of the directory on disk.
    pub disk_bytes: u64,
    /// What became of it.
    pub state: State,
}

/// The processes of one launch; a process that was recorded by hand is one by itself.
#[derive(Debug)]
pub struct Run {
    /// By rank, then by start; never empty.
    pub processes: Vec<ProcessEntry>,
}

impl Run {
    /// When its first process was first recorded.
    pub fn start_ns(&self) -> u64 {
        self.processes.iter().map(|process| process.start_ns).min().unwrap_or(0)
    }

    /// The process that stands for all.
    pub fn first(&self) -> &ProcessEntry {
        &self.processes[0]
    }

    /// Bytes on disk of all.
    pub fn disk_bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.disk_bytes).sum()
    }

    /// The state that needs most attention.
    pub fn state(&self) -> State {
        self.processes.iter().map(|process| process.state).max().unwrap_or(State::Finished)
    }

    /// The ranks that are known.
    pub fn ranks(&self) -> Vec<u32> {
        self.processes.iter().filter_map(|process| process.place.rank).collect()
    }
}

/// Recordings by launch, the latest first.
pub fn runs(recordings: Vec<RecordingDirectory>) -> Vec<Run> {
    let mut by_launch: BTreeMap<(u64, usize), Vec<ProcessEntry>> = BTreeMap::new();
    for (index, recording) in recordings.into_iter().enumerate() {
        let run_id = recording.identity.run_id;
        let alone = if run_id == 0 { index } else { 0 };
        by_launch.entry((run_id, alone)).or_default().push(look_at(recording));
    }
    let mut runs: Vec<Run> = by_launch.into_values().map(|processes| Run { processes }).collect();
    for run in &mut runs {
        run.processes.sort_by_key(|process| (process.place.rank.unwrap_or(u32::MAX), process.start_ns));
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run.start_ns()));
    runs
}

fn look_at(recording: RecordingDirectory) -> ProcessEntry {
    let path = recording.trace_path();
    let state = match (recording.is_running(), recording.is_finished(), recording.identity.closed) {
        (true, _, _) => State::Running,
        (false, false, _) => State::NoResults,
        (false, true, true) => State::Finished,
        (false, true, false) => State::CutOff,
    };
    let disk_bytes = disk_bytes(&recording.path);
    let changed_ns = || path.metadata().map_or(0, |found| found.mtime().max(0) as u64 * 1_000_000_000);
    match Trace::introduction(&path) {
        Ok(Introduction { wall_start_ns, definitions }) => {
            let (place, command) = (definitions.place(), command(&definitions));
            ProcessEntry { recording, start_ns: wall_start_ns, command, place, disk_bytes, state }
        }
        Err(_) => {
            let (start_ns, command, place) = (changed_ns(), String::new(), Place::default());
            ProcessEntry { recording, start_ns, command, place, disk_bytes, state }
        }
    }
}

/// What a process was called as, in one line; empty if nobody knows.
pub(crate) fn command(definitions: &Definitions) -> String {
    let words = definitions.process_information(ProcessInfoKey::CommandLine).unwrap_or_default();
    String::from_utf8_lossy(words).replace('\0', " ").trim().to_owned()
}

/// Bytes that a directory and everything below it take on disk; links are not followed.
fn disk_bytes(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    let own = metadata.blocks() * 512;
    match std::fs::read_dir(path) {
        Ok(entries) if metadata.is_dir() => own + entries.flatten().map(|entry| disk_bytes(&entry.path())).sum::<u64>(),
        _ => own,
    }
}
