//! Free space inside the segments of a pool.
//!
//! A segment is a driver block that holds blocks of the pool. One that holds none now is the pool's if it has
//! held some before.
//!
//! PyTorch keeps small and large blocks apart: a gap in a segment for the ones is no room for the others. Which stream a
//! segment belongs to, and where segments that grow have gaps, only PyTorch knows. It is asked when it gives up.

use std::ops::Range;

use msmemscope_event::{AllocationInterface, Device, Pool, PoolSegment};
use msmemscope_timeline::PoolGaveUp;
use serde::Serialize;

use crate::situation::{LiveBlock, Situation};

/// PyTorch takes blocks of up to [`LARGEST_SMALL_BLOCK_BYTES`] from segments of exactly this size, and larger
/// blocks from larger segments.
pub const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// The largest block that PyTorch takes from a small segment.
pub const LARGEST_SMALL_BLOCK_BYTES: u64 = 1 << 20;

/// PyTorch asks the driver for this much for each block that is larger than those, but not larger than
/// [`LARGEST_COMMON_BLOCK_BYTES`].
pub const COMMON_SEGMENT_BYTES: u64 = 20 << 20;
/// See [`COMMON_SEGMENT_BYTES`].
pub const LARGEST_COMMON_BLOCK_BYTES: u64 = 10 << 20;

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

impl SegmentUse {
    /// Counts other segments as well.
    pub fn add(&mut self, other: &SegmentUse) {
        self.segments += other.segments;
        self.segment_bytes = self.segment_bytes.saturating_add(other.segment_bytes);
        self.gap_bytes = self.gap_bytes.saturating_add(other.gap_bytes);
        self.largest_gap_bytes = self.largest_gap_bytes.max(other.largest_gap_bytes);
    }
}

/// Segments of a pool that are alike in who may use what is free in them, as the pool itself told when it gave up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SegmentClass {
    /// Whether they are for small blocks.
    pub is_for_small_blocks: bool,
    /// Whether they belong to another stream than the one for which memory was asked.
    pub is_of_another_stream: bool,
    /// Whether they grow and shrink by pages.
    pub is_expandable: bool,
    /// Whether they are kept for a graph, or for a part of the job that has a pool of its own.
    pub is_private: bool,
    /// How many, and how much of them is free.
    #[serde(flatten)]
    pub segments: SegmentUse,
}

impl SegmentClass {
    /// The class of a segment, if memory was asked for on a stream. Sums are those of no segment yet.
    pub(crate) fn of(segment: &PoolSegment, stream: u64) -> Self {
        Self {
            is_for_small_blocks: segment.is(PoolSegment::SMALL_BLOCKS),
            is_of_another_stream: segment.stream != stream,
            is_expandable: segment.is(PoolSegment::EXPANDABLE),
            is_private: segment.is(PoolSegment::PRIVATE),
            segments: SegmentUse::default(),
        }
    }

    /// Where a request for a small or a large block stands to what is free here.
    pub fn room(&self, is_for_small_blocks: bool) -> Room {
        if self.is_private {
            Room::Private
        } else if self.is_of_another_stream {
            Room::OtherStream
        } else if self.is_for_small_blocks != is_for_small_blocks {
            Room::OtherSize
        } else {
            Room::Usable
        }
    }
}

/// Where a request stands to what is free in segments of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may go there.
    Usable,
    /// Only blocks of another size go there.
    OtherSize,
    /// Only blocks of other streams go there.
    OtherStream,
    /// Only blocks of a graph, or of a pool that the job has made, go there.
    Private,
}

/// Whether a pool told of segments that grow and shrink by pages.
pub(crate) fn has_expandable_segments(told: &PoolGaveUp) -> bool {
    told.segments.iter().any(|segment| segment.is(PoolSegment::EXPANDABLE))
}

/// What a pool told of its segments, by class.
pub(crate) fn classes(told: &PoolGaveUp) -> Vec<SegmentClass> {
    let mut classes: Vec<SegmentClass> = Vec::new();
    for segment in &told.segments {
        let class = SegmentClass::of(segment, told.refusal.stream);
        let known = |of: &&mut SegmentClass| SegmentClass { segments: SegmentUse::default(), ..**of } == class;
        let sums = match classes.iter_mut().find(known) {
            Some(of) => &mut of.segments,
            None => {
                classes.push(class);
                let last = classes.len() - 1;
                &mut classes[last].segments
            }
        };
        sums.add(&SegmentUse {
            segments: 1,
            segment_bytes: segment.size_bytes,
            gap_bytes: segment.unused_bytes,
            largest_gap_bytes: segment.largest_gap_bytes,
        });
    }
    classes
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
        kind.add(&segment);
    }
}
