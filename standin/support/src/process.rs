//! State of one process. A forked child must not see its parent's device memory, locks or log file, however it
//! was forked; `atfork` handlers miss raw `clone`, so the pointer to the state lives on a page the kernel wipes.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The wiped page: all zero in a new process and in every forked child.
struct Page {
    building: AtomicU32,
    value: AtomicPtr<u8>,
}

/// A lazily built value of type `T` per process. A child of `fork` builds its own; the copy inherited from the
/// parent is forgotten, never dropped (its locks may be held by threads that do not exist in the child).
pub struct ProcessCell<T> {
    page: AtomicPtr<Page>,
    /// The latest value built here, where leak checkers look: they do not know the page.
    latest: AtomicPtr<u8>,
    value: PhantomData<T>,
}

impl<T: Send + Sync> ProcessCell<T> {
    /// A cell without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            page: AtomicPtr::new(std::ptr::null_mut()),
            latest: AtomicPtr::new(std::ptr::null_mut()),
            value: PhantomData,
        }
    }

    /// The value of this process, built by `build` on first use. `build` must not use the cell itself.
    pub fn get(&self, build: impl FnOnce() -> T) -> &T {
        let page = self.page();
        let existing = page.value.load(Ordering::Acquire).cast::<T>();
        // SAFETY: a non-null pointer was published by `build_value` below in this process and is never freed.
        if let Some(value) = unsafe { existing.as_ref() } { value } else { self.build_value(page, build) }
    }

    #[cold]
    fn build_value<'page>(&self, page: &'page Page, build: impl FnOnce() -> T) -> &'page T {
        if page.building.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let value = Box::into_raw(Box::new(build()));
            self.latest.store(value.cast(), Ordering::Relaxed);
            page.value.store(value.cast(), Ordering::Release);
        }
        loop {
            let value = page.value.load(Ordering::Acquire).cast::<T>();
            // SAFETY: as in `get`.
            if let Some(value) = unsafe { value.as_ref() } {
                return value;
            }
            std::thread::yield_now();
        }
    }

    fn page(&self) -> &Page {
        let existing = self.page.load(Ordering::Acquire);
        // SAFETY: a non-null pointer is a live mapping published below; it is never unmapped.
        if let Some(page) = unsafe { existing.as_ref() } { page } else { self.map_page() }
    }

    #[cold]
    fn map_page(&self) -> &Page {
        let length = std::mem::size_of::<Page>();
        // SAFETY: a fresh anonymous mapping; nothing else refers to it yet.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(mapped, libc::MAP_FAILED, "stand-in device: no memory for a single page");
        // SAFETY: the mapping above, whole pages; a failure only means that fork is not noticed.
        unsafe { libc::madvise(mapped, length, libc::MADV_WIPEONFORK) };
        let fresh = mapped.cast::<Page>();
        match self.page.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the mapping is zero-filled, which is a valid `Page`, and lives for the whole process.
            Ok(_) => unsafe { &*fresh },
            Err(winner) => {
                // SAFETY: our mapping was not published; the winner's is valid as in `page`.
                unsafe {
                    libc::munmap(mapped, length);
                    &*winner
                }
            }
        }
    }
}

impl<T: Send + Sync> Default for ProcessCell<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessCell;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_forked_child_builds_its_own_value() {
        static CELL: ProcessCell<u32> = ProcessCell::new();
        let parent = *CELL.get(std::process::id);
        assert_eq!(parent, std::process::id());
        // SAFETY: the child only reads the cell and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = *CELL.get(|| 7);
            // SAFETY: ends the forked child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(own != 7)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child forked above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(*CELL.get(|| 9), parent);
    }

    #[test]
    fn many_threads_build_one_value() {
        static CELL: ProcessCell<u32> = ProcessCell::new();
        static BUILDS: AtomicU32 = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| assert_eq!(*CELL.get(|| BUILDS.fetch_add(1, Ordering::Relaxed) + 40), 40));
            }
        });
        assert_eq!(BUILDS.load(Ordering::Relaxed), 1);
    }
}
