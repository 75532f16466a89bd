//! Comparisons and logic.

use crate::macros::operators;
use standin_compute::elementwise::{Operand, compare, map, zip};
use standin_compute::{Scalar, Tensor};

/// Comparison of the same kind on floating-point and on whole numbers.
macro_rules! comparisons {
    ($($tensor:ident $scalar:ident $tensor_in_place:ident $scalar_in_place:ident $operator:tt;)*) => {
        operators! {
            $(
                $tensor(left: Tensor, right: Tensor, output: Tensor) =>
                    compare(&left.into(), &right.into(), &output, |a, b| a $operator b, |a, b| a $operator b);
                $scalar(left: Tensor, right: Scalar, output: Tensor) =>
                    compare(&left.into(), &right.into(), &output, |a, b| a $operator b, |a, b| a $operator b);
                $tensor_in_place(target: Tensor, right: Tensor) =>
                    compare(&target.clone().into(), &right.into(), &target, |a, b| a $operator b, |a, b| a $operator b);
                $scalar_in_place(target: Tensor, right: Scalar) =>
                    compare(&target.clone().into(), &right.into(), &target, |a, b| a $operator b, |a, b| a $operator b);
            )*
        }
    };
}

comparisons! {
    aclnnEqTensor aclnnEqScalar aclnnInplaceEqTensor aclnnInplaceEqScalar ==;
    aclnnNeTensor aclnnNeScalar aclnnInplaceNeTensor aclnnInplaceNeScalar !=;
    aclnnLtTensor aclnnLtScalar aclnnInplaceLtTensor aclnnInplaceLtScalar <;
    aclnnLeTensor aclnnLeScalar aclnnInplaceLeTensor aclnnInplaceLeScalar <=;
    aclnnGtTensor aclnnGtScalar aclnnInplaceGtTensor aclnnInplaceGtScalar >;
    aclnnGeTensor aclnnGeScalar aclnnInplaceGeTensor aclnnInplaceGeScalar >=;
}

fn logic(left: &Operand, right: &Operand, output: &Tensor, function: impl Fn(bool, bool) -> bool) {
    zip(left, right, output, |left, right| f64::from(u8::from(function(left != 0.0, right != 0.0))));
}

/// Whether two tensors agree in shape and all elements.
fn all_equal(left: &Tensor, right: &Tensor) -> bool {
    left.shape == right.shape
        && if left.is_float() || right.is_float() {
            left.read::<f64>() == right.read::<f64>()
        } else {
            left.read::<i64>() == right.read::<i64>()
        }
}

fn is_close(left: f64, right: f64, relative: f64, absolute: f64, equal_nan: bool) -> bool {
    left == right
        || (left.is_finite() && right.is_finite() && (left - right).abs() <= absolute + relative * right.abs())
        || (equal_nan && left.is_nan() && right.is_nan())
}

operators! {
    aclnnLogicalAnd(left: Tensor, right: Tensor, output: Tensor) =>
        logic(&left.into(), &right.into(), &output, |a, b| a && b);
    aclnnLogicalOr(left: Tensor, right: Tensor, output: Tensor) =>
        logic(&left.into(), &right.into(), &output, |a, b| a || b);
    aclnnLogicalXor(left: Tensor, right: Tensor, output: Tensor) =>
        logic(&left.into(), &right.into(), &output, |a, b| a != b);
    aclnnInplaceLogicalAnd(target: Tensor, right: Tensor) =>
        logic(&target.clone().into(), &right.into(), &target, |a, b| a && b);
    aclnnInplaceLogicalOr(target: Tensor, right: Tensor) =>
        logic(&target.clone().into(), &right.into(), &target, |a, b| a || b);
    aclnnEqual(left: Tensor, right: Tensor, output: Tensor) =>
        map(&output.clone(), &output, |_| f64::from(u8::from(all_equal(&left, &right))));
    aclnnIsClose(left: Tensor, right: Tensor, relative: f64, absolute: f64, equal_nan: bool, output: Tensor) =>
        zip(&left.into(), &right.into(), &output, |left, right| {
            f64::from(u8::from(is_close(left, right, relative, absolute, equal_nan)))
        });
}
