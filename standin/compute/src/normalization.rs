//! Normalisation of groups of elements to mean zero and variance one.

use crate::reduction::{mean, variance};
use crate::tensor::Tensor;

/// An optional tensor as numbers, `default` where it is missing.
fn read_or(tensor: Option<&Tensor>, length: usize, default: f64) -> Vec<f64> {
    tensor.filter(|tensor| !tensor.is_empty()).map_or_else(|| vec![default; length], Tensor::read)
}

fn write_if(target: Option<&Tensor>, values: &[f64]) {
    if let Some(target) = target.filter(|target| target.len() == values.len()) {
        target.write(values);
    }
}

/// Layer normalisation: every run of `weight`-many last elements by itself. `length` is their number.
pub struct LayerNorm {
    /// Number of elements that are normalised together.
    pub length: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether the mean is taken away; without it this is the root-mean-square variant.
    pub centered: bool,
}

impl LayerNorm {
    /// `output = (input - mean) * deviation * weight + bias`; also stores mean and inverse deviation.
    pub fn forward(&self, input: &Tensor, weight: [Option<&Tensor>; 2], output: &Tensor, saved: [Option<&Tensor>; 2]) {
        let mut values = input.read::<f64>();
        let weights = read_or(weight[0], self.length, 1.0);
        let biases = read_or(weight[1], self.length, 0.0);
        let (mut means, mut deviations) = (Vec::new(), Vec::new());
        for group in values.chunks_mut(self.length.max(1)) {
            let center = if self.centered { mean(group) } else { 0.0 };
            let spread = group.iter().map(|value| (value - center).powi(2)).sum::<f64>() / group.len() as f64;
            let deviation = 1.0 / (spread + self.epsilon).sqrt();
            for ((value, weight), bias) in group.iter_mut().zip(&weights).zip(&biases) {
                *value = (*value - center) * deviation * weight + bias;
            }
            means.push(center);
            deviations.push(deviation);
        }
        output.write(&values);
        write_if(saved[0], &means);
        write_if(saved[1], &deviations);
    }

    /// Gradients for input, weight and bias, where asked for.
    pub fn backward(
        &self,
        gradient: &Tensor,
        input: &Tensor,
        saved: [Option<&Tensor>; 2],
        weight: Option<&Tensor>,
        targets: [Option<&Tensor>; 3],
    ) {
        let (gradients, inputs) = (gradient.read::<f64>(), input.read::<f64>());
        let length = self.length.max(1);
        let groups = inputs.len() / length;
        let weights = read_or(weight, length, 1.0);
        let means = read_or(saved[0], groups, 0.0);
        let deviations = read_or(saved[1], groups, 1.0);
        let mut to_input = vec![0.0; inputs.len()];
        let (mut to_weight, mut to_bias) = (vec![0.0; length], vec![0.0; length]);
        for group in 0..groups {
            let range = group * length..(group + 1) * length;
            let (gradients, inputs) = (&gradients[range.clone()], &inputs[range.clone()]);
            let normal: Vec<f64> = inputs.iter().map(|value| (value - means[group]) * deviations[group]).collect();
            let scaled: Vec<f64> = gradients.iter().zip(&weights).map(|(gradient, weight)| gradient * weight).collect();
            let mean_gradient = if self.centered { mean(&scaled) } else { 0.0 };
            let mean_product = scaled.iter().zip(&normal).map(|(a, b)| a * b).sum::<f64>() / length as f64;
            for index in 0..length {
                to_weight[index] += gradients[index] * normal[index];
                to_bias[index] += gradients[index];
                to_input[range.start + index] =
                    deviations[group] * (scaled[index] - mean_gradient - normal[index] * mean_product);
            }
        }
        write_if(targets[0], &to_input);
        write_if(targets[1], &to_weight);
        write_if(targets[2], &to_bias);
    }
}

/// The elements of `tensor` (batch, channels, space...) channel by channel, and how many each channel has.
fn by_channel(tensor: &Tensor) -> Tensor {
    let mut order: Vec<usize> = (0..tensor.rank()).collect();
    order.swap(0, 1);
    tensor.permuted(&order)
}

/// Batch normalisation: every channel by itself.
pub struct BatchNorm {
    /// Whether statistics are those of the input rather than the running ones.
    pub training: bool,
    /// Weight of the new statistics in the running ones.
    pub momentum: f64,
    /// Added to the variance.
    pub epsilon: f64,
}

impl BatchNorm {
    /// Normalises, updates the running statistics (mean, variance) and stores mean and inverse deviation.
    pub fn forward(
        &self,
        input: &Tensor,
        weight: [Option<&Tensor>; 2],
        running: [Option<&Tensor>; 2],
        output: &Tensor,
        saved: [Option<&Tensor>; 2],
    ) {
        let channels = input.shape[1];
        let mut values = by_channel(input).read::<f64>();
        let length = values.len() / channels.max(1);
        let (weights, biases) = (read_or(weight[0], channels, 1.0), read_or(weight[1], channels, 0.0));
        let (mut running_mean, mut running_variance) =
            (read_or(running[0], channels, 0.0), read_or(running[1], channels, 1.0));
        let (mut means, mut deviations) = (Vec::new(), Vec::new());
        for (channel, group) in values.chunks_mut(length.max(1)).enumerate() {
            let (center, spread) = if self.training {
                let (center, spread) = (mean(group), variance(group, 0.0));
                let keep = 1.0 - self.momentum;
                running_mean[channel] = keep * running_mean[channel] + self.momentum * center;
                running_variance[channel] = keep * running_variance[channel] + self.momentum * variance(group, 1.0);
                (center, spread)
            } else {
                (running_mean[channel], running_variance[channel])
            };
            let deviation = 1.0 / (spread + self.epsilon).sqrt();
            for value in group {
                *value = (*value - center) * deviation * weights[channel] + biases[channel];
            }
            means.push(center);
            deviations.push(deviation);
        }
        by_channel(output).write(&values);
        write_if(saved[0], &means);
        write_if(saved[1], &deviations);
        if self.training {
            write_if(running[0], &running_mean);
            write_if(running[1], &running_variance);
        }
    }

    /// Gradients for input, weight and bias, where asked for. `saved` are mean and inverse deviation of the forward
    /// pass; without training the running statistics are used.
    pub fn backward(
        &self,
        gradient: &Tensor,
        input: &Tensor,
        weight: Option<&Tensor>,
        running: [Option<&Tensor>; 2],
        saved: [Option<&Tensor>; 2],
        targets: [Option<&Tensor>; 3],
    ) {
        let channels = input.shape[1];
        let (gradients, inputs) = (by_channel(gradient).read::<f64>(), by_channel(input).read::<f64>());
        let length = inputs.len() / channels.max(1);
        let weights = read_or(weight, channels, 1.0);
        let (means, deviations) = if self.training {
            (read_or(saved[0], channels, 0.0), read_or(saved[1], channels, 1.0))
        } else {
            let variances = read_or(running[1], channels, 1.0);
            let deviations = variances.iter().map(|variance| 1.0 / (variance + self.epsilon).sqrt()).collect();
            (read_or(running[0], channels, 0.0), deviations)
        };
        let mut to_input = vec![0.0; inputs.len()];
        let (mut to_weight, mut to_bias) = (vec![0.0; channels], vec![0.0; channels]);
        for channel in 0..channels {
            let range = channel * length..(channel + 1) * length;
            let normal = |index: usize| (inputs[index] - means[channel]) * deviations[channel];
            for index in range.clone() {
                to_weight[channel] += gradients[index] * normal(index);
                to_bias[channel] += gradients[index];
            }
            let (mean_gradient, mean_product) = if self.training {
                (to_bias[channel] / length as f64, to_weight[channel] / length as f64)
            } else {
                (0.0, 0.0)
            };
            for index in range {
                let centered = gradients[index] - mean_gradient - normal(index) * mean_product;
                to_input[index] = centered * deviations[channel] * weights[channel];
            }
        }
        if let Some(target) = targets[0].filter(|target| target.len() == to_input.len()) {
            by_channel(target).write(&to_input);
        }
        write_if(targets[1], &to_weight);
        write_if(targets[2], &to_bias);
    }
}

/// Group normalisation: every group of neighbouring channels of one batch entry by itself.
pub struct GroupNorm {
    /// Number of groups per batch entry.
    pub groups: usize,
    /// Number of channels.
    pub channels: usize,
    /// Added to the variance.
    pub epsilon: f64,
}

impl GroupNorm {
    /// Size of a group, and of a channel, in elements.
    fn sizes(&self, batch: usize, length: usize) -> (usize, usize) {
        let entry = length / batch.max(1);
        (entry / self.groups, entry / self.channels)
    }

    /// Normalises and stores mean and inverse deviation of every group.
    pub fn forward(&self, input: &Tensor, weight: [Option<&Tensor>; 2], output: &Tensor, saved: [Option<&Tensor>; 2]) {
        let mut values = input.read::<f64>();
        let (size, plane) = self.sizes(input.shape[0], values.len());
        let (weights, biases) = (read_or(weight[0], self.channels, 1.0), read_or(weight[1], self.channels, 0.0));
        let (mut means, mut deviations) = (Vec::new(), Vec::new());
        for (index, group) in values.chunks_mut(size.max(1)).enumerate() {
            let (center, deviation) = (mean(group), 1.0 / (variance(group, 0.0) + self.epsilon).sqrt());
            for (element, value) in group.iter_mut().enumerate() {
                let channel = (index * size + element) / plane % self.channels;
                *value = (*value - center) * deviation * weights[channel] + biases[channel];
            }
            means.push(center);
            deviations.push(deviation);
        }
        output.write(&values);
        write_if(saved[0], &means);
        write_if(saved[1], &deviations);
    }

    /// Gradients for input, weight and bias, where asked for.
    pub fn backward(
        &self,
        gradient: &Tensor,
        input: &Tensor,
        saved: [&Tensor; 2],
        weight: Option<&Tensor>,
        targets: [Option<&Tensor>; 3],
    ) {
        let (gradients, inputs) = (gradient.read::<f64>(), input.read::<f64>());
        let (size, plane) = self.sizes(input.shape[0], inputs.len());
        let weights = read_or(weight, self.channels, 1.0);
        let (means, deviations) = (saved[0].read::<f64>(), saved[1].read::<f64>());
        let mut to_input = vec![0.0; inputs.len()];
        let (mut to_weight, mut to_bias) = (vec![0.0; self.channels], vec![0.0; self.channels]);
        for group in 0..inputs.len() / size.max(1) {
            let range = group * size..(group + 1) * size;
            let normal = |index: usize| (inputs[index] - means[group]) * deviations[group];
            let (mut sum, mut sum_product) = (0.0, 0.0);
            for index in range.clone() {
                let channel = index / plane % self.channels;
                to_weight[channel] += gradients[index] * normal(index);
                to_bias[channel] += gradients[index];
                sum += gradients[index] * weights[channel];
                sum_product += gradients[index] * weights[channel] * normal(index);
            }
            for index in range {
                let scaled = gradients[index] * weights[index / plane % self.channels];
                let centered = scaled - (sum + normal(index) * sum_product) / size as f64;
                to_input[index] = centered * deviations[group];
            }
        }
        write_if(targets[0], &to_input);
        write_if(targets[1], &to_weight);
        write_if(targets[2], &to_bias);
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchNorm, LayerNorm};
    use crate::tensor::Tensor;

    #[test]
    fn layers_have_mean_zero_and_variance_one() {
        let mut input = [1.0, 2.0, 3.0, 10.0, 20.0, 60.0];
        let mut output = [0.0; 6];
        let norm = LayerNorm { length: 3, epsilon: 0.0, centered: true };
        let mut means = [0.0; 2];
        let saved = [Some(&Tensor::dense(&mut means, &[2, 1])), None];
        norm.forward(&Tensor::dense(&mut input, &[2, 3]), [None; 2], &Tensor::dense(&mut output, &[2, 3]), saved);
        assert_eq!(means, [2.0, 30.0]);
        for group in output.chunks(3) {
            assert!(group.iter().sum::<f32>().abs() < 1e-6);
            assert!((group.iter().map(|value| value * value).sum::<f32>() - 3.0).abs() < 1e-5);
        }
    }

    #[test]
    fn running_statistics_follow_the_batches() {
        let mut input = [1.0, 10.0, 3.0, 30.0];
        let mut output = [0.0; 4];
        let (mut mean, mut variance) = ([0.0; 2], [1.0; 2]);
        let norm = BatchNorm { training: true, momentum: 0.5, epsilon: 0.0 };
        let running = [&Tensor::dense(&mut mean, &[2]), &Tensor::dense(&mut variance, &[2])];
        let output_tensor = Tensor::dense(&mut output, &[2, 2]);
        norm.forward(&Tensor::dense(&mut input, &[2, 2]), [None; 2], running.map(Some), &output_tensor, [None; 2]);
        assert_eq!(output, [-1.0, -1.0, 1.0, 1.0]);
        assert_eq!((mean, variance), ([1.0, 10.0], [1.5, 100.5]));
    }
}
