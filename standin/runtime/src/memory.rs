//! Memory of the runtime: chooses pages and module, and asks the driver.

use crate::driver::{halMemAlloc, halMemFree, standinDeviceMemory};
use crate::error::{RuntimeError, code, from_driver};
use crate::state::state;
use crate::task_reports::report_memory;
use std::ffi::c_void;

const DEVICE_MEMORY: u64 = 1 << 10;
const HOST_MEMORY: u64 = 2 << 10;
const HUGE_PAGE: u64 = 1 << 17;
const GIANT_PAGE: u64 = 1 << 31;
const MODULE_SHIFT: u32 = 56;
/// Blocks above this size get huge pages when they are preferred.
const HUGE_PAGE_FROM_BYTES: u64 = 1 << 20;

const POLICY_HUGE_PREFERRED: u32 = 0x400;
const POLICY_HUGE_ONLY: u32 = 0x800;
const POLICY_GIANT_ONLY: u32 = 0x1_0000;

fn page_flags(memory_type: u32, size: u64) -> u64 {
    if memory_type & POLICY_GIANT_ONLY != 0 {
        GIANT_PAGE
    } else if memory_type & POLICY_HUGE_ONLY != 0
        || (memory_type & POLICY_HUGE_PREFERRED != 0 && size > HUGE_PAGE_FROM_BYTES)
    {
        HUGE_PAGE
    } else {
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtMalloc(pointer: *mut *mut c_void, size: u64, memory_type: u32, module: u16) -> i32 {
    if pointer.is_null() || size == 0 {
        return RuntimeError::InvalidParameter as i32;
    }
    let physical = state().current_device().and_then(|device| state().physical_device(device));
    code(physical.and_then(|device| {
        let module = u64::from(module & 0xFF) << MODULE_SHIFT;
        let flags = u64::from(device) | DEVICE_MEMORY | page_flags(memory_type, size) | module;
        // SAFETY: the pointer was checked and is writable by the contract of the C function.
        from_driver(unsafe { halMemAlloc(pointer, size, flags) })?;
        // SAFETY: written by the driver.
        report_memory(device, unsafe { pointer.read() } as u64, Some(size));
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtFree(pointer: *mut c_void) -> i32 {
    if pointer.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    // SAFETY: the driver checks the address itself.
    let freed = from_driver(unsafe { halMemFree(pointer) });
    if freed.is_ok()
        && let Ok(device) = state().current_device().and_then(|device| state().physical_device(device))
    {
        report_memory(device, pointer as u64, None);
    }
    code(freed)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtMallocHost(pointer: *mut *mut c_void, size: u64, module: u16) -> i32 {
    if pointer.is_null() || size == 0 {
        return RuntimeError::InvalidParameter as i32;
    }
    let flags = HOST_MEMORY | u64::from(module & 0xFF) << MODULE_SHIFT;
    // SAFETY: the pointer was checked and is writable by the contract of the C function.
    code(from_driver(unsafe { halMemAlloc(pointer, size, flags) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtFreeHost(pointer: *mut c_void) -> i32 {
    if pointer.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    // SAFETY: the driver checks the address itself.
    code(from_driver(unsafe { halMemFree(pointer) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtMemGetInfo(free: *mut usize, total: *mut usize) -> i32 {
    if free.is_null() || total.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    let physical = state().current_device().and_then(|device| state().physical_device(device));
    code(physical.and_then(|device| {
        let (mut total_bytes, mut used_bytes) = (0, 0);
        // SAFETY: fills two numbers of ours; the caller's pointers were checked.
        unsafe {
            from_driver(standinDeviceMemory(device, &raw mut total_bytes, &raw mut used_bytes))?;
            total.write(total_bytes as usize);
            free.write(total_bytes.saturating_sub(used_bytes) as usize);
        }
        Ok(())
    }))
}
