//! The C functions of `libascend_hal.so`. Every function exists twice, as in recent CANN: hooks replace the plain
//! name and reach the driver through the `Inner` one.

use crate::error::{DriverError, code};
use crate::flags::MemoryProperties;
use crate::{allocation, virtual_memory};
use std::ffi::c_void;

/// Writes `value` through a caller's pointer.
unsafe fn store(target: *mut *mut c_void, value: Result<u64, DriverError>) -> i32 {
    match value {
        Ok(value) => {
            // SAFETY: the caller promises a pointer that can be written.
            unsafe { target.write(value as *mut c_void) };
            0
        }
        Err(error) => error as i32,
    }
}

/// Defines a function and its `Inner` twin.
macro_rules! driver_function {
    ($name:ident, $inner:ident, ($($argument:ident: $type:ty),*), $body:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
            $body
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $inner($($argument: $type),*) -> i32 {
            $body
        }
    };
}

driver_function!(halMemAlloc, halMemAllocInner, (pointer: *mut *mut c_void, size: u64, flags: u64), {
    if pointer.is_null() {
        return DriverError::InvalidValue as i32;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { store(pointer, allocation::allocate(size, flags)) }
});

driver_function!(halMemFree, halMemFreeInner, (pointer: *mut c_void), code(allocation::free(pointer as u64)));

driver_function!(
    halMemCreate,
    halMemCreateInner,
    (handle: *mut *mut c_void, size: usize, properties: *const MemoryProperties, _flags: u64),
    {
        if handle.is_null() || properties.is_null() {
            return DriverError::InvalidValue as i32;
        }
        // SAFETY: both pointers were checked and are valid by the contract of the C function.
        unsafe { store(handle, virtual_memory::create(size as u64, &*properties)) }
    }
);

driver_function!(
    halMemRelease,
    halMemReleaseInner,
    (handle: *mut c_void),
    code(virtual_memory::release(handle as u64))
);

driver_function!(
    halMemAddressReserve,
    halMemAddressReserveInner,
    (pointer: *mut *mut c_void, size: usize, alignment: usize, hint: *mut c_void, _flags: u64),
    {
        if pointer.is_null() {
            return DriverError::InvalidValue as i32;
        }
        // SAFETY: checked above; writable by the contract of the C function.
        unsafe { store(pointer, virtual_memory::reserve(size as u64, alignment as u64, hint as u64)) }
    }
);

driver_function!(
    halMemAddressFree,
    halMemAddressFreeInner,
    (pointer: *mut c_void),
    code(virtual_memory::free_address(pointer as u64))
);

driver_function!(
    halMemMap,
    halMemMapInner,
    (pointer: *mut c_void, size: usize, offset: usize, handle: *mut c_void, _flags: u64),
    code(virtual_memory::map(pointer as u64, size as u64, offset as u64, handle as u64))
);

driver_function!(
    halMemUnmap,
    halMemUnmapInner,
    (pointer: *mut c_void),
    code(virtual_memory::unmap(pointer as u64))
);
