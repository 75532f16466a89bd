//! Operators that fill tensors without reading others, and copies.

use crate::macros::operators;
use standin_compute::elementwise::copy;
use standin_compute::indexing::{pad, rearrange, triangle, write_picked};
use standin_compute::{Scalar, Tensor};

/// `start`, `start + step`, ... as many as fit into the output.
fn progression(start: Scalar, step: Scalar, output: &Tensor) {
    if start.is_float() || step.is_float() {
        let (start, step) = (start.float(), step.float());
        output.write(&(0..output.len()).map(|index| start + index as f64 * step).collect::<Vec<_>>());
    } else {
        let (start, step) = (start.value::<i64>(), step.value::<i64>());
        output.write(&(0..output.len() as i64).map(|index| start + index * step).collect::<Vec<_>>());
    }
}

fn linspace(start: f64, end: f64, steps: usize, output: &Tensor) {
    output.write(&spaced(start, end, steps));
}

/// Numbers at equal distances, counted from both ends.
fn spaced(start: f64, end: f64, steps: usize) -> Vec<f64> {
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    let half = steps / 2;
    let at = |index: usize| {
        if index < half { start + index as f64 * step } else { end - (steps - 1 - index) as f64 * step }
    };
    (0..steps).map(|index| if steps == 1 { start } else { at(index) }).collect()
}

fn eye(output: &Tensor) {
    let columns = output.shape[1];
    output.write(&(0..output.len()).map(|index| i64::from(index / columns == index % columns)).collect::<Vec<_>>());
}

fn flip(input: &Tensor, dimensions: &[i64], output: &Tensor) {
    let (input, output) = (&input.with_dimensions(), &output.with_dimensions());
    let flipped: Vec<usize> = dimensions.iter().map(|dimension| input.dimension(*dimension)).collect();
    rearrange(input, output, |place| {
        for dimension in &flipped {
            place[*dimension] = input.shape[*dimension] - 1 - place[*dimension];
        }
    });
}

fn roll(input: &Tensor, shifts: &[i64], dimensions: &[i64], output: &Tensor) {
    let (input, output) = (&input.with_dimensions(), &output.with_dimensions());
    if dimensions.is_empty() {
        let length = input.len();
        let start = (-shifts.first().copied().unwrap_or(0)).rem_euclid(length.max(1) as i64) as usize;
        return write_picked(input, &(start..length).chain(0..start).collect::<Vec<_>>(), output);
    }
    let moves: Vec<(usize, i64)> =
        dimensions.iter().zip(shifts).map(|(dimension, shift)| (input.dimension(*dimension), *shift)).collect();
    rearrange(input, output, |place| {
        for (dimension, shift) in &moves {
            let size = input.shape[*dimension] as i64;
            place[*dimension] = (place[*dimension] as i64 - shift).rem_euclid(size) as usize;
        }
    });
}

fn repeat(input: &Tensor, output: &Tensor) {
    let missing = output.rank() - input.rank();
    rearrange(input, output, |place| {
        for dimension in 0..input.rank() {
            place[missing + dimension] %= input.shape[dimension];
        }
    });
}

fn repeat_each(input: &Tensor, repeats: usize, dimension: usize, output: &Tensor) {
    rearrange(input, output, |place| place[dimension] /= repeats.max(1));
}

operators! {
    aclnnLogSpace(start: Scalar, end: Scalar, steps: i64, base: f64, output: Tensor) => {
        let exponents = spaced(start.float(), end.float(), steps as usize);
        output.write(&exponents.into_iter().map(|exponent| base.powf(exponent)).collect::<Vec<_>>())
    };
    aclnnInplaceZero(target: Tensor) => target.fill(Scalar::Integer(0));
    aclnnInplaceOne(target: Tensor) => target.fill(Scalar::Integer(1));
    aclnnInplaceFillScalar(target: Tensor, value: Scalar) => target.fill(value);
    aclnnInplaceFillTensor(target: Tensor, value: Tensor) => copy(&value, &target);
    aclnnInplaceCopy(target: Tensor, source: Tensor) => copy(&source, &target);
    aclnnCast(source: Tensor, _data_type: i32, target: Tensor) => copy(&source, &target);
    aclnnArange(start: Scalar, _end: Scalar, step: Scalar, output: Tensor) => progression(start, step, &output);
    aclnnRange(start: Scalar, _end: Scalar, step: Scalar, output: Tensor) => progression(start, step, &output);
    aclnnLinspace(start: Scalar, end: Scalar, steps: i64, output: Tensor) =>
        linspace(start.float(), end.float(), steps as usize, &output);
    aclnnEye(_rows: i64, _columns: i64, output: Tensor) => eye(&output);
    aclnnFlip(input: Tensor, dimensions: Vec<i64>, output: Tensor) => flip(&input, &dimensions, &output);
    aclnnRoll(input: Tensor, shifts: Vec<i64>, dimensions: Vec<i64>, output: Tensor) =>
        roll(&input, &shifts, &dimensions, &output);
    aclnnRepeat(input: Tensor, _repeats: Vec<i64>, output: Tensor) => repeat(&input, &output);
    aclnnRepeatInterleaveIntWithDim(input: Tensor, repeats: i64, dimension: i64, _size: i64, output: Tensor) =>
        repeat_each(&input, repeats as usize, input.dimension(dimension), &output);
    aclnnTril(input: Tensor, diagonal: i64, output: Tensor) => triangle(&input, diagonal, false, &output);
    aclnnTriu(input: Tensor, diagonal: i64, output: Tensor) => triangle(&input, diagonal, true, &output);
    aclnnInplaceTril(target: Tensor, diagonal: i64) => triangle(&target.clone(), diagonal, false, &target);
    aclnnInplaceTriu(target: Tensor, diagonal: i64) => triangle(&target.clone(), diagonal, true, &target);
    aclnnConstantPadNd(input: Tensor, padding: Vec<i64>, value: Scalar, output: Tensor) =>
        pad(&input, &padding, value, &output);
}
