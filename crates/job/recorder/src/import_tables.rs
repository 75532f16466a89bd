//! Redirects imported functions of loaded libraries by writing to their import tables.
//!
//! For functions that must not be exported by name, and for libraries that were bound before this
//! one was loaded. Slots are written atomically. Pages that the loader made read-only are opened for
//! the write and closed again; pages that it is still going to close belong to a library that is
//! being loaded at this moment and are left to the next call.
//!
//! Frameworks have hundreds of thousands of imports. All names are looked for in one pass, and in none
//! if no library was loaded since the last.

use std::ffi::{CStr, CString, c_void};
use std::ops::{ControlFlow, Range};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use msmemscope_courtesy::Descriptor;

use crate::elf::{self, Module};
use crate::{errno, real};

#[cfg(target_arch = "x86_64")]
const ADDRESS_RELOCATIONS: [u32; 3] = [1, 6, 7];
#[cfg(target_arch = "aarch64")]
const ADDRESS_RELOCATIONS: [u32; 3] = [257, 1025, 1026];

const PAGE_BYTES: usize = 4096;

/// A name and what is called instead.
#[derive(Clone, Copy)]
pub struct Redirection<'a> {
    /// As it is imported.
    pub name: &'a CStr,
    /// Address of the function.
    pub replacement: *const c_void,
}

/// A redirection that is complete as long as no further library is loaded.
struct Settled {
    name: CString,
    replacement: usize,
    loads: u64,
}

static SETTLED: Mutex<Vec<Settled>> = Mutex::new(Vec::new());

/// Makes every loaded library but our own call the replacements when it means the names. Returns how
/// many slots were changed.
pub fn redirect(redirections: &[Redirection<'_>]) -> usize {
    errno::aside(|| {
        let loads = elf::load_count();
        // Only the thread that has forked goes on in a child: it cannot wait for others.
        let mut settled = SETTLED.try_lock().ok();
        let is_open = |redirection: &&Redirection<'_>| {
            !settled.iter().flat_map(|settled| settled.iter()).any(|settled| settled.holds(redirection, loads))
        };
        let open: Vec<_> = redirections.iter().filter(is_open).copied().collect();
        if open.is_empty() {
            return 0;
        }
        let pass = Pass::new(&open);
        let (mut changed, mut is_complete) = (0, true);
        elf::for_each_module(|module| {
            if !real::is_own(module) {
                let (in_module, complete) = pass.redirect_module(module);
                changed += in_module;
                is_complete &= complete;
            }
            ControlFlow::Continue(())
        });
        if let (Some(settled), true) = (&mut settled, is_complete) {
            open.iter().for_each(|redirection| redirection.note(settled, loads));
        }
        changed
    })
}

impl Settled {
    fn holds(&self, redirection: &Redirection<'_>, loads: u64) -> bool {
        self.loads == loads && self.replacement == redirection.replacement as usize && *self.name == *redirection.name
    }
}

impl Redirection<'_> {
    fn note(&self, settled: &mut Vec<Settled>, loads: u64) {
        let replacement = self.replacement as usize;
        match settled.iter_mut().find(|settled| *settled.name == *self.name) {
            Some(known) => (known.replacement, known.loads) = (replacement, loads),
            None => settled.push(Settled { name: self.name.into(), replacement, loads }),
        }
    }
}

/// One pass over all import tables.
struct Pass<'a> {
    redirections: &'a [Redirection<'a>],
    /// Whether a name begins with this byte.
    begins: [bool; 256],
    read_only: Vec<Range<usize>>,
}

impl<'a> Pass<'a> {
    fn new(redirections: &'a [Redirection<'a>]) -> Self {
        let mut begins = [false; 256];
        for redirection in redirections {
            begins[usize::from(redirection.name.to_bytes_with_nul()[0])] = true;
        }
        Self { redirections, begins, read_only: read_only_ranges() }
    }

    fn replacement_of(&self, name: &CStr) -> Option<usize> {
        // SAFETY: even an empty text has the zero at its end.
        let first = unsafe { *name.as_ptr() } as u8;
        if !self.begins[usize::from(first)] {
            return None;
        }
        self.redirections.iter().find(|known| known.name == name).map(|known| known.replacement as usize)
    }

    /// How many slots were changed, and whether none was left out.
    fn redirect_module(&self, module: &Module<'_>) -> (usize, bool) {
        let closed_by_loader = module.read_only_after_relocation();
        let (mut changed, mut is_complete) = (0, true);
        for relocation in module.relocations() {
            if !ADDRESS_RELOCATIONS.contains(&relocation.kind()) || relocation.symbol_index() == 0 {
                continue;
            }
            let Some(replacement) = self.replacement_of(module.symbol_name(relocation.symbol_index())) else {
                continue;
            };
            let slot = module.load_address + relocation.offset as usize;
            let is_closed = self.read_only.iter().any(|range| range.contains(&slot));
            let will_be_closed =
                closed_by_loader.is_some_and(|(start, length)| (start..start + length).contains(&slot));
            if will_be_closed && !is_closed {
                is_complete = false;
                continue;
            }
            // SAFETY: the relocation says that an address is stored here.
            let slot = unsafe { &*(slot as *const AtomicUsize) };
            if slot.load(Ordering::Relaxed) != replacement {
                let is_written = write(slot, replacement, is_closed);
                changed += usize::from(is_written);
                is_complete &= is_written;
            }
        }
        (changed, is_complete)
    }
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
    let maps = Descriptor::read_file(c"/proc/self/maps").unwrap_or_default();
    String::from_utf8_lossy(&maps).lines().filter_map(read_only_range).collect()
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
        let nothing = Redirection { name: c"no_such_function_anywhere", replacement: std::ptr::null() };
        assert_eq!(redirect(&[nothing]), 0);
    }

    #[test]
    fn tables_are_looked_at_again_once_a_library_was_loaded() {
        let redirection = Redirection { name: c"another_unknown_function", replacement: std::ptr::null() };
        let is_settled = || {
            let settled = SETTLED.lock().expect("not poisoned");
            settled.iter().any(|settled| settled.holds(&redirection, elf::load_count()))
        };
        // Other tests load libraries, too, and look at tables.
        let becomes_settled = || {
            (0..1000).any(|_| {
                redirect(&[redirection]);
                std::thread::yield_now();
                is_settled()
            })
        };
        assert!(!is_settled());
        assert!(becomes_settled());
        // SAFETY: a small library of glibc that nobody else uses here.
        assert!(!unsafe { libc::dlopen(c"libBrokenLocale.so.1".as_ptr(), libc::RTLD_NOW) }.is_null());
        assert!(!is_settled());
        assert!(becomes_settled());
    }

    // The test program is `is_own` here, so its own imports stay; the C library does not import this
    // name either, and the call below must reach the real function.
    #[test]
    fn own_imports_are_left_alone() {
        let changed = redirect(&[Redirection { name: c"getppid", replacement: counting_getppid as *const c_void }]);
        // SAFETY: always succeeds.
        let parent = unsafe { libc::getppid() };
        assert_ne!(parent, 77);
        assert_eq!((changed, CALLS.load(Ordering::Relaxed)), (0, 0));
    }
}
