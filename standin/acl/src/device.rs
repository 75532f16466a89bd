//! Devices.

use crate::error::INVALID_PARAMETER;
use crate::log::log;
use crate::runtime::{
    aclrtGetDeviceImpl, rtDeviceReset, rtDeviceSynchronize, rtDeviceSynchronizeWithTimeout, rtGetDeviceCount,
    rtGetSocVersion, rtSetDevice,
};
use standin_support::ProcessCell;
use standin_truth::Kind;
use std::ffi::{c_char, c_void};

const SOC_NAME_BYTES: usize = 64;

#[unsafe(no_mangle)]
extern "C" fn aclrtSetDevice(device: i32) -> i32 {
    // SAFETY: takes a plain number.
    let result = unsafe { rtSetDevice(device) };
    log(Kind::SetDevice, 0, 0, 0, device, result);
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtGetDevice(device: *mut i32) -> i32 {
    // SAFETY: the runtime checks the pointer.
    unsafe { aclrtGetDeviceImpl(device) }
}

#[unsafe(no_mangle)]
extern "C" fn aclrtResetDevice(device: i32) -> i32 {
    // SAFETY: takes a plain number.
    unsafe { rtDeviceReset(device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtGetDeviceCount(count: *mut u32) -> i32 {
    // SAFETY: the runtime checks the pointer; a count fits both types.
    unsafe { rtGetDeviceCount(count.cast()) }
}

#[unsafe(no_mangle)]
extern "C" fn aclrtSynchronizeDevice() -> i32 {
    // SAFETY: no arguments.
    unsafe { rtDeviceSynchronize() }
}

#[unsafe(no_mangle)]
extern "C" fn aclrtSynchronizeDeviceWithTimeout(timeout_ms: i32) -> i32 {
    // SAFETY: takes a plain number.
    unsafe { rtDeviceSynchronizeWithTimeout(timeout_ms) }
}

#[unsafe(no_mangle)]
extern "C" fn aclrtGetSocName() -> *const c_char {
    static NAME: ProcessCell<[u8; SOC_NAME_BYTES]> = ProcessCell::new();
    let name = NAME.get(|| {
        let mut name = [0; SOC_NAME_BYTES];
        // SAFETY: the buffer is as long as said.
        unsafe { rtGetSocVersion(name.as_mut_ptr().cast(), SOC_NAME_BYTES as u32) };
        name
    });
    name.as_ptr().cast()
}

/// 0 would mean that the program itself runs on the device.
#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtGetRunMode(mode: *mut i32) -> i32 {
    if mode.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { mode.write(1) };
    0
}

/// A context is nothing but a device here; its handle is the device number plus one.
fn context_of(device: i32) -> *mut c_void {
    (device as usize + 1) as *mut c_void
}

fn device_of(context: *mut c_void) -> i32 {
    context as usize as i32 - 1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtCreateContext(context: *mut *mut c_void, device: i32) -> i32 {
    if context.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe {
        let result = rtSetDevice(device);
        if result == 0 {
            context.write(context_of(device));
        }
        result
    }
}

#[unsafe(no_mangle)]
extern "C" fn aclrtDestroyContext(context: *mut c_void) -> i32 {
    if context.is_null() { INVALID_PARAMETER } else { 0 }
}

#[unsafe(no_mangle)]
extern "C" fn aclrtSetCurrentContext(context: *mut c_void) -> i32 {
    // SAFETY: takes a plain number.
    unsafe { rtSetDevice(device_of(context)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtGetCurrentContext(context: *mut *mut c_void) -> i32 {
    if context.is_null() {
        return INVALID_PARAMETER;
    }
    let mut device = -1;
    // SAFETY: a number of ours; the caller's pointer was checked.
    unsafe {
        let result = aclrtGetDeviceImpl(&raw mut device);
        if result == 0 {
            context.write(context_of(device));
        }
        result
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtDeviceCanAccessPeer(can_access: *mut i32, device: i32, peer: i32) -> i32 {
    if can_access.is_null() || device == peer {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { can_access.write(1) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn aclrtDeviceEnablePeerAccess(_peer: i32, _flags: u32) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn aclrtDeviceDisablePeerAccess(_peer: i32) -> i32 {
    0
}
