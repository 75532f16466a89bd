//! Distances between rows.

use crate::reduction::norm;
use crate::tensor::Tensor;

/// Rows of a tensor, repeated to these batches: all of them behind each other, and the size of a row.
fn rows(tensor: &Tensor, batches: &[usize]) -> (Vec<f64>, usize, usize) {
    let (count, size) = (tensor.shape[tensor.rank() - 2], tensor.shape[tensor.rank() - 1]);
    (tensor.read_as(&[batches, &[count, size]].concat()), count, size)
}

/// Differences of two rows.
fn differences(left: &[f64], right: &[f64]) -> Vec<f64> {
    left.iter().zip(right).map(|(left, right)| left - right).collect()
}

/// `output` (batches x rows of `left` x rows of `right`) = distance of order `order` of every pair of rows.
pub fn pairs(left: &Tensor, right: &Tensor, order: f64, output: &Tensor) {
    let batches = &output.shape[..output.rank() - 2];
    let ((lefts, rows_left, size), (rights, rows_right, _)) = (rows(left, batches), rows(right, batches));
    let mut distances = Vec::with_capacity(output.len());
    for batch in 0..batches.iter().product() {
        for row in 0..rows_left {
            let left = &lefts[(batch * rows_left + row) * size..][..size];
            for other in 0..rows_right {
                let right = &rights[(batch * rows_right + other) * size..][..size];
                distances.push(norm(&differences(left, right), order));
            }
        }
    }
    output.write(&distances);
}

/// `output` = distance of every row to all rows behind it.
pub fn pairs_within(input: &Tensor, order: f64, output: &Tensor) {
    let (values, count, size) = rows(input, &[]);
    let row = |index: usize| &values[index * size..(index + 1) * size];
    let pairs = (0..count).flat_map(|first| (first + 1..count).map(move |second| (first, second)));
    output.write(&pairs.map(|(first, second)| norm(&differences(row(first), row(second)), order)).collect::<Vec<_>>());
}

/// The share that one difference has in the gradient of a distance.
#[must_use]
pub fn slope(difference: f64, distance: f64, order: f64) -> f64 {
    if order == 0.0 || distance == 0.0 || difference == 0.0 {
        0.0
    } else if order == 1.0 {
        difference.signum()
    } else if order == f64::INFINITY {
        // The distance was rounded to single precision.
        if difference.abs() as f32 == distance as f32 { difference.signum() } else { 0.0 }
    } else {
        difference.signum() * (difference.abs() / distance).powf(order - 1.0)
    }
}

/// Gradient of [`pairs`] for `left`.
pub fn pairs_backward(
    gradient: &Tensor,
    left: &Tensor,
    right: &Tensor,
    distances: &Tensor,
    order: f64,
    output: &Tensor,
) {
    let batches = &output.shape[..output.rank() - 2];
    let ((lefts, rows_left, size), (rights, rows_right, _)) = (rows(left, batches), rows(right, batches));
    let shape = [batches, &[rows_left, rows_right]].concat();
    let (gradients, distances) = (gradient.read_as::<f64>(&shape), distances.read_as::<f64>(&shape));
    let mut sums = vec![0.0; output.len()];
    for (pair, (gradient, distance)) in gradients.iter().zip(&distances).enumerate() {
        let row = pair / rows_right;
        let other = row / rows_left * rows_right + pair % rows_right;
        let found = differences(&lefts[row * size..(row + 1) * size], &rights[other * size..(other + 1) * size]);
        for (sum, difference) in sums[row * size..(row + 1) * size].iter_mut().zip(found) {
            *sum += gradient * slope(difference, *distance, order);
        }
    }
    output.write(&sums);
}

#[cfg(test)]
mod tests {
    use super::{pairs, pairs_within};
    use crate::tensor::Tensor;

    #[test]
    fn distances_of_pairs() {
        let (mut left, mut right, mut output) = ([0.0, 0.0, 3.0, 4.0], [3.0, 4.0], [0.0; 2]);
        let (left, right) = (Tensor::dense(&mut left, &[2, 2]), Tensor::dense(&mut right, &[1, 2]));
        pairs(&left, &right, 2.0, &Tensor::dense(&mut output, &[2, 1]));
        assert_eq!(output, [5.0, 0.0]);
        pairs_within(&left, 1.0, &Tensor::dense(&mut output[..1], &[1]));
        assert_eq!(output[0], 7.0);
    }
}
