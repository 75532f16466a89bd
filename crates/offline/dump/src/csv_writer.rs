//! Comma-separated values: quoted where needed, rows as they come, one file per device.
//!
//! Names are what the job said. Characters that would steer a terminal on which a file is shown are spelled out; line
//! breaks and tabs, which quoted cells may hold, stay.

use std::borrow::Cow;
use std::convert::Infallible;

use msmemscope_event::visible_keeping;

use crate::cells::{Cell, Prepared, PreparedCell, Value, WrittenRow};
use crate::columns::{NOT_AVAILABLE, for_each_cell};
use crate::text::{push_address, push_device, push_number};

/// First bytes of characters that may have to be spelled out, besides controls: of the second set of controls, and of
/// marks of direction.
const SUSPICIOUS: [u8; 5] = [0x7f, 0xc2, 0xd8, 0xe2, 0xef];

/// A text as cells may hold it.
#[inline]
fn harmless(text: &str) -> Cow<'_, str> {
    let is_suspicious = |byte: u8| (byte < b' ' && byte != b'\n') || SUSPICIOUS.contains(&byte);
    if any_byte(text, is_suspicious) { visible_keeping(text, &['\n', '\r', '\t']) } else { Cow::Borrowed(text) }
}

/// Whether any byte is like that. Looks at many at a time, for which the compiler needs loops that always go to their end.
#[inline]
fn any_byte(text: &str, is_meant: impl Fn(u8) -> bool) -> bool {
    let any_of = |bytes: &[u8]| bytes.iter().fold(false, |any, &byte| any | is_meant(byte));
    let (chunks, rest) = text.as_bytes().as_chunks::<32>();
    chunks.iter().any(|chunk| any_of(chunk)) || any_of(rest)
}

/// Appends text with every quote doubled.
pub fn push_with_doubled_quotes(out: &mut Vec<u8>, text: &str) {
    let text = harmless(text);
    let mut rest = text.as_bytes();
    if !any_byte(&text, |byte| byte == b'"') {
        return out.extend_from_slice(rest);
    }
    while let Some(quote) = rest.iter().position(|&byte| byte == b'"') {
        out.extend_from_slice(&rest[..=quote]);
        out.push(b'"');
        rest = &rest[quote + 1..];
    }
    out.extend_from_slice(rest);
}

/// Appends a cell, quoted if it must be.
#[inline]
pub fn push_cell(out: &mut Vec<u8>, text: &str) {
    if any_byte(text, |byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        push_quoted(out, text);
    } else {
        out.extend_from_slice(harmless(text).as_bytes());
    }
}

/// A text as a cell, quoted if it must be.
pub fn prepared(text: String) -> PreparedCell {
    let mut cell = Vec::with_capacity(text.len() + 2);
    push_cell(&mut cell, &text);
    PreparedCell::new(String::from_utf8(cell).unwrap_or_default())
}

/// Appends a cell in quotes.
pub fn push_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    push_with_doubled_quotes(out, text);
    out.push(b'"');
}

/// Appends a row.
#[inline]
pub fn push_row(out: &mut Vec<u8>, row: &impl WrittenRow) {
    let pushed = for_each_cell(row.cells(), |position, cell| {
        if position > 0 {
            out.push(b',');
        }
        match cell {
            Cell::Number(Some(number)) => push_number(out, number),
            Cell::Address(Some(address)) => push_address(out, address),
            Cell::Number(None) | Cell::Address(None) => out.extend_from_slice(NOT_AVAILABLE.as_bytes()),
            Cell::Word(word) => out.extend_from_slice(word.as_bytes()),
            Cell::Prepared(Prepared(cell)) => out.extend_from_slice(cell.as_bytes()),
            Cell::Text(text, true) => push_quoted(out, text),
            Cell::Text(text, false) => push_cell(out, text),
            Cell::Device(device) => push_device(out, device),
            Cell::Attributes => push_attributes(out, row),
        }
        Ok::<(), Infallible>(())
    });
    match pushed {
        Ok(()) => out.push(b'\n'),
        Err(never) => match never {},
    }
}

#[inline]
fn push_attributes(out: &mut Vec<u8>, row: &impl WrittenRow) {
    let begin = out.len();
    row.attributes(&mut |key: &str, value: Value<'_>| {
        out.extend_from_slice(if out.len() == begin { b"\"{" } else { b"," });
        push_with_doubled_quotes(out, key);
        out.push(b':');
        value.push(out, push_with_doubled_quotes);
    });
    if out.len() > begin {
        out.extend_from_slice(b"}\"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_only_where_needed() {
        let cell = |text: &str| {
            let mut out = Vec::new();
            push_cell(&mut out, text);
            String::from_utf8(out).expect("text stays text")
        };
        assert_eq!(cell("plain name"), "plain name");
        assert_eq!(cell("a,b"), "\"a,b\"");
        assert_eq!(cell("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(cell("two\nlines"), "\"two\nlines\"");
        assert_eq!(cell(""), "");
        assert_eq!(cell("\x1b]0;x\x07\u{9b}1m\u{202e},训练"), "\"\\x1b]0;x\\x07\\x9b1m\\u{202e},训练\"");
        // Long texts are looked at in pieces.
        for length in 0..80 {
            let filling = "x".repeat(length);
            assert_eq!(cell(&format!("{filling},")), format!("\"{filling},\""));
            assert_eq!(cell(&format!("{filling}\"")), format!("\"{filling}\"\"\""));
            assert_eq!(cell(&format!("{filling}\x1b")), format!("{filling}\\x1b"));
        }
        assert_eq!(cell("=1+1"), "=1+1", "the format is documented: names are what they are");
    }
}
