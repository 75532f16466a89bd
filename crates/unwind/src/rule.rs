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
/// The slot value that says "still in its register".
const IN_REGISTER: u64 = 1 << (SLOT_BITS - 1);
/// Stack slots are words.
const WORD_BYTES: i32 = 8;

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
    /// Where the caller's frame pointer lies from the frame address; nothing if still in its register.
    pub frame_pointer_offset: Option<i32>,
    /// Where the return address lies from the frame address; nothing if still in the link register.
    pub return_address_offset: Option<i32>,
}

impl Rule {
    /// A rule that needs no offsets.
    pub const fn plain(kind: RuleKind) -> Self {
        Self { kind, frame_offset: 0, frame_pointer_offset: None, return_address_offset: None }
    }

    /// The rule in one word, if its numbers fit. Nearly all do; others are computed anew each time.
    pub fn pack(self, module: ModuleIndex) -> Option<u64> {
        let frame = pack_words(self.frame_offset, FRAME_BITS)?;
        let frame_pointer = pack_slot(self.frame_pointer_offset)?;
        let return_address = pack_slot(self.return_address_offset)?;
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
            frame_pointer_offset: unpack_slot(packed >> POINTER_SHIFT),
            return_address_offset: unpack_slot(packed >> RETURN_SHIFT),
        };
        (rule, (packed & ((1 << MODULE_BITS) - 1)) as ModuleIndex)
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
    ((packed << shift) as i64 >> shift) as i32 * WORD_BYTES
}

fn pack_slot(offset_bytes: Option<i32>) -> Option<u64> {
    match offset_bytes {
        None => Some(IN_REGISTER),
        Some(offset_bytes) => pack_words(offset_bytes, SLOT_BITS).filter(|packed| *packed != IN_REGISTER),
    }
}

#[inline]
fn unpack_slot(packed: u64) -> Option<i32> {
    (packed & ((1 << SLOT_BITS) - 1) != IN_REGISTER).then(|| unpack_words(packed, SLOT_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_survive_packing() {
        let offsets = [None, Some(-8), Some(-16), Some(0), Some(64), Some(-65_528), Some(65_528)];
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
        assert_eq!(Rule { frame_pointer_offset: Some(-65_536), ..rule }.pack(1), None);
        assert_eq!(Rule { return_address_offset: Some(65_536), ..rule }.pack(1), None);
    }
}
