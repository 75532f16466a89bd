//! `session`: what is open, who was recorded, and how far it has been read.

use msmemscope_analysis::fleet::summary::PoolNumbers;
use msmemscope_event::{Device, Pool};
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use crate::entry::Entry;
use crate::live::FollowedJob;
use crate::model::Model;
use crate::session::Opened;
use crate::summarised::Summarised;

const VERSION: u32 = 1;

/// Before the paths are opened.
pub(super) fn not_opened() -> Value {
    json!({
        "version": VERSION,
        "tool": env!("CARGO_PKG_VERSION"),
        "origin_ns": "0",
        "complete": false,
        "fraction": 0.0,
        "state": "opening",
        "recordings": [],
    })
}

pub(super) fn answer(opened: &Opened) -> Value {
    let progress = opened.progress();
    let entries = &opened.entries;
    let recordings: Vec<Value> = entries.iter().enumerate().map(|(number, entry)| described(number, entry)).collect();
    let is_live = entries.iter().any(|entry| entry.job.as_ref().is_some_and(|job| !job.is_last));
    json!({
        "version": VERSION,
        "tool": env!("CARGO_PKG_VERSION"),
        "origin_ns": opened.origin_ns.to_string(),
        "complete": progress.is_complete,
        "fraction": progress.fraction,
        "live": is_live,
        "state": if progress.is_complete { "ready" } else { "reading" },
        "notice": opened.notice,
        "recordings": recordings,
    })
}

/// What is said of a recording; nothing of it changes any more when it is complete, but the job that goes on.
fn described(number: usize, entry: &Entry) -> Value {
    let mut description = match entry.is_complete() {
        true => entry.described.get_or_init(|| recording(number, entry)).clone(),
        false => recording(number, entry),
    };
    description["live"] = entry.job.as_ref().map_or(Value::Null, FollowedJob::describe);
    description
}

fn recording(number: usize, entry: &Entry) -> Value {
    let (state, fraction) = (entry.state(), entry.fraction());
    let identity = &entry.identity;
    let model = entry.model();
    let (first_ns, last_ns) = match model {
        Some(model) if model.first_ns > 0 => (model.first_ns, model.last_ns),
        _ => (identity.first_ns, identity.last_ns),
    };
    let shown = |time: u64| time.saturating_sub(entry.origin_ns);
    let summarised = entry.summarised.as_ref();
    let said = summarised.map_or(&[][..], |summarised| &summarised.losses);
    let missing = entry.findings().map_or(said, |findings| &findings.missing);
    let steps = model.map(|model| model.steps.len() as u64).or(summarised.map(|summarised| summarised.steps));
    // As the analyses count them; not every event has a row in the table.
    let counted = entry.findings().map(|findings| findings.summary.events).or(summarised.map(|told| told.events));
    let events = counted.or(model.map(|model| model.events.len() as u64));
    let blocks = |summarised: &Summarised| summarised.pools.iter().map(|pool| pool.allocations).sum();
    let active = model.and_then(Model::active_range);
    json!({
        "r": number,
        "origin_ns": entry.origin_ns.to_string(),
        "name": identity.name,
        "path": identity.path,
        "kind": if identity.is_dump { "dump" } else { "recording" },
        "process_id": identity.process_id,
        "rank": identity.rank,
        "world_size": identity.world_size,
        "host": identity.host,
        "command": identity.command,
        "t0": shown(first_ns),
        "t1": shown(last_ns.saturating_add(1)),
        "active_t0": active.map(|(first, _)| shown(first)),
        "active_t1": active.map(|(_, last)| shown(last)),
        "events": events,
        "blocks": model.map(|model| model.blocks.len() as u64).or(summarised.map(blocks)),
        "steps": steps,
        // Numbers of steps need not start at one, and every device may count its own.
        "first_step": model.and_then(|model| model.steps.iter().map(|step| step.number).min()),
        "last_step": model.and_then(|model| model.steps.iter().map(|step| step.number).max()),
        "state": state,
        "fraction": fraction,
        "error": entry.failure(),
        "missing": missing,
        "threads": model.map_or(Vec::new(), threads),
        "devices": match (model, summarised) {
            (Some(model), _) => devices(model, entry.origin_ns),
            (None, Some(summarised)) => summarised_devices(summarised, entry.origin_ns),
            (None, None) => rough_devices(entry),
        },
        "has": model.map_or(json!({}), has),
    })
}

fn threads(model: &Model) -> Vec<Value> {
    let mut counts = vec![0u64; model.threads.len()];
    model.events.thread.iter().for_each(|&thread| counts[thread as usize] += 1);
    let mut threads: Vec<(u32, u64)> = model.threads.iter().copied().zip(counts).collect();
    threads.sort_by_key(|&(_, count)| u64::MAX - count);
    threads.iter().take(200).map(|(thread, events)| json!({ "thread": thread, "events": events })).collect()
}

fn devices(model: &Model, origin_ns: u64) -> Vec<Value> {
    let mut blocks = vec![0u64; model.groups.len()];
    model.blocks.group.iter().for_each(|&group| blocks[group as usize] += 1);
    let tells_owners = tells_owners(model);
    let mut devices: Vec<Device> = model.groups.iter().map(|group| group.device).collect();
    devices.extend(model.cards.iter().map(|card| card.device));
    devices.sort_unstable();
    devices.dedup();
    let main = model.main_group();
    let pool = |group: usize| {
        json!({
            "pool": model.groups[group].pool.event_type(),
            "title": model.groups[group].pool.title(),
            "blocks": blocks[group],
            "peak_bytes": model.peaks[group].bytes,
            "peak_t": model.peaks[group].at.saturating_sub(origin_ns),
            "end_bytes": model.end_bytes[group],
            "reserved_peak_bytes": model.reserved[group].highest(),
            "is_main": main == Some(group as u16),
            "tells_owners": tells_owners[group],
        })
    };
    let describe = |device: &Device| {
        let mut groups: Vec<usize> =
            (0..model.groups.len()).filter(|&group| model.groups[group].device == *device).collect();
        groups.sort_by_key(|&group| model.groups[group].pool);
        let card = model.cards.iter().find(|card| card.device == *device);
        json!({
            "device": device.to_string(),
            "card_total_bytes": card.map(|card| card.total_bytes),
            "card_peak_bytes": card.map(|card| card.used.highest()),
            "pools": groups.into_iter().map(pool).collect::<Vec<_>>(),
        })
    };
    devices.iter().map(describe).collect()
}

/// Devices and pools as the summary tells them.
fn summarised_devices(summarised: &Summarised, origin_ns: u64) -> Vec<Value> {
    let used: Vec<(&PoolNumbers, Pool)> = summarised
        .pools
        .iter()
        .filter_map(|numbers| Some((numbers, *Pool::ALL.iter().find(|pool| pool.event_type() == numbers.pool)?)))
        .collect();
    let weight = |(numbers, pool): &&(&PoolNumbers, Pool)| (*pool != Pool::Hal, numbers.peak_bytes);
    let main = used.iter().max_by_key(weight).map(|(numbers, _)| (&numbers.device, &numbers.pool));
    let pool = |(numbers, pool): &(&PoolNumbers, Pool)| {
        json!({
            "pool": numbers.pool,
            "title": pool.title(),
            "blocks": numbers.allocations,
            "peak_bytes": numbers.peak_bytes,
            "peak_t": numbers.peak_ns.saturating_sub(origin_ns),
            "end_bytes": numbers.end_bytes,
            "reserved_peak_bytes": numbers.reserved_bytes,
            "is_main": main == Some((&numbers.device, &numbers.pool)),
        })
    };
    let mut devices: Vec<&String> = used.iter().map(|(numbers, _)| &numbers.device).collect();
    devices.dedup();
    let of_device = |device: &String| used.iter().filter(|(numbers, _)| numbers.device == *device).map(pool).collect();
    let describe = |device: &&String| {
        let pools: Vec<Value> = of_device(device);
        json!({ "device": device, "card_total_bytes": null, "card_peak_bytes": null, "pools": pools })
    };
    devices.iter().map(describe).collect()
}

/// Devices and pools as far as they have been seen.
fn rough_devices(entry: &Entry) -> Vec<Value> {
    let coarse = crate::entry::locked(&entry.coarse);
    let mut devices: Vec<Device> = coarse.0.groups.iter().map(|(group, _)| group.device).collect();
    devices.sort_unstable();
    devices.dedup();
    let describe = |device: &Device| {
        let pools: Vec<Value> = coarse
            .0
            .groups
            .iter()
            .filter(|(group, _)| group.device == *device)
            .map(|(group, _)| json!({ "pool": group.pool.event_type(), "title": group.pool.title() }))
            .collect();
        json!({ "device": device.to_string(), "pools": pools })
    };
    devices.iter().map(describe).collect()
}

/// Whether the blocks of each pool are told apart by their owners. The name of a pool, or nobody's, tells nothing apart.
fn tells_owners(model: &Model) -> Vec<bool> {
    let mut owners = vec![FxHashSet::default(); model.groups.len()];
    let blocks = &model.blocks;
    blocks.group.iter().zip(&blocks.owner).for_each(|(&group, &owner)| {
        owners[group as usize].insert(owner);
    });
    let is_told = |owner: &u32| model.owners[*owner as usize].contains('@');
    owners.iter().map(|owners| owners.len() > 1 && owners.iter().any(is_told)).collect()
}

fn has(model: &Model) -> Value {
    let stacks = &model.stacks;
    let has_frame = |is_python: bool| stacks.frames.iter().any(|frame| frame.is_python == is_python);
    let has_instants =
        |track: &str| model.instants.iter().any(|instants| instants.track == track && !instants.at.is_empty());
    let has_watch = model.events.code.contains(&(crate::model::events::EventCode::Watch as u8));
    json!({
        "steps": !model.steps.is_empty(),
        "ranges": !model.ranges.is_empty(),
        "operators": !model.operators.is_empty(),
        "kernels": !model.kernels.is_empty() || has_instants("kernels"),
        "python_calls": !model.calls.is_empty(),
        "watch": has_watch,
        "native_stacks": has_frame(false),
        "python_stacks": has_frame(true),
        "accesses": !model.blocks.accesses.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::session::Session;
    use crate::{ViewSettings, answers};

    /// Reading goes on while an answer is put together.
    #[test]
    fn what_calls_itself_complete_is() {
        let directory = tempfile::tempdir().expect("temporary directory");
        made_recordings::training(directory.path(), 200, 7);
        for _ in 0..200 {
            let paths = vec![directory.path().to_owned()];
            let session = Session::open(ViewSettings { paths, missing: |_, _| Vec::new(), trusts_summaries: true });
            session.wait_until_opened(Duration::from_secs(60)).expect("a recording");
            let opened = session.opened().expect("a recording");
            let ranks = answers::ranks::Ranks::default();
            let mut is_complete = false;
            while !is_complete {
                let (session, ranks) = (super::answer(&opened), ranks.answer(&opened));
                let recording = &session["recordings"][0];
                is_complete = session["complete"] == true;
                assert!(!is_complete || recording["state"] == "ready", "{session}");
                assert!(recording["state"] == "reading" || recording["steps"].is_u64(), "{session}");
                assert!(ranks["complete"] == false || ranks["rows"][0].is_object(), "{ranks}");
            }
        }
    }
}
