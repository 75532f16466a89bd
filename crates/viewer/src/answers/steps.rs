//! `steps`: use and growth of a pool, step by step, and what grew.

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::model::Step;
use crate::session::View;

use super::holds::{Held, collect};
use super::scope::Scope;
use super::{Answer, Problem};

/// Call sites that are named per step.
const NAMED_SITES: usize = 3;

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
    let limit = scope.query.limited("limit", 100, (1, 200))? as usize;
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
        uses.iter().skip(offset).take(limit).map(|used| shown(scope, &view, used)).collect();
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

fn shown(scope: &Scope<'_>, view: &View, used: &StepUse) -> Answer {
    let (blocks, stacks) = (&scope.model.blocks, &scope.model.stacks);
    let line = |block: usize| stacks.sites[blocks.site[block] as usize].line;
    let before = collect(scope, view, used.made_before, line)?;
    let after = collect(scope, view, used.made, line)?;
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
    Ok(json!({
        "step": used.step.number,
        "start": scope.shown(used.step.start),
        "end": scope.shown(used.step.end),
        "start_bytes": used.start_bytes,
        "end_bytes": used.end_bytes,
        "peak_bytes": used.peak_bytes,
        "peak_t": scope.shown(used.peak_at),
        "growth_bytes": used.growth_bytes,
        "kept_bytes": kept.bytes,
        "kept_blocks": kept.blocks,
        "grew": grew(scope, &before, &after),
    }))
}

/// The call sites that hold more than before, the largest growth first.
fn grew(scope: &Scope<'_>, before: &FxHashMap<u32, Held>, after: &FxHashMap<u32, Held>) -> Vec<Value> {
    let mut growth: Vec<(u32, u64)> = after
        .iter()
        .map(|(&line, held)| (line, held.bytes.saturating_sub(before.get(&line).map_or(0, |held| held.bytes))))
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    growth.sort_by_key(|&(line, bytes)| (u64::MAX - bytes, line));
    let named = |&(line, bytes): &(u32, u64)| {
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
