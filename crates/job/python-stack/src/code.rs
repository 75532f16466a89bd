//! Code objects: what tells them apart, and their texts.

use crate::layout::Layout;
use crate::memory::Address;

/// Longest text that is taken; longer ones end with an ellipsis.
pub(crate) const LARGEST_TEXT_BYTES: usize = 4096;
const ELLIPSIS: &str = "\u{2026}";

/// State bits of a text.
const KIND_SHIFT: u32 = 2;
const KIND_MASK: u32 = 7;
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// Two words that tell a code object from one that was at the same address earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Mixed out of file name and line table.
    pub file_and_table: u64,
    /// Mixed out of the first line and the serial number or the name.
    pub line_and_serial: u64,
}

impl Identity {
    /// Code objects without serial numbers are told apart by samples of what they refer to: code that is
    /// compiled, run and freed often leaves all its addresses to the next.
    ///
    /// # Safety
    /// `code` must be a live code object of this layout.
    #[inline(always)]
    pub unsafe fn of(layout: &Layout, code: Address) -> Self {
        // SAFETY: promised by the caller.
        unsafe {
            let first_line: u32 = code.load(layout.code_first_line);
            let (file, line_table): (usize, usize) = (code.load(layout.code_file), code.load(layout.code_line_table));
            let addresses = file as u64 ^ (line_table as u64).rotate_left(32);
            let (content, serial) = match layout.code_serial {
                Some(offset) => (0, u64::from(code.load::<u32>(offset)) << 32),
                None => {
                    let text = |text: usize| sample(text, layout.text_length, layout.text_ascii_start);
                    let table = sample(line_table, layout.bytes_length, layout.bytes_start);
                    (text(file) ^ table.rotate_left(19), text(code.load(layout.code_name)).rotate_left(32))
                }
            };
            Self { file_and_table: addresses ^ content, line_and_serial: serial ^ u64::from(first_line) }
        }
    }
}

/// Length of a text or bytes object and the eight bytes that end where `length` bytes after `start`
/// end. For short ones and for texts that are not ASCII these are other bytes of the object, some of
/// which may change once when the interpreter caches something: then the code object is defined twice.
///
/// # Safety
/// `object` must be null or a live object whose length is at `length`, and whose `start` is not among
/// its first eight bytes.
#[inline(always)]
unsafe fn sample(object: usize, length: u16, start: u16) -> u64 {
    let Some(object) = Address::new(object) else { return 0 };
    // SAFETY: promised by the caller; every kind of text has at least as many bytes as characters.
    unsafe {
        let length: usize = object.load(length);
        let last = (object.field(start) + length - size_of::<u64>()) as *const u64;
        last.read_unaligned() ^ (length as u64).rotate_left(56)
    }
}

/// A text in UTF-8.
pub(crate) struct Text {
    bytes: [u8; LARGEST_TEXT_BYTES],
    length: usize,
}

impl Text {
    pub fn new() -> Self {
        Self { bytes: [0; LARGEST_TEXT_BYTES], length: 0 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Takes over UTF-8.
    pub fn set(&mut self, text: &[u8]) {
        self.length = 0;
        match std::str::from_utf8(text) {
            Ok(text) => text.chars().all(|character| self.push(character)),
            Err(_) => text.iter().all(|byte| self.push(char::from(*byte))),
        };
    }

    /// Adds a character; false if there is no room for it.
    fn push(&mut self, character: char) -> bool {
        let mut buffer = [0; 4];
        let mut encoded = character.encode_utf8(&mut buffer).as_bytes();
        let fits = self.length + encoded.len() + ELLIPSIS.len() <= LARGEST_TEXT_BYTES;
        if !fits {
            encoded = ELLIPSIS.as_bytes();
        }
        self.bytes[self.length..self.length + encoded.len()].copy_from_slice(encoded);
        self.length += encoded.len();
        fits
    }

    /// Reads a text object. Nothing if it has a form that is not in use since 3.3.
    ///
    /// # Safety
    /// `object` must be a live text object of this layout.
    pub unsafe fn read(&mut self, layout: &Layout, object: Address) -> Option<()> {
        self.length = 0;
        // SAFETY: promised by the caller; texts never change.
        unsafe {
            let state: u32 = object.load(layout.text_state);
            let length: usize = object.load(layout.text_length);
            if state & COMPACT == 0 {
                return None;
            }
            if state & ASCII != 0 {
                let start = object.field(layout.text_ascii_start) as *const u8;
                std::slice::from_raw_parts(start, length).iter().all(|byte| self.push(char::from(*byte)));
                return Some(());
            }
            let start = object.field(layout.text_compact_start);
            match state >> KIND_SHIFT & KIND_MASK {
                1 => self.push_all(std::slice::from_raw_parts(start as *const u8, length)),
                2 => self.push_all(std::slice::from_raw_parts(start as *const u16, length)),
                4 => self.push_all(std::slice::from_raw_parts(start as *const u32, length)),
                _ => return None,
            }
        }
        Some(())
    }

    /// Adds characters given by number; lone surrogates, which UTF-8 cannot say, are replaced.
    fn push_all(&mut self, characters: &[impl Copy + Into<u32>]) {
        let character = |number: u32| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
        let _ = characters.iter().all(|number| self.push(character((*number).into())));
    }
}

/// Bytes of the line table of a code object; empty if it has none.
///
/// # Safety
/// `code` must be a live code object of this layout, and stay alive for `'a`.
pub(crate) unsafe fn line_table<'a>(layout: &Layout, code: Address) -> &'a [u8] {
    // SAFETY: promised by the caller; bytes objects never change.
    unsafe {
        let Some(table) = code.follow(layout.code_line_table) else { return &[] };
        let length: isize = table.load(layout.bytes_length);
        std::slice::from_raw_parts(table.field(layout.bytes_start) as *const u8, length.max(0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::PythonVersion;

    /// Reads an imitation of a text object of 3.12.
    fn read(kind: u32, flags: u32, content: &[u8], length: usize) -> Option<Vec<u8>> {
        // SAFETY: this version has no table.
        let layout = unsafe { Layout::of(PythonVersion { major: 3, minor: 12 }, None) }.expect("known");
        let mut words = vec![0_u64; 16 + content.len() / 8 + 1];
        words[2] = length as u64;
        words[4] = u64::from(kind << KIND_SHIFT | flags);
        let start = if flags & ASCII != 0 { layout.text_ascii_start } else { layout.text_compact_start };
        for (index, byte) in content.iter().enumerate() {
            let place = usize::from(start) + index;
            words[place / 8] |= u64::from(*byte) << (place % 8 * 8);
        }
        let mut text = Text::new();
        // SAFETY: an imitation with this layout.
        unsafe { text.read(&layout, Address::new(words.as_ptr() as usize)?) }?;
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn texts_of_every_width_become_utf8() {
        assert_eq!(read(1, COMPACT | ASCII, b"train.py", 8).unwrap(), b"train.py");
        assert_eq!(read(1, COMPACT, b"caf\xe9", 4).unwrap(), "caf\u{e9}".as_bytes());
        let wide: Vec<u8> = "\u{4e2d}\u{6587}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(read(2, COMPACT, &wide, 2).unwrap(), "\u{4e2d}\u{6587}".as_bytes());
        let widest: Vec<u8> = "a\u{1f40d}".chars().flat_map(|character| u32::from(character).to_le_bytes()).collect();
        assert_eq!(read(4, COMPACT, &widest, 2).unwrap(), "a\u{1f40d}".as_bytes());
        assert_eq!(read(2, COMPACT, &[0, 0xd8], 1).unwrap(), "\u{fffd}".as_bytes());
        assert_eq!(read(1, COMPACT | ASCII, b"", 0).unwrap(), b"");
        assert_eq!(read(1, 0, b"old", 3), None);
        assert_eq!(read(3, COMPACT, b"odd", 3), None);
    }

    #[test]
    fn long_texts_end_with_an_ellipsis() {
        let long = "\u{e9}".repeat(5000);
        let mut text = Text::new();
        text.set(long.as_bytes());
        let taken = std::str::from_utf8(text.as_bytes()).expect("UTF-8");
        assert!(taken.len() <= LARGEST_TEXT_BYTES && taken.len() > LARGEST_TEXT_BYTES - 4);
        assert!(taken.ends_with(ELLIPSIS));
        text.set(b"short");
        assert_eq!(text.as_bytes(), b"short");
    }
}
