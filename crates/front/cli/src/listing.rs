//! `msmemscope list`: the recordings in directories, the latest first.

use std::path::PathBuf;

use msmemscope_config::Invocation;
use msmemscope_output::files::local_timestamp;
use msmemscope_report::layout::{fit_middle, near_path, width};
use msmemscope_report::shell::quoted_path;
use msmemscope_report::table::{Align, Table};
use msmemscope_report::units::{bytes, counted, number_ranges};
use msmemscope_results::recordings::{RecordingDirectory, recordings_in, recordings_named};
use msmemscope_results::runs::{ProcessEntry, Run, State, runs};

use crate::analyzing::{print_json, usual_output};
use crate::terminal::Terminal;
use crate::{Outcome, print_text};

/// `list [<dir>...]`
pub fn list_directories(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let directories: Vec<PathBuf> = match &invocation.operands[..] {
        [] => vec![usual_output(terminal)?],
        operands => operands.iter().map(PathBuf::from).collect(),
    };
    if let ([], [usual]) = (&invocation.operands[..], &directories[..])
        && recordings_in(usual).unwrap_or_default().is_empty()
    {
        if invocation.has_flag("json") {
            return print_json(&serde_json::json!({ "recordings": [] }));
        }
        return print_text(&format!("No recordings in {}.\n", quoted_path(near_path(usual))));
    }
    let found = directories.iter().map(|directory| recordings_named(directory, terminal.program_name()));
    let recordings: Vec<RecordingDirectory> = found.collect::<Result<Vec<_>, _>>()?.concat();
    let runs = runs(recordings);
    if invocation.has_flag("json") {
        return print_json(&serde_json::json!({ "recordings": runs.iter().map(json).collect::<Vec<_>>() }));
    }
    let mut text = format!("{}\n{}\n", table(&runs), total(&runs));
    if runs.iter().any(|run| run.state() == State::NoResults) {
        let places: Vec<String> = directories.iter().map(|directory| quoted_path(near_path(directory))).collect();
        let program = terminal.program_name();
        text.push_str(&format!("To write missing results: {program} recover {}\n", places.join(" ")));
    }
    print_text(&text)
}

/// A table of recordings: two lines for each launch, the second one with its command.
pub fn table(runs: &[Run]) -> String {
    let columns =
        [("name", Align::Left), ("started", Align::Minor), ("on disk", Align::Right), ("state", Align::Minor)];
    let mut table = Table::new(&columns);
    for run in runs {
        let started = readable_time(run.start_ns());
        table.row([name(run.first()), started, bytes(run.disk_bytes()), run.state().describe().to_owned()]);
    }
    let rows = table.render();
    let mut lines = rows.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, run) in lines.zip(runs) {
        text.push_str(&format!("{line}\n    {}\n", fit_middle(&command(run), width() - 4)));
    }
    text
}

/// How many recordings, and how large they are.
pub fn total(runs: &[Run]) -> String {
    let processes: usize = runs.iter().map(|run| run.processes.len()).sum();
    let of_processes =
        if processes > runs.len() { format!(" of {}", counted(processes as u64, "process")) } else { String::new() };
    let disk_bytes: u64 = runs.iter().map(Run::disk_bytes).sum();
    format!("{}{of_processes}, {} on disk", counted(runs.len() as u64, "recording"), bytes(disk_bytes))
}

fn name(process: &ProcessEntry) -> String {
    let path = &process.recording.path;
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// What was recorded, and how many processes of it.
fn command(run: &Run) -> String {
    let command = match run.first().command.as_str() {
        "" => "(command not recorded)",
        command => command,
    };
    let ranks = run.ranks();
    match (run.processes.len(), ranks.len()) {
        (1, 0) => command.to_owned(),
        (1, _) => format!("rank {}: {command}", ranks[0]),
        (count, 0) => format!("{}: {command}", counted(count as u64, "process")),
        (count, known) if count == known => {
            format!("{}, ranks {}: {command}", counted(count as u64, "process"), number_ranges(&ranks))
        }
        (count, _) => {
            format!("{}, among them ranks {}: {command}", counted(count as u64, "process"), number_ranges(&ranks))
        }
    }
}

/// A moment in local time, to the minute.
fn readable_time(wall_ns: u64) -> String {
    let digits = local_timestamp((wall_ns / 1_000_000_000) as i64);
    let part = |range: std::ops::Range<usize>| digits.get(range).unwrap_or("?");
    format!("{}-{}-{} {}:{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..12))
}

/// A recording as an object.
pub fn json(run: &Run) -> serde_json::Value {
    let process = |process: &ProcessEntry| {
        serde_json::json!({
            "directory": process.recording.path.to_string_lossy(),
            "process_id": process.recording.identity.process_id,
            "rank": process.place.rank,
            "command": process.command,
            "start_ns": process.start_ns,
            "disk_bytes": process.disk_bytes,
            "state": process.state.describe(),
        })
    };
    serde_json::json!({
        "name": name(run.first()),
        "command": run.first().command,
        "start_ns": run.start_ns(),
        "disk_bytes": run.disk_bytes(),
        "state": run.state().describe(),
        "processes": run.processes.iter().map(process).collect::<Vec<_>>(),
    })
}
