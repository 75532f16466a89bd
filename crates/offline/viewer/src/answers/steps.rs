//! `steps`: use and growth of a pool, step by step, and what grew. `steps/bars`: all of them in a screenful.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::entry::View;
use crate::model::step_use::StepUse;

use super::holds::Held;
use super::least::Least;
use super::scope::Scope;
use super::{Answer, Problem};

/// Call sites that are named per step.
const NAMED_SITES: usize = 3;
/// Steps of one answer.
const MOST_ROWS: u64 = 200;
/// Bars of a chart.
const MOST_BARS: u64 = 1000;

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let model = scope.model;
    let group = scope.group()?;
    let view = scope.entry.view(model, group, &scope.filter()?);
    let uses = view.step_uses(model);
    let is_brief = scope.query.flag("brief");
    let limit = scope.query.limited("limit", 100, (1, MOST_ROWS))? as usize;
    let in_order = |offset: usize| (offset, (offset..uses.len()).take(limit).collect());
    let (offset, chosen) = match (scope.time("around")?, scope.query.number("number")?) {
        // Half of them end before it.
        (Some(time), _) => in_order(uses.partition_point(|used| used.end < time).saturating_sub(limit / 2)),
        (None, Some(number)) => in_order(uses.iter().position(|used| used.number == number).unwrap_or(uses.len())),
        (None, None) => {
            let offset = usize::try_from(scope.query.number("offset")?.unwrap_or(0)).unwrap_or(usize::MAX);
            (offset, ordered(scope, uses, offset, limit)?)
        }
    };
    let key = (model.groups[group as usize].device, model.groups[group as usize].pool);
    let growth = scope
        .findings()
        .and_then(|findings| findings.growth.iter().find(|(known, _)| *known == key).map(|(_, bytes)| *bytes));
    let page: Result<Vec<Value>, Problem> =
        chosen.into_iter().map(|number| shown(scope, &view, &uses[number], is_brief)).collect();
    Ok(json!({ "total": uses.len(), "offset": offset, "bytes_per_step": growth, "rows": page? }))
}

/// A page of steps in the order that is asked for.
fn ordered(scope: &Scope<'_>, uses: &[StepUse], offset: usize, limit: usize) -> Result<Vec<usize>, Problem> {
    let sort = scope.query.word("sort", &["step", "growth_bytes", "peak_bytes", "end_bytes"])?;
    let descending = scope.query.flag("descending");
    let key = |used: &StepUse| match sort {
        // Signed, and in order all the same.
        "growth_bytes" => used.growth_bytes as u64 ^ 1 << 63,
        "peak_bytes" => used.peak_bytes,
        "end_bytes" => used.end_bytes,
        _ => 0,
    };
    let mut least = Least::new(offset.saturating_add(limit));
    for (number, used) in (0u32..).zip(uses) {
        // The greatest are the least of what is turned around.
        least.offer(if descending { (!key(used), !number) } else { (key(used), number) });
    }
    let page = least.finish().into_iter().skip(offset).take(limit);
    Ok(page.map(|(_, number)| if descending { !number } else { number } as usize).collect())
}

/// All steps, as many together in a bar as it takes to show them at once.
pub(super) fn bars(scope: &Scope<'_>) -> Answer {
    let view = scope.entry.view(scope.model, scope.group()?, &scope.filter()?);
    let uses = view.step_uses(scope.model);
    let most = scope.query.limited("bars", 300, (1, MOST_BARS))? as usize;
    let steps_per_bar = uses.len().div_ceil(most).max(1);
    let mut bars: Vec<Value> = Vec::new();
    for (index, together) in uses.chunks(steps_per_bar).enumerate() {
        let (Some(first), Some(last)) = (together.first(), together.last()) else { continue };
        let ends = together.iter().map(|used| used.end_bytes);
        // Of equal peaks the first counts.
        let highest = together.iter().max_by_key(|used| (used.peak_bytes, Reverse(used.start))).unwrap_or(last);
        let growth = together.iter().fold(0i64, |sum, used| sum.saturating_add(used.growth_bytes));
        bars.push(json!({
            "offset": index * steps_per_bar,
            "steps": together.len(),
            "first_step": first.number,
            "last_step": last.number,
            "start": scope.shown(first.start),
            "first_end": scope.shown(first.end),
            "end": scope.shown(last.end),
            "least_end_bytes": ends.clone().min(),
            "most_end_bytes": ends.max(),
            "end_bytes": last.end_bytes,
            "peak_bytes": highest.peak_bytes,
            "peak_t": scope.shown(highest.peak_at),
            "peak_step": highest.number,
            "growth_bytes": growth,
        }));
    }
    Ok(json!({ "total": uses.len(), "steps_per_bar": steps_per_bar, "bars": bars }))
}

fn shown(scope: &Scope<'_>, view: &View, used: &StepUse, is_brief: bool) -> Answer {
    let mut value = json!({
        "step": used.number,
        "start": scope.shown(used.start),
        "end": scope.shown(used.end),
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
    let growth = view.changes.growth(used.made_before as usize, used.made as usize, blocks, line);
    let mut kept = Held::default();
    let filter = scope.block_filter()?;
    let first = blocks.start.partition_point(|&start| start < used.start);
    let last = blocks.start.partition_point(|&start| start <= used.end);
    for block in first..last {
        let is_kept = blocks.end[block] > used.end && blocks.group[block] == view.group;
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
