//! `msmemscope info`: what recordings contain and how complete they are.

use std::fmt::Write as _;
use std::path::Path;

use msmemscope_analysis::fluctuation::is_framework_pool;
use msmemscope_analysis::unseen::unseen_pools;
use msmemscope_config::Invocation;
use msmemscope_event::{Device, ProcessInfoKey, visible};
use msmemscope_import::Recording;
use msmemscope_report::summary::{events, left_out_as_asked, missing, pool_table};
use msmemscope_report::units::{bytes, count, seconds};
use msmemscope_results::recordings::{RecordingDirectory, recordings_named};
use msmemscope_timeline::{FactSource, PoolSummary, Summary, TimelineEvent, TimelineSettings, detect_step_source};
use msmemscope_trace::{Completeness, Damage, Trace};
use serde_json::{Value, json};

use crate::analyzing::{open_all, print_json};
use crate::terminal::Terminal;
use crate::{Outcome, print_text};

/// Shows every recording in some directories, and what files of rows or snapshots contain.
pub fn show(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let mut text = String::new();
    let mut values = Vec::new();
    for operand in &invocation.operands {
        let path = Path::new(operand);
        if path.is_file() {
            let imported = open_all(&[path.to_owned()], terminal)?;
            for recording in &imported.recordings {
                let summary = summary_of(recording, false);
                text.push_str(&describe_import(path, &summary));
                text.push('\n');
                values.push(data(path, recording, &summary, Vec::new()));
            }
            continue;
        }
        for directory in recordings_named(path, terminal.program_name())? {
            let trace_path = directory.trace_path();
            let trace = Trace::open(&trace_path).map_err(|error| format!("{}: {error}", trace_path.display()))?;
            let completeness = trace.completeness().clone();
            let recording = Recording::Trace { trace: Box::new(trace), path: trace_path };
            let summary = summary_of(&recording, !directory.is_running());
            text.push_str(&describe(&directory, &recording, &completeness, &summary));
            text.push('\n');
            values.push(data(&directory.path, &recording, &summary, missing(&completeness, &summary)));
        }
    }
    match invocation.has_flag("json") {
        true => print_json(&json!({ "recordings": values })),
        false => print_text(&text),
    }
}

fn summary_of(recording: &Recording, process_ended: bool) -> Summary {
    let step_source = detect_step_source(recording);
    let settings = TimelineSettings { process_ended, step_source, ..TimelineSettings::default() };
    msmemscope_timeline::run(recording, &settings, &mut |_: TimelineEvent| {}, &mut |_, _| {})
}

/// The numbers, for programs: what pools had at the end, and per device those of the pool that its job allocates from.
fn data(path: &Path, recording: &Recording, summary: &Summary, missing: Vec<String>) -> Value {
    let pool = |pool: &PoolSummary| {
        json!({
            "device": pool.device.to_string(),
            "pool": pool.pool.event_type(),
            "reserved_bytes": pool.end_total_bytes,
            "used_bytes": pool.end_used_bytes,
            "blocks": pool.live_blocks(),
            "peak_bytes": pool.peak_used_bytes,
        })
    };
    let mut devices: Vec<Device> = summary.pools.iter().map(|pool| pool.device).collect();
    devices.sort_unstable();
    devices.dedup();
    let main_pool = |device: Device| {
        let pools = summary.pools.iter().filter(|pool| pool.device == device);
        pools.max_by_key(|pool| (is_framework_pool(pool.pool), pool.peak_used_bytes))
    };
    json!({
        "path": path.to_string_lossy(),
        "process_id": recording.process_id(),
        "command": information(recording, ProcessInfoKey::CommandLine),
        "events": events(summary),
        "steps": summary.steps,
        "missing": missing,
        "devices": devices.into_iter().filter_map(main_pool).map(pool).collect::<Vec<_>>(),
        "pools": summary.pools.iter().map(pool).collect::<Vec<_>>(),
    })
}

fn information(recording: &Recording, key: ProcessInfoKey) -> String {
    let bytes = recording.definitions().process_information(key).unwrap_or_default();
    String::from_utf8_lossy(bytes).replace('\0', " ").trim().to_owned()
}

/// What rows or a snapshot contain; nobody knows what they lack.
fn describe_import(path: &Path, summary: &Summary) -> String {
    let mut text = format!("{}\n", visible(&path.to_string_lossy()));
    let duration_ns = summary.last_timestamp_ns.saturating_sub(summary.first_timestamp_ns);
    let _ = writeln!(text, "  {:<13} {} in {}", "Events", count(events(summary)), seconds(duration_ns));
    match summary.pools.is_empty() {
        true => text.push_str("  No memory events.\n"),
        false => {
            let _ = writeln!(text, "{}", pool_table(&summary.pools));
        }
    }
    text
}

fn describe(
    directory: &RecordingDirectory,
    recording: &Recording,
    completeness: &Completeness,
    summary: &Summary,
) -> String {
    let mut text = format!("{}\n", visible(&directory.path.to_string_lossy()));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<13} {}", visible(&value));
    };
    line("Command", information(recording, ProcessInfoKey::CommandLine));
    let identity = &directory.identity;
    line("Process", format!("{} (parent {})", identity.process_id, identity.parent_process_id));
    let place = recording.definitions().place();
    if let Some(rank) = place.rank {
        line("Rank", place.world_size.map_or(rank.to_string(), |size| format!("{rank} of {size}")));
    }
    line("State", state(directory, completeness));
    let duration_ns = summary.last_timestamp_ns.saturating_sub(summary.first_timestamp_ns);
    line(
        "Events",
        format!("{} in {}{}", count(events(summary)), seconds(duration_ns), rate(events(summary), duration_ns)),
    );
    line("Steps", if summary.steps == 0 { "none".to_owned() } else { count(summary.steps) });
    line("Trace", size(completeness));
    if completeness.records_left_out > 0 {
        let left_out = count(completeness.records_left_out);
        line(
            "Room made",
            match completeness.complete_since_ns {
                Some(_) => format!("{left_out} records of what came and went before left out"),
                None => format!("{left_out} records of blocks that came and went while nothing was recorded left out"),
            },
        );
    }
    line("Results", if directory.is_finished() { "written".to_owned() } else { "not written yet".to_owned() });
    for item in completeness_lines(completeness, summary) {
        line("Missing", item);
    }
    for item in left_out_as_asked(completeness) {
        line("As asked", item);
    }
    for unseen in unseen_pools(recording, summary) {
        line("Not seen", unseen.describe());
    }
    if summary.pools.is_empty() {
        text.push_str("  No memory events.\n");
    } else {
        let _ = writeln!(text, "{}", pool_table(&summary.pools));
    }
    text
}

fn state(recording: &RecordingDirectory, completeness: &Completeness) -> String {
    if recording.is_running() {
        "still running".to_owned()
    } else if completeness.is_moment {
        "a copy of a moment; the process went on".to_owned()
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
