//! Keeps walks and the end of the interpreter apart.
//!
//! An interpreter that shuts down frees the states of all other threads, even of those that are
//! running and are about to walk through their frames. So every walk passes this gate; before the
//! interpreter shuts down, the gate is closed, and whoever is inside is waited for.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const STRIPE_COUNT: usize = 16;
/// A walk takes less than a microsecond; a thread may be off the processor meanwhile.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// Threads inside, on a cache line of its own.
#[repr(align(64))]
struct Stripe(AtomicU32);

pub(crate) struct Gate {
    is_closed: AtomicBool,
    /// The thread that shuts down the interpreter, and so need not be waited for; zero if unknown.
    main_thread: AtomicUsize,
    stripes: [Stripe; STRIPE_COUNT],
}

/// The right to walk, until dropped.
pub(crate) struct Pass<'a>(Option<&'a Stripe>);

impl Drop for Pass<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(stripe) = self.0 {
            stripe.0.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A number that no other running thread has.
#[inline(always)]
fn this_thread() -> usize {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as usize }
}

impl Gate {
    pub fn new() -> Self {
        Self {
            is_closed: AtomicBool::new(false),
            main_thread: AtomicUsize::new(0),
            stripes: std::array::from_fn(|_| Stripe(AtomicU32::new(0))),
        }
    }

    /// Lets the calling thread in, unless the gate is closed.
    #[inline(always)]
    pub fn enter(&self) -> Option<Pass<'_>> {
        let thread = this_thread();
        if thread == self.main_thread.load(Ordering::Relaxed) {
            return Some(Pass(None));
        }
        // Thread descriptors lie at the end of stacks, which differ by whole pages.
        let stripe = &self.stripes[(thread >> 12) % STRIPE_COUNT];
        // Sequentially consistent, as are the accesses in `close`: either it sees us, or we see it.
        stripe.0.fetch_add(1, Ordering::SeqCst);
        let pass = Pass(Some(stripe));
        (!self.is_closed.load(Ordering::SeqCst)).then_some(pass)
    }

    /// The calling thread is the one that shuts down the interpreter.
    pub fn note_main_thread(&self) {
        self.main_thread.store(this_thread(), Ordering::Relaxed);
    }

    /// Lets nobody in any more, except the main thread, and waits until everybody is out.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let started = Instant::now();
        // A thread that never comes out was stopped in the middle, for example by a fork.
        while self.stripes.iter().any(|stripe| stripe.0.load(Ordering::SeqCst) != 0) && started.elapsed() < LONGEST_WAIT
        {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_lets_in_only_the_main_thread() {
        let gate = Gate::new();
        gate.note_main_thread();
        let enters = || std::thread::scope(|scope| scope.spawn(|| gate.enter().is_some()).join().unwrap());
        assert!(enters());
        gate.close();
        assert!(!enters());
        assert!(gate.enter().is_some());
    }

    #[test]
    fn nobody_is_inside_once_it_is_closed() {
        let gate = Gate::new();
        gate.note_main_thread();
        let (inside, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        if let Some(_pass) = gate.enter() {
                            inside.fetch_add(1, Ordering::SeqCst);
                            std::thread::yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            for _ in 0..50 {
                gate.close();
                assert_eq!(inside.load(Ordering::SeqCst), 0);
                gate.is_closed.store(false, Ordering::SeqCst);
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
