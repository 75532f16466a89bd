//! Which elements two sequences have in common: Myers' O(ND) algorithm in linear space.
//!
//! The fewest possible differences are found as long as there are not too many of them: long similar
//! sequences take time in proportion to their length plus the square of the differences. When the work
//! budget is used up the search takes the most promising way instead of the best, so that two sequences
//! with nothing in common end as well.

/// Steps spent on exact searching.
const WORK_BUDGET: u64 = 3_000_000_000;
/// Differences followed per search once the budget is used up.
const DIFFERENCES_BEYOND_BUDGET: usize = 64;

/// What only one of two sequences has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// By position in the first sequence: not in the second.
    pub(crate) removed: Vec<bool>,
    /// By position in the second sequence: not in the first.
    pub(crate) added: Vec<bool>,
}

/// Aligns two sequences.
pub(crate) fn align(before: &[u32], after: &[u32]) -> Alignment {
    align_within(before, after, WORK_BUDGET)
}

fn align_within(before: &[u32], after: &[u32], budget: u64) -> Alignment {
    let mut alignment = Alignment { removed: vec![false; before.len()], added: vec![false; after.len()] };
    let mut search = Search { before, after, forward: Furthest::default(), backward: Furthest::default(), budget };
    let mut open = vec![Area { left: 0, right: before.len(), top: 0, bottom: after.len() }];
    while let Some(area) = open.pop() {
        let area = search.without_common_ends(area);
        if area.left == area.right {
            alignment.added[area.top..area.bottom].fill(true);
        } else if area.top == area.bottom {
            alignment.removed[area.left..area.right].fill(true);
        } else {
            let run = search.middle(&area);
            open.push(Area { right: run.left, bottom: run.top, ..area });
            open.push(Area { left: run.right, top: run.bottom, ..area });
        }
    }
    alignment
}

/// A part of both sequences: `left..right` of the first, `top..bottom` of the second.
#[derive(Clone, Copy, Debug)]
struct Area {
    left: usize,
    right: usize,
    top: usize,
    bottom: usize,
}

/// Furthest positions in the first sequence, by diagonal.
#[derive(Debug, Default)]
struct Furthest {
    positions: Vec<i64>,
    origin: i64,
}

impl Furthest {
    fn prepare(&mut self, lowest: i64, highest: i64) {
        let length = (highest - lowest + 3) as usize;
        if self.positions.len() < length {
            self.positions.resize(length, 0);
        }
        self.origin = 1 - lowest;
    }

    #[inline]
    fn get(&self, diagonal: i64) -> i64 {
        self.positions[(diagonal + self.origin) as usize]
    }

    #[inline]
    fn set(&mut self, diagonal: i64, position: i64) {
        self.positions[(diagonal + self.origin) as usize] = position;
    }
}

struct Search<'a> {
    before: &'a [u32],
    after: &'a [u32],
    forward: Furthest,
    backward: Furthest,
    budget: u64,
}

impl Search<'_> {
    fn without_common_ends(&self, mut area: Area) -> Area {
        while area.left < area.right && area.top < area.bottom && self.before[area.left] == self.after[area.top] {
            (area.left, area.top) = (area.left + 1, area.top + 1);
        }
        while area.left < area.right
            && area.top < area.bottom
            && self.before[area.right - 1] == self.after[area.bottom - 1]
        {
            (area.right, area.bottom) = (area.right - 1, area.bottom - 1);
        }
        area
    }

    /// A run of common elements (maybe none) in the middle of a shortest way through the area. Both
    /// parts beside it are smaller than the area, because its ends have nothing in common.
    fn middle(&mut self, area: &Area) -> Area {
        let (before, after) = (&self.before[area.left..area.right], &self.after[area.top..area.bottom]);
        let (width, height) = (before.len() as i64, after.len() as i64);
        // The backward search has its own diagonals; `delta` is where it begins in those of the forward one.
        let delta = width - height;
        let is_odd = delta % 2 != 0;
        self.forward.prepare(-height - 1, width + 1);
        self.backward.prepare(-height - 1, width + 1);
        self.forward.set(1, 0);
        self.backward.set(1, 0);
        let most = (width + height + 1) / 2;
        for differences in 0..=most {
            let lowest = -(differences - 2 * (differences - height).max(0));
            let highest = differences - 2 * (differences - width).max(0);
            let mut diagonal = lowest;
            while diagonal <= highest {
                let start = step(&self.forward, diagonal, differences);
                let mut position = start;
                while position < width
                    && position - diagonal < height
                    && before[position as usize] == after[(position - diagonal) as usize]
                {
                    position += 1;
                }
                self.forward.set(diagonal, position);
                let mirrored = delta - diagonal;
                if is_odd
                    && mirrored.abs() < differences
                    && in_range(mirrored, differences - 1, width, height)
                    && position + self.backward.get(mirrored) >= width
                {
                    return run_at(area, start, start - diagonal, position - start);
                }
                diagonal += 2;
            }
            let mut diagonal = lowest;
            while diagonal <= highest {
                let start = step(&self.backward, diagonal, differences);
                let mut position = start;
                while position < width
                    && position - diagonal < height
                    && before[(width - 1 - position) as usize] == after[(height - 1 - position + diagonal) as usize]
                {
                    position += 1;
                }
                self.backward.set(diagonal, position);
                let mirrored = delta - diagonal;
                if !is_odd
                    && mirrored.abs() <= differences
                    && in_range(mirrored, differences, width, height)
                    && position + self.forward.get(mirrored) >= width
                {
                    let (right, bottom) = (width - start, height - (start - diagonal));
                    let length = position - start;
                    return run_at(area, right - length, bottom - length, length);
                }
                diagonal += 2;
            }
            let work = (highest - lowest + 2) as u64;
            self.budget = self.budget.saturating_sub(work);
            if self.budget == 0 && differences as usize >= DIFFERENCES_BEYOND_BUDGET {
                return self.most_promising(area, lowest, highest, height);
            }
        }
        unreachable!("both searches together cover the whole area")
    }

    /// The point the forward search got furthest to.
    fn most_promising(&self, area: &Area, lowest: i64, highest: i64, height: i64) -> Area {
        let mut best = (0, 0);
        let mut diagonal = lowest;
        while diagonal <= highest {
            let across = self.forward.get(diagonal);
            let down = across - diagonal;
            if down <= height && across + down > best.0 + best.1 {
                best = (across, down);
            }
            diagonal += 2;
        }
        run_at(area, best.0, best.1, 0)
    }
}

/// Whether a diagonal was visited by a search with this many differences.
#[inline]
fn in_range(diagonal: i64, differences: i64, width: i64, height: i64) -> bool {
    let lowest = -(differences - 2 * (differences - height).max(0));
    let highest = differences - 2 * (differences - width).max(0);
    (lowest..=highest).contains(&diagonal)
}

/// Where a diagonal is entered: from the neighbour that got further.
#[inline]
fn step(furthest: &Furthest, diagonal: i64, differences: i64) -> i64 {
    if differences == 0 {
        return 0;
    }
    let (below, above) = (furthest.get(diagonal - 1), furthest.get(diagonal + 1));
    if diagonal == -differences || (diagonal != differences && below < above) { above } else { below + 1 }
}

fn run_at(area: &Area, across: i64, down: i64, length: i64) -> Area {
    let (left, top) = (area.left + across as usize, area.top + down as usize);
    Area { left, right: left + length as usize, top, bottom: top + length as usize }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Length of the longest common subsequence, the plain way.
    fn common_length(before: &[u32], after: &[u32]) -> usize {
        let mut row = vec![0; after.len() + 1];
        for left in before {
            let mut diagonal = 0;
            for (index, right) in after.iter().enumerate() {
                let above = row[index + 1];
                row[index + 1] = if left == right { diagonal + 1 } else { above.max(row[index]) };
                diagonal = above;
            }
        }
        row[after.len()]
    }

    fn kept(sequence: &[u32], changed: &[bool]) -> Vec<u32> {
        sequence.iter().zip(changed).filter(|(_, changed)| !**changed).map(|(element, _)| *element).collect()
    }

    proptest! {
        #[test]
        fn differences_are_the_fewest_possible(
            before in prop::collection::vec(0u32..4, 0..60),
            after in prop::collection::vec(0u32..4, 0..60),
        ) {
            let alignment = align(&before, &after);
            let common = kept(&before, &alignment.removed);
            prop_assert_eq!(&common, &kept(&after, &alignment.added));
            prop_assert_eq!(common.len(), common_length(&before, &after));
        }

        #[test]
        fn without_budget_the_result_is_still_an_alignment(
            before in prop::collection::vec(0u32..3, 0..400),
            after in prop::collection::vec(0u32..3, 0..400),
        ) {
            let alignment = align_within(&before, &after, 0);
            prop_assert_eq!(kept(&before, &alignment.removed), kept(&after, &alignment.added));
        }
    }

    #[test]
    fn sequences_with_nothing_in_common_end_too() {
        let before: Vec<u32> = (0..3000).collect();
        let after: Vec<u32> = (10_000..13_000).collect();
        let alignment = align_within(&before, &after, 1000);
        assert!(alignment.removed.iter().all(|&removed| removed) && alignment.added.iter().all(|&added| added));
    }
}
