//! Counts code objects that die: as long as the number stays, an address means the same code object.
//!
//! Without the interpreter's lock nothing can be kept alive, and versions before 3.12 have nothing that
//! tells one code object from another that takes its place. So the function that frees code objects is
//! preceded by one that counts.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Where a type has the function that frees its objects, in all versions.
const FREE_OFFSET: usize = 48;

type Free = unsafe extern "C" fn(*mut c_void);

static DEATHS: AtomicU64 = AtomicU64::new(0);
static IS_COUNTING: AtomicBool = AtomicBool::new(false);
/// The function of the interpreter.
static FREE: AtomicUsize = AtomicUsize::new(0);

/// Counts from now on.
///
/// # Safety
/// In a thread that holds the interpreter's lock; `code_type` must be the type of its code objects.
pub(crate) unsafe fn count(code_type: usize) {
    let counting = free_and_count as Free as *mut c_void;
    // SAFETY: promised by the caller. Type objects of the interpreter can be written to.
    let slot = unsafe { AtomicPtr::from_ptr((code_type + FREE_OFFSET) as *mut *mut c_void) };
    let free = slot.load(Ordering::Relaxed);
    // An interpreter that was ended and begins again has the same types.
    if free != counting && !free.is_null() {
        FREE.store(free as usize, Ordering::Relaxed);
        slot.store(counting, Ordering::Release);
    }
    DEATHS.fetch_add(1, Ordering::Relaxed);
    IS_COUNTING.store(true, Ordering::Release);
}

/// How many code objects have died, if they are counted. What is known of a code object that a live
/// frame has remains true of its address until the number changes.
#[inline(always)]
pub(crate) fn counted() -> Option<u64> {
    IS_COUNTING.load(Ordering::Acquire).then(|| DEATHS.load(Ordering::Relaxed))
}

/// Nobody counts any more: the interpreter is gone, and the next may have other types.
pub(crate) fn stop() {
    IS_COUNTING.store(false, Ordering::Release);
}

unsafe extern "C" fn free_and_count(code: *mut c_void) {
    DEATHS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the interpreter's function, with its argument.
    unsafe { std::mem::transmute::<usize, Free>(FREE.load(Ordering::Relaxed))(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FREED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn free(object: *mut c_void) {
        FREED.store(object as usize, Ordering::Relaxed);
    }

    #[test]
    fn deaths_are_counted_and_happen() {
        let mut code_type = [0_usize; 16];
        code_type[FREE_OFFSET / 8] = free as Free as usize;
        let die = |code_type: &[usize; 16], object: usize| {
            // SAFETY: the function in the imitated type.
            unsafe { std::mem::transmute::<usize, Free>(code_type[FREE_OFFSET / 8])(object as *mut c_void) };
        };
        assert_eq!(counted(), None);
        // SAFETY: an imitation of a type.
        unsafe { count(code_type.as_mut_ptr() as usize) };
        let before = counted().expect("counting");
        die(&code_type, 8);
        assert_eq!((counted(), FREED.load(Ordering::Relaxed)), (Some(before + 1), 8));
        // SAFETY: as above; the function is not put before itself.
        unsafe { count(code_type.as_mut_ptr() as usize) };
        die(&code_type, 16);
        assert_eq!(FREED.load(Ordering::Relaxed), 16);
        stop();
        assert_eq!(counted(), None);
    }
}
