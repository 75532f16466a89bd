//! What a thread needs for one piece of work at a time, once for every piece it has begun.
//!
//! A signal handler may interrupt a record in the making and make one of its own, on whatever stack; it may come back,
//! jump away for good, or switch to another user-level thread that is interrupted in turn. Nobody can tell these apart
//! from outside. So interrupted work keeps its workplace until it says itself that it is done, and whoever comes
//! meanwhile has another. Work that never goes on costs a workplace.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use msmemscope_courtesy::signals_blocked;

/// A workplace and whether it is in use.
#[repr(C)]
pub struct Workplace<Tools> {
    is_taken: AtomicU32,
    next: Cell<*const Workplace<Tools>>,
    tools: Tools,
}

/// The workplaces of one thread: one of its own, and spare ones once it needed them.
pub struct Workplaces<Tools> {
    own: Workplace<Tools>,
    spare: Cell<*const Workplace<Tools>>,
}

/// Somebody's workplace, until dropped.
pub struct Taken<'a, Tools>(&'a Workplace<Tools>);

impl<Tools> std::ops::Deref for Taken<'_, Tools> {
    type Target = Tools;

    #[inline(always)]
    fn deref(&self) -> &Tools {
        &self.0.tools
    }
}

impl<Tools> Drop for Taken<'_, Tools> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.is_taken.store(0, Ordering::Release);
    }
}

impl<Tools> Taken<'_, Tools> {
    /// Leaves the place to nobody, until [`Workplaces::reserved_own`] gives it back.
    pub fn reserve(self) {
        std::mem::forget(self);
    }
}

impl<Tools> Workplace<Tools> {
    const fn new(tools: Tools) -> Self {
        Self { is_taken: AtomicU32::new(0), next: Cell::new(std::ptr::null()), tools }
    }

    /// Takes the place in a single instruction, which no signal handler can interrupt. Other threads never try.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn take(&self) -> Option<Taken<'_, Tools>> {
        let flag = self.is_taken.as_ptr();
        // SAFETY: sets a bit of a word that is ours; without a lock prefix, as handlers run on the same processor.
        unsafe {
            core::arch::asm!("bts dword ptr [{}], 0", "jc {}", in(reg) flag, label { return None }, options(nostack));
        }
        Some(Taken(self))
    }

    /// Takes the place at once, so that no signal handler comes in between.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn take(&self) -> Option<Taken<'_, Tools>> {
        (self.is_taken.swap(1, Ordering::Acquire) == 0).then(|| Taken(self))
    }
}

impl<Tools> Workplaces<Tools> {
    /// One workplace.
    pub const fn new(tools: Tools) -> Self {
        Self { own: Workplace::new(tools), spare: Cell::new(std::ptr::null()) }
    }

    /// The thread's own workplace, unless somebody is at work there.
    #[inline(always)]
    pub fn take_own(&self) -> Option<Taken<'_, Tools>> {
        self.own.take()
    }

    /// The thread's own workplace, by whoever has reserved it.
    pub fn reserved_own(&self) -> Taken<'_, Tools> {
        Taken(&self.own)
    }

    /// A spare workplace; nothing if memory is short.
    #[cold]
    pub fn take_spare(&self, equip: impl FnOnce() -> Tools) -> Option<Taken<'_, Tools>> {
        let mut place = self.spare.get();
        // SAFETY: spare places are only taken down when their thread ends.
        while let Some(spare) = unsafe { place.as_ref() } {
            if let Some(taken) = spare.take() {
                return Some(taken);
            }
            place = spare.next.get();
        }
        signals_blocked(|| self.add_spare(equip()))
    }

    fn add_spare(&self, tools: Tools) -> Option<Taken<'_, Tools>> {
        let place = Workplace::new(tools);
        place.is_taken.store(1, Ordering::Relaxed);
        place.next.set(self.spare.get());
        // SAFETY: a fresh mapping, large enough and aligned to a page. Memory of the allocator would not do: a handler
        // may have interrupted it.
        let spare = unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let memory = libc::mmap(std::ptr::null_mut(), size_of::<Workplace<Tools>>(), protection, flags, -1, 0);
            if memory == libc::MAP_FAILED {
                return None;
            }
            let memory = memory.cast::<Workplace<Tools>>();
            memory.write(place);
            &*memory
        };
        self.spare.set(spare);
        Some(Taken(spare))
    }

    /// Clears up every workplace that nobody uses, when the thread ends. The others are left to those who are there.
    pub fn clear_up(&self, mut clear: impl FnMut(&Tools)) {
        if let Some(own) = self.own.take() {
            clear(&own);
        }
        signals_blocked(|| {
            let mut place = self.spare.replace(std::ptr::null());
            // SAFETY: no handler runs, so nobody but us takes spare places.
            while let Some(spare) = unsafe { place.as_ref() } {
                let address = place.cast_mut();
                place = spare.next.get();
                if let Some(taken) = spare.take() {
                    clear(&taken);
                    std::mem::forget(taken);
                    // SAFETY: our mapping, and no longer used. The tools are gone with it; clearing them was our part.
                    unsafe { libc::munmap(address.cast(), size_of::<Workplace<Tools>>()) };
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_goes_on_keeps_its_place() {
        let places = Workplaces::new(Cell::new(0));
        let own = places.take_own().expect("nobody is there");
        assert!(places.take_own().is_none());
        let spare = places.take_spare(|| Cell::new(1)).expect("memory");
        let other = places.take_spare(|| Cell::new(2)).expect("memory");
        assert_eq!((own.get(), spare.get(), other.get()), (0, 1, 2));
        drop(spare);
        let again = places.take_spare(|| unreachable!("a place is free")).expect("the free one");
        assert_eq!(again.get(), 1);
        drop(own);
        assert_eq!(places.take_own().expect("nobody is there any more").get(), 0);
    }

    #[test]
    fn what_is_in_use_is_not_cleared_up() {
        let places = Workplaces::new(Cell::new(0));
        let abandoned = places.take_own().expect("nobody is there");
        let spare = places.take_spare(|| Cell::new(1)).expect("memory");
        drop(places.take_spare(|| Cell::new(2)).expect("memory"));
        let mut cleared = Vec::new();
        places.clear_up(|tools| cleared.push(tools.get()));
        assert_eq!(cleared, [2]);
        drop((abandoned, spare));
        places.clear_up(|tools| cleared.push(tools.get()));
        assert_eq!(cleared, [2, 0]);
    }
}
