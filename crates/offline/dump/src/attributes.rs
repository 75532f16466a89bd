//! The `Attr` cell: `{key:value,...}` in csv files, `{"key":"value",...}` in databases.
//!
//! Keys decide, not positions: their order and number changed over the years. In the csv spelling
//! values are not quoted and may hold commas (`shape:torch.Size([1,5])`), so a comma ends a value only
//! if a key follows it.

use std::borrow::Cow;

/// An `Attr` cell.
#[derive(Clone, Copy, Debug)]
pub struct AttributeText<'a> {
    inner: &'a [u8],
    is_json: bool,
}

impl<'a> AttributeText<'a> {
    /// Looks at a cell. Anything that is not in braces is empty.
    #[inline]
    pub fn new(cell: &'a [u8]) -> Self {
        let trimmed = cell.trim_ascii();
        let inner = trimmed.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")).unwrap_or(b"");
        Self { inner, is_json: inner.trim_ascii_start().first() == Some(&b'"') }
    }

    /// Calls `visit` with every key and value, in order.
    #[inline]
    pub fn for_each(self, mut visit: impl FnMut(&[u8], &[u8])) {
        match self.is_json {
            true => for_each_json(self.inner, visit),
            false => for_each_plain(self.inner, &mut visit),
        }
    }

    /// The value of one key.
    pub fn get(self, wanted: &[u8]) -> Option<Vec<u8>> {
        let mut found = None;
        self.for_each(|key, value| {
            if key == wanted {
                found = Some(value.to_vec());
            }
        });
        found
    }

    /// The pairs as `key:value,...`.
    pub fn to_plain(self) -> Cow<'a, [u8]> {
        if !self.is_json {
            return Cow::Borrowed(self.inner);
        }
        let mut text = Vec::with_capacity(self.inner.len());
        self.for_each(|key, value| {
            if !text.is_empty() {
                text.push(b',');
            }
            text.extend_from_slice(key);
            text.push(b':');
            text.extend_from_slice(value);
        });
        Cow::Owned(text)
    }
}

/// Length of the key (without its colon) at the start of a text, if there is one.
#[inline]
fn key_length(text: &[u8]) -> Option<usize> {
    let length = text.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'))?;
    let is_key = length > 0 && text[length] == b':' && !text[0].is_ascii_digit();
    is_key.then_some(length)
}

fn for_each_plain(mut rest: &[u8], visit: &mut impl FnMut(&[u8], &[u8])) {
    while let Some(length) = key_length(rest) {
        let (key, value_and_rest) = (&rest[..length], &rest[length + 1..]);
        let end = memchr::memchr_iter(b',', value_and_rest)
            .find(|&comma| key_length(&value_and_rest[comma + 1..]).is_some())
            .unwrap_or(value_and_rest.len());
        visit(key, &value_and_rest[..end]);
        rest = value_and_rest.get(end + 1..).unwrap_or(b"");
    }
}

fn for_each_json(inner: &[u8], mut visit: impl FnMut(&[u8], &[u8])) {
    let mut position = 0;
    loop {
        skip_blanks(inner, &mut position);
        let Some(key) = json_string(inner, &mut position) else { return };
        skip_blanks(inner, &mut position);
        if inner.get(position) != Some(&b':') {
            return;
        }
        position += 1;
        skip_blanks(inner, &mut position);
        if inner.get(position) == Some(&b'"') {
            let Some(value) = json_string(inner, &mut position) else { return };
            visit(&key, &value);
        } else {
            let end = memchr::memchr(b',', &inner[position.min(inner.len())..]).map_or(inner.len(), |at| position + at);
            visit(&key, inner[position.min(end)..end].trim_ascii());
            position = end;
        }
        skip_blanks(inner, &mut position);
        if inner.get(position) != Some(&b',') {
            return;
        }
        position += 1;
    }
}

fn skip_blanks(text: &[u8], position: &mut usize) {
    while text.get(*position).is_some_and(u8::is_ascii_whitespace) {
        *position += 1;
    }
}

/// Reads a quoted string and its escapes; nothing if it is not one.
fn json_string<'a>(text: &'a [u8], position: &mut usize) -> Option<Cow<'a, [u8]>> {
    if text.get(*position) != Some(&b'"') {
        return None;
    }
    let start = *position + 1;
    let stop = start + memchr::memchr2(b'"', b'\\', &text[start..])?;
    if text[stop] == b'"' {
        *position = stop + 1;
        return Some(Cow::Borrowed(&text[start..stop]));
    }
    let mut unescaped = text[start..stop].to_vec();
    let mut at = stop;
    loop {
        match *text.get(at)? {
            b'"' => {
                *position = at + 1;
                return Some(Cow::Owned(unescaped));
            }
            b'\\' => {
                at += 1 + unescape(&text[at + 1..], &mut unescaped)?;
            }
            byte => {
                unescaped.push(byte);
                at += 1;
            }
        }
    }
}

/// Adds what an escape after its backslash means; returns its length.
fn unescape(escape: &[u8], text: &mut Vec<u8>) -> Option<usize> {
    match *escape.first()? {
        b'n' => text.push(b'\n'),
        b't' => text.push(b'\t'),
        b'r' => text.push(b'\r'),
        b'b' => text.push(8),
        b'f' => text.push(12),
        b'u' => {
            let digits = std::str::from_utf8(escape.get(1..5)?).ok()?;
            let code = u32::from_str_radix(digits, 16).ok()?;
            let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(5);
        }
        other => text.push(other),
    }
    Some(1)
}

/// The cell with one key set, replaced or (with no value) removed; everything else stays as it is and
/// in the spelling it has.
pub fn set_attribute(cell: &[u8], key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let attributes = AttributeText::new(cell);
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    attributes.for_each(|known, value| {
        if known != key {
            pairs.push((known.to_vec(), value.to_vec()));
        }
    });
    if let Some(value) = value {
        pairs.push((key.to_vec(), value.to_vec()));
    }
    let mut text = vec![b'{'];
    for (position, (key, value)) in pairs.iter().enumerate() {
        if position > 0 {
            text.push(b',');
        }
        match attributes.is_json {
            true => {
                push_json_string(&mut text, key);
                text.push(b':');
                push_json_string(&mut text, value);
            }
            false => {
                text.extend_from_slice(key);
                text.push(b':');
                text.extend_from_slice(value);
            }
        }
    }
    text.push(b'}');
    text
}

fn push_json_string(text: &mut Vec<u8>, value: &[u8]) {
    text.push(b'"');
    for &byte in value {
        match byte {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', byte]),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b'\t' => text.extend_from_slice(b"\\t"),
            control if control < 0x20 => text.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
            byte => text.push(byte),
        }
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(cell: &str) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut pairs = Vec::new();
        AttributeText::new(cell.as_bytes()).for_each(|key, value| pairs.push((text(key), text(value))));
        pairs
    }

    fn expect(cell: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        assert_eq!(pairs(cell), expected, "{cell}");
    }

    #[test]
    fn commas_inside_values_do_not_end_them() {
        expect(
            "{allocation_id:1,size:10,type:PTA,dtype:torch.float16,shape:torch.Size([1,5])}",
            &[
                ("allocation_id", "1"),
                ("size", "10"),
                ("type", "PTA"),
                ("dtype", "torch.float16"),
                ("shape", "torch.Size([1,5])"),
            ],
        );
        expect(
            "{owner:,inefficient_type:early_allocation,late_deallocation,MID:7}",
            &[("owner", ""), ("inefficient_type", "early_allocation,late_deallocation"), ("MID", "7")],
        );
    }

    #[test]
    fn json_is_read_with_blanks_escapes_and_numbers() {
        expect(r#"{"size":"28160","owner":"a\"b\\c\u0041"}"#, &[("size", "28160"), ("owner", "a\"b\\cA")]);
        expect(r#"{ "size" : 5 , "used":"6" }"#, &[("size", "5"), ("used", "6")]);
        expect("{}", &[]);
    }

    #[test]
    fn broken_cells_end_quietly() {
        for cell in
            ["", "{", "}", "N/A", "{\"", "{\"a", "{\"a\":", "{\"a\":\"\\", "{\"a\":\"\\u12", "[]", "{:1,2:3}", "5"]
        {
            assert!(pairs(cell).len() <= 1, "{cell}");
        }
        expect("{\"a\":\"b\",\"c\"", &[]);
        expect("{\"a\":\"b\",\"c\"}", &[("a", "b")]);
    }

    #[test]
    fn setting_keeps_the_spelling_and_the_other_keys() {
        let set = |cell: &str, value: Option<&str>| {
            let changed = set_attribute(cell.as_bytes(), b"inefficient_type", value.map(str::as_bytes));
            String::from_utf8(changed).unwrap()
        };
        assert_eq!(set("{size:5,shape:[1,2]}", Some("a,b")), "{size:5,shape:[1,2],inefficient_type:a,b}");
        assert_eq!(set("{inefficient_type:x,size:5}", Some("a")), "{size:5,inefficient_type:a}");
        assert_eq!(set("{inefficient_type:x,size:5}", None), "{size:5}");
        assert_eq!(set(r#"{"size":"5"}"#, Some("a")), r#"{"size":"5","inefficient_type":"a"}"#);
        assert_eq!(set("", Some("a")), "{inefficient_type:a}");
    }

    #[test]
    fn json_turns_into_the_plain_spelling() {
        assert_eq!(
            AttributeText::new(br#"{"path":"0/1","workspace_size":"12"}"#).to_plain(),
            &b"path:0/1,workspace_size:12"[..]
        );
        assert_eq!(AttributeText::new(b"{path:0/1}").to_plain(), &b"path:0/1"[..]);
    }
}
