//! Operands of operators launched by name: copies of what callers describe, because they destroy their descriptions
//! right after the launch.

use standin_compute::{DataType, Tensor, dense_strides};
use std::ffi::{CStr, c_char, c_void};

unsafe extern "C" {
    fn aclGetTensorDescType(description: *const c_void) -> i32;
    fn aclGetTensorDescNumDims(description: *const c_void) -> usize;
    fn aclGetTensorDescDimV2(description: *const c_void, index: usize, size: *mut i64) -> i32;
    fn aclGetDataBufferAddr(buffer: *const c_void) -> *mut c_void;
    fn standinAttributeFloat(attributes: *const c_void, name: *const c_char, value: *mut f32) -> i32;
}

/// What an operator computes with. An operand is missing where the caller has none, or one of a type that is not
/// computed.
pub struct Operands {
    inputs: Vec<Option<Tensor>>,
    outputs: Vec<Option<Tensor>>,
    /// The attribute `p`: the order of a distance.
    pub power: Option<f32>,
}

impl Operands {
    /// # Safety
    /// `attributes` is null or an attribute list that is alive.
    pub unsafe fn new(inputs: Vec<Option<Tensor>>, outputs: Vec<Option<Tensor>>, attributes: *const c_void) -> Self {
        const POWER: &CStr = c"p";
        let mut power = 0.0;
        // SAFETY: by the contract of this function; the value is ours.
        let found = unsafe { standinAttributeFloat(attributes, POWER.as_ptr(), &raw mut power) } == 0;
        Self { inputs, outputs, power: found.then_some(power) }
    }

    /// An input, if it is there.
    pub fn input(&self, index: usize) -> Option<&Tensor> {
        self.inputs.get(index)?.as_ref()
    }

    /// An output, if it is there.
    pub fn output(&self, index: usize) -> Option<&Tensor> {
        self.outputs.get(index)?.as_ref()
    }
}

/// Dense tensors as described.
///
/// # Safety
/// Both lists have `count` entries, each null or alive.
pub unsafe fn all(
    count: i32,
    descriptions: *const *const c_void,
    buffers: *const *const c_void,
) -> Vec<Option<Tensor>> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: by the contract of this function.
    (0..count).map(|index| unsafe { one(*descriptions.add(index), *buffers.add(index)) }).collect()
}

unsafe fn one(description: *const c_void, buffer: *const c_void) -> Option<Tensor> {
    // SAFETY: both are null or alive; callers keep the memory of operands until the stream has come past the operator.
    unsafe {
        let data_type = DataType::from_number(aclGetTensorDescType(description))?;
        let data = aclGetDataBufferAddr(buffer);
        let mut shape = Vec::new();
        for index in 0..aclGetTensorDescNumDims(description) {
            let mut size = 0;
            aclGetTensorDescDimV2(description, index, &raw mut size);
            shape.push(usize::try_from(size).ok()?);
        }
        let strides = dense_strides(&shape);
        (!data.is_null()).then(|| Tensor::new(data.cast(), data_type, shape, strides, 0))
    }
}
