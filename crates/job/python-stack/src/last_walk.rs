//! What a thread saw when it last walked through its frames. The next walk meets most of them again: only
//! for those that differ has anything to be worked out.

use msmemscope_intern::{Hasher, Mixture};

use crate::fingerprint::Fingerprint;
use crate::layout::Layout;
use crate::memo::MemoView;
use crate::memory::Address;
use crate::walk::{End, Frames, Place};

/// Deeper stacks are not remembered.
const LARGEST_COUNT: usize = 24;
const _: () = assert!(LARGEST_COUNT <= Hasher::LARGEST_REPLACEABLE);

/// No place has these words.
const NOWHERE: [u64; 2] = [u64::MAX; 2];

/// A walk: which frames it met, and what came of it.
#[derive(Debug)]
pub(crate) struct LastWalk {
    places: [[u64; 2]; LARGEST_COUNT],
    mixtures: [Mixture; LARGEST_COUNT],
    /// The frame behind the last one, if the walk stopped because there was one.
    beyond: [u64; 2],
    /// Zero if nothing is remembered.
    count: usize,
    limit: usize,
    deaths: u64,
    hasher: Hasher,
    fingerprint: Fingerprint,
}

impl LastWalk {
    /// Nothing remembered.
    pub const fn new() -> Self {
        Self {
            places: [[0; 2]; LARGEST_COUNT],
            mixtures: [Mixture::NONE; LARGEST_COUNT],
            beyond: NOWHERE,
            count: 0,
            limit: 0,
            deaths: 0,
            hasher: Hasher::new(),
            fingerprint: Fingerprint::NONE,
        }
    }

    /// Walks again. Nothing comes of it if there are more frames or fewer than last time, or if one of them was
    /// never met before.
    ///
    /// # Safety
    /// `thread_state` must be the calling thread's, and the layout that of its interpreter.
    #[inline(always)]
    pub unsafe fn again(
        &mut self,
        layout: &Layout,
        thread_state: Address,
        limit: usize,
        memo: MemoView<'_>,
    ) -> Option<Fingerprint> {
        if self.count == 0 || self.limit != limit || self.deaths != memo.deaths() {
            return None;
        }
        let mut is_changed = false;
        // SAFETY: promised by the caller.
        let mut frames = unsafe { Frames::of_thread(layout, thread_state, limit) };
        for index in 0..self.count.min(LARGEST_COUNT) {
            let place = frames.next_place()?;
            if place.words() != self.places[index] {
                self.replace(index, &place, memo.get(&place)?);
                is_changed = true;
            }
        }
        let ends_the_same = match frames.next_place() {
            None => frames.end() == self.fingerprint.end,
            Some(place) if self.fingerprint.end == End::Limit => self.has_beyond(&place, memo),
            Some(_) => false,
        };
        if is_changed {
            let Fingerprint { frame_count, end, .. } = self.fingerprint;
            self.fingerprint.key = self.hasher.finish(end.counted(frame_count));
        }
        ends_the_same.then_some(self.fingerprint)
    }

    /// Whether a frame behind the last one is one that is shown.
    #[inline(always)]
    fn has_beyond(&mut self, place: &Place, memo: MemoView<'_>) -> bool {
        let is_known = place.words() == self.beyond || memo.get(place).is_some();
        if is_known {
            self.beyond = place.words();
        }
        is_known
    }

    fn replace(&mut self, index: usize, place: &Place, mixture: Mixture) {
        self.hasher.replace(self.count - 1 - index, self.mixtures[index], mixture);
        (self.places[index], self.mixtures[index]) = (place.words(), mixture);
    }

    /// A walk begins that meets all frames.
    #[inline(always)]
    pub fn begin(&mut self) {
        (self.count, self.beyond) = (0, NOWHERE);
    }

    /// The walk meets a frame, the `index`th from zero.
    #[inline(always)]
    pub fn meet(&mut self, index: usize, place: &Place, mixture: Mixture) {
        if index < LARGEST_COUNT {
            (self.places[index], self.mixtures[index]) = (place.words(), mixture);
        }
    }

    /// The walk is over.
    #[inline(always)]
    pub fn finish(&mut self, limit: usize, memo: MemoView<'_>, hasher: Hasher, fingerprint: Fingerprint) {
        let count = fingerprint.frame_count as usize;
        if count <= LARGEST_COUNT && fingerprint.end != End::Damaged {
            (self.limit, self.deaths, self.hasher, self.fingerprint) = (limit, memo.deaths(), hasher, fingerprint);
            self.count = count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memo::Memo;
    use crate::walk::tests::{address, frame, layout, with_thread_state};

    /// The fingerprint of a stack of frames that stand at these instructions of one code object, innermost first.
    fn fingerprint(
        code: &[u64],
        instructions: &[usize],
        limit: usize,
        memo: MemoView<'_>,
        last: &mut LastWalk,
    ) -> Fingerprint {
        let layout = layout();
        let start = address(code) + usize::from(layout.code_start);
        let (mut frames, mut previous) = (Vec::new(), 0);
        for instruction in instructions.iter().rev() {
            let words = frame(address(code), previous, start + instruction, 0);
            previous = address(&words[..]);
            frames.push(words);
        }
        with_thread_state(previous, |state| {
            // SAFETY: imitations of the structures that the layout describes.
            unsafe { Fingerprint::take(&layout, None, state, limit, Some(memo), last) }
        })
    }

    #[test]
    fn a_walk_that_remembers_the_last_one_sees_what_any_other_does() {
        // The first four instructions are those of a function that has not begun.
        let mut code = [0_u64; 4096];
        code[usize::from(layout().code_first_traceable.expect("known")) / 8] = 4;
        let memo = Memo::new();
        let mut last = LastWalk::new();
        let mut random = 7_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        let mut instructions = vec![8, 10, 12];
        let (mut deaths, mut limit) = (1, 16);
        for _ in 0..20_000 {
            match next(20) {
                0 => instructions.push(8 + 2 * next(40)),
                1 if instructions.len() > 1 => drop(instructions.pop()),
                2 if instructions.len() < 30 => instructions.insert(0, 2 * next(40)),
                3 if instructions.len() > 1 => drop(instructions.remove(0)),
                4 => limit = 1 + next(2 * LARGEST_COUNT),
                5 => deaths += 1,
                6..10 => {}
                _ => {
                    let changed = next(instructions.len());
                    instructions[changed] = 2 * next(40);
                }
            }
            let seen = fingerprint(&code, &instructions, limit, memo.at(deaths), &mut last);
            let expected = fingerprint(&code, &instructions, limit, memo.at(deaths), &mut LastWalk::new());
            let facts = |fingerprint: &Fingerprint| (fingerprint.key, fingerprint.frame_count, fingerprint.end);
            assert_eq!(facts(&seen), facts(&expected), "{instructions:?}, at most {limit}");
        }
    }
}
