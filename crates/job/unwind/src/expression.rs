//! The expressions that occur in unwind tables, worked out as far as one address allows.
//!
//! Two kinds matter in practice: procedure linkage stubs, whose frame size depends on the position
//! in the stub, and functions that realigned their stack, whose frame address lies in a slot.

use crate::registers::architecture::PROGRAM_COUNTER;

/// A value that is known up to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number.
    Constant(i64),
    /// A register plus an offset.
    Register(u16, i64),
    /// The word stored at a register plus an offset.
    Stored(u16, i64),
}

const LARGEST_DEPTH: usize = 8;

/// The value of an expression at an address, or nothing if it uses what we do not follow.
pub(crate) fn evaluate(expression: &[u8], address: u64) -> Option<Value> {
    let mut input = Input { bytes: expression };
    let mut stack = Stack { values: [Value::Constant(0); LARGEST_DEPTH], length: 0 };
    while let Some(operation) = input.byte() {
        match operation {
            0x06 => match stack.pop()? {
                Value::Register(register, offset) => stack.push(Value::Stored(register, offset))?,
                _ => return None,
            },
            0x08 => stack.push(Value::Constant(i64::from(input.byte()?)))?,
            0x09 => stack.push(Value::Constant(i64::from(input.byte()? as i8)))?,
            0x0a => stack.push(Value::Constant(i64::from(u16::from_le_bytes(input.array()?))))?,
            0x0b => stack.push(Value::Constant(i64::from(i16::from_le_bytes(input.array()?))))?,
            0x0c => stack.push(Value::Constant(i64::from(u32::from_le_bytes(input.array()?))))?,
            0x0d => stack.push(Value::Constant(i64::from(i32::from_le_bytes(input.array()?))))?,
            0x0e | 0x0f => stack.push(Value::Constant(i64::from_le_bytes(input.array()?)))?,
            0x10 => stack.push(Value::Constant(input.unsigned()? as i64))?,
            0x11 => stack.push(Value::Constant(input.signed()?))?,
            0x1a => stack.combine(|left, right| Some(left & right))?,
            0x1c => {
                let right = stack.pop()?;
                let Value::Constant(right) = right else { return None };
                stack.add(right.wrapping_neg())?;
            }
            0x22 => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                let (constant, other) = match (left, right) {
                    (Value::Constant(constant), other) | (other, Value::Constant(constant)) => (constant, other),
                    _ => return None,
                };
                stack.push(other)?;
                stack.add(constant)?;
            }
            0x23 => {
                let constant = input.unsigned()? as i64;
                stack.add(constant)?;
            }
            0x24 => stack.combine(|left, right| left.checked_shl(u32::try_from(right).ok()?))?,
            0x2a => stack.combine(|left, right| Some(i64::from(left >= right)))?,
            0x2b => stack.combine(|left, right| Some(i64::from(left > right)))?,
            0x2c => stack.combine(|left, right| Some(i64::from(left <= right)))?,
            0x2d => stack.combine(|left, right| Some(i64::from(left < right)))?,
            0x30..=0x4f => stack.push(Value::Constant(i64::from(operation - 0x30)))?,
            0x70..=0x8f => {
                let offset = input.signed()?;
                stack.push_register(u16::from(operation - 0x70), offset, address)?;
            }
            0x92 => {
                let register = u16::try_from(input.unsigned()?).ok()?;
                let offset = input.signed()?;
                stack.push_register(register, offset, address)?;
            }
            0x96 => {}
            _ => return None,
        }
    }
    stack.pop()
}

struct Stack {
    values: [Value; LARGEST_DEPTH],
    length: usize,
}

impl Stack {
    fn push(&mut self, value: Value) -> Option<()> {
        *self.values.get_mut(self.length)? = value;
        self.length += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<Value> {
        self.length = self.length.checked_sub(1)?;
        self.values.get(self.length).copied()
    }

    fn push_register(&mut self, register: u16, offset: i64, address: u64) -> Option<()> {
        if register == PROGRAM_COUNTER {
            self.push(Value::Constant((address as i64).wrapping_add(offset)))
        } else {
            self.push(Value::Register(register, offset))
        }
    }

    fn combine(&mut self, operation: impl Fn(i64, i64) -> Option<i64>) -> Option<()> {
        match (self.pop()?, self.pop()?) {
            (Value::Constant(right), Value::Constant(left)) => self.push(Value::Constant(operation(left, right)?)),
            _ => None,
        }
    }

    fn add(&mut self, constant: i64) -> Option<()> {
        let sum = match self.pop()? {
            Value::Constant(value) => Value::Constant(value.wrapping_add(constant)),
            Value::Register(register, offset) => Value::Register(register, offset.wrapping_add(constant)),
            Value::Stored(register, offset) if constant == 0 => Value::Stored(register, offset),
            Value::Stored(..) => return None,
        };
        self.push(sum)
    }
}

struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        let (first, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*first)
    }

    fn unsigned(&mut self) -> Option<u64> {
        self.variable_length().map(|(value, _, _)| value)
    }

    fn signed(&mut self) -> Option<i64> {
        let (value, bits, last) = self.variable_length()?;
        let negative = last & 0x40 != 0 && bits < 64;
        Some(if negative { value as i64 | -1 << bits } else { value as i64 })
    }

    /// The number, how many bits it had, and its last byte.
    fn variable_length(&mut self) -> Option<(u64, u32, u8)> {
        let mut value = 0_u64;
        for bits in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << bits;
            if byte & 0x80 == 0 {
                return Some((value, bits + 7, byte));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn linkage_stub_depends_on_the_position_in_the_stub() {
        // rsp + 8 + ((rip & 15) >= 11) << 3
        let stub = [0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(evaluate(&stub, 0x1020), Some(Value::Register(7, 8)));
        assert_eq!(evaluate(&stub, 0x102a), Some(Value::Register(7, 8)));
        assert_eq!(evaluate(&stub, 0x102b), Some(Value::Register(7, 16)));
    }

    #[test]
    fn realigned_stack_is_a_stored_value() {
        // *(rbp - 8)
        assert_eq!(evaluate(&[0x76, 0x78, 0x06], 0), Some(Value::Stored(6, -8)));
        assert_eq!(evaluate(&[0x76, 0xf0, 0x7e, 0x06], 0), Some(Value::Stored(6, -144)));
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(evaluate(&[], 0), None);
        assert_eq!(evaluate(&[0x22], 0), None);
        assert_eq!(evaluate(&[0x76], 0), None);
        assert_eq!(evaluate(&[0xff], 0), None);
        assert_eq!(evaluate(&[0x30; 9], 0), None);
        assert_eq!(evaluate(&[0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 0), None);
    }
}
