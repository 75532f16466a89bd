//! Devices of the runtime.

use crate::driver::MsprofNotifySetDevice;
use crate::error::{RuntimeError, code};
use crate::state::{set_current_device, state};
use crate::stream::synchronize_device;
use std::ffi::c_char;

const DEFAULT_SOC_NAME: &str = "Ascend910B1";

#[unsafe(no_mangle)]
extern "C" fn rtSetDevice(device: i32) -> i32 {
    code(state().physical_device(device).map(|physical| {
        set_current_device(device);
        // SAFETY: plain numbers.
        unsafe { MsprofNotifySetDevice(0, physical, true) };
    }))
}

/// Our own: the device that threads use which never choose one.
#[unsafe(no_mangle)]
extern "C" fn standinSetDefaultDevice(device: i32) -> i32 {
    code(state().physical_device(device).map(|_| state().set_default_device(device)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtGetDevice(device: *mut i32) -> i32 {
    if device.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    code(state().current_device().map(|current| {
        // SAFETY: checked above; writable by the contract of the C function.
        unsafe { device.write(current) }
    }))
}

/// Our own: the physical id of a logical device.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinPhysicalDevice(device: i32, physical: *mut u32) -> i32 {
    code(state().physical_device(device).map(|id| {
        // SAFETY: the callers are our own libraries.
        unsafe { physical.write(id) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rtDeviceReset(device: i32) -> i32 {
    code(state().physical_device(device).and_then(|_| {
        synchronize_device(device, None)?;
        if state().current_device() == Ok(device) {
            set_current_device(-1);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtGetDeviceCount(count: *mut i32) -> i32 {
    if count.is_null() {
        return RuntimeError::InvalidParameter as i32;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { count.write(state().device_count() as i32) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtGetSocVersion(version: *mut c_char, length: u32) -> i32 {
    let name = std::env::var("STANDIN_SOC").unwrap_or_else(|_| DEFAULT_SOC_NAME.to_owned());
    if version.is_null() || name.len() >= length as usize {
        return RuntimeError::InvalidParameter as i32;
    }
    // SAFETY: `length` bytes are writable by the contract of the C function and the name with its end fits.
    unsafe {
        version.copy_from_nonoverlapping(name.as_ptr().cast(), name.len());
        version.add(name.len()).write(0);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn rtDeviceSynchronize() -> i32 {
    code(state().current_device().and_then(|device| synchronize_device(device, None)))
}

#[unsafe(no_mangle)]
extern "C" fn rtDeviceSynchronizeWithTimeout(timeout_ms: i32) -> i32 {
    let timeout = u64::try_from(timeout_ms).ok();
    code(state().current_device().and_then(|device| synchronize_device(device, timeout)))
}
