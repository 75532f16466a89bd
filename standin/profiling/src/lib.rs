//! Stand-in for CANN's `libprofapi.so`: reports are accepted and nobody listens.

use std::ffi::{c_char, c_void};

/// The hash that names strings in reports: two polynomials over the bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn MsprofGetHashId(text: *const c_char, length: usize) -> u64 {
    if text.is_null() {
        return 0;
    }
    // SAFETY: `length` bytes are readable by the contract of the C function.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    let polynomial =
        |factor: u32| bytes.iter().fold(0u32, |hash, byte| hash.wrapping_mul(factor).wrapping_add(u32::from(*byte)));
    u64::from(polynomial(29)) << 32 | u64::from(polynomial(131))
}

#[unsafe(no_mangle)]
extern "C" fn MsprofRegisterCallback(_module: u32, _callback: *const c_void) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn MsprofReportApi(_aging: u32, _api: *const c_void) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn MsprofReportCompactInfo(_aging: u32, _data: *const c_void, _length: u32) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn MsprofReportAdditionalInfo(_aging: u32, _data: *const c_void, _length: u32) -> i32 {
    0
}

/// A counter that runs with the monotonic clock, in nanoseconds.
#[unsafe(no_mangle)]
extern "C" fn MsprofSysCycleTime() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}
