//! The functions behind the hooks, found once: what callers would reach if we were not there.
//!
//! That is the next definition after ours in the order in which the loader looks: a library of the user's own that stands
//! before the driver stays there. Where no library that came with the program has the function, it is that of the library
//! that owns it.
//!
//! A library that was there when the process began stays for good. Any other may be unloaded by the
//! job, so it is pinned while its address is cached: registering a thread-exit callback "from" a
//! library raises a count that keeps the loader from unmapping it. The callback forgets the address;
//! the next call finds it again.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::elf::{self, Module};
use crate::errno;

/// File names of this library and of the thin libraries that jump into it.
const OWN_LIBRARIES: [&str; 5] = [
    "libascend_kernel_hook.so",
    "libleaks_ascend_hal_hook.so",
    "libascend_mstx_hook.so",
    "libatb_abi_0_hook.so",
    "libatb_abi_1_hook.so",
];

/// Modules that were loaded with the program and can never be unloaded.
static STARTUP_MODULES: AtomicUsize = AtomicUsize::new(0);

/// Part of the C++ ABI of the C library: calls `callback(object)` when the thread exits.
type CallAtThreadExit = unsafe extern "C" fn(
    callback: unsafe extern "C" fn(*mut c_void),
    object: *mut c_void,
    address_in_library: *mut c_void,
) -> i32;

// glibc 2.17 does not have it yet. What a library needs by an ordinary name must be there when it is loaded, so this is a
// weak one: the loader leaves the word empty then.
std::arch::global_asm!(
    ".pushsection .data.rel.msmemscope_call_at_thread_exit, \"aw\"",
    ".weak __cxa_thread_atexit_impl",
    ".hidden msmemscope_call_at_thread_exit",
    ".global msmemscope_call_at_thread_exit",
    ".balign 8",
    "msmemscope_call_at_thread_exit:",
    ".8byte __cxa_thread_atexit_impl",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "msmemscope_call_at_thread_exit"]
    static CALL_AT_THREAD_EXIT: Option<CallAtThreadExit>;
}

/// A function of another library, by its signature.
pub struct RealFunction<F = Untyped> {
    real: Real,
    signature: PhantomData<F>,
}

/// The signature is the caller's business.
pub type Untyped = unsafe extern "C" fn();

/// Pointers to functions: what an address can be turned into.
pub trait Function: Copy {
    /// The function at an address. Whoever calls it promises that its signature is this.
    fn at(address: *mut c_void) -> Self;
}

macro_rules! functions {
    ($(($($argument:ident),*))+) => {
        $(
            impl<Output, $($argument),*> Function for unsafe extern "C-unwind" fn($($argument),*) -> Output {
                #[inline(always)]
                fn at(address: *mut c_void) -> Self {
                    // SAFETY: a pointer to a function is an address; calling it needs a promise of its own.
                    unsafe { std::mem::transmute::<*mut c_void, Self>(address) }
                }
            }
        )+
    };
}

functions! { () (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, G, H, I, J, K, L, M) }

impl<F> RealFunction<F> {
    /// The next function of the first name in the loader's order, else the first of `names` that `library` has, else that
    /// any library has.
    pub const fn new(library: &'static str, names: &'static [&'static CStr]) -> Self {
        Self { real: Real::new(library, names, false), signature: PhantomData }
    }

    /// The first of `names` that `library` has, whoever stands before it.
    pub const fn of_owner(library: &'static str, names: &'static [&'static CStr]) -> Self {
        Self { real: Real::new(library, names, true), signature: PhantomData }
    }

    /// It without its signature.
    pub const fn erased(&'static self) -> &'static Real {
        &self.real
    }
}

impl<F: Function> RealFunction<F> {
    /// The function, if any loaded library has it.
    #[inline(always)]
    pub fn function(&'static self) -> Option<F> {
        self.real.address().map(F::at)
    }
}

impl<F> Deref for RealFunction<F> {
    type Target = Real;

    fn deref(&self) -> &Real {
        &self.real
    }
}

/// A function of another library.
pub struct Real {
    library: &'static str,
    names: &'static [&'static CStr],
    is_owners: bool,
    address: AtomicPtr<c_void>,
}

/// Where a function was found.
struct Found {
    address: usize,
    module_index: usize,
}

impl Real {
    const fn new(library: &'static str, names: &'static [&'static CStr], is_owners: bool) -> Self {
        Self { library, names, is_owners, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The name under which other code calls it.
    pub fn name(&self) -> &'static CStr {
        self.names[0]
    }

    /// Its address, if any loaded library has it.
    #[inline(always)]
    pub fn address(&'static self) -> Option<*mut c_void> {
        let address = self.address.load(Ordering::Acquire);
        if address.is_null() { self.resolve() } else { Some(address) }
    }

    /// Remembers an address the job itself looked up, unless one is known.
    pub fn learn(&'static self, address: *mut c_void) {
        if self.address().is_none() {
            let mut module_index = usize::MAX;
            elf::for_each_module(|module| match module.contains(address as usize) {
                true => {
                    module_index = module.index;
                    ControlFlow::Break(())
                }
                false => ControlFlow::Continue(()),
            });
            self.keep(&Found { address: address as usize, module_index });
        }
    }

    #[cold]
    fn resolve(&'static self) -> Option<*mut c_void> {
        errno::preserved(|| {
            let found = self.find()?;
            self.keep(&found);
            Some(found.address as *mut c_void)
        })
    }

    fn keep(&'static self, found: &Found) {
        let address = found.address as *mut c_void;
        keep_loaded(found.module_index, address, forget, std::ptr::from_ref(self) as *mut c_void);
        self.address.store(address, Ordering::Release);
    }

    fn find(&self) -> Option<Found> {
        let startup_modules = STARTUP_MODULES.load(Ordering::Relaxed);
        let (mut next, mut owned, mut elsewhere) = (None, None, None);
        let mut is_behind_us = false;
        elf::for_each_module(|module| {
            if is_own(module) {
                // Only what is behind the last of our libraries does not come back to us when it asks for its next one.
                (is_behind_us, next) = (true, None);
                return ControlFlow::Continue(());
            }
            let came_with_program = module.index < startup_modules;
            if came_with_program && !is_behind_us {
                // Callers that mean this one never come to us, but it may.
                return ControlFlow::Continue(());
            }
            let exported = |names: &[&'static CStr]| {
                let address = names.iter().find_map(|name| module.exported_function(name))?;
                Some(Found { address, module_index: module.index })
            };
            if next.is_none() && came_with_program {
                next = exported(&self.names[..1]);
            }
            if owned.is_none() && module.is_named(self.library) {
                owned = exported(self.names);
            } else if elsewhere.is_none() {
                elsewhere = exported(self.names);
            }
            ControlFlow::Continue(())
        });
        if self.is_owners { owned } else { next.or(owned).or(elsewhere) }
    }
}

/// Keeps a library loaded while this thread lives, unless it stays anyway; then calls `forget` with an object that must
/// not end. The address is one in the library, which must be loaded now.
pub fn keep_loaded(
    module_index: usize,
    address: *mut c_void,
    forget: unsafe extern "C" fn(*mut c_void),
    object: *mut c_void,
) {
    if module_index >= STARTUP_MODULES.load(Ordering::Relaxed) {
        // SAFETY: the loader has filled it in before anything of this library ran, and nobody writes to it.
        match unsafe { CALL_AT_THREAD_EXIT } {
            // SAFETY: the object stays and the callback has the right form; the library is loaded.
            Some(call_at_thread_exit) => _ = unsafe { call_at_thread_exit(forget, object, address) },
            None => keep_for_good(address),
        }
    }
}

/// Keeps the library that an address is in loaded as long as the process lives.
#[cold]
fn keep_for_good(address: *mut c_void) {
    // SAFETY: plain old data, for which zero is a valid value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the answer; the name is that of a loaded library, which is not loaded anew.
    unsafe {
        if libc::dladdr(address, &mut found) != 0 {
            libc::dlopen(found.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        }
    }
}

/// Calls `visit` for the modules that came with the program and stand behind all of ours, until it breaks.
pub fn for_each_next_module(mut visit: impl FnMut(&Module<'_>) -> ControlFlow<()>) {
    let mut last_own = None;
    elf::for_each_module(|module| {
        last_own = if is_own(module) { Some(module.index) } else { last_own };
        ControlFlow::Continue(())
    });
    let behind = last_own.map_or(0, |index| index + 1)..STARTUP_MODULES.load(Ordering::Relaxed);
    elf::for_each_module(
        |module| {
            if behind.contains(&module.index) { visit(module) } else { ControlFlow::Continue(()) }
        },
    );
}

/// Forgets an address before the library it is in may be unloaded.
unsafe extern "C" fn forget(function: *mut c_void) {
    // SAFETY: the static passed at registration.
    let function = unsafe { &*function.cast::<Real>() };
    function.address.store(std::ptr::null_mut(), Ordering::Release);
}

/// Whether a module is this library or one of its thin companions.
pub fn is_own(module: &Module<'_>) -> bool {
    module.contains(is_own as *const () as usize) || OWN_LIBRARIES.iter().any(|name| module.is_named(name))
}

/// Counts the modules that came with the program. If the C library was loaded before us, we were
/// loaded at run time, and so may have been any other library: then none counts.
pub fn note_startup_modules() {
    let (mut count, mut own_index, mut c_library_index) = (0, usize::MAX, 0);
    elf::for_each_module(|module| {
        count = module.index + 1;
        if is_own(module) {
            own_index = own_index.min(module.index);
        } else if module.is_named("libc.so.6") {
            c_library_index = module.index;
        }
        ControlFlow::Continue(())
    });
    if own_index < c_library_index {
        STARTUP_MODULES.store(count, Ordering::Relaxed);
    }
}
