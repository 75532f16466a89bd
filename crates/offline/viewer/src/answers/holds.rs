//! `holds` and `owners`: what is in use at a moment, by owner, call site, size, thread or step.

use msmemscope_analysis::decompose::{OwnerUse, tree};
use msmemscope_analysis::grouping::UseNode;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::entry::View;
use crate::model::changes::{SIZE_CLASSES, size_class};

use super::scope::Scope;
use super::{Answer, Problem};

/// Levels of the owner tree.
const MOST_LEVELS: usize = 8;

/// Bytes and blocks of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

impl Held {
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.blocks += 1;
    }
}

/// How many changes of a view were made at the moment that was asked for: at `t`, else at the peak.
pub(super) fn moment(scope: &Scope<'_>, view: &View) -> Result<usize, Problem> {
    Ok(match scope.time("t")? {
        Some(time) => view.changes.made_before(time.saturating_add(1), &scope.model.blocks),
        None => view.changes.peak_at,
    })
}

/// The time of a moment, as it was asked for or found.
fn moment_time(scope: &Scope<'_>, view: &View, made: usize) -> Result<u64, Problem> {
    let asked = scope.query.number("t")?;
    Ok(asked.unwrap_or_else(|| scope.shown(view.changes.time_of(made, &scope.model.blocks))))
}

/// What is in use at a moment, by whatever a block belongs to.
pub(super) fn collect(
    scope: &Scope<'_>,
    view: &View,
    made: usize,
    key: impl Fn(usize) -> u32,
) -> Result<FxHashMap<u32, Held>, Problem> {
    let mut held: FxHashMap<u32, Held> = FxHashMap::default();
    let blocks = &scope.model.blocks;
    view.changes.for_each_alive(made, blocks, view.group, &scope.block_filter()?, |block| {
        held.entry(key(block as usize)).or_default().add(blocks.bytes[block as usize]);
    });
    Ok(held)
}

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let model = scope.model;
    let (blocks, stacks) = (&model.blocks, &model.stacks);
    let by = scope.query.word("by", &["owner", "site", "size", "thread", "step"])?;
    let limit = scope.query.limited("limit", 50, (1, 500))? as usize;
    let view = scope.entry.view(model, scope.group()?, &scope.filter()?);
    let made = moment(scope, &view)?;
    let line = |block: usize| stacks.sites[blocks.site[block] as usize].line;
    let held = collect(scope, &view, made, |block| match by {
        "owner" => blocks.owner[block],
        "site" => line(block),
        "size" => size_class(blocks.bytes[block]),
        "thread" => u32::from(blocks.thread[block]),
        _ => blocks.step[block],
    })?;
    let mut rows: Vec<(u32, Held)> = held.into_iter().collect();
    rows.sort_by_key(|&(key, held)| (u64::MAX - held.bytes, key));
    let total = sum(&rows);
    let rest = sum(&rows[limit.min(rows.len())..]);
    let shown = |&(key, held): &(u32, Held)| {
        let label = match by {
            "owner" => model.owners[key as usize].clone(),
            "site" => stacks.lines[key as usize].text.to_string(),
            "size" => SIZE_CLASSES[key as usize].1.to_owned(),
            "thread" => model.threads[key as usize].to_string(),
            _ => format!("step {key}"),
        };
        let name = if matches!(by, "site" | "step") { key.to_string() } else { label.clone() };
        let mut row = json!({ "key": name, "label": label, "bytes": held.bytes, "blocks": held.blocks });
        if by == "site" {
            let (file, line, function) = scope.place(key);
            (row["file"], row["line"], row["function"]) = (file, line, function);
        }
        row
    };
    let more = rows.len().saturating_sub(limit);
    Ok(json!({
        "t": moment_time(scope, &view, made)?,
        "used_bytes": total.bytes,
        "blocks": total.blocks,
        "by": by,
        "rows": rows.iter().take(limit).map(shown).collect::<Vec<_>>(),
        "more": { "rows": more, "bytes": rest.bytes, "blocks": rest.blocks },
    }))
}

fn sum(rows: &[(u32, Held)]) -> Held {
    rows.iter().fold(Held::default(), |sum, (_, held)| Held {
        bytes: sum.bytes.saturating_add(held.bytes),
        blocks: sum.blocks + held.blocks,
    })
}

pub(super) fn owners(scope: &Scope<'_>) -> Answer {
    let model = scope.model;
    let view = scope.entry.view(model, scope.group()?, &scope.filter()?);
    let made = moment(scope, &view)?;
    let held = collect(scope, &view, made, |block| model.blocks.owner[block])?;
    let uses: Vec<OwnerUse> = held
        .iter()
        .map(|(&owner, held)| OwnerUse {
            owner: model.owners[owner as usize].clone(),
            bytes: held.bytes,
            blocks: held.blocks,
        })
        .collect();
    let nodes = tree(&uses);
    let total = uses.iter().fold(0u64, |sum, used| sum.saturating_add(used.bytes));
    let blocks: u64 = uses.iter().map(|used| used.blocks).sum();
    Ok(json!({
        "t": moment_time(scope, &view, made)?,
        "total_bytes": total,
        "tree": {
            "name": "",
            "owner": "",
            "bytes": total,
            "blocks": blocks,
            "self_bytes": 0,
            "children": nodes.iter().map(|node| shown_node(node, "", 1)).collect::<Vec<_>>(),
        },
    }))
}

fn shown_node(node: &UseNode, above: &str, level: usize) -> Value {
    let owner = if above.is_empty() { node.name.clone() } else { format!("{above}@{}", node.name) };
    let below = node.children.iter().fold(0u64, |sum, child| sum.saturating_add(child.bytes));
    let children: Vec<Value> = match level < MOST_LEVELS {
        true => node.children.iter().map(|child| shown_node(child, &owner, level + 1)).collect(),
        false => Vec::new(),
    };
    json!({
        "name": node.name,
        "owner": owner,
        "bytes": node.bytes,
        "blocks": node.blocks,
        "self_bytes": node.bytes.saturating_sub(below),
        "children": children,
    })
}
