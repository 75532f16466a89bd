//! Operands of operators launched by name: copies of what callers describe, because they destroy their descriptions
//! right after the launch.

use standin_compute::{DataType, Tensor, dense_strides};
use std::ffi::{CStr, c_char, c_void};

unsafe extern "C" {
    fn aclGetTensorDescType(description: *const c_void) -> i32;
    fn aclGetTensorDescNumDims(description: *const c_void) -> usize;
    fn aclGetTensorDescDimV2(description: *const c_void, index: usize, size: *mut i64) -> i32;
    fn aclGetDataBufferAddr(buffer: *const c_void) -> *mut c_void;
    fn standinTensorIsOnHost(description: *const c_void) -> bool;
    fn standinAttributeFloat(attributes: *const c_void, name: *const c_char, value: *mut f32) -> i32;
}

/// An operand.
pub enum Operand {
    /// A tensor on the device.
    Tensor(Tensor),
    /// Whole numbers that were in memory of the host, such as a shape.
    Numbers(Vec<i64>),
}

/// What an operator computes with. An operand is missing where the caller has none, or one of a type that is not
/// computed.
pub struct Operands {
    inputs: Vec<Option<Operand>>,
    outputs: Vec<Option<Operand>>,
    /// The attribute `p`: the order of a distance.
    pub power: Option<f32>,
}

impl Operands {
    /// # Safety
    /// `attributes` is null or an attribute list that is alive.
    pub unsafe fn new(inputs: Vec<Option<Operand>>, outputs: Vec<Option<Operand>>, attributes: *const c_void) -> Self {
        const POWER: &CStr = c"p";
        let mut power = 0.0;
        // SAFETY: by the contract of this function; the value is ours.
        let found = unsafe { standinAttributeFloat(attributes, POWER.as_ptr(), &raw mut power) } == 0;
        Self { inputs, outputs, power: found.then_some(power) }
    }

    /// A tensor, if it is there.
    pub fn input(&self, index: usize) -> Option<&Tensor> {
        tensor(self.inputs.get(index)?.as_ref()?)
    }

    /// A shape or other list of numbers, if it is there.
    pub fn numbers(&self, index: usize) -> Option<Vec<i64>> {
        Some(match self.inputs.get(index)?.as_ref()? {
            Operand::Tensor(tensor) => tensor.read(),
            Operand::Numbers(numbers) => numbers.clone(),
        })
    }

    /// An output, if it is there.
    pub fn output(&self, index: usize) -> Option<&Tensor> {
        tensor(self.outputs.get(index)?.as_ref()?)
    }
}

fn tensor(operand: &Operand) -> Option<&Tensor> {
    match operand {
        Operand::Tensor(tensor) => Some(tensor),
        Operand::Numbers(_) => None,
    }
}

/// Operands as described, dense.
///
/// # Safety
/// Both lists have `count` entries, each null or alive.
pub unsafe fn all(
    count: i32,
    descriptions: *const *const c_void,
    buffers: *const *const c_void,
) -> Vec<Option<Operand>> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: by the contract of this function.
    (0..count).map(|index| unsafe { one(*descriptions.add(index), *buffers.add(index)) }).collect()
}

unsafe fn one(description: *const c_void, buffer: *const c_void) -> Option<Operand> {
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
        if data.is_null() {
            return None;
        }
        let tensor = Tensor::new(data.cast(), data_type, shape, strides, 0);
        Some(if standinTensorIsOnHost(description) { Operand::Numbers(tensor.read()) } else { Operand::Tensor(tensor) })
    }
}
