//! Comma-separated values: quoted where needed, rows as they come, one file per device.
//!
//! Names are what the job said. Characters that would steer a terminal on which a file is shown are spelled out; line
//! breaks and tabs, which quoted cells may hold, stay.

use std::borrow::Cow;
use std::convert::Infallible;

use msmemscope_event::visible_keeping;

use crate::cells::{Cell, Value, WrittenRow};
use crate::columns::{NOT_AVAILABLE, for_each_cell};
use crate::text::{push_address, push_device, push_number};

/// First bytes of characters that may have to be spelled out, besides controls: of the second set of controls, and of
/// marks of direction.
const SUSPICIOUS: [u8; 5] = [0x7f, 0xc2, 0xd8, 0xe2, 0xef];

/// A text as cells may hold it.
#[inline]
fn harmless(text: &str) -> Cow<'_, str> {
    let is_suspicious = |byte: u8| (byte < b' ' && byte != b'\n') || SUSPICIOUS.contains(&byte);
    if text.bytes().any(is_suspicious) { visible_keeping(text, &['\n', '\r', '\t']) } else { Cow::Borrowed(text) }
}

/// Appends text with every quote doubled.
pub fn push_with_doubled_quotes(out: &mut Vec<u8>, text: &str) {
    let text = harmless(text);
    let mut rest = text.as_bytes();
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
    if text.bytes().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        push_quoted(out, text);
    } else {
        out.extend_from_slice(harmless(text).as_bytes());
    }
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
        assert_eq!(cell("=1+1"), "=1+1", "the format is documented: names are what they are");
    }
}
