//! The hash under which something is interned.
//!
//! Words are mixed by folded multiplication, independently of what came before, so that a processor
//! mixes several at a time; only one multiplication per lane waits for its predecessor.

/// A 128-bit hash, 95 bits of which are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub(crate) first: u64,
    pub(crate) second: u64,
}

impl Key {
    /// A key that equals no finished one.
    pub const NONE: Self = Self { first: 0, second: 0 };
}

/// What a group of four words adds to a hash, wherever in the sequence it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// For the first lane.
    pub first: u64,
    /// For the second.
    pub second: u64,
}

impl Mixture {
    /// Of nothing.
    pub const NONE: Self = Self { first: 0, second: 0 };

    /// Mixes four words.
    #[inline(always)]
    pub fn of(words: [u64; 4]) -> Self {
        let front = folded_product(words[0] ^ 0xa076_1d64_78bd_642f, words[1] ^ 0xe703_7ed1_a0b4_28db);
        let back = folded_product(words[2] ^ 0x8ebc_6af0_9c88_c6e3, words[3] ^ 0x5899_65cc_7537_4cc3);
        Self { first: front ^ back.rotate_left(23), second: front.rotate_left(41) ^ back }
    }
}

const FACTORS: Mixture = Mixture { first: 0xbf58_476d_1ce4_e5b9, second: 0x94d0_49bb_1331_11eb };
/// What a mixture has been multiplied by once that many others have followed it.
const POWERS: [Mixture; Hasher::LARGEST_REPLACEABLE] = {
    let mut powers = [Mixture { first: 1, second: 1 }; Hasher::LARGEST_REPLACEABLE];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent].first = powers[exponent - 1].first.wrapping_mul(FACTORS.first);
        powers[exponent].second = powers[exponent - 1].second.wrapping_mul(FACTORS.second);
        exponent += 1;
    }
    powers
};

/// Makes a [`Key`] out of groups of four words.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    first: u64,
    second: u64,
}

#[inline(always)]
fn folded_product(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher {
    /// Nothing hashed yet.
    #[inline(always)]
    pub const fn new() -> Self {
        Self { first: 0x9e37_79b9_7f4a_7c15, second: 0xd1b5_4a32_d192_ed03 }
    }

    /// Takes in four words.
    #[inline(always)]
    pub fn add(&mut self, words: [u64; 4]) {
        self.add_mixture(Mixture::of(words));
    }

    /// Takes in four words that were mixed before.
    #[inline(always)]
    pub fn add_mixture(&mut self, mixture: Mixture) {
        self.first = self.first.wrapping_mul(FACTORS.first).wrapping_add(mixture.first);
        self.second = self.second.wrapping_mul(FACTORS.second).wrapping_add(mixture.second);
    }

    /// Only this many of the mixtures taken in last can be replaced.
    pub const LARGEST_REPLACEABLE: usize = 32;

    /// As if another mixture had been taken in instead of the one that `followers` others follow.
    #[inline(always)]
    pub fn replace(&mut self, followers: usize, old: Mixture, new: Mixture) {
        let power = POWERS[followers];
        self.first = self.first.wrapping_add(new.first.wrapping_sub(old.first).wrapping_mul(power.first));
        self.second = self.second.wrapping_add(new.second.wrapping_sub(old.second).wrapping_mul(power.second));
    }

    /// The key of everything taken in, and of `count`, usually how much that was.
    #[inline(always)]
    pub fn finish(self, count: u64) -> Key {
        let first = folded_product(self.first ^ count, self.second ^ 0xeb44_acca_b455_d165);
        // Zero means "empty slot" in the table.
        Key { first: first | 1, second: self.second ^ first.rotate_left(32) }
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_was_taken_in_can_be_replaced() {
        let mixture = |number: usize| Mixture::of([number as u64; 4]);
        let hashed = |numbers: &[usize]| {
            let mut hasher = Hasher::new();
            numbers.iter().for_each(|number| hasher.add_mixture(mixture(*number)));
            hasher
        };
        let mut numbers: Vec<usize> = (0..Hasher::LARGEST_REPLACEABLE).collect();
        let mut hasher = hashed(&numbers);
        for replaced in [0, 7, numbers.len() - 1] {
            hasher.replace(numbers.len() - 1 - replaced, mixture(numbers[replaced]), mixture(1000 + replaced));
            numbers[replaced] = 1000 + replaced;
            assert_eq!(hasher.finish(32), hashed(&numbers).finish(32));
        }
    }

    #[test]
    fn keys_differ_for_every_small_change() {
        let mut seen = HashSet::new();
        let base: Vec<u64> = (0..44).map(|index| 0x7f12_3456_0000 + index * 0x35).collect();
        let key = |words: &[u64]| {
            let mut hasher = Hasher::new();
            words.as_chunks::<4>().0.iter().for_each(|words| hasher.add(*words));
            let key = hasher.finish(words.len() as u64);
            (key.first, key.second)
        };
        for length in (0..base.len()).step_by(4) {
            assert!(seen.insert(key(&base[..length])));
            for changed in 0..length {
                let mut words = base[..length].to_vec();
                for step in [1_u64, 5, 0x1000] {
                    words[changed] = base[changed] + step;
                    assert!(seen.insert(key(&words)));
                }
            }
        }
    }
}
