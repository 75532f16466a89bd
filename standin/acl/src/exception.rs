//! Whom to tell about tasks that fail on a card.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

type Callback = unsafe extern "C" fn(information: *mut c_void);

static CALLBACK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps the function; null takes it back. Tasks of the stand-in do not fail: an operator that cannot be computed says so
/// on stderr, so that nobody is ever called.
#[unsafe(no_mangle)]
extern "C" fn aclrtSetExceptionInfoCallback(callback: Option<Callback>) -> i32 {
    let address = callback.map_or(std::ptr::null_mut(), |callback| callback as *mut c_void);
    CALLBACK.store(address, Ordering::Release);
    0
}
