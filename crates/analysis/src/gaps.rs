//! Free space inside the segments of a pool.
//!
//! A segment is a driver block that holds blocks of the pool. Segments that hold none are not known to
//! be the pool's; the difference to what the pool says it holds is told as wholly free.

use msmemscope_event::{AllocationInterface, Device, Pool};
use serde::Serialize;

use crate::situation::Situation;

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
}

/// Looks at all live blocks of a pool on a device.
pub fn find(situation: &Situation, device: Device, pool: Pool) -> Gaps {
    let mut segments: Vec<(u64, u64)> = Vec::new();
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for block in situation.live_blocks().filter(|block| block.properties.device == device) {
        let range = (block.address, block.address.saturating_add(block.size_bytes));
        if block.properties.pool == pool {
            blocks.push(range);
        } else if block.properties.pool == Pool::Hal && block.properties.interface == AllocationInterface::Alloc {
            segments.push(range);
        }
    }
    segments.sort_unstable();
    blocks.sort_unstable();
    let mut found = Gaps::default();
    let mut next = 0;
    for (start, end) in segments {
        while next < blocks.len() && blocks[next].0 < start {
            next += 1;
        }
        let first = next;
        let mut position = start;
        while next < blocks.len() && blocks[next].0 < end {
            found.add_gap(blocks[next].0.saturating_sub(position));
            position = position.max(blocks[next].1.min(end));
            next += 1;
        }
        if next > first {
            found.add_gap(end - position);
            found.segments += 1;
            found.segment_bytes = found.segment_bytes.saturating_add(end - start);
        }
    }
    found
}

impl Gaps {
    fn add_gap(&mut self, bytes: u64) {
        if bytes > 0 {
            self.gaps += 1;
            self.gap_bytes = self.gap_bytes.saturating_add(bytes);
            self.largest_gap_bytes = self.largest_gap_bytes.max(bytes);
        }
    }
}
