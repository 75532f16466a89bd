//! How much of the stack is left to a thread: slow work on a small one would run over its end.
//!
//! Threads may have stacks of 16 KiB, signal handlers stacks of 8 KiB, of which the kernel itself takes a good part.
//! Where a stack ends is asked once per thread, when that is first needed. Where nobody can say, as on the stacks of
//! user-level threads, there is room.

use std::cell::Cell;

/// The stack of this thread: lowest address and end.
struct Bounds {
    low: Cell<usize>,
    high: Cell<usize>,
    are_asked: Cell<bool>,
}

thread_local! {
    static BOUNDS: Bounds = const { Bounds { low: Cell::new(0), high: Cell::new(0), are_asked: Cell::new(false) } };
}

/// Whether this much of the stack is left, for work that may allocate.
#[inline(always)]
pub fn has(bytes: usize) -> bool {
    BOUNDS.with(|bounds| {
        let marker = Cell::new(0u8);
        let here = marker.as_ptr() as usize;
        let (low, high) = (bounds.low.get(), bounds.high.get());
        if low <= here && here < high { here - low >= bytes } else { has_elsewhere(bounds, here, bytes) }
    })
}

/// As [`has`], as far as that is known without asking; for work in signal handlers, too.
#[cold]
pub fn is_not_known_to_lack(bytes: usize) -> bool {
    BOUNDS.with(|bounds| {
        let marker = Cell::new(0u8);
        let here = marker.as_ptr() as usize;
        let (low, high) = (bounds.low.get(), bounds.high.get());
        let is_own = low <= here && here < high;
        if is_own { here - low >= bytes } else { signal_stack_has(here, bytes).unwrap_or(true) }
    })
}

#[cold]
#[inline(never)]
fn has_elsewhere(bounds: &Bounds, here: usize, bytes: usize) -> bool {
    if let Some(answer) = signal_stack_has(here, bytes) {
        return answer;
    }
    if !bounds.are_asked.replace(true) {
        // SAFETY: only asks.
        let is_main_thread = unsafe { libc::syscall(libc::SYS_gettid) } == i64::from(unsafe { libc::getpid() });
        // The C library would read files to find the main thread's.
        let find = if is_main_thread { msmemscope_unwind::main_stack } else { msmemscope_unwind::stack_of_thread };
        if let Some((low, high)) = find() {
            bounds.low.set(low as usize);
            bounds.high.set(high as usize);
        }
    }
    let (low, high) = (bounds.low.get(), bounds.high.get());
    !(low <= here && here < high) || here - low >= bytes
}

/// Whether this much is left of the signal stack, if this is one.
fn signal_stack_has(here: usize, bytes: usize) -> Option<bool> {
    // SAFETY: plain old data.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; the result outlives the call.
    let is_known = unsafe { libc::sigaltstack(std::ptr::null(), &mut stack) } == 0;
    let low = stack.ss_sp as usize;
    (is_known && low <= here && here < low + stack.ss_size).then(|| here - low >= bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_thread_has_little_room() {
        let asked = || (has(1 << 10), has(1 << 20), is_not_known_to_lack(1 << 20));
        let small = std::thread::Builder::new().stack_size(64 << 10).spawn(asked).expect("a thread");
        assert_eq!(small.join().expect("an answer"), (true, false, false));
        let large = std::thread::Builder::new().stack_size(4 << 20).spawn(asked).expect("a thread");
        assert_eq!(large.join().expect("an answer"), (true, true, true));
    }
}
