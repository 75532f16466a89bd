//! `msmemscope clean`: removes recordings that were named, are old, or are more than one wants to keep.
//!
//! Says first what would go, and asks. Recordings that still run and those of other users stay.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use msmemscope_config::Invocation;
use msmemscope_report::layout::near_path;
use msmemscope_report::shell::quoted_path;
use msmemscope_report::units::counted;
use msmemscope_results::recordings::{RecordingDirectory, recordings_in, recordings_named};
use msmemscope_results::removal::{Removed, remove_recording};
use msmemscope_results::runs::{Run, State, runs};
use msmemscope_trace::TRACE_FILE_NAME;

use crate::analyzing::{number, print_json, usual_output};
use crate::exit_status::ExitStatus;
use crate::listing;
use crate::terminal::Terminal;
use crate::{Outcome, print_text};

/// Which of the recordings in a directory are meant.
struct Choice {
    /// Only those that started this long ago or earlier.
    older_than_seconds: Option<u64>,
    /// All but the latest.
    kept_runs: Option<usize>,
    all: bool,
}

/// `clean [<dir|name>...]`
pub fn clean(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let choice = Choice {
        older_than_seconds: invocation.flag_value("older-than").map(age_seconds).transpose()?,
        kept_runs: number(invocation, "keep")?.map(|kept| usize::try_from(kept).unwrap_or(usize::MAX)),
        all: invocation.has_flag("all"),
    };
    let meant = meant_runs(&invocation.operands, &choice, terminal)?;
    let (running, removable): (Vec<Run>, Vec<Run>) = meant.into_iter().partition(|run| run.state() == State::Running);
    for run in &running {
        terminal.warning(format!("{} is still running and stays", quoted_path(near_path(&run.first().recording.path))));
    }
    if invocation.has_flag("json") {
        if !invocation.has_flag("yes") && !removable.is_empty() {
            return Err("nothing was removed: --json asks nobody, add --yes".to_owned());
        }
        let (removed, kept): (Vec<Run>, Vec<Run>) = removable.into_iter().partition(|run| remove_run(run, terminal));
        let [removed, left] = [removed.iter().collect(), kept.iter().chain(&running).collect()]
            .map(|runs: Vec<&Run>| runs.into_iter().map(listing::json).collect::<Vec<_>>());
        print_json(&serde_json::json!({ "removed": removed, "left": left }))?;
        return Ok(if kept.is_empty() { ExitStatus::Success } else { ExitStatus::Failure });
    }
    if removable.is_empty() {
        return print_text("Nothing to remove.\n");
    }
    print_text(&format!("{}\n{}\n", listing::table(&removable), listing::total(&removable)))?;
    if !invocation.has_flag("yes") && !agrees(removable.len())? {
        return print_text("Nothing was removed.\n");
    }
    remove_all(&removable, terminal)
}

/// The recordings that were named, and those in directories that the options choose.
fn meant_runs(operands: &[OsString], choice: &Choice, terminal: &Terminal) -> Result<Vec<Run>, String> {
    let places = match operands {
        [] => vec![usual_output(terminal)?],
        operands => operands.iter().map(|operand| place(operand, terminal)).collect::<Result<_, _>>()?,
    };
    let (mut named, mut chosen) = (Vec::new(), Vec::new());
    for place in &places {
        let recordings = recordings_at(place, operands.is_empty(), terminal)?;
        let (itself, inside): (Vec<_>, Vec<_>) = recordings.into_iter().partition(|recording| recording.is_named);
        if !inside.is_empty() && !choice.is_made() {
            let shown = quoted_path(near_path(place));
            return Err(format!(
                "{shown} has {}: say which with --older-than, --keep or --all, or name them",
                counted(inside.len() as u64, "recording")
            ));
        }
        let (own, of_others): (Vec<_>, Vec<_>) = inside.into_iter().partition(RecordingDirectory::is_ours_to_finish);
        if !of_others.is_empty() {
            let recordings = counted(of_others.len() as u64, "recording");
            terminal.warning(format!("{recordings} of other users in {} left alone", quoted_path(near_path(place))));
        }
        named.extend(itself);
        chosen.extend(choice.apply(runs(own)));
    }
    let mut meant = runs(named);
    meant.extend(chosen);
    Ok(meant)
}

/// The recordings at a place. That none are left in a directory is what one wants after cleaning.
fn recordings_at(place: &Path, may_be_missing: bool, terminal: &Terminal) -> Result<Vec<RecordingDirectory>, String> {
    match recordings_in(place) {
        Ok(recordings) if recordings.is_empty() && !place.join(TRACE_FILE_NAME).exists() && place.is_dir() => {
            Ok(recordings)
        }
        Err(error) if error.kind() == ErrorKind::NotFound && may_be_missing => Ok(Vec::new()),
        _ => recordings_named(place, terminal.program_name()),
    }
}

/// What an argument stands for: a path, or a name as `list` shows it.
fn place(operand: &OsStr, terminal: &Terminal) -> Result<PathBuf, String> {
    let path = PathBuf::from(operand);
    let is_name = path.components().count() == 1 && path.file_name().is_some();
    let usual = usual_output(terminal)?.join(&path);
    Ok(if is_name && path.symlink_metadata().is_err() && usual.symlink_metadata().is_ok() { usual } else { path })
}

impl Choice {
    fn is_made(&self) -> bool {
        self.all || self.older_than_seconds.is_some() || self.kept_runs.is_some()
    }

    /// Those of some runs, the latest first, that all options agree on.
    fn apply(&self, runs: Vec<Run>) -> impl Iterator<Item = Run> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let latest_ns = self
            .older_than_seconds
            .map_or(u64::MAX, |age| now.saturating_sub(Duration::from_secs(age)).as_nanos() as u64);
        runs.into_iter().skip(self.kept_runs.unwrap_or(0)).filter(move |run| run.start_ns() <= latest_ns)
    }
}

fn age_seconds(value: &OsStr) -> Result<u64, String> {
    const UNITS: [(&str, u64); 5] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];
    let text = value.to_string_lossy();
    let read = || {
        let (unit, seconds) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
        text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(*seconds)
    };
    read().ok_or_else(|| format!("--older-than must be an age such as 30m, 12h, 7d or 2w, not '{text}'"))
}

/// Asks on the terminal; without one, somebody has to say it beforehand.
fn agrees(count: usize) -> Result<bool, String> {
    let (input, mut output) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() || !output.is_terminal() {
        return Err("nothing was removed: add --yes to remove without asking".to_owned());
    }
    let question = match count {
        1 => "Remove it? [y/N] ".to_owned(),
        count => format!("Remove these {count} recordings? [y/N] "),
    };
    let mut answer = String::new();
    let asked = output.write_all(question.as_bytes()).and_then(|()| input.lock().read_line(&mut answer));
    asked.map_err(|error| format!("nothing was removed: no answer: {error}"))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

fn remove_all(runs: &[Run], terminal: &Terminal) -> Outcome {
    let removed = runs.iter().filter(|run| remove_run(run, terminal)).count();
    print_text(&format!("Removed {}.\n", counted(removed as u64, "recording")))?;
    Ok(if removed == runs.len() { ExitStatus::Success } else { ExitStatus::Failure })
}

/// Removes the directories of a run; says whether that went well, and why not.
fn remove_run(run: &Run, terminal: &Terminal) -> bool {
    let mut is_removed = true;
    for recording in run.processes.iter().map(|process| &process.recording) {
        let shown = quoted_path(near_path(&recording.path));
        match remove_recording(recording) {
            Ok(Removed::Everything) => {}
            Ok(Removed::AllButForeign(names)) => {
                let kept: Vec<String> = names.iter().map(|name| quoted_path(Path::new(name))).collect();
                terminal.warning(format!("{shown} stays with files that are not of the recording: {}", kept.join(" ")));
            }
            Err(error) => {
                is_removed = false;
                terminal.error(format!("{shown} cannot be removed: {error}"));
            }
        }
    }
    is_removed
}
