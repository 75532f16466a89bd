//! The grammar shared by all values: lists, whole numbers, sizes.

use std::ops::RangeInclusive;

/// The full-width comma, accepted wherever `,` is.
const FULL_WIDTH_COMMA: char = '\u{ff0c}';

/// The parts of a list, without surrounding blanks, empty ones included.
pub(crate) fn list_parts(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', FULL_WIDTH_COMMA]).map(str::trim)
}

/// The parts of a list, without surrounding blanks and without empty ones.
pub(crate) fn list_items(text: &str) -> impl Iterator<Item = &str> {
    list_parts(text).filter(|item| !item.is_empty())
}

/// The parts of a list of paths, byte for byte, without empty ones.
///
/// Both commas separate. The full-width one is three bytes and only those three together: cutting at
/// single bytes of it would tear other characters apart.
pub(crate) fn path_items(bytes: &[u8]) -> Vec<&[u8]> {
    let mut encoded = [0; 4];
    let full_width = FULL_WIDTH_COMMA.encode_utf8(&mut encoded).as_bytes();
    let mut items = Vec::new();
    let mut start = 0;
    let mut position = 0;
    while position < bytes.len() {
        let separator_length = match &bytes[position..] {
            [b',', ..] => 1,
            rest if rest.starts_with(full_width) => full_width.len(),
            _ => {
                position += 1;
                continue;
            }
        };
        items.push(&bytes[start..position]);
        position += separator_length;
        start = position;
    }
    items.push(&bytes[start..]);
    items.retain(|item| !item.is_empty());
    items
}

/// Why a number is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberProblem {
    /// Not written as digits without leading zeros.
    NotANumber,
    /// Outside the allowed range.
    OutOfRange,
}

impl NumberProblem {
    /// The problem as a sentence about `token`.
    pub(crate) fn describe(self, token: &str) -> String {
        let token = msmemscope_settings::quoted(token);
        match self {
            NumberProblem::NotANumber if is_range(&token) => {
                format!("{token} is a range; write its numbers one by one, separated by commas")
            }
            NumberProblem::NotANumber => {
                format!("{token} is not a whole number without leading zeros")
            }
            NumberProblem::OutOfRange => format!("{token} is out of range"),
        }
    }
}

/// Whether a quoted token looks like `1-5`.
fn is_range(token: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    token.trim_matches('\'').split_once('-').is_some_and(|(first, last)| is_number(first) && is_number(last))
}

/// A whole number of plain digits without leading zeros, within `range`.
pub(crate) fn number(token: &str, range: RangeInclusive<u64>) -> Result<u64, NumberProblem> {
    let is_plain = !token.is_empty()
        && token.bytes().all(|byte| byte.is_ascii_digit())
        && (token == "0" || !token.starts_with('0'));
    if !is_plain {
        return Err(NumberProblem::NotANumber);
    }
    // Only digits remain, so a failure to convert is an overflow.
    let number: u64 = token.parse().map_err(|_| NumberProblem::OutOfRange)?;
    if range.contains(&number) { Ok(number) } else { Err(NumberProblem::OutOfRange) }
}

/// Units of sizes in lower case. Single letters are binary, as in most tools that take sizes.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

/// A size in bytes: a whole number and an optional unit, `64MiB`.
pub fn size_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_lowercase();
    let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?.1;
    count.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_split_at_both_commas() {
        assert_eq!(list_items("2，3,234").collect::<Vec<_>>(), ["2", "3", "234"]);
        assert_eq!(list_items(",, a ，，b,").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(list_items("").count(), 0);
        assert_eq!(list_parts(",end").collect::<Vec<_>>(), ["", "end"]);
    }

    #[test]
    fn path_lists_keep_other_characters_whole() {
        // These characters share bytes with the full-width comma.
        let text = "/数据，/ｌ漼x,/b";
        assert_eq!(path_items(text.as_bytes()), ["/数据".as_bytes(), "/ｌ漼x".as_bytes(), b"/b"]);
        assert_eq!(path_items(b"\xff/a,\xef\xbc/b"), [&b"\xff/a"[..], &b"\xef\xbc/b"[..]]);
        assert!(path_items(b",").is_empty());
    }

    #[test]
    fn numbers_are_plain_digits() {
        assert_eq!(number("0", 0..=5), Ok(0));
        assert_eq!(number("5", 0..=5), Ok(5));
        assert_eq!(number("6", 0..=5), Err(NumberProblem::OutOfRange));
        assert_eq!(number("99999999999999999999999", 0..=5), Err(NumberProblem::OutOfRange));
        for bad in ["", "00", "01", "+1", "-1", "1.0", "0x1", " 1", "１"] {
            assert_eq!(number(bad, 0..=u64::MAX), Err(NumberProblem::NotANumber), "{bad}");
        }
    }

    #[test]
    fn sizes_take_units() {
        for (text, bytes) in [
            ("1048576", Some(1 << 20)),
            ("64MiB", Some(64 << 20)),
            ("64 mib", Some(64 << 20)),
            ("2G", Some(2 << 30)),
            ("2GB", Some(2_000_000_000)),
            ("3k", Some(3 << 10)),
            ("1TiB", Some(1 << 40)),
            ("5B", Some(5)),
            ("", None),
            ("GiB", None),
            ("-1", None),
            ("1.5GiB", None),
            ("1XiB", None),
            ("99999999999TiB", None),
        ] {
            assert_eq!(size_bytes(text), bytes, "{text}");
        }
    }
}
