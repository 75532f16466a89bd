//! The calling thread's frames, innermost first.

use crate::layout::{InstructionKind, Layout};
use crate::memory::Address;

/// Owner values from here on mark frames without code of the user.
const FIRST_INTERNAL_OWNER: u8 = 3;
/// Owner of a generator's frame.
const GENERATOR_OWNER: u8 = 1;
/// Bits that say how a frame refers to its code object.
const TAG_BITS: usize = 3;
/// Bytes of one instruction.
const UNIT_BYTES: usize = 2;
/// Only in front of this many bytes can a function still be on its way in.
const LARGEST_PRELUDE_BYTES: usize = 256;
/// Owners are small numbers, and addresses and offsets have room above.
const OWNER_SHIFT: u32 = 60;
/// Frames without code looked at per frame asked for, at most.
const STEPS_PER_FRAME: usize = 4;

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its code object.
    pub code: Address,
    /// The instruction as the frame keeps it.
    pub raw_instruction: usize,
}

/// What a frame says about itself, not looked into yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Address of its code object.
    pub code: usize,
    /// The instruction as the frame keeps it.
    pub raw_instruction: usize,
    /// What the frame belongs to.
    pub owner: u8,
}

/// What becomes of a frame.
pub(crate) enum Judgement<T> {
    /// It is shown.
    Shown(T),
    /// Python itself does not show it.
    LeftOut,
    /// It cannot be a frame.
    Damaged,
}

/// Makes something of frames.
pub(crate) trait Judge {
    /// What is made of one that is shown.
    type Value;

    /// What becomes of a frame.
    ///
    /// # Safety
    /// The place must be that of a live frame, which keeps its code object alive.
    unsafe fn judge(&self, layout: &Layout, place: Place) -> Judgement<Self::Value>;
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the outermost frame.
    Outermost,
    /// At the limit; there are more frames.
    Limit,
    /// At something that cannot be a frame.
    Damaged,
}

impl End {
    /// A number of frames that also says whether there are more: the same frames may be all of one stack and the inner
    /// part of another.
    #[inline(always)]
    pub fn counted(self, frame_count: u64) -> u64 {
        const MORE: u64 = 1 << 32;
        if self == End::Limit { frame_count | MORE } else { frame_count }
    }
}

impl Frame {
    /// Byte offset of the current instruction; zero if the function has not begun.
    pub fn instruction_offset(&self, layout: &Layout) -> u32 {
        let offset = match layout.instruction_kind {
            InstructionKind::ByteOffset => self.raw_instruction as i32,
            InstructionKind::UnitOffset => (self.raw_instruction as i32).saturating_mul(UNIT_BYTES as i32),
            InstructionKind::Pointer => {
                self.raw_instruction.wrapping_sub(self.code.field(layout.code_start)) as isize as i32
            }
        };
        offset.max(0) as u32
    }
}

/// A walk through a thread's frames. Methods are always inlined, so that a layout that is a constant
/// leaves its offsets in the instructions.
pub(crate) struct Frames<'a> {
    layout: &'a Layout,
    next: usize,
    frames_left: usize,
    steps_left: usize,
    end: End,
}

impl<'a> Frames<'a> {
    /// Starts at the innermost frame of a thread and shows up to `limit` frames.
    ///
    /// # Safety
    /// `thread_state` must be the calling thread's, and the layout that of its interpreter. The thread
    /// must not go back to the interpreter while the walk is in use.
    #[inline(always)]
    pub unsafe fn of_thread(layout: &'a Layout, thread_state: Address, limit: usize) -> Self {
        let steps_left = limit.saturating_mul(STEPS_PER_FRAME).saturating_add(STEPS_PER_FRAME);
        // SAFETY: only the calling thread changes its chain of frames, and it is here.
        let innermost = unsafe {
            match layout.indirect_frame {
                None => Some(thread_state.load::<usize>(layout.thread_frame)),
                Some(offset) => thread_state.follow(layout.thread_frame).map(|holder| holder.load(offset)),
            }
        };
        let end = if innermost.is_some() { End::Outermost } else { End::Damaged };
        Self { layout, next: innermost.unwrap_or(0), frames_left: limit, steps_left, end }
    }

    /// How the walk ended, once it has.
    pub fn end(&self) -> End {
        self.end
    }

    #[inline(always)]
    fn stop<T>(&mut self, end: End) -> Option<T> {
        self.next = 0;
        self.end = end;
        None
    }
}

impl Frames<'_> {
    /// Where the next frame is that belongs to code of the user.
    #[inline(always)]
    pub fn next_place(&mut self) -> Option<Place> {
        let layout = self.layout;
        while self.next != 0 {
            let Some(frame) = Address::new(self.next) else { return self.stop(End::Damaged) };
            self.steps_left -= 1;
            if self.steps_left == 0 {
                return self.stop(End::Limit);
            }
            // SAFETY: frames that are in the chain are alive.
            unsafe {
                self.next = frame.load(layout.frame_previous);
                let owner = match layout.frame_owner {
                    Some(offset) => frame.load::<u8>(offset),
                    None => 0,
                };
                if owner >= FIRST_INTERNAL_OWNER {
                    continue;
                }
                let raw_instruction = match layout.instruction_kind {
                    InstructionKind::Pointer => frame.load::<usize>(layout.frame_instruction),
                    _ => frame.load::<i32>(layout.frame_instruction) as usize,
                };
                let code = frame.load::<usize>(layout.frame_code) & !TAG_BITS;
                return Some(Place { code, raw_instruction, owner });
            }
        }
        None
    }

    /// The next frame that is shown, and what is made of it.
    #[inline(always)]
    pub fn next_judged<J: Judge>(&mut self, judge: &J) -> Option<(Place, J::Value)> {
        while let Some(place) = self.next_place() {
            // SAFETY: the frame is alive.
            match unsafe { judge.judge(self.layout, place) } {
                Judgement::Shown(_) if self.frames_left == 0 => return self.stop(End::Limit),
                Judgement::Shown(value) => {
                    self.frames_left -= 1;
                    return Some((place, value));
                }
                Judgement::LeftOut => {}
                Judgement::Damaged => return self.stop(End::Damaged),
            }
        }
        None
    }
}

impl Iterator for Frames<'_> {
    type Item = Frame;

    #[inline(always)]
    fn next(&mut self) -> Option<Frame> {
        self.next_judged(&Plainly).map(|(_, frame)| frame)
    }
}

/// Shows frames as they are.
struct Plainly;

impl Judge for Plainly {
    type Value = Frame;

    #[inline(always)]
    unsafe fn judge(&self, layout: &Layout, place: Place) -> Judgement<Frame> {
        // SAFETY: promised by the caller.
        unsafe { place.frame(layout) }
    }
}

impl Place {
    /// Tells it from all others: the code object, and where in it.
    #[inline(always)]
    pub fn words(&self) -> [u64; 2] {
        [self.code as u64, self.raw_instruction as u64 ^ u64::from(self.owner) << OWNER_SHIFT]
    }

    /// The frame at this place.
    ///
    /// # Safety
    /// The place must be that of a live frame.
    #[inline(always)]
    pub unsafe fn frame(self, layout: &Layout) -> Judgement<Frame> {
        let Place { code, raw_instruction, owner } = self;
        let Some(code) = Address::new(code) else { return Judgement::Damaged };
        // SAFETY: promised by the caller.
        match unsafe { is_incomplete(layout, code, raw_instruction, owner) } {
            true => Judgement::LeftOut,
            false => Judgement::Shown(Frame { code, raw_instruction }),
        }
    }
}

/// Whether the function has not begun: its cells or its generator are being made. Python itself does
/// not show such frames.
///
/// # Safety
/// `code` must be the live code object of a frame.
#[inline(always)]
unsafe fn is_incomplete(layout: &Layout, code: Address, raw_instruction: usize, owner: u8) -> bool {
    let Some(first_traceable) = layout.code_first_traceable else { return false };
    let offset = raw_instruction.wrapping_sub(code.field(layout.code_start)) as isize;
    if owner == GENERATOR_OWNER || offset >= LARGEST_PRELUDE_BYTES as isize {
        return false;
    }
    // SAFETY: promised by the caller.
    let first_traceable: i32 = unsafe { code.load(first_traceable) };
    offset < first_traceable as isize * UNIT_BYTES as isize
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::status::PythonVersion;

    /// The layout of 3.12, whose frames are easy to imitate.
    pub(crate) fn layout() -> Layout {
        // SAFETY: this version has no table.
        unsafe { Layout::of(PythonVersion { major: 3, minor: 12 }, None) }.expect("known")
    }

    const OWNER_WORD: usize = 8;
    const OWNER_WORD_SHIFT: u32 = 48;

    pub(crate) fn frame(code: usize, previous: usize, instruction: usize, owner: u64) -> Box<[u64; 10]> {
        let mut words = Box::new([0; 10]);
        words[0] = code as u64;
        words[1] = previous as u64;
        words[7] = instruction as u64;
        words[OWNER_WORD] = owner << OWNER_WORD_SHIFT;
        words
    }

    pub(crate) fn address(words: &[u64]) -> usize {
        words.as_ptr() as usize
    }

    /// Lets `work` see the state of a thread whose chain of frames starts at `innermost`.
    pub(crate) fn with_thread_state<T>(innermost: usize, work: impl FnOnce(Address) -> T) -> T {
        let holder = [innermost as u64; 1];
        let mut thread_state = [0_u64; 16];
        thread_state[7] = address(&holder) as u64;
        work(Address::new(address(&thread_state)).expect("aligned"))
    }

    /// Walks a chain that starts at `innermost`; instruction offsets tell frames apart.
    fn walked(innermost: usize, limit: usize) -> (Vec<u32>, End) {
        let layout = layout();
        with_thread_state(innermost, |thread_state| {
            // SAFETY: imitations of the structures that the layout describes.
            let mut frames = unsafe { Frames::of_thread(&layout, thread_state, limit) };
            let offsets = frames.by_ref().map(|frame| frame.instruction_offset(&layout)).collect();
            (offsets, frames.end())
        })
    }

    #[test]
    fn frames_are_shown_from_the_inside_out_up_to_the_limit() {
        let code = [0_u64; 64];
        let start = address(&code) + usize::from(layout().code_start);
        let outer = frame(address(&code), 0, start + 6, 0);
        let inner = frame(address(&code) | 1, address(&outer[..]), start + 4, 1);
        assert_eq!(walked(address(&inner[..]), 9), (vec![4, 6], End::Outermost));
        assert_eq!(walked(address(&inner[..]), 2), (vec![4, 6], End::Outermost));
        assert_eq!(walked(address(&inner[..]), 1), (vec![4], End::Limit));
        assert_eq!(walked(0, 9), (vec![], End::Outermost));
    }

    #[test]
    fn internal_and_incomplete_frames_are_left_out() {
        let mut code = [0_u64; 64];
        code[usize::from(layout().code_first_traceable.unwrap()) / 8] = 3;
        let start = address(&code) + usize::from(layout().code_start);
        let outer = frame(address(&code), 0, start + 6, 0);
        let incomplete = frame(address(&code), address(&outer[..]), start + 4, 0);
        let internal = frame(0, address(&incomplete[..]), 0, 3);
        let generator = frame(address(&code), address(&internal[..]), start + 2, 1);
        assert_eq!(walked(address(&generator[..]), 9), (vec![2, 6], End::Outermost));
        assert_eq!(walked(address(&internal[..]), 1), (vec![6], End::Outermost));
    }

    #[test]
    fn nonsense_ends_the_walk() {
        let code = [0_u64; 64];
        let start = address(&code) + usize::from(layout().code_start);
        let odd = frame(address(&code), 0x1234_5679, start, 0);
        assert_eq!(walked(address(&odd[..]), 9), (vec![0], End::Damaged));
        let without_code = frame(8, 0, start, 0);
        assert_eq!(walked(address(&without_code[..]), 9), (vec![], End::Damaged));
        let mut circle = frame(address(&code), 0, start, 0);
        circle[1] = address(&circle[..]) as u64;
        assert_eq!(walked(address(&circle[..]), 3), (vec![0, 0, 0], End::Limit));
        circle[OWNER_WORD] = 3 << OWNER_WORD_SHIFT;
        assert_eq!(walked(address(&circle[..]), 3), (vec![], End::Limit));
    }
}
