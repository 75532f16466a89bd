//! Operators that make every element of the last two dimensions a weighted sum of a few input elements, rows and
//! columns apart: enlarging, shrinking, and padding with what is there already.

use crate::pooling::planes;
use crate::tensor::Tensor;

/// For every output coordinate of one dimension: input coordinates and their weights.
pub type Axis = Vec<Vec<(usize, f64)>>;

/// Input coordinates per output coordinate. The scale that the caller named is preferred to the quotient of the sizes.
fn step(input: usize, output: usize, scale: f64) -> f64 {
    if scale > 0.0 { 1.0 / scale } else { input as f64 / output as f64 }
}

/// The input as it is.
#[must_use]
pub fn same(size: usize) -> Axis {
    (0..size).map(|index| vec![(index, 1.0)]).collect()
}

/// The nearest input element. Single precision, as in frameworks: it decides about rounding.
#[must_use]
pub fn nearest(input: usize, output: usize, scale: f64) -> Axis {
    let step = step(input, output, scale) as f32;
    (0..output).map(|index| vec![(((index as f32 * step) as usize).min(input - 1), 1.0)]).collect()
}

/// Between the two nearest input elements.
#[must_use]
pub fn linear(input: usize, output: usize, align_corners: bool, scale: f64) -> Axis {
    let between = |place: f64| {
        let first = (place as usize).min(input - 1);
        let share = place - first as f64;
        vec![(first, 1.0 - share), ((first + 1).min(input - 1), share)]
    };
    let step = match align_corners {
        true if output > 1 => (input - 1) as f64 / (output - 1) as f64,
        true => 0.0,
        false => step(input, output, scale),
    };
    let place = |index: usize| {
        if align_corners { index as f64 * step } else { ((index as f64 + 0.5) * step - 0.5).max(0.0) }
    };
    (0..output).map(|index| between(place(index))).collect()
}

/// Between the four nearest input elements, on the usual cubic curve (-0.75); edges are repeated.
#[must_use]
pub fn cubic(input: usize, output: usize, align_corners: bool, scale: f64) -> Axis {
    const STRENGTH: f64 = -0.75;
    let near = |x: f64| ((STRENGTH + 2.0) * x - (STRENGTH + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((STRENGTH * x - 5.0 * STRENGTH) * x + 8.0 * STRENGTH) * x - 4.0 * STRENGTH;
    let step = match align_corners {
        true if output > 1 => (input - 1) as f64 / (output - 1) as f64,
        true => 0.0,
        false => step(input, output, scale),
    };
    let sources = |index: usize| {
        let place = if align_corners { index as f64 * step } else { (index as f64 + 0.5) * step - 0.5 };
        let (first, share) = (place.floor(), place - place.floor());
        let weights = [far(share + 1.0), near(share), near(1.0 - share), far(2.0 - share)];
        let at = |offset: usize| (first as i64 + offset as i64 - 1).clamp(0, input as i64 - 1) as usize;
        weights.iter().enumerate().map(|(offset, weight)| (at(offset), *weight)).collect()
    };
    (0..output).map(sources).collect()
}

/// Padding that mirrors the input at its edges.
#[must_use]
pub fn reflected(input: usize, output: usize, before: i64) -> Axis {
    let last = input as i64 - 1;
    let mirror = |index: usize| {
        let place = (index as i64 - before).abs();
        if place > last { 2 * last - place } else { place }
    };
    (0..output).map(|index| vec![(mirror(index) as usize, 1.0)]).collect()
}

/// Padding that repeats the edges.
#[must_use]
pub fn repeated(input: usize, output: usize, before: i64) -> Axis {
    (0..output).map(|index| vec![((index as i64 - before).clamp(0, input as i64 - 1) as usize, 1.0)]).collect()
}

/// Calls `visit(output position, input position, weight)` for one plane.
fn for_each(rows: &Axis, columns: &Axis, width: usize, mut visit: impl FnMut(usize, usize, f64)) {
    for (row, row_sources) in rows.iter().enumerate() {
        for (column, column_sources) in columns.iter().enumerate() {
            for (y, row_weight) in row_sources {
                for (x, column_weight) in column_sources {
                    visit(row * columns.len() + column, y * width + x, row_weight * column_weight);
                }
            }
        }
    }
}

/// The output; `axes` makes the axes from the sizes of input and output, rows first.
pub fn forward(input: &Tensor, output: &Tensor, axes: impl Fn([usize; 2], [usize; 2]) -> [Axis; 2]) {
    let ((count, from), (_, to)) = (planes(input), planes(output));
    let [rows, columns] = axes(from, to);
    let (values, mut sums) = (input.read::<f64>(), vec![0.0; output.len()]);
    let (from_size, to_size) = (from[0] * from[1], to[0] * to[1]);
    for_each(&rows, &columns, from[1], |target, source, weight| {
        for plane in 0..count {
            sums[plane * to_size + target] += weight * values[plane * from_size + source];
        }
    });
    output.write(&sums);
}

/// The gradient of [`forward`] for its input, from that of its output.
pub fn backward(gradient: &Tensor, output: &Tensor, axes: impl Fn([usize; 2], [usize; 2]) -> [Axis; 2]) {
    let ((count, from), (_, to)) = (planes(output), planes(gradient));
    let [rows, columns] = axes(from, to);
    let (values, mut sums) = (gradient.read::<f64>(), vec![0.0; output.len()]);
    let (from_size, to_size) = (from[0] * from[1], to[0] * to[1]);
    for_each(&rows, &columns, from[1], |target, source, weight| {
        for plane in 0..count {
            sums[plane * from_size + source] += weight * values[plane * to_size + target];
        }
    });
    output.write(&sums);
}

#[cfg(test)]
mod tests {
    use super::{Axis, backward, cubic, forward, linear, nearest, reflected, repeated, same};
    use crate::tensor::Tensor;

    fn sources(axis: &Axis) -> Vec<usize> {
        axis.iter().map(|sources| sources[0].0).collect()
    }

    #[test]
    fn padding_takes_the_right_elements() {
        assert_eq!(sources(&reflected(3, 7, 2)), [2, 1, 0, 1, 2, 1, 0]);
        assert_eq!(sources(&repeated(3, 6, 1)), [0, 0, 1, 2, 2, 2]);
        assert_eq!(sources(&nearest(2, 5, 2.5)), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn weights_of_an_element_add_up_to_one() {
        for align_corners in [false, true] {
            let cubes = cubic(4, 9, align_corners, 0.0);
            for sources in linear(4, 9, align_corners, 0.0).into_iter().chain(cubes) {
                assert!((sources.iter().map(|(_, weight)| weight).sum::<f64>() - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn the_gradient_goes_back_to_where_elements_came_from() {
        let mut input = [1.0, 2.0];
        let mut output = [0.0; 4];
        let axes = |from: [usize; 2], to: [usize; 2]| [same(from[0]), nearest(from[1], to[1], 0.0)];
        forward(&Tensor::dense(&mut input, &[1, 2]), &Tensor::dense(&mut output, &[1, 4]), axes);
        assert_eq!(output, [1.0, 1.0, 2.0, 2.0]);
        backward(&Tensor::dense(&mut output, &[1, 4]), &Tensor::dense(&mut input, &[1, 2]), axes);
        assert_eq!(input, [2.0, 4.0]);
    }
}
