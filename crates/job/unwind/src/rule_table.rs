//! Rules already worked out, shared by all threads without locks.
//!
//! A slot is two words, the rule and the key combined with the rule by exclusive or. A torn pair
//! (two threads writing one slot) yields a key nobody asks for, so a read needs no lock and no
//! retry. Four slots share a cache line; a full line overwrites one of its slots.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LINE_COUNT_BITS: u32 = 14;
const SLOTS_PER_LINE: usize = 4;

/// One cache line of slots.
type Line = [[AtomicU64; 2]; SLOTS_PER_LINE];

/// The table: 65,536 rules in one mebibyte.
pub(crate) struct RuleTable {
    lines: &'static [Line; 1 << LINE_COUNT_BITS],
}

/// What a rule is looked up by: the address, and whether it is a return address or an exact place.
#[inline]
pub(crate) fn rule_key(address: u64, exact: bool) -> u64 {
    address << 1 | u64::from(exact)
}

impl RuleTable {
    /// An empty table, if there is memory.
    pub fn new() -> Option<Self> {
        let length_bytes = size_of::<[Line; 1 << LINE_COUNT_BITS]>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let address = unsafe { libc::mmap(core::ptr::null_mut(), length_bytes, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping is zeroed, aligned, as long as the table and never unmapped.
        Some(Self { lines: unsafe { &*address.cast() } })
    }

    #[inline(always)]
    fn line(&self, key: u64) -> &Line {
        let index = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LINE_COUNT_BITS)) as usize;
        // The shift leaves no index that is too large.
        &self.lines[index]
    }

    /// The packed rule of a key.
    #[inline(always)]
    pub fn get(&self, key: u64) -> Option<u64> {
        for slot in self.line(key) {
            let rule = slot[1].load(Relaxed);
            if slot[0].load(Relaxed) ^ rule == key {
                return (rule != 0).then_some(rule);
            }
        }
        None
    }

    /// Remembers a rule. Packed rules are never zero.
    pub fn put(&self, key: u64, rule: u64) {
        let slots = self.line(key);
        let same = |slot: &&[AtomicU64; 2]| slot[0].load(Relaxed) ^ slot[1].load(Relaxed) == key;
        let empty = |slot: &&[AtomicU64; 2]| slot[1].load(Relaxed) == 0;
        let victim = (key >> 5) as usize % SLOTS_PER_LINE;
        let chosen = slots.iter().find(same).or_else(|| slots.iter().find(empty)).or_else(|| slots.get(victim));
        if let Some(slot) = chosen {
            slot[1].store(rule, Relaxed);
            slot[0].store(key ^ rule, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_found_again_or_forgotten_but_never_mixed_up() {
        let table = RuleTable::new().expect("memory");
        for key in 1..200_000_u64 {
            table.put(key, key << 20 | 1);
        }
        let mut found = 0;
        for key in 1..200_000_u64 {
            if let Some(rule) = table.get(key) {
                assert_eq!(rule, key << 20 | 1);
                found += 1;
            }
        }
        assert!(found > 40_000, "{found} of 65,536 slots in use");
        table.put(77, 5);
        assert_eq!(table.get(77), Some(5));
        assert_eq!(table.get(0), None);
    }

    #[test]
    fn threads_that_write_the_same_slots_never_see_a_torn_rule() {
        let table = RuleTable::new().expect("memory");
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..50_000_u64 {
                        let key = ((round % 8) << 60) | ((round + thread) % 64);
                        table.put(key, key << 1 | 1);
                        if let Some(rule) = table.get(key) {
                            assert_eq!(rule, key << 1 | 1);
                        }
                    }
                });
            }
        });
    }
}
