//! That a model leads nowhere beyond itself: every number that stands for a place in a table is one of that table.
//! Models that were built are right by their making; this is for those that come from a file.

use super::stored::Unusable;
use crate::model::Model;
use crate::model::events::{EventCode, NOTHING};
use crate::model::series::StepSeries;
use crate::model::spans::{Lane, Lanes};

pub(super) fn check(model: &Model) -> Result<(), Unusable> {
    let is_good = groups_fit(model)
        && blocks_fit(model)
        && events_fit(model)
        && stacks_fit(model)
        && [&model.operators, &model.ranges, &model.kernels, &model.calls].into_iter().all(lanes_fit)
        && model.instants.iter().all(|instants| instants.at.len() == instants.name.len())
        && model.steps.iter().all(|step| step.start <= step.end);
    if is_good { Ok(()) } else { Err(Unusable("its parts do not fit together")) }
}

/// Whether all numbers are places in a table of this length.
fn within<T: Copy + Into<u64>>(places: &[T], length: usize) -> bool {
    places.iter().map(|&place| place.into()).max().is_none_or(|last| last < length as u64)
}

fn groups_fit(model: &Model) -> bool {
    let lengths = [model.peaks.len(), model.end_bytes.len(), model.reserved.len(), model.regions.len()];
    let is_even = |series: &StepSeries| series.time.len() == series.value.len();
    lengths.iter().all(|length| *length == model.groups.len())
        && model.reserved.iter().all(is_even)
        && model.cards.iter().all(|card| is_even(&card.used) && is_even(&card.process))
}

fn blocks_fit(model: &Model) -> bool {
    let blocks = &model.blocks;
    let lengths = [
        blocks.address.len(),
        blocks.bytes.len(),
        blocks.end.len(),
        blocks.y.len(),
        blocks.allocation.len(),
        blocks.site.len(),
        blocks.owner.len(),
        blocks.step.len(),
        blocks.group.len(),
        blocks.thread.len(),
        blocks.flags.len(),
    ];
    let touched = blocks.accesses.len();
    lengths.iter().all(|length| *length == blocks.len())
        && touched <= blocks.len()
        && blocks.first_access.len() == touched
        && blocks.last_access.len() == touched
        && within(&blocks.site, model.stacks.sites.len())
        && within(&blocks.owner, model.owners.len())
        && within(&blocks.group, model.groups.len())
        && within(&blocks.thread, model.threads.len())
        && blocks.start.iter().zip(&blocks.end).all(|(start, end)| start <= end)
}

fn events_fit(model: &Model) -> bool {
    let events = &model.events;
    let lengths =
        [events.reference.len(), events.name.len(), events.thread.len(), events.device.len(), events.code.len()];
    let (blocks, details) = (model.blocks.len() as u64, events.details.len() as u64);
    let is_within = |(&code, &reference): (&u8, &u32)| {
        let end = if code <= EventCode::Access as u8 { blocks } else { details };
        u64::from(reference) < end || reference == NOTHING && code > EventCode::Free as u8
    };
    lengths.iter().all(|length| *length == events.len())
        && within(&events.thread, model.threads.len())
        && events.code.iter().zip(&events.reference).all(is_within)
}

fn stacks_fit(model: &Model) -> bool {
    let stacks = &model.stacks;
    let frames = stacks.frames.len();
    stacks.sites.iter().all(|site| {
        within(&site.stack, frames) && within(&site.native, frames) && (site.line as usize) < stacks.lines.len()
    }) && stacks.lines.iter().all(|line| line.frame.is_none_or(|frame| (frame as usize) < frames))
}

fn lanes_fit(lanes: &Lanes) -> bool {
    let is_orderly = |lane: &Lane| {
        lane.end.len() == lane.len()
            && lane.name.len() == lane.len()
            && lane.start.iter().zip(&lane.end).all(|(start, end)| start < end)
            && lane.end.iter().zip(lane.start.iter().skip(1)).all(|(end, next)| end <= next)
    };
    lanes.threads.iter().flat_map(|(_, lanes)| lanes).all(is_orderly)
}
