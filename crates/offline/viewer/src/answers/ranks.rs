//! `ranks`: peak, growth and what is different, recording by recording.

use msmemscope_event::{Device, Pool};
use serde_json::{Value, json};

use crate::entry::Entry;
use crate::model::Model;
use crate::session::Opened;

/// Deviations from the median, in units of the median deviation, from which on a recording is different.
const DIFFERENT: f64 = 5.0;
/// Smaller differences than this part of the median are none.
const SMALLEST_DIFFERENCE: f64 = 0.05;

struct Row {
    value: Value,
    peak_bytes: f64,
    growth: f64,
}

pub(super) fn answer(opened: &Opened) -> Value {
    let progress = opened.progress();
    let mut rows: Vec<Row> = Vec::new();
    for (number, entry) in opened.entries.iter().enumerate() {
        let Some(model) = entry.model() else { continue };
        rows.extend(groups_to_show(model).into_iter().map(|group| row(number, entry, model, group)));
    }
    let peaks: Vec<f64> = rows.iter().map(|row| row.peak_bytes).collect();
    let growths: Vec<f64> = rows.iter().map(|row| row.growth).collect();
    for row in &mut rows {
        let of_peak = outlier(row.peak_bytes, &peaks).map(|times| ("peak_bytes", times));
        let of_growth = outlier(row.growth, &growths).map(|times| ("bytes_per_step", times));
        let reason = |(figure, times): (&str, f64)| json!({ "figure": figure, "times_median": finite(times) });
        row.value["outlier"] = of_peak.into_iter().chain(of_growth).map(reason).collect();
    }
    json!({
        "complete": progress.is_complete,
        "fraction": progress.fraction,
        "rows": rows.into_iter().map(|row| row.value).collect::<Vec<_>>(),
    })
}

/// The pool that matters most of every device.
fn groups_to_show(model: &Model) -> Vec<usize> {
    let mut best: Vec<usize> = Vec::new();
    for group in 0..model.groups.len() {
        let rank = |group: usize| (model.groups[group].pool != Pool::Hal, model.peaks[group].bytes);
        match best.iter_mut().find(|known| model.groups[**known].device == model.groups[group].device) {
            Some(known) if rank(group) > rank(*known) => *known = group,
            Some(_) => {}
            None => best.push(group),
        }
    }
    best.retain(|&group| matches!(model.groups[group].device, Device::Npu(_)) || model.groups.len() == 1);
    best
}

fn row(number: usize, entry: &Entry, model: &Model, group: usize) -> Row {
    let key = (model.groups[group].device, model.groups[group].pool);
    let findings = entry.findings();
    let growth =
        findings.and_then(|findings| findings.growth.iter().find(|(known, _)| *known == key).map(|(_, bytes)| *bytes));
    let leaked: Option<u64> = findings
        .map(|findings| findings.leaks.iter().filter(|leak| leak.group.0 == key.0).map(|leak| leak.bytes).sum());
    let value = json!({
        "r": number,
        "name": entry.identity.name,
        "rank": entry.identity.rank,
        "host": entry.identity.host,
        "process_id": entry.identity.process_id,
        "device": key.0.to_string(),
        "pool": key.1.event_type(),
        "peak_bytes": model.peaks[group].bytes,
        "peak_t": model.peaks[group].at.saturating_sub(entry.origin_ns),
        "reserved_peak_bytes": model.reserved[group].highest(),
        "end_bytes": model.end_bytes[group],
        "bytes_per_step": growth,
        "leaked_bytes": leaked,
        "out_of_memory": findings.map(|findings| findings.out_of_memory),
        "steps": model.steps_of(key.0).len(),
    });
    Row { value, peak_bytes: model.peaks[group].bytes as f64, growth: growth.unwrap_or(0.0) }
}

/// Beside a median of zero everything is infinitely many times as much, which JSON cannot say.
fn finite(times: f64) -> Option<f64> {
    times.is_finite().then_some(times)
}

/// How many times the median a value is, if it stands out among at least three.
fn outlier(value: f64, all: &[f64]) -> Option<f64> {
    if all.len() < 3 {
        return None;
    }
    let middle = median(all.to_vec());
    let usual = median(all.iter().map(|other| (other - middle).abs()).collect());
    let difference = (value - middle).abs();
    let stands_out = difference > usual * DIFFERENT && difference > middle.abs() * SMALLEST_DIFFERENCE;
    (stands_out && difference > 0.0).then(|| if middle == 0.0 { f64::INFINITY } else { value / middle })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_equal_ones_stands_out() {
        assert_eq!(outlier(20.0, &[10.0, 10.0, 10.0, 20.0]), Some(2.0));
        assert_eq!(outlier(10.0, &[10.0, 10.0, 10.0, 20.0]), None);
        assert_eq!(outlier(10.2, &[10.0, 10.0, 10.0, 10.2]), None, "too little to matter");
        assert_eq!(outlier(20.0, &[10.0, 20.0]), None, "of two, either may be the usual one");
    }
}
