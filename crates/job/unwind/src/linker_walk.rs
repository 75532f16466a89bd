//! Walks over the loaded objects that a fork cannot interrupt.
//!
//! `dl_iterate_phdr` holds a lock of the dynamic linker. If one thread forks while another one walks, the child has that
//! lock for ever (glibc before 2.37 does not reset it), and its first walk never ends. So walks and forks exclude each
//! other here: a fork waits for walks under way, which are short.
//!
//! Signals wait as well. Both locks may be taken again by the thread that holds them, but between taking a lock and
//! noting who did, a thread does not know that it holds it: a handler that walks in that moment would wait for itself.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use msmemscope_courtesy::signals_blocked;

/// What the linker calls for every object.
pub type Visitor = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// A lock that a thread may take again: what a walk visits may fault, and the handler of that walk or fork.
struct WalkLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: made to be used by several threads.
unsafe impl Sync for WalkLock {}

static WALK_LOCK: WalkLock = WalkLock(UnsafeCell::new(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP));
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn before_fork() {
    // SAFETY: initialized above, never destroyed.
    signals_blocked(|| unsafe { libc::pthread_mutex_lock(WALK_LOCK.0.get()) });
}

unsafe extern "C" fn after_fork_in_parent() {
    // SAFETY: locked by this thread in `before_fork`.
    signals_blocked(|| unsafe { libc::pthread_mutex_unlock(WALK_LOCK.0.get()) });
}

unsafe extern "C" fn after_fork_in_child() {
    // SAFETY: the only thread of the child, and nobody walks. The lock knows its owner by a thread id that the child
    // does not have, so it cannot be unlocked.
    unsafe { WALK_LOCK.0.get().write(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP) };
}

/// Calls `visitor` for every loaded object until it returns something else than 0.
///
/// # Safety
/// `visitor` can be called with `data`, and neither forks nor unwinds.
pub unsafe fn walk(visitor: Visitor, data: *mut c_void) {
    if !IS_PREPARED.swap(true, Ordering::Relaxed) {
        // SAFETY: functions of this library, which the C library forgets when it is unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child)) };
    }
    // SAFETY: the lock is initialized; the rest is promised by the caller.
    signals_blocked(|| unsafe {
        libc::pthread_mutex_lock(WALK_LOCK.0.get());
        libc::dl_iterate_phdr(Some(visitor), data);
        libc::pthread_mutex_unlock(WALK_LOCK.0.get());
    });
}

#[cfg(test)]
mod tests {
    use super::walk;
    use core::ffi::{c_int, c_void};
    use core::sync::atomic::{AtomicBool, Ordering};

    unsafe extern "C" fn count(_: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the counter passed below.
        unsafe { *data.cast::<u64>() += 1 };
        0
    }

    fn objects() -> u64 {
        let mut objects = 0_u64;
        // SAFETY: the visitor takes a counter.
        unsafe { walk(count, (&raw mut objects).cast()) };
        objects
    }

    #[test]
    fn a_child_forked_during_walks_can_walk() {
        let stop = AtomicBool::new(false);
        assert!(objects() > 1);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        objects();
                    }
                });
            }
            let failed = (0..200).map(|_| status_of_a_child_that_walks()).find(|status| *status != 0);
            stop.store(true, Ordering::Relaxed);
            assert_eq!(failed, None, "a child waited for ever");
        });
    }

    /// Not 0 if the child had to be ended because it waited for ever.
    fn status_of_a_child_that_walks() -> c_int {
        const PATIENCE_SECONDS: u32 = 30;
        // SAFETY: the child only walks, which needs nothing that other threads may hold, and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(PATIENCE_SECONDS);
                libc::_exit(c_int::from(objects() < 2));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0);
            status
        }
    }

    extern "C" fn walk_in_handler(_: c_int) {
        objects();
    }

    #[test]
    fn a_walk_interrupted_by_a_handler_that_walks_goes_on() {
        const WALKS: u32 = 100_000;
        const INTERVAL_US: libc::suseconds_t = 20;
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
        // SAFETY: the child only walks, in a handler as well, and ends; the parent waits for it.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::signal(libc::SIGALRM, walk_in_handler as *const () as libc::sighandler_t);
                let interval = libc::timeval { tv_sec: 0, tv_usec: INTERVAL_US };
                let often = libc::itimerval { it_interval: interval, it_value: interval };
                libc::setitimer(libc::ITIMER_REAL, &raw const often, core::ptr::null_mut());
                (0..WALKS).for_each(|_| assert!(objects() > 1));
                libc::_exit(0);
            }
            let (started, mut status) = (std::time::Instant::now(), -1);
            while libc::waitpid(child, &raw mut status, libc::WNOHANG) == 0 {
                if started.elapsed() > PATIENCE {
                    libc::kill(child, libc::SIGKILL);
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(status, 0, "the handler waited for ever");
        }
    }
}
