//! `tracks` and `calls`: steps, ranges, operators, kernels and moments of a window, merged where they are too small.

use msmemscope_event::Device;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::model::spans::Lane;
use crate::model::texts::TextId;

use super::Answer;
use super::scope::Scope;

const TRACKS: [&str; 9] =
    ["steps", "ranges", "operators", "kernels", "marks", "out_of_memory", "snapshots", "watch", "recording"];
/// Threads whose operators are drawn.
const MOST_THREADS: usize = 16;
/// Names that match words, at most.
const MOST_MATCHES: usize = 5000;

/// Texts of an answer, each once.
#[derive(Default)]
struct NameTable<'m> {
    texts: Vec<&'m str>,
    numbers: FxHashMap<&'m str, usize>,
}

impl<'m> NameTable<'m> {
    fn number(&mut self, text: &'m str) -> i64 {
        let next = self.texts.len();
        let number = *self.numbers.entry(text).or_insert_with(|| {
            self.texts.push(text);
            next
        });
        number as i64
    }
}

/// Spans of a row, in columns.
#[derive(Default)]
struct Row {
    start: Vec<u64>,
    end: Vec<u64>,
    /// The text, or none for several with different texts.
    name: Vec<Option<TextId>>,
    count: Vec<usize>,
}

/// The spans of a lane within a window; those smaller than a piece of it are merged with their neighbours.
fn merged(lane: &Lane, from: u64, to: u64, width: usize) -> Row {
    let piece = ((to - from) / width as u64).max(1);
    let mut row = Row::default();
    let mut at = lane.end.partition_point(|&end| end <= from);
    while at < lane.len() && lane.start[at] < to {
        let start = lane.start[at];
        let mut next = at + 1;
        let mut end = lane.end[at];
        if end - start < piece {
            // Everything that begins within the same piece is one, except a long one at its end.
            let limit = start.saturating_add(piece);
            next = at + lane.start[at..].partition_point(|&start| start < limit);
            if next - at > 1 && lane.end[next - 1] - lane.start[next - 1] >= piece {
                next -= 1;
            }
            end = lane.end[next - 1];
        }
        let names = &lane.name[at..next];
        row.start.push(start);
        row.end.push(end);
        row.name.push(names.iter().all(|name| *name == names[0]).then_some(names[0]));
        row.count.push(next - at);
        at = next;
    }
    row
}

fn shown_row<'m>(scope: &Scope<'m>, row: &Row, names: &mut NameTable<'m>) -> Value {
    let name = |name: &Option<TextId>| name.map_or(-1, |name| names.number(scope.model.texts.get(name)));
    json!({
        "start": row.start.iter().map(|&time| scope.shown(time)).collect::<Vec<_>>(),
        "end": row.end.iter().map(|&time| scope.shown(time)).collect::<Vec<_>>(),
        "name": row.name.iter().map(name).collect::<Vec<_>>(),
        "count": row.count,
    })
}

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let (from, to) = scope.window()?;
    let width = scope.width()?;
    let model = scope.model;
    let wanted: Vec<&str> = scope.query.text("tracks").map_or(TRACKS.to_vec(), |text| text.split(',').collect());
    let mut names = NameTable::default();
    let mut tracks = Vec::new();
    if wanted.contains(&"steps") {
        tracks.extend(steps(scope, from, to, width)?);
    }
    for (track, lanes) in [("ranges", &model.ranges), ("operators", &model.operators), ("kernels", &model.kernels)] {
        if !wanted.contains(&track) {
            continue;
        }
        for (thread, lanes) in lanes.threads.iter().take(MOST_THREADS) {
            let rows: Vec<Row> = lanes.iter().map(|lane| merged(lane, from, to, width)).collect();
            let rows: Vec<Value> = rows.iter().map(|row| shown_row(scope, row, &mut names)).collect();
            let place = if track == "kernels" { "stream" } else { "thread" };
            tracks.push(json!({
                "track": track,
                "kind": "spans",
                "thread": thread,
                "title": format!("{track} of {place} {thread}"),
                "rows": rows,
            }));
        }
    }
    for instants in model.instants.iter().filter(|instants| wanted.contains(&instants.track)) {
        let first = instants.at.partition_point(|&at| at < from);
        let last = instants.at.partition_point(|&at| at < to);
        let lane: Vec<(u64, Option<TextId>)> =
            (first..last).map(|index| (instants.at[index], Some(instants.name[index]))).collect();
        let track = moments(scope, instants.track, &lane, (from, to, width), |name| model.texts.get(name), &mut names);
        tracks.extend(track);
    }
    if let Some(findings) = scope.findings().filter(|_| wanted.contains(&"watch")) {
        let changes: Vec<(u64, Option<usize>)> = findings
            .watch_changes
            .iter()
            .enumerate()
            .filter(|(_, (at, _))| (from..to).contains(at))
            .map(|(index, (at, _))| (*at, Some(index)))
            .collect();
        let text = |index: usize| findings.watch_changes[index].1.as_str();
        tracks.extend(moments(scope, "watch", &changes, (from, to, width), text, &mut names));
    }
    let mut texts: Vec<String> = names.texts.iter().map(|text| (*text).to_owned()).collect();
    name_steps(&mut tracks, &mut texts);
    Ok(json!({ "names": texts, "tracks": tracks }))
}

/// Moments of a window; those of one piece are merged.
fn moments<'m, N: Copy + PartialEq>(
    scope: &Scope<'m>,
    track: &str,
    all: &[(u64, Option<N>)],
    (from, to, width): (u64, u64, usize),
    text: impl Fn(N) -> &'m str,
    names: &mut NameTable<'m>,
) -> Option<Value> {
    let piece = ((to - from) / width as u64).max(1);
    let (mut at, mut name, mut count) = (Vec::new(), Vec::new(), Vec::new());
    for group in all.chunk_by(|first, second| (first.0 - from) / piece == (second.0 - from) / piece) {
        at.push(scope.shown(group[0].0));
        let same = group[0].1.filter(|_| group.iter().all(|(_, name)| *name == group[0].1));
        name.push(same.map_or(-1, |name| names.number(text(name))));
        count.push(group.len());
    }
    let title = track.replace('_', " ");
    (!at.is_empty()).then(|| {
        json!({ "track": track, "kind": "instants", "thread": 0, "title": title, "at": at, "name": name, "count": count })
    })
}

/// The steps of a device (or of all) as a track; names are filled in later, because they are made of numbers.
fn steps(scope: &Scope<'_>, from: u64, to: u64, width: usize) -> Result<Option<Value>, super::Problem> {
    let device = match scope.device()? {
        Some(device) => device,
        None => scope.group().map_or(Device::Unknown, |group| scope.model.groups[group as usize].device),
    };
    let mut lane = Lane::default();
    for step in scope.model.steps_of(device) {
        lane.start.push(step.start);
        lane.end.push(step.end);
        lane.name.push(step.number as TextId);
    }
    if lane.len() == 0 {
        return Ok(None);
    }
    let row = merged(&lane, from, to, width);
    let numbers: Vec<i64> = row.name.iter().map(|name| name.map_or(-1, i64::from)).collect();
    Ok(Some(json!({
        "track": "steps",
        "kind": "spans",
        "thread": 0,
        "title": "steps",
        "rows": [{
            "start": row.start.iter().map(|&time| scope.shown(time)).collect::<Vec<_>>(),
            "end": row.end.iter().map(|&time| scope.shown(time)).collect::<Vec<_>>(),
            "name": numbers,
            "count": row.count,
        }],
    })))
}

/// Turns the numbers of steps into names.
fn name_steps(tracks: &mut [Value], texts: &mut Vec<String>) {
    let Some(track) = tracks.iter_mut().find(|track| track["track"] == "steps") else { return };
    let numbers: Vec<i64> =
        track["rows"][0]["name"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    let names: Vec<i64> = numbers
        .iter()
        .map(|number| match number {
            -1 => -1,
            number => {
                texts.push(format!("step {number}"));
                texts.len() as i64 - 1
            }
        })
        .collect();
    track["rows"][0]["name"] = json!(names);
}

/// The call chart of the Python trace.
pub(super) fn calls(scope: &Scope<'_>) -> Answer {
    let (from, to) = scope.window()?;
    let width = scope.width()?;
    let calls = &scope.model.calls;
    let count = |lanes: &[Lane]| lanes.iter().map(Lane::len).sum::<usize>();
    let mut threads: Vec<(u32, usize, &[Lane])> =
        calls.threads.iter().map(|(thread, lanes)| (*thread, count(lanes), &lanes[..])).collect();
    threads.sort_by_key(|&(_, count, _)| usize::MAX - count);
    let chosen = scope.query.number("thread")?.map(|thread| thread as u32);
    let thread = chosen.or_else(|| threads.first().map(|(thread, ..)| *thread));
    let lanes = calls.threads.iter().find(|(known, _)| Some(*known) == thread).map_or(&[][..], |(_, lanes)| lanes);
    let mut names = NameTable::default();
    let rows: Vec<Row> = lanes.iter().map(|lane| merged(lane, from, to, width)).collect();
    let rows: Vec<Value> = rows.iter().map(|row| shown_row(scope, row, &mut names)).collect();
    let words = scope.query.text("text").map(str::to_lowercase);
    let is_match = |text: &&str| words.as_ref().is_some_and(|words| text.to_lowercase().contains(words.as_str()));
    let matching: Vec<usize> = names
        .texts
        .iter()
        .enumerate()
        .filter(|(_, text)| is_match(text))
        .map(|(number, _)| number)
        .take(MOST_MATCHES)
        .collect();
    let shown_thread = |&(thread, calls, lanes): &(u32, usize, &[Lane])| {
        let (first, last) = nested(lanes).unzip();
        let shown = |time: Option<u64>| time.map(|time| scope.shown(time));
        json!({ "thread": thread, "calls": calls, "t0": shown(first), "t1": shown(last) })
    };
    let threads: Vec<Value> = threads.iter().map(shown_thread).collect();
    Ok(json!({
        "threads": threads,
        "thread": thread,
        "t0": scope.shown(from),
        "t1": scope.shown(to),
        "names": names.texts,
        "rows": rows,
        "matches": matching.len(),
        "matching": matching,
    }))
}

/// From the first to the last call that another one makes: ranges that a program marks itself have no calls inside.
fn nested(lanes: &[Lane]) -> Option<(u64, u64)> {
    let lane = lanes.get(1).filter(|lane| lane.len() > 0).or(lanes.first())?;
    Some((*lane.start.first()?, *lane.end.last()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_spans_are_merged_and_large_ones_are_not() {
        let mut lane = Lane::default();
        for (start, end, name) in
            [(0, 1, 5), (2, 3, 5), (4, 5, 6), (100, 300, 7), (300, 301, 5), (303, 304, 5), (500, 900, 8)]
        {
            lane.start.push(start);
            lane.end.push(end);
            lane.name.push(name);
        }
        let row = merged(&lane, 0, 1000, 10);
        assert_eq!(row.start, [0, 100, 300, 500]);
        assert_eq!(row.end, [5, 300, 304, 900]);
        assert_eq!(row.name, [None, Some(7), Some(5), Some(8)]);
        assert_eq!(row.count, [3, 1, 2, 1]);
        let zoomed = merged(&lane, 2, 12, 10);
        assert_eq!((zoomed.start, zoomed.count), (vec![2, 4], vec![1, 1]));
        assert_eq!(merged(&lane, 301, 303, 10).start.len(), 0);
    }
}
