//! A stack in one number: where every frame is, and which code object it belongs to.

use msmemscope_intern::{Hasher, Key, Mixture};

use crate::code::Identity;
use crate::last_walk::LastWalk;
use crate::layout::{self, KnownLayout, Layout};
use crate::memo::MemoView;
use crate::memory::Address;
use crate::walk::{End, Frame, Frames, Judge, Judgement, Place};

/// What a walk through a stack gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fingerprint {
    /// Equal for equal stacks.
    pub key: Key,
    /// How many frames there were.
    pub frame_count: u64,
    /// How the walk ended.
    pub end: End,
}

impl Fingerprint {
    /// Of no frames.
    pub const NONE: Self = Self { key: Key::NONE, frame_count: 0, end: End::Outermost };

    /// Walks through up to `limit` frames. What they add is taken from the memo and put there, if there is one;
    /// `last` is what the thread itself remembers.
    ///
    /// # Safety
    /// `thread_state` must be the calling thread's, and the layout that of its interpreter.
    #[inline]
    pub unsafe fn take(
        layout: &Layout,
        known: Option<KnownLayout>,
        thread_state: Address,
        limit: usize,
        memo: Option<MemoView<'_>>,
        last: &mut LastWalk,
    ) -> Self {
        // SAFETY: promised by the caller; the constants equal the layout.
        unsafe {
            let Some(memo) = memo else { return Self::walk(layout, thread_state, limit, &LookingInto, last).0 };
            let again = match known {
                Some(KnownLayout::Version3_9) => last.again(&layout::VERSION_3_9, thread_state, limit, memo),
                Some(KnownLayout::Version3_10) => last.again(&layout::VERSION_3_10, thread_state, limit, memo),
                Some(KnownLayout::Version3_11) => last.again(&layout::VERSION_3_11, thread_state, limit, memo),
                Some(KnownLayout::Version3_12) => last.again(&layout::VERSION_3_12, thread_state, limit, memo),
                Some(KnownLayout::Version3_13) => last.again(&layout::VERSION_3_13, thread_state, limit, memo),
                Some(KnownLayout::Version3_14) => last.again(&layout::VERSION_3_14, thread_state, limit, memo),
                None => last.again(layout, thread_state, limit, memo),
            };
            match again {
                Some(fingerprint) => fingerprint,
                None => Self::take_anew(layout, thread_state, limit, memo, last),
            }
        }
    }

    /// # Safety
    /// As for [`Fingerprint::take`].
    #[inline(never)]
    unsafe fn take_anew(
        layout: &Layout,
        thread_state: Address,
        limit: usize,
        memo: MemoView<'_>,
        last: &mut LastWalk,
    ) -> Self {
        // SAFETY: promised by the caller.
        let (fingerprint, hasher) = unsafe { Self::walk(layout, thread_state, limit, &Remembering(memo), last) };
        last.finish(limit, memo, hasher, fingerprint);
        fingerprint
    }

    /// # Safety
    /// As for [`Fingerprint::take`].
    #[inline(always)]
    unsafe fn walk(
        layout: &Layout,
        thread_state: Address,
        limit: usize,
        judge: &impl Judge<Value = Mixture>,
        last: &mut LastWalk,
    ) -> (Self, Hasher) {
        last.begin();
        let mut hasher = Hasher::new();
        let mut frame_count = 0;
        // SAFETY: promised by the caller.
        let mut frames = unsafe { Frames::of_thread(layout, thread_state, limit) };
        while let Some((place, mixture)) = frames.next_judged(judge) {
            hasher.add_mixture(mixture);
            last.meet(frame_count, &place, mixture);
            frame_count += 1;
        }
        let (frame_count, end) = (frame_count as u64, frames.end());
        (Self { key: hasher.finish(end.counted(frame_count)), frame_count, end }, hasher)
    }
}

/// Makes of a frame what it adds.
struct LookingInto;

impl Judge for LookingInto {
    type Value = Mixture;

    #[inline(always)]
    unsafe fn judge(&self, layout: &Layout, place: Place) -> Judgement<Mixture> {
        // SAFETY: promised by the caller.
        unsafe {
            match place.frame(layout) {
                Judgement::Shown(Frame { code, raw_instruction }) => {
                    let Identity { file_and_table, line_and_serial } = Identity::of(layout, code);
                    let (code, instruction) = (code.get() as u64, raw_instruction as u64);
                    Judgement::Shown(Mixture::of([code, instruction, file_and_table, line_and_serial]))
                }
                Judgement::LeftOut => Judgement::LeftOut,
                Judgement::Damaged => Judgement::Damaged,
            }
        }
    }
}

/// As above, but looks only once.
struct Remembering<'a>(MemoView<'a>);

impl Judge for Remembering<'_> {
    type Value = Mixture;

    #[inline(always)]
    unsafe fn judge(&self, layout: &Layout, place: Place) -> Judgement<Mixture> {
        match self.0.get(&place) {
            Some(mixture) => Judgement::Shown(mixture),
            // SAFETY: promised by the caller.
            None => unsafe { self.look_into_and_remember(layout, place) },
        }
    }
}

impl Remembering<'_> {
    /// # Safety
    /// As for [`Judge::judge`].
    #[cold]
    #[inline(never)]
    unsafe fn look_into_and_remember(&self, layout: &Layout, place: Place) -> Judgement<Mixture> {
        // SAFETY: promised by the caller.
        let judgement = unsafe { LookingInto.judge(layout, place) };
        if let Judgement::Shown(mixture) = judgement {
            self.0.put(&place, mixture);
        }
        judgement
    }
}
