//! Sums, means, extrema and other functions of many elements.

use crate::macros::operators;
use standin_compute::elementwise::copy;
use standin_compute::reduction::{
    Best, InOrder, NotNumbers, chosen_of, larger, mean, norm, reduce, reduce_either, scan, variance,
};
use standin_compute::{Scalar, Tensor, Value};
use std::cmp::Ordering;

fn sum(input: &Tensor, dimensions: &[i64], output: &Tensor) {
    reduce_either(
        input,
        dimensions,
        output,
        |group| group.iter().sum(),
        |group| group.iter().fold(0, |sum: i64, value| sum.wrapping_add(*value)),
    );
}

fn product(input: &Tensor, dimensions: &[i64], output: &Tensor) {
    reduce_either(
        input,
        dimensions,
        output,
        |group| group.iter().product(),
        |group| group.iter().fold(1, |product: i64, value| product.wrapping_mul(*value)),
    );
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn logarithm_of_sum(group: &[f64]) -> f64 {
    let largest = group.iter().copied().fold(f64::NEG_INFINITY, larger);
    if !largest.is_finite() {
        return largest;
    }
    group.iter().map(|value| (value - largest).exp()).sum::<f64>().ln() + largest
}

/// The lower of the two in the middle.
fn middle(length: usize) -> usize {
    length.saturating_sub(1) / 2
}

const LARGEST: Best = Best(Ordering::Greater);
const SMALLEST: Best = Best(Ordering::Less);
/// The element in the middle, which is not a number if one of them is not.
const MIDDLE: InOrder<fn(usize) -> usize> = InOrder { rank: middle, not_numbers: NotNumbers::Win };
/// The middle of the numbers.
const MIDDLE_NUMBER: InOrder<fn(usize) -> usize> = InOrder { rank: middle, not_numbers: NotNumbers::DoNotCount };

fn extremes(input: &Tensor, dimensions: &[i64], smallest: &Tensor, largest: &Tensor) {
    chosen_of(input, dimensions, Some(smallest), None, SMALLEST);
    chosen_of(input, dimensions, Some(largest), None, LARGEST);
}

operators! {
    aclnnAminmax(input: Tensor, dimensions: Vec<i64>, _keep: bool, smallest: Tensor, largest: Tensor) =>
        extremes(&input, &dimensions, &smallest, &largest);
    aclnnAminmaxAll(input: Tensor, smallest: Tensor, largest: Tensor) => extremes(&input, &[], &smallest, &largest);
    aclnnAminmaxDim(input: Tensor, dimension: i64, _keep: bool, smallest: Tensor, largest: Tensor) =>
        extremes(&input, &[dimension], &smallest, &largest);
    aclnnMedian(input: Tensor, output: Tensor) => chosen_of(&input, &[], Some(&output), None, MIDDLE);
    aclnnMedianDim(input: Tensor, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) =>
        chosen_of(&input, &[dimension], Some(&values), Some(&positions), MIDDLE);
    aclnnNanMedian(input: Tensor, output: Tensor) => chosen_of(&input, &[], Some(&output), None, MIDDLE_NUMBER);
    aclnnNanMedianDim(input: Tensor, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) =>
        chosen_of(&input, &[dimension], Some(&values), Some(&positions), MIDDLE_NUMBER);
    aclnnKthvalue(input: Tensor, number: i64, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) => {
        let rank = |_| number as usize - 1;
        let choice = InOrder { rank, not_numbers: NotNumbers::AreLargest };
        chosen_of(&input, &[dimension], Some(&values), Some(&positions), choice)
    };
    aclnnReduceSum(input: Tensor, dimensions: Vec<i64>, _keep: bool, _data_type: i32, output: Tensor) =>
        sum(&input, &dimensions, &output);
    aclnnReduceNansum(input: Tensor, dimensions: Vec<i64>, _keep: bool, _data_type: i32, output: Tensor) =>
        reduce(&input, &dimensions, &output, |group| group.iter().filter(|value| !value.is_nan()).sum());
    aclnnMean(input: Tensor, dimensions: Vec<i64>, _keep: bool, _data_type: i32, output: Tensor) =>
        reduce(&input, &dimensions, &output, mean);
    aclnnProd(input: Tensor, _data_type: i32, output: Tensor) => product(&input, &[], &output);
    aclnnProdDim(input: Tensor, dimension: i64, _keep: bool, _data_type: i32, output: Tensor) =>
        product(&input, &[dimension], &output);
    aclnnAll(input: Tensor, dimensions: Vec<i64>, _keep: bool, output: Tensor) =>
        reduce(&input, &dimensions, &output, |group| truth(group.iter().all(|value| *value != 0.0)));
    aclnnAny(input: Tensor, dimensions: Vec<i64>, _keep: bool, output: Tensor) =>
        reduce(&input, &dimensions, &output, |group| truth(group.iter().any(|value| *value != 0.0)));
    aclnnMax(input: Tensor, output: Tensor) => chosen_of(&input, &[], Some(&output), None, LARGEST);
    aclnnMin(input: Tensor, output: Tensor) => chosen_of(&input, &[], Some(&output), None, SMALLEST);
    aclnnAmax(input: Tensor, dimensions: Vec<i64>, _keep: bool, output: Tensor) =>
        chosen_of(&input, &dimensions, Some(&output), None, LARGEST);
    aclnnAmin(input: Tensor, dimensions: Vec<i64>, _keep: bool, output: Tensor) =>
        chosen_of(&input, &dimensions, Some(&output), None, SMALLEST);
    aclnnMaxDim(input: Tensor, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) =>
        chosen_of(&input, &[dimension], Some(&values), Some(&positions), LARGEST);
    aclnnMinDim(input: Tensor, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) =>
        chosen_of(&input, &[dimension], Some(&values), Some(&positions), SMALLEST);
    aclnnArgMax(input: Tensor, dimension: i64, _keep: bool, positions: Tensor) =>
        chosen_of(&input, &[dimension], None, Some(&positions), LARGEST);
    aclnnArgMin(input: Tensor, dimension: i64, _keep: bool, positions: Tensor) =>
        chosen_of(&input, &[dimension], None, Some(&positions), SMALLEST);
    aclnnStd(input: Tensor, dimensions: Vec<i64>, correction: i64, _keep: bool, output: Tensor) =>
        reduce(&input, &dimensions, &output, |group| variance(group, correction as f64).sqrt());
    aclnnVarCorrection(input: Tensor, dimensions: Vec<i64>, correction: i64, _keep: bool, output: Tensor) =>
        reduce(&input, &dimensions, &output, |group| variance(group, correction as f64));
    aclnnVarMean(
        input: Tensor, dimensions: Vec<i64>, correction: i64, _keep: bool, variances: Tensor, means: Tensor,
    ) => {
        reduce(&input, &dimensions, &variances, |group| variance(group, correction as f64));
        reduce(&input, &dimensions, &means, mean)
    };
    aclnnStdMeanCorrection(
        input: Tensor, dimensions: Vec<i64>, correction: i64, _keep: bool, deviations: Tensor, means: Tensor,
    ) => {
        reduce(&input, &dimensions, &deviations, |group| variance(group, correction as f64).sqrt());
        reduce(&input, &dimensions, &means, mean)
    };
    aclnnNorm(input: Tensor, order: Scalar, dimensions: Vec<i64>, _keep: bool, output: Tensor) =>
        reduce(&input, &dimensions, &output, |group| norm(group, order.float()));
    aclnnLinalgVectorNorm(
        input: Tensor, order: Scalar, dimensions: Vec<i64>, _keep: bool, _data_type: i32, output: Tensor,
    ) => reduce(&input, &dimensions, &output, |group| norm(group, order.float()));
    aclnnLogSumExp(input: Tensor, dimensions: Vec<i64>, _keep: bool, output: Tensor) =>
        reduce(&input, &dimensions, &output, logarithm_of_sum);
    aclnnCumsum(input: Tensor, dimension: i64, _data_type: i32, output: Tensor) =>
        if input.rank() == 0 { copy(&input, &output) } else { scan(&input, dimension, &output, f64::plus, i64::plus) };
    aclnnCumprod(input: Tensor, dimension: Scalar, _data_type: i32, output: Tensor) =>
        if input.rank() == 0 { copy(&input, &output) } else { scan(&input, dimension.value(), &output, f64::times, i64::times) };
}
