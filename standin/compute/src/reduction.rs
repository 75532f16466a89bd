//! Operators that combine all elements along some dimensions.

use crate::tensor::{Tensor, Value};
use std::cmp::Ordering;

/// The elements of `input` in groups that agree in all dimensions but those in `dimensions`, and the size of a group.
/// Groups come in row-major order of the remaining dimensions, which is the order of the output.
#[must_use]
pub fn groups<V: Value>(input: &Tensor, dimensions: &[i64]) -> (Vec<V>, usize) {
    let reduced = input.dimensions(dimensions);
    let kept = (0..input.rank()).filter(|dimension| !reduced.contains(dimension));
    let order: Vec<usize> = kept.chain(reduced.iter().copied()).collect();
    let length = reduced.iter().map(|dimension| input.shape[*dimension]).product();
    (input.permuted(&order).read(), length)
}

/// `output = function(group)` for every group.
pub fn reduce(input: &Tensor, dimensions: &[i64], output: &Tensor, function: impl Fn(&[f64]) -> f64) {
    let (values, length) = groups::<f64>(input, dimensions);
    output.write(&per_group(&values, length, output.len(), function));
}

/// `output = function(group)`, on whole numbers where the input has no fraction.
pub fn reduce_either(
    input: &Tensor,
    dimensions: &[i64],
    output: &Tensor,
    float: impl Fn(&[f64]) -> f64,
    integer: impl Fn(&[i64]) -> i64,
) {
    if input.is_float() {
        reduce(input, dimensions, output, float);
    } else {
        let (values, length) = groups::<i64>(input, dimensions);
        output.write(&per_group(&values, length, output.len(), integer));
    }
}

fn per_group<V: Value>(values: &[V], length: usize, count: usize, function: impl Fn(&[V]) -> V) -> Vec<V> {
    (0..count).map(|group| function(&values[group * length..(group + 1) * length])).collect()
}

/// An element of a group, which `choose` finds, and its position, where asked for; `NaN` and 0 where it finds none.
pub fn chosen_of(
    input: &Tensor,
    dimensions: &[i64],
    values: Option<&Tensor>,
    positions: Option<&Tensor>,
    choose: impl Choice,
) {
    if input.is_float() {
        chosen_values::<f64>(input, dimensions, values, positions, choose);
    } else {
        chosen_values::<i64>(input, dimensions, values, positions, choose);
    }
}

fn chosen_values<V: Value>(
    input: &Tensor,
    dimensions: &[i64],
    values: Option<&Tensor>,
    positions: Option<&Tensor>,
    choose: impl Choice,
) {
    let (elements, length) = groups::<V>(input, dimensions);
    let count = values.or(positions).map_or(0, Tensor::len);
    let choose = |group: usize| {
        let line = &elements[group * length..(group + 1) * length];
        choose.choose(line).map_or((0, V::from_float(f64::NAN)), |place| (place, line[place]))
    };
    let found: Vec<(usize, V)> = (0..count).map(choose).collect();
    if let Some(values) = values {
        values.write(&found.iter().map(|(_, value)| *value).collect::<Vec<_>>());
    }
    if let Some(positions) = positions {
        positions.write(&found.iter().map(|(position, _)| *position as i64).collect::<Vec<_>>());
    }
}

/// Chooses an element of a group.
pub trait Choice {
    /// Position of the element, unless there is none.
    fn choose<V: Value>(&self, group: &[V]) -> Option<usize>;
}

/// The largest (`Greater`) or smallest (`Less`) element, the first of equal ones; what is not a number goes first.
#[derive(Clone, Copy, Debug)]
pub struct Best(pub Ordering);

impl Choice for Best {
    fn choose<V: Value>(&self, group: &[V]) -> Option<usize> {
        let mut found = 0;
        for (index, value) in group.iter().enumerate() {
            if group[found].is_nan() {
                break;
            }
            if value.is_nan() || value.order(group[found]) == self.0 {
                found = index;
            }
        }
        (!group.is_empty()).then_some(found)
    }
}

/// What becomes of elements that are not numbers when others are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNumbers {
    /// One of them is the result.
    Win,
    /// They are above all numbers.
    AreLargest,
    /// They do not count.
    DoNotCount,
}

/// The element with the number `rank(length)` in ascending order.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<R> {
    /// Number of the element from the length of the group.
    pub rank: R,
    /// What becomes of elements that are not numbers.
    pub not_numbers: NotNumbers,
}

impl<R: Fn(usize) -> usize> Choice for InOrder<R> {
    fn choose<V: Value>(&self, group: &[V]) -> Option<usize> {
        if self.not_numbers == NotNumbers::Win
            && let Some(place) = group.iter().position(|value| value.is_nan())
        {
            return Some(place);
        }
        let counts = |place: &usize| self.not_numbers != NotNumbers::DoNotCount || !group[*place].is_nan();
        let mut places: Vec<usize> = (0..group.len()).filter(counts).collect();
        places.sort_by(|left, right| group[*left].order(group[*right]));
        places.get((self.rank)(places.len())).copied()
    }
}

/// The larger of two, `NaN` if one of them is.
#[must_use]
pub fn larger(left: f64, right: f64) -> f64 {
    if left.is_nan() || left > right { left } else { right }
}

/// The smaller of two, `NaN` if one of them is.
#[must_use]
pub fn smaller(left: f64, right: f64) -> f64 {
    if left.is_nan() || left < right { left } else { right }
}

/// Mean of a group.
#[must_use]
pub fn mean(group: &[f64]) -> f64 {
    group.iter().sum::<f64>() / group.len() as f64
}

/// Variance of a group, divided by its size less `correction`.
#[must_use]
pub fn variance(group: &[f64], correction: f64) -> f64 {
    let mean = mean(group);
    let squares: f64 = group.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (group.len() as f64 - correction).max(0.0)
}

/// Norm of order `order` of a group.
#[must_use]
pub fn norm(group: &[f64], order: f64) -> f64 {
    let magnitudes = group.iter().map(|value| value.abs());
    if order == f64::INFINITY {
        magnitudes.fold(0.0, larger)
    } else if order == f64::NEG_INFINITY {
        magnitudes.fold(f64::INFINITY, smaller)
    } else if order == 0.0 {
        magnitudes.filter(|value| *value != 0.0).count() as f64
    } else if order == 1.0 {
        magnitudes.sum()
    } else if order == 2.0 {
        magnitudes.map(|value| value * value).sum::<f64>().sqrt()
    } else {
        magnitudes.map(|value| value.powf(order)).sum::<f64>().powf(1.0 / order)
    }
}

/// `output` = running combination of `input` along a dimension, on whole numbers where the output has no fraction.
pub fn scan(
    input: &Tensor,
    dimension: i64,
    output: &Tensor,
    float: impl Fn(f64, f64) -> f64,
    integer: impl Fn(i64, i64) -> i64,
) {
    if output.is_float() {
        along(input, dimension, output, |line| run(line, &float));
    } else {
        along(input, dimension, output, |line| run(line, &integer));
    }
}

fn run<V: Value>(line: &mut [V], combine: impl Fn(V, V) -> V) {
    for index in 1..line.len() {
        line[index] = combine(line[index - 1], line[index]);
    }
}

/// `output = function(line)` for every line of `input` along a dimension.
pub fn along<V: Value>(input: &Tensor, dimension: i64, output: &Tensor, function: impl Fn(&mut [V])) {
    let (mut values, length) = groups::<V>(input, &[dimension]);
    if length > 0 {
        values.chunks_mut(length).for_each(function);
    }
    last_moved_back(output, dimension).write(&values);
}

/// `output` with a dimension moved to the end: the order in which [`groups`] of that dimension come.
#[must_use]
pub fn last_moved_back(output: &Tensor, dimension: i64) -> Tensor {
    let moved = output.dimension(dimension);
    let mut order: Vec<usize> = (0..output.rank()).filter(|dimension| *dimension != moved).collect();
    if output.rank() > 0 {
        order.push(moved);
    }
    output.permuted(&order)
}

/// Softmax of a line, or its logarithm.
pub fn softmax(line: &mut [f64], logarithm: bool) {
    let largest = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = line.iter().map(|value| (value - largest).exp()).sum();
    for value in line {
        let shifted = *value - largest;
        *value = if logarithm { shifted - sum.ln() } else { shifted.exp() / sum };
    }
}

/// Gradient of softmax (or its logarithm) from its output, along a dimension.
pub fn softmax_backward(gradient: &Tensor, result: &Tensor, dimension: i64, output: &Tensor, logarithm: bool) {
    let (gradients, length) = groups::<f64>(gradient, &[dimension]);
    let (results, _) = groups::<f64>(result, &[dimension]);
    let mut values = Vec::with_capacity(gradients.len());
    for (gradients, results) in gradients.chunks(length.max(1)).zip(results.chunks(length.max(1))) {
        if logarithm {
            let sum: f64 = gradients.iter().sum();
            values.extend(gradients.iter().zip(results).map(|(gradient, result)| gradient - result.exp() * sum));
        } else {
            let sum: f64 = gradients.iter().zip(results).map(|(gradient, result)| gradient * result).sum();
            values.extend(gradients.iter().zip(results).map(|(gradient, result)| result * (gradient - sum)));
        }
    }
    last_moved_back(output, dimension).write(&values);
}

#[cfg(test)]
mod tests {
    use super::{Best, chosen_of, norm, reduce, scan, variance};
    use crate::tensor::Tensor;
    use std::cmp::Ordering;

    #[test]
    fn groups_follow_the_dimensions() {
        let mut values: Vec<f32> = (0..24).map(|value| value as f32).collect();
        let tensor = Tensor::dense(&mut values, &[2, 3, 4]);
        let mut sums = [0.0; 3];
        reduce(&tensor, &[0, -1], &Tensor::dense(&mut sums, &[3]), |group| group.iter().sum());
        assert_eq!(sums, [60.0, 92.0, 124.0]);
        let mut all = [0.0];
        reduce(&tensor, &[], &Tensor::dense(&mut all, &[]), |group| group.iter().sum());
        assert_eq!(all, [276.0]);
    }

    #[test]
    fn the_best_element_is_found_with_its_place() {
        let mut values = [3.0, 1.0, f32::NAN, 5.0, 9.0, 2.0];
        let tensor = Tensor::dense(&mut values, &[2, 3]);
        let (mut best, mut places) = ([0.0; 2], [0.0; 2]);
        chosen_of(
            &tensor,
            &[1],
            Some(&Tensor::dense(&mut best, &[2])),
            Some(&Tensor::dense(&mut places, &[2])),
            Best(Ordering::Greater),
        );
        assert!(best[0].is_nan());
        assert_eq!((best[1], places), (9.0, [2.0, 1.0]));
    }

    #[test]
    fn scans_run_along_one_dimension() {
        let mut values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let tensor = Tensor::dense(&mut values, &[2, 3]);
        scan(&tensor.clone(), 0, &tensor, |left, right| left + right, i64::wrapping_add);
        assert_eq!(values, [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
    }

    #[test]
    fn statistics() {
        assert_eq!(variance(&[1.0, 2.0, 3.0, 4.0], 1.0), 5.0 / 3.0);
        assert_eq!(norm(&[3.0, -4.0], 2.0), 5.0);
        assert_eq!(norm(&[3.0, -4.0], f64::INFINITY), 4.0);
        assert!(norm(&[3.0, f64::NAN, 4.0], f64::INFINITY).is_nan());
        assert!(norm(&[3.0, f64::NAN, 4.0], f64::NEG_INFINITY).is_nan());
    }
}
