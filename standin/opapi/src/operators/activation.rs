//! Activation functions and their gradients.

use crate::macros::operators;
use standin_compute::elementwise::{Operand, erf, map, zip};
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
        map(&input, &output, |input| if input <= threshold.float() { value.float() } else { input });
    aclnnInplaceThreshold(target: Tensor, threshold: Scalar, value: Scalar) =>
        map(&target.clone(), &target, |input| if input <= threshold.float() { value.float() } else { input });
    aclnnThresholdBackward(gradient: Tensor, input: Tensor, threshold: Scalar, output: Tensor) =>
        zip(&gradient.into(), &input.into(), &output, |gradient, input| {
            if input <= threshold.float() { 0.0 } else { gradient }
        });
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
    aclnnHardtanhBackward(gradient: Tensor, input: Tensor, low: Scalar, high: Scalar, output: Tensor) =>
        with_slope(gradient, input, &output, |value| {
            if value > low.float() && value < high.float() { 1.0 } else { 0.0 }
        });
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
