//! Memory of devices and pinned memory of the host, copies and fills.

use crate::error::INVALID_PARAMETER;
use crate::runtime::{
    rtFree, rtFreeHost, rtMalloc, rtMallocHost, rtMemGetInfo, rtMemcpy, rtMemcpyAsync, rtMemset, rtMemsetAsync,
};
use std::ffi::c_void;

/// Module id under which a program's own memory is counted.
const APPLICATION_MODULE: u16 = 33;
/// Alignment of sizes; `aclrtMalloc` adds as much again.
const SIZE_ALIGNMENT: u64 = 32;

const HUGE_FIRST: u32 = 0;
const HUGE_ONLY: u32 = 1;
const NORMAL_ONLY: u32 = 2;
const HUGE_FIRST_PEER: u32 = 3;
const HUGE_ONLY_PEER: u32 = 4;
const NORMAL_ONLY_PEER: u32 = 5;
const GIANT_ONLY: u32 = 6;
const GIANT_ONLY_PEER: u32 = 7;

/// The runtime's memory type for a policy.
fn memory_type(policy: u32) -> Option<u32> {
    const HIGH_BANDWIDTH: u32 = 2;
    match policy & 0xFF {
        HUGE_FIRST | HUGE_FIRST_PEER => Some(HIGH_BANDWIDTH | 0x400),
        HUGE_ONLY | HUGE_ONLY_PEER => Some(HIGH_BANDWIDTH | 0x800),
        NORMAL_ONLY | NORMAL_ONLY_PEER => Some(HIGH_BANDWIDTH | 0x1000),
        GIANT_ONLY | GIANT_ONLY_PEER => Some(HIGH_BANDWIDTH | 0x1_0000),
        _ => None,
    }
}

unsafe fn allocate(pointer: *mut *mut c_void, size: usize, policy: u32, padding: u64) -> i32 {
    let Some(memory_type) = memory_type(policy) else { return INVALID_PARAMETER };
    let padded = (size as u64).checked_add(padding + SIZE_ALIGNMENT - 1);
    let Some(size_bytes) = padded.filter(|_| size > 0).map(|size| size & !(SIZE_ALIGNMENT - 1)) else {
        return INVALID_PARAMETER;
    };
    if pointer.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: the pointer was checked and is writable by the contract of the C functions.
    unsafe { rtMalloc(pointer, size_bytes, memory_type, APPLICATION_MODULE) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMalloc(pointer: *mut *mut c_void, size: usize, policy: u32) -> i32 {
    // SAFETY: as for the function called.
    unsafe { allocate(pointer, size, policy, SIZE_ALIGNMENT) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMallocAlign32(pointer: *mut *mut c_void, size: usize, policy: u32) -> i32 {
    // SAFETY: as for the function called.
    unsafe { allocate(pointer, size, policy, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMallocCached(pointer: *mut *mut c_void, size: usize, policy: u32) -> i32 {
    // SAFETY: as for the function called.
    unsafe { allocate(pointer, size, policy, SIZE_ALIGNMENT) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMallocWithCfg(
    pointer: *mut *mut c_void,
    size: usize,
    policy: u32,
    _configuration: *mut c_void,
) -> i32 {
    // SAFETY: as for the function called.
    unsafe { allocate(pointer, size, policy, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtFree(pointer: *mut c_void) -> i32 {
    // SAFETY: the driver checks the address.
    unsafe { rtFree(pointer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMallocHost(pointer: *mut *mut c_void, size: usize) -> i32 {
    // SAFETY: the runtime checks the pointer.
    unsafe { rtMallocHost(pointer, size as u64, APPLICATION_MODULE) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMallocHostWithCfg(pointer: *mut *mut c_void, size: u64, _configuration: *mut c_void) -> i32 {
    // SAFETY: the runtime checks the pointer.
    unsafe { rtMallocHost(pointer, size, APPLICATION_MODULE) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtFreeHost(pointer: *mut c_void) -> i32 {
    // SAFETY: the driver checks the address.
    unsafe { rtFreeHost(pointer) }
}

/// All kinds of memory of a card are one here.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtGetMemInfo(_attribute: i32, free: *mut usize, total: *mut usize) -> i32 {
    // SAFETY: the runtime checks both pointers.
    unsafe { rtMemGetInfo(free, total) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMemcpy(
    target: *mut c_void,
    room: usize,
    source: *const c_void,
    count: usize,
    kind: i32,
) -> i32 {
    // SAFETY: both ranges are valid by the contract of the C function.
    unsafe { rtMemcpy(target, room as u64, source, count as u64, kind) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMemcpyAsync(
    target: *mut c_void,
    room: usize,
    source: *const c_void,
    count: usize,
    kind: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: both ranges stay valid until the work is done, by the contract of the C function.
    unsafe { rtMemcpyAsync(target, room as u64, source, count as u64, kind, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMemset(target: *mut c_void, room: usize, value: i32, count: usize) -> i32 {
    // SAFETY: the range is valid by the contract of the C function.
    unsafe { rtMemset(target, room as u64, value as u32, count as u64) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtMemsetAsync(
    target: *mut c_void,
    room: usize,
    value: i32,
    count: usize,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the range stays valid until the work is done, by the contract of the C function.
    unsafe { rtMemsetAsync(target, room as u64, value as u32, count as u64, stream) }
}
