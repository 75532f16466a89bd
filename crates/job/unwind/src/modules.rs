//! The modules that appeared in stacks, and whether they are still the ones that are loaded.
//!
//! A module is recorded when an address of it is first met. Records are only ever added, so readers
//! take no lock. A module that was unloaded is marked as gone; one that comes back unchanged at the
//! same place gets its old record.

use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use msmemscope_courtesy::uncancelled;

use crate::dynamic_linker::{LoadCounters, LoadedObject, ObjectFinder, load_counters, visit_objects};
use crate::elf::{ProgramHeaders, find_build_id};
use crate::registers::architecture::SIGNAL_TRAMPOLINE;
use crate::rule::{LARGEST_MODULE_INDEX, ModuleIndex, Rule, RuleKind};
use crate::tables::Tables;

/// How much of an image is looked at for its headers: its first page.
const HEADER_PAGE_BYTES: usize = 4096;
/// How often a thread looks whether another one has finished loading a module.
const LARGEST_WAIT_ROUNDS: u32 = 200;
const WAIT_ROUND_NS: i64 = 50_000;
/// How much of start and end of a section tells builds apart.
const LARGEST_SAMPLE_BYTES: u64 = 512;

/// One module at one place.
pub(crate) struct Module {
    pub index: ModuleIndex,
    /// Lowest mapped address.
    pub start: u64,
    /// End of what is loaded.
    pub end: u64,
    /// What to subtract from an address to get one of the file.
    pub load_bias: u64,
    pub path: Vec<u8>,
    pub build_id: Vec<u8>,
    headers: ProgramHeaders,
    tables: Option<Tables>,
    map_start: u64,
    /// The linker's record while it is loaded.
    link_map: AtomicU64,
    witness: Witness,
    gone: AtomicBool,
    /// In which generation of the recording the module was written down; zero is never.
    pub defined_in: AtomicU64,
}

/// What tells one build of a module from another by looking at the loaded image.
struct Witness {
    /// The headers, if the content lies where only they say that something is mapped.
    headers: Option<Sample>,
    /// The build id, or the unwind tables where there is none.
    content: Option<Sample>,
}

impl Witness {
    /// Whether the image still looks the same.
    ///
    /// # Safety
    /// An image is mapped at the same place.
    #[inline]
    unsafe fn is_unchanged(&self) -> bool {
        // SAFETY: an image begins with its headers; if these are unchanged, its segments lie where
        // they did, so the content is mapped. Without headers the content is on the first page.
        unsafe {
            self.headers.as_ref().is_none_or(|headers| headers.is_unchanged())
                && self.content.as_ref().is_none_or(|content| content.is_unchanged())
        }
    }
}

/// Begin and end of a stretch of memory.
struct Sample {
    first: u64,
    last: u64,
    length_bytes: u64,
    checksum: u64,
}

impl Sample {
    /// # Safety
    /// The stretch is mapped.
    unsafe fn new(address: u64, size_bytes: u64) -> Self {
        let length_bytes = size_bytes.min(LARGEST_SAMPLE_BYTES) & !7;
        let mut sample = Self { first: address, last: address + size_bytes - length_bytes, length_bytes, checksum: 0 };
        // SAFETY: as promised by the caller.
        sample.checksum = unsafe { sample.current_checksum() };
        sample
    }

    /// # Safety
    /// The stretch is mapped.
    #[inline]
    unsafe fn is_unchanged(&self) -> bool {
        // SAFETY: as promised by the caller.
        unsafe { self.current_checksum() == self.checksum }
    }

    /// # Safety
    /// The stretch is mapped.
    #[inline]
    unsafe fn current_checksum(&self) -> u64 {
        let mut sum = 0_u64;
        for offset in (0..self.length_bytes).step_by(8) {
            // SAFETY: both places are within the stretch, which the caller says is mapped.
            let (begin, end) = unsafe {
                (
                    ((self.first + offset) as *const u64).read_unaligned(),
                    ((self.last + offset) as *const u64).read_unaligned(),
                )
            };
            sum = (sum.rotate_left(9) ^ begin).wrapping_add(end.rotate_left(32));
        }
        sum
    }
}

impl Module {
    #[inline]
    fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// Whether it was found to be unloaded.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Marks it as unloaded; true for the one caller that did it.
    pub fn mark_gone(&self) -> bool {
        !self.gone.swap(true, AcqRel)
    }

    /// How to step out of the function at an address.
    pub fn rule(&self, address: u64, exact: bool) -> Rule {
        let file_address = address.wrapping_sub(self.load_bias);
        let rule = self.tables.as_ref().map(|tables| tables.rule(file_address, exact));
        match rule {
            Some(rule) if rule.kind != RuleKind::NoInformation => rule,
            _ if self.is_signal_trampoline(address) => Rule::plain(RuleKind::SignalFrame),
            _ => Rule::plain(RuleKind::NoInformation),
        }
    }

    /// Whether the code at an address returns from a signal handler. Some trampolines have no tables.
    fn is_signal_trampoline(&self, address: u64) -> bool {
        let length_bytes = SIGNAL_TRAMPOLINE.len();
        if !self.contains(address) || self.end - address < length_bytes as u64 {
            return false;
        }
        // SAFETY: code of a module that is loaded now, because the running thread will return to it.
        let code = unsafe { core::slice::from_raw_parts(address as *const u8, length_bytes) };
        code == SIGNAL_TRAMPOLINE
    }
}

/// All modules met so far.
pub(crate) struct ModuleRegistry {
    finder: Option<ObjectFinder>,
    modules: Box<[AtomicPtr<Module>]>,
    count: AtomicUsize,
    /// The process whose thread is adding a record; zero if none is.
    loading: AtomicI32,
    seen_loaded: AtomicU64,
    seen_unloaded: AtomicU64,
}

impl ModuleRegistry {
    /// An empty registry. Without a finder the linker is asked by walking all objects.
    pub fn new(finder: Option<ObjectFinder>) -> Self {
        let slots = usize::from(LARGEST_MODULE_INDEX) + 1;
        Self {
            finder,
            modules: (0..slots).map(|_| AtomicPtr::new(core::ptr::null_mut())).collect(),
            count: AtomicUsize::new(1),
            loading: AtomicI32::new(0),
            seen_loaded: AtomicU64::new(0),
            seen_unloaded: AtomicU64::new(0),
        }
    }

    /// The record of an index.
    #[inline]
    pub fn get(&self, index: ModuleIndex) -> Option<&'static Module> {
        let pointer = self.modules.get(usize::from(index))?.load(Acquire);
        // SAFETY: records are leaked boxes, published once and never changed but through atomics.
        unsafe { pointer.as_ref() }
    }

    /// Whether `module` is what is loaded at `address` now.
    #[inline]
    pub fn is_current(&self, module: &Module, address: u64) -> bool {
        if module.is_gone() || !module.contains(address) {
            return false;
        }
        let Some(finder) = self.finder else { return true };
        let Some(identity) = finder.identity(address) else { return is_kernel_image(module.map_start) };
        if identity.map_start != module.map_start || identity.link_map != module.link_map.load(Relaxed) {
            return false;
        }
        // SAFETY: the linker just said that this image is loaded, and code of it is on the stack of
        // the running thread.
        unsafe { module.witness.is_unchanged() }
    }

    /// Whether no module is loaded at an address.
    #[inline]
    pub fn is_gap(&self, address: u64) -> bool {
        self.finder.is_none_or(|finder| finder.identity(address).is_none())
    }

    /// Whether changes must be looked for by [`Self::changed_modules`] because the linker cannot be
    /// asked cheaply.
    pub fn needs_polling(&self) -> bool {
        self.finder.is_none()
    }

    /// Marks modules that were unloaded and calls `report` for each. Takes the linker's lock.
    pub fn changed_modules(&self, mut report: impl FnMut(&Module)) {
        let counters = load_counters();
        let seen = LoadCounters { loaded: self.seen_loaded.load(Relaxed), unloaded: self.seen_unloaded.load(Relaxed) };
        if counters == seen {
            return;
        }
        let mut still_there = Vec::new();
        visit_objects(|object| {
            still_there.extend(self.all().find(|module| is_same_image(module, &object)).map(|module| module.index));
            true
        });
        for module in self.all().filter(|module| !still_there.contains(&module.index)) {
            if module.mark_gone() {
                report(module);
            }
        }
        self.seen_loaded.store(counters.loaded, Relaxed);
        self.seen_unloaded.store(counters.unloaded, Relaxed);
    }

    /// Modules that are not gone.
    fn all(&self) -> impl Iterator<Item = &'static Module> + '_ {
        self.records().filter(|module| !module.is_gone())
    }

    fn records(&self) -> impl Iterator<Item = &'static Module> + '_ {
        (1..self.count.load(Acquire)).filter_map(|index| self.get(index as ModuleIndex))
    }

    /// The record of a module by an address in it, loading it if it was never met. Nothing if the
    /// address belongs to no module or the module cannot be recorded. Modules whose place it took are
    /// marked as gone and shown to `report`.
    pub fn find_or_load(&self, address: u64, report: impl FnMut(&Module)) -> Option<&'static Module> {
        let known = || self.all().find(|module| self.is_current(module, address));
        if let Some(module) = known() {
            return Some(module);
        }
        if self.finder.is_some() && self.is_gap(address) {
            return None;
        }
        uncancelled(|| {
            if !self.lock() {
                return None;
            }
            let module = known().or_else(|| self.load(address, report));
            self.loading.store(0, Release);
            module
        })
    }

    /// Takes the right to add records. Waits for another thread, but not for ever: that thread might
    /// in turn wait for a lock this thread holds.
    fn lock(&self) -> bool {
        // SAFETY: asks for a number.
        let process = unsafe { libc::getpid() };
        for _ in 0..LARGEST_WAIT_ROUNDS {
            let holder = self.loading.load(Relaxed);
            // A thread of the parent does not exist in the child of a fork.
            if holder != process && self.loading.compare_exchange(holder, process, Acquire, Relaxed).is_ok() {
                return true;
            }
            let pause = libc::timespec { tv_sec: 0, tv_nsec: WAIT_ROUND_NS };
            // SAFETY: sleeps; the remaining time is not asked for.
            unsafe { libc::nanosleep(&pause, core::ptr::null_mut()) };
        }
        false
    }

    fn load(&self, address: u64, mut report: impl FnMut(&Module)) -> Option<&'static Module> {
        let object = match self.finder {
            Some(finder) => finder.describe(address)?,
            None => {
                let mut found = None;
                visit_objects(|object| {
                    found = image_contains(&object, address).then_some(object);
                    found.is_none()
                });
                found?
            }
        };
        for module in self.all().filter(|module| module.contains(address)) {
            if module.mark_gone() {
                report(module);
            }
        }
        for module in self.records().filter(|module| module.map_start == object.map_start) {
            if module.is_gone() && is_same_image(module, &object) {
                module.link_map.store(object.link_map, Relaxed);
                module.defined_in.store(0, Relaxed);
                module.gone.store(false, Release);
                return Some(module);
            }
        }
        let index = self.count.load(Relaxed);
        let slot = self.modules.get(index)?;
        let module = Box::leak(Box::new(make_module(index as ModuleIndex, object)?));
        slot.store(module, Release);
        self.count.store(index + 1, Release);
        Some(module)
    }
}

/// Whether an object is the build that a record describes.
fn is_same_image(module: &Module, object: &LoadedObject) -> bool {
    if module.load_bias != object.load_bias || module.map_start != object.map_start {
        return false;
    }
    let Some(headers) = image_headers(object.map_start) else { return false };
    headers == module.headers
        && image_build_id(&headers, object.load_bias) == module.build_id
        && module.path == real_path(object)
        // SAFETY: the image is loaded and has the same headers.
        && unsafe { module.witness.is_unchanged() }
}

/// The program headers of a loaded image.
fn image_headers(map_start: u64) -> Option<ProgramHeaders> {
    // SAFETY: an image begins with a readable page that holds its header; it is loaded, because its
    // code is on the stack of the running thread or the linker's lock is held.
    let page = unsafe { core::slice::from_raw_parts(map_start as *const u8, HEADER_PAGE_BYTES) };
    ProgramHeaders::parse(page)
}

fn image_contains(object: &LoadedObject, address: u64) -> bool {
    image_headers(object.map_start).and_then(|headers| headers.loaded_range()).is_some_and(|(start, end)| {
        (object.load_bias.wrapping_add(start)..object.load_bias.wrapping_add(end)).contains(&address)
    })
}

/// The build id of a loaded image; empty if it has none.
fn image_build_id(headers: &ProgramHeaders, load_bias: u64) -> Vec<u8> {
    image_build_id_place(headers, load_bias).map_or_else(Vec::new, |(_, bytes)| bytes.to_vec())
}

/// Where the build id of a loaded image is, and its bytes.
fn image_build_id_place(headers: &ProgramHeaders, load_bias: u64) -> Option<(u64, &'static [u8])> {
    headers.notes().find_map(|note| {
        headers.segment_of(note.address)?;
        let start = load_bias.wrapping_add(note.address);
        // SAFETY: the notes lie in a loaded segment.
        let notes = unsafe { core::slice::from_raw_parts(start as *const u8, note.file_bytes as usize) };
        let (position, length) = find_build_id(notes)?;
        Some((start + position as u64, notes.get(position..position + length)?))
    })
}

/// Whether an image was mapped by the kernel for ever (the vdso).
fn is_kernel_image(map_start: u64) -> bool {
    // SAFETY: asks for a number.
    map_start != 0 && unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } == map_start
}

/// The path to write down: absolute where possible.
fn real_path(object: &LoadedObject) -> Vec<u8> {
    if object.path.starts_with(b"/") || is_kernel_image(object.map_start) {
        return object.path.clone();
    }
    let path = if object.path.is_empty() {
        std::fs::read_link("/proc/self/exe")
    } else {
        std::fs::canonicalize(std::ffi::OsStr::from_bytes(&object.path))
    };
    path.map_or_else(|_| object.path.clone(), |path| path.as_os_str().as_bytes().to_vec())
}

fn make_module(index: ModuleIndex, object: LoadedObject) -> Option<Module> {
    let headers = image_headers(object.map_start)?;
    let (first, last) = headers.loaded_range()?;
    let build_id_place = image_build_id_place(&headers, object.load_bias);
    let build_id = build_id_place.map_or_else(Vec::new, |(_, bytes)| bytes.to_vec());
    let tables = find_tables(&object, &headers, &build_id);
    let content = build_id_place.map(|(address, bytes)| (address, bytes.len() as u64)).or_else(|| {
        let (address, size_bytes) = tables.as_ref()?.frames_range();
        Some((object.load_bias.wrapping_add(address), size_bytes))
    });
    let first_page = object.map_start..object.map_start + HEADER_PAGE_BYTES as u64;
    let on_first_page = content
        .is_some_and(|(address, size_bytes)| first_page.contains(&address) && address + size_bytes <= first_page.end);
    // SAFETY: headers are on the first page, build id and tables lie in loaded segments.
    let witness = unsafe {
        Witness {
            headers: (!on_first_page).then(|| Sample::new(object.map_start, headers.end_offset())),
            content: content.map(|(address, size_bytes)| Sample::new(address, size_bytes)),
        }
    };
    Some(Module {
        index,
        start: object.load_bias.wrapping_add(first),
        end: object.load_bias.wrapping_add(last),
        load_bias: object.load_bias,
        path: real_path(&object),
        build_id,
        headers,
        tables,
        map_start: object.map_start,
        link_map: AtomicU64::new(object.link_map),
        witness,
        gone: AtomicBool::new(false),
        defined_in: AtomicU64::new(0),
    })
}

/// Tables of a module: from its file, or from memory where there is no such file.
fn find_tables(object: &LoadedObject, headers: &ProgramHeaders, build_id: &[u8]) -> Option<Tables> {
    if is_kernel_image(object.map_start) {
        // SAFETY: the kernel's image is never unmapped.
        return unsafe { Tables::from_image(headers, object.load_bias) };
    }
    let path = if object.path.is_empty() { b"/proc/self/exe".to_vec() } else { object.path.clone() };
    CString::new(path)
        .ok()
        .and_then(|path| Tables::from_file(&path, headers, build_id))
        // SAFETY: code of the image is on the stack of the running thread, so it is loaded.
        .or_else(|| unsafe { Tables::copied_from_image(headers, object.load_bias) })
}
