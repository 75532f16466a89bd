//! Things seen again and again get small ids: a lock-free table from a 128-bit hash to an id.
//!
//! What the id stands for is defined in the trace once; here only 95 bits of the hash are kept, 16
//! bytes per entry whatever its size. Nobody ever waits: threads that meet at a new entry agree on
//! one id, and each of them defines it, until one has said that the definition is written.
//!
//! The memory is reserved once, costs nothing until touched, and is empty again in a forked child,
//! whose trace lacks the definitions of its parent.

use std::sync::atomic::{
    AtomicU64,
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

/// The table.
pub struct InternTable {
    words: &'static [AtomicU64],
    slot_count_bits: u32,
}

impl InternTable {
    /// A table with `2^slot_count_bits` slots, three quarters of which can be used. Nothing if there
    /// is no memory.
    pub fn new(slot_count_bits: u32) -> Option<Self> {
        let count = HEADER_WORDS + (2 << slot_count_bits);
        let words = anonymous_words_empty_after_fork(count)?;
        Some(Self { words, slot_count_bits })
    }

    /// A number that changes whenever the table was emptied by a fork, and is never zero. Ids
    /// remembered under another generation must be forgotten.
    #[inline]
    pub fn generation(&self) -> u64 {
        match self.words[GENERATION].load(Acquire) {
            0 => self.begin_generation(),
            generation => generation,
        }
    }

    #[cold]
    fn begin_generation(&self) -> u64 {
        let fresh = NEXT_GENERATION.fetch_add(1, Relaxed);
        match self.words[GENERATION].compare_exchange(0, fresh, AcqRel, Acquire) {
            Ok(_) => fresh,
            Err(other) => other,
        }
    }

    /// How many ids were given.
    pub fn id_count(&self) -> u32 {
        self.words[LAST_ID].load(Relaxed).min(self.largest_id()) as u32
    }

    fn largest_id(&self) -> u64 {
        (1 << self.slot_count_bits) / 4 * 3
    }

    /// Finds an entry or claims a place for it.
    #[inline]
    pub fn intern(&self, key: Key) -> Interned {
        let mask = (1 << self.slot_count_bits) - 1;
        let mut slot = (key.first >> (64 - self.slot_count_bits)) as usize;
        for _ in 0..=mask {
            let Some([first, second]) = self.slot(slot) else { return Interned::Full };
            let mut found = first.load(Acquire);
            if found == 0 {
                if self.words[LAST_ID].load(Relaxed) >= self.largest_id() {
                    return Interned::Full;
                }
                found = match first.compare_exchange(0, key.first, AcqRel, Acquire) {
                    Ok(_) => key.first,
                    Err(other) => other,
                };
            }
            if found == key.first {
                let stored = match second.load(Acquire) {
                    0 => match self.give_id(second, key) {
                        Some(stored) => stored,
                        None => return Interned::Full,
                    },
                    stored => stored,
                };
                if stored & CHECK_BITS == key.second & CHECK_BITS {
                    let id = stored as u32;
                    return if stored & DEFINED == 0 { Interned::New { id, slot } } else { Interned::Known(id) };
                }
            }
            slot = (slot + 1) & mask;
        }
        Interned::Full
    }

    /// Gives a claimed slot its id; returns what it then contains, which may be another thread's.
    #[cold]
    fn give_id(&self, second: &AtomicU64, key: Key) -> Option<u64> {
        let largest = self.largest_id();
        let last = self.words[LAST_ID].fetch_update(Relaxed, Relaxed, |last| (last < largest).then_some(last + 1));
        let content = key.second & CHECK_BITS | (last.ok()? + 1);
        match second.compare_exchange(0, content, AcqRel, Acquire) {
            Ok(_) => Some(content),
            Err(other) => Some(other),
        }
    }

    /// Says that the entry's definition is written.
    pub fn publish(&self, slot: usize) {
        if let Some([_, second]) = self.slot(slot) {
            second.fetch_or(DEFINED, Release);
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&[AtomicU64; 2]> {
        self.words[HEADER_WORDS..].as_chunks::<2>().0.get(index)
    }
}

/// Zeroed words that are never given back and are zero again in a forked child.
fn anonymous_words_empty_after_fork(count: usize) -> Option<&'static [AtomicU64]> {
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
    // SAFETY: the mapping is aligned, zeroed, `count` words long and never unmapped.
    Some(unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), count) })
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
        assert_eq!((id, table.id_count()), (1, 1));
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
    fn a_full_table_says_so_and_keeps_what_it_has() {
        let table = InternTable::new(6).expect("memory");
        let results: Vec<Interned> = (0..100).map(|number| table.intern(key(number))).collect();
        let full = results.iter().filter(|result| **result == Interned::Full).count();
        assert_eq!(full, 100 - 48);
        assert!(matches!(results[0], Interned::New { id: 1, .. }));
        assert_eq!(table.intern(key(0)), results[0]);
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
