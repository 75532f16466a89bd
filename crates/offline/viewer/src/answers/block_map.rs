//! `blocks`: blocks in address and time. Blocks that are large enough on the screen come one by one, the others as
//! the share of each cell of a grid that they cover.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::model::Model;
use crate::model::blocks::Blocks;
use crate::model::filter::BlockFilter;

use super::scope::{Scope, address, end};
use super::{Answer, Problem};

const MOST_BLOCKS: usize = 6000;
const MOST_REGIONS: usize = 200;
/// Pixels per cell of the grid.
const CELL_PIXELS: usize = 4;
/// A window with no more blocks than this shows each of them.
const FEW_BLOCKS: usize = 2000;
/// From this many blocks on, they are looked at by several threads.
const MANY_BLOCKS: usize = 200_000;
const MOST_THREADS: usize = 4;

/// What part of time and addresses is shown.
#[derive(Clone, Copy, Debug)]
struct Frame {
    from: u64,
    to: u64,
    bottom: u64,
    top: u64,
}

impl Frame {
    fn shows(&self, model: &Model, block: usize) -> bool {
        let y = model.blocks.y[block];
        y < self.top && y.saturating_add(model.blocks.bytes[block]) > self.bottom
    }
}

pub(super) fn answer(scope: &Scope<'_>) -> Answer {
    let model = scope.model;
    let (from, to) = scope.window()?;
    let group = scope.group()?;
    let regions = &model.regions[group as usize];
    let y_total = regions.total_bytes().max(1);
    let bottom = scope.query.number("y0")?.unwrap_or(0);
    let top = scope.query.number("y1")?.unwrap_or(y_total);
    if bottom >= top {
        return Err(Problem::Bad("'y0' must be below 'y1'".to_owned()));
    }
    let width = scope.width()?;
    let height = scope.query.limited("height", 600, (1, 3000))? as usize;
    let frame = Frame { from, to, bottom, top };
    let filter = scope.block_filter()?;
    let (large, more) = drawn(model, group, &filter, frame, (width, height));
    let mut owners: Vec<u32> = Vec::new();
    let mut owner_number = |block: u32| {
        let owner = model.blocks.owner[block as usize];
        owners.iter().position(|known| *known == owner).unwrap_or_else(|| {
            owners.push(owner);
            owners.len() - 1
        })
    };
    let column = |values: &[u64]| -> Vec<u64> { large.iter().map(|&block| values[block as usize]).collect() };
    let line = |block: &u32| model.stacks.sites[model.blocks.site[*block as usize] as usize].line;
    let owner: Vec<usize> = large.iter().map(|&block| owner_number(block)).collect();
    let owners: Vec<&str> = owners.iter().map(|&owner| model.owners[owner as usize].as_str()).collect();
    let mut shown_regions = regions.0.clone();
    shown_regions.sort_by_key(|region| u64::MAX - region.bytes);
    shown_regions.truncate(MOST_REGIONS);
    shown_regions.sort_by_key(|region| region.y);
    let shown_regions: Vec<Value> = shown_regions
        .iter()
        .map(|region| json!({ "y": region.y, "bytes": region.bytes, "address": address(region.address) }))
        .collect();
    Ok(json!({
        "t0": scope.shown(from),
        "t1": scope.shown(to),
        "y0": bottom,
        "y1": top,
        "y_total": y_total,
        "regions": shown_regions,
        "regions_more": regions.0.len().saturating_sub(MOST_REGIONS),
        "block": large,
        "start": large.iter().map(|&block| scope.shown(model.blocks.start[block as usize])).collect::<Vec<_>>(),
        "end": large.iter().map(|&block| end(scope, model.blocks.end[block as usize])).collect::<Vec<_>>(),
        "y": column(&model.blocks.y),
        "bytes": column(&model.blocks.bytes),
        "owner": owner,
        "site": large.iter().map(line).collect::<Vec<_>>(),
        "owners": owners,
        "more": more,
    }))
}

/// Blocks that are drawn one by one, and how much of each cell of the grid the others cover.
fn drawn(
    model: &Model,
    group: u16,
    filter: &BlockFilter<'_>,
    frame: Frame,
    (width, height): (usize, usize),
) -> (Vec<u32>, Value) {
    let parts = match model.blocks.len() {
        few if few < MANY_BLOCKS => 1,
        _ => std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS),
    };
    let sort_part = |part: usize| {
        let mut sorted = Sorted::new(model, frame, width, height);
        model.blocks.for_each_in_part(frame.from, frame.to, (part, parts), |block| {
            let index = block as usize;
            if model.blocks.group[index] == group && frame.shows(model, index) && filter.passes(block) {
                sorted.add(block);
            }
        });
        sorted
    };
    let mut sorted = std::thread::scope(|scope| {
        let others: Vec<_> = (1..parts).map(|part| scope.spawn(move || sort_part(part))).collect();
        let mut sorted = sort_part(0);
        for other in others {
            // A part that panics has already said why.
            if let Ok(other) = other.join() {
                sorted.merge(other);
            }
        }
        sorted
    });
    sorted.limit();
    let more = match sorted.small_blocks {
        0 => Value::Null,
        blocks => json!({
            "columns": sorted.coverage.columns,
            "rows": sorted.coverage.rows,
            "coverage": base64(&sorted.coverage.finish()),
            "blocks": blocks,
        }),
    };
    (sorted.large, more)
}

/// Blocks sorted by whether they can be seen one by one.
struct Sorted<'m> {
    blocks: &'m Blocks,
    frame: Frame,
    pixel_ns: u64,
    pixel_bytes: u64,
    /// Cells per nanosecond and per byte.
    scale: (f64, f64),
    large: Vec<u32>,
    /// The first of the small ones: few are drawn after all.
    few: Vec<u32>,
    small_blocks: usize,
    coverage: Coverage,
}

impl<'m> Sorted<'m> {
    fn new(model: &'m Model, frame: Frame, width: usize, height: usize) -> Self {
        let (columns, rows) = (width.div_ceil(CELL_PIXELS), height.div_ceil(CELL_PIXELS));
        let (duration, bytes) = (frame.to - frame.from, frame.top - frame.bottom);
        Self {
            blocks: &model.blocks,
            frame,
            pixel_ns: duration / width as u64,
            pixel_bytes: bytes / height as u64,
            scale: (columns as f64 / duration as f64, rows as f64 / bytes as f64),
            large: Vec::new(),
            few: Vec::new(),
            small_blocks: 0,
            coverage: Coverage::new(columns, rows),
        }
    }

    #[inline]
    fn add(&mut self, block: u32) {
        let (blocks, index) = (self.blocks, block as usize);
        let is_long = blocks.end[index].saturating_sub(blocks.start[index]) >= self.pixel_ns;
        match is_long && blocks.bytes[index] >= self.pixel_bytes {
            true => self.large.push(block),
            false => self.add_small(block),
        }
    }

    fn add_small(&mut self, block: u32) {
        if self.few.len() < FEW_BLOCKS {
            self.few.push(block);
        }
        self.small_blocks += 1;
        let (blocks, index, frame) = (self.blocks, block as usize, self.frame);
        // Signed numbers become floating ones more quickly, and nothing here is as large.
        let x = |time: u64| (time.clamp(frame.from, frame.to) - frame.from) as i64 as f64 * self.scale.0;
        let y = |place: u64| (place.clamp(frame.bottom, frame.top) - frame.bottom) as i64 as f64 * self.scale.1;
        let place = blocks.y[index];
        let sides = (x(blocks.start[index]), x(blocks.end[index]));
        self.coverage.add(sides, (y(place), y(place.saturating_add(blocks.bytes[index]))));
    }

    /// Adds blocks that come later.
    fn merge(&mut self, other: Self) {
        self.large.extend(other.large);
        let room = FEW_BLOCKS - self.few.len();
        self.few.extend(other.few.into_iter().take(room));
        self.small_blocks += other.small_blocks;
        self.coverage.merge(&other.coverage);
    }

    /// Draws all if they are few, and not more than a screen takes.
    fn limit(&mut self) {
        if self.large.len() + self.small_blocks <= FEW_BLOCKS {
            self.large.append(&mut self.few);
            self.small_blocks = 0;
        }
        if self.large.len() > MOST_BLOCKS {
            let (blocks, frame) = (self.blocks, self.frame);
            let area = |block: &u32| {
                let index = *block as usize;
                let time = blocks.end[index].min(frame.to) - blocks.start[index].max(frame.from);
                Reverse(u128::from(time) * u128::from(blocks.bytes[index]))
            };
            self.large.select_nth_unstable_by_key(MOST_BLOCKS, area);
            for block in self.large.split_off(MOST_BLOCKS) {
                self.add_small(block);
            }
        }
        self.large.sort_unstable();
    }
}

/// Sums up how much rectangles cover of the cells of a grid. No rectangle costs more for being large: only the changes
/// at its edges are noted.
struct Coverage {
    columns: usize,
    rows: usize,
    /// Change of coverage from the cell to the left and the cell below.
    change: Vec<f32>,
    /// Coverage by what lies within one cell: most blocks do where there are many.
    within: Vec<f32>,
}

impl Coverage {
    fn new(columns: usize, rows: usize) -> Self {
        let cells = || vec![0.0; (columns + 2) * (rows + 2)];
        Self { columns, rows, change: cells(), within: cells() }
    }

    /// Changes along one axis: the cell, and by how much the coverage of it and of all further ones changes.
    fn edges(from: f64, to: f64) -> [(usize, f32); 4] {
        let (first, last) = (from as usize, to as usize);
        let (in_first, in_last) = ((from - first as f64) as f32, (to - last as f64) as f32);
        [(first, 1.0 - in_first), (first + 1, in_first), (last, in_last - 1.0), (last + 1, -in_last)]
    }

    fn add(&mut self, x: (f64, f64), y: (f64, f64)) {
        let (column, row) = (x.0 as usize, y.0 as usize);
        if x.1 as usize == column && y.1 as usize == row {
            self.within[row * (self.columns + 2) + column] += ((x.1 - x.0) * (y.1 - y.0)) as f32;
            return;
        }
        for (row, in_row) in Self::edges(y.0, y.1) {
            for (column, in_column) in Self::edges(x.0, x.1) {
                self.change[row * (self.columns + 2) + column] += in_row * in_column;
            }
        }
    }

    /// Adds what another one sums up.
    fn merge(&mut self, other: &Self) {
        let all = self.change.iter_mut().chain(&mut self.within);
        all.zip(other.change.iter().chain(&other.within)).for_each(|(sum, more)| *sum += more);
    }

    /// The coverage of every cell, row by row.
    fn finish(mut self) -> Vec<u8> {
        let stride = self.columns + 2;
        let mut cells = Vec::with_capacity(self.columns * self.rows);
        for row in 0..self.rows {
            let mut sum = 0.0;
            for column in 0..self.columns {
                let at = row * stride + column;
                if row > 0 {
                    self.change[at] += self.change[at - stride];
                }
                sum += self.change[at];
                // What is covered at all is seen.
                let share = (sum + self.within[at]).clamp(0.0, 1.0) * 255.0;
                cells.push(if share > 0.05 { share.max(1.0) as u8 } else { 0 });
            }
        }
        cells
    }
}

/// Bytes as base64 text.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let place = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= group.len() { DIGITS[place] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_usual_one() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\x00\x80q", "/wCAcQ==")]
        {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn coverage_is_the_share_of_a_cell() {
        let mut coverage = Coverage::new(4, 3);
        coverage.add((0.5, 3.0), (1.0, 2.0));
        coverage.add((0.0, 1.0), (0.0, 0.5));
        coverage.add((3.25, 3.5), (2.0, 3.0));
        let cells = coverage.finish();
        assert_eq!(&cells[..4], [127, 0, 0, 0]);
        assert_eq!(&cells[4..8], [127, 255, 255, 0]);
        assert_eq!(&cells[8..], [0, 0, 0, 63]);
    }
}
