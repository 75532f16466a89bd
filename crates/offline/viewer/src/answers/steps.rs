//! `steps`: use and growth of a pool, step by step, and what grew.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::entry::View;
use crate::model::Step;

use super::holds::Held;
use super::scope::Scope;
use super::{Answer, Problem};

/// Call sites that are named per step.
const NAMED_SITES: usize = 3;
/// Steps of one answer, with what they kept and what grew, and without.
const MOST_ROWS: u64 = 200;
const MOST_BRIEF_ROWS: u64 = 4000;

/// Use of a pool in one step.
#[derive(Clone, Copy, Debug)]
struct StepUse {
    step: Step,
    /// Changes made at its end, and at the end of the step before (or at its own start).
    made: usize,
    made_before: usize,
    start_bytes: u64,
    end_bytes: u64,
    peak_bytes: u64,
    peak_at: u64,
    growth_bytes: i64,
}

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let model = scope.model;
    let group = scope.group()?;
    let view = scope.entry.view(model, group, &scope.filter()?);
    let sort = scope.query.word("sort", &["step", "growth_bytes", "peak_bytes", "end_bytes"])?;
    let offset = scope.query.number("offset")?.unwrap_or(0) as usize;
    let is_brief = scope.query.flag("brief");
    let most = if is_brief { MOST_BRIEF_ROWS } else { MOST_ROWS };
    let limit = scope.query.limited("limit", 100, (1, most))? as usize;
    let device = model.groups[group as usize].device;
    let mut uses = measure(scope, &view, &model.steps_of(device));
    match sort {
        "growth_bytes" => uses.sort_by_key(|used| used.growth_bytes),
        "peak_bytes" => uses.sort_by_key(|used| used.peak_bytes),
        "end_bytes" => uses.sort_by_key(|used| used.end_bytes),
        _ => {}
    }
    if scope.query.flag("descending") {
        uses.reverse();
    }
    let key = (device, model.groups[group as usize].pool);
    let growth = scope
        .findings()
        .and_then(|findings| findings.growth.iter().find(|(known, _)| *known == key).map(|(_, bytes)| *bytes));
    let page: Result<Vec<Value>, Problem> =
        uses.iter().skip(offset).take(limit).map(|used| shown(scope, &view, used, is_brief)).collect();
    Ok(json!({ "total": uses.len(), "offset": offset, "bytes_per_step": growth, "rows": page? }))
}

fn measure(scope: &Scope<'_>, view: &View, steps: &[Step]) -> Vec<StepUse> {
    let blocks = &scope.model.blocks;
    let changes = &view.changes;
    let mut previous: Option<(usize, u64)> = None;
    let measure_one = |step: &Step| {
        let first = changes.made_before(step.start, blocks);
        let made = changes.made_before(step.end.saturating_add(1), blocks);
        let piece = changes.piece(first, made.max(first), blocks);
        let (start_bytes, end_bytes) = (changes.bytes_after(first, blocks), changes.bytes_after(made, blocks));
        let (made_before, before_bytes) = previous.unwrap_or((first, start_bytes));
        previous = Some((made, end_bytes));
        StepUse {
            step: *step,
            made,
            made_before,
            start_bytes,
            end_bytes,
            peak_bytes: piece.most,
            peak_at: changes.time_of(piece.most_at, blocks).max(step.start),
            growth_bytes: end_bytes as i64 - before_bytes as i64,
        }
    };
    steps.iter().map(measure_one).collect()
}

fn shown(scope: &Scope<'_>, view: &View, used: &StepUse, is_brief: bool) -> Answer {
    let mut value = json!({
        "step": used.step.number,
        "start": scope.shown(used.step.start),
        "end": scope.shown(used.step.end),
        "start_bytes": used.start_bytes,
        "end_bytes": used.end_bytes,
        "peak_bytes": used.peak_bytes,
        "peak_t": scope.shown(used.peak_at),
        "growth_bytes": used.growth_bytes,
    });
    if !is_brief {
        add_details(scope, view, used, &mut value)?;
    }
    Ok(value)
}

/// What a step kept, and which call sites grew.
fn add_details(scope: &Scope<'_>, view: &View, used: &StepUse, value: &mut Value) -> Result<(), Problem> {
    let (blocks, stacks) = (&scope.model.blocks, &scope.model.stacks);
    let line = |block: usize| stacks.sites[blocks.site[block] as usize].line;
    let growth = view.changes.growth(used.made_before, used.made, blocks, line);
    let mut kept = Held::default();
    let filter = scope.block_filter()?;
    let first = blocks.start.partition_point(|&start| start < used.step.start);
    let last = blocks.start.partition_point(|&start| start <= used.step.end);
    for block in first..last {
        let is_kept = blocks.end[block] > used.step.end && blocks.group[block] == view.group;
        if is_kept && filter.passes(block as u32) {
            kept.add(blocks.bytes[block]);
        }
    }
    value["kept_bytes"] = json!(kept.bytes);
    value["kept_blocks"] = json!(kept.blocks);
    value["grew"] = json!(grew(scope, growth));
    Ok(())
}

/// The call sites that hold more than before, the largest growth first.
fn grew(scope: &Scope<'_>, growth: FxHashMap<u32, i64>) -> Vec<Value> {
    let mut growth: Vec<(u32, i64)> = growth.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    growth.sort_by_key(|&(line, bytes)| (Reverse(bytes), line));
    let named = |&(line, bytes): &(u32, i64)| {
        let (file, number, function) = scope.place(line);
        json!({
            "site": line,
            "label": scope.model.stacks.lines[line as usize].text,
            "bytes": bytes,
            "file": file,
            "line": number,
            "function": function,
        })
    };
    growth.iter().take(NAMED_SITES).map(named).collect()
}
