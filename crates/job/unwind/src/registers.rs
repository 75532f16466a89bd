//! The registers a walk starts from and carries along.

/// Where a thread is: enough registers to follow its stack outwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Address of the current instruction, or a return address.
    pub program_counter: u64,
    /// Stack pointer.
    pub stack_pointer: u64,
    /// Frame pointer register (rbp, x29), whatever it is used for.
    pub frame_pointer: u64,
    /// Link register (x30); unused on x86_64.
    pub link_register: u64,
}

impl Registers {
    /// The registers at this very place. Always inlined, so the first frame is the caller's own.
    #[inline(always)]
    pub fn here() -> Self {
        let mut registers = Self::default();
        // SAFETY: the instructions only copy registers into outputs; nothing else is touched.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!(
                "lea {program_counter}, [rip]",
                "mov {stack_pointer}, rsp",
                "mov {frame_pointer}, rbp",
                program_counter = out(reg) registers.program_counter,
                stack_pointer = out(reg) registers.stack_pointer,
                frame_pointer = out(reg) registers.frame_pointer,
                options(nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: the instructions only copy registers into outputs; nothing else is touched.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!(
                "adr {program_counter}, .",
                "mov {stack_pointer}, sp",
                "mov {frame_pointer}, x29",
                "mov {link_register}, x30",
                program_counter = out(reg) registers.program_counter,
                stack_pointer = out(reg) registers.stack_pointer,
                frame_pointer = out(reg) registers.frame_pointer,
                link_register = out(reg) registers.link_register,
                options(nomem, nostack, preserves_flags),
            );
        }
        registers
    }
}

/// Removes what pointer authentication adds to a return address.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn strip_authentication(address: u64) -> u64 {
    address
}

/// Removes what pointer authentication adds to a return address. Which bits that are depends on the
/// kernel, so the processor is asked; one that has no such thing takes the instruction for a no-op.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn strip_authentication(address: u64) -> u64 {
    let mut stripped = address;
    // SAFETY: xpaclri changes nothing but the link register, which is an operand.
    unsafe {
        core::arch::asm!("hint #7", inout("x30") stripped, options(pure, nomem, nostack, preserves_flags));
    }
    stripped
}

/// What the two architectures call their registers in unwind tables, and how the kernel stores them
/// when it delivers a signal.
pub(crate) mod architecture {
    /// Whose extensions unwind tables use: aarch64 says which return addresses are signed.
    #[cfg(target_arch = "x86_64")]
    pub const VENDOR: gimli::Vendor = gimli::Vendor::Default;
    #[cfg(target_arch = "aarch64")]
    pub const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;

    /// Numbers of registers in unwind tables.
    #[cfg(target_arch = "x86_64")]
    pub const FRAME_POINTER: gimli::Register = gimli::X86_64::RBP;
    #[cfg(target_arch = "x86_64")]
    pub const STACK_POINTER: gimli::Register = gimli::X86_64::RSP;
    #[cfg(target_arch = "x86_64")]
    pub const PROGRAM_COUNTER: u16 = 16;
    #[cfg(target_arch = "aarch64")]
    pub const FRAME_POINTER: gimli::Register = gimli::AArch64::X29;
    #[cfg(target_arch = "aarch64")]
    pub const STACK_POINTER: gimli::Register = gimli::AArch64::SP;
    /// aarch64 tables have no number for it that expressions use.
    #[cfg(target_arch = "aarch64")]
    pub const PROGRAM_COUNTER: u16 = u16::MAX;

    /// Where the kernel puts the interrupted registers, from the stack pointer in a signal
    /// trampoline. x86_64: `ucontext_t` lies at the stack pointer, its registers at byte 40.
    #[cfg(target_arch = "x86_64")]
    pub const SAVED_REGISTERS_OFFSET: u64 = 40;
    /// aarch64: 128 bytes of `siginfo_t`, then `ucontext_t`, whose `uc_mcontext` begins at byte 176
    /// with the fault address, followed by the registers.
    #[cfg(target_arch = "aarch64")]
    pub const SAVED_REGISTERS_OFFSET: u64 = 128 + 176 + 8;

    /// Position of program counter, stack pointer, frame pointer and link register among them.
    #[cfg(target_arch = "x86_64")]
    pub const SAVED_POSITIONS: [u64; 4] = [16, 15, 10, 16];
    #[cfg(target_arch = "aarch64")]
    pub const SAVED_POSITIONS: [u64; 4] = [32, 31, 29, 30];

    /// Position of a register by its number in unwind tables.
    #[cfg(target_arch = "x86_64")]
    pub fn saved_position(register: u16) -> Option<u64> {
        // rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8..r15 in the order of the tables.
        const POSITIONS: [u8; 16] = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7];
        POSITIONS.get(usize::from(register)).map(|position| u64::from(*position))
    }
    /// Position of a register by its number in unwind tables.
    #[cfg(target_arch = "aarch64")]
    pub fn saved_position(register: u16) -> Option<u64> {
        (register <= 31).then_some(u64::from(register))
    }

    /// The instructions of a signal trampoline: load the number of `rt_sigreturn`, call the kernel.
    #[cfg(target_arch = "x86_64")]
    pub const SIGNAL_TRAMPOLINE: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
    #[cfg(target_arch = "aarch64")]
    pub const SIGNAL_TRAMPOLINE: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];

    /// Where the return address lies from the frame address unless tables say otherwise.
    #[cfg(target_arch = "x86_64")]
    pub const DEFAULT_RETURN_ADDRESS_OFFSET: i32 = -8;
    #[cfg(target_arch = "aarch64")]
    pub const DEFAULT_RETURN_ADDRESS_OFFSET: i32 = crate::rule::IN_REGISTER;
}
