//! Use of a pool step by step: what is in use at both ends of each step, and the most in between.
//!
//! Of hundreds of thousands of steps this takes a while, so that it is done once for each view and kept.

use super::Step;
use super::blocks::Blocks;
use super::changes::Changes;

/// Use of a pool in one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepUse {
    pub(crate) number: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Changes made at its end, and at the end of the step before (or at its own start).
    pub(crate) made: u32,
    pub(crate) made_before: u32,
    pub(crate) start_bytes: u64,
    pub(crate) end_bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) peak_at: u64,
    pub(crate) growth_bytes: i64,
}

/// Of steps in the order of their starts.
pub(crate) fn measure(changes: &Changes, steps: &[Step], blocks: &Blocks) -> Vec<StepUse> {
    let mut previous: Option<(usize, u64)> = None;
    let measure_one = |step: &Step| {
        let near = previous.map_or(0, |(made, _)| made);
        let first = changes.made_before_near(step.start, near, blocks);
        let made = changes.made_before_near(step.end.saturating_add(1), first, blocks).max(first);
        let start_bytes = match previous {
            Some((made, bytes)) if made == first => bytes,
            _ => changes.bytes_after(first, blocks),
        };
        let piece = changes.piece_from(start_bytes, first, made, blocks);
        let (made_before, before_bytes) = previous.unwrap_or((first, start_bytes));
        previous = Some((made, piece.last));
        StepUse {
            number: step.number,
            start: step.start,
            end: step.end,
            made: made as u32,
            made_before: made_before as u32,
            start_bytes,
            end_bytes: piece.last,
            peak_bytes: piece.most,
            peak_at: changes.time_of(piece.most_at, blocks).max(step.start),
            growth_bytes: piece.last as i64 - before_bytes as i64,
        }
    };
    steps.iter().map(measure_one).collect()
}
