//! Physical memory, reserved addresses and mappings, passed on to the driver.

use crate::driver::{
    MemoryProperties, halMemAddressFree, halMemAddressReserve, halMemCreate, halMemMap, halMemRelease, halMemUnmap,
};
use crate::error::{RuntimeError, code, from_driver};
use crate::state::state;
use std::ffi::c_void;

#[unsafe(no_mangle)]
unsafe extern "C" fn rtReserveMemAddress(
    pointer: *mut *mut c_void,
    size: usize,
    alignment: usize,
    hint: *mut c_void,
    flags: u64,
) -> i32 {
    // SAFETY: the driver checks the pointer; writable by the contract of the C function.
    code(from_driver(unsafe { halMemAddressReserve(pointer, size, alignment, hint, flags) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtReleaseMemAddress(pointer: *mut c_void) -> i32 {
    // SAFETY: the driver checks the address.
    code(from_driver(unsafe { halMemAddressFree(pointer) }))
}

/// Takes properties whose device is a logical one.
#[unsafe(no_mangle)]
unsafe extern "C" fn rtMallocPhysical(
    handle: *mut *mut c_void,
    size: usize,
    properties: *const MemoryProperties,
    flags: u64,
) -> i32 {
    if handle.is_null() || properties.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    // SAFETY: checked above; readable by the contract of the C function.
    let mut properties = unsafe { *properties };
    if properties.side != 0 {
        match state().physical_device(properties.device as i32) {
            Ok(device) => properties.device = device,
            Err(error) => return error as i32,
        }
    }
    // SAFETY: the handle was checked; the properties are ours.
    code(from_driver(unsafe { halMemCreate(handle, size, &raw const properties, flags) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtFreePhysical(handle: *mut c_void) -> i32 {
    // SAFETY: the driver checks the handle.
    code(from_driver(unsafe { halMemRelease(handle) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtMapMem(
    pointer: *mut c_void,
    size: usize,
    offset: usize,
    handle: *mut c_void,
    flags: u64,
) -> i32 {
    // SAFETY: the driver checks all arguments.
    code(from_driver(unsafe { halMemMap(pointer, size, offset, handle, flags) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtUnmapMem(pointer: *mut c_void) -> i32 {
    // SAFETY: the driver checks the address.
    code(from_driver(unsafe { halMemUnmap(pointer) }))
}
