//! The walk itself: from the registers of a hook outwards, frame by frame.

use crate::registers::architecture::{
    DEFAULT_RETURN_ADDRESS_OFFSET, SAVED_POSITIONS, SAVED_REGISTERS_OFFSET, saved_position,
};
use crate::registers::{Registers, strip_authentication};
use crate::rule::{IN_REGISTER, PackedRule, Rule, RuleKind, STORED_WHERE_IT_POINTS};
use crate::stack_memory::StackMemory;

/// Where a walk is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub registers: Registers,
    /// Whether the program counter is the address of an instruction, not a return address.
    pub exact: bool,
    /// Where the kernel saved all registers of this frame, if it was interrupted by a signal.
    saved_registers: Option<u64>,
}

impl Position {
    /// The start of a walk.
    pub fn new(registers: Registers) -> Self {
        Self { registers, exact: true, saved_registers: None }
    }
}

/// What a step led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The position is that of the next frame.
    Next,
    /// The outermost frame was left.
    End,
    /// The stack does not hold what the rule expects.
    Lost,
}

/// Steps out of a frame in the common way: a plain rule, and everything on the thread's own stack.
/// False if it is not that simple; then nothing has changed.
#[inline(always)]
pub(crate) fn step_simply(rule: &PackedRule, registers: &mut Registers, memory: &StackMemory) -> bool {
    let Some(from_stack_pointer) = rule.base_is_stack_pointer() else { return false };
    let base = if from_stack_pointer { registers.stack_pointer } else { registers.frame_pointer };
    let frame_address = base.wrapping_add_signed(rule.frame_offset());
    let return_address_offset = rule.return_address_offset();
    if frame_address <= registers.stack_pointer || return_address_offset == i64::from(IN_REGISTER) {
        return false;
    }
    let Some(return_address) = memory.read_directly(frame_address.wrapping_add_signed(return_address_offset)) else {
        return false;
    };
    let frame_pointer_offset = rule.frame_pointer_offset();
    let frame_pointer = if frame_pointer_offset == i64::from(IN_REGISTER) {
        registers.frame_pointer
    } else {
        match memory.read_directly(frame_address.wrapping_add_signed(frame_pointer_offset)) {
            Some(frame_pointer) => frame_pointer,
            None => return false,
        }
    };
    let program_counter = strip_authentication(return_address);
    if program_counter == 0 {
        return false;
    }
    *registers = Registers { program_counter, stack_pointer: frame_address, frame_pointer, link_register: 0 };
    true
}

/// Steps out of one frame.
#[inline(never)]
pub(crate) fn step(rule: &Rule, position: &mut Position, memory: &mut StackMemory) -> Step {
    step_or_lose(rule, position, memory).unwrap_or(Step::Lost)
}

#[inline]
fn step_or_lose(rule: &Rule, position: &mut Position, memory: &mut StackMemory) -> Option<Step> {
    let registers = &mut position.registers;
    let offset = rule.frame_offset as i64 as u64;
    let mut return_address_offset = rule.return_address_offset;
    let frame_address = match rule.kind {
        RuleKind::FromStackPointer => registers.stack_pointer.wrapping_add(offset),
        RuleKind::FromFramePointer => registers.frame_pointer.wrapping_add(offset),
        RuleKind::Realigned => memory.read(registers.frame_pointer.wrapping_add(offset))?,
        RuleKind::FromInterruptedRegister => {
            let register = u16::try_from(rule.return_address_offset / 8).ok()?;
            let place = position.saved_registers?.wrapping_add(saved_position(register)? * 8);
            return_address_offset = DEFAULT_RETURN_ADDRESS_OFFSET;
            memory.read(place)?.wrapping_add(offset)
        }
        RuleKind::SignalFrame => return step_out_of_signal(position, memory),
        RuleKind::EndOfStack => return Some(Step::End),
        RuleKind::NoInformation => return guess_by_frame_pointer(position, memory),
    };
    // Stacks grow downwards: a caller's frame lies higher. Only an interrupted function that has
    // not touched the stack may have none of its own.
    if frame_address < registers.stack_pointer || (frame_address == registers.stack_pointer && !position.exact) {
        return None;
    }
    let return_address = if return_address_offset == IN_REGISTER {
        core::mem::take(&mut registers.link_register)
    } else {
        memory.read(frame_address.wrapping_add(return_address_offset as i64 as u64))?
    };
    if rule.kind == RuleKind::Realigned {
        registers.frame_pointer = memory.read(registers.frame_pointer)?;
    } else if rule.kind == RuleKind::FromInterruptedRegister && rule.frame_pointer_offset == STORED_WHERE_IT_POINTS {
        if registers.stack_pointer <= registers.frame_pointer && registers.frame_pointer < frame_address {
            registers.frame_pointer = memory.read(registers.frame_pointer)?;
        }
    } else if rule.frame_pointer_offset != IN_REGISTER {
        let place = frame_address.wrapping_add(rule.frame_pointer_offset as i64 as u64);
        registers.frame_pointer = memory.read(place)?;
    }
    registers.stack_pointer = frame_address;
    registers.program_counter = strip_authentication(return_address);
    position.exact = false;
    Some(if registers.program_counter == 0 { Step::End } else { Step::Next })
}

/// Takes the registers that the kernel saved when it delivered a signal.
#[cold]
fn step_out_of_signal(position: &mut Position, memory: &mut StackMemory) -> Option<Step> {
    let saved_registers = position.registers.stack_pointer.wrapping_add(SAVED_REGISTERS_OFFSET);
    let mut saved = [0; 4];
    for (value, place) in saved.iter_mut().zip(SAVED_POSITIONS) {
        *value = memory.read(saved_registers.wrapping_add(place * 8))?;
    }
    let [program_counter, stack_pointer, frame_pointer, link_register] = saved;
    let registers = Registers { program_counter, stack_pointer, frame_pointer, link_register };
    *position = Position { registers, exact: true, saved_registers: Some(saved_registers) };
    Some(Step::Next)
}

/// Takes the frame pointer for what its name says, if that is plausible.
#[cold]
fn guess_by_frame_pointer(position: &mut Position, memory: &mut StackMemory) -> Option<Step> {
    let registers = &mut position.registers;
    let frame = registers.frame_pointer;
    if frame < registers.stack_pointer || !frame.is_multiple_of(8) {
        return None;
    }
    let outer_frame = memory.read(frame)?;
    let return_address = strip_authentication(memory.read(frame.wrapping_add(8))?);
    if return_address == 0 {
        return None;
    }
    registers.frame_pointer = outer_frame;
    registers.stack_pointer = frame.wrapping_add(16);
    registers.program_counter = return_address;
    position.exact = false;
    Some(Step::Next)
}
