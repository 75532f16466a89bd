//! Matrices taken apart: orthogonal and triangular factors, and what is solved with triangular ones.

use crate::tensor::Tensor;

/// Rows and columns of the matrices of a tensor.
fn size(tensor: &Tensor) -> (usize, usize) {
    (tensor.shape[tensor.rank() - 2], tensor.shape[tensor.rank() - 1])
}

/// Orthogonal and triangular factor of every matrix, by reflections. Without an orthogonal factor only the triangular
/// one is written.
pub fn orthogonal_triangular(input: &Tensor, orthogonal: Option<&Tensor>, triangular: &Tensor) {
    let (rows, columns) = size(input);
    let (mut all_orthogonal, mut all_triangular) = (Vec::new(), Vec::new());
    let kept_rows = size(triangular).0;
    for matrix in input.read::<f64>().chunks((rows * columns).max(1)) {
        let (q, r) = reflect(matrix, rows, columns);
        let kept = orthogonal.map_or(0, |orthogonal| size(orthogonal).1);
        all_orthogonal.extend((0..rows).flat_map(|row| q[row * rows..row * rows + kept].to_vec()));
        all_triangular.extend_from_slice(&r[..kept_rows * columns]);
    }
    if let Some(orthogonal) = orthogonal {
        orthogonal.write(&all_orthogonal);
    }
    triangular.write(&all_triangular);
}

/// The whole orthogonal factor (rows x rows) and the triangular one (rows x columns).
fn reflect(matrix: &[f64], rows: usize, columns: usize) -> (Vec<f64>, Vec<f64>) {
    let mut triangular = matrix.to_vec();
    let mut orthogonal = vec![0.0; rows * rows];
    (0..rows).for_each(|row| orthogonal[row * rows + row] = 1.0);
    for column in 0..columns.min(rows.saturating_sub(1)) {
        let mut mirror: Vec<f64> = (column..rows).map(|row| triangular[row * columns + column]).collect();
        let below: f64 = mirror[1..].iter().map(|value| value * value).sum();
        if below == 0.0 {
            continue;
        }
        let length = (mirror[0] * mirror[0] + below).sqrt();
        mirror[0] += if mirror[0] < 0.0 { -length } else { length };
        let square: f64 = mirror.iter().map(|value| value * value).sum();
        for other in 0..columns {
            let along: f64 = (column..rows).map(|row| mirror[row - column] * triangular[row * columns + other]).sum();
            for row in column..rows {
                triangular[row * columns + other] -= 2.0 * along / square * mirror[row - column];
            }
        }
        for row in 0..rows {
            let line = &mut orthogonal[row * rows + column..(row + 1) * rows];
            let along: f64 = line.iter().zip(&mirror).map(|(value, mirror)| value * mirror).sum();
            line.iter_mut().zip(&mirror).for_each(|(value, mirror)| *value -= 2.0 * along / square * mirror);
        }
    }
    for row in 1..rows {
        (0..row.min(columns)).for_each(|column| triangular[row * columns + column] = 0.0);
    }
    (orthogonal, triangular)
}

/// The triangular matrix whose product with its transpose every (symmetric, positive) matrix is.
pub fn root(input: &Tensor, upper: bool, output: &Tensor) {
    let (count, _) = size(input);
    let mut all = Vec::with_capacity(output.len());
    for matrix in input.read::<f64>().chunks((count * count).max(1)) {
        let mut lower = vec![0.0; count * count];
        for row in 0..count {
            for column in 0..=row {
                let done: f64 = (0..column).map(|k| lower[row * count + k] * lower[column * count + k]).sum();
                let rest = if upper { matrix[column * count + row] } else { matrix[row * count + column] } - done;
                let pivot = lower[column * count + column];
                lower[row * count + column] = if row == column { rest.sqrt() } else { rest / pivot };
            }
        }
        let transposed = |index: usize| lower[index % count * count + index / count];
        all.extend((0..lower.len()).map(|index| if upper { transposed(index) } else { lower[index] }));
    }
    output.write(&all);
}

/// How a triangular matrix is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    /// Which half is filled.
    pub upper: bool,
    /// Whether the matrix is transposed before.
    pub transposed: bool,
    /// Whether its diagonal counts as ones.
    pub unit: bool,
}

/// `output` = what the triangular matrices have to be multiplied with to get the right sides.
pub fn solve_triangular(right_side: &Tensor, matrix: &Tensor, triangle: Triangle, output: &Tensor) {
    let ((count, columns), matrix) = (size(right_side), matrix.clone());
    let last = matrix.rank() - 1;
    let mut order: Vec<usize> = (0..matrix.rank()).collect();
    if triangle.transposed {
        order.swap(last - 1, last);
    }
    let from_above = triangle.upper == triangle.transposed;
    let matrices = matrix.permuted(&order).read::<f64>();
    let mut values = right_side.read::<f64>();
    let steps: Vec<usize> = if from_above { (0..count).collect() } else { (0..count).rev().collect() };
    for (values, matrix) in values.chunks_mut((count * columns).max(1)).zip(matrices.chunks((count * count).max(1))) {
        for (place, row) in steps.iter().enumerate() {
            for column in 0..columns {
                let done: f64 = steps[..place]
                    .iter()
                    .map(|other| matrix[row * count + other] * values[other * columns + column])
                    .sum();
                let pivot = if triangle.unit { 1.0 } else { matrix[row * count + row] };
                values[row * columns + column] = (values[row * columns + column] - done) / pivot;
            }
        }
    }
    output.write(&values);
}

#[cfg(test)]
mod tests {
    use super::{Triangle, orthogonal_triangular, root, solve_triangular};
    use crate::matrix::multiply;
    use crate::tensor::Tensor;

    #[test]
    fn factors_multiply_to_the_matrix() {
        let mut input: Vec<f32> = vec![2.0, -1.0, 0.5, 3.0, 1.0, 4.0];
        let (mut q, mut r, mut product) = ([0.0; 6], [0.0; 4], [0.0; 6]);
        let matrix = Tensor::dense(&mut input, &[3, 2]);
        let (left, right) = (Tensor::dense(&mut q, &[3, 2]), Tensor::dense(&mut r, &[2, 2]));
        orthogonal_triangular(&matrix, Some(&left), &right);
        multiply(&left, &right, &Tensor::dense(&mut product, &[3, 2]));
        assert!(product.iter().zip(&input).all(|(found, expected)| (found - expected).abs() < 1e-5));
        assert_eq!(r[2], 0.0);
    }

    #[test]
    fn roots_and_solutions() {
        let mut input = [4.0, 2.0, 2.0, 5.0];
        let (mut lower, mut right, mut solution) = ([0.0; 4], [2.0, 5.0], [0.0; 2]);
        root(&Tensor::dense(&mut input, &[2, 2]), false, &Tensor::dense(&mut lower, &[2, 2]));
        assert_eq!(lower, [2.0, 0.0, 1.0, 2.0]);
        let matrix = Tensor::dense(&mut lower, &[2, 2]);
        let triangle = Triangle { upper: false, transposed: false, unit: false };
        let (right, solution_tensor) = (Tensor::dense(&mut right, &[2, 1]), Tensor::dense(&mut solution, &[2, 1]));
        solve_triangular(&right, &matrix, triangle, &solution_tensor);
        assert_eq!(solution, [1.0, 2.0]);
        solve_triangular(&right, &matrix, Triangle { transposed: true, ..triangle }, &solution_tensor);
        assert_eq!(solution, [-0.25, 2.5]);
    }
}
