//! Why memory ran out, in one word. The sentences, and what to do about it, are made by the reports.
//!
//! The question is always the same: what, together with the memory that is free anyway, would have made this
//! very allocation fit? What leaks; what one line of code holds more and more of, if there are no steps to tell
//! a leak by; what the framework holds but cannot use (fragmentation); what other processes hold. If none of them
//! would have been enough, the job needs more than there is. The order matters: a leak explains everything behind
//! it, and what the job can do itself comes before what others would have to do. Without steps a line that holds more and
//! more may be right to do so: where gaps hold even more than it, they are the reason.

use msmemscope_event::Pool;
use serde::Serialize;

use crate::gaps::{
    COMMON_SEGMENT_BYTES, LARGEST_COMMON_BLOCK_BYTES, LARGEST_SMALL_BLOCK_BYTES, Room, SMALL_SEGMENT_BYTES, SegmentUse,
};
use crate::out_of_memory::{Failure, PoolThen};

/// Others must hold at least this part of what the job holds to be called the reason: every card
/// keeps some memory for itself.
const SMALLEST_PART_OF_OTHERS: u64 = 10;
/// Lines that grow must hold at least this part of what frameworks use to be called the reason.
const SMALLEST_PART_OF_GROWTH: u64 = 2;

/// Without the size of the request, something must hold this part of what the job uses to be called the reason.
const SMALLEST_PART_WITHOUT_SIZE: u64 = 4;
/// MindSpore leaves at most a fifteenth of the card to others by itself. More than this part is free because the job has
/// set a limit, or because the request alone was larger.
const LARGEST_PART_LEFT_FREE: u64 = 10;

/// Gaps must make up this part of what is in use to be called the reason in the middle of a forward pass.
const SMALLEST_PART_OF_GAPS_IN_FORWARD: u64 = 2;

/// Why memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Memory that leaks would have been enough.
    Leak,
    /// There are too few steps to tell a leak, but one line of code has more and more blocks.
    Growth,
    /// Memory the framework holds unused would have been enough.
    Fragmentation,
    /// Without the other processes on the card it would have been enough.
    OtherProcesses,
    /// The job needs more than there is.
    Demand,
    /// The job has forbidden itself to use more of the card.
    OwnLimit,
    /// The driver refused although the card had enough memory free.
    Driver,
}

/// Why memory that a framework holds unused is no room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It lies in gaps that are too small, each for itself.
    InPieces,
    /// It is in one piece that would be large enough, but that belongs to another stream or may not be split.
    Reserved,
    /// It is in one piece of the right stream that would be large enough, but may not be split.
    Unsplit,
    /// Most of it belongs to other streams.
    OnOtherStream,
    /// Most of it belongs to graphs or to pools that the job has made.
    InPrivatePool,
    /// Most of it lies in segments for blocks of another size.
    InOtherClass,
}

/// How the framework allocates, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AllocatorSettings {
    /// Physical memory is mapped piecewise.
    pub has_expandable_segments: bool,
    /// Variables of the job, `NAME=value` each on a line.
    pub stated: String,
}

impl AllocatorSettings {
    fn value(&self, name: &str) -> Option<&str> {
        let value = self.stated.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    /// The options of the caching allocator.
    pub fn options(&self) -> Option<(&'static str, &str)> {
        const NAMES: [&str; 2] = ["PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
        NAMES.into_iter().find_map(|name| Some((name, self.value(name)?)))
    }

    /// Whether segments can grow, so that gaps between them are joined.
    pub fn is_expandable(&self) -> bool {
        let is_set = |(_, options): (&str, &str)| options.to_lowercase().contains("expandable_segments:true");
        self.has_expandable_segments || self.options().is_some_and(is_set)
    }

    /// Whether every tensor comes from the driver.
    pub fn is_uncached(&self) -> bool {
        self.value("PYTORCH_NO_NPU_MEMORY_CACHING").is_some_and(|value| value != "0")
    }
}

/// Says why memory was refused.
pub(crate) fn judge(failure: &Failure) -> Verdict {
    if failure.leaves_much_free() {
        return if failure.flag == 0 { Verdict::Demand } else { Verdict::OwnLimit };
    }
    if failure.requested_bytes == 0 {
        return judge_without_size(failure);
    }
    let requested = failure.requested_bytes;
    if failure.is_beyond_limit() {
        let left = failure.limit_bytes.map_or(0, |limit| limit.saturating_sub(failure.reserved_bytes()));
        let leaks = failure.leaked_bytes > 0 && failure.leaked_bytes.saturating_add(left) >= requested;
        return if leaks { Verdict::Leak } else { Verdict::OwnLimit };
    }
    let free = failure.free_bytes.unwrap_or(0);
    let others = failure.others_bytes;
    let growing = failure.growing.as_ref().map_or(0, |growing| growing.bytes);
    let would_fit_with = |bytes: u64| bytes > 0 && bytes.saturating_add(free) >= requested;
    // A forward pass that is not through yet will ask for more than fits into a few gaps.
    let needs_more_anyway = failure.forward_bytes().is_some()
        && failure.idle_bytes() < failure.used_bytes() / SMALLEST_PART_OF_GAPS_IN_FORWARD;
    let is_growth = would_fit_with(growing) && growing >= failure.used_bytes() / SMALLEST_PART_OF_GROWTH;
    let is_fragmentation = would_fit_with(failure.idle_bytes()) && !needs_more_anyway;
    if free >= requested {
        Verdict::Driver
    } else if would_fit_with(failure.leaked_bytes) {
        Verdict::Leak
    } else if is_growth && !(is_fragmentation && failure.segments(Room::Usable).gap_bytes > growing) {
        Verdict::Growth
    } else if is_fragmentation {
        Verdict::Fragmentation
    } else if would_fit_with(others) && others > failure.process_bytes / SMALLEST_PART_OF_OTHERS {
        Verdict::OtherProcesses
    } else {
        Verdict::Demand
    }
}

/// Says why memory was refused if nobody knows how much was asked for: whatever holds a large part.
fn judge_without_size(failure: &Failure) -> Verdict {
    let is_large = |bytes: u64| bytes > 0 && bytes >= failure.used_bytes() / SMALLEST_PART_WITHOUT_SIZE;
    let growing = failure.growing.as_ref().map_or(0, |growing| growing.bytes);
    if is_large(failure.leaked_bytes) {
        Verdict::Leak
    } else if growing > 0 && growing >= failure.used_bytes() / SMALLEST_PART_OF_GROWTH {
        Verdict::Growth
    } else if is_large(failure.idle_bytes()) {
        Verdict::Fragmentation
    } else if is_large(failure.others_bytes) {
        Verdict::OtherProcesses
    } else {
        Verdict::Demand
    }
}

impl Failure {
    /// Whether MindSpore refused although it had left more of the card than it does by itself.
    pub fn leaves_much_free(&self) -> bool {
        let total = self.card.map_or(0, |(_, total_bytes)| total_bytes);
        let left = total / LARGEST_PART_LEFT_FREE;
        self.is_of_mindspore() && total > 0 && self.free_bytes.is_some_and(|free| free > left)
    }

    /// Whether PyTorch would have exceeded the limit that the job has set it.
    pub fn is_beyond_limit(&self) -> bool {
        self.limit_bytes.is_some_and(|limit| self.reserved_bytes().saturating_add(self.requested_bytes) > limit)
    }

    /// Bytes that PyTorch held from the driver.
    pub fn reserved_bytes(&self) -> u64 {
        let pytorch = self.pools.iter().filter(|pool| pool.pool == Pool::PytorchCaching);
        pytorch.map(|pool| pool.reserved_bytes).fold(0, u64::saturating_add)
    }

    /// Bytes that frameworks use.
    pub fn used_bytes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.used_bytes).fold(0, u64::saturating_add)
    }

    /// Bytes that frameworks hold and do not use.
    pub fn idle_bytes(&self) -> u64 {
        self.pools.iter().map(PoolThen::idle_bytes).fold(0, u64::saturating_add)
    }

    /// Whether PyTorch has told what its segments are like.
    pub fn knows_classes(&self) -> bool {
        self.pools.iter().any(|pool| !pool.classes.is_empty())
    }

    /// Whether PyTorch has told that some of its segments grow and shrink by pages.
    pub fn has_expandable_segments(&self) -> bool {
        self.pools.iter().flat_map(|pool| &pool.classes).any(|class| class.is_expandable)
    }

    /// Segments of a pool of which a request can say the same.
    fn segments_of(&self, pool: &PoolThen, room: Room) -> SegmentUse {
        let is_small = self.is_for_small_blocks();
        if !pool.classes.is_empty() {
            let mut found = SegmentUse::default();
            for class in pool.classes.iter().filter(|class| class.room(is_small) == room) {
                found.add(&class.segments);
            }
            return found;
        }
        match (room, pool.pool, is_small) {
            (Room::Usable, _, true) | (Room::OtherSize, Pool::PytorchCaching, false) => pool.gaps.small,
            (Room::Usable, _, false) | (Room::OtherSize, Pool::PytorchCaching, true) => pool.gaps.large,
            _ => SegmentUse::default(),
        }
    }

    /// All segments of which a request can say the same.
    pub fn segments(&self, room: Room) -> SegmentUse {
        let mut found = SegmentUse::default();
        self.pools.iter().for_each(|pool| found.add(&self.segments_of(pool, room)));
        found
    }

    /// Where most of what is free is no room for the request.
    pub fn fullest_of_no_use(&self) -> Room {
        let others = [Room::OtherSize, Room::OtherStream, Room::Private];
        others.into_iter().max_by_key(|room| self.segments(*room).gap_bytes).unwrap_or(Room::OtherSize)
    }

    /// Why memory that frameworks hold unused was no room for the request.
    pub fn unusable(&self) -> Unusable {
        let (usable, requested) = (self.segments(Room::Usable), self.requested_bytes);
        // The tensor may have needed less than the segment that was asked for on its behalf.
        let fits = |gap: u64| requested > 0 && gap >= self.largest_needed_bytes();
        let free = self.free_bytes.unwrap_or(0);
        if !self.knows_classes() {
            let of_class = self.idle_bytes().saturating_sub(self.segments(Room::OtherSize).gap_bytes);
            return if requested > 0 && usable.largest_gap_bytes >= requested {
                Unusable::Reserved
            } else if requested > 0 && of_class.saturating_add(free) < requested {
                Unusable::InOtherClass
            } else {
                Unusable::InPieces
            };
        }
        let would_do = usable.gap_bytes.saturating_add(free) >= requested;
        if fits(usable.largest_gap_bytes) {
            Unusable::Unsplit
        } else if fits(self.segments(Room::OtherStream).largest_gap_bytes) {
            Unusable::OnOtherStream
        } else if would_do {
            Unusable::InPieces
        } else {
            match self.fullest_of_no_use() {
                Room::OtherStream => Unusable::OnOtherStream,
                Room::Private => Unusable::InPrivatePool,
                _ => Unusable::InOtherClass,
            }
        }
    }

    /// The most that the tensor can have needed: PyTorch asks the driver for segments.
    fn largest_needed_bytes(&self) -> u64 {
        match self.requested_bytes {
            SMALL_SEGMENT_BYTES => LARGEST_SMALL_BLOCK_BYTES,
            COMMON_SEGMENT_BYTES => LARGEST_COMMON_BLOCK_BYTES,
            requested => requested,
        }
    }

    /// Bytes that the forward pass has made in which memory ran out, if they are most of what is in use.
    pub fn forward_bytes(&self) -> Option<u64> {
        (self.is_in_forward() && self.forward_bytes > self.used_bytes() / 2).then_some(self.forward_bytes)
    }

    /// Whether memory ran out in a forward pass: what is asked for between two modules may be for anything.
    pub fn is_in_forward(&self) -> bool {
        self.phase == Some("forward") && !(self.knows_modules && self.module.is_empty())
    }

    /// Whether the request could not even have an empty card.
    pub fn exceeds_card(&self) -> bool {
        self.card.is_some_and(|(_, total_bytes)| total_bytes > 0 && self.requested_bytes > total_bytes)
    }

    /// Whether PyTorch asked for a segment for small blocks: it asks for this very size for nothing else.
    pub fn is_for_small_blocks(&self) -> bool {
        let has_small_blocks = |pool: &PoolThen| {
            pool.gaps.small.segments > 0 || pool.classes.iter().any(|class| class.is_for_small_blocks)
        };
        self.requested_bytes == SMALL_SEGMENT_BYTES
            && self.pools.iter().any(|pool| pool.pool == Pool::PytorchCaching && has_small_blocks(pool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_job_are_understood() {
        let settings = AllocatorSettings {
            has_expandable_segments: false,
            stated: "PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64\nPYTORCH_NO_NPU_MEMORY_CACHING=1\nEMPTY=\n".into(),
        };
        assert_eq!(settings.options(), Some(("PYTORCH_NPU_ALLOC_CONF", "max_split_size_mb:64")));
        assert!(settings.is_uncached());
        assert_eq!(settings.value("EMPTY"), None);
        assert_eq!(AllocatorSettings::default().options(), None);
    }
}
