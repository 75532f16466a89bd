//! `replay`: what PyTorch's pool would have done under other settings and on other cards.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use msmemscope_analysis::names::{Names, RecordingNames, user_frame};
use msmemscope_config::{Invocation, size_bytes};
use msmemscope_event::{Device, Pool};
use msmemscope_import::Recording;
use msmemscope_replay::forecast::{BatchPoint, batch_fit};
use msmemscope_replay::study::study;
use msmemscope_replay::{AllocatorSettings, Collector, Conditions, Requests, Study, Trial, Wanted, replay_watched};
use msmemscope_report::layout::near;
use msmemscope_report::replay as text;
use msmemscope_report::units::counted;
use msmemscope_timeline::{EventKind, FactSource, TimelineEvent, TimelineSettings, detect_step_source};
use serde_json::{Value, json};

use crate::analyzing::{named_or_latest, open_all, print_json};
use crate::progress::Bar;
use crate::result_file::write_result;
use crate::terminal::Terminal;
use crate::{Outcome, print_text};

const SMALLEST_CARD_BYTES: u64 = 1 << 20;

/// `replay <path>...`
pub fn replay_paths(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let wanted = wanted(invocation)?;
    let batches = wanted_batches(invocation)?;
    let paths = named_or_latest(&invocation.operands, terminal)?;
    if let Some(batches) = &batches
        && batches.len() != paths.len()
    {
        let (sizes, recordings) = (counted(batches.len() as u64, "size"), counted(paths.len() as u64, "recording"));
        return Err(format!("--batch takes one size for each recording, not {sizes} for {recordings}"));
    }
    let mut studies = Vec::new();
    let mut points = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let imported = open_all(std::slice::from_ref(path), terminal)?;
        for recording in &imported.recordings {
            for requests in collected(recording)? {
                let wanted = Wanted { settings: changed(&requests, invocation)?, ..wanted.clone() };
                if let Some(file) = invocation.flag_value("curve") {
                    write_curve(&curve_file(file, studies.len()), &requests, &wanted)?;
                }
                let mut bar = Bar::new("Replaying");
                let events = requests.len() as u64;
                let mut progress = |done: u64, total: u64| bar.show(done * events, total * events);
                let study = study(recording.process_id(), requests, &wanted, &mut progress);
                if let Some(batches) = &batches {
                    if study.ran_out {
                        let path = path.display();
                        return Err(format!(
                            "{path} ran out of memory, so what a batch of {} needs is not known",
                            batches[index]
                        ));
                    }
                    points.push(batch_point(batches[index], &study));
                }
                let lines = failure_lines(recording, &study);
                studies.push((study, lines));
            }
        }
    }
    if studies.is_empty() {
        return Err("nothing was asked of PyTorch's pool in this recording, so there is nothing to replay".to_owned());
    }
    let batch = match &batches {
        Some(_) => {
            let card_bytes = studies.iter().find_map(|(study, _)| study.card_bytes);
            let card_bytes = card_bytes.ok_or("--batch needs to know the card: say --card=64GiB")?;
            Some((batch_fit(&points, card_bytes)?, card_bytes))
        }
        None => None,
    };
    if invocation.has_flag("json") {
        let cards: Vec<Value> = studies.iter().map(as_json).collect();
        return print_json(&json!({ "computed": true, "cards": cards, "batch": batch.map(|(fit, _)| fit) }));
    }
    let mut parts: Vec<String> = Vec::new();
    if let Some((fit, card_bytes)) = batch {
        parts.push(text::batch(&points, &fit, card_bytes));
    }
    for (study, lines) in &studies {
        let line_of = |trial: &Trial| {
            lines.iter().find(|(settings, _)| *settings == trial.settings).map(|(_, line)| near(line).to_owned())
        };
        parts.push(text::replay(study, &line_of));
    }
    print_text(&parts.join("\n"))
}

fn as_json((study, lines): &(Study, Vec<(String, String)>)) -> Value {
    let mut value = json!(study);
    value["failure_lines"] =
        lines.iter().map(|(settings, line)| json!({ "settings": settings, "line": line })).collect();
    value
}

fn wanted(invocation: &Invocation) -> Result<Wanted, String> {
    let card_bytes = match invocation.flag_value("card") {
        Some(text) => {
            let shown = text.to_string_lossy();
            // No card is smaller than a segment: whoever says 32 means gibibytes.
            let size = size_bytes(&shown).filter(|&bytes| bytes >= SMALLEST_CARD_BYTES);
            Some(size.ok_or_else(|| format!("--card must be a size such as 32GiB, not '{shown}'"))?)
        }
        None => None,
    };
    Ok(Wanted { settings: None, card_bytes, sweep: invocation.has_flag("sweep") })
}

/// The settings of `--set`: those of the recording with some of them changed.
fn changed(requests: &Requests, invocation: &Invocation) -> Result<Option<AllocatorSettings>, String> {
    let mut settings = requests.settings.clone();
    let mut is_changed = false;
    for text in invocation.flag_values("set") {
        let in_words = text.to_string_lossy();
        if in_words.trim().is_empty() {
            return Err("--set needs a setting such as expandable_segments=True".to_owned());
        }
        settings = settings.changed_by(&in_words).map_err(|problem| format!("--set: {problem}"))?;
        is_changed = true;
    }
    Ok(is_changed.then_some(settings))
}

fn wanted_batches(invocation: &Invocation) -> Result<Option<Vec<u64>>, String> {
    let Some(text) = invocation.flag_value("batch") else { return Ok(None) };
    let shown = text.to_string_lossy();
    let sizes: Result<Vec<u64>, _> = shown.split(',').map(|size| size.trim().parse::<u64>()).collect();
    match sizes {
        Ok(sizes) if sizes.len() >= 2 && sizes.iter().all(|&size| size > 0) => Ok(Some(sizes)),
        _ => Err(format!("--batch takes the batch sizes of the recordings, such as 8,16, not '{shown}'")),
    }
}

/// The requests of all cards of a recording.
fn collected(recording: &Recording) -> Result<Vec<Requests>, String> {
    let stated = RecordingNames::new(recording).allocator_settings();
    let settings_are_assumed = stated.is_none() && matches!(recording, Recording::Process(_));
    let stated = stated.unwrap_or_default();
    let mut collector = Collector::of_job(&stated)
        .map_err(|problem| format!("the settings of the recorded job cannot be replayed: {problem}"))?;
    let mut bar = Bar::new("Reading");
    msmemscope_timeline::run(recording, &timeline_settings(recording), &mut collector, &mut |done, total| {
        bar.show(done, total);
    });
    let requests = collector.finish().into_iter();
    Ok(requests.map(|requests| requests.with_settings_assumed(settings_are_assumed)).collect())
}

fn timeline_settings(recording: &Recording) -> TimelineSettings {
    TimelineSettings { process_ended: false, step_source: detect_step_source(recording), ..TimelineSettings::default() }
}

fn batch_point(batch: u64, study: &Study) -> BatchPoint {
    let recorded = &study.recorded;
    BatchPoint {
        batch,
        card_bytes: recorded.peak_reserved_bytes + recorded.peak_outside_bytes,
        used_bytes: recorded.peak_used_bytes + recorded.peak_outside_bytes,
    }
}

/// The lines of code behind the requests that could not be met, by settings.
fn failure_lines(recording: &Recording, study: &Study) -> Vec<(String, String)> {
    let mut wanted: Vec<(u64, &str)> = study
        .trials
        .iter()
        .filter_map(|trial| Some((trial.outcome.failure?.allocations_before, trial.settings.as_str())))
        .collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    wanted.sort_unstable();
    let names = RecordingNames::new(recording);
    let mut lines = Vec::new();
    let mut before = 0;
    let mut next = 0;
    let device: Device = study.device;
    let mut look = |event: TimelineEvent| {
        let is_ours = matches!(&event.kind, EventKind::Malloc(block) if block.properties.pool == Pool::PytorchCaching);
        if !is_ours || event.device != device {
            return;
        }
        while next < wanted.len() && wanted[next].0 == before {
            let frames = names.python_frames(event.python_stack);
            let native = || names.native_frames(event.native_stack, event.timestamp_ns);
            let frame = user_frame(&frames).cloned().or_else(|| native().into_iter().next());
            lines.extend(frame.map(|frame| (wanted[next].1.to_owned(), frame.describe())));
            next += 1;
        }
        before += 1;
    };
    msmemscope_timeline::run(recording, &timeline_settings(recording), &mut look, &mut |_, _| {});
    lines
}

/// The file for the curve of a card: the one that was named for the first, numbered ones beside it for the others.
fn curve_file(named: &OsStr, cards_before: usize) -> PathBuf {
    let named = Path::new(named);
    if cards_before == 0 {
        return named.to_owned();
    }
    let mut name = named.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{}", cards_before + 1));
    if let Some(extension) = named.extension() {
        name.push(".");
        name.push(extension);
    }
    named.with_file_name(name)
}

/// Writes what is in use and reserved after each event, as recorded and as replayed.
fn write_curve(file: &Path, requests: &Requests, wanted: &Wanted) -> Result<(), String> {
    let conditions = Conditions {
        settings: wanted.settings.clone().unwrap_or_else(|| requests.settings.clone()),
        card_bytes: wanted.card_bytes.or(requests.recorded.card_bytes),
        ..Conditions::default()
    };
    let mut replayed = Vec::new();
    replay_watched(requests, &conditions, |used_bytes, reserved_bytes| replayed.push((used_bytes, reserved_bytes)));
    write_result(Some(file), "", |out| {
        writeln!(out, "event,used_bytes,reserved_bytes,recorded_reserved_bytes")?;
        for (event, ((used, reserved), recorded)) in replayed.iter().zip(requests.recorded_curve()).enumerate() {
            writeln!(out, "{event},{used},{reserved},{recorded}")?;
        }
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_card_has_a_curve_of_its_own() {
        let file = |named: &str, before| curve_file(OsStr::new(named), before);
        assert_eq!(file("out/curve.csv", 0), Path::new("out/curve.csv"));
        assert_eq!(file("out/curve.csv", 1), Path::new("out/curve-2.csv"));
        assert_eq!(file("curve", 2), Path::new("curve-3"));
    }
}
