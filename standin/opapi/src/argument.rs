//! How operators receive what callers pass: every argument is copied into a value of its own.

use crate::objects::{
    BoolArrayObject, FloatArrayObject, IntArrayObject, ScalarListObject, ScalarObject, TensorListObject, TensorObject,
    text_of,
};
use standin_compute::{DataType, Scalar, Tensor};
use std::ffi::c_char;

/// A type that operators take, and what callers pass for it.
pub trait Argument: Sized {
    /// The C type.
    type Raw;

    /// Copies the argument; `None` when it is missing, of a data type that is not computed, or asks for something that is not.
    ///
    /// # Safety
    /// `raw` is null or a valid object of this library.
    unsafe fn from_raw(raw: Self::Raw) -> Option<Self>;

    /// Bytes of its elements, if it is a tensor.
    fn tensor_bytes(&self) -> u64 {
        0
    }
}

/// An output whose size the operator decides. Its description is changed while the caller waits.
#[derive(Clone)]
pub struct Resizable {
    tensor: Tensor,
    object: *mut TensorObject,
}

// SAFETY: the caller waits for the operator and keeps the description alive meanwhile.
unsafe impl Send for Resizable {}

impl Resizable {
    /// Sets the size and returns the dense tensor of that size at the start of the output.
    pub fn resized(&self, shape: &[usize]) -> Tensor {
        assert!(shape.iter().product::<usize>() <= self.tensor.len(), "an output is larger than its memory");
        let strides = standin_compute::dense_strides(shape);
        // SAFETY: the description is alive while the caller waits, and nobody else uses it.
        unsafe { (*self.object).shape = shape.iter().map(|size| *size as i64).collect() };
        self.tensor.view(shape.to_vec(), strides)
    }

    /// Whether there is no room for any element.
    pub fn is_empty(&self) -> bool {
        self.tensor.is_empty()
    }
}

impl Argument for Resizable {
    type Raw = *mut TensorObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: passed on.
        unsafe { Tensor::from_raw(raw) }.map(|tensor| Self { tensor, object: raw })
    }
}

/// A tensor that must not be there: with it the operator does something else, which is not computed.
#[derive(Clone)]
pub struct Absent;

impl Argument for Absent {
    type Raw = *const TensorObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or valid by the contract of this function.
        let is_absent = unsafe { raw.as_ref() }.is_none_or(|object| object.shape.contains(&0));
        is_absent.then_some(Self)
    }
}

/// Plain numbers are passed as they are.
macro_rules! plain {
    ($($type:ty),*) => {
        $(
            impl Argument for $type {
                type Raw = $type;

                unsafe fn from_raw(raw: $type) -> Option<Self> {
                    Some(raw)
                }
            }
        )*
    };
}

plain!(bool, i8, i32, i64, u64, f32, f64);

impl Argument for Tensor {
    type Raw = *const TensorObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or valid by the contract of this function.
        let object = unsafe { raw.as_ref() }?;
        let shape = object.shape.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<_>>()?;
        let strides = object.strides.iter().map(|stride| *stride as isize).collect();
        let data_type = DataType::from_number(object.data_type)?;
        // SAFETY: callers keep the memory of operands alive until the stream has come past the operator.
        Some(unsafe { Self::new(object.data.cast(), data_type, shape, strides, object.offset as isize) })
    }

    fn tensor_bytes(&self) -> u64 {
        (self.len() * self.data_type.size_bytes()) as u64
    }
}

impl Argument for Scalar {
    type Raw = *const ScalarObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or valid by the contract of this function.
        let mut object = unsafe { *raw.as_ref()? };
        let data_type = DataType::from_number(object.data_type)?;
        // SAFETY: a view of the copy above, used before it goes away.
        let view = unsafe { Tensor::new(object.bytes.as_mut_ptr(), data_type, vec![], vec![], 0) };
        Some(if data_type.is_float() {
            Self::Float(view.read::<f64>()[0])
        } else {
            Self::Integer(view.read::<i64>()[0])
        })
    }
}

impl Argument for Vec<i64> {
    type Raw = *const IntArrayObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or valid by the contract of this function.
        unsafe { raw.as_ref() }.map(|array| array.0.clone())
    }
}

impl Argument for Vec<f32> {
    type Raw = *const FloatArrayObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or valid by the contract of this function.
        unsafe { raw.as_ref() }.map(|array| array.0.clone())
    }
}

impl Argument for Vec<bool> {
    type Raw = *const BoolArrayObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or valid by the contract of this function.
        unsafe { raw.as_ref() }.map(|array| array.0.clone())
    }
}

impl Argument for Vec<Tensor> {
    type Raw = *const TensorListObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or valid by the contract of this function, and so are the tensors.
        unsafe { raw.as_ref()?.0.iter().map(|tensor| Tensor::from_raw(*tensor)).collect() }
    }
}

impl Argument for Vec<Option<Tensor>> {
    type Raw = *const TensorListObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or valid by the contract of this function, and so are the tensors.
        unsafe { raw.as_ref()?.0.iter().map(|tensor| Option::<Tensor>::from_raw(*tensor)).collect() }
    }
}

impl Argument for Vec<Scalar> {
    type Raw = *const ScalarListObject;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or valid by the contract of this function, and so are the numbers.
        unsafe { raw.as_ref()?.0.iter().map(|scalar| Scalar::from_raw(*scalar)).collect() }
    }
}

impl Argument for String {
    type Raw = *const c_char;

    unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
        // SAFETY: null or terminated by the contract of this function.
        Some(unsafe { text_of(raw) })
    }
}

/// Pointers that may be null; a null pointer is `Some(None)`.
macro_rules! optional {
    ($($type:ty),*) => {
        $(
            impl Argument for Option<$type> {
                type Raw = <$type as Argument>::Raw;

                unsafe fn from_raw(raw: Self::Raw) -> Option<Self> {
                    if raw.is_null() {
                        return Some(None);
                    }
                    // SAFETY: passed on.
                    unsafe { <$type>::from_raw(raw) }.map(Some)
                }
            }
        )*
    };
}

optional!(Tensor, Scalar, Vec<i64>, Vec<bool>, Vec<Tensor>, Vec<Scalar>);
