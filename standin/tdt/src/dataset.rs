//! Tensors in host memory, and lists of them.

use crate::INVALID_PARAMETER;
use std::ffi::{CString, c_char, c_void};

/// `acltdtDataItem`. Its data belongs to the program, or to the item when it came out of a channel.
pub struct DataItem {
    tensor_type: i32,
    shape: Vec<i64>,
    data_type: i32,
    data: *mut c_void,
    size_bytes: usize,
    _owned: Box<[u8]>,
}

// SAFETY: an item that travels from thread to thread is one made by `copied`, whose data it owns.
unsafe impl Send for DataItem {}

impl DataItem {
    /// The same tensor with data of its own, as it lies in a channel.
    fn copied(&self) -> Self {
        let bytes: Box<[u8]> = if self.data.is_null() {
            Box::default()
        } else {
            // SAFETY: whoever made the item promised this many bytes, until the item is destroyed.
            unsafe { std::slice::from_raw_parts(self.data.cast::<u8>(), self.size_bytes) }.into()
        };
        let data = if self.data.is_null() { self.data } else { bytes.as_ptr().cast_mut().cast() };
        Self { shape: self.shape.clone(), data, _owned: bytes, ..*self }
    }
}

/// `acltdtDataset`: owns the items that it got from a channel, not those that the program has added, which may be gone
/// before the dataset is.
#[derive(Default)]
pub struct Dataset {
    items: Vec<*mut DataItem>,
    received: Vec<*mut DataItem>,
    name: CString,
}

impl Dataset {
    /// Copies of all tensors, for a channel.
    pub fn contents(&self) -> Vec<DataItem> {
        // SAFETY: items are valid as long as they are part of a dataset, by the contract of the C functions.
        self.items.iter().map(|&item| unsafe { (*item).copied() }).collect()
    }

    /// Takes tensors over from the channel of this name.
    pub fn receive(&mut self, items: Vec<DataItem>, channel: &CString) {
        for item in items.into_iter().map(|item| Box::into_raw(Box::new(item))) {
            self.items.push(item);
            self.received.push(item);
        }
        self.name.clone_from(channel);
    }
}

impl Drop for Dataset {
    fn drop(&mut self) {
        for &item in &self.received {
            // SAFETY: boxed by `receive`, and nobody else's.
            drop(unsafe { Box::from_raw(item) });
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtCreateDataItem(
    tensor_type: i32,
    dimensions: *const i64,
    dimension_count: usize,
    data_type: i32,
    data: *mut c_void,
    size_bytes: usize,
) -> *mut DataItem {
    if dimensions.is_null() && dimension_count > 0 {
        return std::ptr::null_mut();
    }
    let shape = if dimension_count == 0 {
        Vec::new()
    } else {
        // SAFETY: as many as the caller says.
        unsafe { std::slice::from_raw_parts(dimensions, dimension_count) }.to_vec()
    };
    Box::into_raw(Box::new(DataItem { tensor_type, shape, data_type, data, size_bytes, _owned: Box::default() }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtDestroyDataItem(item: *mut DataItem) -> i32 {
    if item.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: made by `acltdtCreateDataItem` and destroyed once, by the contract of the C function.
    drop(unsafe { Box::from_raw(item) });
    0
}

/// Defines questions about an item: what they answer, and what they answer without one.
macro_rules! questions {
    ($($name:ident -> $type:ty: $field:expr, $without:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(item: *const DataItem) -> $type {
                let answer: fn(&DataItem) -> $type = $field;
                // SAFETY: null or a live item, by the contract of the C functions.
                unsafe { item.as_ref() }.map_or($without, answer)
            }
        )*
    };
}

const UNDEFINED_TENSOR_TYPE: i32 = -1;
const UNDEFINED_DATA_TYPE: i32 = -1;

questions! {
    acltdtGetTensorTypeFromItem -> i32: |item| item.tensor_type, UNDEFINED_TENSOR_TYPE;
    acltdtGetDataTypeFromItem -> i32: |item| item.data_type, UNDEFINED_DATA_TYPE;
    acltdtGetDataAddrFromItem -> *mut c_void: |item| item.data, std::ptr::null_mut();
    acltdtGetDataSizeFromItem -> usize: |item| item.size_bytes, 0;
    acltdtGetDimNumFromItem -> usize: |item| item.shape.len(), 0;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtGetDimsFromItem(item: *const DataItem, dimensions: *mut i64, room: usize) -> i32 {
    // SAFETY: null or a live item, by the contract of the C function.
    let Some(item) = (unsafe { item.as_ref() }) else { return INVALID_PARAMETER };
    if room < item.shape.len() || (dimensions.is_null() && !item.shape.is_empty()) {
        return INVALID_PARAMETER;
    }
    // SAFETY: there is room for all dimensions, as the caller says.
    unsafe { dimensions.copy_from_nonoverlapping(item.shape.as_ptr(), item.shape.len()) };
    0
}

/// Tensors are never cut into slices here: each is the only slice of itself.
#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtGetSliceInfoFromItem(
    item: *const DataItem,
    slice_count: *mut usize,
    slice_number: *mut usize,
) -> i32 {
    if item.is_null() || slice_count.is_null() || slice_number.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe {
        slice_count.write(1);
        slice_number.write(0);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn acltdtCreateDataset() -> *mut Dataset {
    Box::into_raw(Box::default())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtDestroyDataset(dataset: *mut Dataset) -> i32 {
    if dataset.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: made by `acltdtCreateDataset` and destroyed once, by the contract of the C function.
    drop(unsafe { Box::from_raw(dataset) });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtAddDataItem(dataset: *mut Dataset, item: *mut DataItem) -> i32 {
    // SAFETY: null or a live dataset that nobody else uses now, by the contract of the C function.
    match unsafe { dataset.as_mut() } {
        Some(dataset) if !item.is_null() => {
            dataset.items.push(item);
            0
        }
        _ => INVALID_PARAMETER,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtGetDataItem(dataset: *const Dataset, index: usize) -> *mut DataItem {
    // SAFETY: null or a live dataset, by the contract of the C function.
    let item = unsafe { dataset.as_ref() }.and_then(|dataset| dataset.items.get(index));
    item.copied().unwrap_or(std::ptr::null_mut())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtGetDatasetSize(dataset: *const Dataset) -> usize {
    // SAFETY: null or a live dataset, by the contract of the C function.
    unsafe { dataset.as_ref() }.map_or(0, |dataset| dataset.items.len())
}

/// The channel that a dataset came from; empty for one of the program.
#[unsafe(no_mangle)]
unsafe extern "C" fn acltdtGetDatasetName(dataset: *const Dataset) -> *const c_char {
    // SAFETY: null or a live dataset, by the contract of the C function.
    unsafe { dataset.as_ref() }.map_or(std::ptr::null(), |dataset| dataset.name.as_ptr())
}
