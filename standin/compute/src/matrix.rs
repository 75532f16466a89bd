//! Products of matrices, alone and in batches.

use crate::tensor::Tensor;

/// A dense product: `left` (rows x inner) times `right` (inner x columns).
#[must_use]
pub fn product(left: &[f32], right: &[f32], rows: usize, inner: usize, columns: usize) -> Vec<f32> {
    product_strided(left, (inner, 1), right, (columns, 1), rows, inner, columns)
}

/// A product of two matrices given with their row and column strides.
#[must_use]
pub fn product_strided(
    left: &[f32],
    left_strides: (usize, usize),
    right: &[f32],
    right_strides: (usize, usize),
    rows: usize,
    inner: usize,
    columns: usize,
) -> Vec<f32> {
    let mut result = vec![0.0; rows * columns];
    if result.is_empty() || inner == 0 {
        return result;
    }
    let last = |(row, column): (usize, usize), rows: usize, columns: usize| (rows - 1) * row + (columns - 1) * column;
    assert!(left.len() > last(left_strides, rows, inner) && right.len() > last(right_strides, inner, columns));
    // SAFETY: the assertion keeps all accesses inside the two slices; the result is as large as said.
    unsafe {
        matrixmultiply::sgemm(
            rows,
            inner,
            columns,
            1.0,
            left.as_ptr(),
            left_strides.0 as isize,
            left_strides.1 as isize,
            right.as_ptr(),
            right_strides.0 as isize,
            right_strides.1 as isize,
            0.0,
            result.as_mut_ptr(),
            columns as isize,
            1,
        );
    }
    result
}

fn product_exact(left: &[f64], right: &[f64], rows: usize, inner: usize, columns: usize) -> Vec<f64> {
    let mut result = vec![0.0; rows * columns];
    for row in 0..rows {
        for step in 0..inner {
            let factor = left[row * inner + step];
            let line = &right[step * columns..(step + 1) * columns];
            let target = &mut result[row * columns..(row + 1) * columns];
            target.iter_mut().zip(line).for_each(|(sum, value)| *sum += factor * value);
        }
    }
    result
}

/// All products of a batched multiplication as one vector, for an output of the given shape (batches, rows, columns).
/// Vectors are matrices with one row (left) or one column (right).
#[must_use]
pub fn batched(left: &Tensor, right: &Tensor, batches: &[usize]) -> Vec<f64> {
    let left =
        if left.rank() == 1 { left.view(vec![1, left.shape[0]], vec![0, left.strides[0]]) } else { left.clone() };
    let right =
        if right.rank() == 1 { right.view(vec![right.shape[0], 1], vec![right.strides[0], 0]) } else { right.clone() };
    let (rows, inner) = (left.shape[left.rank() - 2], left.shape[left.rank() - 1]);
    let columns = right.shape[right.rank() - 1];
    let full = |last: [usize; 2]| batches.iter().copied().chain(last).collect::<Vec<usize>>();
    let count: usize = batches.iter().product();
    let (left_size, right_size) = (rows * inner, inner * columns);
    let mut result = Vec::with_capacity(count * rows * columns);
    let single = |tensor: &Tensor| tensor.is_float() && tensor.data_type.size_bytes() <= 4;
    if single(&left) && single(&right) {
        let (lefts, rights) =
            (left.read_as::<f32>(&full([rows, inner])), right.read_as::<f32>(&full([inner, columns])));
        for batch in 0..count {
            let left = &lefts[batch * left_size..(batch + 1) * left_size];
            let right = &rights[batch * right_size..(batch + 1) * right_size];
            result.extend(product(left, right, rows, inner, columns).into_iter().map(f64::from));
        }
    } else {
        let (lefts, rights) =
            (left.read_as::<f64>(&full([rows, inner])), right.read_as::<f64>(&full([inner, columns])));
        for batch in 0..count {
            let left = &lefts[batch * left_size..(batch + 1) * left_size];
            let right = &rights[batch * right_size..(batch + 1) * right_size];
            result.extend(product_exact(left, right, rows, inner, columns));
        }
    }
    result
}

/// `output = left x right`, with batches as the output has them.
pub fn multiply(left: &Tensor, right: &Tensor, output: &Tensor) {
    let removed = usize::from(left.rank() == 1) + usize::from(right.rank() == 1);
    let batches = &output.shape[..(output.rank() + removed).saturating_sub(2)];
    output.write(&batched(left, right, batches));
}

/// `output = beta * addend + alpha * (left x right)`.
pub fn multiply_add(addend: &Tensor, left: &Tensor, right: &Tensor, beta: f64, alpha: f64, output: &Tensor) {
    let removed = usize::from(left.rank() == 1) + usize::from(right.rank() == 1);
    let batches = &output.shape[..(output.rank() + removed).saturating_sub(2)];
    let mut values = batched(left, right, batches);
    let addends: Vec<f64> = if beta == 0.0 { vec![0.0; values.len()] } else { addend.read_as(&output.shape) };
    values.iter_mut().zip(&addends).for_each(|(value, addend)| *value = alpha * *value + beta * addend);
    output.write(&values);
}

#[cfg(test)]
mod tests {
    use super::{multiply, multiply_add};
    use crate::tensor::Tensor;

    #[test]
    fn products_of_batches_vectors_and_transposed_matrices() {
        let mut left: Vec<f32> = (0..12).map(|value| value as f32).collect();
        let mut right = [1.0, 2.0, 3.0, 4.0];
        let mut output = [0.0; 12];
        let square = Tensor::dense(&mut right, &[2, 2]);
        let batches = Tensor::dense(&mut left, &[2, 3, 2]);
        multiply(&batches, &square.permuted(&[1, 0]), &Tensor::dense(&mut output, &[2, 3, 2]));
        assert_eq!(output[..4], [2.0, 4.0, 8.0, 18.0]);
        assert_eq!(output[10..], [32.0, 74.0]);
        let mut vector = [0.0; 2];
        multiply(&square, &Tensor::dense(&mut [10.0, 1.0], &[2]), &Tensor::dense(&mut vector, &[2]));
        assert_eq!(vector, [12.0, 34.0]);
        let target = Tensor::dense(&mut vector, &[1, 2]);
        multiply_add(
            &Tensor::dense(&mut [1.0], &[1]),
            &Tensor::dense(&mut [1.0, 1.0], &[1, 2]),
            &square,
            2.0,
            0.5,
            &target,
        );
        assert_eq!(vector, [4.0, 5.0]);
    }
}
