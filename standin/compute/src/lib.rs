//! Operators of the stand-in device, computed for real on strided tensors in host memory.
//!
//! Every operator reads its inputs into plain vectors (floating point as `f64`, integers and booleans as `i64`),
//! computes, and writes the result through the strides and the data type of the output. That is far from fast, but it
//! is short, and correct for every combination of shapes, strides and types.

pub mod convolution;
pub mod distance;
pub mod elementwise;
pub mod factorization;
pub mod indexing;
pub mod matrix;
pub mod normalization;
pub mod pooling;
pub mod random;
pub mod recurrent;
pub mod reduction;
pub mod resampling;
mod tensor;

pub use tensor::{DataType, Scalar, Tensor, Value, dense_strides};
