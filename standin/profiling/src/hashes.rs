//! Numbers that name texts in reports.

use crate::callbacks::{Callback, Kind, callback};
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Texts that the profiler knows by its numbers.
static TEXTS: Mutex<Option<HashMap<u64, String>>> = Mutex::new(None);

/// Whether a profiler works in this process, so that its own table of texts exists: it was started, or
/// `STANDIN_PROFILER=1`.
fn profiler_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    crate::buffer::is_kept()
        || *WORKS.get_or_init(|| std::env::var("STANDIN_PROFILER").is_ok_and(|value| value.trim() == "1"))
}

/// The text behind a number, as far as the profiler knows it.
pub fn text_of(hash: u64) -> String {
    let texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    texts.as_ref().and_then(|texts| texts.get(&hash)).cloned().unwrap_or_default()
}

/// Asks the callback, then the profiler's own table, whose number counts if there is one.
pub unsafe fn hash_of(text: *const c_char, length: usize) -> u64 {
    if text.is_null() {
        return 0;
    }
    let from_callback = match callback(Kind::Hash) {
        // SAFETY: registered as a callback of this kind, which has this form.
        Some(Callback(function)) => unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, usize) -> u64>(function)(
                text, length,
            )
        },
        None => 0,
    };
    if !profiler_works() {
        return from_callback;
    }
    // SAFETY: `length` bytes are readable by the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    let hash = two_polynomials(bytes);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    texts.get_or_insert_default().insert(hash, String::from_utf8_lossy(bytes).into_owned());
    hash
}

/// Two polynomials over the bytes.
fn two_polynomials(bytes: &[u8]) -> u64 {
    let polynomial =
        |factor: u32| bytes.iter().fold(0u32, |hash, byte| hash.wrapping_mul(factor).wrapping_add(u32::from(*byte)));
    u64::from(polynomial(29)) << 32 | u64::from(polynomial(131))
}
