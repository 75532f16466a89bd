//! Sums, means, extrema and other functions of many elements.

use crate::macros::operators;
use standin_compute::elementwise::copy;
use standin_compute::reduction::{best_of, groups, mean, norm, reduce, reduce_either, scan, variance};
use standin_compute::{Scalar, Tensor};

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
    let largest = group.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest.is_infinite() {
        return largest;
    }
    group.iter().map(|value| (value - largest).exp()).sum::<f64>().ln() + largest
}

/// The element of every line that is number `rank(length)` in ascending order, and where it is.
fn in_order(
    input: &Tensor,
    dimensions: &[i64],
    rank: impl Fn(usize) -> usize,
    values: &Tensor,
    positions: Option<&Tensor>,
) {
    let (elements, length) = groups::<f64>(input, dimensions);
    let find = |line: &[f64]| {
        let mut places: Vec<usize> = (0..line.len()).collect();
        places.sort_by(|left, right| line[*left].total_cmp(&line[*right]));
        let nan = line.iter().position(|value| value.is_nan());
        let place = nan.unwrap_or_else(|| places[rank(length)]);
        (line[place], place as i64)
    };
    let found: Vec<(f64, i64)> = elements.chunks(length.max(1)).map(find).collect();
    values.write(&found.iter().map(|(value, _)| *value).collect::<Vec<_>>());
    if let Some(positions) = positions {
        positions.write(&found.iter().map(|(_, place)| *place).collect::<Vec<_>>());
    }
}

/// The lower of the two in the middle.
fn middle(length: usize) -> usize {
    length.saturating_sub(1) / 2
}

/// The middle of the numbers of every line, without what is not a number.
fn middle_number(input: &Tensor, dimensions: &[i64], values: &Tensor, positions: Option<&Tensor>) {
    let (elements, length) = groups::<f64>(input, dimensions);
    let find = |line: &[f64]| {
        let mut places: Vec<usize> = (0..line.len()).filter(|place| !line[*place].is_nan()).collect();
        places.sort_by(|left, right| line[*left].total_cmp(&line[*right]));
        places.get(middle(places.len())).map_or((f64::NAN, 0), |place| (line[*place], *place as i64))
    };
    let found: Vec<(f64, i64)> = elements.chunks(length.max(1)).map(find).collect();
    values.write(&found.iter().map(|(value, _)| *value).collect::<Vec<_>>());
    if let Some(positions) = positions {
        positions.write(&found.iter().map(|(_, place)| *place).collect::<Vec<_>>());
    }
}

fn extremes(input: &Tensor, dimensions: &[i64], smallest: &Tensor, largest: &Tensor) {
    best_of(input, dimensions, Some(smallest), None, |a, b| a < b);
    best_of(input, dimensions, Some(largest), None, |a, b| a > b);
}

operators! {
    aclnnAminmax(input: Tensor, dimensions: Vec<i64>, _keep: bool, smallest: Tensor, largest: Tensor) =>
        extremes(&input, &dimensions, &smallest, &largest);
    aclnnAminmaxAll(input: Tensor, smallest: Tensor, largest: Tensor) => extremes(&input, &[], &smallest, &largest);
    aclnnAminmaxDim(input: Tensor, dimension: i64, _keep: bool, smallest: Tensor, largest: Tensor) =>
        extremes(&input, &[dimension], &smallest, &largest);
    aclnnMedian(input: Tensor, output: Tensor) => in_order(&input, &[], middle, &output, None);
    aclnnMedianDim(input: Tensor, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) =>
        in_order(&input, &[dimension], middle, &values, Some(&positions));
    aclnnNanMedian(input: Tensor, output: Tensor) => middle_number(&input, &[], &output, None);
    aclnnNanMedianDim(input: Tensor, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) =>
        middle_number(&input, &[dimension], &values, Some(&positions));
    aclnnKthvalue(input: Tensor, number: i64, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) =>
        in_order(&input, &[dimension], |_| number as usize - 1, &values, Some(&positions));
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
    aclnnMax(input: Tensor, output: Tensor) => best_of(&input, &[], Some(&output), None, |a, b| a > b);
    aclnnMin(input: Tensor, output: Tensor) => best_of(&input, &[], Some(&output), None, |a, b| a < b);
    aclnnAmax(input: Tensor, dimensions: Vec<i64>, _keep: bool, output: Tensor) =>
        best_of(&input, &dimensions, Some(&output), None, |a, b| a > b);
    aclnnAmin(input: Tensor, dimensions: Vec<i64>, _keep: bool, output: Tensor) =>
        best_of(&input, &dimensions, Some(&output), None, |a, b| a < b);
    aclnnMaxDim(input: Tensor, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) =>
        best_of(&input, &[dimension], Some(&values), Some(&positions), |a, b| a > b);
    aclnnMinDim(input: Tensor, dimension: i64, _keep: bool, values: Tensor, positions: Tensor) =>
        best_of(&input, &[dimension], Some(&values), Some(&positions), |a, b| a < b);
    aclnnArgMax(input: Tensor, dimension: i64, _keep: bool, positions: Tensor) =>
        best_of(&input, &[dimension], None, Some(&positions), |a, b| a > b);
    aclnnArgMin(input: Tensor, dimension: i64, _keep: bool, positions: Tensor) =>
        best_of(&input, &[dimension], None, Some(&positions), |a, b| a < b);
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
        if input.rank() == 0 { copy(&input, &output) } else { scan(&input, dimension, &output, |a, b| a + b) };
    aclnnCumprod(input: Tensor, dimension: Scalar, _data_type: i32, output: Tensor) =>
        if input.rank() == 0 { copy(&input, &output) } else { scan(&input, dimension.value(), &output, |a, b| a * b) };
}
