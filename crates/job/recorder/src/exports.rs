//! The symbols that other code sees besides the hooks of [`crate::hooks`]. The golden list of `nm -D` guards both files.

#![cfg_attr(test, expect(non_snake_case, reason = "the names are given"))]

use std::ffi::c_char;

use crate::{control, lookup, mstx};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($body:path) => {
        std::arch::naked_asm!("jmp {body}", body = sym $body)
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($body:path) => {
        std::arch::naked_asm!("b {body}", body = sym $body)
    };
}

pub(crate) use jump;

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
