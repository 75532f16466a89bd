//! Products of matrices.

use crate::macros::operators;
use standin_compute::matrix::{batched, multiply, multiply_add};
use standin_compute::{Scalar, Tensor};

/// `output = beta * addend + alpha * sum of all products of the batch`.
fn add_sum_of_products(addend: &Tensor, left: &Tensor, right: &Tensor, beta: f64, alpha: f64, output: &Tensor) {
    let products = batched(left, right, &left.shape[..1]);
    let mut values: Vec<f64> = addend.read_as::<f64>(&output.shape).iter().map(|value| beta * value).collect();
    let size = values.len().max(1);
    for (index, product) in products.iter().enumerate() {
        values[index % size] += alpha * product;
    }
    output.write(&values);
}

/// `output = beta * addend + alpha * left * right` for a column and a row.
fn add_outer_product(addend: &Tensor, left: &Tensor, right: &Tensor, beta: f64, alpha: f64, output: &Tensor) {
    let column = left.view(vec![left.len(), 1], vec![left.strides[0], 0]);
    let row = right.view(vec![1, right.len()], vec![0, right.strides[0]]);
    multiply_add(addend, &column, &row, beta, alpha, output);
}

operators! {
    aclnnAddr(
        addend: Tensor, left: Tensor, right: Tensor, beta: Scalar, alpha: Scalar, output: Tensor,
    ) => add_outer_product(&addend, &left, &right, beta.float(), alpha.float(), &output);
    aclnnInplaceAddr(target: Tensor, left: Tensor, right: Tensor, beta: Scalar, alpha: Scalar) =>
        add_outer_product(&target.clone(), &left, &right, beta.float(), alpha.float(), &target);
    aclnnMm(left: Tensor, right: Tensor, output: Tensor, _precision: i8) => multiply(&left, &right, &output);
    aclnnMatmul(left: Tensor, right: Tensor, output: Tensor, _precision: i8) => multiply(&left, &right, &output);
    aclnnBatchMatMul(left: Tensor, right: Tensor, output: Tensor, _precision: i8) => multiply(&left, &right, &output);
    aclnnMv(left: Tensor, right: Tensor, output: Tensor, _precision: i8) => multiply(&left, &right, &output);
    aclnnDot(left: Tensor, right: Tensor, output: Tensor) => multiply(&left, &right, &output);
    aclnnAddmm(
        addend: Tensor, left: Tensor, right: Tensor, beta: Scalar, alpha: Scalar, output: Tensor, _precision: i8,
    ) => multiply_add(&addend, &left, &right, beta.float(), alpha.float(), &output);
    aclnnInplaceAddmm(
        target: Tensor, left: Tensor, right: Tensor, beta: Scalar, alpha: Scalar, _precision: i8,
    ) => multiply_add(&target.clone(), &left, &right, beta.float(), alpha.float(), &target);
    aclnnBaddbmm(
        addend: Tensor, left: Tensor, right: Tensor, beta: Scalar, alpha: Scalar, output: Tensor, _precision: i8,
    ) => multiply_add(&addend, &left, &right, beta.float(), alpha.float(), &output);
    aclnnAddmv(
        addend: Tensor, left: Tensor, right: Tensor, alpha: Scalar, beta: Scalar, output: Tensor, _precision: i8,
    ) => multiply_add(&addend, &left, &right, beta.float(), alpha.float(), &output);
    aclnnAddbmm(
        addend: Tensor, left: Tensor, right: Tensor, beta: Scalar, alpha: Scalar, output: Tensor, _precision: i8,
    ) => add_sum_of_products(&addend, &left, &right, beta.float(), alpha.float(), &output);
}
