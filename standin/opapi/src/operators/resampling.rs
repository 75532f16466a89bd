//! Enlarging, shrinking, and padding with what is there already.

use crate::macros::operators;
use standin_compute::Tensor;
use standin_compute::resampling::{Axis, backward, cubic, forward, linear, nearest, reflected, repeated, same};

type Padding = fn(usize, usize, i64) -> Axis;

/// Rows and columns of padding; `padding` is left, right, top, bottom.
fn padded(padding: &[i64], axis: Padding) -> impl Fn([usize; 2], [usize; 2]) -> [Axis; 2] {
    let (left, top) = (padding[0], padding.get(2).copied());
    move |from, to| {
        let rows = top.map_or_else(|| same(from[0]), |top| axis(from[0], to[0], top));
        [rows, axis(from[1], to[1], left)]
    }
}

fn nearest_axes(vertical: f64, horizontal: f64) -> impl Fn([usize; 2], [usize; 2]) -> [Axis; 2] {
    move |from, to| [nearest(from[0], to[0], vertical), nearest(from[1], to[1], horizontal)]
}

fn linear_axes(align_corners: bool, vertical: f64, horizontal: f64) -> impl Fn([usize; 2], [usize; 2]) -> [Axis; 2] {
    move |from, to| [linear(from[0], to[0], align_corners, vertical), linear(from[1], to[1], align_corners, horizontal)]
}

fn cubic_axes(align_corners: bool, vertical: f64, horizontal: f64) -> impl Fn([usize; 2], [usize; 2]) -> [Axis; 2] {
    move |from, to| [cubic(from[0], to[0], align_corners, vertical), cubic(from[1], to[1], align_corners, horizontal)]
}

/// Axes of a tensor with one dimension to resample: rows stay.
fn line_axes(axis: impl Fn(usize, usize) -> Axis) -> impl Fn([usize; 2], [usize; 2]) -> [Axis; 2] {
    move |from, to| [same(from[0]), axis(from[1], to[1])]
}

operators! {
    aclnnUpsampleNearest1d(input: Tensor, _size: Vec<i64>, output: Tensor) =>
        forward(&input, &output, line_axes(|from, to| nearest(from, to, 0.0)));
    aclnnUpsampleNearest1dV2(input: Tensor, _size: Vec<i64>, scale: f32, output: Tensor) =>
        forward(&input, &output, line_axes(|from, to| nearest(from, to, scale.into())));
    aclnnUpsampleNearest1dBackward(
        gradient: Tensor, _output_size: Vec<i64>, _input_size: Vec<i64>, scale: f64, output: Tensor,
    ) => backward(&gradient, &output, line_axes(|from, to| nearest(from, to, scale)));
    aclnnUpsampleLinear1d(input: Tensor, _size: Vec<i64>, align_corners: bool, scale: f64, output: Tensor) =>
        forward(&input, &output, line_axes(|from, to| linear(from, to, align_corners, scale)));
    aclnnUpsampleLinear1dBackward(
        gradient: Tensor, _output_size: Vec<i64>, _input_size: Vec<i64>, align_corners: bool, scale: f64,
        output: Tensor,
    ) => backward(&gradient, &output, line_axes(|from, to| linear(from, to, align_corners, scale)));
    aclnnUpsampleBicubic2d(
        input: Tensor, _size: Vec<i64>, align_corners: bool, vertical: f64, horizontal: f64, output: Tensor,
    ) => forward(&input, &output, cubic_axes(align_corners, vertical, horizontal));
    aclnnUpsampleBicubic2dBackward(
        gradient: Tensor, _output_size: Vec<i64>, _input_size: Vec<i64>, align_corners: bool, vertical: f64,
        horizontal: f64, output: Tensor,
    ) => backward(&gradient, &output, cubic_axes(align_corners, vertical, horizontal));
    aclnnUpsampleNearest2d(input: Tensor, _size: Vec<i64>, output: Tensor) =>
        forward(&input, &output, nearest_axes(0.0, 0.0));
    aclnnUpsampleNearest2dV2(input: Tensor, _size: Vec<i64>, vertical: f32, horizontal: f32, output: Tensor) =>
        forward(&input, &output, nearest_axes(vertical.into(), horizontal.into()));
    aclnnUpsampleNearest2dBackward(
        gradient: Tensor, _output_size: Vec<i64>, _input_size: Vec<i64>, vertical: f64, horizontal: f64,
        output: Tensor,
    ) => backward(&gradient, &output, nearest_axes(vertical, horizontal));
    aclnnUpsampleBilinear2d(
        input: Tensor, _size: Vec<i64>, align_corners: bool, vertical: f64, horizontal: f64, output: Tensor,
    ) => forward(&input, &output, linear_axes(align_corners, vertical, horizontal));
    aclnnUpsampleBilinear2dBackward(
        gradient: Tensor, _output_size: Vec<i64>, _input_size: Vec<i64>, align_corners: bool, vertical: f64,
        horizontal: f64, output: Tensor,
    ) => backward(&gradient, &output, linear_axes(align_corners, vertical, horizontal));
    aclnnUpsampleBilinear2dBackwardV2(
        gradient: Tensor, _output_size: Vec<i64>, _input_size: Vec<i64>, align_corners: bool, vertical: f64,
        horizontal: f64, output: Tensor,
    ) => backward(&gradient, &output, linear_axes(align_corners, vertical, horizontal));
    aclnnReflectionPad1d(input: Tensor, padding: Vec<i64>, output: Tensor) =>
        forward(&input, &output, padded(&padding, reflected));
    aclnnReflectionPad1dBackward(gradient: Tensor, _input: Tensor, padding: Vec<i64>, output: Tensor) =>
        backward(&gradient, &output, padded(&padding, reflected));
    aclnnReflectionPad2d(input: Tensor, padding: Vec<i64>, output: Tensor) =>
        forward(&input, &output, padded(&padding, reflected));
    aclnnReflectionPad2dBackward(gradient: Tensor, _input: Tensor, padding: Vec<i64>, output: Tensor) =>
        backward(&gradient, &output, padded(&padding, reflected));
    aclnnReplicationPad1d(input: Tensor, padding: Vec<i64>, output: Tensor) =>
        forward(&input, &output, padded(&padding, repeated));
    aclnnReplicationPad1dBackward(gradient: Tensor, _input: Tensor, padding: Vec<i64>, output: Tensor) =>
        backward(&gradient, &output, padded(&padding, repeated));
    aclnnReplicationPad2d(input: Tensor, padding: Vec<i64>, output: Tensor) =>
        forward(&input, &output, padded(&padding, repeated));
    aclnnReplicationPad2dBackward(gradient: Tensor, _input: Tensor, padding: Vec<i64>, output: Tensor) =>
        backward(&gradient, &output, padded(&padding, repeated));
}
