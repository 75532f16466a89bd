//! What frames add to fingerprints, remembered for all threads.
//!
//! Looking into code objects and their texts is most of the work of a walk. As long as no code object
//! dies, a frame that stands at the same instruction of the same code object adds the same.
//!
//! Nobody waits: threads may write the same entry at the same time. Each word carries something of the
//! others, so that an entry made of parts of two is seen to be none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use msmemscope_intern::Mixture;

use crate::walk::Place;

const ENTRY_COUNT_BITS: u32 = 12;
/// Spreads small numbers over a word.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Half a cache line: code object and place, each combined with the mixture; the mixture.
#[derive(Default)]
#[repr(align(32))]
struct Entry([AtomicU64; 4]);

/// The entries: 128 KiB.
pub(crate) struct Memo(Box<[Entry]>);

/// The memo at a moment: what was put in before a code object died is not in it.
#[derive(Clone, Copy)]
pub(crate) struct MemoView<'a> {
    entries: &'a [Entry],
    deaths: u64,
}

impl Memo {
    pub fn new() -> Self {
        Self((0..1 << ENTRY_COUNT_BITS).map(|_| Entry::default()).collect())
    }

    /// What is true while this many code objects have died.
    #[inline(always)]
    pub fn at(&self, deaths: u64) -> MemoView<'_> {
        MemoView { entries: &self.0, deaths }
    }
}

impl<'a> MemoView<'a> {
    /// How many code objects have died at this moment.
    #[inline(always)]
    pub fn deaths(&self) -> u64 {
        self.deaths
    }

    #[inline(always)]
    fn entry(&self, place: &Place) -> Option<(&'a Entry, u64)> {
        let [code, where_] = place.words();
        let index = (code ^ where_.rotate_left(20)).wrapping_mul(SPREAD) >> (64 - ENTRY_COUNT_BITS);
        Some((self.entries.get(index as usize)?, where_ ^ self.deaths.wrapping_mul(SPREAD)))
    }

    /// What a frame at this place adds, if that is known. It is then one that is shown.
    #[inline(always)]
    pub fn get(&self, place: &Place) -> Option<Mixture> {
        let (Entry([code, moment, first, second]), wanted) = self.entry(place)?;
        let (first, second) = (first.load(Relaxed), second.load(Relaxed));
        let is_same_code = code.load(Relaxed) ^ first ^ second.rotate_left(32) == place.code as u64;
        let is_same_moment = moment.load(Relaxed) ^ second ^ first.rotate_left(32) == wanted;
        (is_same_code && is_same_moment).then_some(Mixture { first, second })
    }

    /// Remembers what a frame at this place adds.
    pub fn put(&self, place: &Place, mixture: Mixture) {
        let Some((Entry(words), moment)) = self.entry(place) else { return };
        let Mixture { first, second } = mixture;
        words[0].store(place.code as u64 ^ first ^ second.rotate_left(32), Relaxed);
        words[1].store(moment ^ second ^ first.rotate_left(32), Relaxed);
        words[2].store(first, Relaxed);
        words[3].store(second, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: usize) -> Place {
        Place { code: 0x7f00_0000_1000 + number % 7 * 0x180, raw_instruction: 0x7f00_0000_10b8 + number, owner: 0 }
    }

    fn mixture(number: usize, deaths: u64) -> Mixture {
        Mixture::of([number as u64, 1, 2, deaths])
    }

    #[test]
    fn a_place_is_known_until_a_code_object_dies() {
        let memo = Memo::new();
        assert_eq!(memo.at(1).get(&place(1)), None);
        memo.at(1).put(&place(1), mixture(1, 1));
        assert_eq!(memo.at(1).get(&place(1)), Some(mixture(1, 1)));
        assert_eq!(memo.at(1).get(&Place { owner: 1, ..place(1) }), None);
        assert_eq!(memo.at(1).get(&place(2)), None);
        assert_eq!(memo.at(2).get(&place(1)), None);
    }

    #[test]
    fn threads_that_write_at_the_same_time_never_see_parts_of_two() {
        let memo = Memo::new();
        std::thread::scope(|scope| {
            for thread in 0..3_usize {
                let memo = &memo;
                scope.spawn(move || {
                    for round in 0..200_000_usize {
                        // More places than entries, so that each is taken by several.
                        let (number, deaths) = ((round * 31 + thread * 7) % 20_000, (round / 50_000) as u64);
                        match memo.at(deaths).get(&place(number)) {
                            Some(found) => assert_eq!(found, mixture(number, deaths)),
                            None => memo.at(deaths).put(&place(number), mixture(number, deaths)),
                        }
                    }
                });
            }
        });
    }
}
