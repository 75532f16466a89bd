//! Free space inside the segments of a pool.
//!
//! A segment is a driver block that holds blocks of the pool. One that holds none now is the pool's if it has
//! held some before.
//!
//! PyTorch keeps small and large blocks apart: a gap in a segment for the ones is no room for the others.

use std::ops::Range;

use msmemscope_event::{AllocationInterface, Device, Pool};
use serde::Serialize;

use crate::situation::{LiveBlock, Situation};

/// PyTorch takes blocks of up to [`LARGEST_SMALL_BLOCK_BYTES`] from segments of exactly this size, and larger
/// blocks from larger segments.
pub const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// The largest block that PyTorch takes from a small segment.
pub const LARGEST_SMALL_BLOCK_BYTES: u64 = 1 << 20;

/// Segments of one kind that hold blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SegmentUse {
    /// How many.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Bytes of gaps between blocks in them.
    pub gap_bytes: u64,
    /// The largest gap.
    pub largest_gap_bytes: u64,
}

/// Free space of a pool on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gaps {
    /// Segments that hold blocks.
    pub segments: u64,
    /// Bytes of these segments.
    pub segment_bytes: u64,
    /// Gaps between blocks in them.
    pub gaps: u64,
    /// Bytes of these gaps.
    pub gap_bytes: u64,
    /// The largest gap.
    pub largest_gap_bytes: u64,
    /// Of these the segments in which PyTorch puts small blocks.
    pub small: SegmentUse,
    /// The others.
    pub large: SegmentUse,
    /// Segments that hold nothing.
    pub free_segments: u64,
    /// Their bytes.
    pub free_segment_bytes: u64,
}

/// A segment, and which of the pool's blocks lie in it.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// First byte.
    pub start: u64,
    /// The byte behind its last.
    pub end: u64,
    /// Whether it holds nothing now, but has held blocks of the pool.
    pub is_free: bool,
    /// Its blocks, as places in [`Layout::blocks`].
    pub blocks: Range<usize>,
}

/// How blocks of a pool lie in its segments.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Segments with blocks and free ones, by address.
    pub segments: Vec<Segment>,
    /// First byte, the byte behind the last, and slot of every block, by address.
    pub blocks: Vec<(u64, u64, u32)>,
}

/// Looks at all live blocks of a pool on a device. `backs_pool` knows driver blocks that have held blocks of it.
pub(crate) fn lay_out(
    situation: &Situation,
    device: Device,
    pool: Pool,
    backs_pool: impl Fn(&LiveBlock) -> bool,
) -> Layout {
    let mut found: Vec<(u64, u64, bool)> = Vec::new();
    let mut blocks: Vec<(u64, u64, u32)> = Vec::new();
    for block in situation.live_blocks().filter(|block| block.properties.device == device) {
        let (start, end) = (block.address, block.address.saturating_add(block.size_bytes));
        if block.properties.pool == pool {
            blocks.push((start, end, block.slot));
        } else if block.properties.pool == Pool::Hal && block.properties.interface == AllocationInterface::Alloc {
            found.push((start, end, backs_pool(block)));
        }
    }
    found.sort_unstable();
    blocks.sort_unstable();
    let mut segments = Vec::new();
    let mut next = 0;
    for (start, end, is_backing) in found {
        while next < blocks.len() && blocks[next].0 < start {
            next += 1;
        }
        let first = next;
        while next < blocks.len() && blocks[next].0 < end {
            next += 1;
        }
        let is_free = next == first;
        if !is_free || is_backing {
            segments.push(Segment { start, end, is_free, blocks: first..next });
        }
    }
    Layout { segments, blocks }
}

impl Layout {
    /// Sizes of the gaps of a segment, without those of no bytes.
    pub(crate) fn gaps(&self, segment: &Segment) -> impl Iterator<Item = u64> {
        let mut position = segment.start;
        let end = segment.end;
        let blocks = self.blocks[segment.blocks.clone()].iter().map(|block| (block.0, block.1));
        let gaps = blocks.chain([(end, end)]).map(move |(first, behind)| {
            let gap = first.saturating_sub(position);
            position = position.max(behind.min(end));
            gap
        });
        gaps.filter(|gap| *gap > 0)
    }
}

impl Segment {
    /// Bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether PyTorch puts small blocks in it.
    pub(crate) fn is_for_small_blocks(&self) -> bool {
        self.size_bytes() == SMALL_SEGMENT_BYTES
    }
}

/// The free space of a pool on a device; see [`lay_out`].
pub fn find(situation: &Situation, device: Device, pool: Pool, backs_pool: impl Fn(&LiveBlock) -> bool) -> Gaps {
    let layout = lay_out(situation, device, pool, backs_pool);
    let mut found = Gaps::default();
    for segment in &layout.segments {
        if segment.is_free {
            found.free_segments += 1;
            found.free_segment_bytes = found.free_segment_bytes.saturating_add(segment.size_bytes());
            continue;
        }
        let mut part = SegmentUse { segments: 1, segment_bytes: segment.size_bytes(), ..SegmentUse::default() };
        let mut gaps = 0;
        for gap in layout.gaps(segment) {
            gaps += 1;
            part.gap_bytes = part.gap_bytes.saturating_add(gap);
            part.largest_gap_bytes = part.largest_gap_bytes.max(gap);
        }
        found.add(part, gaps, segment.is_for_small_blocks());
    }
    found
}

impl Gaps {
    fn add(&mut self, segment: SegmentUse, gaps: u64, is_small: bool) {
        self.segments += 1;
        self.segment_bytes = self.segment_bytes.saturating_add(segment.segment_bytes);
        self.gaps += gaps;
        self.gap_bytes = self.gap_bytes.saturating_add(segment.gap_bytes);
        self.largest_gap_bytes = self.largest_gap_bytes.max(segment.largest_gap_bytes);
        let kind = if is_small { &mut self.small } else { &mut self.large };
        kind.segments += 1;
        kind.segment_bytes = kind.segment_bytes.saturating_add(segment.segment_bytes);
        kind.gap_bytes = kind.gap_bytes.saturating_add(segment.gap_bytes);
        kind.largest_gap_bytes = kind.largest_gap_bytes.max(segment.largest_gap_bytes);
    }
}
