//! Free space inside the segments of a pool.
//!
//! A segment is a driver block that holds blocks of the pool. One that holds none now is the pool's if it has
//! held some before.
//!
//! PyTorch keeps small and large blocks apart: a gap in a segment for the ones is no room for the others.

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

/// Looks at all live blocks of a pool on a device. `backs_pool` knows driver blocks that have held blocks of it.
pub fn find(situation: &Situation, device: Device, pool: Pool, backs_pool: impl Fn(&LiveBlock) -> bool) -> Gaps {
    let mut segments: Vec<(u64, u64, bool)> = Vec::new();
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for block in situation.live_blocks().filter(|block| block.properties.device == device) {
        let range = (block.address, block.address.saturating_add(block.size_bytes));
        if block.properties.pool == pool {
            blocks.push(range);
        } else if block.properties.pool == Pool::Hal && block.properties.interface == AllocationInterface::Alloc {
            segments.push((range.0, range.1, backs_pool(block)));
        }
    }
    segments.sort_unstable();
    blocks.sort_unstable();
    let mut found = Gaps::default();
    let mut next = 0;
    for (start, end, is_backing) in segments {
        while next < blocks.len() && blocks[next].0 < start {
            next += 1;
        }
        let first = next;
        let mut of_segment = SegmentUse { segments: 1, segment_bytes: end - start, ..SegmentUse::default() };
        let mut gaps = 0;
        let mut position = start;
        let mut add_gap = |bytes: u64| {
            gaps += u64::from(bytes > 0);
            of_segment.gap_bytes = of_segment.gap_bytes.saturating_add(bytes);
            of_segment.largest_gap_bytes = of_segment.largest_gap_bytes.max(bytes);
        };
        while next < blocks.len() && blocks[next].0 < end {
            add_gap(blocks[next].0.saturating_sub(position));
            position = position.max(blocks[next].1.min(end));
            next += 1;
        }
        add_gap(end - position);
        if next > first {
            found.add(of_segment, gaps);
        } else if is_backing {
            found.free_segments += 1;
            found.free_segment_bytes = found.free_segment_bytes.saturating_add(end - start);
        }
    }
    found
}

impl Gaps {
    fn add(&mut self, segment: SegmentUse, gaps: u64) {
        self.segments += 1;
        self.segment_bytes = self.segment_bytes.saturating_add(segment.segment_bytes);
        self.gaps += gaps;
        self.gap_bytes = self.gap_bytes.saturating_add(segment.gap_bytes);
        self.largest_gap_bytes = self.largest_gap_bytes.max(segment.largest_gap_bytes);
        let is_small = segment.segment_bytes == SMALL_SEGMENT_BYTES;
        let kind = if is_small { &mut self.small } else { &mut self.large };
        kind.segments += 1;
        kind.segment_bytes = kind.segment_bytes.saturating_add(segment.segment_bytes);
        kind.gap_bytes = kind.gap_bytes.saturating_add(segment.gap_bytes);
        kind.largest_gap_bytes = kind.largest_gap_bytes.max(segment.largest_gap_bytes);
    }
}
