//! The peak of a pool, and what it would be if some blocks had lived shorter.
//!
//! That a block was held too long is known only when it ends, so use and savings are kept per operator
//! for a window of operators and folded into the result when they leave it. A saving that reaches back
//! beyond the window is counted only inside it: the result never promises too much.

use std::collections::VecDeque;

/// Operators remembered.
const WINDOW_OPERATORS: usize = 1 << 18;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    most_used_bytes: u64,
    /// Change of the savings with this operator.
    saved_change_bytes: i64,
}

/// The window of one pool.
#[derive(Debug, Default)]
pub(crate) struct PeakWindow {
    slots: VecDeque<Slot>,
    /// Operator of the first slot.
    first_operator: u64,
    used_bytes: u64,
    /// Savings before the first slot.
    saved_bytes: i64,
    peak_bytes: u64,
    peak_if_fixed_bytes: u64,
}

impl PeakWindow {
    /// The pool uses this many bytes as of this operator.
    #[inline]
    pub(crate) fn used(&mut self, operator: u64, used_bytes: u64) {
        let most_used_bytes = used_bytes.max(self.used_bytes);
        self.extend(operator);
        self.used_bytes = used_bytes;
        if let Some(slot) =
            operator.checked_sub(self.first_operator).and_then(|offset| self.slots.get_mut(offset as usize))
        {
            slot.most_used_bytes = slot.most_used_bytes.max(most_used_bytes);
        }
    }

    fn extend(&mut self, operator: u64) {
        if self.slots.is_empty() {
            self.first_operator = operator;
        }
        let empty = Slot { most_used_bytes: self.used_bytes, saved_change_bytes: 0 };
        // A long silence fits into the window as well as a full one.
        let missing = (operator + 1).saturating_sub(self.first_operator + self.slots.len() as u64);
        if missing as usize > WINDOW_OPERATORS {
            while let Some(slot) = self.slots.pop_front() {
                self.fold(slot);
            }
            self.fold(empty);
            self.first_operator = operator;
            self.slots.push_back(empty);
            return;
        }
        for _ in 0..missing {
            self.slots.push_back(empty);
        }
        while self.slots.len() > WINDOW_OPERATORS {
            if let Some(slot) = self.slots.pop_front() {
                self.fold(slot);
                self.first_operator += 1;
            }
        }
    }

    fn fold(&mut self, slot: Slot) {
        self.saved_bytes = self.saved_bytes.saturating_add(slot.saved_change_bytes);
        self.peak_bytes = self.peak_bytes.max(slot.most_used_bytes);
        let fixed = slot.most_used_bytes.saturating_sub(self.saved_bytes.max(0) as u64);
        self.peak_if_fixed_bytes = self.peak_if_fixed_bytes.max(fixed);
    }

    /// A block was not needed from one operator to another, both included.
    pub(crate) fn saved(&mut self, from: u64, to: u64, size_bytes: u64) {
        let from = from.max(self.first_operator);
        if to < from {
            return;
        }
        self.extend(to + 1);
        let size_bytes = size_bytes.min(i64::MAX as u64) as i64;
        let from = from.max(self.first_operator);
        for (operator, change) in [(from, size_bytes), (to + 1, -size_bytes)] {
            if let Some(slot) =
                operator.checked_sub(self.first_operator).and_then(|offset| self.slots.get_mut(offset as usize))
            {
                slot.saved_change_bytes = slot.saved_change_bytes.saturating_add(change);
            }
        }
    }

    /// The peak, and the peak if fixed.
    pub(crate) fn finish(mut self) -> (u64, u64) {
        while let Some(slot) = self.slots.pop_front() {
            self.fold(slot);
        }
        (self.peak_bytes, self.peak_if_fixed_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn savings_lower_the_peak_only_where_they_apply() {
        let mut window = PeakWindow::default();
        window.used(1, 100);
        window.used(2, 180);
        window.used(5, 90);
        window.saved(2, 5, 50);
        assert_eq!(window.finish(), (180, 130));
        let mut window = PeakWindow::default();
        window.used(1, 100);
        window.used(9, 170);
        window.saved(1, 5, 90);
        assert_eq!(window.finish(), (170, 170));
    }

    #[test]
    fn long_silences_are_survived() {
        let mut window = PeakWindow::default();
        window.used(1, 100);
        window.used(10_000_000, 300);
        window.saved(10_000_000, 10_000_000, 50);
        window.used(90_000_000, 10);
        assert_eq!(window.finish(), (300, 300), "the fall comes only after it was in use");
    }

    proptest! {
        #[test]
        fn agrees_with_plain_arrays(
            uses in prop::collection::vec((0u64..3, 0u64..1000), 1..60),
            savings in prop::collection::vec((1u64..100, 0u64..50, 1u64..300), 0..20),
        ) {
            let mut window = PeakWindow::default();
            let mut most = vec![0u64; 400];
            let (mut operator, mut used) = (1u64, 0u64);
            for (step, now) in &uses {
                for passed in operator..operator + step {
                    most[passed as usize + 1] = most[passed as usize + 1].max(used);
                }
                operator += step;
                window.used(operator, *now);
                most[operator as usize] = most[operator as usize].max(*now).max(used);
                used = *now;
            }
            let mut saved = vec![0i64; 400];
            for &(from, length, size) in &savings {
                let to = (from + length).min(operator);
                if from <= to {
                    window.saved(from, to, size);
                    for slot in &mut saved[from as usize..=to as usize] {
                        *slot += size as i64;
                    }
                }
            }
            let peak = most.iter().copied().max().unwrap();
            let fixed = (1..=operator as usize).map(|at| most[at].saturating_sub(saved[at] as u64)).max().unwrap();
            let (found_peak, found_fixed) = window.finish();
            prop_assert_eq!(found_peak, peak);
            // One slot after the last operator only carries the use on.
            prop_assert_eq!(found_fixed.max(used), fixed.max(used));
        }
    }
}
