//! Which elements two sequences have in common: Myers' O(ND) algorithm in linear space.
//!
//! Elements that the other sequence lacks altogether are differences in any case and are left out first. The fewest
//! possible differences are found as long as there are not too many of them, which takes time in proportion to the length
//! plus the square of the differences. With more of them the sequences are gone through in windows, each of which is
//! aligned in the best way and then believed as far as its middle: differences that have to do with each other are seldom
//! further apart. Windows grow where there is nothing in common to go by.

use rustc_hash::FxHashSet;

/// With more differences than this the best alignment of the whole is not searched for.
const MOST_DIFFERENCES: usize = 16_000;
/// Differences followed in a window.
const WINDOW_DIFFERENCES: usize = 128;
/// Differences followed in the largest windows.
const LARGEST_WINDOW_DIFFERENCES: usize = 1 << 14;
/// Steps that windows may take beyond their usual size.
const WIDENING_BUDGET: u64 = 150_000_000;

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
    let (of_before, of_after) = (shared_positions(before, after), shared_positions(after, before));
    let elements = |sequence: &[u32], positions: &[usize]| positions.iter().map(|&at| sequence[at]).collect::<Vec<_>>();
    let shared = align_shared(&elements(before, &of_before), &elements(after, &of_after));
    let spread = |length: usize, positions: &[usize], differs: &[bool]| {
        let mut all = vec![true; length];
        positions.iter().zip(differs).for_each(|(&position, &differs)| all[position] = differs);
        all
    };
    Alignment {
        removed: spread(before.len(), &of_before, &shared.removed),
        added: spread(after.len(), &of_after, &shared.added),
    }
}

/// Where a sequence has elements that another one has, too.
fn shared_positions(sequence: &[u32], other: &[u32]) -> Vec<usize> {
    let known: FxHashSet<u32> = other.iter().copied().collect();
    sequence.iter().enumerate().filter(|(_, element)| known.contains(element)).map(|(position, _)| position).collect()
}

fn align_shared(before: &[u32], after: &[u32]) -> Alignment {
    let mut search = Search::new(before, after);
    let in_windows = search.in_windows(WINDOW_DIFFERENCES);
    // The best alignment has no more differences than this one.
    if in_windows.difference_count() <= MOST_DIFFERENCES { search.exactly() } else { in_windows }
}

impl Alignment {
    fn difference_count(&self) -> usize {
        self.removed.iter().chain(&self.added).filter(|differs| **differs).count()
    }
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
}

impl<'a> Search<'a> {
    fn new(before: &'a [u32], after: &'a [u32]) -> Self {
        Self { before, after, forward: Furthest::default(), backward: Furthest::default() }
    }

    fn whole(&self) -> Area {
        Area { left: 0, right: self.before.len(), top: 0, bottom: self.after.len() }
    }

    fn nothing_known(&self) -> Alignment {
        Alignment { removed: vec![false; self.before.len()], added: vec![false; self.after.len()] }
    }

    /// An alignment with the fewest possible differences.
    fn exactly(&mut self) -> Alignment {
        let mut alignment = self.nothing_known();
        self.align_area(self.whole(), &mut alignment);
        alignment
    }

    /// An alignment that is the best one window by window.
    fn in_windows(&mut self, usual_differences: usize) -> Alignment {
        let mut alignment = self.nothing_known();
        let mut budget = WIDENING_BUDGET;
        let mut rest = self.without_common_ends(self.whole());
        while rest.left < rest.right && rest.top < rest.bottom {
            let (window, is_last) = self.window(&rest, usual_differences, &mut budget);
            self.align_area(window, &mut alignment);
            if is_last {
                return alignment;
            }
            // What lies behind the middle depends on what comes.
            let (left, top) = middle_of(&window, &alignment);
            alignment.removed[left..window.right].fill(false);
            alignment.added[top..window.bottom].fill(false);
            rest = self.without_common_ends(Area { left, top, ..rest });
        }
        self.align_area(rest, &mut alignment);
        alignment
    }

    /// The next window: as much as can be passed with so many differences, and whether that is all there is. It is larger
    /// where most of what it passes is not common.
    fn window(&mut self, rest: &Area, usual_differences: usize, budget: &mut u64) -> (Area, bool) {
        let mut differences = usual_differences;
        loop {
            let (across, down) = self.reach(rest, differences);
            let window = run_to(rest, across, down);
            let is_last = window.right == rest.right && window.bottom == rest.bottom;
            let common = (across + down).saturating_sub(differences) / 2;
            let work = (differences * differences) as u64 * 4;
            if is_last || common >= differences / 4 || differences >= LARGEST_WINDOW_DIFFERENCES || work > *budget {
                return (window, is_last);
            }
            *budget -= work;
            differences *= 2;
        }
    }

    /// How far one gets in an area with so many differences: the point with the most elements behind it.
    fn reach(&mut self, area: &Area, most_differences: usize) -> (usize, usize) {
        let (before, after) = (&self.before[area.left..area.right], &self.after[area.top..area.bottom]);
        let (width, height, most) = (before.len() as i64, after.len() as i64, most_differences as i64);
        self.forward.prepare(-most - 1, most + 1);
        self.forward.set(1, 0);
        let mut best = (0, 0);
        for differences in 0..=most {
            let (lowest, highest) = visited(differences, width, height);
            let mut diagonal = lowest;
            while diagonal <= highest {
                let mut position = step(&self.forward, diagonal, differences);
                while position < width
                    && position - diagonal < height
                    && before[position as usize] == after[(position - diagonal) as usize]
                {
                    position += 1;
                }
                self.forward.set(diagonal, position);
                let down = position - diagonal;
                if position <= width && down <= height && position + down > best.0 + best.1 {
                    best = (position, down);
                }
                diagonal += 2;
            }
            if best == (width, height) {
                break;
            }
        }
        (best.0 as usize, best.1 as usize)
    }

    /// Aligns an area with the fewest possible differences.
    fn align_area(&mut self, area: Area, alignment: &mut Alignment) {
        let mut open = vec![area];
        while let Some(area) = open.pop() {
            let area = self.without_common_ends(area);
            if area.left == area.right {
                alignment.added[area.top..area.bottom].fill(true);
            } else if area.top == area.bottom {
                alignment.removed[area.left..area.right].fill(true);
            } else {
                let run = self.middle(&area);
                open.push(Area { right: run.left, bottom: run.top, ..area });
                open.push(Area { left: run.right, top: run.bottom, ..area });
            }
        }
    }

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
            let (lowest, highest) = visited(differences, width, height);
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
        }
        unreachable!("both searches together cover the whole area")
    }
}

/// The diagonals that a search with this many differences visits: the first and the last.
#[inline]
fn visited(differences: i64, width: i64, height: i64) -> (i64, i64) {
    (-(differences - 2 * (differences - height).max(0)), differences - 2 * (differences - width).max(0))
}

/// The point in the middle of a window, by how it is aligned.
fn middle_of(window: &Area, alignment: &Alignment) -> (usize, usize) {
    let (mut left, mut top) = (window.left, window.top);
    let half = ((window.right - left) + (window.bottom - top)).div_ceil(2);
    while (left - window.left) + (top - window.top) < half {
        if left < window.right && alignment.removed[left] {
            left += 1;
        } else if top < window.bottom && alignment.added[top] {
            top += 1;
        } else {
            (left, top) = (left + 1, top + 1);
        }
    }
    (left, top)
}

/// Whether a diagonal was visited by a search with this many differences.
#[inline]
fn in_range(diagonal: i64, differences: i64, width: i64, height: i64) -> bool {
    let (lowest, highest) = visited(differences, width, height);
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

/// The part of an area before a point.
fn run_to(area: &Area, across: usize, down: usize) -> Area {
    Area { right: area.left + across, bottom: area.top + down, ..*area }
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
        fn windows_make_an_alignment(
            before in prop::collection::vec(0u32..3, 0..400),
            after in prop::collection::vec(0u32..3, 0..400),
            differences in 1usize..40,
        ) {
            let alignment = Search::new(&before, &after).in_windows(differences);
            prop_assert_eq!(kept(&before, &alignment.removed), kept(&after, &alignment.added));
        }
    }

    /// A sequence, and the same with every third element exchanged for another one of those, an element left out and one
    /// put in now and then.
    fn similar(length: usize, names: u32) -> (Vec<u32>, Vec<u32>) {
        let mut random = 1u64;
        let mut next = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as u32 % names
        };
        let before: Vec<u32> = (0..length).map(|_| next()).collect();
        let mut after = Vec::with_capacity(length);
        for (position, element) in before.iter().enumerate() {
            match position % 90 {
                31 => {}
                62 => after.extend([*element, next()]),
                offset if offset % 3 == 0 => after.push(next()),
                _ => after.push(*element),
            }
        }
        (before, after)
    }

    #[test]
    fn windows_find_the_best_alignment_where_differences_are_near_each_other() {
        let (before, after) = similar(6_000, 10_000);
        let mut search = Search::new(&before, &after);
        let (exact, in_windows) = (search.exactly(), search.in_windows(40));
        assert!(exact.difference_count() > 3_000);
        assert_eq!(in_windows.difference_count(), exact.difference_count());
    }

    #[test]
    fn windows_grow_where_there_is_nothing_in_common() {
        let (before, _) = similar(3_000, 10_000);
        let after: Vec<u32> =
            before[..1000].iter().copied().chain(20_000..21_000).chain(before[1000..].to_vec()).collect();
        let alignment = Search::new(&before, &after).in_windows(WINDOW_DIFFERENCES);
        assert_eq!(alignment.difference_count(), 1_000);
    }

    #[test]
    fn sequences_with_nothing_in_common_end_too() {
        let before: Vec<u32> = (0..3000).collect();
        let after: Vec<u32> = (10_000..13_000).collect();
        let alignment = align(&before, &after);
        assert!(alignment.removed.iter().all(|&removed| removed) && alignment.added.iter().all(|&added| added));
    }

    #[test]
    fn elements_in_reverse_order_end_too() {
        let before: Vec<u32> = (0..20_000).collect();
        let after: Vec<u32> = before.iter().rev().copied().collect();
        let alignment = align(&before, &after);
        assert_eq!(kept(&before, &alignment.removed), kept(&after, &alignment.added));
        assert!(!kept(&before, &alignment.removed).is_empty());
    }
}
