//! What the recorder and the thin hook libraries share: the table of hooks ([`for_each_hook`]), and how the thin ones jump
//! into the recorder: without touching the stack or any argument, so that the recorder sees exactly the call that was
//! made.

mod table;

/// Exports names as jumps to the entries of the recorder behind them: those of the rows of [`for_each_hook`] that are
/// exported, those of [`for_each_atb_hook`], or a list of names.
#[macro_export]
macro_rules! jump_into_recorder {
    ($(
        $name:ident [$($other:literal),*] in $library:literal, $export:ident, $owner:ident
            = $module:ident::$body:ident($($argument:ident: $kind:ty),*);
    )+) => {
        $($crate::export_jump!($name, $export);)+
    };
    ($($name:ident = $body:ident, $position:ident;)+) => {
        $($crate::export_jump!($name, exported);)+
    };
    ($($name:ident),+) => {
        $($crate::export_jump!($name, exported);)+
    };
}

/// Exports one name.
#[macro_export]
macro_rules! export_jump {
    ($name:ident, exported) => {
        #[allow(non_snake_case, reason = "the names are given")]
        mod $name {
            unsafe extern "C" {
                #[link_name = concat!("msmemscope_entry_", stringify!($name))]
                fn entry();
            }

            #[unsafe(export_name = stringify!($name))]
            #[unsafe(naked)]
            unsafe extern "C" fn exported() {
                $crate::jump!(entry)
            }
        }
    };
    ($name:ident, optional) => {};
}

/// Jumps to a function of another library.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! jump {
    ($target:path) => {
        core::arch::naked_asm!("jmp qword ptr [rip + {target}@GOTPCREL]", target = sym $target)
    };
}

/// Jumps to a function of another library.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! jump {
    ($target:path) => {
        core::arch::naked_asm!(
            "adrp x16, :got:{target}",
            "ldr x16, [x16, :got_lo12:{target}]",
            "br x16",
            target = sym $target,
        )
    };
}
