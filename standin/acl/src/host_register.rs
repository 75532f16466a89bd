//! Host memory that a program owns and the device may use.

use crate::error::{INVALID_PARAMETER, RUNTIME_INVALID_PARAMETER};
use crate::log::log;
use standin_support::ProcessCell;
use standin_truth::Kind;
use standin_truth::format::HOST_DEVICE;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

static REGISTERED: ProcessCell<Mutex<HashMap<u64, u64>>> = ProcessCell::new();

fn register(address: u64, size_bytes: u64, flags: u64) -> i32 {
    let mut registered = REGISTERED.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let result = if address == 0 || size_bytes == 0 {
        INVALID_PARAMETER
    } else {
        match registered.entry(address) {
            Entry::Occupied(_) => RUNTIME_INVALID_PARAMETER,
            Entry::Vacant(place) => {
                place.insert(size_bytes);
                0
            }
        }
    };
    log(Kind::HostRegister, address, size_bytes, flags, HOST_DEVICE, result);
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtHostRegister(
    pointer: *mut c_void,
    size: u64,
    _kind: i32,
    device_pointer: *mut *mut c_void,
) -> i32 {
    if device_pointer.is_null() {
        return INVALID_PARAMETER;
    }
    let result = register(pointer as u64, size, 0);
    if result == 0 {
        // SAFETY: checked above; writable by the contract of the C function.
        unsafe { device_pointer.write(pointer) };
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtHostRegisterV2(pointer: *mut c_void, size: u64, flags: u32) -> i32 {
    register(pointer as u64, size, u64::from(flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtHostGetDevicePointer(host: *mut c_void, device: *mut *mut c_void, _flags: u32) -> i32 {
    if host.is_null() || device.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { device.write(host) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtHostUnregister(pointer: *mut c_void) -> i32 {
    let mut registered = REGISTERED.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let size_bytes = registered.remove(&(pointer as u64));
    let result = if size_bytes.is_some() { 0 } else { RUNTIME_INVALID_PARAMETER };
    log(Kind::HostUnregister, pointer as u64, size_bytes.unwrap_or(0), 0, HOST_DEVICE, result);
    result
}
