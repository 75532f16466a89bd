//! Operators that treat every element alike.

use crate::tensor::{DataType, Scalar, Tensor, Value};
use std::cmp::Ordering;

/// An operand that is a tensor or one number for all elements.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor, repeated to the shape of the output.
    Tensor(Tensor),
    /// One number.
    Scalar(Scalar),
}

impl From<Tensor> for Operand {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<Scalar> for Operand {
    fn from(scalar: Scalar) -> Self {
        Self::Scalar(scalar)
    }
}

impl Operand {
    /// Elements for an output of this shape.
    #[must_use]
    pub fn read<V: Value>(&self, shape: &[usize]) -> Vec<V> {
        match self {
            Self::Tensor(tensor) => tensor.read_as(shape),
            Self::Scalar(scalar) => vec![scalar.value(); shape.iter().product()],
        }
    }

    /// Whether elements have a fraction.
    #[must_use]
    pub fn is_float(&self) -> bool {
        match self {
            Self::Tensor(tensor) => tensor.is_float(),
            Self::Scalar(scalar) => scalar.is_float(),
        }
    }

    /// Elements for an output of this shape, as `data_type` can hold them.
    fn read_rounded(&self, shape: &[usize], data_type: DataType) -> Vec<f64> {
        match self {
            Self::Tensor(tensor) if tensor.data_type == data_type => tensor.read_as(shape),
            Self::Tensor(tensor) => {
                tensor.read_as::<f64>(shape).into_iter().map(|value| data_type.rounded(value)).collect()
            }
            Self::Scalar(scalar) => vec![data_type.rounded(scalar.float()); shape.iter().product()],
        }
    }

    /// Type of an operand with a fraction and how much it counts: tensors with dimensions more than those without, and
    /// these more than numbers.
    fn float_type(&self) -> Option<(u8, DataType)> {
        match self {
            Self::Tensor(tensor) => tensor.is_float().then_some((1 + u8::from(tensor.rank() > 0), tensor.data_type)),
            Self::Scalar(scalar) => scalar.is_float().then_some((0, DataType::Float32)),
        }
    }
}

/// The floating-point type in which two operands meet; `None` where both are whole numbers.
#[must_use]
pub fn common_type(left: &Operand, right: &Operand) -> Option<DataType> {
    let (left, right) = (left.float_type(), right.float_type());
    let ((left_rank, left), (right_rank, right)) = (left.or(right)?, right.or(left)?);
    Some(match left_rank.cmp(&right_rank) {
        Ordering::Greater => left,
        Ordering::Less => right,
        Ordering::Equal if left == right => left,
        Ordering::Equal if left == DataType::Float64 || right == DataType::Float64 => DataType::Float64,
        Ordering::Equal => DataType::Float32,
    })
}

/// `output = function(input)` on floating-point numbers.
pub fn map(input: &Tensor, output: &Tensor, function: impl Fn(f64) -> f64) {
    let values: Vec<f64> = input.read_as(&output.shape);
    output.write(&values.into_iter().map(function).collect::<Vec<_>>());
}

/// `output = function(input)`, on whole numbers where the input has no fraction.
pub fn map_either(input: &Tensor, output: &Tensor, float: impl Fn(f64) -> f64, integer: impl Fn(i64) -> i64) {
    if input.is_float() {
        map(input, output, float);
    } else {
        let values: Vec<i64> = input.read_as(&output.shape);
        output.write(&values.into_iter().map(integer).collect::<Vec<_>>());
    }
}

/// `output = function(left, right)` on floating-point numbers.
pub fn zip(left: &Operand, right: &Operand, output: &Tensor, function: impl Fn(f64, f64) -> f64) {
    let pairs = left.read(&output.shape).into_iter().zip(right.read(&output.shape));
    output.write(&pairs.map(|(left, right)| function(left, right)).collect::<Vec<f64>>());
}

/// `output = function(left, right)`, on whole numbers where no operand has a fraction.
pub fn zip_either(
    left: &Operand,
    right: &Operand,
    output: &Tensor,
    float: impl Fn(f64, f64) -> f64,
    integer: impl Fn(i64, i64) -> i64,
) {
    if left.is_float() || right.is_float() {
        zip(left, right, output, float);
    } else {
        let pairs = left.read(&output.shape).into_iter().zip(right.read(&output.shape));
        output.write(&pairs.map(|(left, right)| integer(left, right)).collect::<Vec<i64>>());
    }
}

/// Like [`zip_either`], with operands as `data_type` can hold them: for functions that jump.
pub fn zip_rounded(
    left: &Operand,
    right: &Operand,
    data_type: Option<DataType>,
    output: &Tensor,
    float: impl Fn(f64, f64) -> f64,
    integer: impl Fn(i64, i64) -> i64,
) {
    let Some(data_type) = data_type else {
        return zip_either(left, right, output, float, integer);
    };
    let read = |operand: &Operand| operand.read_rounded(&output.shape, data_type);
    let pairs = read(left).into_iter().zip(read(right));
    output.write(&pairs.map(|(left, right)| float(left, right)).collect::<Vec<f64>>());
}

/// `output = whether function(left, right)`.
pub fn compare(
    left: &Operand,
    right: &Operand,
    output: &Tensor,
    float: impl Fn(f64, f64) -> bool,
    integer: impl Fn(i64, i64) -> bool,
) {
    zip_rounded(
        left,
        right,
        common_type(left, right),
        output,
        |left, right| f64::from(u8::from(float(left, right))),
        |left, right| i64::from(integer(left, right)),
    );
}

/// `output = function(first, second, third)` on floating-point numbers.
pub fn zip3(operands: [&Operand; 3], output: &Tensor, function: impl Fn(f64, f64, f64) -> f64) {
    let [first, second, third] = operands.map(|operand| operand.read::<f64>(&output.shape));
    let values = first.iter().zip(&second).zip(&third);
    output.write(&values.map(|((first, second), third)| function(*first, *second, *third)).collect::<Vec<_>>());
}

/// `output = condition ? left : right`.
pub fn choose(condition: &Tensor, left: &Operand, right: &Operand, output: &Tensor) {
    let condition: Vec<i64> = condition.read_as(&output.shape);
    if output.is_float() {
        output.write(&chosen(&condition, &left.read::<f64>(&output.shape), &right.read(&output.shape)));
    } else {
        output.write(&chosen(&condition, &left.read::<i64>(&output.shape), &right.read(&output.shape)));
    }
}

fn chosen<V: Value>(condition: &[i64], left: &[V], right: &[V]) -> Vec<V> {
    let values = condition.iter().zip(left.iter().zip(right));
    values.map(|(condition, (left, right))| if *condition != 0 { *left } else { *right }).collect()
}

/// `output = input`, with the type of the output.
pub fn copy(input: &Tensor, output: &Tensor) {
    if input.is_float() {
        output.write(&input.read_as::<f64>(&output.shape));
    } else {
        output.write(&input.read_as::<i64>(&output.shape));
    }
}

/// The error function, to double precision (series near zero, continued fraction elsewhere).
#[must_use]
pub fn erf(x: f64) -> f64 {
    if x.abs() < 2.5 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            let part = term / f64::from(2 * n + 1);
            sum += part;
            if part.abs() < sum.abs() * 1e-17 {
                break;
            }
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else if x.is_nan() {
        x
    } else {
        let magnitude = x.abs();
        let mut fraction = 0.0;
        for n in (1..=60).rev() {
            fraction = f64::from(n) / 2.0 / (magnitude + fraction);
        }
        let complement = (-magnitude * magnitude).exp() / (magnitude + fraction) / std::f64::consts::PI.sqrt();
        x.signum() * (1.0 - complement)
    }
}

#[cfg(test)]
mod tests {
    use super::{Operand, choose, erf, zip_either};
    use crate::tensor::{DataType, Scalar, Tensor};

    #[test]
    fn the_error_function_is_exact() {
        for (x, expected) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.4, 0.999_311_486_103_354_9),
            (2.6, 0.999_763_965_583_470_6),
            (5.0, 0.999_999_999_998_462_5),
        ] {
            assert!((erf(x) - expected).abs() < 1e-14, "{x}");
            assert!((erf(-x) + expected).abs() < 1e-14, "-{x}");
        }
    }

    #[test]
    fn whole_numbers_stay_exact() {
        let mut large = [i64::MAX - 1];
        // SAFETY: one element.
        let tensor = unsafe { Tensor::new(large.as_mut_ptr().cast(), DataType::Int64, vec![1], vec![1], 0) };
        let operands = (Operand::from(tensor.clone()), Operand::from(Scalar::Integer(1)));
        zip_either(&operands.0, &operands.1, &tensor, |a, b| a + b, i64::wrapping_add);
        assert_eq!(large, [i64::MAX]);
    }

    #[test]
    fn a_choice_does_not_compute_with_what_it_drops() {
        let mut condition = [1.0, 0.0];
        let mut left = [1.0, f32::NAN];
        let mut output = [0.0; 2];
        let target = Tensor::dense(&mut output, &[2]);
        let condition = Tensor::dense(&mut condition, &[2]);
        choose(&condition, &Tensor::dense(&mut left, &[2]).into(), &Scalar::Float(5.0).into(), &target);
        assert_eq!(output, [1.0, 5.0]);
    }
}
