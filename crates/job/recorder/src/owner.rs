//! Whose recording exists: a word in a page that the kernel wipes in a forked child.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::wiped_page;

/// Owner of a wiped or not yet existing page.
pub const NOBODY: u64 = 0;

static NO_OWNER: AtomicU64 = AtomicU64::new(NOBODY);

/// The word that says whose recording exists; in a page wiped on fork once there is one.
static OWNER: AtomicPtr<AtomicU64> = AtomicPtr::new(&raw const NO_OWNER as *mut AtomicU64);

/// Whose recording exists. Compared with what a thread wrote under last.
#[inline(always)]
pub fn generation() -> u64 {
    // SAFETY: points to a static or to a page that is never unmapped.
    unsafe { (*OWNER.load(Ordering::Relaxed)).load(Ordering::Acquire) }
}

/// Makes the page that a fork wipes; a child keeps the wiped page of its parent.
pub fn make_page() {
    if !std::ptr::eq(OWNER.load(Ordering::Relaxed), &raw const NO_OWNER) {
        return;
    }
    let Some((page, is_wiped)) = wiped_page::new() else { return };
    if !is_wiped {
        // SAFETY: the handler has the right form.
        unsafe { libc::pthread_atfork(None, None, Some(disown)) };
    }
    OWNER.store(page.cast(), Ordering::Release);
}

/// Stands in for the wiping where the kernel cannot do it.
unsafe extern "C" fn disown() {
    // SAFETY: the page is never unmapped.
    unsafe { (*OWNER.load(Ordering::Relaxed)).store(NOBODY, Ordering::Release) };
}

/// Events are written to the recording of this generation from now on.
pub fn become_owner(generation: u64) {
    // SAFETY: points to the page for the owner, or to the static if there is none.
    unsafe { (*OWNER.load(Ordering::Relaxed)).store(generation, Ordering::SeqCst) };
}
