//! From an instruction of a Python code object to its line, for every table format since 3.9.

/// The first version whose table is `co_linetable` of PEP 626.
const LINE_TABLE_VERSION: u32 = 3 << 8 | 10;
/// The first version whose table is the location table of PEP 657.
const LOCATION_TABLE_VERSION: u32 = 3 << 8 | 11;
/// The line delta that says "no line" in PEP 626 tables.
const NO_LINE: i8 = -128;
/// Bytes of one code unit.
const CODE_UNIT_BYTES: u32 = 2;

/// The line of an instruction; nothing if it has none or the table does not reach it.
///
/// `python_version` is `major << 8 | minor`, `instruction_offset` counts bytes.
pub fn line_of_instruction(
    python_version: u32,
    line_table: &[u8],
    first_line: u32,
    instruction_offset: u32,
) -> Option<u32> {
    let line = if python_version >= LOCATION_TABLE_VERSION {
        location_table_line(line_table, first_line, instruction_offset)?
    } else if python_version >= LINE_TABLE_VERSION {
        line_table_line(line_table, first_line, instruction_offset)?
    } else {
        number_table_line(line_table, first_line, instruction_offset)
    };
    u32::try_from(line).ok()
}

/// `co_lnotab`: pairs of bytes to move on and lines to move on, until the instruction is passed.
fn number_table_line(table: &[u8], first_line: u32, instruction_offset: u32) -> i64 {
    let mut line = i64::from(first_line);
    let mut offset = 0_u32;
    for &[bytes, lines] in table.as_chunks::<2>().0 {
        offset = offset.saturating_add(u32::from(bytes));
        if offset > instruction_offset {
            break;
        }
        line += i64::from(lines as i8);
    }
    line
}

/// PEP 626: pairs of length in bytes and lines to move on before.
fn line_table_line(table: &[u8], first_line: u32, instruction_offset: u32) -> Option<i64> {
    let mut line = i64::from(first_line);
    let mut end = 0_u32;
    for &[bytes, lines] in table.as_chunks::<2>().0 {
        end = end.saturating_add(u32::from(bytes));
        let lines = lines as i8;
        if lines != NO_LINE {
            line += i64::from(lines);
        }
        if instruction_offset < end {
            return (lines != NO_LINE).then_some(line);
        }
    }
    None
}

/// PEP 657: entries of one head byte (kind and length in code units) and kind-dependent numbers.
fn location_table_line(table: &[u8], first_line: u32, instruction_offset: u32) -> Option<i64> {
    let mut input = table.iter().copied();
    let mut line = i64::from(first_line);
    let mut end = 0_u32;
    while let Some(head) = input.next() {
        let kind = head >> 3 & 15;
        end = end.saturating_add((u32::from(head & 7) + 1) * CODE_UNIT_BYTES);
        let mut known = true;
        match kind {
            0..=9 => {
                input.next()?;
            }
            10..=12 => {
                line += i64::from(kind - 10);
                input.next()?;
                input.next()?;
            }
            13 => line += signed_number(&mut input)?,
            14 => {
                line += signed_number(&mut input)?;
                for _ in 0..3 {
                    unsigned_number(&mut input)?;
                }
            }
            _ => known = false,
        }
        if instruction_offset < end {
            return known.then_some(line);
        }
    }
    None
}

/// Six bits per byte, lowest first; the seventh bit says that more follow.
fn unsigned_number(input: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(6) {
        let byte = input.next()?;
        value |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// The lowest bit is the sign.
fn signed_number(input: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = unsigned_number(input)?;
    let magnitude = (value >> 1) as i64;
    Some(if value & 1 == 0 { magnitude } else { -magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(minor: u32) -> u32 {
        3 << 8 | minor
    }

    #[test]
    fn number_table_of_3_9() {
        // Line 10 at 0, 11 at 4, 9 at 10, 309 at 300 in steps as the compiler writes them.
        let table = [4, 1, 6, 0xfe, 255, 0, 35, 127, 0, 127, 0, 46];
        let line = |offset| line_of_instruction(version(9), &table, 10, offset);
        assert_eq!(line(0), Some(10));
        assert_eq!(line(3), Some(10));
        assert_eq!(line(4), Some(11));
        assert_eq!(line(9), Some(11));
        assert_eq!(line(10), Some(9));
        assert_eq!(line(299), Some(9));
        assert_eq!(line(300), Some(309));
        assert_eq!(line(10_000), Some(309));
        assert_eq!(line_of_instruction(version(8), &[], 7, 40), Some(7));
    }

    #[test]
    fn line_table_of_3_10() {
        // Line 5 for 4 bytes, no line for 2, line 8 for 6, line 7 for 2.
        let table = [4, 0, 2, 0x80, 6, 3, 2, 0xff];
        let line = |offset| line_of_instruction(version(10), &table, 5, offset);
        assert_eq!(line(0), Some(5));
        assert_eq!(line(3), Some(5));
        assert_eq!(line(4), None);
        assert_eq!(line(6), Some(8));
        assert_eq!(line(11), Some(8));
        assert_eq!(line(12), Some(7));
        assert_eq!(line(14), None);
    }

    #[test]
    fn location_table_of_3_11_and_later() {
        let table = [
            0x80 | 5 << 3 | 1,
            0x11, // short form, two units, same line
            0x80 | 11 << 3,
            0,
            5, // one line further
            0x80 | 13 << 3,
            0x40 | 9,
            9,                  // no column, minus 292 as a signed number of two bytes
            0x80 | 15 << 3 | 7, // no location, eight units
            0x80 | 14 << 3,
            4,
            0,
            1,
            2, // long form, two lines further
        ];
        for minor in 11..=14 {
            let line = |offset| line_of_instruction(version(minor), &table, 1000, offset);
            assert_eq!(line(0), Some(1000));
            assert_eq!(line(3), Some(1000));
            assert_eq!(line(4), Some(1001));
            assert_eq!(line(6), Some(1001 - (9 + (9 << 6)) / 2));
            assert_eq!(line(8), None);
            assert_eq!(line(23), None);
            assert_eq!(line(24), Some(1001 - (9 + (9 << 6)) / 2 + 2));
            assert_eq!(line(26), None);
        }
    }

    #[test]
    fn cut_tables_end_without_harm() {
        let table = [0x80 | 14 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f];
        for length in 0..table.len() {
            for minor in 9..=14 {
                let _ = line_of_instruction(version(minor), &table[..length], u32::MAX, u32::MAX);
            }
            assert_eq!(line_of_instruction(version(11), &table[..length], 1, 0), None);
        }
    }
}
