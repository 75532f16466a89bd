//! Sums, products and other functions of two or three operands.

use crate::macros::operators;
use standin_compute::elementwise::{Operand, choose, common_type, zip, zip_either, zip_rounded, zip3};
use standin_compute::reduction::{larger, smaller};
use standin_compute::{DataType, Scalar, Tensor, Value};

/// `output = left + factor * right`.
pub fn add(left: &Operand, right: &Operand, factor: Scalar, output: &Tensor) {
    if factor.is_float() {
        let factor = factor.float();
        zip(left, right, output, |left, right| left + factor * right);
    } else {
        let (float, integer) = (factor.float(), factor.value::<i64>());
        let boolean = output.data_type == DataType::Bool;
        zip_either(
            left,
            right,
            output,
            |left, right| left + float * right,
            |left, right| {
                if boolean { left | (integer & right) } else { left.wrapping_add(integer.wrapping_mul(right)) }
            },
        );
    }
}

fn negated(factor: Scalar) -> Scalar {
    match factor {
        Scalar::Float(value) => Scalar::Float(-value),
        Scalar::Integer(value) => Scalar::Integer(-value),
    }
}

/// `output = left * right`.
pub fn multiply(left: &Operand, right: &Operand, output: &Tensor) {
    zip_either(left, right, output, |left, right| left * right, i64::wrapping_mul);
}

/// `output = left / right`, always with a fraction.
pub fn divide(left: &Operand, right: &Operand, output: &Tensor) {
    zip(left, right, output, |left, right| left / right);
}

/// Division that rounds down: the exact remainder decides, not the rounded quotient.
fn floor_divide(left: f64, right: f64) -> f64 {
    if right == 0.0 {
        return left / right;
    }
    let rest = left % right;
    let below = if rest != 0.0 && (rest < 0.0) != (right < 0.0) { 1.0 } else { 0.0 };
    let quotient = ((left - rest) / right - below).round();
    if quotient == 0.0 { (left / right).signum() * 0.0 } else { quotient }
}

/// Remainder with the sign of the divisor.
fn remainder(left: f64, right: f64) -> f64 {
    let rest = left % right;
    if rest != 0.0 && (rest < 0.0) != (right < 0.0) { rest + right } else { rest }
}

fn integer_remainder(left: i64, right: i64) -> i64 {
    if right == 0 {
        return 0;
    }
    let rest = left.wrapping_rem(right);
    if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest }
}

fn integer_floor_divide(left: i64, right: i64) -> i64 {
    if right == 0 { 0 } else { (left - integer_remainder(left, right)).wrapping_div(right) }
}

/// The type in which operands are divided.
fn division_type(left: &Operand, right: &Operand) -> Option<DataType> {
    common_type(left, right).map(DataType::computation_type)
}

/// Division with a rounding mode: 0 none, 1 towards zero, 2 down.
fn divide_mode(left: &Operand, right: &Operand, mode: i32, output: &Tensor) {
    match mode {
        1 => {
            let data_type = division_type(left, right);
            zip_rounded(
                left,
                right,
                data_type,
                output,
                |left, right| data_type.map_or(left, |data_type| data_type.rounded(left / right)).trunc(),
                |left, right| {
                    if right == 0 { 0 } else { left.wrapping_div(right) }
                },
            );
        }
        2 => zip_rounded(left, right, division_type(left, right), output, floor_divide, integer_floor_divide),
        _ => divide(left, right, output),
    }
}

fn integer_power(base: i64, exponent: i64) -> i64 {
    match u32::try_from(exponent) {
        Ok(exponent) => base.wrapping_pow(exponent),
        Err(_) if base == 1 => 1,
        Err(_) if base == -1 => {
            if exponent % 2 == 0 {
                1
            } else {
                -1
            }
        }
        Err(_) => 0,
    }
}

/// `output = base ^ exponent`. One half as the exponent of all elements means the root, which differs for what is
/// infinite.
pub fn power(base: &Operand, exponent: &Operand, output: &Tensor) {
    let float = match exponent {
        Operand::Scalar(Scalar::Float(0.5)) => |base: f64, _: f64| base.sqrt(),
        Operand::Scalar(Scalar::Float(-0.5)) => |base: f64, _: f64| 1.0 / base.sqrt(),
        _ => f64::powf,
    };
    zip_either(base, exponent, output, float, integer_power);
}

/// Functions of two tensors; the second list of each is the in-place variant's name.
macro_rules! of_two_tensors {
    ($($name:ident($function:path);)*) => {
        operators! { $($name(left: Tensor, right: Tensor, output: Tensor) => $function(&left.into(), &right.into(), &output);)* }
    };
}

macro_rules! of_tensor_and_scalar {
    ($($name:ident($function:path);)*) => {
        operators! { $($name(left: Tensor, right: Scalar, output: Tensor) => $function(&left.into(), &right.into(), &output);)* }
    };
}

macro_rules! in_place_with_tensor {
    ($($name:ident($function:path);)*) => {
        operators! { $($name(target: Tensor, right: Tensor) => $function(&target.clone().into(), &right.into(), &target);)* }
    };
}

macro_rules! in_place_with_scalar {
    ($($name:ident($function:path);)*) => {
        operators! { $($name(target: Tensor, right: Scalar) => $function(&target.clone().into(), &right.into(), &target);)* }
    };
}

fn floor_divide_operands(left: &Operand, right: &Operand, output: &Tensor) {
    zip_rounded(left, right, division_type(left, right), output, floor_divide, integer_floor_divide);
}

fn remainder_operands(left: &Operand, right: &Operand, output: &Tensor) {
    zip_rounded(left, right, common_type(left, right), output, remainder, integer_remainder);
}

fn fmod_operands(left: &Operand, right: &Operand, output: &Tensor) {
    zip_rounded(
        left,
        right,
        common_type(left, right),
        output,
        |left, right| left % right,
        |left, right| {
            if right == 0 { 0 } else { left.wrapping_rem(right) }
        },
    );
}

/// The larger of two operands.
pub fn maximum(left: &Operand, right: &Operand, output: &Tensor) {
    zip_either(left, right, output, larger, i64::max);
}

/// The smaller of two operands.
pub fn minimum(left: &Operand, right: &Operand, output: &Tensor) {
    zip_either(left, right, output, smaller, i64::min);
}

fn arc_tangent(left: &Operand, right: &Operand, output: &Tensor) {
    zip(left, right, output, f64::atan2);
}

fn bitwise_and(left: &Operand, right: &Operand, output: &Tensor) {
    zip_either(left, right, output, |left, _| left, |left, right| left & right);
}

fn bitwise_or(left: &Operand, right: &Operand, output: &Tensor) {
    zip_either(left, right, output, |left, _| left, |left, right| left | right);
}

fn bitwise_xor(left: &Operand, right: &Operand, output: &Tensor) {
    zip_either(left, right, output, |left, _| left, |left, right| left ^ right);
}

fn left_shift(left: &Operand, right: &Operand, output: &Tensor) {
    let shift = |left: i64, right: i64| if (0..64).contains(&right) { left.wrapping_shl(right as u32) } else { 0 };
    zip_either(left, right, output, |left, _| left, shift);
}

fn right_shift(left: &Operand, right: &Operand, output: &Tensor) {
    zip_either(left, right, output, |left, _| left, |left, right| left >> right.clamp(0, 63));
}

/// `left * ln(right)`, zero where `left` is.
fn times_logarithm(left: &Operand, right: &Operand, output: &Tensor) {
    zip(left, right, output, |left, right| if left == 0.0 && !right.is_nan() { 0.0 } else { left * right.ln() });
}

fn greatest_common_divisor(left: &Operand, right: &Operand, output: &Tensor) {
    let divisor = |mut left: i64, mut right: i64| {
        while right != 0 {
            (left, right) = (right, left.wrapping_rem(right));
        }
        left.wrapping_abs()
    };
    zip_either(left, right, output, |left, right| divisor(left as i64, right as i64) as f64, divisor);
}

/// The logarithm (with this base) of the sum of two powers.
fn logarithm_of_sum(left: &Operand, right: &Operand, base: f64, output: &Tensor) {
    zip(left, right, output, |left, right| {
        let (largest, smallest) = (larger(left, right), smaller(left, right));
        if largest.is_infinite() { largest } else { largest + base.powf(smallest - largest).ln_1p() / base.ln() }
    });
}

fn logarithm_of_exponentials(left: &Operand, right: &Operand, output: &Tensor) {
    logarithm_of_sum(left, right, std::f64::consts::E, output);
}

fn logarithm_of_powers_of_two(left: &Operand, right: &Operand, output: &Tensor) {
    logarithm_of_sum(left, right, 2.0, output);
}

of_two_tensors! {
    aclnnGcd(greatest_common_divisor);
    aclnnLogAddExp(logarithm_of_exponentials);
    aclnnLogAddExp2(logarithm_of_powers_of_two);
    aclnnMul(multiply);
    aclnnDiv(divide);
    aclnnMaximum(maximum);
    aclnnMinimum(minimum);
    aclnnPowTensorTensor(power);
    aclnnFloorDivide(floor_divide_operands);
    aclnnRemainderTensorTensor(remainder_operands);
    aclnnFmodTensor(fmod_operands);
    aclnnAtan2(arc_tangent);
    aclnnBitwiseAndTensor(bitwise_and);
    aclnnBitwiseOrTensor(bitwise_or);
    aclnnBitwiseXorTensor(bitwise_xor);
    aclnnClampMinTensor(maximum);
    aclnnClampMaxTensor(minimum);
    aclnnLeftShift(left_shift);
    aclnnRightShift(right_shift);
    aclnnXLogYTensor(times_logarithm);
}

of_tensor_and_scalar! {
    aclnnMuls(multiply);
    aclnnDivs(divide);
    aclnnPowTensorScalar(power);
    aclnnFloorDivides(floor_divide_operands);
    aclnnRemainderTensorScalar(remainder_operands);
    aclnnFmodScalar(fmod_operands);
    aclnnBitwiseAndScalar(bitwise_and);
    aclnnBitwiseOrScalar(bitwise_or);
    aclnnBitwiseXorScalar(bitwise_xor);
    aclnnLeftShifts(left_shift);
    aclnnXLogYScalarOther(times_logarithm);
}

in_place_with_tensor! {
    aclnnInplaceMul(multiply);
    aclnnInplaceDiv(divide);
    aclnnInplacePowTensorTensor(power);
    aclnnInplaceFloorDivide(floor_divide_operands);
    aclnnInplaceRemainderTensorTensor(remainder_operands);
    aclnnInplaceFmodTensor(fmod_operands);
    aclnnInplaceBitwiseAndTensor(bitwise_and);
    aclnnInplaceBitwiseXorTensor(bitwise_xor);
    aclnnInplaceClampMinTensor(maximum);
    aclnnInplaceClampMaxTensor(minimum);
}

in_place_with_scalar! {
    aclnnInplaceMuls(multiply);
    aclnnInplaceDivs(divide);
    aclnnInplacePowTensorScalar(power);
    aclnnInplaceFloorDivides(floor_divide_operands);
    aclnnInplaceRemainderTensorScalar(remainder_operands);
    aclnnInplaceFmodScalar(fmod_operands);
    aclnnInplaceBitwiseAndScalar(bitwise_and);
    aclnnInplaceBitwiseXorScalar(bitwise_xor);
}

operators! {
    aclnnAdd(left: Tensor, right: Tensor, factor: Scalar, output: Tensor) =>
        add(&left.into(), &right.into(), factor, &output);
    aclnnAdds(left: Tensor, right: Scalar, factor: Scalar, output: Tensor) =>
        add(&left.into(), &right.into(), factor, &output);
    aclnnAddV3(left: Scalar, right: Tensor, factor: Scalar, output: Tensor) =>
        add(&left.into(), &right.into(), factor, &output);
    aclnnInplaceAdd(target: Tensor, right: Tensor, factor: Scalar) =>
        add(&target.clone().into(), &right.into(), factor, &target);
    aclnnInplaceAdds(target: Tensor, right: Scalar, factor: Scalar) =>
        add(&target.clone().into(), &right.into(), factor, &target);
    aclnnSub(left: Tensor, right: Tensor, factor: Scalar, output: Tensor) =>
        add(&left.into(), &right.into(), negated(factor), &output);
    aclnnSubs(left: Tensor, right: Scalar, factor: Scalar, output: Tensor) =>
        add(&left.into(), &right.into(), negated(factor), &output);
    aclnnInplaceSub(target: Tensor, right: Tensor, factor: Scalar) =>
        add(&target.clone().into(), &right.into(), negated(factor), &target);
    aclnnInplaceSubs(target: Tensor, right: Scalar, factor: Scalar) =>
        add(&target.clone().into(), &right.into(), negated(factor), &target);
    aclnnRsub(left: Tensor, right: Tensor, factor: Scalar, output: Tensor) =>
        add(&right.into(), &left.into(), negated(factor), &output);
    aclnnRsubs(left: Tensor, right: Scalar, factor: Scalar, output: Tensor) =>
        add(&right.into(), &left.into(), negated(factor), &output);
    aclnnDivMod(left: Tensor, right: Tensor, mode: i32, output: Tensor) =>
        divide_mode(&left.into(), &right.into(), mode, &output);
    aclnnDivMods(left: Tensor, right: Scalar, mode: i32, output: Tensor) =>
        divide_mode(&left.into(), &right.into(), mode, &output);
    aclnnInplaceDivMod(target: Tensor, right: Tensor, mode: i32) =>
        divide_mode(&target.clone().into(), &right.into(), mode, &target);
    aclnnInplaceDivMods(target: Tensor, right: Scalar, mode: i32) =>
        divide_mode(&target.clone().into(), &right.into(), mode, &target);
    aclnnPowScalarTensor(base: Scalar, exponent: Tensor, output: Tensor) =>
        power(&base.into(), &exponent.into(), &output);
    aclnnRemainderScalarTensor(left: Scalar, right: Tensor, output: Tensor) =>
        remainder_operands(&left.into(), &right.into(), &output);
    aclnnXLogYScalarSelf(left: Scalar, right: Tensor, output: Tensor) =>
        times_logarithm(&left.into(), &right.into(), &output);
    aclnnClampTensor(input: Tensor, low: Option<Tensor>, high: Option<Tensor>, output: Tensor) => {
        let low = low.map_or(input.clone().into(), Operand::from);
        maximum(&input.into(), &low, &output);
        if let Some(high) = high {
            minimum(&output.clone().into(), &high.into(), &output)
        }
    };
    aclnnSWhere(condition: Tensor, left: Tensor, right: Tensor, output: Tensor) =>
        choose(&condition, &left.into(), &right.into(), &output);
    aclnnInplaceMaskedFillScalar(target: Tensor, mask: Tensor, value: Scalar) =>
        choose(&mask, &value.into(), &target.clone().into(), &target);
    aclnnInplaceMaskedFillTensor(target: Tensor, mask: Tensor, value: Tensor) =>
        choose(&mask, &value.into(), &target.clone().into(), &target);
    aclnnAddcmul(input: Tensor, left: Tensor, right: Tensor, value: Scalar, output: Tensor) =>
        add_product(&input, &left, &right, value, &output);
    aclnnInplaceAddcmul(target: Tensor, left: Tensor, right: Tensor, value: Scalar) =>
        add_product(&target.clone(), &left, &right, value, &target);
    aclnnAddcdiv(input: Tensor, left: Tensor, right: Tensor, value: Scalar, output: Tensor) =>
        add_quotient(&input, &left, &right, value, &output);
    aclnnInplaceAddcdiv(target: Tensor, left: Tensor, right: Tensor, value: Scalar) =>
        add_quotient(&target.clone(), &left, &right, value, &target);
    aclnnLerp(start: Tensor, end: Tensor, weight: Tensor, output: Tensor) =>
        between(&start, &end, &weight.into(), &output);
    aclnnLerps(start: Tensor, end: Tensor, weight: Scalar, output: Tensor) =>
        between(&start, &end, &weight.into(), &output);
    aclnnInplaceLerp(target: Tensor, end: Tensor, weight: Tensor) =>
        between(&target.clone(), &end, &weight.into(), &target);
    aclnnInplaceLerps(target: Tensor, end: Tensor, weight: Scalar) =>
        between(&target.clone(), &end, &weight.into(), &target);
}

/// `output = input + value * left * right`.
pub fn add_product(input: &Tensor, left: &Tensor, right: &Tensor, value: Scalar, output: &Tensor) {
    if let Scalar::Integer(value) = value
        && ![input, left, right].into_iter().any(Tensor::is_float)
    {
        let [input, left, right] = [input, left, right].map(|tensor| tensor.read_as::<i64>(&output.shape));
        let values = input.iter().zip(left.iter().zip(&right));
        let sum = |(input, (left, right)): (&i64, (&i64, &i64))| input.plus(value.times(*left).times(*right));
        return output.write(&values.map(sum).collect::<Vec<_>>());
    }
    let value = value.float();
    let operands = [input, left, right].map(|tensor| Operand::from(tensor.clone()));
    zip3(operands.each_ref(), output, |input, left, right| input + value * left * right);
}

/// `output = input + value * left / right`.
pub fn add_quotient(input: &Tensor, left: &Tensor, right: &Tensor, value: Scalar, output: &Tensor) {
    let value = value.float();
    let operands = [input, left, right].map(|tensor| Operand::from(tensor.clone()));
    zip3(operands.each_ref(), output, |input, left, right| input + value * left / right);
}

/// `output = start + weight * (end - start)`.
pub fn between(start: &Tensor, end: &Tensor, weight: &Operand, output: &Tensor) {
    let (start, end) = (Operand::from(start.clone()), Operand::from(end.clone()));
    zip3([&start, &end, weight], output, |start, end, weight| {
        if weight.abs() < 0.5 { start + weight * (end - start) } else { end - (end - start) * (1.0 - weight) }
    });
}
