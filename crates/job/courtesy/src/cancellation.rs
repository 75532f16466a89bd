//! `pthread_cancel` takes effect in the next system call that may wait, and unwinds the stack from there. Our own calls
//! are none that the job knows of, and its stack below them must not be unwound: the C library ends the process where
//! that meets a frame that stops unwinding.

use core::ffi::c_int;

/// `PTHREAD_CANCEL_DISABLE` of Linux.
const DISABLED: c_int = 1;

unsafe extern "C" {
    /// Changes whether this thread can be cancelled, and gives what was before.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Puts the state back, also when the work ends by a panic.
struct Restored(c_int);

impl Drop for Restored {
    fn drop(&mut self) {
        let mut ours = 0;
        // SAFETY: a state that was in force before, and a place for the present one.
        unsafe { pthread_setcancelstate(self.0, &mut ours) };
    }
}

/// Runs `work`; a cancellation of this thread waits until later.
pub fn uncancelled<Value>(work: impl FnOnce() -> Value) -> Value {
    let mut before = 0;
    // SAFETY: a valid state, and a place for the present one.
    unsafe { pthread_setcancelstate(DISABLED, &mut before) };
    let _restored = Restored(before);
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> c_int {
        let (mut before, mut ours) = (0, 0);
        // SAFETY: asks by changing the state and changing it back.
        unsafe {
            pthread_setcancelstate(DISABLED, &mut before);
            pthread_setcancelstate(before, &mut ours);
        }
        before
    }

    #[test]
    fn the_state_is_put_back_also_after_a_panic() {
        let before = state();
        assert_ne!(before, DISABLED);
        assert_eq!(uncancelled(|| uncancelled(state)), DISABLED);
        assert_eq!(state(), before);
        assert!(std::panic::catch_unwind(|| uncancelled(|| panic!("on purpose"))).is_err());
        assert_eq!(state(), before);
    }
}
