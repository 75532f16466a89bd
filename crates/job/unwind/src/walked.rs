//! The frames of one walk, and how each was left: by them the next walk of the thread recognises frames
//! that it has been through.
//!
//! Most stacks share all but their innermost frames with the one before. A frame with the same program
//! counter, stack pointer and frame pointer as then is left in the same way, as long as its module is
//! still the same one; where the stack holds the same words as then, that leads to the same caller. So
//! two words are compared instead of looking up and following a rule. Nothing is taken on trust.

use crate::LARGEST_DEPTH;
use crate::registers::{Registers, strip_authentication};
use crate::rule::{IN_REGISTER, ModuleIndex, PackedRule, Rule, RuleKind};
use crate::stack_memory::StackMemory;

/// Room for the deepest stack and the mark that frames are missing.
const ROOM: usize = LARGEST_DEPTH + 1;

/// One frame of a walk besides its program counter: where it was, and which words led out of it.
#[derive(Clone, Copy)]
struct Link {
    stack_pointer: u64,
    frame_pointer: u64,
    /// Where the return address lies, zero if the frame was not left in a common way.
    return_slot: u64,
    /// Where the caller's frame pointer lies, zero if it is still in its register.
    frame_pointer_slot: u64,
    module: ModuleIndex,
}

const NO_LINK: Link = Link { stack_pointer: 0, frame_pointer: 0, return_slot: 0, frame_pointer_slot: 0, module: 0 };

/// The frames of one walk, innermost first.
pub(crate) struct Walked {
    frames: [u64; ROOM],
    links: [Link; ROOM],
    length: usize,
}

impl Walked {
    /// No frames.
    pub const fn new() -> Self {
        Self { frames: [0; ROOM], links: [NO_LINK; ROOM], length: 0 }
    }

    /// The program counters.
    #[inline]
    pub fn frames(&self) -> &[u64] {
        self.frames.get(..self.length).unwrap_or(&[])
    }

    /// How many frames there are.
    #[inline(always)]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Forgets all frames.
    #[inline]
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Adds a frame that was left by a common rule, to a caller whose stack pointer is known.
    #[inline(always)]
    pub fn push_common(&mut self, inner: &Registers, rule: &PackedRule, outer_stack_pointer: u64) {
        let slot = |offset: i64| outer_stack_pointer.wrapping_add_signed(offset);
        let frame_pointer_offset = rule.frame_pointer_offset();
        let link = Link {
            stack_pointer: inner.stack_pointer,
            frame_pointer: inner.frame_pointer,
            return_slot: slot(rule.return_address_offset()),
            frame_pointer_slot: match frame_pointer_offset == i64::from(IN_REGISTER) {
                true => 0,
                false => slot(frame_pointer_offset),
            },
            module: rule.module(),
        };
        self.push(inner.program_counter, link);
    }

    /// Adds a frame that may be left in any way.
    #[inline]
    pub fn push_any(&mut self, registers: &Registers) {
        let Registers { program_counter, stack_pointer, frame_pointer, .. } = *registers;
        self.push(program_counter, Link { stack_pointer, frame_pointer, ..NO_LINK });
    }

    /// Tells how the last frame, a return address, was left after all.
    #[inline]
    pub fn was_left(&mut self, rule: &Rule, module: ModuleIndex, outer_stack_pointer: u64) {
        let is_common = matches!(rule.kind, RuleKind::FromStackPointer | RuleKind::FromFramePointer)
            && rule.return_address_offset != IN_REGISTER;
        let Some(link) = self.length.checked_sub(1).and_then(|last| self.links.get_mut(last)) else { return };
        if is_common {
            let slot = |offset: i32| outer_stack_pointer.wrapping_add_signed(i64::from(offset));
            link.return_slot = slot(rule.return_address_offset);
            link.module = module;
            if rule.frame_pointer_offset != IN_REGISTER {
                link.frame_pointer_slot = slot(rule.frame_pointer_offset);
            }
        }
    }

    /// Keeps this many frames, and adds a program counter that stands for something else.
    #[inline]
    pub fn end_with(&mut self, length: usize, mark: Option<u64>) {
        self.length = length;
        if let Some(mark) = mark {
            self.push(mark, NO_LINK);
        }
    }

    #[inline(always)]
    fn push(&mut self, program_counter: u64, link: Link) {
        if let (Some(frame), Some(place)) = (self.frames.get_mut(self.length), self.links.get_mut(self.length)) {
            *frame = program_counter;
            *place = link;
            self.length += 1;
        }
    }

    /// The place of the frame with these registers, looking outwards from `place`, which moves there or
    /// past where it would be.
    #[inline(always)]
    fn find(&self, place: &mut usize, registers: &Registers) -> Option<usize> {
        while let Some(link) = self.links.get(*place).filter(|_| *place < self.length) {
            if link.stack_pointer >= registers.stack_pointer {
                let is_same = link.stack_pointer == registers.stack_pointer
                    && link.frame_pointer == registers.frame_pointer
                    && self.frames.get(*place) == Some(&registers.program_counter);
                return is_same.then_some(*place);
            }
            *place += 1;
        }
        None
    }

    /// Takes over frames of an earlier walk from the one with these registers outwards, as long as they
    /// belong to the module, were left in a common way, the stack says the same as then, and there are
    /// fewer than `depth`. The registers become those of the first frame that is left. Returns whether
    /// there were any.
    #[inline]
    pub fn follow(
        &mut self,
        earlier: &Self,
        place: &mut usize,
        registers: &mut Registers,
        module: ModuleIndex,
        depth: usize,
        memory: &StackMemory,
    ) -> bool {
        let Some(found) = earlier.find(place, registers) else { return false };
        let (Some(frames), Some(links)) =
            (earlier.frames.get(found..earlier.length), earlier.links.get(found..earlier.length))
        else {
            return false;
        };
        let is_same = |inner: &Link, outer: &Link, program_counter: u64| {
            inner.module == module
                && memory
                    .read_directly(inner.return_slot)
                    .is_some_and(|word| strip_authentication(word) == program_counter)
                && (inner.frame_pointer_slot == 0
                    || memory.read_directly(inner.frame_pointer_slot) == Some(outer.frame_pointer))
        };
        let outer = links.iter().zip(frames).skip(1);
        let count = links
            .iter()
            .zip(outer)
            .take(depth.saturating_sub(self.length))
            .take_while(|(inner, (outer, program_counter))| is_same(inner, outer, **program_counter))
            .count();
        let room = self.length..self.length + count;
        if let (Some(own_frames), Some(own_links), Some(frames), Some(links), Some(next), Some(next_frame)) = (
            self.frames.get_mut(room.clone()),
            self.links.get_mut(room),
            frames.get(..count),
            links.get(..count),
            links.get(count),
            frames.get(count),
        ) {
            own_frames.copy_from_slice(frames);
            own_links.copy_from_slice(links);
            self.length += count;
            *place = found + count;
            *registers = Registers {
                program_counter: *next_frame,
                stack_pointer: next.stack_pointer,
                frame_pointer: next.frame_pointer,
                link_register: 0,
            };
            return count > 0;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: ModuleIndex = 3;
    const FRAMES: usize = 6;

    /// Four words per frame on this very stack: the last is the return address, the one before it the
    /// caller's frame pointer.
    struct Scene {
        words: [u64; 4 * (FRAMES + 1)],
        memory: StackMemory,
    }

    fn program_counter(frame: usize) -> u64 {
        0x1000 + frame as u64
    }

    impl Scene {
        fn registers(&self, frame: usize) -> Registers {
            Registers {
                program_counter: program_counter(frame),
                stack_pointer: self.words.as_ptr() as u64 + 32 * frame as u64,
                frame_pointer: 0x9000 + frame as u64,
                link_register: 0,
            }
        }

        fn prepare(&mut self) -> Walked {
            let rule = Rule {
                kind: RuleKind::FromStackPointer,
                frame_offset: 32,
                frame_pointer_offset: -16,
                return_address_offset: -8,
            };
            let rule = PackedRule(rule.pack(MODULE).expect("small numbers"));
            self.memory.begin(self.words.as_ptr() as u64);
            let mut walked = Walked::new();
            for frame in 0..FRAMES {
                self.words[4 * frame + 3] = program_counter(frame + 1);
                self.words[4 * frame + 2] = self.registers(frame + 1).frame_pointer;
                walked.push_common(&self.registers(frame), &rule, self.registers(frame + 1).stack_pointer);
            }
            walked
        }

        /// How many frames are taken over from frame `first` on.
        fn followed(&self, earlier: &Walked, first: usize, module: ModuleIndex, depth: usize) -> usize {
            let (mut walked, mut place, mut registers) = (Walked::new(), 0, self.registers(first));
            let any = walked.follow(earlier, &mut place, &mut registers, module, depth, &self.memory);
            let count = walked.length();
            assert_eq!(any, count > 0);
            assert_eq!(registers, self.registers(first + count), "the walk goes on where it stopped following");
            let expected: Vec<u64> = (first..first + count).map(program_counter).collect();
            assert_eq!(walked.frames(), expected);
            count
        }
    }

    #[test]
    fn frames_are_taken_over_as_long_as_the_stack_says_the_same() {
        let mut scene = Scene { words: [0; 4 * (FRAMES + 1)], memory: StackMemory::new() };
        let earlier = scene.prepare();
        // The outermost one has no caller to compare with.
        assert_eq!(scene.followed(&earlier, 0, MODULE, 100), FRAMES - 1);
        assert_eq!(scene.followed(&earlier, 2, MODULE, 100), FRAMES - 3);
        assert_eq!(scene.followed(&earlier, 0, MODULE, 2), 2);
        assert_eq!(scene.followed(&earlier, 0, MODULE + 1, 100), 0, "another module may be there now");
        scene.words[4 * 3 + 3] ^= 1;
        assert_eq!(scene.followed(&earlier, 0, MODULE, 100), 3, "another return address");
        scene.words[4 + 2] ^= 1;
        assert_eq!(scene.followed(&earlier, 0, MODULE, 100), 1, "another frame pointer");
        let elsewhere = Registers { stack_pointer: scene.registers(1).stack_pointer + 8, ..scene.registers(1) };
        let (mut walked, mut registers) = (Walked::new(), elsewhere);
        assert!(!walked.follow(&earlier, &mut 0, &mut registers, MODULE, 100, &scene.memory));
        assert_eq!(registers, elsewhere);
    }
}
