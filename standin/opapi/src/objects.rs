//! Descriptions of operands that callers create: tensors, numbers, arrays and lists.

use std::ffi::{c_char, c_void};

/// `aclTensor`.
#[derive(Clone, Debug)]
pub struct TensorObject {
    /// Start of the storage.
    pub data: *mut c_void,
    /// `aclDataType`.
    pub data_type: i32,
    /// Size of each dimension.
    pub shape: Vec<i64>,
    /// Distance of neighbours in each dimension, in elements.
    pub strides: Vec<i64>,
    /// First element, counted from the start of the storage.
    pub offset: i64,
}

/// `aclScalar`.
#[derive(Clone, Copy, Debug)]
pub struct ScalarObject {
    /// `aclDataType`.
    pub data_type: i32,
    /// The number's bytes, as many as the type has.
    pub bytes: [u8; 16],
}

/// `aclTensorList`: owns its tensors, as the creators expect.
pub struct TensorListObject(pub Vec<*mut TensorObject>);
/// `aclScalarList`: owns its numbers.
pub struct ScalarListObject(pub Vec<*mut ScalarObject>);
/// `aclIntArray`.
pub struct IntArrayObject(pub Vec<i64>);
/// `aclFloatArray`.
pub struct FloatArrayObject(pub Vec<f32>);
/// `aclBoolArray`.
pub struct BoolArrayObject(pub Vec<bool>);

/// Size of a number of this `aclDataType`.
fn scalar_bytes(data_type: i32) -> usize {
    match data_type {
        0 | 3 | 8 | 33 => 4,
        1 | 6 | 7 | 27 => 2,
        9..=11 | 16 => 8,
        17 => 16,
        _ => 1,
    }
}

/// Gives an object to the caller.
fn hand_out<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes an object back from the caller.
unsafe fn take_back<T>(pointer: *const T) -> i32 {
    if !pointer.is_null() {
        // SAFETY: the caller gives back what `hand_out` made, once.
        drop(unsafe { Box::from_raw(pointer.cast_mut()) });
    }
    0
}

/// Copies an array of the caller.
unsafe fn copy_array<T: Copy>(values: *const T, count: u64) -> Vec<T> {
    if values.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller promises `count` readable elements.
    unsafe { std::slice::from_raw_parts(values, count as usize) }.to_vec()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclCreateTensor(
    dimensions: *const i64,
    dimension_count: u64,
    data_type: i32,
    strides: *const i64,
    offset: i64,
    _format: i32,
    _storage_dimensions: *const i64,
    _storage_dimension_count: u64,
    data: *mut c_void,
) -> *mut TensorObject {
    // SAFETY: both arrays have `dimension_count` elements by the contract of the C function.
    let (shape, mut strides) =
        unsafe { (copy_array(dimensions, dimension_count), copy_array(strides, dimension_count)) };
    if strides.len() != shape.len() {
        strides = vec![1; shape.len()];
        for index in (1..shape.len()).rev() {
            strides[index - 1] = strides[index] * shape[index].max(1);
        }
    }
    hand_out(TensorObject { data, data_type, shape, strides, offset })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclDestroyTensor(tensor: *const TensorObject) -> i32 {
    // SAFETY: made by `aclCreateTensor`, by the contract of the C function.
    unsafe { take_back(tensor) }
}

/// Shape of a tensor; the array belongs to the caller afterwards, who frees it with `delete[]`.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetViewShape(
    tensor: *const TensorObject,
    dimensions: *mut *mut i64,
    dimension_count: *mut u64,
) -> i32 {
    unsafe extern "C" {
        fn malloc(size: usize) -> *mut c_void;
    }
    const INVALID_PARAMETER: i32 = 161_001;
    // SAFETY: null or made by `aclCreateTensor`, by the contract of the C function.
    let Some(tensor) = (unsafe { tensor.as_ref() }) else { return INVALID_PARAMETER };
    if dimensions.is_null() || dimension_count.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: the array has room for all dimensions; the caller's pointers were checked. The C++ library's `delete[]`
    // of plain numbers is `free`.
    unsafe {
        let array = malloc(tensor.shape.len().max(1) * size_of::<i64>()).cast::<i64>();
        if array.is_null() {
            return INVALID_PARAMETER;
        }
        array.copy_from_nonoverlapping(tensor.shape.as_ptr(), tensor.shape.len());
        dimensions.write(array);
        dimension_count.write(tensor.shape.len() as u64);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclCreateScalar(value: *const c_void, data_type: i32) -> *mut ScalarObject {
    let mut bytes = [0; 16];
    if !value.is_null() {
        // SAFETY: the caller promises a number of this type.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(value.cast(), scalar_bytes(data_type)) };
    }
    hand_out(ScalarObject { data_type, bytes })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclDestroyScalar(scalar: *const ScalarObject) -> i32 {
    // SAFETY: made by `aclCreateScalar`, by the contract of the C function.
    unsafe { take_back(scalar) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclCreateIntArray(values: *const i64, count: u64) -> *mut IntArrayObject {
    // SAFETY: `count` elements by the contract of the C function.
    hand_out(IntArrayObject(unsafe { copy_array(values, count) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclDestroyIntArray(array: *const IntArrayObject) -> i32 {
    // SAFETY: made by `aclCreateIntArray`, by the contract of the C function.
    unsafe { take_back(array) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclCreateFloatArray(values: *const f32, count: u64) -> *mut FloatArrayObject {
    // SAFETY: `count` elements by the contract of the C function.
    hand_out(FloatArrayObject(unsafe { copy_array(values, count) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclDestroyFloatArray(array: *const FloatArrayObject) -> i32 {
    // SAFETY: made by `aclCreateFloatArray`, by the contract of the C function.
    unsafe { take_back(array) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclCreateBoolArray(values: *const u8, count: u64) -> *mut BoolArrayObject {
    // SAFETY: `count` elements by the contract of the C function.
    let bytes = unsafe { copy_array(values, count) };
    hand_out(BoolArrayObject(bytes.into_iter().map(|byte| byte != 0).collect()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclDestroyBoolArray(array: *const BoolArrayObject) -> i32 {
    // SAFETY: made by `aclCreateBoolArray`, by the contract of the C function.
    unsafe { take_back(array) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclCreateTensorList(tensors: *const *mut TensorObject, count: u64) -> *mut TensorListObject {
    // SAFETY: `count` tensors by the contract of the C function.
    hand_out(TensorListObject(unsafe { copy_array(tensors, count) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclDestroyTensorList(list: *const TensorListObject) -> i32 {
    // SAFETY: list and tensors were made here, by the contract of the C function.
    unsafe {
        if let Some(list) = list.as_ref() {
            list.0.iter().for_each(|tensor| {
                take_back(*tensor);
            });
        }
        take_back(list)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclCreateScalarList(scalars: *const *mut ScalarObject, count: u64) -> *mut ScalarListObject {
    // SAFETY: `count` numbers by the contract of the C function.
    hand_out(ScalarListObject(unsafe { copy_array(scalars, count) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclDestroyScalarList(list: *const ScalarListObject) -> i32 {
    // SAFETY: list and numbers were made here, by the contract of the C function.
    unsafe {
        if let Some(list) = list.as_ref() {
            list.0.iter().for_each(|scalar| {
                take_back(*scalar);
            });
        }
        take_back(list)
    }
}

/// Text of a caller; empty when null.
pub unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: terminated by the contract of the C functions.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
