//! `block`: the life of one block, with its stack, the operators that touched it, and its neighbours.

use serde_json::{Value, json};

use crate::findings::inefficiency_names;
use crate::model::blocks::{ALIVE, BEFORE_RECORDING, END_NOT_SEEN};
use crate::model::events::{EventCode, words};

use super::scope::{Scope, address, end};
use super::{Answer, Problem};

const MOST_ACCESSES: usize = 200;

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let model = scope.model;
    let blocks = &model.blocks;
    let number = scope.query.number("block")?.ok_or_else(|| Problem::Bad("'block' is missing".to_owned()))?;
    let index = usize::try_from(number).ok().filter(|&index| index < blocks.len());
    let index = index.ok_or_else(|| Problem::Missing(format!("there is no block {number}")))?;
    let group = model.groups[blocks.group[index] as usize];
    let site = &model.stacks.sites[blocks.site[index] as usize];
    let findings = scope.findings();
    let allocation = blocks.allocation[index];
    let bits = findings.and_then(|findings| findings.inefficiency.get(allocation as usize)).copied().unwrap_or(0);
    let is_leaked = findings.is_some_and(|findings| findings.leaked.contains(&u64::from(allocation)));
    let frame = |frame: &u32| scope.frame(&model.stacks.frames[*frame as usize]);
    let (accesses, accesses_total) = accesses(scope, index);
    let [below, above] = neighbours(scope, index);
    let [previous, next] = at_the_same_place(scope, index);
    let end_step = match blocks.end[index] {
        ALIVE => Value::Null,
        end => json!(model.step_at(group.device, end)),
    };
    Ok(json!({
        "block": number,
        "allocation_id": allocation,
        "address": address(blocks.address[index]),
        "bytes": blocks.bytes[index],
        "device": group.device.to_string(),
        "pool": group.pool.event_type(),
        "start": scope.shown(blocks.start[index]),
        "end": end(scope, blocks.end[index]),
        "before_recording": blocks.flags[index] & BEFORE_RECORDING != 0,
        "freed_by_nobody": blocks.flags[index] & END_NOT_SEEN != 0,
        "thread": model.threads[blocks.thread[index] as usize],
        "step": blocks.step[index],
        "end_step": end_step,
        "owner": model.owners[blocks.owner[index] as usize],
        "operator": model.texts.get(site.operator),
        "site": site.line,
        "line": model.stacks.lines[site.line as usize].text,
        "inefficient": inefficiency_names(bits),
        "leaked": is_leaked,
        "stack": site.stack.iter().rev().map(frame).collect::<Vec<_>>(),
        "native": site.native.iter().map(frame).collect::<Vec<_>>(),
        "accesses": accesses,
        "accesses_total": accesses_total,
        "below": below,
        "above": above,
        "previous": previous,
        "next": next,
    }))
}

/// The first accesses of a block, and how many there are.
fn accesses(scope: &Scope<'_>, block: usize) -> (Vec<Value>, u32) {
    let (blocks, events) = (&scope.model.blocks, &scope.model.events);
    let Some((total, first, last)) = blocks.accesses(block as u32) else { return (Vec::new(), 0) };
    let from = events.time.partition_point(|&time| time < first);
    let is_access = |code: u8| (EventCode::Read as u8..=EventCode::Access as u8).contains(&code);
    let found = (from..events.len())
        .take_while(|&event| events.time[event] <= last)
        .filter(|&event| events.reference[event] == block as u32 && is_access(events.code[event]))
        .take(MOST_ACCESSES)
        .map(|event| {
            json!({
                "t": scope.shown(events.time[event]),
                "operator": scope.model.texts.get(events.name[event]),
                "kind": words(events.code[event]).1,
                "thread": scope.model.threads[events.thread[event] as usize],
            })
        });
    (found.collect(), total)
}

fn shown(scope: &Scope<'_>, block: u32, distance_bytes: Option<u64>) -> Value {
    let blocks = &scope.model.blocks;
    let index = block as usize;
    json!({
        "block": block,
        "address": address(blocks.address[index]),
        "bytes": blocks.bytes[index],
        "start": scope.shown(blocks.start[index]),
        "end": end(scope, blocks.end[index]),
        "distance_bytes": distance_bytes,
        "owner": scope.model.owners[blocks.owner[index] as usize],
        "line": scope.model.stacks.line_text(blocks.site[index]),
    })
}

/// The blocks of the same pool next to it when it began: below and above.
fn neighbours(scope: &Scope<'_>, block: usize) -> [Value; 2] {
    let blocks = &scope.model.blocks;
    let (own_start, own_end) = (blocks.address[block], blocks.address[block].saturating_add(blocks.bytes[block]));
    let mut below: Option<(u64, u32)> = None;
    let mut above: Option<(u64, u32)> = None;
    blocks.for_each_alive(blocks.start[block], |other| {
        let index = other as usize;
        if index == block || blocks.group[index] != blocks.group[block] {
            return;
        }
        let (start, end) = (blocks.address[index], blocks.address[index].saturating_add(blocks.bytes[index]));
        if end <= own_start && below.is_none_or(|(distance, _)| own_start - end < distance) {
            below = Some((own_start - end, other));
        } else if start >= own_end && above.is_none_or(|(distance, _)| start - own_end < distance) {
            above = Some((start - own_end, other));
        }
    });
    [below, above].map(|found| found.map_or(Value::Null, |(distance, other)| shown(scope, other, Some(distance))))
}

/// The last block before it and the first after it that had some of its memory.
fn at_the_same_place(scope: &Scope<'_>, block: usize) -> [Value; 2] {
    let blocks = &scope.model.blocks;
    let (start, end) = (blocks.address[block], blocks.address[block].saturating_add(blocks.bytes[block]));
    let overlaps = |other: &usize| {
        blocks.address[*other] < end
            && blocks.address[*other].saturating_add(blocks.bytes[*other]) > start
            && blocks.group[*other] == blocks.group[block]
    };
    let previous = (0..block).rev().find(overlaps);
    let next = (block + 1..blocks.len()).find(overlaps);
    [previous, next].map(|found| found.map_or(Value::Null, |other| shown(scope, other as u32, None)))
}
