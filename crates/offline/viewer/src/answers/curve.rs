//! `curve`: bytes in use over a window, divided by owner, call site or size, with the lines of pool and card.

use msmemscope_event::{Device, Pool};
use serde_json::{Map, Value, json};

use crate::entry::{Entry, View, locked};
use crate::model::Group;
use crate::model::changes::{Dimension, MOST_SERIES, Piece};
use crate::server::query::Query;

use super::scope::{MOST_PIXELS, Scope, edges, parse_device, parse_pool};
use super::{Answer, Problem};

/// What remains beside the series.
const OTHER: &str = "…";

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let (from, to) = scope.window()?;
    let width = scope.width()?;
    let by = scope.query.word("by", &["owner", "site", "size", "pool", "none"])?;
    let group = scope.group()?;
    let model = scope.model;
    let edges = edges(from, to, width);
    let view = scope.entry.view(model, group, &scope.filter()?);
    let pieces = view.changes.curve(&edges, &model.blocks);
    let most = scope.query.limited("series", 12, (1, MOST_SERIES as u64))? as usize;
    let series = match by {
        "owner" => stacked(scope, &view, &pieces, Dimension::Owner, most),
        "site" => stacked(scope, &view, &pieces, Dimension::Line, most),
        "size" => stacked(scope, &view, &pieces, Dimension::Size, most),
        "pool" => by_pool(scope, &view, &pieces),
        _ => Vec::new(),
    };
    let device = model.groups[group as usize].device;
    let mut value = json!({
        "t0": scope.shown(from),
        "t1": scope.shown(to),
        "width": width,
        "by": by,
        "device": device.to_string(),
        "pool": model.groups[group as usize].pool.event_type(),
        "approximate": false,
        "min": pieces.iter().map(|piece| piece.least).collect::<Vec<_>>(),
        "max": pieces.iter().map(|piece| piece.most).collect::<Vec<_>>(),
        "series": series,
        "peak_bytes": view.changes.peak_bytes,
        "peak_t": scope.shown(view.changes.time_of(view.changes.peak_at, &model.blocks)),
    });
    add_lines(scope, group, &edges, &mut value);
    Ok(value)
}

fn stacked(scope: &Scope<'_>, view: &View, pieces: &[Piece], dimension: Dimension, most: usize) -> Vec<Value> {
    let model = scope.model;
    let stacking = view.stacking(model, dimension);
    let shown = stacking.series.len().min(most);
    let has_other = stacking.has_other || shown < stacking.series.len();
    let mut values = vec![Vec::with_capacity(pieces.len()); shown + usize::from(has_other)];
    let mut known: Option<(usize, Vec<u64>)> = None;
    for piece in pieces {
        let held = match &known {
            // Nothing changes in many pieces of a quiet time.
            Some((made, held)) if *made == piece.most_at => held,
            _ => &known.insert((piece.most_at, stacking.after(piece.most_at, model, &view.changes))).1,
        };
        let mut rest = piece.most;
        for (values, held) in values.iter_mut().zip(&held[..shown]) {
            values.push(*held);
            rest = rest.saturating_sub(*held);
        }
        if has_other {
            values[shown].push(rest);
        }
    }
    let mut series: Vec<Value> = Vec::new();
    for (index, values) in values.into_iter().enumerate() {
        series.push(match stacking.series.get(index).filter(|_| index < shown) {
            Some((key, peak)) => {
                let label = dimension.label(model, *key);
                let name = if dimension == Dimension::Line { key.to_string() } else { label.to_owned() };
                json!({ "key": name, "label": label, "peak_bytes": peak, "values": values })
            }
            None => json!({ "key": OTHER, "label": "other", "peak_bytes": null, "values": values }),
        });
    }
    series
}

/// Memory of the whole process on a device, nothing twice: what pools use, what they hold in vain, and what the
/// driver has given out besides.
fn by_pool(scope: &Scope<'_>, view: &View, pieces: &[Piece]) -> Vec<Value> {
    let model = scope.model;
    let device = model.groups[view.group as usize].device;
    let times: Vec<u64> = pieces.iter().map(|piece| view.changes.time_of(piece.most_at, &model.blocks)).collect();
    let level = |group: u16| -> Vec<u64> {
        let view = scope.entry.view(model, group, &Default::default());
        times.iter().map(|&time| view.changes.bytes_at(time, &model.blocks)).collect()
    };
    let mut series = Vec::new();
    let mut explained = vec![0u64; times.len()];
    let mut driver = None;
    for group in (0..model.groups.len() as u16).filter(|&group| model.groups[group as usize].device == device) {
        let pool = model.groups[group as usize].pool;
        let used = level(group);
        match pool {
            Pool::Hal => driver = Some(used),
            Pool::HostPinned | Pool::HostTensor => {}
            pool => {
                let reserved = &model.reserved[group as usize];
                let idle: Vec<u64> = times
                    .iter()
                    .zip(&used)
                    .map(|(&time, &used)| reserved.at(time).unwrap_or(0).saturating_sub(used))
                    .collect();
                for (explained, (used, idle)) in explained.iter_mut().zip(used.iter().zip(&idle)) {
                    *explained = explained.saturating_add(*used).saturating_add(*idle);
                }
                let name = pool.event_type();
                let unused = format!("{name} held unused");
                series.push(json!({ "key": name, "label": pool.title(), "values": used }));
                series.push(json!({ "key": unused, "label": format!("{} held unused", pool.title()), "values": idle }));
            }
        }
    }
    if let Some(driver) = driver {
        let rest: Vec<u64> = driver.iter().zip(&explained).map(|(all, known)| all.saturating_sub(*known)).collect();
        series.push(json!({ "key": "HAL other", "label": "driver, besides", "values": rest }));
    }
    series
}

/// What the pool and the driver hold, and the whole card.
fn add_lines(scope: &Scope<'_>, group: u16, edges: &[u64], value: &mut Value) {
    let model = scope.model;
    let Group { device, pool } = model.groups[group as usize];
    let mut lines = Map::new();
    let reserved = &model.reserved[group as usize];
    if reserved.highest() > 0 {
        lines.insert("reserved".to_owned(), json!(reserved.highest_per_piece(edges)));
    }
    let driver = model.group(device, Pool::Hal).filter(|_| pool != Pool::Hal).map(|driver| {
        let view = scope.entry.view(model, driver, &Default::default());
        let pieces = view.changes.curve(edges, &model.blocks);
        pieces.iter().map(|piece| piece.most).collect::<Vec<u64>>()
    });
    if let Some(driver) = &driver {
        lines.insert("driver".to_owned(), json!(driver));
    }
    if let Some(card) = model.cards.iter().find(|card| card.device == device) {
        let used = card.used.highest_per_piece(edges);
        let process = card.process.highest_per_piece(edges);
        let both = |(all, part): (&Option<u64>, &Option<u64>)| Some((*all)?.saturating_sub((*part)?));
        value["other_processes"] = json!(used.iter().zip(&process).map(both).collect::<Vec<_>>());
        if let Some(driver) = &driver {
            let rest = |(all, part): (&Option<u64>, &u64)| all.map(|all| all.saturating_sub(*part));
            value["unexplained"] = json!(process.iter().zip(driver).map(rest).collect::<Vec<_>>());
        }
        lines.insert("card".to_owned(), json!(used));
        lines.insert("card_process".to_owned(), json!(process));
        value["card_total_bytes"] = json!(card.total_bytes);
    }
    value["lines"] = Value::Object(lines);
}

/// The curve as far as it has been read.
pub(super) fn rough(entry: &Entry, query: &Query) -> Answer {
    let time = |name: &str| -> Result<Option<u64>, Problem> {
        Ok(query.number(name)?.map(|time| time.saturating_add(entry.origin_ns)))
    };
    let from = time("t0")?.unwrap_or(entry.identity.first_ns);
    let to = time("t1")?.unwrap_or(entry.identity.last_ns).max(from.saturating_add(1));
    let width = query.limited("width", 1000, (1, MOST_PIXELS))? as usize;
    let device = query.text("device").map(parse_device).transpose()?;
    let pool = query.text("pool").map(parse_pool).transpose()?;
    let coarse = locked(&entry.coarse);
    let is_meant = |group: &Group| {
        device.is_none_or(|device| group.device == device) && pool.is_none_or(|pool| group.pool == pool)
    };
    let key = |group: &Group| (matches!(group.device, Device::Npu(_)), group.pool != Pool::Hal);
    let group = coarse.0.groups.iter().map(|(group, _)| *group).filter(is_meant).max_by_key(key);
    let pieces = group.map_or(Vec::new(), |group| coarse.0.curve(group, &edges(from, to, width), coarse.1));
    let shown = |time: u64| time.saturating_sub(entry.origin_ns);
    Ok(json!({
        "complete": false,
        "fraction": entry.fraction(),
        "t0": shown(from),
        "t1": shown(to),
        "width": width,
        "by": "none",
        "device": group.map(|group| group.device.to_string()),
        "pool": group.map(|group| group.pool.event_type()),
        "approximate": true,
        "read_until": shown(coarse.1),
        "min": pieces.iter().map(|piece| piece.map(|piece| piece.0)).collect::<Vec<_>>(),
        "max": pieces.iter().map(|piece| piece.map(|piece| piece.1)).collect::<Vec<_>>(),
        "series": [],
        "lines": {},
        "peak_bytes": pieces.iter().flatten().map(|piece| piece.1).max(),
        "peak_t": null,
    }))
}
