//! Looks into the loaded libraries without the help of `dlsym` and `dlopen`, which would change the
//! error state that belongs to the job and cannot see libraries loaded with local scope.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::ControlFlow;

use msmemscope_unwind::linker_walk;

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_SONAME: i64 = 14;
const DT_PLTREL: i64 = 20;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

const SYMBOL_TYPE_NONE: u8 = 0;
const SYMBOL_TYPE_OBJECT: u8 = 1;
const SYMBOL_TYPE_FUNCTION: u8 = 2;
const BINDING_GLOBAL: u8 = 1;
const BINDING_WEAK: u8 = 2;

#[repr(C)]
struct DynamicEntry {
    tag: i64,
    value: u64,
}

/// A relocation with addend.
#[repr(C)]
pub struct Relocation {
    /// Where, relative to the load address.
    pub offset: u64,
    info: u64,
    _addend: i64,
}

impl Relocation {
    /// Kind of relocation, by the numbers of the processor.
    pub fn kind(&self) -> u32 {
        self.info as u32
    }

    /// Index of the symbol it is about.
    pub fn symbol_index(&self) -> usize {
        (self.info >> 32) as usize
    }
}

/// What of a dynamic section is needed here. Pointers are run-time addresses.
#[derive(Default)]
struct Dynamic {
    strings: usize,
    symbols: usize,
    gnu_hash: usize,
    old_hash: usize,
    soname: Option<usize>,
    relocations: (usize, usize),
    jump_relocations: (usize, usize),
}

/// A loaded executable or library, valid while the loader's lock is held by [`for_each_module`].
pub struct Module<'a> {
    /// Position in load order.
    pub index: usize,
    /// What the loader added to the addresses of the file.
    pub load_address: usize,
    path: &'a CStr,
    headers: &'a [libc::Elf64_Phdr],
    dynamic: Dynamic,
}

/// Calls `visit` for every loaded module in load order until it breaks.
pub fn for_each_module(mut visit: impl FnMut(&Module<'_>) -> ControlFlow<()>) {
    struct Walk<'a> {
        index: usize,
        visit: &'a mut dyn FnMut(&Module<'_>) -> ControlFlow<()>,
    }

    unsafe extern "C" fn step(info: *mut libc::dl_phdr_info, _: usize, walk: *mut c_void) -> c_int {
        // SAFETY: the pointer passed below.
        let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
        // SAFETY: the loader passes a valid description that lives during this call.
        let module = unsafe { Module::new(walk.index, &*info) };
        walk.index += 1;
        match module {
            Some(module) => c_int::from((walk.visit)(&module).is_break()),
            None => 0,
        }
    }

    let mut walk = Walk { index: 0, visit: &mut visit };
    // SAFETY: `step` matches the signature and `walk` outlives the call.
    unsafe { linker_walk::walk(step, (&raw mut walk).cast()) };
}

/// The linker's record of a module, as debuggers read it.
#[repr(C)]
struct LinkMap {
    load_address: usize,
    path: *const c_char,
    dynamic: *const DynamicEntry,
    next: *const LinkMap,
}

/// What the linker shows to debuggers.
#[repr(C)]
struct DebuggerView {
    _version: c_int,
    first: *const LinkMap,
}

unsafe extern "C" {
    #[link_name = "_r_debug"]
    static DEBUGGER_VIEW: DebuggerView;
}

/// The first function of this name among libraries that came with the program. Takes no lock and calls nothing that
/// another library might have replaced: what it has replaced may not be ready yet, and may ask for this very function.
pub fn find_without_locks(libraries: &[&str], name: &CStr) -> Option<usize> {
    // SAFETY: the linker fills the list before any code runs and adds at its end. What came with the program stays.
    let mut record = unsafe { DEBUGGER_VIEW.first };
    let mut index = 0;
    // SAFETY: null or a record of the linker.
    while let Some(LinkMap { load_address, path, dynamic, next }) = unsafe { record.as_ref() } {
        // SAFETY: a C string of the linker; the dynamic section of a loaded module ends with a null entry.
        let (path, dynamic) = unsafe { (CStr::from_ptr(*path), Dynamic::read(*dynamic, *load_address)) };
        let module = Module { index, load_address: *load_address, path, headers: &[], dynamic };
        if libraries.iter().any(|library| module.is_named(library))
            && let Some(address) = module.exported_function(name)
        {
            return Some(address);
        }
        (record, index) = (*next, index + 1);
    }
    None
}

/// How many modules were ever loaded; changes whenever another one is.
pub fn load_count() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, count: *mut c_void) -> c_int {
        // SAFETY: the loader's description and the pointer passed below.
        unsafe { *count.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut count = 0_u64;
    // SAFETY: `first` matches the signature and `count` outlives the call.
    unsafe { linker_walk::walk(first, (&raw mut count).cast()) };
    count
}

impl<'a> Module<'a> {
    /// # Safety
    /// `info` must come from the loader; the module must stay loaded for `'a`.
    unsafe fn new(index: usize, info: &'a libc::dl_phdr_info) -> Option<Self> {
        // SAFETY: promised by the loader.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let load_address = info.dlpi_addr as usize;
        let section = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let path = match info.dlpi_name.is_null() {
            true => c"",
            // SAFETY: a C string of the loader.
            false => unsafe { CStr::from_ptr(info.dlpi_name) },
        };
        let entries = (load_address + section.p_vaddr as usize) as *const DynamicEntry;
        // SAFETY: the dynamic section of a loaded module is readable and ends with a null entry.
        let dynamic = unsafe { Dynamic::read(entries, load_address) };
        Some(Self { index, load_address, path, headers, dynamic })
    }

    /// File name without directories.
    fn file_name(&self) -> &[u8] {
        let path = self.path.to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    fn soname(&self) -> Option<&[u8]> {
        let offset = self.dynamic.soname?;
        (self.dynamic.strings != 0).then(|| self.string_at(offset).to_bytes())
    }

    fn string_at(&self, offset: usize) -> &CStr {
        // SAFETY: offsets of the dynamic section point to C strings of the string table.
        unsafe { CStr::from_ptr((self.dynamic.strings + offset) as *const c_char) }
    }

    /// Whether the library has this name, with or without a version behind it.
    pub fn is_named(&self, name: &str) -> bool {
        let matches = |found: &[u8]| {
            found.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        };
        self.soname().is_some_and(matches) || matches(self.file_name())
    }

    /// Whether an address lies in one of its segments.
    pub fn contains(&self, address: usize) -> bool {
        self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
            let start = self.load_address + header.p_vaddr as usize;
            (start..start + header.p_memsz as usize).contains(&address)
        })
    }

    /// From the first to the last of its segments.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let segments = self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let start = |header: &libc::Elf64_Phdr| self.load_address + header.p_vaddr as usize;
        let first = segments.clone().map(start).min().unwrap_or(0);
        first..segments.map(|header| start(header) + header.p_memsz as usize).max().unwrap_or(first)
    }

    /// The segment made read-only after relocation, as address and length.
    pub fn read_only_after_relocation(&self) -> Option<(usize, usize)> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO)?;
        Some((self.load_address + header.p_vaddr as usize, header.p_memsz as usize))
    }

    /// All relocations that can hold an imported address.
    pub fn relocations(&self) -> impl Iterator<Item = &Relocation> {
        let tables = [self.dynamic.relocations, self.dynamic.jump_relocations];
        tables.into_iter().flat_map(|(start, size_bytes)| {
            let count = if start == 0 { 0 } else { size_bytes / size_of::<Relocation>() };
            let start = if count == 0 { std::ptr::NonNull::dangling().as_ptr() } else { start as *mut Relocation };
            // SAFETY: the loader itself reads this table; it stays mapped with the module.
            unsafe { std::slice::from_raw_parts(start, count) }
        })
    }

    /// Name of a symbol.
    pub fn symbol_name(&self, index: usize) -> &CStr {
        // SAFETY: an index out of a relocation of this module.
        let symbol = unsafe { &*self.symbol(index) };
        self.string_at(symbol.st_name as usize)
    }

    fn symbol(&self, index: usize) -> *const libc::Elf64_Sym {
        (self.dynamic.symbols as *const libc::Elf64_Sym).wrapping_add(index)
    }

    /// Run-time address of a function this module exports.
    pub fn exported_function(&self, name: &CStr) -> Option<usize> {
        self.exported(name, &[SYMBOL_TYPE_FUNCTION, SYMBOL_TYPE_NONE])
    }

    /// Run-time address of a function or variable this module exports.
    pub fn exported_symbol(&self, name: &CStr) -> Option<usize> {
        self.exported(name, &[SYMBOL_TYPE_FUNCTION, SYMBOL_TYPE_OBJECT, SYMBOL_TYPE_NONE])
    }

    fn exported(&self, name: &CStr, kinds: &[u8]) -> Option<usize> {
        if self.dynamic.strings == 0 || self.dynamic.symbols == 0 {
            return None;
        }
        if self.dynamic.gnu_hash != 0 {
            // SAFETY: the table belongs to this module and the loader relies on its form.
            unsafe { self.find_by_gnu_hash(name, kinds) }
        } else if self.dynamic.old_hash != 0 {
            // SAFETY: as above.
            unsafe { self.find_by_old_hash(name, kinds) }
        } else {
            None
        }
    }

    /// The address of a symbol if it is exported with this name and of one of these kinds.
    ///
    /// # Safety
    /// The index must come from a hash table of this module.
    unsafe fn symbol_at(&self, index: usize, name: &CStr, kinds: &[u8]) -> Option<usize> {
        // SAFETY: promised by the caller.
        let symbol = unsafe { &*self.symbol(index) };
        let (binding, kind) = (symbol.st_info >> 4, symbol.st_info & 0xf);
        let is_visible = binding == BINDING_GLOBAL || binding == BINDING_WEAK;
        let is_defined = symbol.st_shndx != 0 && symbol.st_value != 0;
        (kinds.contains(&kind) && is_visible && is_defined && self.string_at(symbol.st_name as usize) == name)
            .then(|| self.load_address + symbol.st_value as usize)
    }

    /// # Safety
    /// The module must have a GNU hash table.
    unsafe fn find_by_gnu_hash(&self, name: &CStr, kinds: &[u8]) -> Option<usize> {
        let hash =
            name.to_bytes().iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
        let table = self.dynamic.gnu_hash as *const u32;
        // SAFETY: header of four words, then bloom words, buckets and chains, as the loader reads them.
        unsafe {
            let (bucket_count, symbol_offset, bloom_count, bloom_shift) =
                (*table, *table.add(1), *table.add(2), *table.add(3));
            if bucket_count == 0 || bloom_count == 0 {
                return None;
            }
            let bloom = table.add(4).cast::<u64>();
            let word = *bloom.add((hash / 64 % bloom_count) as usize);
            if word >> (hash % 64) & 1 == 0 || word >> ((hash >> bloom_shift) % 64) & 1 == 0 {
                return None;
            }
            let buckets = bloom.add(bloom_count as usize).cast::<u32>();
            let chains = buckets.add(bucket_count as usize);
            let mut index = *buckets.add((hash % bucket_count) as usize);
            if index < symbol_offset {
                return None;
            }
            loop {
                let chained = *chains.add((index - symbol_offset) as usize);
                if chained | 1 == hash | 1
                    && let Some(address) = self.symbol_at(index as usize, name, kinds)
                {
                    return Some(address);
                }
                if chained & 1 == 1 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// # Safety
    /// The module must have a System V hash table.
    unsafe fn find_by_old_hash(&self, name: &CStr, kinds: &[u8]) -> Option<usize> {
        let hash = name.to_bytes().iter().fold(0u32, |hash, &byte| {
            let shifted = hash.wrapping_shl(4).wrapping_add(u32::from(byte));
            let high = shifted & 0xf000_0000;
            (shifted ^ high >> 24) & !high
        });
        let table = self.dynamic.old_hash as *const u32;
        // SAFETY: two counts, then buckets and chains, as the loader reads them.
        unsafe {
            let (bucket_count, chain_count) = (*table, *table.add(1));
            if bucket_count == 0 {
                return None;
            }
            let buckets = table.add(2);
            let chains = buckets.add(bucket_count as usize);
            let mut index = *buckets.add((hash % bucket_count) as usize);
            while index != 0 && index < chain_count {
                if let Some(address) = self.symbol_at(index as usize, name, kinds) {
                    return Some(address);
                }
                index = *chains.add(index as usize);
            }
            None
        }
    }
}

impl Dynamic {
    /// # Safety
    /// `entry` must be the start of a readable dynamic section that ends with a null entry.
    unsafe fn read(mut entry: *const DynamicEntry, load_address: usize) -> Self {
        let mut dynamic = Self::default();
        let mut jump_relocations_have_addends = true;
        // SAFETY: promised by the caller.
        while let DynamicEntry { tag, value } = unsafe { &*entry }
            && *tag != DT_NULL
        {
            let value = *value as usize;
            // The C library stores run-time addresses here, the kernel's own module file addresses.
            let pointer = if value < load_address { value + load_address } else { value };
            match *tag {
                DT_STRTAB => dynamic.strings = pointer,
                DT_SYMTAB => dynamic.symbols = pointer,
                DT_GNU_HASH => dynamic.gnu_hash = pointer,
                DT_HASH => dynamic.old_hash = pointer,
                DT_SONAME => dynamic.soname = Some(value),
                DT_RELA => dynamic.relocations.0 = pointer,
                DT_RELASZ => dynamic.relocations.1 = value,
                DT_JMPREL => dynamic.jump_relocations.0 = pointer,
                DT_PLTRELSZ => dynamic.jump_relocations.1 = value,
                DT_PLTREL => jump_relocations_have_addends = value as i64 == DT_RELA,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        if !jump_relocations_have_addends {
            dynamic.jump_relocations = (0, 0);
        }
        dynamic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address of a function of the C library, found our way.
    fn find(library: &str, name: &CStr) -> Option<usize> {
        let mut found = None;
        for_each_module(|module| {
            if module.is_named(library) {
                found = module.exported_function(name);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn agrees_with_the_loader() {
        for name in [c"pthread_create", c"malloc", c"getpid", c"qsort"] {
            // SAFETY: a valid name.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
            assert_eq!(find("libc.so.6", name), Some(expected), "{name:?}");
        }
        let libraries = ["libno_such_library.so", "libc.so.6"];
        assert_eq!(find_without_locks(&libraries, c"qsort"), find("libc.so.6", c"qsort"));
        assert_eq!(find_without_locks(&libraries, c"no_such_function_anywhere"), None);
        assert_eq!(find("libc.so.6", c"no_such_function_anywhere"), None);
        assert_eq!(find("libno_such_library.so", c"malloc"), None);
    }

    #[test]
    fn variables_are_symbols_but_no_functions() {
        let (mut symbol, mut function) = (None, None);
        for_each_module(|module| {
            symbol = symbol.or(module.exported_symbol(c"environ"));
            function = function.or(module.exported_function(c"environ"));
            ControlFlow::Continue(())
        });
        assert!(symbol.is_some());
        assert_eq!(function, None);
        assert!(load_count() > 0);
        assert_eq!(load_count(), load_count());
    }

    #[test]
    fn names_match_with_and_without_version() {
        let is_named = |name: &str| {
            let mut found = false;
            for_each_module(|module| {
                found |= module.is_named(name);
                ControlFlow::Continue(())
            });
            found
        };
        assert!(is_named("libc.so"));
        assert!(is_named("libc.so.6"));
        assert!(!is_named("libc.s"));
    }

    #[test]
    fn modules_know_their_addresses_and_imports() {
        let here = modules_know_their_addresses_and_imports as *const () as usize;
        let mut owners = 0;
        let mut imports_dl_iterate_phdr = false;
        for_each_module(|module| {
            if module.contains(here) {
                owners += 1;
                imports_dl_iterate_phdr = module
                    .relocations()
                    .filter(|relocation| relocation.symbol_index() != 0)
                    .any(|relocation| module.symbol_name(relocation.symbol_index()) == c"dl_iterate_phdr");
            }
            ControlFlow::Continue(())
        });
        assert_eq!(owners, 1);
        assert!(imports_dl_iterate_phdr);
    }
}
