//! Which ranks are different from the others.
//!
//! A value is an outlier if it is farther from the median than five times the usual distance from it (the median of
//! the distances, scaled to a standard deviation), and far enough to matter. If most ranks are exactly equal, the usual
//! distance is zero, and what is far enough to matter decides alone. Ranks are compared with those of their own
//! pipeline stage where there are enough of them: stages differ by design.

use serde::Serialize;

/// Fewer values than this have no outliers.
const FEWEST: usize = 3;
/// So many times the usual distance.
const DISTANCES: f64 = 5.0;
/// From a median of distances to a standard deviation, for values that are spread normally.
const TO_DEVIATION: f64 = 1.4826;
/// If more than this part of the ranks is different, it is not they that are.
const LARGEST_PART: usize = 4;

/// What ranks are compared by, in the order in which it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Growth per step.
    Growth,
    /// Most bytes in use.
    Peak,
    /// Bytes in use at the end.
    End,
    /// Bytes held at most, without the most in use.
    Unused,
    /// Blocks allocated.
    Allocations,
    /// Steps.
    Steps,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Growth, Self::Peak, Self::End, Self::Unused, Self::Allocations, Self::Steps];

    /// What part of the scale a difference must be to matter.
    fn least_part(self) -> f64 {
        match self {
            Self::Peak | Self::End | Self::Growth => 0.01,
            Self::Unused => 0.05,
            Self::Allocations | Self::Steps => 0.10,
        }
    }
}

/// A value of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// The value.
    pub value: f64,
    /// What a difference is compared with: the value itself, or the memory that it adds to.
    pub scale: f64,
}

/// A rank that is different, and in what.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// In what.
    pub measure: Measure,
    /// Its value.
    pub value: f64,
    /// The median of all.
    pub median: f64,
    /// How many times the usual distance it is away; nothing if most are equal.
    pub distances: Option<f64>,
    /// How many it was compared with, itself included.
    pub among: usize,
    /// How many others have exactly the median.
    pub equal: usize,
}

/// The median of some values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

/// The values that are different, by their place.
pub fn outliers(measure: Measure, values: &[Value]) -> Vec<(usize, Difference)> {
    let among = values.len();
    if among < FEWEST {
        return Vec::new();
    }
    let center = median(&mut values.iter().map(|value| value.value).collect::<Vec<_>>());
    let scale = median(&mut values.iter().map(|value| value.scale).collect::<Vec<_>>());
    let usual = median(&mut values.iter().map(|value| (value.value - center).abs()).collect::<Vec<_>>());
    let equal = values.iter().filter(|value| value.value == center).count();
    let least = (measure.least_part() * scale).max(DISTANCES * TO_DEVIATION * usual);
    let is_out = |value: &Value| {
        let distance = (value.value - center).abs();
        distance > 0.0 && distance >= least
    };
    let found: Vec<_> = values
        .iter()
        .enumerate()
        .filter(|(_, value)| is_out(value))
        .map(|(index, value)| {
            let distances = (usual > 0.0).then(|| (value.value - center).abs() / (TO_DEVIATION * usual));
            (index, Difference { measure, value: value.value, median: center, distances, among, equal })
        })
        .collect();
    if found.len() > (among / LARGEST_PART).max(1) { Vec::new() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[f64]) -> Vec<usize> {
        let values: Vec<Value> = values.iter().map(|&value| Value { value, scale: value }).collect();
        outliers(Measure::Peak, &values).into_iter().map(|(index, _)| index).collect()
    }

    #[test]
    fn one_that_differs_is_found_also_among_equals() {
        assert_eq!(found(&[5.0, 5.0, 5.0, 9.0]), [3]);
        assert_eq!(found(&[5.0, 1.0, 5.0]), [1]);
        assert_eq!(found(&[0.0, 0.0, 0.0, 0.0, 7.0]), [4], "nobody else holds anything");
        assert_eq!(found(&[100.0, 101.0, 99.0, 100.5, 99.5, 150.0]), [5]);
    }

    #[test]
    fn small_differences_and_halves_are_none() {
        assert_eq!(found(&[1000.0, 1000.0, 1000.0, 1001.0]), [0usize; 0], "less than one part in a hundred");
        assert_eq!(found(&[5.0, 5.0, 9.0, 9.0]), [0usize; 0]);
        assert_eq!(found(&[5.0, 5.0, 5.0, 9.0, 9.0, 5.0]), [0usize; 0], "a third of them is no outlier");
        assert_eq!(found(&[5.0, 9.0]), [0usize; 0]);
        assert_eq!(found(&[]), [0usize; 0]);
        let spread: Vec<f64> = (0..1000).map(|index| 100.0 + f64::from(index % 50)).collect();
        assert_eq!(found(&spread), [0usize; 0]);
    }
}
