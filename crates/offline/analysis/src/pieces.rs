//! Memory that PyTorch's pool holds in pieces: each too small for what is asked of it, together more than enough.
//!
//! The pool shows it at the moment in which it takes another segment from the driver: a block of some size class (small
//! and large blocks have segments of their own) needs less than all gaps of its class have, and none of them has room for
//! it. Gaps at any other time are no waste: they are what the next step takes. So the question is asked only when the pool
//! holds more than ever before, and only while much of it is unused.

use msmemscope_event::{Device, Pool};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::backing::Backing;
use crate::device_text::{device_text, pool_text};
use crate::gaps::{LARGEST_SMALL_BLOCK_BYTES, lay_out};
use crate::holders::HeldBy;
use crate::names::{Names, Site, SiteText};
use crate::situation::{BlockChange, LiveBlock, Situation};
use crate::small_map::SmallMap;
use crate::verdict::AllocatorSettings;

/// Less than this in pieces is not worth a sentence.
const FEWEST_BYTES: u64 = 32 << 20;
/// The same for less than one part in this many of what the pool holds.
const POOL_PER_PIECES: u64 = 4;
/// Looked at again when the pool has grown by one part in this many: a look costs time in proportion to live blocks.
const LOOK_GROWTH: u64 = 100;
/// A pool that has grown by more than one part in this many since shows no pieces at its peak.
const PEAK_PER_GROWTH: u64 = 10;

/// A pool in pieces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pieces {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Whether the segments for small blocks are meant.
    pub is_of_small_blocks: bool,
    /// The step in which it was seen; zero if none.
    pub step: u64,
    /// What the pool held before it took more.
    pub reserved_bytes: u64,
    /// Bytes of the size class that lie in pieces.
    pub bytes: u64,
    /// How many pieces: gaps between blocks, and segments that are free.
    pub count: u64,
    /// The largest.
    pub largest_bytes: u64,
    /// What was asked for.
    pub requested_bytes: u64,
    /// Who asked for it.
    pub requested_at: SiteText,
    /// Whose blocks lie between the gaps, if any do: the call site that keeps most of them apart.
    pub kept_apart_by: Option<KeptApart>,
    /// How the pool allocates.
    pub allocator: AllocatorSettings,
}

/// Blocks of one call site between which gaps lie.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeptApart {
    /// Where they were allocated.
    pub site: SiteText,
    /// How many.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Who held them, when the job looked.
    pub held_by: Vec<HeldBy>,
}

/// What one look has found. Names are found at the end.
#[derive(Debug)]
struct Found {
    request: LiveBlock,
    reserved_bytes: u64,
    bytes: u64,
    count: u64,
    largest_bytes: u64,
    /// Blocks of the call site that keeps most gaps apart.
    between: Vec<LiveBlock>,
}

#[derive(Debug, Default)]
struct DeviceState {
    reserved_bytes: u64,
    peak_reserved_bytes: u64,
    next_look_bytes: u64,
    found: Option<Found>,
}

/// Follows PyTorch's pools.
#[derive(Debug, Default)]
pub(crate) struct PieceFollower {
    devices: SmallMap<Device, DeviceState>,
    backing: Backing,
}

impl PieceFollower {
    /// A block began or ended.
    #[inline]
    pub(crate) fn block(&mut self, change: &BlockChange<'_>, situation: &Situation) {
        self.backing.block(change);
        let (BlockChange::Begins(block, said) | BlockChange::Ends(block, said)) = change;
        // Rows of what happened while recording was off do not say what the pool held.
        if block.properties.pool != Pool::PytorchCaching || said.shadow || said.total_bytes == 0 {
            return;
        }
        let state = self.devices.entry(block.properties.device);
        let before = std::mem::replace(&mut state.reserved_bytes, said.total_bytes);
        if said.total_bytes <= state.peak_reserved_bytes {
            return;
        }
        state.peak_reserved_bytes = said.total_bytes;
        // Of the new segment it is not known yet what will be in it.
        let unused_before = before.saturating_sub(said.used_bytes.saturating_sub(block.size_bytes));
        let is_much = is_much(unused_before, before) && unused_before >= block.size_bytes;
        if matches!(change, BlockChange::Begins(..)) && is_much && said.total_bytes >= state.next_look_bytes {
            state.next_look_bytes = said.total_bytes.saturating_add(said.total_bytes / LOOK_GROWTH);
            let found = look(block, before, &self.backing, situation);
            state.found = found.or(state.found.take());
        }
    }

    /// The worst of what was found.
    pub(crate) fn finish(self, situation: &Situation, names: &dyn Names) -> Option<Pieces> {
        let at_peak = |(_, state): (Device, DeviceState)| {
            let peak = state.peak_reserved_bytes;
            state.found.filter(|found| peak - found.reserved_bytes <= peak / PEAK_PER_GROWTH + found.request.size_bytes)
        };
        let worst = self.devices.into_entries().filter_map(at_peak).max_by_key(|found| found.bytes)?;
        Some(worst.named(situation, names))
    }
}

/// Whether this many bytes of a pool matter.
fn is_much(bytes: u64, reserved_bytes: u64) -> bool {
    bytes >= FEWEST_BYTES && bytes.saturating_mul(POOL_PER_PIECES) >= reserved_bytes
}

/// Looks for pieces of the size class of a block for which the pool has just taken a segment.
#[cold]
fn look(request: &LiveBlock, reserved_bytes: u64, backing: &Backing, situation: &Situation) -> Option<Found> {
    let properties = request.properties;
    let is_small = request.size_bytes <= LARGEST_SMALL_BLOCK_BYTES;
    let layout = lay_out(situation, properties.device, properties.pool, |block| backing.backs_pool(block));
    let (mut bytes, mut count, mut largest_bytes) = (0u64, 0, 0);
    // Gap bytes that the blocks of a call site keep apart, each by its share of the segment.
    let mut by_site: FxHashMap<Site, (f64, Vec<LiveBlock>)> = FxHashMap::default();
    for segment in &layout.segments {
        let is_new = (segment.start..segment.end).contains(&request.address);
        if is_new || segment.is_for_small_blocks() != is_small {
            continue;
        }
        let mut gap_bytes = 0;
        for gap in layout.gaps(segment) {
            (gap_bytes, count, largest_bytes) = (gap_bytes + gap, count + 1, gap.max(largest_bytes));
        }
        bytes = bytes.saturating_add(gap_bytes);
        let used_bytes = (segment.size_bytes() - gap_bytes).max(1) as f64;
        for (_, _, slot) in &layout.blocks[segment.blocks.clone()] {
            if let Some(block) = situation.block(*slot).filter(|_| gap_bytes > 0) {
                let (kept_apart, blocks) = by_site.entry(Site::of(block)).or_default();
                *kept_apart += gap_bytes as f64 * (block.size_bytes as f64 / used_bytes);
                blocks.push(*block);
            }
        }
    }
    let is_in_pieces = bytes >= request.size_bytes && largest_bytes < request.size_bytes;
    (is_in_pieces && is_much(bytes, reserved_bytes)).then(|| {
        let most = by_site.into_values().max_by(|a, b| a.0.total_cmp(&b.0));
        let between = most.map_or(Vec::new(), |(_, blocks)| blocks);
        Found { request: *request, reserved_bytes, bytes, count, largest_bytes, between }
    })
}

impl Found {
    fn named(self, situation: &Situation, names: &dyn Names) -> Pieces {
        let kept_apart_by = self.between.first().map(|block| KeptApart {
            site: SiteText::of(block, situation, names),
            blocks: self.between.len() as u64,
            bytes: self.between.iter().map(|block| block.size_bytes).fold(0, u64::saturating_add),
            held_by: {
                let blocks = self.between.iter().map(|block| (block.allocation_id, block.size_bytes));
                situation.holders().of_blocks(blocks, names)
            },
        });
        Pieces {
            device: self.request.properties.device,
            pool: self.request.properties.pool,
            is_of_small_blocks: self.request.size_bytes <= LARGEST_SMALL_BLOCK_BYTES,
            step: self.request.step,
            reserved_bytes: self.reserved_bytes,
            bytes: self.bytes,
            count: self.count,
            largest_bytes: self.largest_bytes,
            requested_bytes: self.request.size_bytes,
            requested_at: SiteText::of(&self.request, situation, names),
            kept_apart_by,
            // Segments that can grow have no addresses of their own, so that none of them was looked at.
            allocator: AllocatorSettings {
                has_expandable_segments: false,
                stated: names.allocator_settings().unwrap_or_default(),
            },
        }
    }
}
