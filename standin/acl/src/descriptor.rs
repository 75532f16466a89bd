//! Descriptions of tensors and buffers, which programs make for operators launched by name.

use crate::error::INVALID_PARAMETER;
use std::ffi::{c_char, c_void};

/// `aclDataBuffer`.
struct DataBuffer {
    data: *mut c_void,
    size: usize,
}

/// `aclTensorDesc`.
struct TensorDescription {
    data_type: i32,
    format: i32,
    dimensions: Vec<i64>,
    is_on_host: bool,
}

/// Gives an object to the program.
fn hand_out<T>(value: T) -> *mut c_void {
    Box::into_raw(Box::new(value)).cast()
}

/// Takes an object back from the program.
unsafe fn take_back<T>(pointer: *const c_void) -> i32 {
    if !pointer.is_null() {
        // SAFETY: the program gives back what `hand_out` made, once.
        drop(unsafe { Box::from_raw(pointer.cast_mut().cast::<T>()) });
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn aclCreateDataBuffer(data: *mut c_void, size: usize) -> *mut c_void {
    hand_out(DataBuffer { data, size })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclDestroyDataBuffer(buffer: *const c_void) -> i32 {
    // SAFETY: a buffer made above, by the contract of the C function.
    unsafe { take_back::<DataBuffer>(buffer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetDataBufferAddr(buffer: *const c_void) -> *mut c_void {
    // SAFETY: null or a buffer made above, by the contract of the C function.
    unsafe { buffer.cast::<DataBuffer>().as_ref() }.map_or(std::ptr::null_mut(), |buffer| buffer.data)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetDataBufferSizeV2(buffer: *const c_void) -> usize {
    // SAFETY: null or a buffer made above, by the contract of the C function.
    unsafe { buffer.cast::<DataBuffer>().as_ref() }.map_or(0, |buffer| buffer.size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclCreateTensorDesc(
    data_type: i32,
    count: i32,
    dimensions: *const i64,
    format: i32,
) -> *mut c_void {
    let count = usize::try_from(count).unwrap_or(0);
    let dimensions = if count == 0 || dimensions.is_null() {
        Vec::new()
    } else {
        // SAFETY: `count` dimensions are readable by the contract of the C function.
        unsafe { std::slice::from_raw_parts(dimensions, count) }.to_vec()
    };
    hand_out(TensorDescription { data_type, format, dimensions, is_on_host: false })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclDestroyTensorDesc(description: *const c_void) {
    // SAFETY: a description made above, by the contract of the C function.
    unsafe { take_back::<TensorDescription>(description) };
}

unsafe fn described<'a>(description: *const c_void) -> Option<&'a TensorDescription> {
    // SAFETY: null or a description made above, by the contract of the C functions.
    unsafe { description.cast::<TensorDescription>().as_ref() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetTensorDescType(description: *const c_void) -> i32 {
    // SAFETY: as for the function called.
    unsafe { described(description) }.map_or(-1, |description| description.data_type)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetTensorDescFormat(description: *const c_void) -> i32 {
    // SAFETY: as for the function called.
    unsafe { described(description) }.map_or(-1, |description| description.format)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetTensorDescNumDims(description: *const c_void) -> usize {
    // SAFETY: as for the function called.
    unsafe { described(description) }.map_or(0, |description| description.dimensions.len())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetTensorDescDimV2(description: *const c_void, index: usize, size: *mut i64) -> i32 {
    // SAFETY: as for the function called.
    let dimension = unsafe { described(description) }.and_then(|description| description.dimensions.get(index));
    match dimension {
        Some(dimension) if !size.is_null() => {
            // SAFETY: checked; writable by the contract of the C function.
            unsafe { size.write(*dimension) };
            0
        }
        _ => INVALID_PARAMETER,
    }
}

#[unsafe(no_mangle)]
extern "C" fn aclSetTensorDescName(_description: *mut c_void, _name: *const c_char) {}

#[unsafe(no_mangle)]
extern "C" fn aclSetTensorFormat(_description: *mut c_void, _format: i32) -> i32 {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclSetTensorPlaceMent(description: *mut c_void, memory_type: i32) -> i32 {
    /// `ACL_MEMTYPE_DEVICE`; all others are kinds of host memory.
    const DEVICE: i32 = 0;
    // SAFETY: null or a description made above that one thread uses, by the contract of the C function.
    match unsafe { description.cast::<TensorDescription>().as_mut() } {
        Some(description) => {
            description.is_on_host = memory_type != DEVICE;
            0
        }
        None => INVALID_PARAMETER,
    }
}

/// Tells the operator library whether a tensor is in memory of the host, which the program may reuse after the launch.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinTensorIsOnHost(description: *const c_void) -> bool {
    // SAFETY: as for the function called.
    unsafe { described(description) }.is_some_and(|description| description.is_on_host)
}

#[unsafe(no_mangle)]
extern "C" fn aclSetTensorShape(_description: *mut c_void, _count: i32, _dimensions: *const i64) -> i32 {
    0
}
