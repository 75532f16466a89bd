//! Pooling over the last dimensions: as many as the window has, two where there is none.

use crate::convolution::{Window, coordinates};
use crate::tensor::Tensor;

/// The last two dimensions of a shape, and the number of planes before them.
pub(crate) fn planes(tensor: &Tensor) -> (usize, [usize; 2]) {
    let rank = tensor.rank();
    (tensor.shape[..rank - 2].iter().product(), [tensor.shape[rank - 2], tensor.shape[rank - 1]])
}

/// The planes of a tensor and of what pooling makes of it.
struct Planes {
    count: usize,
    /// Rows and columns of a plane.
    space: [usize; 2],
    /// Rows and columns of its windows.
    windows: [usize; 2],
    /// Elements of a plane.
    size: usize,
    /// Windows of a plane.
    places: usize,
}

impl Planes {
    fn of(whole: &Tensor, pooled: &Tensor) -> Self {
        let ((count, space), (_, windows)) = (planes(whole), planes(pooled));
        Self { count, space, windows, size: space[0] * space[1], places: windows[0] * windows[1] }
    }
}

/// The spaces that windows are laid over, of any number of dimensions.
struct Spaces<'a> {
    count: usize,
    /// Sizes of a space.
    space: &'a [usize],
    /// Windows in each of its dimensions.
    windows: &'a [usize],
    /// Elements of a space.
    size: usize,
    /// Windows of a space.
    places: usize,
}

impl<'a> Spaces<'a> {
    fn of(whole: &'a Tensor, pooled: &'a Tensor, window: &Window) -> Self {
        let (outer, space) = whole.shape.split_at(whole.rank() - window.kernel.len());
        let windows = &pooled.shape[pooled.rank() - window.kernel.len()..];
        let (size, places) = (space.iter().product(), windows.iter().product());
        Self { count: outer.iter().product(), space, windows, size, places }
    }
}

/// Largest element of every window and its position in the space.
pub fn max_pool(input: &Tensor, window: &Window, output: &Tensor, positions: &Tensor) {
    let values = input.read::<f64>();
    let Spaces { count, space, windows, size, places } = Spaces::of(input, output, window);
    let mut best = vec![f64::NEG_INFINITY; count * places];
    let mut found = vec![-1i64; count * places];
    window.for_each(space, windows, |_, place, position| {
        for plane in 0..count {
            let value = values[plane * size + position];
            let target = plane * places + place;
            let current = best[target];
            if !current.is_nan() && (found[target] < 0 || value > current || value.is_nan()) {
                best[target] = value;
                found[target] = position as i64;
            }
        }
    });
    output.write(&best);
    positions.write(&found);
}

/// Gradient of [`max_pool`] over this many dimensions, from the positions it found.
pub fn max_pool_backward(gradient: &Tensor, positions: &Tensor, dimensions: usize, output: &Tensor) {
    let (gradients, positions) = (gradient.read::<f64>(), positions.read::<i64>());
    let (outer, space) = output.shape.split_at(output.rank() - dimensions);
    let size: usize = space.iter().product();
    let places = gradients.len() / outer.iter().product::<usize>().max(1);
    let mut sums = vec![0.0; output.len()];
    for (index, (gradient, position)) in gradients.iter().zip(positions).enumerate() {
        if let Ok(position) = usize::try_from(position) {
            sums[index / places.max(1) * size + position] += gradient;
        }
    }
    output.write(&sums);
}

/// The first bytes of every plane of a mask, as many as the plane of the pooled tensor has elements.
fn mask_bytes(mask: &Tensor, pooled: &Tensor) -> Tensor {
    let (count, windows) = planes(pooled);
    let plane: usize = mask.len() / count.max(1);
    mask.view(vec![count, windows[0] * windows[1]], vec![plane as isize, 1])
}

/// Largest element of every window; the mask notes which element of the window it was, in a layout of our own.
pub fn max_pool_with_mask(input: &Tensor, window: &Window, output: &Tensor, mask: &Tensor) {
    let values = input.read::<f64>();
    let Planes { count, space, windows, size, places } = Planes::of(input, output);
    let mut best = vec![f64::NEG_INFINITY; count * places];
    let mut found = vec![-1i64; count * places];
    window.for_each(&space, &windows, |element, place, position| {
        for plane in 0..count {
            let value = values[plane * size + position];
            let target = plane * places + place;
            if !best[target].is_nan() && (found[target] < 0 || value > best[target] || value.is_nan()) {
                best[target] = value;
                found[target] = element as i64;
            }
        }
    });
    output.write(&best);
    mask_bytes(mask, output).write(&found);
}

/// Gradient of [`max_pool_with_mask`].
pub fn max_pool_with_mask_backward(gradient: &Tensor, window: &Window, mask: &Tensor, output: &Tensor) {
    let (gradients, found) = (gradient.read::<f64>(), mask_bytes(mask, gradient).read::<i64>());
    let Planes { count, space, windows, size, places } = Planes::of(output, gradient);
    let mut sums = vec![0.0; count * size];
    window.for_each(&space, &windows, |element, place, position| {
        for plane in 0..count {
            if found[plane * places + place] == element as i64 {
                sums[plane * size + position] += gradients[plane * places + place];
            }
        }
    });
    output.write(&sums);
}

/// What an average is divided by.
#[derive(Clone, Copy, Debug)]
pub struct Divisor {
    /// Whether padding counts as elements.
    pub with_padding: bool,
    /// A fixed number instead, unless zero.
    pub fixed: i64,
}

/// The divisor of every window.
fn divisors(window: &Window, space: &[usize], windows: &[usize], divisor: Divisor) -> Vec<f64> {
    let mut counts = vec![0.0; windows.iter().product()];
    if divisor.fixed != 0 {
        counts.fill(divisor.fixed as f64);
    } else if divisor.with_padding {
        for (index, count) in counts.iter_mut().enumerate() {
            let place = coordinates(index, windows);
            *count = (0..windows.len())
                .map(|dimension| {
                    let start = place[dimension] * window.stride[dimension];
                    let end = (start + window.kernel[dimension]).min(space[dimension] + 2 * window.padding[dimension]);
                    (end - start) as f64
                })
                .product();
        }
    } else {
        window.for_each(space, windows, |_, place, _| counts[place] += 1.0);
    }
    counts
}

/// Average of every window.
pub fn average_pool(input: &Tensor, window: &Window, divisor: Divisor, output: &Tensor) {
    let values = input.read::<f64>();
    let Spaces { count, space, windows, size, places } = Spaces::of(input, output, window);
    let divisors = divisors(window, space, windows, divisor);
    let mut sums = vec![0.0; count * places];
    window.for_each(space, windows, |_, place, position| {
        for plane in 0..count {
            sums[plane * places + place] += values[plane * size + position];
        }
    });
    sums.iter_mut().enumerate().for_each(|(index, sum)| *sum /= divisors[index % places]);
    output.write(&sums);
}

/// Gradient of [`average_pool`].
pub fn average_pool_backward(gradient: &Tensor, window: &Window, divisor: Divisor, output: &Tensor) {
    let gradients = gradient.read::<f64>();
    let Spaces { count, space, windows, size, places } = Spaces::of(output, gradient, window);
    let divisors = divisors(window, space, windows, divisor);
    let mut sums = vec![0.0; count * size];
    window.for_each(space, windows, |_, place, position| {
        for plane in 0..count {
            sums[plane * size + position] += gradients[plane * places + place] / divisors[place];
        }
    });
    output.write(&sums);
}

/// Start and end of the input range that adaptive pooling averages for one output element.
fn adaptive_range(index: usize, output: usize, input: usize) -> std::ops::Range<usize> {
    index * input / output..((index + 1) * input).div_ceil(output)
}

/// Calls `visit(output place, input position, elements of the place)` for adaptive pooling.
fn for_each_adaptive(space: [usize; 2], windows: [usize; 2], mut visit: impl FnMut(usize, usize, usize)) {
    for row in 0..windows[0] {
        let rows = adaptive_range(row, windows[0], space[0]);
        for column in 0..windows[1] {
            let columns = adaptive_range(column, windows[1], space[1]);
            for y in rows.clone() {
                for x in columns.clone() {
                    visit(row * windows[1] + column, y * space[1] + x, rows.len() * columns.len());
                }
            }
        }
    }
}

/// Averages over as many equal parts as the output has elements.
pub fn adaptive_average_pool(input: &Tensor, output: &Tensor) {
    let values = input.read::<f64>();
    let Planes { count, space, windows, size, places } = Planes::of(input, output);
    let mut sums = vec![0.0; count * places];
    for_each_adaptive(space, windows, |place, position, elements| {
        for plane in 0..count {
            sums[plane * places + place] += values[plane * size + position] / elements as f64;
        }
    });
    output.write(&sums);
}

/// Gradient of [`adaptive_average_pool`].
pub fn adaptive_average_pool_backward(gradient: &Tensor, output: &Tensor) {
    let gradients = gradient.read::<f64>();
    let Planes { count, space, windows, size, places } = Planes::of(output, gradient);
    let mut sums = vec![0.0; count * size];
    for_each_adaptive(space, windows, |place, position, elements| {
        for plane in 0..count {
            sums[plane * size + position] += gradients[plane * places + place] / elements as f64;
        }
    });
    output.write(&sums);
}

/// The largest element of as many equal parts as the output has elements, and its position in the plane. The gradient
/// is that of [`max_pool`].
pub fn adaptive_max_pool(input: &Tensor, output: &Tensor, positions: &Tensor) {
    let values = input.read::<f64>();
    let Planes { count, space, windows, size, places } = Planes::of(input, output);
    let mut best = vec![f64::NEG_INFINITY; count * places];
    let mut found = vec![-1i64; count * places];
    for_each_adaptive(space, windows, |place, position, _| {
        for plane in 0..count {
            let (value, target) = (values[plane * size + position], plane * places + place);
            if !best[target].is_nan() && (found[target] < 0 || value > best[target] || value.is_nan()) {
                best[target] = value;
                found[target] = position as i64;
            }
        }
    });
    output.write(&best);
    positions.write(&found);
}

/// Every window as a column: (batch, channels x elements of the window, windows).
pub fn windows_to_columns(input: &Tensor, window: &Window, windows: [usize; 2], output: &Tensor) {
    let values = input.read::<f64>();
    let (count, space) = planes(input);
    let (size, places) = (space[0] * space[1], windows[0] * windows[1]);
    let elements: usize = window.kernel.iter().product();
    let mut columns = vec![0.0; output.len()];
    window.for_each(&space, &windows, |element, place, position| {
        for plane in 0..count {
            columns[(plane * elements + element) * places + place] = values[plane * size + position];
        }
    });
    output.write(&columns);
}

/// Sums columns where their windows overlap: the gradient of [`windows_to_columns`].
pub fn columns_to_windows(columns: &Tensor, window: &Window, windows: [usize; 2], output: &Tensor) {
    let values = columns.read::<f64>();
    let (count, space) = planes(output);
    let (size, places) = (space[0] * space[1], windows[0] * windows[1]);
    let elements: usize = window.kernel.iter().product();
    let mut sums = vec![0.0; output.len()];
    window.for_each(&space, &windows, |element, place, position| {
        for plane in 0..count {
            sums[plane * size + position] += values[(plane * elements + element) * places + place];
        }
    });
    output.write(&sums);
}

#[cfg(test)]
mod tests {
    use super::{adaptive_average_pool, max_pool, max_pool_backward};
    use crate::convolution::Window;
    use crate::tensor::Tensor;

    #[test]
    fn the_largest_of_every_window_and_its_gradient() {
        let mut input: Vec<f32> = (0..16).map(|value| value as f32).collect();
        let window = Window::new(&[2, 2], &[2, 2], &[0, 0], &[1, 1]);
        let (mut output, mut places) = ([0.0; 4], [0.0; 4]);
        let places_tensor = Tensor::dense(&mut places, &[1, 2, 2]);
        max_pool(
            &Tensor::dense(&mut input, &[1, 4, 4]),
            &window,
            &Tensor::dense(&mut output, &[1, 2, 2]),
            &places_tensor,
        );
        assert_eq!(output, [5.0, 7.0, 13.0, 15.0]);
        let mut gradient = [0.0; 16];
        max_pool_backward(
            &Tensor::dense(&mut output, &[1, 2, 2]),
            &places_tensor,
            2,
            &Tensor::dense(&mut gradient, &[1, 4, 4]),
        );
        assert_eq!(gradient[5], 5.0);
        assert_eq!(gradient.iter().sum::<f32>(), 40.0);
    }

    #[test]
    fn adaptive_parts_may_overlap() {
        let mut input: Vec<f32> = (0..5).map(|value| value as f32).collect();
        let mut output = [0.0; 2];
        adaptive_average_pool(&Tensor::dense(&mut input, &[1, 1, 5]), &Tensor::dense(&mut output, &[1, 1, 2]));
        assert_eq!(output, [1.0, 3.0]);
    }
}
