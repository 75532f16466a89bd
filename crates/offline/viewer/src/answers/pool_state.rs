//! `pool` and `fragmentation`: segments, blocks and gaps of a pool at a moment, and over time.

use msmemscope_event::{Device, Pool};
use serde_json::{Value, json};

use crate::model::Model;
use crate::model::blocks::IS_SEGMENT;
use crate::model::filter::BlockFilter;

use super::Answer;
use super::scope::{Scope, address};

const MOST_SEGMENTS: usize = 300;
const MOST_PIECES: u64 = 4000;

/// A part of a segment: one block, or several small ones side by side.
#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: u64,
    bytes: u64,
    block: Option<u32>,
    /// Whether the filter means it.
    is_meant: bool,
}

#[derive(Debug, Default)]
struct Segment {
    address: u64,
    bytes: u64,
    used_bytes: u64,
    meant_bytes: u64,
    gaps: u64,
    gap_bytes: u64,
    largest_gap_bytes: u64,
    pieces: Vec<Piece>,
}

impl Segment {
    fn gap(&mut self, bytes: u64) {
        if bytes > 0 {
            self.gaps += 1;
            self.gap_bytes = self.gap_bytes.saturating_add(bytes);
            self.largest_gap_bytes = self.largest_gap_bytes.max(bytes);
        }
    }

    /// Adds a block behind all others.
    fn push(&mut self, piece: Piece, smallest: u64) {
        let Piece { offset, bytes, is_meant, .. } = piece;
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        if is_meant {
            self.meant_bytes = self.meant_bytes.saturating_add(bytes);
        }
        if let Some(last) = self.pieces.last_mut()
            && last.is_meant == is_meant
            && bytes < smallest
            && last.bytes < smallest
            && last.offset.saturating_add(last.bytes) == offset
        {
            last.bytes += bytes;
            last.block = None;
            return;
        }
        self.pieces.push(piece);
    }
}

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let model = scope.model;
    let group = scope.group()?;
    let view = scope.entry.view(model, group, &Default::default());
    let asked = scope.time("t")?;
    let time = asked.unwrap_or_else(|| view.changes.time_of(view.changes.peak_at, &model.blocks));
    let filter = scope.block_filter()?;
    let mut segments = segments_at(model, group, time, &filter);
    let total = |value: fn(&Segment) -> u64| segments.iter().map(value).fold(0, u64::saturating_add);
    let meant_bytes = total(|segment| segment.meant_bytes);
    let (gaps, gap_bytes) = (total(|segment| segment.gaps), total(|segment| segment.gap_bytes));
    let largest = segments.iter().map(|segment| segment.largest_gap_bytes).max().unwrap_or(0);
    let count = segments.len();
    segments.sort_by_key(|segment| u64::MAX - segment.bytes);
    segments.truncate(MOST_SEGMENTS);
    segments.sort_by_key(|segment| segment.address);
    let mut owners: Vec<u32> = Vec::new();
    let shown: Vec<Value> = segments.iter().map(|segment| shown(model, segment, &mut owners)).collect();
    let owners: Vec<&str> = owners.iter().map(|&owner| model.owners[owner as usize].as_str()).collect();
    Ok(json!({
        "t": scope.shown(time),
        "device": model.groups[group as usize].device.to_string(),
        "pool": model.groups[group as usize].pool.event_type(),
        "reserved_bytes": model.reserved[group as usize].at(time),
        "used_bytes": view.changes.bytes_at(time, &model.blocks),
        "meant_bytes": meant_bytes,
        "segments_total": count,
        "gaps_total": gaps,
        "gap_bytes": gap_bytes,
        "largest_gap_bytes": largest,
        "segments": shown,
        "owners": owners,
        "failure": failure(scope, model.groups[group as usize].device, time),
    }))
}

fn shown(model: &Model, segment: &Segment, owners: &mut Vec<u32>) -> Value {
    let mut number = |block: Option<u32>| {
        let Some(block) = block else { return -1 };
        let owner = model.blocks.owner[block as usize];
        let position = owners.iter().position(|known| *known == owner).unwrap_or_else(|| {
            owners.push(owner);
            owners.len() - 1
        });
        position as i64
    };
    let pieces = &segment.pieces;
    let line = |block: u32| i64::from(model.stacks.sites[model.blocks.site[block as usize] as usize].line);
    json!({
        "address": address(segment.address),
        "bytes": segment.bytes,
        "used_bytes": segment.used_bytes,
        "gaps": segment.gaps,
        "gap_bytes": segment.gap_bytes,
        "largest_gap_bytes": segment.largest_gap_bytes,
        "offset": pieces.iter().map(|piece| piece.offset).collect::<Vec<_>>(),
        "length": pieces.iter().map(|piece| piece.bytes).collect::<Vec<_>>(),
        "block": pieces.iter().map(|piece| piece.block.map_or(-1, i64::from)).collect::<Vec<_>>(),
        "owner": pieces.iter().map(|piece| number(piece.block)).collect::<Vec<_>>(),
        "meant": pieces.iter().map(|piece| piece.is_meant).collect::<Vec<_>>(),
        "site": pieces.iter().map(|piece| piece.block.map_or(-1, line)).collect::<Vec<_>>(),
    })
}

/// The segments of a pool: driver blocks that hold its blocks. Where no driver memory was recorded, the ranges of
/// addresses that the pool ever used stand for them; blocks of the driver itself are segments of their own.
///
/// The filter leaves no block out, which would look like a gap: it only tells which ones are meant.
fn segments_at(model: &Model, group: u16, time: u64, filter: &BlockFilter<'_>) -> Vec<Segment> {
    let device = model.groups[group as usize].device;
    let is_driver = model.groups[group as usize].pool == Pool::Hal;
    let driver = model.group(device, Pool::Hal);
    let mut blocks: Vec<(u64, u64, u32)> = Vec::new();
    let mut places: Vec<(u64, u64)> = Vec::new();
    let columns = &model.blocks;
    columns.for_each_alive(time, |block| {
        let index = block as usize;
        let (start, bytes) = (columns.address[index], columns.bytes[index]);
        let is_segment = Some(columns.group[index]) == driver && columns.flags[index] & IS_SEGMENT != 0;
        if columns.group[index] == group {
            blocks.push((start, start.saturating_add(bytes), block));
        }
        if is_segment {
            places.push((start, start.saturating_add(bytes)));
        }
    });
    if is_driver {
        places = blocks.iter().map(|&(start, end, _)| (start, end)).collect();
    } else if places.is_empty() {
        let regions = &model.regions[group as usize].0;
        places = regions.iter().map(|region| (region.address, region.address.saturating_add(region.bytes))).collect();
    }
    places.sort_unstable();
    places.dedup();
    blocks.sort_unstable();
    let all: u64 = places.iter().map(|(start, end)| end - start).fold(0, u64::saturating_add);
    fill(
        &places,
        &blocks,
        |block| filter.passes(block),
        if blocks.len() as u64 > MOST_PIECES { all / MOST_PIECES } else { 0 },
    )
}

/// Puts blocks into the segments that hold them. Segments without blocks are not known to be the pool's.
fn fill(
    places: &[(u64, u64)],
    blocks: &[(u64, u64, u32)],
    is_meant: impl Fn(u32) -> bool,
    smallest: u64,
) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut next = 0;
    for &(start, end) in places {
        while next < blocks.len() && blocks[next].0 < start {
            next += 1;
        }
        let mut segment = Segment { address: start, bytes: end - start, ..Segment::default() };
        let mut position = start;
        while next < blocks.len() && blocks[next].0 < end {
            let (first, last, block) = blocks[next];
            segment.gap(first.saturating_sub(position));
            let (offset, bytes) = (first - start, last.min(end) - first);
            segment.push(Piece { offset, bytes, block: Some(block), is_meant: is_meant(block) }, smallest);
            position = position.max(last.min(end));
            next += 1;
        }
        if !segment.pieces.is_empty() {
            segment.gap(end - position);
            segments.push(segment);
        }
    }
    segments
}

/// The latest failure on a device up to a time, or the first one after it.
fn failure(scope: &Scope<'_>, device: Device, time: u64) -> Value {
    let failures = scope.findings().map_or(&[][..], |findings| &findings.failures);
    let on_device = || failures.iter().filter(|failure| failure.device == device);
    let found = on_device().rfind(|failure| failure.at <= time).or_else(|| on_device().next());
    found.map_or(Value::Null, |failure| {
        json!({
            "t": scope.shown(failure.at),
            "requested_bytes": failure.requested_bytes,
            "verdict": failure.verdict,
            "sentences": failure.sentences,
        })
    })
}

pub(super) fn fragmentation(scope: &Scope<'_>) -> Answer {
    let (from, to) = scope.window()?;
    let group = scope.model.groups[scope.group()? as usize];
    let all = scope.findings().and_then(|findings| {
        findings.fragmentation.iter().find(|(key, _)| *key == (group.device, group.pool)).map(|(_, samples)| samples)
    });
    let all = all.map_or(&[][..], |samples| samples);
    // With the neighbours of the window: a sample holds until the next one.
    let first = all.partition_point(|sample| sample.at < from).saturating_sub(1);
    let end = all.len().min(all.partition_point(|sample| sample.at < to) + 1);
    let inside = &all[first..end];
    let every = inside.len().div_ceil(scope.width()?).max(1);
    let samples: Vec<_> = inside.iter().step_by(every).collect();
    Ok(json!({
        "t": samples.iter().map(|sample| scope.shown(sample.at)).collect::<Vec<_>>(),
        "step": samples.iter().map(|sample| sample.step).collect::<Vec<_>>(),
        "reserved_bytes": samples.iter().map(|sample| sample.reserved_bytes).collect::<Vec<_>>(),
        "used_bytes": samples.iter().map(|sample| sample.used_bytes).collect::<Vec<_>>(),
        "idle_bytes": samples.iter().map(|sample| sample.reserved_bytes.saturating_sub(sample.used_bytes)).collect::<Vec<_>>(),
        "gap_bytes": samples.iter().map(|sample| sample.gap_bytes).collect::<Vec<_>>(),
        "largest_gap_bytes": samples.iter().map(|sample| sample.largest_gap_bytes).collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_blocks_leave() {
        let places = [(0, 100), (200, 300), (400, 500)];
        let blocks = [(10, 20, 1), (20, 30, 2), (90, 110, 3), (200, 300, 4)];
        let segments = fill(&places, &blocks, |block| block == 2, 0);
        assert_eq!(segments.len(), 2);
        let first = &segments[0];
        assert_eq!((first.gaps, first.gap_bytes, first.largest_gap_bytes, first.used_bytes), (2, 70, 60, 30));
        assert_eq!(first.pieces.len(), 3);
        assert_eq!(first.meant_bytes, 10, "the second block");
        assert_eq!(segments[1].gaps, 0);
        let pieces = |is_meant: fn(u32) -> bool| fill(&places, &blocks, is_meant, 50)[0].pieces.len();
        assert_eq!(pieces(|_| true), 2, "small neighbours are drawn as one");
        assert_eq!(pieces(|block| block == 2), 3, "unless the filter tells them apart");
    }
}
