//! How to get from one frame to the next: a rule per address, packed into one word.

/// Identifies one loaded module of this process; zero is "no module".
pub(crate) type ModuleIndex = u16;

/// Largest module index a packed rule can name.
pub(crate) const LARGEST_MODULE_INDEX: ModuleIndex = (1 << MODULE_BITS) - 1;

const MODULE_BITS: u32 = 14;
const KIND_BITS: u32 = 4;
const FRAME_BITS: u32 = 18;
const SLOT_BITS: u32 = 14;
const KIND_SHIFT: u32 = MODULE_BITS;
const FRAME_SHIFT: u32 = KIND_SHIFT + KIND_BITS;
const POINTER_SHIFT: u32 = FRAME_SHIFT + FRAME_BITS;
const RETURN_SHIFT: u32 = POINTER_SHIFT + SLOT_BITS;
/// Stack slots are words.
const WORD_BYTES: i32 = 8;

/// The offset that says "still in its register". It is the lowest number of its field, so that
/// packing and unpacking need not treat it differently.
pub(crate) const IN_REGISTER: i32 = -(1 << (SLOT_BITS - 1)) * WORD_BYTES;

/// With [`RuleKind::FromInterruptedRegister`], says that the caller's frame pointer lies where the
/// frame pointer points, as long as that is within the frame. (Compilers do not take this back
/// after the instruction that restores it.) No register is saved above the frame address otherwise.
pub(crate) const STORED_WHERE_IT_POINTS: i32 = 8;

/// What kind of step a rule describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RuleKind {
    /// The frame address is the stack pointer plus an offset.
    FromStackPointer = 1,
    /// The frame address is the frame pointer plus an offset.
    FromFramePointer = 2,
    /// A function that realigned its stack: the frame address is stored at frame pointer plus
    /// offset, the caller's frame pointer where the frame pointer points.
    Realigned = 3,
    /// The kernel stored the interrupted registers here.
    SignalFrame = 4,
    /// The outermost frame.
    EndOfStack = 5,
    /// No table speaks about this address.
    NoInformation = 6,
    /// The frame address is another register plus an offset. Only interrupted functions need it,
    /// whose registers the kernel saved. The field of the return address holds eight times the
    /// number of the register.
    FromInterruptedRegister = 7,
}

/// One step outwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub kind: RuleKind,
    /// Offset from the base register to the frame address.
    pub frame_offset: i32,
    /// Where the caller's frame pointer lies from the frame address, or [`IN_REGISTER`].
    pub frame_pointer_offset: i32,
    /// Where the return address lies from the frame address, or [`IN_REGISTER`].
    pub return_address_offset: i32,
}

impl Rule {
    /// A rule that needs no offsets.
    pub const fn plain(kind: RuleKind) -> Self {
        Self { kind, frame_offset: 0, frame_pointer_offset: IN_REGISTER, return_address_offset: IN_REGISTER }
    }

    /// The rule in one word, if its numbers fit. Nearly all do; others are computed anew each time.
    pub fn pack(self, module: ModuleIndex) -> Option<u64> {
        let frame = pack_words(self.frame_offset, FRAME_BITS)?;
        let frame_pointer = pack_words(self.frame_pointer_offset, SLOT_BITS)?;
        let return_address = pack_words(self.return_address_offset, SLOT_BITS)?;
        Some(
            u64::from(module)
                | (self.kind as u64) << KIND_SHIFT
                | frame << FRAME_SHIFT
                | frame_pointer << POINTER_SHIFT
                | return_address << RETURN_SHIFT,
        )
    }

    /// The rule and its module from one word.
    #[inline]
    pub fn unpack(packed: u64) -> (Self, ModuleIndex) {
        let kind = match packed >> KIND_SHIFT & ((1 << KIND_BITS) - 1) {
            1 => RuleKind::FromStackPointer,
            2 => RuleKind::FromFramePointer,
            3 => RuleKind::Realigned,
            4 => RuleKind::SignalFrame,
            5 => RuleKind::EndOfStack,
            7 => RuleKind::FromInterruptedRegister,
            _ => RuleKind::NoInformation,
        };
        let rule = Self {
            kind,
            frame_offset: unpack_words(packed >> FRAME_SHIFT, FRAME_BITS),
            frame_pointer_offset: unpack_words(packed >> POINTER_SHIFT, SLOT_BITS),
            return_address_offset: unpack_words(packed >> RETURN_SHIFT, SLOT_BITS),
        };
        (rule, (packed & ((1 << MODULE_BITS) - 1)) as ModuleIndex)
    }
}

/// The parts of a packed rule that the common steps need, read without unpacking the rest.
pub(crate) struct PackedRule(pub u64);

impl PackedRule {
    /// Its module.
    #[inline(always)]
    pub fn module(&self) -> ModuleIndex {
        (self.0 & ((1 << MODULE_BITS) - 1)) as ModuleIndex
    }

    /// Whether the frame address is an offset from the stack pointer (true) or from the frame pointer
    /// (false); nothing for all other kinds.
    #[inline(always)]
    pub fn base_is_stack_pointer(&self) -> Option<bool> {
        let kind = self.0 >> KIND_SHIFT & ((1 << KIND_BITS) - 1);
        (kind <= RuleKind::FromFramePointer as u64).then_some(kind == RuleKind::FromStackPointer as u64)
    }

    /// Offset from the base to the frame address.
    #[inline(always)]
    pub fn frame_offset(&self) -> i64 {
        i64::from(unpack_words(self.0 >> FRAME_SHIFT, FRAME_BITS))
    }

    /// See [`Rule::frame_pointer_offset`].
    #[inline(always)]
    pub fn frame_pointer_offset(&self) -> i64 {
        i64::from(unpack_words(self.0 >> POINTER_SHIFT, SLOT_BITS))
    }

    /// See [`Rule::return_address_offset`].
    #[inline(always)]
    pub fn return_address_offset(&self) -> i64 {
        i64::from(unpack_words(self.0 >> RETURN_SHIFT, SLOT_BITS))
    }
}

/// A multiple of the word size as a signed number of `bits` bits.
fn pack_words(offset_bytes: i32, bits: u32) -> Option<u64> {
    if offset_bytes % WORD_BYTES != 0 {
        return None;
    }
    let words = i64::from(offset_bytes / WORD_BYTES);
    let limit = 1_i64 << (bits - 1);
    (-limit..limit).contains(&words).then_some(words as u64 & ((1 << bits) - 1))
}

#[inline]
fn unpack_words(packed: u64, bits: u32) -> i32 {
    let shift = 64 - bits;
    (((packed << shift) as i64 >> shift) as i32) * WORD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_survive_packing() {
        let offsets = [IN_REGISTER, -8, -16, 0, 64, -65_528, 65_528];
        for kind in [RuleKind::FromStackPointer, RuleKind::FromFramePointer, RuleKind::Realigned, RuleKind::EndOfStack]
        {
            for frame_offset in [0, 8, 16, -8, 1_048_568, -1_048_576] {
                for frame_pointer_offset in offsets {
                    for return_address_offset in offsets {
                        let rule = Rule { kind, frame_offset, frame_pointer_offset, return_address_offset };
                        for module in [0, 1, LARGEST_MODULE_INDEX] {
                            let packed = rule.pack(module).expect("fits");
                            assert_eq!(Rule::unpack(packed), (rule, module));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_not_packed() {
        let rule = Rule::plain(RuleKind::FromStackPointer);
        assert_eq!(Rule { frame_offset: 1_048_576, ..rule }.pack(1), None);
        assert_eq!(Rule { frame_offset: 4, ..rule }.pack(1), None);
        assert_eq!(Rule { frame_pointer_offset: -65_544, ..rule }.pack(1), None);
        assert_eq!(Rule { return_address_offset: 65_536, ..rule }.pack(1), None);
    }
}
