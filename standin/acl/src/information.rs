//! What the device and the software say about themselves.

use crate::error::INVALID_PARAMETER;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};

const CUBE_CORES: i64 = 24;
const VECTOR_CORES: i64 = 48;
const CACHE_BYTES: i64 = 192 << 20;

thread_local! {
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// Core numbers and cache size of the chip that the stand-in claims to be.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetDeviceCapability(_device: u32, information: i32, value: *mut i64) -> i32 {
    let known = match information {
        0 => CUBE_CORES,
        1 => VECTOR_CORES,
        2 => CACHE_BYTES,
        _ => return INVALID_PARAMETER,
    };
    if value.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { value.write(known) };
    0
}

/// Infinities and NaN, bfloat16 and run without compilation: all there.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetCannAttribute(attribute: i32, value: *mut i32) -> i32 {
    if value.is_null() || !(0..=2).contains(&attribute) {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { value.write(1) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclGetCannAttributeList(list: *mut *const i32, count: *mut usize) -> i32 {
    static ATTRIBUTES: [i32; 3] = [0, 1, 2];
    if list.is_null() || count.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe {
        list.write(ATTRIBUTES.as_ptr());
        count.write(ATTRIBUTES.len());
    }
    0
}

/// The release of CANN that the stand-in is like: the first one that could be asked.
const RELEASE: &CStr = c"8.1.RC1";

/// `aclCANNPackageVersion`: the release as text comes first; its parts, which follow, stay as they are.
#[repr(C)]
struct PackageVersion {
    text: [c_char; 128],
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclsysGetCANNVersion(_package: i32, version: *mut PackageVersion) -> i32 {
    if version.is_null() {
        return INVALID_PARAMETER;
    }
    let bytes = RELEASE.to_bytes_with_nul();
    // SAFETY: checked above; the text is longer than the release and writable by the contract of the C function.
    unsafe { (&raw mut (*version).text).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn aclGetRecentErrMsg() -> *const c_char {
    c"".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn aclrtGetLastError(_level: i32) -> i32 {
    LAST_ERROR.replace(0)
}

#[unsafe(no_mangle)]
extern "C" fn aclrtPeekAtLastError(_level: i32) -> i32 {
    LAST_ERROR.get()
}

/// The message of a program for CANN's log, which the stand-in does not keep. Further arguments are not read.
#[unsafe(no_mangle)]
extern "C" fn aclAppLog(
    _level: i32,
    _function: *const c_char,
    _file: *const c_char,
    _line: u32,
    _format: *const c_char,
) {
}

/// The process as the device sees it.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtDeviceGetBareTgid(process: *mut i32) -> i32 {
    if process.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { process.write(std::process::id() as i32) };
    0
}

/// A context exists on a device as soon as anyone uses it; here that is always so.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtGetPrimaryCtxState(_device: i32, flags: *mut u32, active: *mut i32) -> i32 {
    // SAFETY: null, or writable by the contract of the C function.
    unsafe {
        if let Some(flags) = flags.as_mut() {
            *flags = 0;
        }
        if let Some(active) = active.as_mut() {
            *active = 1;
        }
    }
    0
}

/// `aclrtPtrAttributes`.
#[repr(C)]
struct PointerAttributes {
    device: u32,
    location: u32,
    page_bytes: u32,
    reserved: [u32; 4],
}

unsafe extern "C" {
    fn standinBlockDevice(address: u64) -> i32;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtPointerGetAttributes(pointer: *const c_void, attributes: *mut PointerAttributes) -> i32 {
    const HOST: u32 = 0;
    const DEVICE: u32 = 1;
    const UNREGISTERED: u32 = 2;
    if attributes.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: asks for a number.
    let (device, location) = match unsafe { standinBlockDevice(pointer as u64) } {
        -2 => (0, UNREGISTERED),
        -1 => (0, HOST),
        device => (device as u32, DEVICE),
    };
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { attributes.write(PointerAttributes { device, location, page_bytes: 4096, reserved: [0; 4] }) };
    0
}
