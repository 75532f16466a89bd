//! Activation functions and their gradients.

use crate::macros::operators;
use standin_compute::elementwise::{Operand, erf, map, zip, zip3};
use standin_compute::reduction::{along, softmax, softmax_backward};
use standin_compute::{Scalar, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

/// `1 / (1 + e^-x)`.
pub fn sigmoid(value: f64) -> f64 {
    1.0 / (1.0 + (-value).exp())
}

fn silu(value: f64) -> f64 {
    value * sigmoid(value)
}

fn silu_slope(value: f64) -> f64 {
    let s = sigmoid(value);
    s * (1.0 + value * (1.0 - s))
}

fn gelu(value: f64) -> f64 {
    0.5 * value * (1.0 + erf(value * FRAC_1_SQRT_2))
}

fn gelu_slope(value: f64) -> f64 {
    let density = (-0.5 * value * value).exp() * FRAC_2_SQRT_PI / (2.0 * SQRT_2);
    0.5 * (1.0 + erf(value * FRAC_1_SQRT_2)) + value * density
}

const TANH_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
const TANH_CUBE: f64 = 0.044_715;

fn gelu_tanh(value: f64) -> f64 {
    0.5 * value * (1.0 + (TANH_SCALE * (value + TANH_CUBE * value.powi(3))).tanh())
}

fn gelu_tanh_slope(value: f64) -> f64 {
    let inner = (TANH_SCALE * (value + TANH_CUBE * value.powi(3))).tanh();
    let slope = TANH_SCALE * (1.0 + 3.0 * TANH_CUBE * value * value);
    0.5 * (1.0 + inner) + 0.5 * value * (1.0 - inner * inner) * slope
}

fn softplus(value: f64) -> f64 {
    if value > 30.0 { value } else { value.exp().ln_1p() }
}

fn mish_slope(value: f64) -> f64 {
    let inner = softplus(value).tanh();
    inner + value * (1.0 - inner * inner) * sigmoid(value)
}

fn relu(value: f64) -> f64 {
    if value > 0.0 || value.is_nan() { value } else { 0.0 }
}

fn leaky(value: f64, slope: f64) -> f64 {
    if value > 0.0 { value } else { value * slope }
}

fn elu(value: f64, alpha: f64, scale: f64, input_scale: f64) -> f64 {
    if value > 0.0 { scale * value } else { scale * alpha * (value * input_scale).exp_m1() }
}

fn hard_swish(value: f64) -> f64 {
    value * (value + 3.0).clamp(0.0, 6.0) / 6.0
}

fn hard_swish_slope(value: f64) -> f64 {
    if value < -3.0 {
        0.0
    } else if value <= 3.0 {
        value / 3.0 + 0.5
    } else {
        1.0
    }
}

fn hard_sigmoid(value: f64) -> f64 {
    (value + 3.0).clamp(0.0, 6.0) / 6.0
}

/// Nothing between `-width` and `width`, nearer to zero outside.
fn soft_shrink(value: f64, width: f64) -> f64 {
    if value > width {
        value - width
    } else if value < -width {
        value + width
    } else if value.is_nan() {
        value
    } else {
        0.0
    }
}

fn hard_shrink(value: f64, width: f64) -> f64 {
    if (-width..=width).contains(&value) { 0.0 } else { value }
}

/// Both halves of a tensor along a dimension.
fn halves(tensor: &Tensor, dimension: i64) -> [Tensor; 2] {
    let dimension = tensor.dimension(dimension);
    let size = tensor.shape[dimension] / 2;
    [tensor.narrowed(dimension, 0, size), tensor.narrowed(dimension, size, size)]
}

/// The first half where the second half opens the gate.
fn gated(input: &Tensor, dimension: i64, output: &Tensor) {
    let [values, gates] = halves(input, dimension).map(Operand::from);
    zip(&values, &gates, output, |value, gate| value * sigmoid(gate));
}

fn gated_backward(gradient: &Tensor, input: &Tensor, dimension: i64, output: &Tensor) {
    let [values, gates] = halves(input, dimension).map(Operand::from);
    let [to_values, to_gates] = halves(output, dimension);
    let gradient = Operand::from(gradient.clone());
    zip(&gradient, &gates, &to_values, |gradient, gate| gradient * sigmoid(gate));
    zip3([&gradient, &values, &gates], &to_gates, |gradient, value, gate| {
        gradient * value * sigmoid(gate) * (1.0 - sigmoid(gate))
    });
}

/// Slopes below zero: one for all, or one per channel, which is the second dimension.
fn slopes(weight: &Tensor, input: &Tensor) -> Tensor {
    let rank = input.rank();
    if weight.len() == 1 || rank < 2 {
        return weight.view(vec![weight.len()], vec![1]);
    }
    let sizes: Vec<usize> = (0..rank).map(|dimension| if dimension == 1 { weight.len() } else { 1 }).collect();
    let strides = standin_compute::dense_strides(&sizes);
    weight.view(sizes, strides)
}

/// Gradients of a rectifier with learned slopes.
fn learned_slope_backward(gradient: &Tensor, input: &Tensor, weight: &Tensor, to_input: &Tensor, to_weight: &Tensor) {
    let slope = slopes(weight, input);
    let operands = [gradient.clone(), input.clone(), slope.clone()].map(Operand::from);
    zip3(operands.each_ref(), to_input, |gradient, input, slope| if input > 0.0 { gradient } else { gradient * slope });
    let channels = weight.len();
    let inner: usize = if channels == 1 { 1 } else { input.shape[2.min(input.rank())..].iter().product() };
    let mut sums = vec![0.0; channels];
    let pairs = gradient.read_as::<f64>(&input.shape).into_iter().zip(input.read::<f64>());
    for (index, (gradient, input)) in pairs.enumerate() {
        sums[index / inner.max(1) % channels] += if input > 0.0 { 0.0 } else { gradient * input };
    }
    to_weight.write(&sums);
}

/// `output = gradient * slope(input)`.
fn with_slope(gradient: Tensor, input: Tensor, output: &Tensor, slope: impl Fn(f64) -> f64) {
    zip(&Operand::from(gradient), &Operand::from(input), output, |gradient, input| gradient * slope(input));
}

operators! {
    aclnnSigmoid(input: Tensor, output: Tensor) => map(&input, &output, sigmoid);
    aclnnInplaceSigmoid(target: Tensor) => map(&target.clone(), &target, sigmoid);
    aclnnSigmoidBackward(gradient: Tensor, result: Tensor, output: Tensor) =>
        with_slope(gradient, result, &output, |result| result * (1.0 - result));
    aclnnTanhBackward(gradient: Tensor, result: Tensor, output: Tensor) =>
        with_slope(gradient, result, &output, |result| 1.0 - result * result);
    aclnnRelu(input: Tensor, output: Tensor) => map(&input, &output, relu);
    aclnnInplaceRelu(target: Tensor) => map(&target.clone(), &target, relu);
    aclnnThreshold(input: Tensor, threshold: Scalar, value: Scalar, output: Tensor) =>
        map(&input, &output, |element| if element <= threshold.float_for(&input) { value.float() } else { element });
    aclnnInplaceThreshold(target: Tensor, threshold: Scalar, value: Scalar) => {
        let threshold = threshold.float_for(&target);
        map(&target.clone(), &target, |element| if element <= threshold { value.float() } else { element })
    };
    aclnnThresholdBackward(gradient: Tensor, input: Tensor, threshold: Scalar, output: Tensor) => {
        let threshold = threshold.float_for(&input);
        zip(&gradient.into(), &input.into(), &output, |gradient, input| {
            if input <= threshold { 0.0 } else { gradient }
        })
    };
    aclnnSilu(input: Tensor, output: Tensor) => map(&input, &output, silu);
    aclnnSiluBackward(gradient: Tensor, input: Tensor, output: Tensor) =>
        with_slope(gradient, input, &output, silu_slope);
    aclnnGelu(input: Tensor, output: Tensor) => map(&input, &output, gelu);
    aclnnGeluBackward(gradient: Tensor, input: Tensor, output: Tensor) =>
        with_slope(gradient, input, &output, gelu_slope);
    aclnnGeluV2(input: Tensor, approximate: i64, output: Tensor) =>
        map(&input, &output, if approximate == 1 { gelu_tanh } else { gelu });
    aclnnGeluBackwardV2(gradient: Tensor, input: Tensor, approximate: String, output: Tensor) =>
        with_slope(gradient, input, &output, if approximate == "tanh" { gelu_tanh_slope } else { gelu_slope });
    aclnnMish(input: Tensor, output: Tensor) => map(&input, &output, |value| value * softplus(value).tanh());
    aclnnInplaceMish(target: Tensor) => map(&target.clone(), &target, |value| value * softplus(value).tanh());
    aclnnMishBackward(gradient: Tensor, input: Tensor, output: Tensor) =>
        with_slope(gradient, input, &output, mish_slope);
    aclnnLeakyRelu(input: Tensor, slope: Scalar, output: Tensor) =>
        map(&input, &output, |value| leaky(value, slope.float()));
    aclnnInplaceLeakyRelu(target: Tensor, slope: Scalar) =>
        map(&target.clone(), &target, |value| leaky(value, slope.float()));
    aclnnLeakyReluBackward(gradient: Tensor, input: Tensor, slope: Scalar, _is_result: bool, output: Tensor) =>
        with_slope(gradient, input, &output, |value| if value > 0.0 { 1.0 } else { slope.float() });
    aclnnElu(input: Tensor, alpha: Scalar, scale: Scalar, input_scale: Scalar, output: Tensor) =>
        map(&input, &output, |value| elu(value, alpha.float(), scale.float(), input_scale.float()));
    aclnnInplaceElu(target: Tensor, alpha: Scalar, scale: Scalar, input_scale: Scalar) =>
        map(&target.clone(), &target, |value| elu(value, alpha.float(), scale.float(), input_scale.float()));
    aclnnEluBackward(
        gradient: Tensor, alpha: Scalar, scale: Scalar, input_scale: Scalar, is_result: bool, input: Tensor,
        output: Tensor,
    ) => {
        let (alpha, scale, input_scale) = (alpha.float(), scale.float(), input_scale.float());
        with_slope(gradient, input, &output, |value| {
            if value > 0.0 {
                scale
            } else if is_result {
                input_scale * (value + alpha * scale)
            } else {
                input_scale * alpha * scale * (value * input_scale).exp()
            }
        })
    };
    aclnnCelu(input: Tensor, alpha: Scalar, output: Tensor) =>
        map(&input, &output, |value| elu(value, alpha.float(), 1.0, 1.0 / alpha.float()));
    aclnnInplaceCelu(target: Tensor, alpha: Scalar) =>
        map(&target.clone(), &target, |value| elu(value, alpha.float(), 1.0, 1.0 / alpha.float()));
    aclnnSoftshrink(input: Tensor, width: Scalar, output: Tensor) =>
        map(&input, &output, |value| soft_shrink(value, width.float_like(&input)));
    aclnnSoftshrinkBackward(gradient: Tensor, input: Tensor, width: Scalar, output: Tensor) => {
        let width = width.float_like(&input);
        with_slope(gradient, input, &output, |value| if value.abs() <= width { 0.0 } else { 1.0 })
    };
    aclnnHardshrink(input: Tensor, width: Scalar, output: Tensor) =>
        map(&input, &output, |value| hard_shrink(value, width.float_like(&input)));
    aclnnHardshrinkBackward(gradient: Tensor, input: Tensor, width: Scalar, output: Tensor) => {
        let width = width.float_like(&input);
        with_slope(gradient, input, &output, |value| if value.abs() <= width { 0.0 } else { 1.0 })
    };
    aclnnGlu(input: Tensor, dimension: i64, output: Tensor) => gated(&input, dimension, &output);
    aclnnGluBackward(gradient: Tensor, input: Tensor, dimension: i64, output: Tensor) =>
        gated_backward(&gradient, &input, dimension, &output);
    aclnnPrelu(input: Tensor, weight: Tensor, output: Tensor) => {
        let slope = slopes(&weight, &input);
        zip(&input.into(), &slope.into(), &output, |value, slope| if value > 0.0 { value } else { value * slope })
    };
    aclnnPreluBackward(gradient: Tensor, input: Tensor, weight: Tensor, to_input: Tensor, to_weight: Tensor) =>
        learned_slope_backward(&gradient, &input, &weight, &to_input, &to_weight);
    aclnnSoftplus(input: Tensor, beta: Scalar, threshold: Scalar, output: Tensor) =>
        map(&input, &output, |value| {
            let scaled = value * beta.float();
            if scaled > threshold.float() { value } else { scaled.exp().ln_1p() / beta.float() }
        });
    aclnnSoftplusBackward(gradient: Tensor, input: Tensor, beta: Scalar, threshold: Scalar, output: Tensor) =>
        with_slope(gradient, input, &output, |value| {
            let scaled = value * beta.float();
            if scaled > threshold.float() { 1.0 } else { sigmoid(scaled) }
        });
    aclnnHardswish(input: Tensor, output: Tensor) => map(&input, &output, hard_swish);
    aclnnInplaceHardswish(target: Tensor) => map(&target.clone(), &target, hard_swish);
    aclnnHardswishBackward(gradient: Tensor, input: Tensor, output: Tensor) =>
        with_slope(gradient, input, &output, hard_swish_slope);
    aclnnHardswishBackwardV2(gradient: Tensor, input: Tensor, output: Tensor) =>
        with_slope(gradient, input, &output, hard_swish_slope);
    aclnnHardsigmoid(input: Tensor, output: Tensor) => map(&input, &output, hard_sigmoid);
    aclnnInplaceHardsigmoid(target: Tensor) => map(&target.clone(), &target, hard_sigmoid);
    aclnnHardsigmoidBackward(gradient: Tensor, input: Tensor, output: Tensor) =>
        with_slope(gradient, input, &output, |value| if value.abs() < 3.0 { 1.0 / 6.0 } else { 0.0 });
    aclnnHardtanh(input: Tensor, low: Scalar, high: Scalar, output: Tensor) =>
        map(&input, &output, |value| value.clamp(low.float(), high.float()));
    aclnnInplaceHardtanh(target: Tensor, low: Scalar, high: Scalar) =>
        map(&target.clone(), &target, |value| value.clamp(low.float(), high.float()));
    aclnnHardtanhBackward(gradient: Tensor, input: Tensor, low: Scalar, high: Scalar, output: Tensor) => {
        let (low, high) = (low.float_for(&input), high.float_for(&input));
        with_slope(gradient, input, &output, |value| if value > low && value < high { 1.0 } else { 0.0 })
    };
    aclnnLogSigmoidForward(input: Tensor, output: Tensor, _buffer: Tensor) =>
        map(&input, &output, |value| -softplus(-value));
    aclnnLogSigmoidBackward(gradient: Tensor, input: Tensor, _buffer: Tensor, output: Tensor) =>
        with_slope(gradient, input, &output, |value| sigmoid(-value));
    aclnnSoftmax(input: Tensor, dimension: i64, output: Tensor) =>
        along(&input, dimension, &output, |line| softmax(line, false));
    aclnnLogSoftmax(input: Tensor, dimension: i64, output: Tensor) =>
        along(&input, dimension, &output, |line| softmax(line, true));
    aclnnSoftmaxBackward(gradient: Tensor, result: Tensor, dimension: i64, output: Tensor) =>
        softmax_backward(&gradient, &result, dimension, &output, false);
    aclnnLogSoftmaxBackward(gradient: Tensor, result: Tensor, dimension: i64, output: Tensor) =>
        softmax_backward(&gradient, &result, dimension, &output, true);
}
