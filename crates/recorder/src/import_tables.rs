//! Redirects imported functions of loaded libraries by writing to their import tables.
//!
//! For functions that must not be exported by name, and for libraries that were bound before this
//! one was loaded. Slots are written atomically. Pages that the loader made read-only are opened for
//! the write and closed again; pages that it is still going to close belong to a library that is
//! being loaded at this moment and are left to the next call.

use std::ffi::{CStr, c_void};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::elf::{self, Module};
use crate::{errno, real};

#[cfg(target_arch = "x86_64")]
const ADDRESS_RELOCATIONS: [u32; 3] = [1, 6, 7];
#[cfg(target_arch = "aarch64")]
const ADDRESS_RELOCATIONS: [u32; 3] = [257, 1025, 1026];

const PAGE_BYTES: usize = 4096;

/// Makes every loaded library but our own call `replacement` when it means `name`. Returns how many
/// slots were changed.
pub fn redirect(name: &CStr, replacement: *const c_void) -> usize {
    errno::preserved(|| {
        let read_only = read_only_ranges();
        let mut changed = 0;
        elf::for_each_module(|module| {
            if !real::is_own(module) {
                changed += redirect_module(module, name, replacement as usize, &read_only);
            }
            ControlFlow::Continue(())
        });
        changed
    })
}

fn redirect_module(module: &Module<'_>, name: &CStr, replacement: usize, read_only: &[Range<usize>]) -> usize {
    let closed_by_loader = module.read_only_after_relocation();
    let mut changed = 0;
    for relocation in module.relocations() {
        let imports = ADDRESS_RELOCATIONS.contains(&relocation.kind()) && relocation.symbol_index() != 0;
        if !imports || module.symbol_name(relocation.symbol_index()) != name {
            continue;
        }
        let slot = module.load_address + relocation.offset as usize;
        let is_closed = read_only.iter().any(|range| range.contains(&slot));
        let will_be_closed = closed_by_loader.is_some_and(|(start, length)| (start..start + length).contains(&slot));
        if will_be_closed && !is_closed {
            continue;
        }
        // SAFETY: the relocation says that an address is stored here.
        let slot = unsafe { &*(slot as *const AtomicUsize) };
        if slot.load(Ordering::Relaxed) != replacement && write(slot, replacement, is_closed) {
            changed += 1;
        }
    }
    changed
}

/// Stores a value in a slot whose page may be read-only.
fn write(slot: &AtomicUsize, value: usize, is_closed: bool) -> bool {
    if !is_closed {
        slot.store(value, Ordering::Release);
        return true;
    }
    let page = (std::ptr::from_ref(slot) as usize & !(PAGE_BYTES - 1)) as *mut c_void;
    // SAFETY: the page holds the slot; it gets back the protection it had.
    unsafe {
        if libc::mprotect(page, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return false;
        }
        slot.store(value, Ordering::Release);
        libc::mprotect(page, PAGE_BYTES, libc::PROT_READ);
    }
    true
}

/// Mapped ranges that can be read but neither written nor executed.
fn read_only_ranges() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(read_only_range).collect()
}

fn read_only_range(line: &str) -> Option<Range<usize>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    rest.starts_with("r--").then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    static CALLS: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn counting_getppid() -> libc::pid_t {
        CALLS.fetch_add(1, Ordering::Relaxed);
        77
    }

    #[test]
    fn lines_of_the_map_are_read() {
        assert_eq!(read_only_range("7f00-7f10 r--p 00000000 08:01 5 /lib/x.so"), Some(0x7f00..0x7f10));
        assert_eq!(read_only_range("7f00-7f10 rw-p 00000000 08:01 5 /lib/x.so"), None);
        assert_eq!(read_only_range("7f00-7f10 r-xp 00000000 08:01 5 /lib/x.so"), None);
        assert_eq!(read_only_range(""), None);
    }

    #[test]
    fn nothing_is_changed_for_unknown_names() {
        assert_eq!(redirect(c"no_such_function_anywhere", std::ptr::null()), 0);
    }

    // The test program is `is_own` here, so its own imports stay; the C library does not import this
    // name either, and the call below must reach the real function.
    #[test]
    fn own_imports_are_left_alone() {
        let changed = redirect(c"getppid", counting_getppid as *const c_void);
        // SAFETY: always succeeds.
        let parent = unsafe { libc::getppid() };
        assert_ne!(parent, 77);
        assert_eq!((changed, CALLS.load(Ordering::Relaxed)), (0, 0));
    }
}
