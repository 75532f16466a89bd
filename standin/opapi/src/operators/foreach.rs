//! Operators on lists of tensors.

use crate::macros::operators;
use crate::operators::arithmetic::{
    add, add_product, add_quotient, between, divide, maximum, minimum, multiply, power,
};
use crate::operators::unary::sign;
use standin_compute::elementwise::{Operand, copy, erf, map, map_either};
use standin_compute::reduction::{norm, reduce};
use standin_compute::{Scalar, Tensor};

type Binary = fn(&Operand, &Operand, &Tensor);

fn operand(tensor: &Tensor) -> Operand {
    Operand::from(tensor.clone())
}

fn with_list(left: &[Tensor], right: &[Tensor], output: &[Tensor], function: Binary) {
    for ((left, right), output) in left.iter().zip(right).zip(output) {
        function(&operand(left), &operand(right), output);
    }
}

fn with_scalar(left: &[Tensor], right: Scalar, output: &[Tensor], function: Binary) {
    for (left, output) in left.iter().zip(output) {
        function(&operand(left), &right.into(), output);
    }
}

fn with_scalars(left: &[Tensor], right: &[Scalar], output: &[Tensor], function: Binary) {
    for ((left, right), output) in left.iter().zip(right).zip(output) {
        function(&operand(left), &Operand::Scalar(*right), output);
    }
}

fn sum(left: &Operand, right: &Operand, output: &Tensor) {
    add(left, right, Scalar::Integer(1), output);
}

fn difference(left: &Operand, right: &Operand, output: &Tensor) {
    add(left, right, Scalar::Integer(-1), output);
}

/// `left + factor * right` for every pair.
fn add_lists(left: &[Tensor], right: &[Tensor], factor: Scalar, output: &[Tensor]) {
    for ((left, right), output) in left.iter().zip(right).zip(output) {
        add(&operand(left), &operand(right), factor, output);
    }
}

fn negated(factor: Scalar) -> Scalar {
    match factor {
        Scalar::Float(value) => Scalar::Float(-value),
        Scalar::Integer(value) => Scalar::Integer(-value),
    }
}

type Ternary = fn(&Tensor, &Tensor, &Tensor, Scalar, &Tensor);

/// `function(input, left, right, value)` for every entry; one value for all, or one each.
fn pointwise(lists: [&[Tensor]; 3], values: &[Scalar], output: &[Tensor], function: Ternary) {
    for (index, output) in output.iter().enumerate() {
        let value = *values.get(index).unwrap_or(&values[0]);
        function(&lists[0][index], &lists[1][index], &lists[2][index], value, output);
    }
}

/// The numbers in a tensor.
fn numbers(tensor: &Tensor) -> Vec<Scalar> {
    tensor.read::<f64>().into_iter().map(Scalar::Float).collect()
}

/// Functions of each tensor of a list.
macro_rules! functions {
    ($($name:ident($function:expr);)*) => {
        operators! {
            $($name(input: Vec<Tensor>, output: Vec<Tensor>) =>
                input.iter().zip(&output).for_each(|(input, output)| map(input, output, $function));)*
        }
    };
}

functions! {
    aclnnForeachSqrt(f64::sqrt);
    aclnnForeachExp(f64::exp);
    aclnnForeachExpm1(f64::exp_m1);
    aclnnForeachLog(f64::ln);
    aclnnForeachLog2(f64::log2);
    aclnnForeachLog10(f64::log10);
    aclnnForeachLog1p(f64::ln_1p);
    aclnnForeachReciprocal(|value: f64| 1.0 / value);
    aclnnForeachSigmoid(|value: f64| 1.0 / (1.0 + (-value).exp()));
    aclnnForeachTanh(f64::tanh);
    aclnnForeachSin(f64::sin);
    aclnnForeachCos(f64::cos);
    aclnnForeachTan(f64::tan);
    aclnnForeachErf(erf);
    aclnnForeachSign(sign);
}

/// Functions of two lists, of a list and one number, and of a list and numbers.
macro_rules! binary {
    ($($list:ident $scalar:ident $scalars:ident $function:path;)*) => {
        operators! {
            $(
                $list(left: Vec<Tensor>, right: Vec<Tensor>, output: Vec<Tensor>) =>
                    with_list(&left, &right, &output, $function);
                $scalar(left: Vec<Tensor>, right: Scalar, output: Vec<Tensor>) =>
                    with_scalar(&left, right, &output, $function);
                $scalars(left: Vec<Tensor>, right: Vec<Scalar>, output: Vec<Tensor>) =>
                    with_scalars(&left, &right, &output, $function);
            )*
        }
    };
}

binary! {
    aclnnForeachMulList aclnnForeachMulScalarV2 aclnnForeachMulScalarList multiply;
    aclnnForeachDivList aclnnForeachDivScalarV2 aclnnForeachDivScalarList divide;
    aclnnForeachMaximumList aclnnForeachMaximumScalarV2 aclnnForeachMaximumScalarList maximum;
    aclnnForeachMinimumList aclnnForeachMinimumScalarV2 aclnnForeachMinimumScalarList minimum;
    aclnnForeachPowList aclnnForeachPowScalarV2 aclnnForeachPowScalarList power;
}

operators! {
    aclnnForeachAbs(input: Vec<Tensor>, output: Vec<Tensor>) => input.iter().zip(&output).for_each(|(input, output)| {
        map_either(input, output, f64::abs, i64::wrapping_abs);
    });
    aclnnForeachNeg(input: Vec<Tensor>, output: Vec<Tensor>) => input.iter().zip(&output).for_each(|(input, output)| {
        map_either(input, output, |value| -value, i64::wrapping_neg);
    });
    aclnnForeachAddListV2(left: Vec<Tensor>, right: Vec<Tensor>, factor: Scalar, output: Vec<Tensor>) =>
        add_lists(&left, &right, factor, &output);
    aclnnForeachAddScalarV2(left: Vec<Tensor>, right: Scalar, output: Vec<Tensor>) =>
        with_scalar(&left, right, &output, sum);
    aclnnForeachAddScalarList(left: Vec<Tensor>, right: Vec<Scalar>, output: Vec<Tensor>) =>
        with_scalars(&left, &right, &output, sum);
    aclnnForeachSubListV2(left: Vec<Tensor>, right: Vec<Tensor>, factor: Scalar, output: Vec<Tensor>) =>
        add_lists(&left, &right, negated(factor), &output);
    aclnnForeachSubScalarV2(left: Vec<Tensor>, right: Scalar, output: Vec<Tensor>) =>
        with_scalar(&left, right, &output, difference);
    aclnnForeachSubScalarList(left: Vec<Tensor>, right: Vec<Scalar>, output: Vec<Tensor>) =>
        with_scalars(&left, &right, &output, difference);
    aclnnForeachPowScalarAndTensor(base: Scalar, exponents: Vec<Tensor>, output: Vec<Tensor>) =>
        exponents.iter().zip(&output).for_each(|(exponent, output)| power(&base.into(), &operand(exponent), output));
    aclnnForeachAddcmulScalarV2(
        input: Vec<Tensor>, left: Vec<Tensor>, right: Vec<Tensor>, value: Scalar, output: Vec<Tensor>,
    ) => pointwise([&input, &left, &right], &[value], &output, add_product);
    aclnnForeachAddcdivScalarV2(
        input: Vec<Tensor>, left: Vec<Tensor>, right: Vec<Tensor>, value: Scalar, output: Vec<Tensor>,
    ) => pointwise([&input, &left, &right], &[value], &output, add_quotient);
    aclnnForeachAddcmulScalarList(
        input: Vec<Tensor>, left: Vec<Tensor>, right: Vec<Tensor>, values: Tensor, output: Vec<Tensor>,
    ) => pointwise([&input, &left, &right], &numbers(&values), &output, add_product);
    aclnnForeachAddcdivScalarList(
        input: Vec<Tensor>, left: Vec<Tensor>, right: Vec<Tensor>, values: Tensor, output: Vec<Tensor>,
    ) => pointwise([&input, &left, &right], &numbers(&values), &output, add_quotient);
    aclnnForeachLerpScalar(start: Vec<Tensor>, end: Vec<Tensor>, weight: Scalar, output: Vec<Tensor>) =>
        start.iter().zip(&end).zip(&output).for_each(|((start, end), output)| {
            between(start, end, &weight.into(), output);
        });
    aclnnForeachLerpList(start: Vec<Tensor>, end: Vec<Tensor>, weight: Vec<Tensor>, output: Vec<Tensor>) =>
        for (index, output) in output.iter().enumerate() {
            between(&start[index], &end[index], &operand(&weight[index]), output);
        };
    aclnnForeachNorm(input: Vec<Tensor>, order: Scalar, output: Vec<Tensor>) =>
        input.iter().zip(&output).for_each(|(input, output)| {
            reduce(input, &[], output, |group| norm(group, order.float()));
        });
    aclnnForeachCopy(source: Vec<Tensor>, target: Vec<Tensor>) =>
        source.iter().zip(&target).for_each(|(source, target)| copy(source, target));
    aclnnForeachZeroInplace(target: Vec<Tensor>) =>
        target.iter().for_each(|target| target.fill(Scalar::Integer(0)));
}
