//! Anonymous memory for tables that all threads share. It is never given back.

use core::sync::atomic::AtomicU64;

/// Zeroed words from the kernel; pages cost memory only once touched.
pub(crate) fn anonymous_words(count: usize) -> Option<&'static [AtomicU64]> {
    let length_bytes = count.checked_mul(size_of::<AtomicU64>())?;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice affects nothing else.
    let address = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            length_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is zeroed, aligned, `count` words long and never unmapped.
    Some(unsafe { core::slice::from_raw_parts(address.cast::<AtomicU64>(), count) })
}

/// Makes all words zero again and gives their memory back.
///
/// The caller makes sure that nobody else uses the words meanwhile.
pub(crate) fn clear_words(words: &'static [AtomicU64]) {
    // SAFETY: the words are a private anonymous mapping of ours; dropping its pages makes them zero.
    unsafe {
        libc::madvise(words.as_ptr().cast_mut().cast(), size_of_val(words), libc::MADV_DONTNEED);
    }
}
