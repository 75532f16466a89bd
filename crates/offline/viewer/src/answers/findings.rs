//! `findings`: what the analyses say, the worst first. What several ranks leak at the same lines is said once.

use msmemscope_event::{Place, Pool};
use msmemscope_report::ranks::speakers;
use serde_json::{Map, Value, json};

use crate::entry::{Entry, Progress};
use crate::findings::{Finding, LEAK, frame_place};
use crate::server::query::Query;
use crate::session::Opened;

use super::{Answer, entry};

pub(super) fn answer(opened: &Opened, query: &Query) -> Answer {
    let chosen: Vec<(usize, &Entry)> = match query.number("r")? {
        None => opened.entries.iter().map(|entry| &**entry).enumerate().filter(|(_, entry)| !entry.rests()).collect(),
        Some(number) => vec![(number as usize, entry(opened, query)?)],
    };
    let progress = Progress::of(chosen.iter().map(|(_, entry)| *entry));
    let mut found: Vec<(usize, &Entry, &Finding)> = chosen
        .iter()
        .flat_map(|(number, entry)| {
            let list = entry.findings().map_or(&[][..], |findings| &findings.list);
            list.iter().map(move |finding| (*number, *entry, finding))
        })
        .collect();
    let told_by = told_by(&chosen);
    let speaker = |number: usize| chosen.iter().position(|(other, _)| *other == number).map(|place| told_by[place]);
    found.retain(|(number, _, finding)| finding.kind != LEAK || speaker(*number) == Some(*number));
    let ranks = |number: usize, finding: &Finding| -> Vec<u32> {
        let members = chosen.iter().zip(&told_by).filter(|(_, speaker)| **speaker == number && finding.kind == LEAK);
        let ranks: Vec<u32> = members.filter_map(|((_, entry), _)| entry.identity.rank).collect();
        if ranks.len() > 1 { ranks } else { Vec::new() }
    };
    found.sort_by_key(|(_, _, finding)| finding.severity);
    Ok(json!({
        "complete": progress.is_complete,
        "fraction": progress.fraction,
        "headlines": chosen
            .iter()
            .zip(&told_by)
            .filter_map(|((number, entry), speaker)| headline(*number, entry, *speaker))
            .collect::<Vec<_>>(),
        "findings": found
            .iter()
            .map(|(number, entry, finding)| shown(*number, entry, finding, &ranks(*number, finding)))
            .collect::<Vec<_>>(),
    }))
}

/// For each recording the number of the one that tells its leaks: itself, or the first rank with the same.
fn told_by(chosen: &[(usize, &Entry)]) -> Vec<usize> {
    let keys: Vec<Vec<String>> = chosen.iter().map(|(_, entry)| leak_keys(entry)).collect();
    let place = |entry: &Entry| Place { rank: entry.identity.rank, local_rank: None, world_size: None };
    let places: Vec<(Place, &[String])> =
        chosen.iter().zip(&keys).map(|((_, entry), keys)| (place(entry), &keys[..])).collect();
    speakers(&places).into_iter().map(|speaker| chosen[speaker].0).collect()
}

/// Pools and lines of leaks; none if a leak has no line.
fn leak_keys(entry: &Entry) -> Vec<String> {
    let leaks = entry.findings().map_or(&[][..], |findings| &findings.list).iter().filter(|it| it.kind == LEAK);
    let key = |finding: &Finding| {
        let pool = finding.pool.map_or("", Pool::event_type);
        finding.line.as_ref().map(|line| format!("{pool} {line}"))
    };
    let keys: Option<Vec<String>> = leaks.map(key).collect();
    let mut keys = keys.unwrap_or_default();
    keys.sort();
    keys.dedup();
    keys
}

/// The answer in one to three sentences; `same_as` says that another rank leaks at the same lines.
fn headline(number: usize, entry: &Entry, speaker: usize) -> Option<Value> {
    let same_as = (speaker != number).then_some(speaker);
    Some(json!({ "r": number, "sentences": entry.findings()?.headline, "same_as": same_as }))
}

fn shown(number: usize, entry: &Entry, finding: &Finding, ranks: &[u32]) -> Value {
    let at = finding.at.map(|at| at.saturating_sub(entry.origin_ns));
    let device = finding.device.map(|device| device.to_string());
    let pool = finding.pool.map(Pool::event_type);
    let site = site(entry, finding);
    let [file, line, function] = place(entry, finding, site);
    let mut link = Map::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            link.insert(name.to_owned(), value);
        }
    };
    set("view", json!(finding.view));
    set("r", json!(number));
    set("kind", json!(finding.view_kind));
    set("device", json!(device));
    set("pool", json!(pool));
    set("t", json!(at));
    set("site", json!(site.filter(|_| finding.is_of_one_line)));
    match finding.kind {
        "inefficient" => set("inefficient", json!(1)),
        "possible_leak" => set("alive", json!("end")),
        _ => {}
    }
    if finding.view == "table" {
        set("table", json!("blocks"));
    }
    json!({
        "r": number,
        "ranks": ranks,
        "kind": finding.kind,
        "severity": finding.severity.word(),
        "sentence": finding.sentence,
        "bytes": finding.bytes,
        "count": finding.count,
        "figures": finding.figures,
        "file": file,
        "line": line,
        "function": function,
        "device": device,
        "pool": pool,
        "t": at,
        "held_by": finding.held_by,
        "details": finding.details,
        "advice": finding.advice,
        "verdict": finding.verdict,
        "link": link,
    })
}

/// The frame that a finding names; where only the line is known, the frame of that line.
fn place(entry: &Entry, finding: &Finding, site: Option<usize>) -> [Value; 3] {
    let of_line = || {
        let stacks = &entry.model()?.stacks;
        let frame = &stacks.frames[stacks.lines[site?].frame? as usize];
        (!frame.file.is_empty()).then(|| [json!(frame.file), json!(frame.line), json!(frame.function)])
    };
    let known = frame_place(finding.frame.as_ref());
    if finding.frame.is_none() { of_line().unwrap_or(known) } else { known }
}

/// Number of the call site that a finding names.
fn site(entry: &Entry, finding: &Finding) -> Option<usize> {
    let text = finding.line.as_deref()?;
    entry.model()?.stacks.lines.iter().position(|line| *line.text == *text)
}
