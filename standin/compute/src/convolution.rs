//! Convolutions of any number of spatial dimensions, by unfolding windows into a matrix.

use crate::matrix::product_strided;
use crate::tensor::Tensor;

/// How windows are laid over the input; one entry per spatial dimension.
#[derive(Clone, Debug)]
pub struct Window {
    /// Size of the kernel.
    pub kernel: Vec<usize>,
    /// Distance of neighbouring windows.
    pub stride: Vec<usize>,
    /// Zeros around the input.
    pub padding: Vec<usize>,
    /// Distance of neighbouring elements of a window.
    pub dilation: Vec<usize>,
}

impl Window {
    /// A window; lists shorter than the kernel are filled up with their last entry.
    #[must_use]
    pub fn new(kernel: &[usize], stride: &[i64], padding: &[i64], dilation: &[i64]) -> Self {
        let fill = |values: &[i64], default: usize| -> Vec<usize> {
            let at = |index: usize| values.get(index).or(values.last()).map_or(default, |value| *value as usize);
            (0..kernel.len()).map(at).collect()
        };
        Self {
            kernel: kernel.to_vec(),
            stride: fill(stride, 1),
            padding: fill(padding, 0),
            dilation: fill(dilation, 1),
        }
    }

    /// Number of windows that fit into each dimension.
    #[must_use]
    pub fn count(&self, input: &[usize]) -> Vec<usize> {
        let fit = |dimension: usize| {
            let covered = self.dilation[dimension] * (self.kernel[dimension] - 1) + 1;
            (input[dimension] + 2 * self.padding[dimension] - covered) / self.stride[dimension] + 1
        };
        (0..self.kernel.len()).map(fit).collect()
    }

    /// Calls `visit(element of the window, window, input position)` wherever a window covers the input. Elements of the
    /// window, windows and positions are counted in row-major order.
    pub fn for_each(&self, input: &[usize], output: &[usize], mut visit: impl FnMut(usize, usize, usize)) {
        let kernel_size: usize = self.kernel.iter().product();
        let windows: usize = output.iter().product();
        let rank = self.kernel.len();
        for element in 0..kernel_size {
            let offset = coordinates(element, &self.kernel);
            for window in 0..windows {
                let place = coordinates(window, output);
                let mut position = 0;
                let mut inside = true;
                for dimension in 0..rank {
                    let at = place[dimension] * self.stride[dimension] + offset[dimension] * self.dilation[dimension];
                    let Some(at) = at.checked_sub(self.padding[dimension]).filter(|at| *at < input[dimension]) else {
                        inside = false;
                        break;
                    };
                    position = position * input[dimension] + at;
                }
                if inside {
                    visit(element, window, position);
                }
            }
        }
    }
}

/// Coordinates of the element with this row-major number; at most four dimensions.
pub(crate) fn coordinates(mut number: usize, shape: &[usize]) -> [usize; 4] {
    let mut result = [0; 4];
    for dimension in (0..shape.len()).rev() {
        result[dimension] = number % shape[dimension];
        number /= shape[dimension];
    }
    result
}

/// Sizes of a convolution of `input` (batch, channels, space...) with `weight` (outputs, channels per group, kernel...).
struct Sizes {
    batch: usize,
    groups: usize,
    inputs_per_group: usize,
    outputs_per_group: usize,
    input_space: Vec<usize>,
    output_space: Vec<usize>,
    kernel_size: usize,
    input_size: usize,
    output_size: usize,
    /// Pairs of (element of the window, window, input position), found once.
    cover: Vec<(u32, u32, u32)>,
}

impl Sizes {
    fn new(input: &[usize], weight: &[usize], output: &[usize], window: &Window, groups: usize) -> Self {
        let (input_space, output_space) = (input[2..].to_vec(), output[2..].to_vec());
        let mut cover = Vec::new();
        window.for_each(&input_space, &output_space, |element, place, position| {
            cover.push((element as u32, place as u32, position as u32));
        });
        Self {
            batch: input[0],
            groups,
            inputs_per_group: weight[1],
            outputs_per_group: weight[0] / groups,
            kernel_size: window.kernel.iter().product(),
            input_size: input_space.iter().product(),
            output_size: output_space.iter().product(),
            input_space,
            output_space,
            cover,
        }
    }

    /// The windows of one group of one batch entry: a matrix (channels x kernel) x windows.
    fn unfold(&self, input: &[f32], batch: usize, group: usize) -> Vec<f32> {
        let mut columns = vec![0.0; self.inputs_per_group * self.kernel_size * self.output_size];
        let channels = self.groups * self.inputs_per_group;
        for channel in 0..self.inputs_per_group {
            let plane = (batch * channels + group * self.inputs_per_group + channel) * self.input_size;
            let rows = channel * self.kernel_size;
            for (element, place, position) in &self.cover {
                columns[(rows + *element as usize) * self.output_size + *place as usize] =
                    input[plane + *position as usize];
            }
        }
        columns
    }

    /// Adds a matrix like that of [`Self::unfold`] back to the input it came from.
    fn fold(&self, columns: &[f32], target: &mut [f32], batch: usize, group: usize) {
        let channels = self.groups * self.inputs_per_group;
        for channel in 0..self.inputs_per_group {
            let plane = (batch * channels + group * self.inputs_per_group + channel) * self.input_size;
            let rows = channel * self.kernel_size;
            for (element, place, position) in &self.cover {
                target[plane + *position as usize] +=
                    columns[(rows + *element as usize) * self.output_size + *place as usize];
            }
        }
    }

    fn output_range(&self, batch: usize, group: usize) -> std::ops::Range<usize> {
        let size = self.outputs_per_group * self.output_size;
        let start = (batch * self.groups + group) * size;
        start..start + size
    }

    fn weight_range(&self, group: usize) -> std::ops::Range<usize> {
        let size = self.outputs_per_group * self.inputs_per_group * self.kernel_size;
        group * size..(group + 1) * size
    }

    fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        let groups = self.groups;
        (0..self.batch).flat_map(move |batch| (0..groups).map(move |group| (batch, group)))
    }

    fn depth(&self) -> usize {
        self.inputs_per_group * self.kernel_size
    }

    fn input_len(&self) -> usize {
        self.batch * self.groups * self.inputs_per_group * self.input_space.iter().product::<usize>()
    }

    fn output_len(&self) -> usize {
        self.batch * self.groups * self.outputs_per_group * self.output_space.iter().product::<usize>()
    }
}

fn forward_values(input: &[f32], weight: &[f32], sizes: &Sizes) -> Vec<f32> {
    let mut output = vec![0.0; sizes.output_len()];
    for (batch, group) in sizes.each() {
        let columns = sizes.unfold(input, batch, group);
        let (depth, windows) = (sizes.depth(), sizes.output_size);
        let weight = &weight[sizes.weight_range(group)];
        let result =
            product_strided(weight, (depth, 1), &columns, (windows, 1), sizes.outputs_per_group, depth, windows);
        output[sizes.output_range(batch, group)].copy_from_slice(&result);
    }
    output
}

fn input_gradient_values(gradient: &[f32], weight: &[f32], sizes: &Sizes) -> Vec<f32> {
    let mut result = vec![0.0; sizes.input_len()];
    for (batch, group) in sizes.each() {
        let (depth, windows) = (sizes.depth(), sizes.output_size);
        let weight = &weight[sizes.weight_range(group)];
        let gradient = &gradient[sizes.output_range(batch, group)];
        let columns =
            product_strided(weight, (1, depth), gradient, (windows, 1), depth, sizes.outputs_per_group, windows);
        sizes.fold(&columns, &mut result, batch, group);
    }
    result
}

fn weight_gradient_values(gradient: &[f32], input: &[f32], sizes: &Sizes) -> Vec<f32> {
    let mut result = vec![0.0; sizes.groups * sizes.outputs_per_group * sizes.depth()];
    for (batch, group) in sizes.each() {
        let columns = sizes.unfold(input, batch, group);
        let (depth, windows) = (sizes.depth(), sizes.output_size);
        let gradient = &gradient[sizes.output_range(batch, group)];
        let part =
            product_strided(gradient, (windows, 1), &columns, (1, windows), sizes.outputs_per_group, windows, depth);
        let target = &mut result[sizes.weight_range(group)];
        target.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    result
}

/// `output = input * weight + bias`; a transposed convolution is the gradient of a plain one for its input.
pub fn forward(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    window: &Window,
    transposed: bool,
    groups: usize,
    output: &Tensor,
) {
    let (inputs, weights) = (input.read::<f32>(), weight.read::<f32>());
    let mut values = if transposed {
        let sizes = Sizes::new(&output.shape, &weight.shape, &input.shape, window, groups);
        input_gradient_values(&inputs, &weights, &sizes)
    } else {
        let sizes = Sizes::new(&input.shape, &weight.shape, &output.shape, window, groups);
        forward_values(&inputs, &weights, &sizes)
    };
    if let Some(bias) = bias {
        let space: usize = output.shape[2..].iter().product();
        let biases = bias.read::<f32>();
        for (index, plane) in values.chunks_mut(space.max(1)).enumerate() {
            let bias = biases[index % biases.len()];
            plane.iter_mut().for_each(|value| *value += bias);
        }
    }
    output.write(&values);
}

/// Gradients of a convolution, where asked for.
pub fn backward(
    gradient: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    window: &Window,
    transposed: bool,
    groups: usize,
    targets: [Option<&Tensor>; 3],
) {
    let gradients = gradient.read::<f32>();
    let sizes = if transposed {
        Sizes::new(&gradient.shape, &weight.shape, &input.shape, window, groups)
    } else {
        Sizes::new(&input.shape, &weight.shape, &gradient.shape, window, groups)
    };
    let [input_target, weight_target, bias_target] = targets;
    if let Some(target) = input_target {
        let weights = weight.read::<f32>();
        target.write(&if transposed {
            forward_values(&gradients, &weights, &sizes)
        } else {
            input_gradient_values(&gradients, &weights, &sizes)
        });
    }
    if let Some(target) = weight_target {
        let inputs = input.read::<f32>();
        target.write(&if transposed {
            weight_gradient_values(&inputs, &gradients, &sizes)
        } else {
            weight_gradient_values(&gradients, &inputs, &sizes)
        });
    }
    if let Some(target) = bias_target {
        let space: usize = gradient.shape[2..].iter().product();
        let mut sums = vec![0.0; target.len()];
        let channels = sums.len().max(1);
        for (index, plane) in gradients.chunks(space.max(1)).enumerate() {
            sums[index % channels] += plane.iter().map(|value| f64::from(*value)).sum::<f64>();
        }
        target.write(&sums);
    }
}

#[cfg(test)]
mod tests {
    use super::{Window, backward, forward};
    use crate::tensor::Tensor;

    #[test]
    fn a_small_convolution_by_hand() {
        let mut input: Vec<f32> = (1..=9).map(|value| value as f32).collect();
        let mut weight = [1.0, 0.0, 0.0, 1.0];
        let mut output = [0.0; 4];
        let window = Window::new(&[2, 2], &[1, 1], &[0, 0], &[1, 1]);
        let input_tensor = Tensor::dense(&mut input, &[1, 1, 3, 3]);
        let weight_tensor = Tensor::dense(&mut weight, &[1, 1, 2, 2]);
        let mut bias = [0.5];
        let bias = Tensor::dense(&mut bias, &[1]);
        forward(
            &input_tensor,
            &weight_tensor,
            Some(&bias),
            &window,
            false,
            1,
            &Tensor::dense(&mut output, &[1, 1, 2, 2]),
        );
        assert_eq!(output, [6.5, 8.5, 12.5, 14.5]);
        let mut ones = [1.0; 4];
        let gradient = Tensor::dense(&mut ones, &[1, 1, 2, 2]);
        let (mut to_input, mut to_weight, mut to_bias) = ([0.0; 9], [0.0; 4], [0.0; 1]);
        let targets = [
            Some(&Tensor::dense(&mut to_input, &[1, 1, 3, 3])),
            Some(&Tensor::dense(&mut to_weight, &[1, 1, 2, 2])),
            Some(&Tensor::dense(&mut to_bias, &[1])),
        ];
        backward(&gradient, &input_tensor, &weight_tensor, &window, false, 1, targets);
        assert_eq!(to_input, [1.0, 1.0, 0.0, 1.0, 2.0, 1.0, 0.0, 1.0, 1.0]);
        assert_eq!(to_weight, [12.0, 16.0, 24.0, 28.0]);
        assert_eq!(to_bias, [4.0]);
    }
}
