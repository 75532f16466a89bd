//! What a report says in words and tables: first the answer, then the findings, then the evidence.

use std::collections::HashMap;

use msmemscope_report::curve;
use msmemscope_report::units::{bytes, count, counted, number_ranges, seconds, signed_bytes};
use serde_json::{Map, Value, json};

use super::collection::{address, main_pool, worst_first};

/// Recordings that are told about one by one.
const NAMED_RECORDINGS: usize = 8;
const LISTED_RECORDINGS: usize = 32;
const LISTED_FINDINGS: usize = 20;
const LISTED_LINES: usize = 12;
const LISTED_OWNERS: usize = 12;
const LISTED_STEPS: usize = 12;
const LISTED_POOLS: usize = 256;
/// Operators, modules or phases of a line that are named.
const NAMED_PER_LINE: usize = 2;
/// Letters of a curve.
const CURVE_COLUMNS: usize = 72;
const CURVE_ROWS: usize = 5;

/// A report in words.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) title: String,
    pub(super) parts: Vec<Part>,
}

/// A part of a report.
#[derive(Debug)]
pub(super) enum Part {
    Heading(String),
    /// The answer.
    Verdict(String),
    Sentence(String),
    Findings(Vec<FindingText>),
    /// Bytes in use over time, drawn with letters.
    Curve(Vec<String>),
    Table {
        columns: Vec<&'static str>,
        rows: Vec<Vec<Cell>>,
    },
}

/// A finding in words.
#[derive(Debug)]
pub(super) struct FindingText {
    pub(super) severity: String,
    /// How bad it is, and what it is about.
    pub(super) tag: String,
    pub(super) sentence: String,
    /// The line of code, where the sentence does not say it.
    pub(super) place: Option<String>,
    pub(super) details: Vec<String>,
}

/// A cell of a table.
#[derive(Debug)]
pub(super) enum Cell {
    Text(String),
    Number(String),
    /// Something that is spelled exactly so: a line of code, a name.
    Code(String),
}

impl Document {
    pub(super) fn of(answers: &Map<String, Value>) -> Self {
        let none = Value::Null;
        let session = answers.get("session").unwrap_or(&none);
        let findings = answers.get("findings").unwrap_or(&none);
        let recordings = list(&session["recordings"]);
        let mut parts = Vec::new();
        let ordered = worst_first(recordings, list(&findings["findings"]));
        push_verdicts(&mut parts, recordings, &ordered, findings);
        parts.extend(session["notice"].as_str().map(|notice| Part::Sentence(notice.to_owned())));
        push_findings(&mut parts, recordings, list(&findings["findings"]));
        push_devices(&mut parts, recordings);
        for recording in ordered.iter().take(NAMED_RECORDINGS) {
            for device in list(&recording["devices"]) {
                push_device(&mut parts, answers, recording, device, recordings.len());
            }
        }
        push_untold(&mut parts, "told about in detail", recordings.len(), NAMED_RECORDINGS);
        push_facts(&mut parts, session, recordings);
        Self { title: title(recordings), parts }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn bytes_cell(value: &Value) -> Cell {
    Cell::Number(value.as_u64().map_or_else(|| "-".to_owned(), bytes))
}

/// The script of a recording, otherwise its program, otherwise where it lies.
fn program(recording: &Value) -> String {
    let command = string(&recording["command"]);
    let words: Vec<&str> = command.split_whitespace().collect();
    let script = words.iter().find(|word| word.ends_with(".py")).or(words.first());
    match script {
        Some(word) => word.rsplit('/').next().unwrap_or(word).to_owned(),
        None => string(&recording["name"]),
    }
}

fn title(recordings: &[Value]) -> String {
    match recordings {
        [] => "Memory report".to_owned(),
        [recording] => format!("Memory of {}", program(recording)),
        [first, ..] => format!("Memory of {} ({} processes)", program(first), recordings.len()),
    }
}

/// A recording as people tell it from others.
fn named(recording: &Value) -> String {
    match recording["rank"].as_u64() {
        Some(rank) => format!("Rank {rank} (process {})", recording["process_id"]),
        None => format!("Process {}", recording["process_id"]),
    }
}

/// Several recordings in words: ranks by their numbers.
fn named_together(recordings: &[&Value]) -> String {
    let ranks: Option<Vec<u32>> = recordings.iter().map(|it| it["rank"].as_u64().map(|rank| rank as u32)).collect();
    match (recordings, ranks) {
        ([recording], _) => named(recording),
        (_, Some(ranks)) => format!("Ranks {}", number_ranges(&ranks)),
        (recordings, None) => {
            let names: Vec<String> = recordings.iter().take(NAMED_RECORDINGS).map(|it| named(it)).collect();
            let more = recordings.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", names.join(", "))
        }
    }
}

/// What a list of recordings leaves out.
fn push_untold(parts: &mut Vec<Part>, how: &str, recordings: usize, told: usize) {
    if recordings > told {
        let left_out = count((recordings - told) as u64);
        parts
            .push(Part::Sentence(format!("{left_out} of {} recordings are not {how} here.", count(recordings as u64))));
    }
}

/// The answer in one to three sentences, of the recordings with problems first. Recordings that say the same say it once;
/// of a single one, what stands among the findings is not said twice.
fn push_verdicts(parts: &mut Vec<Part>, recordings: &[Value], ordered: &[&Value], findings: &Value) {
    let mut said: Vec<(Vec<String>, Vec<usize>)> = Vec::new();
    let is_told = |sentence: &Value| {
        recordings.len() == 1 && list(&findings["findings"]).iter().any(|finding| finding["sentence"] == *sentence)
    };
    for headline in list(&findings["headlines"]) {
        let speaker = headline["same_as"].as_u64().and_then(|first| recordings.get(first as usize));
        let sentences: Vec<String> = match speaker {
            Some(first) => vec![format!("The same leaks as {}.", named(first))],
            None => list(&headline["sentences"]).iter().filter(|sentence| !is_told(sentence)).map(string).collect(),
        };
        let recording = number(&headline["r"]) as usize;
        match said.iter_mut().find(|(known, _)| *known == sentences) {
            Some((_, speakers)) => speakers.push(recording),
            None => said.push((sentences, vec![recording])),
        }
    }
    said.retain(|(sentences, _)| !sentences.is_empty());
    let place = |number: &usize| ordered.iter().position(|recording| recording["r"] == *number).unwrap_or(usize::MAX);
    said.sort_by_cached_key(|(_, speakers)| speakers.iter().map(place).min());
    for (sentences, speakers) in said.iter().take(NAMED_RECORDINGS) {
        if recordings.len() > 1 {
            let speakers: Vec<&Value> = speakers.iter().filter_map(|&number| recordings.get(number)).collect();
            parts.push(Part::Sentence(format!("{}:", named_together(&speakers))));
        }
        parts.push(Part::Verdict(sentences[0].clone()));
        parts.extend(sentences[1..].iter().cloned().map(Part::Sentence));
    }
    let untold = said.iter().skip(NAMED_RECORDINGS).map(|(_, speakers)| speakers.len()).sum::<usize>();
    if untold > 0 {
        let what = counted(untold as u64, "more recording");
        parts.push(Part::Sentence(format!("{what} below, in the findings and in the table of devices.")));
    }
}

fn push_findings(parts: &mut Vec<Part>, recordings: &[Value], findings: &[Value]) {
    if findings.is_empty() {
        return;
    }
    parts.push(Part::Heading("Findings".to_owned()));
    let together = told_together(findings);
    let shown = together.iter().take(LISTED_FINDINGS);
    parts.push(Part::Findings(shown.map(|same| finding_text(same, recordings)).collect()));
    let more = together.len().saturating_sub(LISTED_FINDINGS);
    if more > 0 {
        parts.push(Part::Sentence(format!("And {} more.", count(more as u64))));
    }
}

/// Findings that say the same about several recordings.
fn told_together(findings: &[Value]) -> Vec<Vec<&Value>> {
    let mut groups: Vec<Vec<&Value>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for finding in findings {
        let key =
            json!([finding["severity"], finding["sentence"], finding["file"], finding["line"], finding["details"]]);
        let place = *known.entry(key.to_string()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

/// What one or several recordings have found; all of `same` say the same.
fn finding_text(same: &[&Value], recordings: &[Value]) -> FindingText {
    let finding = same[0];
    let severity = string(&finding["severity"]);
    let word = match severity.as_str() {
        "error" => "Problem",
        "warning" => "Warning",
        _ => "Good to know",
    };
    let ranks: Vec<u32> = list(&finding["ranks"]).iter().map(|rank| number(rank) as u32).collect();
    let mut concerned: Vec<&Value> = same.iter().filter_map(|it| recordings.get(number(&it["r"]) as usize)).collect();
    concerned.dedup_by_key(|recording| &recording["r"]);
    let (recording, device) = match (ranks.is_empty(), concerned.len()) {
        (false, _) => (Some(format!("Ranks {}", number_ranges(&ranks))), None),
        (true, 2..) => (Some(named_together(&concerned)), None),
        (true, _) => {
            let recording = concerned.first().filter(|_| recordings.len() > 1).map(|recording| named(recording));
            (recording, finding["device"].as_str().map(|device| format!("device {device}")))
        }
    };
    let tag: Vec<String> = std::iter::once(word.to_owned()).chain(recording).chain(device).collect();
    let sentence = string(&finding["sentence"]);
    let place = finding["file"].as_str().map(|file| match finding["line"].as_u64() {
        Some(line) => format!("{file}:{line} {}", string(&finding["function"])),
        None => file.to_owned(),
    });
    let details = list(&finding["details"]).iter();
    let advice: Vec<String> = list(&finding["advice"]).iter().map(string).collect();
    let advice = (!advice.is_empty()).then(|| format!("What to do: {}", advice.join(" ")));
    FindingText {
        tag: tag.join(" · "),
        place: place.filter(|place| !sentence.contains(place.trim())),
        details: details.map(string).chain(advice).collect(),
        severity,
        sentence,
    }
}

fn push_devices(parts: &mut Vec<Part>, recordings: &[Value]) {
    let mut rows = Vec::new();
    for recording in recordings {
        for device in list(&recording["devices"]) {
            for pool in list(&device["pools"]) {
                rows.push(vec![
                    Cell::Text(named(recording)),
                    Cell::Text(string(&device["device"])),
                    Cell::Text(string(&pool["title"])),
                    bytes_cell(&pool["peak_bytes"]),
                    // Only pools of frameworks reserve anything.
                    bytes_cell(
                        Some(&pool["reserved_peak_bytes"]).filter(|bytes| number(bytes) > 0).unwrap_or(&Value::Null),
                    ),
                    bytes_cell(&pool["end_bytes"]),
                    Cell::Number(count(number(&pool["blocks"]))),
                ]);
            }
        }
    }
    if !rows.is_empty() {
        parts.push(Part::Heading("Memory per device".to_owned()));
        let columns = vec!["process", "device", "pool", "peak", "reserved at most", "at the end", "blocks"];
        let more = rows.len().saturating_sub(LISTED_POOLS);
        rows.truncate(LISTED_POOLS);
        parts.push(Part::Table { columns, rows });
        if more > 0 {
            parts.push(Part::Sentence(format!("{} are left out.", counted(more as u64, "more row"))));
        }
    }
}

/// What holds the memory of a device at its peak, and how it grew.
fn push_device(parts: &mut Vec<Part>, answers: &Map<String, Value>, recording: &Value, device: &Value, several: usize) {
    let Some(pool) = main_pool(device).filter(|pool| number(&pool["peak_bytes"]) > 0) else { return };
    let (recording_number, device_name, pool_name) =
        (recording["r"].to_string(), string(&device["device"]), string(&pool["pool"]));
    let place = [("device", device_name.as_str()), ("pool", &pool_name), ("r", &recording_number)];
    let whose = if several > 1 { format!("{}, ", named(recording)) } else { String::new() };
    let where_ = format!("{whose}{} on device {device_name}", string(&pool["title"]));
    if let Some(curve) = answers.get(&address("curve", &[&place[..], &[("by", "none")]].concat())) {
        push_curve(parts, &format!("Memory over time ({where_})"), curve);
    }
    if let Some(lines) = answers.get(&address("lines", &place)) {
        push_lines(parts, &format!("What holds memory at the peak ({where_})"), lines);
    }
    if let Some(holds) = answers.get(&address("holds", &[&place[..], &[("by", "owner")]].concat())) {
        push_owners(parts, &format!("Owners at the peak ({where_})"), holds);
    }
    if let Some(steps) = answers.get(&address("steps", &place)) {
        push_steps(parts, &format!("Steps ({where_})"), steps);
    }
    if let Some(state) = answers.get(&address("pool", &place)) {
        push_pool(parts, &format!("The pool at the peak ({where_})"), state);
    }
}

fn push_curve(parts: &mut Vec<Part>, title: &str, curve: &Value) {
    let most: Vec<u64> = list(&curve["max"]).iter().map(number).collect();
    let Some(&peak) = most.iter().max().filter(|&&peak| peak > 0) else { return };
    let duration = number(&curve["t1"]).saturating_sub(number(&curve["t0"]));
    parts.push(Part::Heading(title.to_owned()));
    parts.push(Part::Curve(curve::lines(&most, CURVE_COLUMNS, CURVE_ROWS)));
    parts.push(Part::Sentence(format!("Over {}, at most {}.", seconds(duration), bytes(peak))));
}

/// The lines of a curve without what is empty at their ends.
pub(super) fn trimmed(lines: &[String]) -> String {
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

fn share(part: &Value, whole: &Value) -> Cell {
    Cell::Number(format!("{:.1} %", number(part) as f64 * 100.0 / number(whole).max(1) as f64))
}

/// Lines of code; columns that would be empty are left out.
fn push_lines(parts: &mut Vec<Part>, title: &str, held: &Value) {
    let all = list(&held["rows"]);
    let shown = &all[..all.len().min(LISTED_LINES)];
    if shown.is_empty() {
        return;
    }
    let further: Vec<(&str, &str)> = [("operator", "operators"), ("module", "modules"), ("phase", "phases")]
        .into_iter()
        .filter(|(_, key)| shown.iter().any(|row| !list(&row[*key]).is_empty()))
        .collect();
    let row = |row: &Value| {
        let mut cells = vec![
            bytes_cell(&row["bytes"]),
            share(&row["bytes"], &held["used_bytes"]),
            Cell::Number(count(number(&row["blocks"]))),
            Cell::Code(string(&row["label"])),
        ];
        cells.extend(further.iter().map(|(_, key)| Cell::Text(several(list(&row[*key])))));
        cells
    };
    let columns =
        ["bytes", "share", "blocks", "allocated at"].into_iter().chain(further.iter().map(|(title, _)| *title));
    parts.push(Part::Heading(title.to_owned()));
    parts.push(Part::Table { columns: columns.collect(), rows: shown.iter().map(row).collect() });
    push_rest(parts, held, LISTED_LINES, "line");
}

/// The first of several names, and how many there are besides.
fn several(names: &[Value]) -> String {
    let shown: Vec<String> = names.iter().take(NAMED_PER_LINE).map(string).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" +{more}") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn push_owners(parts: &mut Vec<Part>, title: &str, holds: &Value) {
    let row = |row: &Value| {
        let label = Cell::Code(string(&row["label"]));
        vec![bytes_cell(&row["bytes"]), share(&row["bytes"], &holds["used_bytes"]), label]
    };
    let rows: Vec<Vec<Cell>> = list(&holds["rows"]).iter().take(LISTED_OWNERS).map(row).collect();
    // One owner of everything says nothing.
    if rows.len() > 1 {
        parts.push(Part::Heading(title.to_owned()));
        parts.push(Part::Table { columns: vec!["bytes", "share", "owner"], rows });
        push_rest(parts, holds, LISTED_OWNERS, "owner");
    }
}

/// What a table leaves out.
fn push_rest(parts: &mut Vec<Part>, holds: &Value, listed: usize, noun: &str) {
    let unlisted = list(&holds["rows"]).get(listed..).unwrap_or_default();
    let rows = unlisted.len() as u64 + number(&holds["more"]["rows"]);
    let held = unlisted.iter().map(|row| number(&row["bytes"])).sum::<u64>() + number(&holds["more"]["bytes"]);
    match rows {
        0 => {}
        1 => parts.push(Part::Sentence(format!("One more {noun} holds {}.", bytes(held)))),
        rows => parts.push(Part::Sentence(format!("{} more {noun}s hold {}.", count(rows), bytes(held)))),
    }
}

fn push_steps(parts: &mut Vec<Part>, title: &str, steps: &Value) {
    let rows = list(&steps["rows"]);
    if rows.is_empty() {
        return;
    }
    parts.push(Part::Heading(title.to_owned()));
    if let Some(rate) = steps["bytes_per_step"].as_f64().filter(|rate| rate.abs() >= 1.0) {
        parts.push(Part::Sentence(format!("{} with every step.", signed_bytes(rate as i64))));
    }
    let row = |row: &Value| {
        let grew = list(&row["grew"]).first().map_or(String::new(), |site| string(&site["label"]));
        vec![
            Cell::Number(string(&row["step"])),
            bytes_cell(&row["peak_bytes"]),
            bytes_cell(&row["end_bytes"]),
            Cell::Number(signed_bytes(row["growth_bytes"].as_i64().unwrap_or(0))),
            Cell::Code(grew),
        ]
    };
    // The first steps are unlike the others; the last ones tell how it went on.
    let first = rows.len().min(LISTED_STEPS / 2);
    let last = rows.len().saturating_sub(LISTED_STEPS / 2).max(first);
    let shown = rows[..first].iter().chain(&rows[last..]).map(row).collect();
    let columns = vec!["step", "peak", "at its end", "growth", "what grew most"];
    parts.push(Part::Table { columns, rows: shown });
    if last > first {
        parts.push(Part::Sentence(format!("{} steps in between are left out.", count((last - first) as u64))));
    }
}

fn push_pool(parts: &mut Vec<Part>, title: &str, state: &Value) {
    if number(&state["reserved_bytes"]) == 0 {
        return;
    }
    parts.push(Part::Heading(title.to_owned()));
    parts.push(Part::Sentence(format!(
        "{} reserved in {}, {} in use, {} in {}, the largest {}.",
        bytes(number(&state["reserved_bytes"])),
        counted(number(&state["segments_total"]), "segment"),
        bytes(number(&state["used_bytes"])),
        bytes(number(&state["gap_bytes"])),
        counted(number(&state["gaps_total"]), "gap"),
        bytes(number(&state["largest_gap_bytes"])),
    )));
}

fn push_facts(parts: &mut Vec<Part>, session: &Value, recordings: &[Value]) {
    parts.push(Part::Heading("Recorded".to_owned()));
    let row = |recording: &Value| {
        let duration = number(&recording["t1"]).saturating_sub(number(&recording["t0"]));
        vec![
            Cell::Text(named(recording)),
            Cell::Code(string(&recording["command"])),
            Cell::Text(string(&recording["host"])),
            Cell::Number(seconds(duration)),
            Cell::Number(count(number(&recording["events"]))),
            Cell::Number(count(number(&recording["steps"]))),
        ]
    };
    let rows = recordings.iter().take(LISTED_RECORDINGS).map(row).collect();
    parts.push(Part::Table { columns: vec!["process", "command", "host", "duration", "events", "steps"], rows });
    push_untold(parts, "listed", recordings.len(), LISTED_RECORDINGS);
    for recording in recordings.iter().take(NAMED_RECORDINGS) {
        for missing in list(&recording["missing"]) {
            parts.push(Part::Sentence(format!("Missing: {}", string(missing))));
        }
    }
    parts.push(Part::Sentence(format!("Made by msMemScope {}.", string(&session["tool"]))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn recordings_that_say_the_same_say_it_once() {
        let recordings = [json!({ "process_id": 7, "rank": 0 }), json!({ "process_id": 8, "rank": null })];
        let headline = |number: u64| json!({ "r": number, "sentences": ["Leak: x.", "Peak: y."] });
        let mut parts = Vec::new();
        push_verdicts(&mut parts, &recordings, &[], &json!({ "headlines": [headline(0), headline(1)] }));
        assert!(
            matches!(&parts[..], [Part::Sentence(who), Part::Verdict(what), Part::Sentence(_)]
                if who == "Rank 0 (process 7), Process 8:" && what == "Leak: x."),
            "{parts:?}"
        );
    }

    #[test]
    fn ranks_that_leak_at_the_same_lines_are_told_once() {
        let recordings = [7, 8, 9].map(|process: u32| json!({ "process_id": process, "rank": process - 7 }));
        let headlines = [
            json!({ "r": 0, "sentences": ["Leak: x.", "Peak: 1 GiB."], "same_as": null }),
            json!({ "r": 1, "sentences": ["Leak: x, held by y.", "Peak: 2 GiB."], "same_as": 0 }),
            json!({ "r": 2, "sentences": ["Leak: x.", "Peak: 3 GiB."], "same_as": 0 }),
        ];
        let mut parts = Vec::new();
        push_verdicts(&mut parts, &recordings, &[], &json!({ "headlines": headlines }));
        assert!(
            matches!(&parts[3..], [Part::Sentence(who), Part::Verdict(what)]
                if who == "Ranks 1-2:" && what == "The same leaks as Rank 0 (process 7)."),
            "{parts:?}"
        );
        let finding =
            json!({ "r": 0, "ranks": [0, 1], "severity": "error", "sentence": "x", "device": "0", "details": [] });
        assert_eq!(finding_text(&[&finding], &recordings).tag, "Problem · Ranks 0-1");
    }

    #[test]
    fn the_rank_with_a_problem_comes_first_and_the_others_say_the_same_once() {
        let recordings: Vec<Value> =
            (0..40).map(|rank| json!({ "r": rank, "process_id": 100 + rank, "rank": rank })).collect();
        let finding = |number: u64, severity: &str, sentence: &str| json!({ "r": number, "ranks": [], "severity": severity, "sentence": sentence, "device": "0", "details": [] });
        let mut findings = vec![finding(33, "error", "x leaks")];
        findings.extend((0..40).map(|number| finding(number, "warning", "Never used: y")));
        let headlines: Vec<Value> = (0..40)
            .map(|number| json!({ "r": number, "sentences": [if number == 33 { "Leak: x." } else { "No leaks found." }] }))
            .collect();
        let answers = json!({
            "session": { "recordings": recordings }, "findings": { "headlines": headlines, "findings": findings },
        });
        let document = Document::of(answers.as_object().expect("answers"));
        let Some(Part::Findings(told)) = document.parts.iter().find(|part| matches!(part, Part::Findings(_))) else {
            panic!("{document:?}");
        };
        let tags: Vec<&str> = told.iter().map(|finding| finding.tag.as_str()).collect();
        assert_eq!(tags, ["Problem · Rank 33 (process 133) · device 0", "Warning · Ranks 0-39"]);
        let sentences: Vec<&str> = document
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Sentence(text) | Part::Verdict(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(
            sentences[..5],
            [
                "Rank 33 (process 133):",
                "Leak: x.",
                "Ranks 0-32, 34-39:",
                "No leaks found.",
                "32 of 40 recordings are not told about in detail here."
            ]
        );
        assert!(sentences.contains(&"8 of 40 recordings are not listed here."), "{sentences:?}");
    }

    #[test]
    fn lines_have_the_columns_that_say_something() {
        let row = |operators: Value, phases: Value| json!({ "label": "a.py:3 f", "bytes": 50, "blocks": 2, "operators": operators, "modules": [], "phases": phases });
        let rows = [row(json!(["mm", "add", "mul"]), json!(["backward"])), row(json!([]), json!([]))];
        let mut parts = Vec::new();
        push_lines(&mut parts, "Lines", &json!({ "used_bytes": 100, "rows": rows, "more": { "rows": 0, "bytes": 0 } }));
        let [_, Part::Table { columns, rows }] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!(columns, &["bytes", "share", "blocks", "allocated at", "operator", "phase"]);
        assert!(matches!(&rows[0][4], Cell::Text(operators) if operators == "mm, add +1"), "{rows:?}");
    }

    #[test]
    fn programs_are_called_by_their_scripts() {
        assert_eq!(title(&[json!({ "command": "python -u /me/train.py --x" })]), "Memory of train.py");
        assert_eq!(title(&[json!({ "command": null, "name": "run" })]), "Memory of run");
        assert_eq!(title(&[]), "Memory report");
    }

    #[test]
    fn long_trainings_show_their_first_and_last_steps() {
        let rows: Vec<Value> = (1..=40).map(|step| json!({ "step": step, "growth_bytes": -5 })).collect();
        let mut parts = Vec::new();
        push_steps(&mut parts, "Steps", &json!({ "rows": rows, "bytes_per_step": 2048.5 }));
        let [_, Part::Sentence(rate), Part::Table { rows, .. }, Part::Sentence(rest)] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert_eq!((rate.as_str(), rest.as_str()), ("+2.0 KiB with every step.", "28 steps in between are left out."));
        assert_eq!(rows.len(), LISTED_STEPS);
    }
}
