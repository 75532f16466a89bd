//! Values that hold until they change.

use msmemscope_columns::Column;
use msmemscope_event::Device;

/// A value over time.
#[derive(Debug, Default)]
pub(crate) struct StepSeries {
    pub(crate) time: Column<u64>,
    pub(crate) value: Column<u64>,
}

impl StepSeries {
    /// The value from now on.
    pub(crate) fn set(&mut self, time: u64, value: u64) {
        if self.value.last() != Some(&value) {
            self.time.push(time);
            self.value.push(value);
        }
    }

    /// The value at a time; none before the first.
    pub(crate) fn at(&self, time: u64) -> Option<u64> {
        let index = self.time.partition_point(|&known| known <= time);
        index.checked_sub(1).map(|index| self.value[index])
    }

    pub(crate) fn highest(&self) -> u64 {
        self.value.iter().copied().max().unwrap_or(0)
    }

    /// The highest value within each piece of a window; none before the first value.
    pub(crate) fn highest_per_piece(&self, edges: &[u64]) -> Vec<Option<u64>> {
        let mut index = self.time.partition_point(|&known| known <= edges.first().copied().unwrap_or(0));
        let mut current = index.checked_sub(1).map(|index| self.value[index]);
        let mut result = Vec::with_capacity(edges.len().saturating_sub(1));
        for edge in edges.iter().skip(1) {
            let mut highest = current;
            while index < self.time.len() && self.time[index] < *edge {
                current = Some(self.value[index]);
                highest = highest.max(current);
                index += 1;
            }
            result.push(highest);
        }
        result
    }
}

/// Use of a whole card as it was sampled.
#[derive(Debug)]
pub(crate) struct CardSeries {
    pub(crate) device: Device,
    pub(crate) total_bytes: u64,
    pub(crate) used: StepSeries,
    pub(crate) process: StepSeries,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_value_counts_also_when_it_came_before() {
        let mut series = StepSeries::default();
        [(10, 5), (20, 9), (21, 1), (40, 1), (50, 3)].into_iter().for_each(|(time, value)| series.set(time, value));
        assert_eq!(series.time.len(), 4, "the same value again is no change");
        assert_eq!(series.highest_per_piece(&[0, 10, 20, 30, 60]), [None, Some(5), Some(9), Some(3)]);
        assert_eq!(series.highest_per_piece(&[20, 21, 22]), [Some(9), Some(9)]);
        assert_eq!((series.at(9), series.at(10), series.at(100)), (None, Some(5), Some(3)));
        assert_eq!(series.highest(), 9);
    }
}
