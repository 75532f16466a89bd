//! Physical memory, reserved addresses and mappings.

use crate::error::INVALID_PARAMETER;
use crate::runtime::{
    MemoryProperties, rtFreePhysical, rtMallocPhysical, rtMapMem, rtReleaseMemAddress, rtReserveMemAddress, rtUnmapMem,
};
use std::ffi::c_void;

/// Module id under which a program's own memory is counted.
const APPLICATION_MODULE: u32 = 33;
/// Smallest piece of physical memory that can be mapped.
const GRANULARITY_BYTES: usize = 2 << 20;

/// `aclrtPhysicalMemProp`.
#[repr(C)]
struct PhysicalProperties {
    handle_type: u32,
    allocation_type: u32,
    attribute: u32,
    location_id: u32,
    location_type: u32,
    reserve: u64,
}

/// Page type of an `aclrtMemAttr`: 0 normal, 1 huge, 2 giant.
fn page_type(attribute: u32) -> u32 {
    match attribute {
        10 | 11 | 14 | 17 => 2,
        2 | 4 | 6 | 8 | 13 | 16 => 1,
        _ => 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtReserveMemAddress(
    pointer: *mut *mut c_void,
    size: usize,
    alignment: usize,
    hint: *mut c_void,
    flags: u64,
) -> i32 {
    // SAFETY: the driver checks the pointer.
    unsafe { rtReserveMemAddress(pointer, size, alignment, hint, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtReleaseMemAddress(pointer: *mut c_void) -> i32 {
    // SAFETY: the driver checks the address.
    unsafe { rtReleaseMemAddress(pointer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMallocPhysical(
    handle: *mut *mut c_void,
    size: usize,
    properties: *const PhysicalProperties,
    flags: u64,
) -> i32 {
    // SAFETY: null, or readable by the contract of the C function.
    let Some(properties) = (unsafe { properties.as_ref() }) else { return INVALID_PARAMETER };
    let wanted = MemoryProperties {
        side: u32::from(properties.location_type == 1),
        device: properties.location_id,
        module: APPLICATION_MODULE,
        page_type: page_type(properties.attribute),
        memory_type: 0,
        reserve: 0,
    };
    // SAFETY: the runtime checks the handle; the properties are ours.
    unsafe { rtMallocPhysical(handle, size, &raw const wanted, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtFreePhysical(handle: *mut c_void) -> i32 {
    // SAFETY: the driver checks the handle.
    unsafe { rtFreePhysical(handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMapMem(
    pointer: *mut c_void,
    size: usize,
    offset: usize,
    handle: *mut c_void,
    flags: u64,
) -> i32 {
    // SAFETY: the driver checks all arguments.
    unsafe { rtMapMem(pointer, size, offset, handle, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtUnmapMem(pointer: *mut c_void) -> i32 {
    // SAFETY: the driver checks the address.
    unsafe { rtUnmapMem(pointer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMemGetAllocationGranularity(
    _properties: *mut c_void,
    _option: i32,
    granularity: *mut usize,
) -> i32 {
    if granularity.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { granularity.write(GRANULARITY_BYTES) };
    0
}
