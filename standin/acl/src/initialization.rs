//! `aclInit` and `aclFinalize`.

use crate::error::{INVALID_FILE, REPEATED_FINALIZATION, REPEATED_INITIALIZATION};
use crate::log::log;
use crate::runtime::{standinFinishWork, standinSetDefaultDevice};
use standin_support::ProcessCell;
use standin_truth::Kind;
use standin_truth::format::HOST_DEVICE;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

static INITIALIZED: ProcessCell<AtomicBool> = ProcessCell::new();

fn initialized() -> &'static AtomicBool {
    INITIALIZED.get(AtomicBool::default)
}

/// The value of `"default_device"` in a configuration, the only key the stand-in obeys.
fn default_device(configuration: &str) -> Option<i32> {
    let after_key = configuration.split("\"default_device\"").last()?;
    if after_key.len() == configuration.len() {
        return None;
    }
    let value = after_key.trim_start().strip_prefix(':')?.trim_start().trim_start_matches('"');
    let digits = value.split(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn initialize(configuration_path: *const c_char) -> i32 {
    if initialized().swap(true, Ordering::AcqRel) {
        return REPEATED_INITIALIZATION;
    }
    if configuration_path.is_null() {
        return 0;
    }
    // SAFETY: not null; a terminated string by the contract of the C function.
    let path = unsafe { CStr::from_ptr(configuration_path) }.to_bytes();
    if path.is_empty() {
        return 0;
    }
    let Ok(configuration) = std::fs::read_to_string(OsStr::from_bytes(path)) else {
        initialized().store(false, Ordering::Release);
        return INVALID_FILE;
    };
    if let Some(device) = default_device(&configuration) {
        // SAFETY: takes a plain number.
        unsafe { standinSetDefaultDevice(device) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclInit(configuration_path: *const c_char) -> i32 {
    let result = initialize(configuration_path);
    log(Kind::AclInit, 0, 0, 0, HOST_DEVICE, result);
    result
}

#[unsafe(no_mangle)]
extern "C" fn aclFinalize() -> i32 {
    let result = if initialized().swap(false, Ordering::AcqRel) {
        // SAFETY: no arguments.
        unsafe { standinFinishWork() };
        0
    } else {
        REPEATED_FINALIZATION
    };
    log(Kind::AclFinalize, 0, 0, 0, HOST_DEVICE, result);
    result
}
