//! Maps by addresses and other small numbers, for work that a thread of the job waits for. The keys are those of the job
//! itself, so nothing has to be guarded against keys that collide on purpose.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map that is quick to ask.
pub(crate) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<QuickHasher>>;

/// Mixes numbers with one multiplication each.
#[derive(Default)]
pub(crate) struct QuickHasher(u64);

/// An odd number without a pattern.
const MIXER: u64 = 0xd6e8_feb8_6659_fd93;

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(MIXER);
        // Addresses differ in the middle: both halves of the product are needed to tell them apart at both ends.
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hash;

    use super::*;

    /// Maps look at the upper seven bits and at some of the lower ones.
    #[test]
    fn addresses_of_blocks_differ_at_both_ends() {
        for shift in [9, 12, 21, 25] {
            let (mut lower, mut upper) = (HashSet::new(), HashSet::new());
            for block in 0..4096u64 {
                let mut hasher = QuickHasher::default();
                (3u32, 0x12c0_0000_0000 + (block << shift)).hash(&mut hasher);
                lower.insert(hasher.finish() & 0xffff);
                upper.insert(hasher.finish() >> 57);
            }
            assert!(lower.len() > 3700, "{shift}: {}", lower.len());
            assert_eq!(upper.len(), 128, "{shift}");
        }
    }
}
