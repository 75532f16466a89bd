//! Asking the dynamic linker which object is mapped at an address.
//!
//! glibc 2.35 and later answer without a lock (`_dl_find_object`). Older ones are asked by walking
//! all objects, which takes a lock of the linker and is therefore done rarely; see [`crate::modules`].

use crate::linker_walk;
use core::ffi::{CStr, c_char, c_int, c_void};

/// What the linker knows about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadedObject {
    /// Start of the mapping.
    pub map_start: u64,
    /// The linker's own record, which changes when an object is loaded anew; zero if unknown.
    pub link_map: u64,
    /// What to subtract from an address to get one of the file.
    pub load_bias: u64,
    /// Path as the linker was given it; empty for the program itself.
    pub path: Vec<u8>,
}

/// A cheap answer: is this still the same object?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectIdentity {
    pub map_start: u64,
    pub link_map: u64,
}

#[repr(C)]
struct FindObjectResult {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut LinkMap,
    eh_frame: *mut c_void,
    reserved: [u64; 11],
}

/// The public head of the linker's record.
#[repr(C)]
struct LinkMap {
    load_bias: u64,
    name: *const c_char,
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut FindObjectResult) -> c_int;

/// The lock-free question, where glibc has it.
#[derive(Clone, Copy)]
pub(crate) struct ObjectFinder(FindObject);

impl ObjectFinder {
    /// Looks the function up.
    pub fn new() -> Option<Self> {
        // SAFETY: looks a name up; the text ends with NUL.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        // SAFETY: glibc documents a function with this signature under this name.
        (!symbol.is_null()).then(|| Self(unsafe { core::mem::transmute::<*mut c_void, FindObject>(symbol) }))
    }

    #[inline]
    fn find(self, address: u64) -> Option<FindObjectResult> {
        let mut result = core::mem::MaybeUninit::<FindObjectResult>::zeroed();
        // SAFETY: the function only compares the address and fills the result, which is larger than
        // what glibc writes.
        if unsafe { (self.0)(address as *mut c_void, result.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: all-zero is a valid value and success means it was filled.
        Some(unsafe { result.assume_init() })
    }

    /// Identity of the object at an address.
    #[inline]
    pub fn identity(self, address: u64) -> Option<ObjectIdentity> {
        let found = self.find(address)?;
        Some(ObjectIdentity { map_start: found.map_start as u64, link_map: found.link_map as u64 })
    }

    /// Everything about the object at an address that is being executed by this thread.
    pub fn describe(self, address: u64) -> Option<LoadedObject> {
        let found = self.find(address)?;
        if found.link_map.is_null() {
            return None;
        }
        // SAFETY: the record lives as long as its object is loaded, and an object whose code is on
        // the stack of the running thread is.
        let (load_bias, name) = unsafe { ((*found.link_map).load_bias, (*found.link_map).name) };
        Some(LoadedObject {
            map_start: found.map_start as u64,
            link_map: found.link_map as u64,
            load_bias,
            path: copy_text(name),
        })
    }
}

fn copy_text(text: *const c_char) -> Vec<u8> {
    if text.is_null() {
        return Vec::new();
    }
    // SAFETY: names of loaded objects end with NUL.
    unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()
}

/// How often objects were loaded and unloaded so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadCounters {
    pub loaded: u64,
    pub unloaded: u64,
}

/// The counters, through the lock of the linker.
pub(crate) fn load_counters() -> LoadCounters {
    let mut counters = LoadCounters::default();
    walk_objects(|information| {
        counters = LoadCounters { loaded: information.dlpi_adds, unloaded: information.dlpi_subs };
        false
    });
    counters
}

/// Shows every object to `visit` until it says false. The lock of the linker is held meanwhile, so
/// no object goes away.
pub(crate) fn visit_objects(mut visit: impl FnMut(LoadedObject) -> bool) {
    walk_objects(|information| {
        // SAFETY: the linker passes a valid table of `dlpi_phnum` headers.
        let headers =
            unsafe { core::slice::from_raw_parts(information.dlpi_phdr, usize::from(information.dlpi_phnum)) };
        let first = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(|header| header.p_vaddr).min();
        let Some(first) = first else { return true };
        visit(LoadedObject {
            map_start: information.dlpi_addr.wrapping_add(first) & !0xfff,
            link_map: 0,
            load_bias: information.dlpi_addr,
            path: copy_text(information.dlpi_name),
        })
    });
}

/// Calls `visit` for every object until it says false.
fn walk_objects<F: FnMut(&libc::dl_phdr_info) -> bool>(mut visit: F) {
    unsafe extern "C" fn callback<F: FnMut(&libc::dl_phdr_info) -> bool>(
        information: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the closure passed below, alive and not used elsewhere during the walk.
        let visit = unsafe { &mut *data.cast::<F>() };
        // SAFETY: the linker passes a valid record.
        c_int::from(!visit(unsafe { &*information }))
    }
    // SAFETY: the callback has the required signature and the closure outlives the call.
    unsafe { linker_walk::walk(callback::<F>, (&raw mut visit).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_objects() {
        let mut objects = Vec::new();
        visit_objects(|object| {
            objects.push(object);
            true
        });
        assert!(objects.len() >= 2, "the program and the C library at least");
        let Some(finder) = ObjectFinder::new() else { return };
        for address in [both_ways_find_the_same_objects as *const () as u64, libc::getpid as *const () as u64] {
            let found = finder.describe(address).expect("loaded");
            assert_eq!(finder.identity(address).map(|identity| identity.map_start), Some(found.map_start));
            let walked = objects.iter().find(|object| object.map_start == found.map_start).expect("same start");
            assert_eq!((walked.load_bias, &walked.path), (found.load_bias, &found.path));
        }
        assert_eq!(finder.identity(8), None);
    }

    #[test]
    fn counters_count() {
        assert!(load_counters().loaded > 0);
    }
}
