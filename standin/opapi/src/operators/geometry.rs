//! Distances, factors of matrices, and vectors in space.

use crate::macros::operators;
use standin_compute::Tensor;
use standin_compute::distance::{pairs, pairs_backward, pairs_within};
use standin_compute::factorization::{Triangle, orthogonal_triangular, root, solve_triangular};
use standin_compute::reduction::{groups, last_moved_back};

/// The order of a distance; callers pass -1 for the largest difference in gradients.
fn order(number: f32) -> f64 {
    if number < 0.0 { f64::INFINITY } else { number.into() }
}

/// Cross products of the vectors along a dimension.
fn cross(left: &Tensor, right: &Tensor, dimension: i64, output: &Tensor) {
    let fill = |tensor: &Tensor| {
        let strides = tensor.broadcast_strides(&output.shape);
        groups::<f64>(&tensor.view(output.shape.clone(), strides), &[dimension]).0
    };
    let (lefts, rights) = (fill(left), fill(right));
    let product =
        |(a, b): (&[f64], &[f64])| [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    let values: Vec<f64> = lefts.chunks(3).zip(rights.chunks(3)).flat_map(product).collect();
    last_moved_back(output, dimension).write(&values);
}

fn trace(input: &Tensor, output: &Tensor) {
    let diagonal = input.shape[0].min(input.shape[1]);
    output.write(&[input
        .view(vec![diagonal], vec![input.strides[0] + input.strides[1]])
        .read::<f64>()
        .iter()
        .sum::<f64>()]);
}

/// Coordinates of every element of a picture (or volume), between -1 and 1, transformed.
fn affine_grid(transformations: &Tensor, align_corners: bool, output: &Tensor) {
    let sizes = &output.shape[1..output.rank() - 1];
    let dimensions = sizes.len();
    let places: usize = sizes.iter().product();
    let coordinate = |index: usize, size: usize| match align_corners {
        true if size > 1 => 2.0 * index as f64 / (size - 1) as f64 - 1.0,
        true => 0.0,
        false => (2 * index + 1) as f64 / size as f64 - 1.0,
    };
    let mut values = Vec::with_capacity(output.len());
    for matrix in transformations.read::<f64>().chunks((dimensions * (dimensions + 1)).max(1)) {
        for place in 0..places {
            let (mut rest, mut point) = (place, vec![1.0]);
            for size in sizes.iter().rev() {
                point.insert(point.len() - 1, coordinate(rest % size, *size));
                rest /= size;
            }
            let lines = matrix.chunks(dimensions + 1);
            values.extend(lines.map(|line| line.iter().zip(&point).map(|(factor, value)| factor * value).sum::<f64>()));
        }
    }
    output.write(&values);
}

operators! {
    aclnnCdist(left: Tensor, right: Tensor, power: f32, _mode: i64, output: Tensor) =>
        pairs(&left, &right, power.into(), &output);
    aclnnCdistBackward(
        gradient: Tensor, left: Tensor, right: Tensor, distances: Tensor, power: f32, output: Tensor,
    ) => pairs_backward(&gradient, &left, &right, &distances, order(power), &output);
    aclnnPdist(input: Tensor, power: f32, output: Tensor) => pairs_within(&input, power.into(), &output);
    aclnnLinalgCross(left: Tensor, right: Tensor, dimension: i64, output: Tensor) =>
        cross(&left, &right, dimension, &output);
    aclnnTrace(input: Tensor, output: Tensor) => trace(&input, &output);
    aclnnLinalgQr(input: Tensor, mode: i64, orthogonal: Tensor, triangular: Tensor) =>
        orthogonal_triangular(&input, (mode != 2).then_some(&orthogonal), &triangular);
    aclnnLinalgCholesky(input: Tensor, upper: bool, output: Tensor) => root(&input, upper, &output);
    aclnnTriangularSolve(
        right_side: Tensor, matrix: Tensor, upper: bool, transposed: bool, unit: bool, output: Tensor,
        _matrix_copy: Tensor,
    ) => solve_triangular(&right_side, &matrix, Triangle { upper, transposed, unit }, &output);
    aclnnAffineGrid(transformations: Tensor, _size: Vec<i64>, align_corners: bool, output: Tensor) =>
        affine_grid(&transformations, align_corners, &output);
}
