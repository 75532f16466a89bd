//! `findings`: what the analyses say, the worst first.

use serde_json::{Map, Value, json};

use crate::findings::{Finding, frame_place};
use crate::server::query::Query;
use crate::session::{Entry, Opened};

use super::{Answer, entry};

pub(super) fn answer(opened: &Opened, query: &Query) -> Answer {
    let chosen: Vec<(usize, &Entry)> = match query.number("r")? {
        None => opened.entries.iter().enumerate().collect(),
        Some(number) => vec![(number as usize, entry(opened, query)?)],
    };
    let mut found: Vec<(usize, &Entry, &Finding)> = chosen
        .iter()
        .flat_map(|(number, entry)| {
            let list = entry.findings().map_or(&[][..], |findings| &findings.list);
            list.iter().map(move |finding| (*number, *entry, finding))
        })
        .collect();
    found.sort_by_key(|(_, _, finding)| finding.severity);
    let fraction = chosen.iter().map(|(_, entry)| entry.fraction()).sum::<f64>() / chosen.len().max(1) as f64;
    Ok(json!({
        "complete": chosen.iter().all(|(_, entry)| entry.is_complete()),
        "fraction": fraction,
        "findings": found.iter().map(|(number, entry, finding)| shown(*number, entry, finding)).collect::<Vec<_>>(),
    }))
}

fn shown(number: usize, entry: &Entry, finding: &Finding) -> Value {
    let at = finding.at.map(|at| at.saturating_sub(entry.origin_ns));
    let device = finding.group.map(|(device, _)| device.to_string());
    let pool = finding.group.map(|(_, pool)| pool.event_type());
    let [file, line, function] = frame_place(finding.frame.as_ref());
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
    set("site", json!(site(entry, finding)));
    if finding.kind == "inefficient" {
        set("table", json!("blocks"));
        set("inefficient", json!(1));
    }
    json!({
        "r": number,
        "kind": finding.kind,
        "severity": finding.severity.word(),
        "sentence": finding.sentence,
        "bytes": finding.bytes,
        "count": finding.count,
        "file": file,
        "line": line,
        "function": function,
        "device": device,
        "pool": pool,
        "t": at,
        "details": finding.details,
        "link": link,
    })
}

/// Number of the call site that a finding names.
fn site(entry: &Entry, finding: &Finding) -> Option<usize> {
    let text = finding.line.as_deref()?;
    entry.model()?.stacks.lines.iter().position(|line| *line.text == *text)
}
