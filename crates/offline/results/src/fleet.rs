//! Finds the summaries of many processes and puts them together.
//!
//! Directories are searched to any usual depth, links are not followed: jobs are copied together from many machines in
//! many ways. What cannot be used is named and counted, never guessed at.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use msmemscope_analysis::fleet::summary::{FORMAT, SUMMARY_NAME, Summary, VERSION};
use msmemscope_analysis::fleet::{Fleet, FleetReport, SkipReason};
use msmemscope_report::shell::quoted_path;
use msmemscope_trace::TRACE_FILE_NAME;
use serde_json::Value;

use crate::finishing::Progress;

/// Levels of directories below a named one.
const DEEPEST: usize = 12;
/// A larger file is no summary.
const LARGEST_BYTES: u64 = 64 << 20;
/// Summaries read ahead.
const WAITING: usize = 16;

/// What a directory holds, as far as it concerns jobs.
enum Found {
    Summary(PathBuf),
    RecordingOnly(PathBuf),
    Unreadable(PathBuf, String),
}

/// Merges all summaries below some directories; files that are summaries may be named as well.
pub fn merge(paths: &[PathBuf], progress: &mut dyn Progress) -> Result<FleetReport, String> {
    let mut found = Vec::new();
    // Where what is found below each path begins.
    let mut starts = Vec::new();
    for path in paths {
        let before = found.len();
        starts.push(before);
        if path.is_file() {
            found.push(Found::Summary(path.clone()));
            continue;
        }
        search(path, DEEPEST, &mut found).map_err(|error| format!("{}: {error}", quoted_path(path)))?;
        if found.len() == before {
            return Err(format!("{}: no summary and no recording in this directory or below", quoted_path(path)));
        }
    }
    progress.start("merging");
    let mut fleet = Fleet::default();
    let (total, mut done) = (found.len() as u64, 0);
    look_at_all(&found, |index, path, looked_at| {
        match looked_at {
            Ok(summary) => fleet.add(starts.partition_point(|start| *start <= index), path, *summary),
            Err((reason, detail)) => fleet.skip(path, reason, detail),
        }
        done += 1;
        progress.show(done, total);
    });
    Ok(fleet.finish())
}

/// What became of a summary: itself, or why it cannot be used and details.
pub type LookedAt = Result<Box<Summary>, (SkipReason, String)>;

/// Hands over every summary below some directories, in no order, and every recording that has none. What is not there
/// or no directory holds none.
pub fn visit(paths: &[PathBuf], mut take: impl FnMut(PathBuf, LookedAt)) {
    let mut found = Vec::new();
    for path in paths.iter().filter(|path| path.is_dir()) {
        if let Err(error) = search(path, DEEPEST, &mut found) {
            found.push(Found::Unreadable(path.clone(), error.to_string()));
        }
    }
    look_at_all(&found, |_, path, looked_at| take(path, looked_at));
}

/// Reads with all processors; only as many summaries wait to be taken as there is always work for everybody.
fn look_at_all(found: &[Found], mut take: impl FnMut(usize, PathBuf, LookedAt)) {
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(found.len().max(1));
    let (send, receive) = sync_channel(WAITING);
    std::thread::scope(|scope| {
        for send in std::iter::repeat_n(send, workers) {
            let next = &next;
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = found.get(index) else { return };
                    let (path, looked_at) = look_at(one);
                    if send.send((index, path, looked_at)).is_err() {
                        return;
                    }
                }
            });
        }
        receive.iter().for_each(|(index, path, looked_at)| take(index, path, looked_at));
    });
}

fn look_at(found: &Found) -> (PathBuf, LookedAt) {
    match found {
        Found::RecordingOnly(path) => (path.clone(), Err((SkipReason::NoSummary, String::new()))),
        Found::Unreadable(path, error) => (path.clone(), Err((SkipReason::Damaged, error.clone()))),
        Found::Summary(path) => (path.clone(), read(path).map(Box::new)),
    }
}

/// Reads one summary.
fn read(path: &Path) -> Result<Summary, (SkipReason, String)> {
    let damaged = |detail: String| (SkipReason::Damaged, detail);
    let text = read_whole(path).map_err(|error| damaged(error.to_string()))?;
    match serde_json::from_slice::<Summary>(&text) {
        Ok(summary) if summary.format == FORMAT && summary.version == VERSION => Ok(summary),
        parsed => {
            // Another version may look different altogether, so only these two fields are asked for.
            let fields: Value = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
            match (fields["format"].as_str(), fields["version"].as_u64()) {
                (Some(FORMAT), Some(version)) if version != u64::from(VERSION) => Err((
                    SkipReason::OtherVersion,
                    format!("version {version}, and this program knows version {VERSION}"),
                )),
                (Some(FORMAT), Some(_)) => Err(damaged(parsed.err().map_or(String::new(), |error| error.to_string()))),
                _ => Err(damaged("no summary of msmemscope".to_owned())),
            }
        }
    }
}

fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let file = msmemscope_trace::open_regular_file(path)?;
    let size_bytes = file.metadata()?.len();
    if size_bytes > LARGEST_BYTES {
        return Err(io::Error::other("too large for a summary"));
    }
    let mut text = Vec::with_capacity(size_bytes as usize);
    File::take(file, LARGEST_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// Looks for recordings and summaries, in the order of names.
fn search(directory: &Path, levels: usize, found: &mut Vec<Found>) -> io::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let has = |name: &str| entries.iter().any(|entry| entry.file_name() == name);
    if has(SUMMARY_NAME) {
        found.push(Found::Summary(directory.join(SUMMARY_NAME)));
        return Ok(());
    }
    if has(TRACE_FILE_NAME) {
        found.push(Found::RecordingOnly(directory.to_owned()));
        return Ok(());
    }
    for entry in entries.iter().filter(|_| levels > 0) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Err(error) = search(&entry.path(), levels - 1, found)
        {
            found.push(Found::Unreadable(entry.path(), error.to_string()));
        }
    }
    Ok(())
}
