//! Programs that ask for a function by name get the hook instead of the function.
//!
//! `dlsym` judges by the return address who is asking, so our own `dlsym` jumps to the real one and
//! leaves the return address where it is, except for the few names that have a hook. `dlopen` is not
//! touched: it would lose the search path of its caller.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::hooks::{Hook, hooks};
use crate::{elf, prepared_work, python_half, real};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

fn hook_for(name: &CStr) -> Option<&'static Hook> {
    hooks().find(|hook| hook.real.name() == name)
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
        prepared_work::note_lookup(name);
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
