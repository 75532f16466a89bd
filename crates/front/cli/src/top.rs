//! `msmemscope top`: what running jobs hold and what grows, on one screen.
//!
//! Recordings are followed from the outside, so a job notices nothing. Processes that a job starts later join in.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use msmemscope_config::Invocation;
use msmemscope_event::visible_keeping;
use msmemscope_report::layout::{self, fit_middle, width};
use msmemscope_report::live::live;
use msmemscope_report::summary::lost_events;
use msmemscope_report::units::{bytes, counted, seconds};
use msmemscope_results::following::{Condition, Followed, Following, newcomers};
use msmemscope_results::recordings::{RecordingDirectory, recording_of_process, recordings_named};

use crate::analyzing::{named_or_latest, print_json};
use crate::signals::EndSignals;
use crate::terminal::{Terminal, size_of};
use crate::{LAYOUT, Outcome, print, print_text};

/// Time between two looks if nobody says otherwise.
const USUAL_INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST_INTERVAL_SECONDS: f64 = 0.1;
const LONGEST_INTERVAL_SECONDS: f64 = 3600.0;
/// How long one look may take to read what was written before.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often to see whether everything has been read.
const OPENING_INTERVAL: Duration = Duration::from_millis(100);
/// Rows of the picture where there is no terminal.
const USUAL_ROWS: usize = 48;
/// Jobs that are told by a line each, besides the one that is shown whole.
const OTHERS_SHOWN: usize = 8;

/// `top [<pid|dir>...]`
pub fn follow_jobs(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let interval = interval(invocation)?;
    if invocation.has_flag("ascii") {
        layout::use_plain();
    }
    let recordings = asked_recordings(&invocation.operands, terminal)?;
    let is_screen = std::io::stdout().is_terminal();
    let is_once = ["once", "json"].iter().any(|flag| invocation.has_flag(flag)) || !is_screen;
    // Before threads are started, which would be ended by signals otherwise.
    let signals = (!is_once).then(EndSignals::block);
    let mut jobs = Jobs { following: Vec::new(), interval };
    recordings.into_iter().for_each(|recording| jobs.add(recording));
    if invocation.has_flag("json") {
        return print_json(&serde_json::json!({ "processes": jobs.opened().iter().map(json).collect::<Vec<_>>() }));
    }
    let states = match signals {
        Some(signals) => follow_on_screen(&mut jobs, &signals)?,
        None => jobs.opened(),
    };
    unreadable(&states)?;
    print_text(&picture(&states, USUAL_ROWS))
}

/// A recording that cannot be read at all is an error if it is the only one.
fn unreadable(states: &[(u32, Followed)]) -> Result<(), String> {
    match states {
        [(process_id, Followed { condition: Condition::Unreadable(reason), .. })] => {
            Err(format!("the recording of process {process_id} cannot be read: {reason}"))
        }
        _ => Ok(()),
    }
}

fn interval(invocation: &Invocation) -> Result<Duration, String> {
    let Some(text) = invocation.flag_value("interval") else { return Ok(USUAL_INTERVAL) };
    let text = text.to_string_lossy();
    match text.parse::<f64>() {
        Ok(number) if (SHORTEST_INTERVAL_SECONDS..=LONGEST_INTERVAL_SECONDS).contains(&number) => {
            Ok(Duration::from_secs_f64(number))
        }
        _ => Err(format!(
            "--interval must be seconds from {SHORTEST_INTERVAL_SECONDS} to {LONGEST_INTERVAL_SECONDS}, not '{text}'"
        )),
    }
}

/// Recordings of processes or directories, or of the latest run.
pub(crate) fn asked_recordings(operands: &[OsString], terminal: &Terminal) -> Result<Vec<RecordingDirectory>, String> {
    let mut recordings = Vec::new();
    for path in named_or_latest(operands, terminal)? {
        match process_id(&path) {
            Some(process_id) => recordings.extend(recordings_below(process_id)?),
            None => recordings.extend(recordings_named(&path, terminal.program_name())?),
        }
    }
    Ok(recordings)
}

/// An operand that is a number, unless there is a file of that name.
fn process_id(path: &Path) -> Option<u32> {
    if path.exists() { None } else { path.to_str()?.parse().ok() }
}

/// Recordings that a process and those it started are writing.
fn recordings_below(process_id: u32) -> Result<Vec<RecordingDirectory>, String> {
    if !Path::new(&format!("/proc/{process_id}")).exists() {
        return Err(format!("there is no process {process_id}"));
    }
    let mut processes = vec![process_id];
    let mut position = 0;
    while let Some(&process) = processes.get(position) {
        processes
            .extend(children_of(process).into_iter().filter(|child| !processes.contains(child)).collect::<Vec<_>>());
        position += 1;
    }
    let found: Vec<RecordingDirectory> = processes.into_iter().filter_map(recording_of_process).collect();
    match found.is_empty() {
        true => Err(format!("process {process_id} is not being recorded, or has not used device memory yet")),
        false => Ok(found),
    }
}

fn children_of(process_id: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process_id}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>()).collect()
}

/// All that is followed.
struct Jobs {
    following: Vec<Following>,
    interval: Duration,
}

impl Jobs {
    fn add(&mut self, recording: RecordingDirectory) {
        if self.following.iter().all(|known| known.recording().path != recording.path) {
            self.following.push(Following::start(recording, self.interval));
        }
    }

    /// Processes that were started since by the same launches.
    fn add_new(&mut self) {
        newcomers(self.following.iter().map(Following::recording))
            .into_iter()
            .for_each(|recording| self.add(recording));
    }

    fn now(&self) -> Vec<(u32, Followed)> {
        let state = |following: &Following| (following.recording().identity.process_id, following.now());
        in_order(self.following.iter().map(state).collect())
    }

    /// The same once everything written before has been read.
    fn opened(&self) -> Vec<(u32, Followed)> {
        let state = |following: &Following| (following.recording().identity.process_id, following.opened(PATIENCE));
        in_order(self.following.iter().map(state).collect())
    }
}

/// The job that needs most attention first: those that run, then by memory in use.
fn in_order(mut states: Vec<(u32, Followed)>) -> Vec<(u32, Followed)> {
    states.sort_by_key(|(process_id, state)| {
        (state.condition.is_final(), std::cmp::Reverse(peak_bytes(state)), *process_id)
    });
    states
}

fn used_bytes(state: &Followed) -> u64 {
    state.picture.pools.iter().map(|pool| pool.used_bytes).max().unwrap_or(0)
}

fn peak_bytes(state: &Followed) -> u64 {
    state.picture.pools.iter().map(|pool| pool.peak_bytes).max().unwrap_or(0)
}

/// Shows the jobs until all have ended or somebody has seen enough. Gives what was known then.
fn follow_on_screen(jobs: &mut Jobs, signals: &EndSignals) -> Result<Vec<(u32, Followed)>, String> {
    let screen = Screen::enter()?;
    loop {
        jobs.add_new();
        let states = jobs.now();
        let is_over = states.iter().all(|(_, state)| state.condition.is_final());
        let (columns, rows) = size_of(&std::io::stdout()).unwrap_or((layout::WIDTH, USUAL_ROWS));
        layout::use_width(columns);
        screen.show(&picture(&states, rows.saturating_sub(1)))?;
        let is_opening = states.iter().any(|(_, state)| state.condition == Condition::Opening);
        if is_over || signals.wait(if is_opening { OPENING_INTERVAL } else { jobs.interval }) {
            return Ok(states);
        }
    }
}

/// A screen of its own, which is left whatever happens.
struct Screen;

impl Screen {
    fn enter() -> Result<Self, String> {
        print(b"\x1b[?1049h\x1b[?25l")?;
        Ok(Self)
    }

    fn show(&self, text: &str) -> Result<(), String> {
        let text = visible_keeping(text, &LAYOUT);
        let mut frame = String::from("\x1b[H");
        text.lines().for_each(|line| frame.push_str(&format!("{line}\x1b[K\r\n")));
        frame.push_str("\x1b[J");
        print(frame.as_bytes()).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| output.flush());
    }
}

/// The first job whole, the others in a line each.
fn picture(states: &[(u32, Followed)], rows: usize) -> String {
    let Some(((process_id, first), others)) = states.split_first() else { return String::new() };
    let mut text = format!("{}\n", title(*process_id, first));
    if !first.command.is_empty() {
        text.push_str(&format!("{}\n", fit_middle(&first.command, width())));
    }
    lost_events(&first.completeness).iter().for_each(|line| text.push_str(&format!("Missing: {line}\n")));
    let mut rest = String::new();
    for (process_id, state) in others.iter().take(OTHERS_SHOWN) {
        let (used, peak) = (bytes(used_bytes(state)), bytes(peak_bytes(state)));
        rest.push_str(&format!("{}; {used} in use, peak {peak}\n", title(*process_id, state)));
    }
    if let Some(more) = others.len().checked_sub(OTHERS_SHOWN).filter(|more| *more > 0) {
        rest.push_str(&format!("and {}\n", counted(more as u64, "other process")));
    }
    let taken = text.lines().count() + rest.lines().count() + 2;
    text.push('\n');
    text.push_str(&live(&first.picture, rows.saturating_sub(taken)));
    if !rest.is_empty() {
        text.push_str(&format!("\n{rest}"));
    }
    text
}

fn title(process_id: u32, state: &Followed) -> String {
    let name = state.place.title(process_id);
    let for_so_long = || format!("{} recorded, {}", seconds(state.picture.since_start_ns), events(state));
    match &state.condition {
        Condition::Opening => format!("{name}: reading what was recorded before ..."),
        Condition::Running => format!("{name}: running, {}", for_so_long()),
        Condition::Ended => format!("{name}: ended, {}", for_so_long()),
        Condition::CutOff => format!("{name}: killed or crashed, {}", for_so_long()),
        Condition::Unreadable(reason) => format!("{name}: {reason}"),
    }
}

fn events(state: &Followed) -> String {
    counted(state.picture.events, "event")
}

fn json((process_id, state): &(u32, Followed)) -> serde_json::Value {
    let condition = match &state.condition {
        Condition::Opening => "opening",
        Condition::Running => "running",
        Condition::Ended => "ended",
        Condition::CutOff => "cut off",
        Condition::Unreadable(_) => "unreadable",
    };
    serde_json::json!({
        "process_id": process_id,
        "rank": state.place.rank,
        "state": condition,
        "command": state.command,
        "missing": lost_events(&state.completeness),
        "memory": state.picture,
    })
}
