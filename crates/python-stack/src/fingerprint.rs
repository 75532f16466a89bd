//! A stack in one number: where every frame is, and which code object it belongs to.

use msmemscope_intern::{Hasher, Key};

use crate::code::Identity;
use crate::layout::{self, KnownLayout, Layout};
use crate::memory::Address;
use crate::walk::{End, Frames};

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
    /// Walks through up to `limit` frames.
    ///
    /// # Safety
    /// `thread_state` must be the calling thread's, and the layout that of its interpreter.
    #[inline]
    pub unsafe fn take(layout: &Layout, known: Option<KnownLayout>, thread_state: Address, limit: usize) -> Self {
        // SAFETY: promised by the caller; the constants equal the layout.
        unsafe {
            match known {
                Some(KnownLayout::Version3_9) => Self::take_with(&layout::VERSION_3_9, thread_state, limit),
                Some(KnownLayout::Version3_10) => Self::take_with(&layout::VERSION_3_10, thread_state, limit),
                Some(KnownLayout::Version3_11) => Self::take_with(&layout::VERSION_3_11, thread_state, limit),
                Some(KnownLayout::Version3_12) => Self::take_with(&layout::VERSION_3_12, thread_state, limit),
                Some(KnownLayout::Version3_13) => Self::take_with(&layout::VERSION_3_13, thread_state, limit),
                Some(KnownLayout::Version3_14) => Self::take_with(&layout::VERSION_3_14, thread_state, limit),
                None => Self::take_with(layout, thread_state, limit),
            }
        }
    }

    /// # Safety
    /// As for [`Fingerprint::take`].
    #[inline(always)]
    unsafe fn take_with(layout: &Layout, thread_state: Address, limit: usize) -> Self {
        let mut hasher = Hasher::new();
        let mut frame_count = 0;
        // SAFETY: promised by the caller.
        let mut frames = unsafe { Frames::of_thread(layout, thread_state, limit) };
        for frame in frames.by_ref() {
            // SAFETY: the frame is alive, so is its code object.
            let identity = unsafe { Identity::of(layout, frame.code) };
            let place = [frame.code.get() as u64, frame.raw_instruction as u64];
            hasher.add([place[0], place[1], identity.file_and_table, identity.line_and_serial]);
            frame_count += 1;
        }
        let end = frames.end();
        Self { key: hasher.finish(frame_count), frame_count, end }
    }
}
