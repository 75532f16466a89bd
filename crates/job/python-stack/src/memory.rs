//! Plain loads from structures of the interpreter.

/// Nothing is ever mapped below.
const LOWEST_ADDRESS: usize = 0x1_0000;
/// Addresses of user space are smaller on every supported processor.
const HIGHEST_ADDRESS: usize = 1 << 56;

/// Address of an object or structure of the interpreter: not null, aligned, in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(usize);

impl Address {
    /// Accepts what can be the address of an object.
    #[inline(always)]
    pub fn new(raw: usize) -> Option<Self> {
        (raw.is_multiple_of(align_of::<usize>()) && (LOWEST_ADDRESS..HIGHEST_ADDRESS).contains(&raw))
            .then_some(Self(raw))
    }

    /// The number.
    #[inline(always)]
    pub fn get(self) -> usize {
        self.0
    }

    /// A field.
    ///
    /// # Safety
    /// A live object with a field of this type at `offset` must be there, and nobody may be writing
    /// to the field.
    #[inline(always)]
    pub unsafe fn load<T: Copy>(self, offset: u16) -> T {
        // SAFETY: promised by the caller; offsets of layouts keep fields aligned.
        unsafe { *(self.field(offset) as *const T) }
    }

    /// A field that is an address; nothing if it is null or cannot be one.
    ///
    /// # Safety
    /// As for [`Address::load`].
    #[inline(always)]
    pub unsafe fn follow(self, offset: u16) -> Option<Self> {
        // SAFETY: promised by the caller.
        Self::new(unsafe { self.load(offset) })
    }

    /// Address of a field.
    #[inline(always)]
    pub fn field(self, offset: u16) -> usize {
        self.0 + usize::from(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plausible_addresses_are_accepted() {
        let word = 5usize;
        assert!(Address::new(&raw const word as usize).is_some());
        for raw in [0, 8, 0xfff8, (&raw const word as usize) + 4, usize::MAX - 7, 1 << 60] {
            assert_eq!(Address::new(raw), None, "{raw:#x}");
        }
    }
}
