//! Things seen again and again get small ids: a lock-free table from a 128-bit hash to an id.
//!
//! What the id stands for is defined in the trace once; here only 95 bits of the hash are kept, 16
//! bytes per entry whatever its size. Nobody ever waits: threads that meet at a new entry agree on
//! one id, and each of them defines it, until one has said that the definition is written.
//!
//! The memory costs nothing until touched, and is empty again in a forked child, whose trace lacks the definitions of its
//! parent. Entries are strewn over a table, so one for the most there may be would take many pages for a few of them:
//! a table begins small, and larger ones follow only when those before are full.

use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

mod hash;

pub use hash::{Hasher, Key, Mixture};

/// Words before the first slot: generation and number of ids; the rest keeps slots on cache lines.
const HEADER_WORDS: usize = 8;
const GENERATION: usize = 0;
const LAST_ID: usize = 1;

/// Part of a slot's second word: the definition is written.
const DEFINED: u64 = 1 << 63;
const CHECK_BITS: u64 = !DEFINED & !0xffff_ffff;

/// Distinguishes the contents of all tables of this process and its forked children.
static NEXT_GENERATION: AtomicU64 = AtomicU64::new(1);

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interned {
    /// Seen before and defined.
    Known(u32),
    /// Not defined yet: the caller writes the definition under this id and then calls
    /// [`InternTable::publish`]. Another thread may be doing the same.
    New {
        /// Its id, from one.
        id: u32,
        /// What to publish.
        slot: usize,
    },
    /// No room.
    Full,
}

/// Levels of a table.
const LEVELS: usize = 3;
/// Every level has this many times the slots of the one before, as a power of two.
const GROWTH_BITS: u32 = 3;

/// The table.
pub struct InternTable {
    levels: [Level; LEVELS],
}

/// A part of the table that is used when those before it are full.
struct Level {
    /// Null until it is needed.
    words: AtomicPtr<AtomicU64>,
    slot_count_bits: u32,
    /// Ids of the levels before it.
    ids_before: u32,
}

impl InternTable {
    /// A table whose first part has `2^slot_count_bits` slots, three quarters of which can be used; then parts with eight
    /// and 64 times as many follow. Nothing if there is no memory.
    pub fn new(slot_count_bits: u32) -> Option<Self> {
        let mut ids_before = 0;
        let levels = std::array::from_fn(|level| {
            let level = Level {
                words: AtomicPtr::new(null_mut()),
                slot_count_bits: slot_count_bits + level as u32 * GROWTH_BITS,
                ids_before,
            };
            ids_before += level.largest_id() as u32;
            level
        });
        let table = Self { levels };
        table.levels[0].words()?;
        Some(table)
    }

    /// A number that changes whenever the table was emptied by a fork, and is never zero. Ids
    /// remembered under another generation must be forgotten.
    #[inline]
    pub fn generation(&self) -> u64 {
        let Some(words) = self.levels[0].existing_words() else { return 0 };
        match words[GENERATION].load(Acquire) {
            0 => begin_generation(&words[GENERATION]),
            generation => generation,
        }
    }

    /// Finds an entry or claims a place for it.
    #[inline]
    pub fn intern(&self, key: Key) -> Interned {
        match self.levels[0].intern(key) {
            Interned::Full => self.intern_further(key),
            Interned::New { id, slot } => Interned::New { id, slot: slot * LEVELS },
            known => known,
        }
    }

    /// As [`InternTable::intern`], behind the first level. Threads that meet when a level is filling up may give an entry
    /// an id in each of two levels, which are then both defined.
    #[cold]
    #[inline(never)]
    fn intern_further(&self, key: Key) -> Interned {
        for (number, level) in self.levels.iter().enumerate().skip(1) {
            if level.words().is_none() {
                break;
            }
            match level.intern(key) {
                Interned::Full => {}
                Interned::Known(id) => return Interned::Known(id),
                Interned::New { id, slot } => return Interned::New { id, slot: slot * LEVELS + number },
            }
        }
        Interned::Full
    }

    /// Says that the entry's definition is written.
    pub fn publish(&self, slot: usize) {
        if let Some(level) = self.levels.get(slot % LEVELS) {
            level.publish(slot / LEVELS);
        }
    }
}

#[cold]
fn begin_generation(word: &AtomicU64) -> u64 {
    let fresh = NEXT_GENERATION.fetch_add(1, Relaxed);
    match word.compare_exchange(0, fresh, AcqRel, Acquire) {
        Ok(_) => fresh,
        Err(other) => other,
    }
}

impl Level {
    fn word_count(&self) -> usize {
        HEADER_WORDS + (2 << self.slot_count_bits)
    }

    #[inline(always)]
    fn existing_words(&self) -> Option<&'static [AtomicU64]> {
        let words = self.words.load(Acquire);
        // SAFETY: null, or as many words as this level has, which are never unmapped.
        (!words.is_null()).then(|| unsafe { std::slice::from_raw_parts(words, self.word_count()) })
    }

    /// The memory, which is reserved when it is first needed.
    fn words(&self) -> Option<&'static [AtomicU64]> {
        if self.words.load(Acquire).is_null() {
            let words = anonymous_words_empty_after_fork(self.word_count())?;
            if self.words.compare_exchange(null_mut(), words, AcqRel, Acquire).is_err() {
                // SAFETY: our own mapping, which nobody else knows: another thread was faster.
                unsafe { libc::munmap(words.cast(), self.word_count() * size_of::<AtomicU64>()) };
            }
        }
        self.existing_words()
    }

    fn largest_id(&self) -> u64 {
        (1 << self.slot_count_bits) / 4 * 3
    }

    #[inline(always)]
    fn intern(&self, key: Key) -> Interned {
        let Some(words) = self.existing_words() else { return Interned::Full };
        let mask = (1 << self.slot_count_bits) - 1;
        let mut slot = (key.first >> (64 - self.slot_count_bits)) as usize;
        for _ in 0..=mask {
            let Some([first, second]) = slot_of(words, slot) else { return Interned::Full };
            let mut found = first.load(Acquire);
            if found == 0 {
                if words[LAST_ID].load(Relaxed) >= self.largest_id() {
                    return Interned::Full;
                }
                found = match first.compare_exchange(0, key.first, AcqRel, Acquire) {
                    Ok(_) => key.first,
                    Err(other) => other,
                };
            }
            if found == key.first {
                let stored = match second.load(Acquire) {
                    0 => match self.give_id(&words[LAST_ID], second, key) {
                        Some(stored) => stored,
                        None => return Interned::Full,
                    },
                    stored => stored,
                };
                if stored & CHECK_BITS == key.second & CHECK_BITS {
                    let id = self.ids_before + stored as u32;
                    return if stored & DEFINED == 0 { Interned::New { id, slot } } else { Interned::Known(id) };
                }
            }
            slot = (slot + 1) & mask;
        }
        Interned::Full
    }

    /// Gives a claimed slot its id; returns what it then contains, which may be another thread's.
    #[cold]
    fn give_id(&self, last_id: &AtomicU64, second: &AtomicU64, key: Key) -> Option<u64> {
        let largest = self.largest_id();
        let last = last_id.fetch_update(Relaxed, Relaxed, |last| (last < largest).then_some(last + 1));
        let content = key.second & CHECK_BITS | (last.ok()? + 1);
        match second.compare_exchange(0, content, AcqRel, Acquire) {
            Ok(_) => Some(content),
            Err(other) => Some(other),
        }
    }

    fn publish(&self, slot: usize) {
        if let Some([_, second]) = self.existing_words().and_then(|words| slot_of(words, slot)) {
            second.fetch_or(DEFINED, Release);
        }
    }
}

#[inline(always)]
fn slot_of(words: &[AtomicU64], index: usize) -> Option<&[AtomicU64; 2]> {
    words[HEADER_WORDS..].as_chunks::<2>().0.get(index)
}

/// Zeroed words that are zero again in a forked child.
fn anonymous_words_empty_after_fork(count: usize) -> Option<*mut AtomicU64> {
    let length_bytes = count.checked_mul(size_of::<AtomicU64>())?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), length_bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the whole mapping is ours. Kernels before 4.14 refuse; a forked child then keeps ids
    // whose definitions are in the trace of its parent.
    unsafe { libc::madvise(address, length_bytes, libc::MADV_WIPEONFORK) };
    Some(address.cast())
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Mutex;

    use super::*;

    fn key(number: u64) -> Key {
        let mut hasher = Hasher::new();
        hasher.add([number, 1, 2, 3]);
        hasher.finish(2)
    }

    #[test]
    fn every_entry_has_one_id_for_all_threads() {
        let table = InternTable::new(14).expect("memory");
        let defined: Mutex<HashMap<u32, u64>> = Mutex::new(HashMap::new());
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (table, defined) = (&table, &defined);
                scope.spawn(move || {
                    for round in 0..40_000_u64 {
                        let number = (round * 7 + thread) % 5_000;
                        let id = match table.intern(key(number)) {
                            Interned::Known(id) => id,
                            Interned::New { id, slot } => {
                                defined.lock().unwrap().insert(id, number);
                                table.publish(slot);
                                id
                            }
                            Interned::Full => panic!("5,000 entries fit"),
                        };
                        assert_eq!(defined.lock().unwrap().get(&id), Some(&number));
                    }
                });
            }
        });
        let defined = defined.into_inner().unwrap();
        assert_eq!(defined.len(), 5_000);
        assert_eq!(defined.values().collect::<HashSet<_>>().len(), 5_000);
    }

    #[test]
    fn an_entry_stays_new_until_it_is_published() {
        let table = InternTable::new(4).expect("memory");
        let Interned::New { id, slot } = table.intern(key(1)) else { panic!("new") };
        assert_eq!(table.intern(key(1)), Interned::New { id, slot });
        table.publish(slot);
        assert_eq!(table.intern(key(1)), Interned::Known(id));
        assert_eq!(id, 1);
    }

    #[test]
    fn keys_that_share_their_first_half_are_kept_apart() {
        let table = InternTable::new(4).expect("memory");
        let ids: HashSet<u32> = (0..5_u64)
            .map(|number| match table.intern(Key { first: 77, second: number << 40 }) {
                Interned::New { id, .. } => id,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ids.len(), 5);
    }

    #[test]
    fn a_table_grows_until_it_is_full_and_keeps_what_it_has() {
        let table = InternTable::new(4).expect("memory");
        let rooms = [12, 96, 768];
        let all: u64 = rooms.iter().sum();
        let ids = |result: &Interned| match result {
            Interned::New { id, slot } => {
                table.publish(*slot);
                Some(*id)
            }
            _ => None,
        };
        let given: Vec<u32> = (0..all).filter_map(|number| ids(&table.intern(key(number)))).collect();
        assert_eq!(given, (1..=all as u32).collect::<Vec<_>>(), "all ids, once and in order");
        assert_eq!(table.intern(key(all)), Interned::Full);
        for number in 0..all {
            assert_eq!(table.intern(key(number)), Interned::Known(number as u32 + 1));
        }
    }

    #[test]
    fn levels_that_are_not_needed_do_not_exist() {
        let table = InternTable::new(6).expect("memory");
        (0..48).for_each(|number| assert!(matches!(table.intern(key(number)), Interned::New { .. })));
        assert!(table.levels[1].existing_words().is_none());
        assert!(matches!(table.intern(key(48)), Interned::New { id: 49, .. }));
        assert!(table.levels[1].existing_words().is_some() && table.levels[2].existing_words().is_none());
    }

    #[test]
    fn threads_fill_levels_together() {
        let table = InternTable::new(6).expect("memory");
        let ids: Vec<HashSet<u32>> = std::thread::scope(|scope| {
            let fill = |_| {
                let table = &table;
                scope.spawn(move || {
                    let interned = (0..2_000).map(|number| table.intern(key(number)));
                    let id = |interned| match interned {
                        Interned::New { id, slot } => {
                            table.publish(slot);
                            id
                        }
                        Interned::Known(id) => id,
                        Interned::Full => panic!("2,000 entries fit"),
                    };
                    interned.map(id).collect()
                })
            };
            let threads: Vec<_> = (0..4).map(fill).collect();
            threads.into_iter().map(|thread| thread.join().expect("ids")).collect()
        });
        for own in &ids {
            assert_eq!(own.len(), 2_000, "every entry has an id of its own");
        }
    }

    #[test]
    fn a_forked_child_starts_empty() {
        let table = InternTable::new(4).expect("memory");
        let generation = table.generation();
        assert_eq!(table.generation(), generation);
        let Interned::New { slot, .. } = table.intern(key(1)) else { panic!("new") };
        table.publish(slot);
        // SAFETY: the child only looks into memory and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_empty = matches!(table.intern(key(1)), Interned::New { id: 1, .. });
            let fine = is_empty && table.generation() != generation;
            // SAFETY: ends the child without running anything of the parent.
            unsafe { libc::_exit(i32::from(!fine)) };
        }
        let mut status = -1;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(table.intern(key(1)), Interned::Known(1));
    }
}
