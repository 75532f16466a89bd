//! Stacks get small ids: a lock-free table from a 96-bit hash of the frames to the id.
//!
//! The frames themselves are in the trace already, so only the hash is kept: 16 bytes per stack
//! whatever its depth. Two different stacks share an id only if 96 well-mixed bits agree.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::mapping::{anonymous_words, clear_words};

const SLOT_COUNT_BITS: u32 = 19;
const SLOT_COUNT: usize = 1 << SLOT_COUNT_BITS;
/// Three quarters, so that searches stay short.
const LARGEST_STACK_COUNT: u32 = (SLOT_COUNT / 4 * 3) as u32;

/// The table: 393,216 stacks in eight mebibytes.
pub(crate) struct StackTable {
    /// Pairs: first half of the hash; second half of the hash in the upper 32 bits, id in the lower.
    words: &'static [AtomicU64],
    last_id: AtomicU32,
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interned {
    /// A stack seen before.
    Known(u32),
    /// A stack never seen; the caller defines it under this id and then publishes the slot.
    New { id: u32, slot: usize },
    /// The same stack is being defined by another thread; the caller defines it under an id of its own.
    Twin(u32),
    /// No room.
    Full,
}

/// The hash of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackHash {
    first: u64,
    second: u64,
}

impl StackHash {
    /// Hash of frames whose modules are summed up in `signature`.
    #[inline]
    pub fn of(frames: &[u64], signature: u64) -> Self {
        let mut first = 0x9e37_79b9_7f4a_7c15 ^ signature;
        let mut second = 0xd1b5_4a32_d192_ed03 ^ frames.len() as u64;
        let (pairs, rest) = frames.as_chunks::<2>();
        for [inner, outer] in pairs {
            first = folded_product(first ^ inner, outer ^ 0xa076_1d64_78bd_642f);
            second = folded_product(second ^ outer, inner ^ 0xe703_7ed1_a0b4_28db);
        }
        for frame in rest {
            first = folded_product(first ^ frame, 0x8ebc_6af0_9c88_c6e3);
            second = folded_product(second ^ frame, 0x5899_65cc_7537_4cc3);
        }
        // Zero means "empty slot" in the table.
        Self { first: folded_product(first, 0xeb44_acca_b455_d165) | 1, second: second | 1 << 63 }
    }
}

#[inline]
fn folded_product(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

impl StackTable {
    /// An empty table, if there is memory.
    pub fn new() -> Option<Self> {
        anonymous_words(SLOT_COUNT * 2).map(|words| Self { words, last_id: AtomicU32::new(0) })
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<(&AtomicU64, &AtomicU64)> {
        Some((self.words.get(index * 2)?, self.words.get(index * 2 + 1)?))
    }

    /// Finds a stack or claims a place for it.
    #[inline]
    pub fn intern(&self, hash: StackHash) -> Interned {
        let mut index = (hash.first >> (64 - SLOT_COUNT_BITS)) as usize;
        for _ in 0..SLOT_COUNT {
            let Some((first, second)) = self.slot(index) else { return Interned::Full };
            let mut found = first.load(Acquire);
            if found == 0 {
                let Some(id) = self.next_id() else { return Interned::Full };
                match first.compare_exchange(0, hash.first, AcqRel, Acquire) {
                    Ok(_) => return Interned::New { id, slot: index },
                    Err(other) if other == hash.first => return Interned::Twin(id),
                    Err(other) => found = other,
                }
            }
            if found == hash.first {
                let stored = second.load(Acquire);
                if stored == 0 {
                    return self.next_id().map_or(Interned::Full, Interned::Twin);
                }
                if stored >> 32 == hash.second >> 32 {
                    return Interned::Known(stored as u32);
                }
            }
            index = (index + 1) % SLOT_COUNT;
        }
        Interned::Full
    }

    /// Makes a defined stack known to all threads. Id zero says that it could not be defined.
    pub fn publish(&self, slot: usize, hash: StackHash, id: u32) {
        if let Some((_, second)) = self.slot(slot) {
            second.store((hash.second >> 32) << 32 | u64::from(id), Release);
        }
    }

    fn next_id(&self) -> Option<u32> {
        self.last_id
            .fetch_update(Relaxed, Relaxed, |last| (last < LARGEST_STACK_COUNT).then_some(last + 1))
            .ok()
            .map(|last| last + 1)
    }

    /// Forgets all stacks. The caller makes sure that nobody else uses the table meanwhile.
    pub fn clear(&self) {
        clear_words(self.words);
        self.last_id.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};
    use std::sync::Mutex;

    #[test]
    fn hashes_differ_for_every_small_change() {
        let mut seen = HashSet::new();
        let base: Vec<u64> = (0..33).map(|index| 0x7f12_3456_0000 + index * 0x35).collect();
        for length in 0..base.len() {
            for signature in 0..4 {
                let hash = StackHash::of(&base[..length], signature);
                assert!(seen.insert((hash.first, hash.second)));
            }
            for changed in 0..length {
                let mut frames = base[..length].to_vec();
                for step in [1_u64, 5, 0x1000] {
                    frames[changed] = base[changed] + step;
                    let hash = StackHash::of(&frames, 0);
                    assert!(seen.insert((hash.first, hash.second)));
                }
            }
        }
    }

    #[test]
    fn every_stack_has_one_id_for_all_threads() {
        let table = StackTable::new().expect("memory");
        let defined: Mutex<HashMap<u32, u64>> = Mutex::new(HashMap::new());
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (table, defined) = (&table, &defined);
                scope.spawn(move || {
                    for round in 0..40_000_u64 {
                        let stack = (round * 7 + thread) % 5_000;
                        let hash = StackHash::of(&[stack, 1, 2], 0);
                        let id = match table.intern(hash) {
                            Interned::Known(id) => id,
                            Interned::New { id, slot } => {
                                assert_eq!(defined.lock().unwrap().insert(id, stack), None);
                                table.publish(slot, hash, id);
                                id
                            }
                            Interned::Twin(id) => {
                                assert_eq!(defined.lock().unwrap().insert(id, stack), None);
                                id
                            }
                            Interned::Full => panic!("5,000 stacks fit"),
                        };
                        assert_eq!(defined.lock().unwrap().get(&id), Some(&stack));
                    }
                });
            }
        });
        let defined = defined.into_inner().unwrap();
        assert_eq!(defined.values().collect::<HashSet<_>>().len(), 5_000);
    }

    #[test]
    fn a_full_table_says_so_and_keeps_what_it_has() {
        let table = StackTable::new().expect("memory");
        let mut full = 0;
        for stack in 0..u64::from(LARGEST_STACK_COUNT) + 1_000 {
            let hash = StackHash::of(&[stack], 0);
            match table.intern(hash) {
                Interned::New { id, slot } => table.publish(slot, hash, id),
                Interned::Full => full += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(full, 1_000);
        assert_eq!(table.intern(StackHash::of(&[0], 0)), Interned::Known(1));
        table.clear();
        assert!(matches!(table.intern(StackHash::of(&[0], 0)), Interned::New { id: 1, .. }));
    }
}
