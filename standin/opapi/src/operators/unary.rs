//! Functions of one tensor.

use crate::macros::operators;
use standin_compute::elementwise::{erf, map, map_either, zip};
use standin_compute::{Scalar, Tensor, Value};

/// Rounds to the nearest whole number, halves to the even one.
fn round(value: f64) -> f64 {
    value.round_ties_even()
}

/// 1, -1 or 0, which stands for what is not a number too.
pub fn sign(value: f64) -> f64 {
    f64::from(i8::from(value > 0.0) - i8::from(value < 0.0))
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// The inverse of the error function: a first guess, improved by two steps.
fn inverse_erf(value: f64) -> f64 {
    if value.abs() >= 1.0 {
        return if value.abs() > 1.0 { f64::NAN } else { value * f64::INFINITY };
    }
    let logarithm = (1.0 - value * value).ln();
    let part = 2.0 / (std::f64::consts::PI * 0.147) + logarithm / 2.0;
    let mut found = value.signum() * ((part * part - logarithm / 0.147).sqrt() - part).sqrt();
    for _ in 0..3 {
        let error = erf(found) - value;
        let slope = std::f64::consts::FRAC_2_SQRT_PI * (-found * found).exp();
        found -= error / (slope + found * error);
    }
    found
}

/// The logarithm of the odds, of values kept this far from 0 and 1 unless `margin` is negative.
fn log_odds(value: f64, margin: f64) -> f64 {
    let value = if margin < 0.0 { value } else { value.clamp(margin, 1.0 - margin) };
    (value / (1.0 - value)).ln()
}

fn log_odds_slope(value: f64, margin: f64) -> f64 {
    if margin < 0.0 && !(0.0..=1.0).contains(&value) {
        f64::NAN
    } else if margin >= 0.0 && !(margin..=1.0 - margin).contains(&value) {
        0.0
    } else {
        1.0 / (value * (1.0 - value))
    }
}

fn sinc(value: f64) -> f64 {
    let angle = value * std::f64::consts::PI;
    if value == 0.0 { 1.0 } else { angle.sin() / angle }
}

/// Floating-point functions, into another tensor.
macro_rules! functions {
    ($($name:ident($function:expr);)*) => {
        operators! { $($name(input: Tensor, output: Tensor) => map(&input, &output, $function);)* }
    };
}

/// Floating-point functions, in place.
macro_rules! functions_in_place {
    ($($name:ident($function:expr);)*) => {
        operators! { $($name(target: Tensor) => map(&target.clone(), &target, $function);)* }
    };
}

functions! {
    aclnnExp(f64::exp);
    aclnnExp2(f64::exp2);
    aclnnExpm1(f64::exp_m1);
    aclnnLog(f64::ln);
    aclnnLog2(f64::log2);
    aclnnLog10(f64::log10);
    aclnnLog1p(f64::ln_1p);
    aclnnSqrt(f64::sqrt);
    aclnnRsqrt(|value: f64| 1.0 / value.sqrt());
    aclnnReciprocal(|value: f64| 1.0 / value);
    aclnnSin(f64::sin);
    aclnnCos(f64::cos);
    aclnnTan(f64::tan);
    aclnnAsin(f64::asin);
    aclnnAcos(f64::acos);
    aclnnAtan(f64::atan);
    aclnnSinh(f64::sinh);
    aclnnCosh(f64::cosh);
    aclnnTanh(f64::tanh);
    aclnnAsinh(f64::asinh);
    aclnnAcosh(f64::acosh);
    aclnnAtanh(f64::atanh);
    aclnnErf(erf);
    aclnnErfinv(inverse_erf);
    aclnnSinc(sinc);
    aclnnErfc(|value: f64| 1.0 - erf(value));
    aclnnFrac(f64::fract);
    aclnnSign(sign);
    aclnnIsFinite(|value: f64| truth(value.is_finite()));
    aclnnIsPosInf(|value: f64| truth(value == f64::INFINITY));
    aclnnIsNegInf(|value: f64| truth(value == f64::NEG_INFINITY));
    aclnnSignbit(|value: f64| truth(value.is_sign_negative()));
    aclnnLogicalNot(|value: f64| truth(value == 0.0));
}

functions_in_place! {
    aclnnInplaceExp(f64::exp);
    aclnnInplaceExp2(f64::exp2);
    aclnnInplaceExpm1(f64::exp_m1);
    aclnnInplaceLog(f64::ln);
    aclnnInplaceLog2(f64::log2);
    aclnnInplaceLog10(f64::log10);
    aclnnInplaceLog1p(f64::ln_1p);
    aclnnInplaceSqrt(f64::sqrt);
    aclnnInplaceRsqrt(|value: f64| 1.0 / value.sqrt());
    aclnnInplaceReciprocal(|value: f64| 1.0 / value);
    aclnnInplaceSin(f64::sin);
    aclnnInplaceCos(f64::cos);
    aclnnInplaceTan(f64::tan);
    aclnnInplaceAsin(f64::asin);
    aclnnInplaceAcos(f64::acos);
    aclnnInplaceAtan(f64::atan);
    aclnnInplaceSinh(f64::sinh);
    aclnnInplaceCosh(f64::cosh);
    aclnnInplaceTanh(f64::tanh);
    aclnnInplaceErf(erf);
    aclnnInplaceErfinv(inverse_erf);
    aclnnInplaceErfc(|value: f64| 1.0 - erf(value));
    aclnnInplaceFrac(f64::fract);
    aclnnInplaceLogicalNot(|value: f64| truth(value == 0.0));
}

/// Replaces what is not a number or infinite.
fn finite(value: f64, not_a_number: f64, positive: f64, negative: f64) -> f64 {
    if value.is_nan() {
        not_a_number
    } else if value == f64::INFINITY {
        positive
    } else if value == f64::NEG_INFINITY {
        negative
    } else {
        value
    }
}

/// `value` rounded to some decimal places.
fn round_decimals(value: f64, decimals: i64) -> f64 {
    let factor = 10f64.powi(decimals as i32);
    round(value * factor) / factor
}

/// Functions that leave whole numbers as they are.
macro_rules! roundings {
    ($($name:ident($function:expr);)*) => {
        operators! {
            $($name(input: Tensor, output: Tensor) => map_either(&input, &output, $function, |value| value);)*
        }
    };
}

roundings! {
    aclnnFloor(f64::floor);
    aclnnCeil(f64::ceil);
    aclnnRound(round);
    aclnnTrunc(f64::trunc);
}

operators! {
    aclnnInplaceFloor(target: Tensor) => map_either(&target.clone(), &target, f64::floor, |value| value);
    aclnnInplaceCeil(target: Tensor) => map_either(&target.clone(), &target, f64::ceil, |value| value);
    aclnnAbs(input: Tensor, output: Tensor) => map_either(&input, &output, f64::abs, i64::wrapping_abs);
    aclnnNeg(input: Tensor, output: Tensor) => map_either(&input, &output, |value| -value, i64::wrapping_neg);
    aclnnBitwiseNot(input: Tensor, output: Tensor) => {
        let boolean = input.data_type == standin_compute::DataType::Bool;
        map_either(&input, &output, |value| value, |value| if boolean { i64::from(value == 0) } else { !value })
    };
    aclnnLogit(input: Tensor, margin: f64, output: Tensor) => map(&input, &output, |value| log_odds(value, margin));
    aclnnLogitGrad(input: Tensor, gradient: Tensor, margin: f64, output: Tensor) => zip(
        &input.into(), &gradient.into(), &output, |value, gradient| gradient * log_odds_slope(value, margin),
    );
    aclnnRoundDecimals(input: Tensor, decimals: i64, output: Tensor) =>
        map(&input, &output, |value| round_decimals(value, decimals));
    aclnnNanToNum(input: Tensor, not_a_number: f32, positive: f32, negative: f32, output: Tensor) =>
        map(&input, &output, |value| finite(value, not_a_number.into(), positive.into(), negative.into()));
    aclnnClamp(input: Tensor, low: Option<Scalar>, high: Option<Scalar>, output: Tensor) =>
        clamp(&input, low, high, &output);
    aclnnClampMin(input: Tensor, low: Scalar, output: Tensor) => clamp(&input, Some(low), None, &output);
    aclnnClampMax(input: Tensor, high: Scalar, output: Tensor) => clamp(&input, None, Some(high), &output);
    aclnnInplaceClampMax(target: Tensor, high: Scalar) => clamp(&target.clone(), None, Some(high), &target);
}

fn clamp(input: &Tensor, low: Option<Scalar>, high: Option<Scalar>, output: &Tensor) {
    if input.is_float() || [low, high].into_iter().flatten().any(Scalar::is_float) {
        map(input, output, |value| clamp_value(value, low, high));
    } else {
        map_either(input, output, |value| value, |value| clamp_value(value, low, high));
    }
}

fn clamp_value<V: Value>(value: V, low: Option<Scalar>, high: Option<Scalar>) -> V {
    let low = low.map(Scalar::value::<V>);
    let high = high.map(Scalar::value::<V>);
    let raised = low.filter(|low| value < *low).unwrap_or(value);
    high.filter(|high| raised > *high).unwrap_or(raised)
}
