//! The symbols that other code sees, and nothing else. The golden list of `nm -D` guards this file.
//!
//! Every hook has two names: its own, by which the job finds it, and an entry by which the thin
//! libraries jump here. Both only jump, so that the hook itself is never looked up by name.

#![cfg_attr(test, expect(non_snake_case, reason = "the names are given"))]

use std::arch::naked_asm;
use std::ffi::c_char;

use crate::{acl, control, hal, lookup, mstx};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($body:path) => {
        naked_asm!("jmp {body}", body = sym $body)
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($body:path) => {
        naked_asm!("b {body}", body = sym $body)
    };
}

/// Declares `name` and `entry` as names of `body`.
macro_rules! export {
    ($($name:ident, $entry:ident => $body:path;)+) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                jump!($body)
            }

            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            unsafe extern "C" fn $entry() {
                jump!($body)
            }
        )+
    };
}

export! {
    halMemAlloc, msmemscope_entry_halMemAlloc => hal::mem_alloc;
    halMemFree, msmemscope_entry_halMemFree => hal::mem_free;
    halMemCreate, msmemscope_entry_halMemCreate => hal::mem_create;
    halMemRelease, msmemscope_entry_halMemRelease => hal::mem_release;
    aclInit, msmemscope_entry_aclInit => acl::init;
    aclFinalize, msmemscope_entry_aclFinalize => acl::finalize;
    aclrtSetDevice, msmemscope_entry_aclrtSetDevice => acl::set_device;
    aclrtHostUnregister, msmemscope_entry_aclrtHostUnregister => acl::host_unregister;
    InitInjectionMstx, msmemscope_entry_InitInjectionMstx => mstx::init_injection;
    dlsym, msmemscope_entry_dlsym => lookup::dlsym;
}

/// Options of the address sanitizer unless a program has its own: it demands to be the first library of all, lest others
/// replace functions it replaces. We replace none of them.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

/// The one door for guests, found by name.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn msmemscope_control() {
    jump!(control::table)
}
