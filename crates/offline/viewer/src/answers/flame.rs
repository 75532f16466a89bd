//! `flame`: who allocated what is in use at a moment, leaks, or the difference of two moments.

use msmemscope_report::units::bytes;
use serde_json::{Value, json};

use crate::entry::View;
use crate::model::stacks::FrameText;
use crate::server::query::Query;
use crate::session::Opened;

use super::flame_tree::{BEFORE, FlameTree, NOW};
use super::holds::{Held, collect, moment};
use super::scope::Scope;
use super::{Answer, Problem};

pub(super) fn answer(scope: &Scope<'_>, opened: &Opened) -> Answer {
    let kind = scope.query.word("kind", &["peak", "time", "window", "leaked", "difference"])?;
    let is_inverted = scope.query.flag("invert");
    let smallest: f64 = match scope.query.text("minimum").map(str::parse) {
        None => 0.001,
        Some(Ok(share)) if (0.0..=1.0).contains(&share) => share,
        Some(_) => return Err(Problem::Bad("'minimum' must be a number from 0 to 1".to_owned())),
    };
    let mut tree = FlameTree::new();
    let mut value = json!({ "kind": kind });
    match kind {
        "leaked" => add_leaks(scope, is_inverted, &mut tree)?,
        "difference" => add_difference(scope, opened, is_inverted, &mut tree, &mut value)?,
        "window" => add_window(scope, is_inverted, &mut tree)?,
        kind => {
            let view = view(scope)?;
            let made = if kind == "peak" { view.changes.peak_at } else { moment(scope, &view)? };
            value["t"] = json!(scope.shown(view.changes.time_of(made, &scope.model.blocks)));
            add_moment(scope, &view, made, NOW, is_inverted, &mut tree)?;
        }
    }
    let is_difference = kind == "difference";
    let shown = tree.shown(smallest);
    let total = tree.total(NOW);
    let change = |held: &[Held; 2]| held[NOW].bytes as i64 - held[BEFORE].bytes as i64;
    let own: u64 = shown.iter().map(|node| node.own[NOW].bytes).sum();
    value["total_bytes"] = match is_difference {
        true => json!(total.bytes as i64 - tree.total(BEFORE).bytes as i64),
        false => json!(total.bytes),
    };
    value["total_text"] = json!(bytes(total.bytes));
    value["block_count"] = json!(total.blocks);
    value["pruned_bytes"] = json!(total.bytes.saturating_sub(own));
    value["parent"] = json!(shown.iter().map(|node| node.parent).collect::<Vec<_>>());
    value["blocks"] = json!(shown.iter().map(|node| node.held[NOW].blocks).collect::<Vec<_>>());
    if is_difference {
        value["bytes"] = json!(shown.iter().map(|node| change(&node.held)).collect::<Vec<_>>());
        value["self_bytes"] = json!(shown.iter().map(|node| change(&node.own)).collect::<Vec<_>>());
        value["before_bytes"] = json!(shown.iter().map(|node| node.held[BEFORE].bytes).collect::<Vec<_>>());
    } else {
        value["bytes"] = json!(shown.iter().map(|node| node.held[NOW].bytes).collect::<Vec<_>>());
        value["self_bytes"] = json!(shown.iter().map(|node| node.own[NOW].bytes).collect::<Vec<_>>());
        value["before_bytes"] = json!([]);
    }
    let mut used: Vec<u32> = shown.iter().map(|node| node.frame).collect();
    used.sort_unstable();
    used.dedup();
    let place = |frame: u32| used.binary_search(&frame).unwrap_or(0);
    value["name"] = json!(shown.iter().map(|node| place(node.frame)).collect::<Vec<_>>());
    let frames: Vec<Value> = used.iter().map(|&frame| scope.frame(&tree.frames[frame as usize])).collect();
    value["names"] = json!(frames);
    Ok(value)
}

fn view(scope: &Scope<'_>) -> Result<std::sync::Arc<View>, Problem> {
    Ok(scope.entry.view(scope.model, scope.group()?, &scope.filter()?))
}

/// Adds what the stack of a site holds.
fn add_site(scope: &Scope<'_>, site: u32, moment: usize, held: Held, is_inverted: bool, tree: &mut FlameTree) {
    let stacks = &scope.model.stacks;
    let frames = &stacks.sites[site as usize].stack;
    let frame = |frame: &u32| &stacks.frames[*frame as usize];
    if frames.is_empty() {
        let stand_in = FrameText { function: stacks.line_text(site).into(), ..FrameText::default() };
        return tree.add([&stand_in].into_iter(), moment, held);
    }
    match is_inverted {
        true => tree.add(frames.iter().rev().map(frame), moment, held),
        false => tree.add(frames.iter().map(frame), moment, held),
    }
}

fn add_moment(
    scope: &Scope<'_>,
    view: &View,
    made: usize,
    moment: usize,
    is_inverted: bool,
    tree: &mut FlameTree,
) -> Result<(), Problem> {
    let held = collect(scope, view, made, |block| scope.model.blocks.site[block])?;
    let mut sites: Vec<(u32, Held)> = held.into_iter().collect();
    sites.sort_unstable_by_key(|(site, _)| *site);
    sites.into_iter().for_each(|(site, held)| add_site(scope, site, moment, held, is_inverted, tree));
    Ok(())
}

/// What was allocated in a window and not freed in it.
fn add_window(scope: &Scope<'_>, is_inverted: bool, tree: &mut FlameTree) -> Result<(), Problem> {
    let (from, to) = scope.window()?;
    let group = scope.group()?;
    let filter = scope.block_filter()?;
    let blocks = &scope.model.blocks;
    let mut held = vec![Held::default(); scope.model.stacks.sites.len()];
    let first = blocks.start.partition_point(|&start| start < from);
    let last = blocks.start.partition_point(|&start| start < to);
    for block in first..last {
        if blocks.end[block] >= to && blocks.group[block] == group && filter.passes(block as u32) {
            held[blocks.site[block] as usize].add(blocks.bytes[block]);
        }
    }
    for (site, held) in held.into_iter().enumerate().filter(|(_, held)| held.blocks > 0) {
        add_site(scope, site as u32, NOW, held, is_inverted, tree);
    }
    Ok(())
}

/// What the analyses call leaks.
fn add_leaks(scope: &Scope<'_>, is_inverted: bool, tree: &mut FlameTree) -> Result<(), Problem> {
    let Some(findings) = scope.findings() else { return Ok(()) };
    let device = scope.device()?;
    let pool = scope.query.text("pool").map(super::scope::parse_pool).transpose()?;
    let filter = scope.filter()?;
    for leak in findings.leaks.iter().filter(|leak| filter.names(scope.model, &leak.site)) {
        if device.is_some_and(|device| device != leak.group.0) || pool.is_some_and(|pool| pool != leak.group.1) {
            continue;
        }
        let mut frames: Vec<FrameText> =
            leak.site.whole_stack().into_iter().map(|(frame, is_python)| FrameText::new(frame, is_python)).collect();
        if frames.is_empty() {
            frames.push(FrameText { function: leak.site.line.as_str().into(), ..FrameText::default() });
        }
        if is_inverted {
            frames.reverse();
        }
        tree.add(frames.iter(), NOW, Held { bytes: leak.bytes, blocks: leak.blocks });
    }
    Ok(())
}

/// One moment against another, or the peak of another recording against that of this one.
fn add_difference(
    scope: &Scope<'_>,
    opened: &Opened,
    is_inverted: bool,
    tree: &mut FlameTree,
    value: &mut Value,
) -> Result<(), Problem> {
    let own = view(scope)?;
    let blocks = &scope.model.blocks;
    let Some(other) = scope.query.text("r2") else {
        let (from, to) = (scope.needed_time("t0")?, scope.needed_time("t1")?);
        value["t"] = json!(scope.shown(to));
        let made = |time: u64| own.changes.made_before(time.saturating_add(1), blocks);
        add_moment(scope, &own, made(from), BEFORE, is_inverted, tree)?;
        return add_moment(scope, &own, made(to), NOW, is_inverted, tree);
    };
    let mut query = format!("r={other}");
    for name in ["device", "pool"] {
        if let Some(text) = scope.query.text(name) {
            query.push_str(&format!("&{name}={text}"));
        }
    }
    let query = Query::parse(&query);
    let other = Scope::new(super::entry(opened, &query)?, &query)?;
    add_moment(scope, &own, own.changes.peak_at, BEFORE, is_inverted, tree)?;
    let second = view(&other)?;
    add_moment(&other, &second, second.changes.peak_at, NOW, is_inverted, tree)
}
