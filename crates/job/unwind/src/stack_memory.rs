//! Reading a thread's stack without ever touching memory that may not be mapped.
//!
//! Words between the stack pointer and the end of the thread's own stack are read directly. All
//! other addresses (signal stacks, coroutines, nonsense) are read by asking the kernel to copy
//! them, which fails instead of faulting.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use msmemscope_courtesy::{Descriptor, uncancelled};

/// Copies of foreign memory are made in pieces of this size, which never straddle a page.
const PIECE_BYTES: u64 = 4096;
/// A main thread's stack is taken for contiguous up to this size; deeper is read through the kernel.
const LARGEST_MAIN_STACK_BYTES: u64 = 64 << 20;
/// An address no piece begins at.
const NO_PIECE: u64 = u64::MAX;

/// The stack of one thread, as far as it is known.
pub(crate) struct StackMemory {
    /// The thread's own stack; empty if unknown.
    low: u64,
    high: u64,
    bounds_known: bool,
    /// Lowest address the current walk may read directly.
    floor: u64,
    piece_address: u64,
    piece: [u64; PIECE_BYTES as usize / 8],
}

impl StackMemory {
    pub const fn new() -> Self {
        Self {
            low: 0,
            high: 0,
            bounds_known: false,
            floor: 0,
            piece_address: NO_PIECE,
            piece: [0; PIECE_BYTES as usize / 8],
        }
    }

    /// Prepares for a walk from this stack pointer.
    #[inline]
    pub fn begin(&mut self, stack_pointer: u64) {
        self.piece_address = NO_PIECE;
        if !self.bounds_known {
            self.find_bounds(stack_pointer);
        }
        let inside = self.low <= stack_pointer && stack_pointer < self.high;
        // A foreign stack makes the directly readable range empty.
        self.floor = if inside { stack_pointer } else { self.high };
    }

    /// The word at an address, if it can be read.
    #[inline]
    pub fn read(&mut self, address: u64) -> Option<u64> {
        self.read_directly(address).or_else(|| self.read_foreign(address))
    }

    /// The word at an address of the thread's own stack.
    #[inline(always)]
    pub fn read_directly(&self, address: u64) -> Option<u64> {
        // The end is a multiple of eight, so an aligned word that begins below it lies below it.
        let is_inside = address >= self.floor && address < self.high && address.is_multiple_of(8);
        // SAFETY: aligned and between the stack pointer and the end of this thread's stack, which is
        // mapped as long as the thread runs.
        is_inside.then(|| unsafe { (address as *const u64).read_volatile() })
    }

    #[cold]
    fn read_foreign(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) || address < PIECE_BYTES {
            return None;
        }
        let piece_address = address & !(PIECE_BYTES - 1);
        if self.piece_address != piece_address {
            self.piece_address = NO_PIECE;
            let copied = copy_own_memory(piece_address, &mut self.piece);
            if !copied {
                return None;
            }
            self.piece_address = piece_address;
        }
        self.piece.get((address - piece_address) as usize / 8).copied()
    }

    /// Finds the thread's own stack, once.
    #[cold]
    fn find_bounds(&mut self, stack_pointer: u64) {
        self.bounds_known = true;
        let contains = |(low, high): &(u64, u64)| *low <= stack_pointer && stack_pointer < *high;
        if let Some((low, high)) = main_stack().filter(contains).or_else(|| stack_of_thread().filter(contains)) {
            self.low = low;
            // Whole words, so that an aligned word that begins below the end also ends there.
            self.high = high & !7;
        }
    }
}

/// The stack the kernel made for the process, if this is its first thread: the lowest address it may grow to, and its
/// end. Reads no files, unlike what the C library does to answer the same question.
pub fn main_stack() -> Option<(u64, u64)> {
    // SAFETY: asks for numbers only.
    if unsafe { libc::syscall(libc::SYS_gettid) } != i64::from(unsafe { libc::getpid() }) {
        return None;
    }
    // SAFETY: looks a name up; the text ends with NUL.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker exports a pointer-sized variable under this name.
    let high = unsafe { *symbol.cast::<u64>() };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } != 0 {
        return None;
    }
    Some((high.checked_sub(limit.rlim_cur.min(LARGEST_MAIN_STACK_BYTES))?, high))
}

/// The stack of the calling thread, made by pthread_create: lowest address and end.
pub fn stack_of_thread() -> Option<(u64, u64)> {
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut address = core::ptr::null_mut();
    let mut length_bytes = 0;
    // SAFETY: the attributes are initialised by the first call, read by the second if the first
    // succeeded, and destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let result = libc::pthread_attr_getstack(attributes.as_ptr(), &mut address, &mut length_bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (result == 0).then_some((address as u64, (address as u64).checked_add(length_bytes as u64)?))
    }
}

/// Has the kernel copy memory of this process; false if it is not readable.
pub(crate) fn copy_own_memory(address: u64, piece: &mut [u64]) -> bool {
    static CALL_DENIED: AtomicBool = AtomicBool::new(false);
    let length_bytes = size_of_val(piece);
    if !CALL_DENIED.load(Relaxed) {
        let local = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: length_bytes };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length_bytes };
        // SAFETY: the kernel writes at most `length_bytes` to `piece` and checks the other address.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if copied == length_bytes as isize {
            return true;
        }
        // SAFETY: the address of errno is valid in every thread.
        let error = unsafe { *libc::__errno_location() };
        if copied >= 0 || error == libc::EFAULT {
            return false;
        }
        CALL_DENIED.store(true, Relaxed);
    }
    copy_through_file(address, piece)
}

/// The same through `/proc/self/mem`, for sandboxes that forbid the system call.
fn copy_through_file(address: u64, piece: &mut [u64]) -> bool {
    let Ok(offset) = libc::off_t::try_from(address) else { return false };
    let length_bytes = size_of_val(piece);
    uncancelled(|| {
        let Ok(file) = Descriptor::open(c"/proc/self/mem", libc::O_RDONLY) else { return false };
        // SAFETY: the descriptor is ours; the kernel writes at most `length_bytes` to `piece`.
        let copied = unsafe { libc::pread(file.number(), piece.as_mut_ptr().cast(), length_bytes, offset) };
        copied == length_bytes as isize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_stack_is_read_directly_and_foreign_memory_through_the_kernel() {
        for _ in 0..2 {
            let check = || {
                let mut memory = StackMemory::new();
                let local = 0x1234_5678_9abc_def0_u64;
                let address = &raw const local as u64;
                memory.begin(address);
                assert!(memory.high > address, "the stack of this thread is known");
                assert_eq!(memory.read(address), Some(local));
                assert_eq!(memory.piece_address, NO_PIECE, "no copy was needed");
                let boxed = Box::new([7_u64; 1024]);
                assert_eq!(memory.read(boxed.as_ptr() as u64), Some(7));
                assert_eq!(memory.read(boxed.as_ptr() as u64 + 1), None, "not aligned");
            };
            check();
            std::thread::spawn(check).join().expect("same in another thread");
        }
    }

    #[test]
    fn unreadable_memory_is_refused() {
        // SAFETY: a fresh mapping without access rights, used only by address.
        let guarded = unsafe {
            libc::mmap(core::ptr::null_mut(), 8192, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        } as u64;
        let mut memory = StackMemory::new();
        memory.begin(guarded + 64);
        assert_eq!(memory.read(guarded + 64), None);
        for address in [0, 8, 4096, u64::MAX - 7, u64::MAX, 1 << 63] {
            assert_eq!(memory.read(address), None);
        }
    }

    #[test]
    fn the_file_gives_the_same_bytes() {
        let source = Box::new([42_u64; 1024]);
        let mut piece = [0_u64; 512];
        let address = (source.as_ptr() as u64).next_multiple_of(8);
        assert!(copy_through_file(address, &mut piece));
        assert_eq!(piece, [42; 512]);
        assert!(!copy_through_file(8, &mut piece));
    }
}
