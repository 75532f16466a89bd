//! Memory that a forked child finds empty, however it was made.

use std::ffi::c_void;

const PAGE_BYTES: usize = 4096;

/// A fresh page of zeros that is never unmapped, and whether the kernel wipes it in a forked child; if it cannot,
/// whoever uses the page has to. Nothing if there is no memory.
pub fn new() -> Option<(*mut c_void, bool)> {
    // SAFETY: a fresh anonymous mapping; the advice only concerns it.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        Some((page, libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) == 0))
    }
}
