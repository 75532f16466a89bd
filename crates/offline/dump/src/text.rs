//! Numbers and devices as text, without allocation.

use msmemscope_event::Device;

use crate::columns::NOT_AVAILABLE;

/// Appends a decimal number.
#[inline]
pub fn push_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a signed decimal number.
#[inline]
pub fn push_signed(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends an address: `0x` and sixteen lowercase digits.
#[inline]
pub fn push_address(out: &mut Vec<u8>, address: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = *b"0x0000000000000000";
    for (position, digit) in text[2..].iter_mut().enumerate() {
        *digit = DIGITS[(address >> (60 - 4 * position)) as usize & 0xf];
    }
    out.extend_from_slice(&text);
}

/// Appends the text of the `Device Id` column.
#[inline]
pub fn push_device(out: &mut Vec<u8>, device: Device) {
    match device {
        Device::Npu(id) => push_number(out, u64::from(id)),
        Device::Host => out.extend_from_slice(b"cpu"),
        Device::Unknown => out.extend_from_slice(NOT_AVAILABLE.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_sixteen_digits() {
        let mut text = Vec::new();
        push_address(&mut text, 0x12c0_4140_0000);
        push_address(&mut text, u64::MAX);
        assert_eq!(text, b"0x000012c0414000000xffffffffffffffff");
    }
}
