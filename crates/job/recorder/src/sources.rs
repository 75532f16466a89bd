//! Which sources of events have spoken at all, recorded or not: what a guest that came late can
//! still hope to see.

use std::sync::atomic::{AtomicU32, Ordering};

static SEEN: AtomicU32 = AtomicU32::new(0);

/// Notes that a source has spoken: one of the `SOURCE_` bits of the control table.
#[inline(always)]
pub fn note(source: u32) {
    if SEEN.load(Ordering::Relaxed) & source == 0 {
        SEEN.fetch_or(source, Ordering::Relaxed);
    }
}

/// All that have spoken.
pub fn seen() -> u32 {
    SEEN.load(Ordering::Relaxed)
}
