//! The profiler's own buffer: where reports go that no callback takes.

use crate::hashes::text_of;
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const REPORT_BYTES: usize = 64;

type Report = [u8; REPORT_BYTES];

static COUNT: AtomicU64 = AtomicU64::new(0);
/// Whether a profiler wants the reports themselves.
static IS_KEPT: AtomicBool = AtomicBool::new(false);
static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

/// Whether a profiler works that wants the reports themselves.
pub fn is_kept() -> bool {
    IS_KEPT.load(Ordering::Acquire)
}

/// Takes a report.
pub unsafe fn add(data: *const c_void, length: u32) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    if is_kept() && length as usize == REPORT_BYTES && !data.is_null() {
        // SAFETY: as long as it says by the caller's promise.
        let report = unsafe { data.cast::<Report>().read() };
        REPORTS.lock().unwrap_or_else(PoisonError::into_inner).push(report);
    }
}

/// Our own: reports that went to the profiler's buffer.
#[unsafe(no_mangle)]
extern "C" fn standinBufferedReports() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Our own: the profiler begins.
#[unsafe(no_mangle)]
extern "C" fn standinProfilerBegins() {
    IS_KEPT.store(true, Ordering::Release);
}

/// Our own: the profiler ends and gets every report it has seen, with the text of its kernel.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinProfilerEnds(
    visit: unsafe extern "C" fn(*mut c_void, *const u8, *const c_char),
    context: *mut c_void,
) {
    IS_KEPT.store(false, Ordering::Release);
    let reports = std::mem::take(&mut *REPORTS.lock().unwrap_or_else(PoisonError::into_inner));
    for report in &reports {
        let hash = u64::from_le_bytes(report[40..48].try_into().unwrap_or_default());
        let name = CString::new(text_of(hash)).unwrap_or_default();
        // SAFETY: the report and the name outlive the call.
        unsafe { visit(context, report.as_ptr(), name.as_ptr()) };
    }
}
