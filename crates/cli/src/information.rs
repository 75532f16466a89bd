//! `msmemscope info`: what recordings contain and how complete they are.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use msmemscope_analysis::unseen::unseen_pools;
use msmemscope_event::{ProcessInfoKey, visible};
use msmemscope_import::Recording;
use msmemscope_timeline::{Summary, TimelineEvent, TimelineSettings};
use msmemscope_trace::{Completeness, Damage, Trace};

use crate::recordings::{RecordingDirectory, recordings_named};
use crate::summary::{events, missing, pool_table};
use crate::units::{bytes, count, seconds};
use crate::{Outcome, print_text};

/// Shows every recording in some directories.
pub fn show(directories: &[OsString], program: &str) -> Outcome {
    let mut text = String::new();
    for directory in directories {
        for recording in recordings_named(Path::new(directory), program)? {
            text.push_str(&describe(&recording)?);
            text.push('\n');
        }
    }
    print_text(&text)
}

fn describe(recording: &RecordingDirectory) -> Result<String, String> {
    let path = recording.trace_path();
    let trace = Trace::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let process = Recording::Trace { trace: Box::new(trace), path };
    let Recording::Trace { trace, .. } = &process else { unreachable!("made above") };
    let settings = TimelineSettings { process_ended: !recording.is_running(), ..TimelineSettings::default() };
    let summary = msmemscope_timeline::run(&process, &settings, &mut |_: TimelineEvent| {}, &mut |_, _| {});
    let completeness = trace.completeness();
    let mut text = format!("{}\n", visible(&recording.path.to_string_lossy()));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<13} {}", visible(&value));
    };
    let information = |key| {
        let bytes = trace.definitions().process_information(key).unwrap_or_default();
        String::from_utf8_lossy(bytes).replace('\0', " ").trim().to_owned()
    };
    line("Command", information(ProcessInfoKey::CommandLine));
    line("Process", format!("{} (parent {})", trace.process_id(), trace.parent_process_id()));
    line("State", state(recording, completeness));
    let duration_ns = summary.last_timestamp_ns.saturating_sub(summary.first_timestamp_ns);
    line(
        "Events",
        format!("{} in {}{}", count(events(&summary)), seconds(duration_ns), rate(events(&summary), duration_ns)),
    );
    line("Steps", if summary.steps == 0 { "none".to_owned() } else { count(summary.steps) });
    line("Trace", size(completeness));
    if completeness.records_left_out > 0 {
        let left_out = count(completeness.records_left_out);
        line(
            "Room made",
            format!("{left_out} records of blocks that came and went while nothing was recorded left out"),
        );
    }
    line("Results", if recording.is_finished() { "written".to_owned() } else { "not written yet".to_owned() });
    for item in completeness_lines(completeness, &summary) {
        line("Missing", item);
    }
    for unseen in unseen_pools(&process, &summary) {
        line("Not seen", unseen.describe());
    }
    if summary.pools.is_empty() {
        text.push_str("  No memory events.\n");
    } else {
        let _ = writeln!(text, "{}", pool_table(&summary.pools));
    }
    Ok(text)
}

fn state(recording: &RecordingDirectory, completeness: &Completeness) -> String {
    if recording.is_running() {
        "still running".to_owned()
    } else if completeness.closed {
        "ended".to_owned()
    } else {
        let events =
            if completeness.buffered { "the last events of each thread are missing" } else { "its events are here" };
        format!("ended without saying so (killed, crashed or _exit); {events}")
    }
}

fn rate(events: u64, duration_ns: u64) -> String {
    if duration_ns < 1_000_000 {
        return String::new();
    }
    let per_second = events as f64 / (duration_ns as f64 / 1e9);
    format!(", {} per second", count(per_second as u64))
}

fn size(completeness: &Completeness) -> String {
    let per_record = completeness.record_bytes as f64 / completeness.records.max(1) as f64;
    format!(
        "{} on disk, {} in {} records ({per_record:.1} bytes each)",
        bytes(completeness.file_bytes),
        bytes(completeness.record_bytes),
        count(completeness.records)
    )
}

/// The losses, and the first damaged places one by one.
fn completeness_lines(completeness: &Completeness, summary: &Summary) -> Vec<String> {
    const SHOWN: usize = 10;
    let mut lines = missing(completeness, summary);
    lines.extend(completeness.damage.iter().take(SHOWN).map(describe_damage));
    if completeness.damaged_places > SHOWN as u64 {
        lines.push(format!("... and {} more places", count(completeness.damaged_places - SHOWN as u64)));
    }
    lines
}

fn describe_damage(damage: &Damage) -> String {
    match damage {
        Damage::ChunkCut { chunk, missing_bytes } => {
            format!("the file ends inside chunk {chunk}: {missing_bytes} bytes of records are gone")
        }
        Damage::ChunkMissing { chunk } => format!("the file ends before chunk {chunk}"),
        Damage::ChunkHeaderDamaged { chunk } => format!("chunk {chunk} has a damaged header"),
        Damage::RecordDamaged { chunk, offset } => format!("a record at {offset} of chunk {chunk} is damaged"),
        Damage::RecordTorn { chunk, offset, lost_bytes } => {
            format!("chunk {chunk} cannot be read from {offset} on: {lost_bytes} bytes")
        }
        Damage::ChecksumMismatch { chunk } => format!("the bytes of chunk {chunk} changed after they were written"),
    }
}
