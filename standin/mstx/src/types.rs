//! Structures of the mstx interface.

use std::ffi::c_void;

/// `mstxMemVirtualRangeDesc_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RangeDescription {
    /// Device the memory belongs to.
    pub device: u32,
    /// Start of the memory.
    pub pointer: *const c_void,
    /// Size in bytes.
    pub size: u64,
}

/// `mstxMemHeapDesc_t`. Frameworks leave the first two fields uninitialised.
#[repr(C)]
pub struct HeapDescription {
    usage: i32,
    memory_type: i32,
    /// The heap's range.
    pub range: *const RangeDescription,
}

/// `mstxMemRegionsRegisterBatch_t`. Frameworks leave heap, type and handles uninitialised.
#[repr(C)]
pub struct RegisterBatch {
    heap: *mut c_void,
    memory_type: i32,
    /// Number of regions.
    pub count: usize,
    /// The regions.
    pub regions: *const RangeDescription,
    handles: *mut *mut c_void,
}

/// `mstxMemRegionRef_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RegionReference {
    /// 0: `value` is a pointer, 1: it is a handle.
    pub kind: i32,
    /// Pointer or handle.
    pub value: *const c_void,
}

/// `mstxMemRegionsUnregisterBatch_t`.
#[repr(C)]
pub struct UnregisterBatch {
    /// Number of references.
    pub count: usize,
    /// The references.
    pub references: *const RegionReference,
}
