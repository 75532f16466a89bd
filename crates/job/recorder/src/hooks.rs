//! Everything that follows from the table of hooks: for each function a module of its name with its real functions, its
//! hooks and its exported symbols, and the list that answers lookups by name. The golden list of `nm -D` guards it.
//!
//! Every exported hook has two names: its own, by which the job finds it, and an entry by which the thin libraries jump
//! here. Both only jump, so that the hook itself is never looked up by name.

use std::ffi::{CStr, c_char, c_void};

use msmemscope_hook_jump::for_each_hook;

use crate::hal::MemoryRequest;
use crate::import_tables::Redirection;
use crate::real::{Real, RealFunction};
use crate::{acl, hal, hccl, kernel_channel, kernels, launches, prepared_work};

/// A function that is hooked when it is asked for by name.
pub struct Hook {
    /// The real one: what callers would reach without us.
    pub real: &'static Real,
    /// What callers get instead.
    pub replacement: *const (),
    /// The one of the library that owns the name, for callers that ask for it in that very library, and what they get
    /// instead. The same as above unless a library of the user stands before it.
    pub owner: &'static Real,
    /// As above.
    pub owner_replacement: *const (),
    /// Whether this library exports the name itself. Functions that not every runtime has are not
    /// exported, because their presence tells callers what the runtime can do.
    pub is_exported: bool,
}

// SAFETY: addresses of code.
unsafe impl Sync for Hook {}

impl Hook {
    /// A hook of a function that nobody exports and no library of the user stands before.
    pub const fn optional(real: &'static Real, replacement: *const ()) -> Self {
        Self { real, replacement, owner: real, owner_replacement: replacement, is_exported: false }
    }

    /// What libraries that import the function call instead, if there is such a function.
    pub fn redirection(&self) -> Option<Redirection<'static>> {
        let replacement = self.replacement.cast();
        self.real.address().map(|_| Redirection { name: self.real.name(), replacement })
    }
}

/// A name with the zero at its end.
pub const fn c_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name in the table of hooks has a zero inside"),
    }
}

/// Makes the module of each hook, and the list of all.
macro_rules! make_hooks {
    ($(
        $name:ident [$($other:literal),*] in $library:literal, $export:ident, $owner:ident
            = $module:ident::$body:ident($($argument:ident: $kind:ty),*);
    )+) => {
        $(
            #[allow(non_snake_case, reason = "the names are given")]
            #[doc = concat!("`", stringify!($name), "`.")]
            pub mod $name {
                #[allow(unused_imports, reason = "the kinds of the arguments")]
                use super::*;

                /// What it takes and gives.
                pub type Signature = unsafe extern "C-unwind" fn($($kind),*) -> i32;

                const NAMES: &[&CStr] =
                    &[c_name(concat!(stringify!($name), "\0")), $(c_name(concat!($other, "\0"))),*];
                static REAL: RealFunction<Signature> = RealFunction::new($library, NAMES);

                /// The hook.
                pub unsafe extern "C-unwind" fn hook($($argument: $kind),*) -> i32 {
                    // SAFETY: arguments of the caller.
                    unsafe { $module::$body(&REAL, $($argument),*) }
                }

                make_owner!($owner, $library, $module::$body($($argument: $kind),*));
                export!($export, $name);

                pub(super) const HOOK: Hook = Hook {
                    real: REAL.erased(),
                    replacement: hook as *const (),
                    owner: OWNER.erased(),
                    owner_replacement: owner_hook as *const (),
                    is_exported: is_exported!($export),
                };
            }
        )+

        /// Functions that are hooked in any case.
        static HOOKS: &[Hook] = &[$($name::HOOK),+];
    };
}

/// The function of the library that owns the name, and the hook for who asked for it there.
macro_rules! make_owner {
    (owned, $library:literal, $module:ident::$body:ident($($argument:ident: $kind:ty),*)) => {
        static OWNER: RealFunction<Signature> = RealFunction::of_owner($library, NAMES);

        unsafe extern "C-unwind" fn owner_hook($($argument: $kind),*) -> i32 {
            // SAFETY: arguments of the caller.
            unsafe { $module::$body(&OWNER, $($argument),*) }
        }
    };
    (plain, $library:literal, $($body:tt)*) => {
        use {REAL as OWNER, hook as owner_hook};
    };
}

macro_rules! is_exported {
    (exported) => {
        true
    };
    (optional) => {
        false
    };
}

/// The name of the hook and its entry.
macro_rules! export {
    (exported, $name:ident) => {
        #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
        #[unsafe(naked)]
        unsafe extern "C" fn exported() {
            $crate::exports::jump!(hook)
        }

        #[cfg_attr(not(test), unsafe(export_name = concat!("msmemscope_entry_", stringify!($name))))]
        #[unsafe(naked)]
        unsafe extern "C" fn entry() {
            $crate::exports::jump!(hook)
        }
    };
    (optional, $name:ident) => {};
}

for_each_hook!(make_hooks);

/// Functions that are hooked if kernels are wanted, besides those that launch them.
static KERNEL_HOOKS: &[Hook] = &[
    Hook::optional(kernels::REPORT.erased(), kernels::report as *const ()),
    Hook::optional(kernels::HASH.erased(), kernels::hash as *const ()),
    Hook::optional(kernels::TEXT_ID.erased(), kernels::text_id as *const ()),
    Hook::optional(kernels::COMMAND.erased(), kernels::command as *const ()),
    Hook::optional(kernel_channel::START.erased(), kernel_channel::start as *const ()),
    Hook::optional(kernel_channel::STOP.erased(), kernel_channel::stopped as *const ()),
];

/// Every function with a hook.
pub fn hooks() -> impl Iterator<Item = &'static Hook> {
    let of_kernels = if kernels::are_wanted() { KERNEL_HOOKS } else { &[] };
    let of_work = if kernels::are_wanted() { prepared_work::HOOKS } else { &[] };
    let of_launches = if launches::are_hooked() { launches::HOOKS } else { &[] };
    HOOKS.iter().chain(of_kernels).chain(of_work).chain(of_launches)
}
