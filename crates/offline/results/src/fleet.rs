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
    for path in paths {
        let before = found.len();
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
    let total = found.len();
    let mut fleet = Fleet::default();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(total.max(1));
    // Only as many wait to be counted as there is always work for everybody.
    let (send, receive) = sync_channel(WAITING);
    std::thread::scope(|scope| {
        for send in std::iter::repeat_n(send, workers) {
            let (found, next) = (&found, &next);
            scope.spawn(move || {
                while let Some(one) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if send.send(look_at(one)).is_err() {
                        return;
                    }
                }
            });
        }
        for (done, looked_at) in receive.iter().enumerate() {
            match looked_at {
                Ok((path, summary)) => fleet.add(path, *summary),
                Err((path, reason, detail)) => fleet.skip(path, reason, detail),
            }
            progress.show(done as u64 + 1, total as u64);
        }
    });
    Ok(fleet.finish())
}

type Refused = (PathBuf, SkipReason, String);

fn look_at(found: &Found) -> Result<(PathBuf, Box<Summary>), Refused> {
    match found {
        Found::RecordingOnly(path) => Err((path.clone(), SkipReason::NoSummary, String::new())),
        Found::Unreadable(path, error) => Err((path.clone(), SkipReason::Damaged, error.clone())),
        Found::Summary(path) => match read(path) {
            Ok(summary) => Ok((path.clone(), Box::new(summary))),
            Err((reason, detail)) => Err((path.clone(), reason, detail)),
        },
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
