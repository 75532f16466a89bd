//! How the thin hook libraries jump into the recorder: without touching the stack or any argument,
//! so that the recorder sees exactly the call that was made.

/// Exports each name as a jump to the entry of the recorder behind it.
#[macro_export]
macro_rules! jump_into_recorder {
    ($($name:ident => $entry:ident;)+) => {
        unsafe extern "C" {
            $(fn $entry();)+
        }

        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                $crate::jump!($entry)
            }
        )+
    };
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
