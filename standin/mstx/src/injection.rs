//! The function-pointer slots of this library and the search for a tool that fills them.

use std::ffi::{CString, c_char, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Number of entries of each table; entry 0 is unused.
const CORE_ENTRIES: usize = 5;
const DOMAIN_ENTRIES: usize = 6;
const MEMORY_ENTRIES: usize = 6;

/// A slot that a tool may fill.
#[repr(transparent)]
pub struct Slot(AtomicPtr<c_void>);

impl Slot {
    const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The tool's function, if there is a tool and it has one.
    pub fn function(&self) -> Option<*mut c_void> {
        find_tool_once();
        let function = self.0.load(Ordering::Acquire);
        (!function.is_null()).then_some(function)
    }
}

/// Slots by module and entry.
pub struct Slots {
    /// Marks, ranges and the tool's id: entries 1 to 4.
    pub core: [Slot; CORE_ENTRIES],
    /// Domains: entries 1 to 5.
    pub domain: [Slot; DOMAIN_ENTRIES],
    /// Heaps and regions: entries 1 to 5 (5, permissions, is not called by anyone here).
    pub memory: [Slot; MEMORY_ENTRIES],
}

/// All slots of this library.
pub static SLOTS: Slots = Slots {
    core: [const { Slot::new() }; CORE_ENTRIES],
    domain: [const { Slot::new() }; DOMAIN_ENTRIES],
    memory: [const { Slot::new() }; MEMORY_ENTRIES],
};

/// A table as the tool sees it: pointers to slots.
struct Table<const ENTRIES: usize>([*const Slot; ENTRIES]);

// SAFETY: the pointers refer to statics; tools write through them before any other thread may call the slots.
unsafe impl<const ENTRIES: usize> Sync for Table<ENTRIES> {}

impl<const ENTRIES: usize> Table<ENTRIES> {
    const fn new(slots: &'static [Slot; ENTRIES]) -> Self {
        let mut entries = [std::ptr::null(); ENTRIES];
        let mut index = 1;
        while index < ENTRIES {
            entries[index] = &raw const slots[index];
            index += 1;
        }
        Self(entries)
    }
}

static CORE_TABLE: Table<CORE_ENTRIES> = Table::new(&SLOTS.core);
static DOMAIN_TABLE: Table<DOMAIN_ENTRIES> = Table::new(&SLOTS.domain);
static MEMORY_TABLE: Table<MEMORY_ENTRIES> = Table::new(&SLOTS.memory);

type GetTable = unsafe extern "C" fn(module: i32, table: *mut *const c_void, entries: *mut u32) -> i32;
type Initialize = unsafe extern "C" fn(get_table: GetTable) -> i32;

/// Hands the table of a module (1 core, 2 domains, 3 memory) to the tool.
unsafe extern "C" fn get_table(module: i32, table: *mut *const c_void, entries: *mut u32) -> i32 {
    let (address, count): (*const c_void, usize) = match module {
        1 => ((&raw const CORE_TABLE).cast(), CORE_ENTRIES),
        2 => ((&raw const DOMAIN_TABLE).cast(), DOMAIN_ENTRIES),
        3 => ((&raw const MEMORY_TABLE).cast(), MEMORY_ENTRIES),
        _ => return 1,
    };
    if table.is_null() || entries.is_null() {
        return 1;
    }
    // SAFETY: checked above; the tool gives pointers it may write.
    unsafe {
        table.write(address);
        entries.write(count as u32);
    }
    0
}

/// Looks for a tool, once in the life of the program; a tool that refuses leaves no functions behind.
fn find_tool_once() {
    static ONCE: Once = Once::new();
    if ONCE.is_completed() {
        return;
    }
    ONCE.call_once(|| {
        let Some(initialize) = find_initializer() else { return };
        // SAFETY: the symbol has this type by the mstx convention.
        if unsafe { initialize(get_table) } != 0 {
            let all = SLOTS.core.iter().chain(&SLOTS.domain).chain(&SLOTS.memory);
            all.for_each(|slot| slot.0.store(std::ptr::null_mut(), Ordering::Release));
        }
    });
}

fn find_initializer() -> Option<Initialize> {
    const SYMBOL: *const c_char = c"InitInjectionMstx".as_ptr();
    let path = std::env::var("MSTX_INJECTION_PATH").ok().and_then(|path| CString::new(path).ok());
    // SAFETY: looks up a symbol; a found one has the type of the mstx convention.
    unsafe {
        let scope = match path {
            Some(path) => {
                let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL);
                if library.is_null() {
                    return None;
                }
                library
            }
            None => libc::RTLD_DEFAULT,
        };
        let symbol = libc::dlsym(scope, SYMBOL);
        (!symbol.is_null()).then(|| std::mem::transmute::<*mut c_void, Initialize>(symbol))
    }
}
