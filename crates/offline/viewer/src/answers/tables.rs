//! `table/blocks` and `table/events`: rows, with pages, order and filters, as JSON or csv.

use msmemscope_event::Device;
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use crate::findings::inefficiency_names;
use crate::model::Step;
use crate::model::blocks::ALIVE;
use crate::model::events::{NOTHING, words};
use crate::model::filter::{BlockFilter, Filter};
use crate::model::texts::TextId;
use crate::server::response::Response;

use super::least::Least;
use super::scope::{Scope, address, end};
use super::{Answer, Problem};

const LARGEST_PAGE: u64 = 500;
const MOST_CSV_ROWS: usize = 1_000_000;

const BLOCK_COLUMNS: [&str; 18] = [
    "block",
    "allocation_id",
    "address",
    "bytes",
    "start",
    "end",
    "lifetime",
    "owner",
    "pool",
    "device",
    "thread",
    "step",
    "operator",
    "line",
    "first_access",
    "last_access",
    "accesses",
    "inefficient",
];
const EVENT_COLUMNS: [&str; 12] =
    ["event", "t", "kind", "name", "device", "pool", "thread", "step", "address", "bytes", "block", "detail"];

/// Which part of all rows is wanted.
struct Page {
    offset: usize,
    limit: usize,
}

fn page(scope: &Scope<'_>) -> Result<Page, Problem> {
    let offset = scope.query.number("offset")?.unwrap_or(0);
    let limit = scope.query.limited("limit", 100, (1, LARGEST_PAGE))?;
    Ok(Page { offset: usize::try_from(offset).unwrap_or(usize::MAX), limit: limit as usize })
}

/// Which blocks are meant, by when they are alive.
#[derive(Clone, Copy)]
enum Alive {
    Window,
    Any,
    End,
    Kept,
    Leaked,
}

/// Calls back for the blocks that are meant, in the order of their start.
fn for_each_chosen_block(scope: &Scope<'_>, mut take: impl FnMut(u32)) -> Result<(), Problem> {
    let model = scope.model;
    let blocks = &model.blocks;
    let (from, to) = scope.window()?;
    let alive = match scope.query.word("alive", &["window", "any", "end", "kept", "leaked"])? {
        "end" => Alive::End,
        "kept" => Alive::Kept,
        "leaked" => Alive::Leaked,
        "any" => Alive::Any,
        _ => Alive::Window,
    };
    let group = match (scope.query.text("device"), scope.query.text("pool")) {
        (None, None) => None,
        _ => Some(scope.group()?),
    };
    let findings = scope.findings();
    let is_inefficient = |block: usize| {
        let bits = findings.and_then(|findings| findings.inefficiency.get(blocks.allocation[block] as usize));
        bits.is_some_and(|bits| *bits != 0)
    };
    let only_inefficient = scope.query.flag("inefficient");
    let is_meant = |block: usize| match alive {
        Alive::End => blocks.end[block] == ALIVE,
        Alive::Kept => (from..to).contains(&blocks.start[block]) && blocks.end[block] >= to,
        Alive::Leaked => {
            findings.is_some_and(|findings| findings.leaked.contains(&u64::from(blocks.allocation[block])))
        }
        Alive::Window | Alive::Any => true,
    };
    let filter = scope.block_filter()?;
    let mut consider = |block: u32| {
        let index = block as usize;
        let passes = group.is_none_or(|group| blocks.group[index] == group)
            && is_meant(index)
            && filter.passes(block)
            && (!only_inefficient || is_inefficient(index));
        if passes {
            take(block);
        }
    };
    match alive {
        Alive::Window => blocks.for_each_in(from, to, consider),
        _ => (0..blocks.len() as u32).for_each(&mut consider),
    }
    Ok(())
}

/// Blocks that are meant: how many, their bytes, and the first of them in the order that was asked for, as far as the
/// page reaches.
struct ChosenBlocks {
    total: usize,
    bytes: u64,
    first: Vec<u32>,
}

fn chosen_blocks(scope: &Scope<'_>, until: usize) -> Result<ChosenBlocks, Problem> {
    let blocks = &scope.model.blocks;
    let words = ["start", "end", "bytes", "lifetime", "address", "accesses", "idle"];
    let last = scope.model.last_ns;
    // One walk per order: what is asked of every block is decided once.
    match scope.query.word("sort", &words)? {
        "end" => ordered_blocks(scope, until, |block| blocks.end[block as usize]),
        "bytes" => ordered_blocks(scope, until, |block| blocks.bytes[block as usize]),
        "lifetime" => ordered_blocks(scope, until, |block| {
            blocks.end[block as usize].min(last).saturating_sub(blocks.start[block as usize])
        }),
        "address" => ordered_blocks(scope, until, |block| blocks.address[block as usize]),
        "accesses" => {
            ordered_blocks(scope, until, |block| blocks.accesses(block).map_or(0, |(count, ..)| u64::from(count)))
        }
        "idle" => ordered_blocks(scope, until, |block| {
            let start = blocks.start[block as usize];
            let latest = blocks.accesses(block).map_or(start, |(_, _, last_access)| last_access);
            blocks.end[block as usize].min(last).saturating_sub(latest)
        }),
        _ => ordered_blocks(scope, until, u64::from),
    }
}

fn ordered_blocks(scope: &Scope<'_>, until: usize, key: impl Fn(u32) -> u64) -> Result<ChosenBlocks, Problem> {
    let blocks = &scope.model.blocks;
    let descending = scope.query.flag("descending");
    let mut least = Least::new(until);
    let (mut total, mut bytes) = (0, 0u64);
    for_each_chosen_block(scope, |block| {
        total += 1;
        bytes = bytes.saturating_add(blocks.bytes[block as usize]);
        // The greatest are the least of what is turned around.
        least.offer(if descending { (!key(block), !block) } else { (key(block), block) });
    })?;
    let first = least.finish().into_iter().map(|(_, block)| if descending { !block } else { block }).collect();
    Ok(ChosenBlocks { total, bytes, first })
}

fn block_row(scope: &Scope<'_>, block: u32) -> Vec<Value> {
    let model = scope.model;
    let blocks = &model.blocks;
    let index = block as usize;
    let group = model.groups[blocks.group[index] as usize];
    let site = &model.stacks.sites[blocks.site[index] as usize];
    let accesses = blocks.accesses(block);
    let bits = scope.findings().and_then(|findings| findings.inefficiency.get(blocks.allocation[index] as usize));
    vec![
        json!(block),
        json!(blocks.allocation[index]),
        json!(address(blocks.address[index])),
        json!(blocks.bytes[index]),
        json!(scope.shown(blocks.start[index])),
        json!(end(scope, blocks.end[index])),
        json!(blocks.end[index].min(model.last_ns).saturating_sub(blocks.start[index])),
        json!(model.owners[blocks.owner[index] as usize]),
        json!(group.pool.event_type()),
        json!(group.device.to_string()),
        json!(model.threads[blocks.thread[index] as usize]),
        json!(blocks.step[index]),
        json!(model.texts.get(site.operator)),
        json!(model.stacks.lines[site.line as usize].text),
        json!(accesses.map(|(_, first, _)| scope.shown(first))),
        json!(accesses.map(|(_, _, last)| scope.shown(last))),
        json!(accesses.map_or(0, |(count, ..)| count)),
        json!(inefficiency_names(bits.copied().unwrap_or(0)).join(",")),
    ]
}

pub(super) fn blocks(scope: &Scope<'_>) -> Answer {
    let Page { offset, limit } = page(scope)?;
    let ChosenBlocks { total, bytes, first } = chosen_blocks(scope, offset.saturating_add(limit))?;
    let rows: Vec<Vec<Value>> = first.iter().skip(offset).take(limit).map(|&block| block_row(scope, block)).collect();
    Ok(json!({ "total": total, "total_bytes": bytes, "offset": offset, "columns": BLOCK_COLUMNS, "rows": rows }))
}

pub(super) fn blocks_csv(scope: &Scope<'_>) -> Result<Response, Problem> {
    let chosen = chosen_blocks(scope, MOST_CSV_ROWS)?;
    let rows = chosen.first.iter().map(|&block| block_row(scope, block));
    Ok(csv("blocks.csv", &BLOCK_COLUMNS, rows))
}

/// What events about blocks must be about, and others are not.
struct AboutBlocks<'s> {
    /// The pool that was asked for; events about nothing in a pool belong to none.
    group: Option<u16>,
    filter: BlockFilter<'s>,
    /// Whether owner, call site or size are asked for, which nothing but blocks has.
    is_needed: bool,
}

impl<'s> AboutBlocks<'s> {
    fn new(scope: &Scope<'s>) -> Result<Self, Problem> {
        let group = scope.query.text("pool").map(|_| scope.group()).transpose()?;
        // Threads, steps and words are those of the event.
        let filter = Filter { thread: None, step: None, text: None, ..scope.filter()? };
        Ok(Self { group, filter: BlockFilter::new(scope.model, &filter), is_needed: !filter.is_empty() })
    }

    fn is_empty(&self) -> bool {
        self.group.is_none() && !self.is_needed
    }

    #[inline]
    fn passes(&self, scope: &Scope<'_>, event: usize) -> bool {
        let events = &scope.model.events;
        match events.is_about_block(event) && events.reference[event] != NOTHING {
            true => {
                let block = events.reference[event];
                self.group.is_none_or(|group| scope.model.blocks.group[block as usize] == group)
                    && self.filter.passes(block)
            }
            false => !self.is_needed,
        }
    }
}

/// When a step was, on one device each.
fn step_times(scope: &Scope<'_>) -> Result<Option<Vec<Step>>, Problem> {
    let of_number = |wanted: u64| scope.model.steps.iter().filter(|step| step.number == wanted).copied().collect();
    Ok(scope.query.number("step")?.map(of_number))
}

/// How many events are meant, and those of a page of them. With words, those whose name, or whose block's owner or call
/// site, has them.
fn chosen_events(scope: &Scope<'_>, page: &Page) -> Result<(usize, Vec<u32>), Problem> {
    let model = scope.model;
    let events = &model.events;
    let (from, to) = scope.window()?;
    // What belongs to no device passes with any.
    let devices = scope.device()?.map(|device: Device| [device, Device::Unknown].map(|device| device.code() as u16));
    let thread = scope.query.number("thread")?.map(|wanted| {
        let position = model.threads.iter().position(|&thread| u64::from(thread) == wanted);
        position.map_or(u16::MAX, |position| position as u16)
    });
    let kinds: Option<Vec<bool>> = scope.query.text("kind").map(|text| {
        let wanted: Vec<&str> = text.split(',').collect();
        (0..=u8::MAX).map(|code| wanted.contains(&words(code).0)).collect()
    });
    let texts = scope.query.text("text").map(str::to_lowercase).map(|wanted| {
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let names: FxHashSet<TextId> =
            model.texts.known.iter().filter(|(_, text)| has(text)).map(|(id, _)| *id).collect();
        let filter = Filter { text: Some(wanted), ..Filter::default() };
        (names, BlockFilter::new(model, &filter))
    });
    let steps = step_times(scope)?;
    let about_blocks = AboutBlocks::new(scope)?;
    let first = events.time.partition_point(|&time| time < from);
    let last = events.time.partition_point(|&time| time < to);
    let passes = |event: &usize| {
        let event = *event;
        kinds.as_ref().is_none_or(|kinds| kinds[events.code[event] as usize])
            && devices.is_none_or(|devices| devices.contains(&events.device[event]))
            && thread.is_none_or(|thread| events.thread[event] == thread)
            && steps.as_ref().is_none_or(|steps| {
                let (time, device) = (events.time[event], events.device(event));
                let is_in = |step: &Step| {
                    [device, Device::Unknown].contains(&step.device) && (step.start..step.end).contains(&time)
                };
                steps.iter().any(is_in)
            })
            && about_blocks.passes(scope, event)
            && texts.as_ref().is_none_or(|(names, blocks)| {
                let is_named = events.name[event] != 0 && names.contains(&events.name[event]);
                let reference = events.reference[event];
                is_named || events.is_about_block(event) && reference != NOTHING && blocks.passes(reference)
            })
    };
    let descending = scope.query.flag("descending");
    let until = page.offset.saturating_add(page.limit);
    let is_all = kinds.is_none() && devices.is_none() && thread.is_none() && texts.is_none() && steps.is_none();
    if is_all && about_blocks.is_empty() {
        let total = last - first;
        let wanted = page.offset.min(total)..until.min(total);
        let event = |place: usize| (if descending { last - 1 - place } else { first + place }) as u32;
        return Ok((total, wanted.map(event).collect()));
    }
    let (mut total, mut wanted) = (0, Vec::new());
    let mut take = |event: usize| {
        if (page.offset..until).contains(&total) {
            wanted.push(event as u32);
        }
        total += 1;
    };
    match descending {
        true => (first..last).rev().filter(passes).for_each(&mut take),
        false => (first..last).filter(passes).for_each(&mut take),
    }
    Ok((total, wanted))
}

fn event_row(scope: &Scope<'_>, event: u32) -> Vec<Value> {
    let model = scope.model;
    let events = &model.events;
    let index = event as usize;
    let (kind, phase) = words(events.code[index]);
    let reference = events.reference[index];
    let device = events.device(index);
    let (mut pool, mut place, mut bytes, mut block, mut detail) =
        (Value::Null, Value::Null, Value::Null, Value::Null, json!(phase));
    if reference != NOTHING && events.is_about_block(index) {
        let at = reference as usize;
        pool = json!(model.groups[model.blocks.group[at] as usize].pool.event_type());
        place = json!(address(model.blocks.address[at]));
        bytes = json!(model.blocks.bytes[at]);
        block = json!(reference);
        if phase.is_empty() {
            detail = json!(model.stacks.line_text(model.blocks.site[at]));
        }
    } else if let Some(known) = events.details.get(reference as usize) {
        place = if known.address == 0 { Value::Null } else { json!(address(known.address)) };
        bytes = json!(known.bytes);
        detail = json!(model.texts.get(known.text));
    }
    vec![
        json!(event),
        json!(scope.shown(events.time[index])),
        json!(kind),
        json!(model.texts.get(events.name[index])),
        json!(device.to_string()),
        pool,
        json!(model.threads[events.thread[index] as usize]),
        json!(model.step_at(device, events.time[index])),
        place,
        bytes,
        block,
        detail,
    ]
}

pub(super) fn events(scope: &Scope<'_>) -> Answer {
    let page = page(scope)?;
    let (total, chosen) = chosen_events(scope, &page)?;
    let rows: Vec<Vec<Value>> = chosen.iter().map(|&event| event_row(scope, event)).collect();
    Ok(json!({
        "total": total,
        "total_exact": true,
        "offset": page.offset,
        "columns": EVENT_COLUMNS,
        "rows": rows,
    }))
}

pub(super) fn events_csv(scope: &Scope<'_>) -> Result<Response, Problem> {
    let (_, chosen) = chosen_events(scope, &Page { offset: 0, limit: MOST_CSV_ROWS })?;
    let rows = chosen.iter().map(|&event| event_row(scope, event));
    Ok(csv("events.csv", &EVENT_COLUMNS, rows))
}

fn csv(name: &'static str, columns: &[&str], rows: impl Iterator<Item = Vec<Value>>) -> Response {
    let mut text = columns.join(",");
    text.push('\n');
    for row in rows {
        for (position, cell) in row.iter().enumerate() {
            if position > 0 {
                text.push(',');
            }
            push_cell(&mut text, cell);
        }
        text.push('\n');
    }
    let mut response = Response::new(200, "text/csv; charset=utf-8", text.into_bytes());
    response.download = Some(name);
    response
}

/// Adds a cell. A text that a spreadsheet would take for a formula gets a quote in front.
fn push_cell(text: &mut String, cell: &Value) {
    let Value::String(cell) = cell else {
        if !cell.is_null() {
            text.push_str(&cell.to_string());
        }
        return;
    };
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if !is_formula && !cell.contains(['"', ',', '\n', '\r']) {
        return text.push_str(cell);
    }
    text.push('"');
    if is_formula {
        text.push('\'');
    }
    text.push_str(&cell.replace('"', "\"\""));
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_are_kept_in_order_and_no_others() {
        let keys: Vec<u64> = (0..10_000).map(|index| index * 7919 % 1009).collect();
        let mut sorted: Vec<(u64, u32)> = keys.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        for wanted in [1, 7, 100, 9999, 10_000, 20_000, usize::MAX] {
            let mut least = Least::new(wanted);
            keys.iter().copied().zip(0..).for_each(|keyed| least.offer(keyed));
            assert_eq!(least.finish(), sorted[..wanted.min(sorted.len())]);
        }
    }

    #[test]
    fn cells_are_quoted_where_needed() {
        let cell = |value: Value| {
            let mut text = String::new();
            push_cell(&mut text, &value);
            text
        };
        assert_eq!(cell(json!("plain")), "plain");
        assert_eq!(cell(json!("a,\"b\"\n")), "\"a,\"\"b\"\"\n\"");
        assert_eq!(cell(json!("=cmd()")), "\"'=cmd()\"");
        assert_eq!((cell(json!(5)), cell(Value::Null)), ("5".to_owned(), String::new()));
    }
}
