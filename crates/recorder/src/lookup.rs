//! Programs that ask for a function by name get the hook instead of the function.
//!
//! `dlsym` judges by the return address who is asking, so our own `dlsym` jumps to the real one and
//! leaves the return address where it is, except for the few names that have a hook. `dlopen` is not
//! touched: it would lose the search path of its caller.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::import_tables::Redirection;
use crate::real::{self, RealFunction};
use crate::{acl, elf, hal, python_half};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// A function that is hooked when it is asked for by name.
pub struct Hook {
    /// The real one: what callers would reach without us.
    pub real: &'static RealFunction,
    /// What callers get instead.
    pub replacement: *const (),
    /// The one of the library that owns the name, for callers that ask for it in that very library, and what they get
    /// instead. The same as above unless a library of the user stands before it.
    pub owner: &'static RealFunction,
    /// As above.
    pub owner_replacement: *const (),
    /// Whether this library exports the name itself. Functions that not every runtime has are not
    /// exported, because their presence tells callers what the runtime can do.
    pub is_exported: bool,
}

// SAFETY: addresses of code.
unsafe impl Sync for Hook {}

/// Declares the table of hooks.
macro_rules! hooks {
    ($($real:path, $replacement:path, $owner:path, $owner_replacement:path, $is_exported:literal;)+) => {
        &[$(Hook {
            real: &$real,
            replacement: $replacement as *const (),
            owner: &$owner,
            owner_replacement: $owner_replacement as *const (),
            is_exported: $is_exported,
        },)+]
    };
}

/// Every function with a hook.
pub static HOOKS: &[Hook] = hooks! {
    hal::MEM_ALLOC, hal::mem_alloc, hal::DRIVER_MEM_ALLOC, hal::driver_mem_alloc, true;
    hal::MEM_FREE, hal::mem_free, hal::DRIVER_MEM_FREE, hal::driver_mem_free, true;
    hal::MEM_CREATE, hal::mem_create, hal::DRIVER_MEM_CREATE, hal::driver_mem_create, true;
    hal::MEM_RELEASE, hal::mem_release, hal::DRIVER_MEM_RELEASE, hal::driver_mem_release, true;
    acl::INIT, acl::init, acl::INIT, acl::init, true;
    acl::FINALIZE, acl::finalize, acl::FINALIZE, acl::finalize, true;
    acl::SET_DEVICE, acl::set_device, acl::SET_DEVICE, acl::set_device, true;
    acl::HOST_UNREGISTER, acl::host_unregister, acl::HOST_UNREGISTER, acl::host_unregister, true;
    acl::HOST_REGISTER_V2, acl::host_register_v2, acl::HOST_REGISTER_V2, acl::host_register_v2, false;
};

impl Hook {
    /// What libraries that import the function call instead, if there is such a function.
    pub fn redirection(&self) -> Option<Redirection<'static>> {
        let replacement = self.replacement.cast();
        self.real.address().map(|_| Redirection { name: self.real.name(), replacement })
    }
}

fn hook_for(name: &CStr) -> Option<&'static Hook> {
    HOOKS.iter().find(|hook| hook.real.name() == name)
}

static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The real `dlsym`, from the C library or, in older ones, the library beside it.
fn real_dlsym() -> Option<Dlsym> {
    let mut address = REAL_DLSYM.load(Ordering::Relaxed);
    if address.is_null() {
        // Others ask for their functions while they get ready, and what they replace must not be needed for the answer.
        let found = elf::find_without_locks(&["libc.so.6", "libdl.so.2"], c"dlsym");
        address = found.map_or(std::ptr::null_mut(), |found| found as *mut c_void);
        REAL_DLSYM.store(address, Ordering::Relaxed);
    }
    // SAFETY: a function of this name has this signature.
    (!address.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Dlsym>(address) })
}

/// `dlsym` as the job sees it: asks [`choose`] where to go and jumps there with everything as it was.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        choose = sym choose,
    )
}

/// `dlsym` as the job sees it: asks [`choose`] where to go and jumps there with everything as it was.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym() {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {choose}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        choose = sym choose,
    )
}

/// Who answers: the real `dlsym`, or [`answer`] for names with a hook. "The next one after me" is a
/// question only the real one can answer, unless we are the only ones who could be found.
unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> Dlsym {
    let Some(real) = real_dlsym() else { return unanswered };
    if name.is_null() {
        return real;
    }
    // SAFETY: `dlsym` is passed C strings.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(hook) = hook_for(name) else {
        python_half::note_lookup(name);
        return real;
    };
    if handle == libc::RTLD_NEXT && hook.real.address().is_some() { real } else { answer }
}

unsafe extern "C" fn unanswered(_: *mut c_void, _: *const c_char) -> *mut c_void {
    std::ptr::null_mut()
}

/// Answers for a name with a hook: nothing if the job would find nothing without us, else the hook.
unsafe extern "C" fn answer(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: checked by `choose`.
    let (Some(real), Some(hook)) = (real_dlsym(), hook_for(unsafe { CStr::from_ptr(name) })) else {
        return std::ptr::null_mut();
    };
    let replacement = hook.replacement.cast_mut().cast::<c_void>();
    // SAFETY: arguments of the caller. The scope of this library is the global one.
    let found = unsafe { real(handle, name) };
    if handle == libc::RTLD_DEFAULT && !hook.is_exported && found.is_null() && hook.real.address().is_some() {
        // The caller's own scope may be larger than ours, so the library that has the function
        // decides. The lookup of something that exists clears the error of the failed one.
        // SAFETY: a valid name.
        unsafe { real(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
        return replacement;
    }
    if found.is_null() {
        return found;
    }
    if !is_ours(found as usize) {
        hook.real.learn(found);
        return if hook.real.address() == Some(found) {
            replacement
        } else if hook.owner.address() == Some(found) {
            hook.owner_replacement.cast_mut().cast()
        } else {
            // Another function of the same name is none of our business.
            found
        };
    }
    match hook.real.address() {
        Some(_) => found,
        // Only we have it. "The next one" after us gives nothing, with the proper error.
        // SAFETY: a valid name.
        None => unsafe { real(libc::RTLD_NEXT, name) },
    }
}

/// Whether an address lies in this library or its companions.
fn is_ours(address: usize) -> bool {
    let mut ours = false;
    elf::for_each_module(|module| {
        if module.contains(address) {
            ours = real::is_own(module);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    ours
}
