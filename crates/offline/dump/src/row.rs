//! One row of a dump, whatever file it came from.

/// The cells of a row. Numbers that the file does not know are absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row<'a> {
    /// `ID`.
    pub id: u64,
    /// `Event`.
    pub event: &'a [u8],
    /// `Event Type`.
    pub event_type: &'a [u8],
    /// `Name`.
    pub name: &'a [u8],
    /// `Timestamp(ns)`.
    pub timestamp_ns: u64,
    /// `Process Id`.
    pub process_id: Option<u32>,
    /// `Thread Id`.
    pub thread_id: Option<u32>,
    /// `Device Id`.
    pub device: &'a [u8],
    /// `Ptr`.
    pub pointer: &'a [u8],
    /// `Attr`.
    pub attributes: &'a [u8],
    /// `Call Stack(Python)`.
    pub python_stack: &'a [u8],
    /// `Call Stack(C)`.
    pub native_stack: &'a [u8],
}

/// A cell of digits.
#[inline]
pub fn decimal(cell: &[u8]) -> Option<u64> {
    if cell.is_empty() || cell.len() > 20 {
        return None;
    }
    let mut value = 0u64;
    for &byte in cell {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// A number whose sign does not matter: old files give the size of a free as a negative number.
#[inline]
pub fn magnitude(cell: &[u8]) -> Option<u64> {
    decimal(cell.strip_prefix(b"-").unwrap_or(cell))
}

/// An address: hexadecimal with prefix, or decimal in old files.
#[inline]
pub fn address(cell: &[u8]) -> Option<u64> {
    let Some(digits) = cell.strip_prefix(b"0x").or_else(|| cell.strip_prefix(b"0X")) else {
        return decimal(cell);
    };
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let mut value = 0u64;
    for &byte in digits {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_every_spelling_or_not_at_all() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!((decimal(b""), decimal(b"1x"), decimal(b"-1")), (None, None, None));
        assert_eq!((magnitude(b"-7168"), magnitude(b"7168"), magnitude(b"-")), (Some(7168), Some(7168), None));
        assert_eq!(address(b"0x000012c041400000"), Some(0x12c0_4140_0000));
        assert_eq!(address(b"20615843020800"), Some(20_615_843_020_800));
        assert_eq!((address(b"0x"), address(b"N/A"), address(b"0x11112222333344445")), (None, None, None));
    }
}
