//! Records and cells of dump csv files, as forgiving as the writers of these files were careless.
//!
//! Good files quote by doubling. Older writers put quotes around messages and stacks without doubling
//! the quotes inside, and leave names with commas bare. So a line that looks like the start of a row
//! (`<digits>,<KNOWN EVENT>,`) always begins one, and a cell's closing quote is recognised by what
//! follows it.

use std::borrow::Cow;
use std::io::{self, Read};

use crate::columns::{self, COLUMNS, REQUIRED_COLUMNS, REQUIRED_NAMES};
use crate::row::decimal;
use crate::words::Event;

const READ_BYTES: usize = 1 << 18;
/// No row is longer; deep stacks take a few tens of kilobytes.
const LONGEST_RECORD_BYTES: usize = 16 << 20;

/// Splits a stream into records. The first one is the header.
pub struct CsvRecords<R> {
    input: R,
    buffer: Vec<u8>,
    /// First byte not yet given out.
    start: usize,
    /// End of the bytes read.
    end: usize,
    at_end: bool,
}

/// One record: its bytes without the line break.
#[derive(Clone, Copy, Debug)]
pub struct CsvRecord<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Whether the record was cut because it was longer than any row can be.
    pub cut: bool,
}

/// The cells of a record, and where `Attr` is in it.
#[derive(Clone, Debug)]
pub struct CsvCells<'a> {
    record: &'a [u8],
    cells: Vec<String>,
    attributes: Vec<u8>,
    attributes_start: usize,
    attributes_end: usize,
}

impl<'a> CsvRecord<'a> {
    /// The cells of a row; nothing if it has too few.
    pub fn cells(&self) -> Option<CsvCells<'a>> {
        let split = split(self.bytes)?;
        let position = |cell: &[u8]| cell.as_ptr() as usize - self.bytes.as_ptr() as usize;
        let attributes_start = match &split.cells[columns::POINTER] {
            Cow::Borrowed(cell) => position(cell) + cell.len() + 1,
            Cow::Owned(_) => return None,
        };
        let has_comma = !split.rest.is_empty() || self.bytes.ends_with(b",");
        let attributes_end = (self.bytes.len() - split.rest.len() - usize::from(has_comma)).max(attributes_start);
        let cells =
            split.cells[..columns::ATTRIBUTES].iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect();
        let attributes = split.cells[columns::ATTRIBUTES].to_vec();
        Some(CsvCells { record: self.bytes, cells, attributes, attributes_start, attributes_end })
    }
}

impl<'a> CsvCells<'a> {
    /// A cell before `Attr`, without quotes.
    pub fn get(&self, index: usize) -> Option<&str> {
        self.cells.get(index).map(String::as_str)
    }

    /// The `Attr` cell without quotes.
    pub fn attributes(&self) -> &[u8] {
        &self.attributes
    }

    /// The record up to the `Attr` cell.
    pub fn before_attributes(&self) -> &'a [u8] {
        &self.record[..self.attributes_start]
    }

    /// The record after the `Attr` cell, with its comma.
    pub fn after_attributes(&self) -> &'a [u8] {
        &self.record[self.attributes_end..]
    }
}

impl<R: Read> CsvRecords<R> {
    /// Records of a stream.
    pub fn new(input: R) -> Self {
        Self { input, buffer: vec![0; READ_BYTES], start: 0, end: 0, at_end: false }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < READ_BYTES / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(read_bytes) => self.end += read_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    /// The next record that is not empty.
    pub fn next_record(&mut self) -> io::Result<Option<CsvRecord<'_>>> {
        let mut scanned_bytes = 0;
        let mut in_quotes = false;
        loop {
            let pending = &self.buffer[self.start..self.end];
            let mut found = None;
            let mut wait = false;
            for at in memchr::memchr2_iter(b'"', b'\n', &pending[scanned_bytes..]) {
                let at = scanned_bytes + at;
                if pending[at] == b'"' {
                    in_quotes = !in_quotes;
                    continue;
                }
                if !in_quotes {
                    found = Some((at, false));
                    break;
                }
                match begins_row(&pending[at + 1..], self.at_end) {
                    Some(true) => {
                        found = Some((at, false));
                        break;
                    }
                    Some(false) => {}
                    None => {
                        scanned_bytes = at;
                        wait = true;
                        break;
                    }
                }
            }
            if found.is_none() && !wait {
                scanned_bytes = pending.len();
            }
            if found.is_none() && self.at_end && !pending.is_empty() {
                found = Some((pending.len(), false));
            }
            if found.is_none() && pending.len() > LONGEST_RECORD_BYTES {
                let first_line = memchr::memchr(b'\n', pending).unwrap_or(pending.len());
                found = Some((first_line, true));
            }
            if let Some((length, cut)) = found {
                let begin = self.start;
                self.start = (begin + length + 1).min(self.end);
                let line = &self.buffer[begin..begin + length];
                let bytes_length = line.strip_suffix(b"\r").unwrap_or(line).len();
                if bytes_length == 0 {
                    scanned_bytes = 0;
                    in_quotes = false;
                    continue;
                }
                return Ok(Some(CsvRecord { bytes: &self.buffer[begin..begin + bytes_length], cut }));
            }
            if self.at_end {
                return Ok(None);
            }
            self.fill()?;
        }
    }
}

/// Whether a line begins a row; nothing if more bytes are needed to tell.
fn begins_row(line: &[u8], at_end: bool) -> Option<bool> {
    let undecided = if at_end { Some(false) } else { None };
    let digits = line.iter().take(21).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == line.len() {
        return undecided;
    }
    if digits == 0 || digits > 20 || line[digits] != b',' {
        return Some(false);
    }
    let word_and_rest = &line[digits + 1..];
    for event in Event::ALL {
        let event = event.word().as_bytes();
        if word_and_rest.len() <= event.len() && event.starts_with(word_and_rest) {
            return undecided;
        }
        if word_and_rest.starts_with(event) && word_and_rest[event.len()] == b',' {
            return Some(true);
        }
    }
    Some(false)
}

/// Letters of a wrong column's name that are shown: anything may be called a csv file.
const SHOWN_OF_A_NAME: usize = 60;

/// Where the stack columns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvLayout {
    /// Of Python frames.
    pub python_stack: Option<usize>,
    /// Of native frames.
    pub native_stack: Option<usize>,
}

impl CsvLayout {
    /// Reads a header; the error says what is wrong with it.
    pub fn from_header(header: &[u8]) -> Result<Self, String> {
        let header = header.strip_prefix(b"\xef\xbb\xbf").unwrap_or(header);
        let names: Vec<String> = cells(header).map(|cell| String::from_utf8_lossy(&cell).trim().to_owned()).collect();
        for (position, expected) in REQUIRED_NAMES.iter().enumerate() {
            match names.get(position) {
                Some(name) if name == expected => {}
                Some(name) => {
                    let shown = match name.char_indices().nth(SHOWN_OF_A_NAME) {
                        Some((end, _)) => format!("{}...", &name[..end]),
                        None => name.clone(),
                    };
                    return Err(format!("column {} is {shown:?} instead of {expected:?}", position + 1));
                }
                None => return Err(format!("column {} ({expected:?}) is missing", position + 1)),
            }
        }
        let find = |column: usize| names.iter().position(|name| name == COLUMNS[column].name);
        Ok(Self { python_stack: find(columns::PYTHON_STACK), native_stack: find(columns::NATIVE_STACK) })
    }
}

/// The cells of one record up to `Attr` and the rest of it.
pub struct SplitRecord<'a> {
    /// The cells.
    pub cells: [Cow<'a, [u8]>; REQUIRED_COLUMNS],
    /// What follows them.
    pub rest: &'a [u8],
}

/// A cell, and what follows its comma if there is one.
type CellAndRest<'a> = (Cow<'a, [u8]>, Option<&'a [u8]>);

/// Splits a record; nothing if it has too few cells. A name may hold commas and stray quotes: it ends
/// where a number, the timestamp, follows.
pub fn split(record: &[u8]) -> Option<SplitRecord<'_>> {
    const NO_CELL: Cow<'_, [u8]> = Cow::Borrowed(b"");
    let mut cells = [NO_CELL; REQUIRED_COLUMNS];
    let mut rest = record;
    for (position, slot) in cells.iter_mut().enumerate() {
        let (cell, next) = match position {
            columns::NAME => name_cell(rest)?,
            _ => cell(rest),
        };
        *slot = cell;
        match next {
            Some(next) => rest = next,
            None if position + 1 == REQUIRED_COLUMNS => rest = b"",
            None => return None,
        }
    }
    Some(SplitRecord { cells, rest })
}

fn number_follows(rest: &[u8]) -> bool {
    let end = memchr::memchr(b',', rest).unwrap_or(rest.len());
    decimal(&rest[..end]).is_some()
}

fn name_cell(rest: &[u8]) -> Option<CellAndRest<'_>> {
    let (first, next) = cell(rest);
    if next.is_some_and(number_follows) {
        return Some((first, next));
    }
    let end = memchr::memchr_iter(b',', rest).find(|&comma| number_follows(&rest[comma + 1..]))?;
    let name = &rest[..end];
    let unquoted = name.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")).unwrap_or(name);
    Some((Cow::Borrowed(unquoted), Some(&rest[end + 1..])))
}

/// The first cell of a text, and what follows its comma.
fn cell(text: &[u8]) -> CellAndRest<'_> {
    if text.first() != Some(&b'"') {
        return match memchr::memchr(b',', text) {
            Some(comma) => (Cow::Borrowed(&text[..comma]), Some(&text[comma + 1..])),
            None => (Cow::Borrowed(text), None),
        };
    }
    let mut doubled = false;
    let mut at = 1;
    while let Some(quote) = memchr::memchr(b'"', &text[at..]) {
        let quote = at + quote;
        let run = text[quote..].iter().take_while(|&&byte| byte == b'"').count();
        let after = quote + run;
        let closes = run % 2 == 1 && (after == text.len() || text[after] == b',');
        doubled |= run > 1;
        if closes {
            let inner = &text[1..after - 1];
            return (undoubled(inner, doubled), text.get(after + 1..));
        }
        at = after;
    }
    // Never closed: everything is the cell.
    (undoubled(&text[1..], doubled), None)
}

fn undoubled(inner: &[u8], doubled: bool) -> Cow<'_, [u8]> {
    if !doubled {
        return Cow::Borrowed(inner);
    }
    let mut text = Vec::with_capacity(inner.len());
    let mut skip = false;
    for &byte in inner {
        if byte == b'"' && !skip && text.last() == Some(&b'"') {
            skip = true;
            continue;
        }
        skip = false;
        text.push(byte);
    }
    Cow::Owned(text)
}

/// All cells of a text.
pub fn cells(text: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let (cell, next) = cell(rest?);
        rest = next;
        Some(cell)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str, piece_bytes: usize) -> Vec<String> {
        struct Pieces<'a>(&'a [u8], usize);
        impl Read for Pieces<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let length = self.1.min(self.0.len()).min(buffer.len());
                buffer[..length].copy_from_slice(&self.0[..length]);
                self.0 = &self.0[length..];
                Ok(length)
            }
        }
        let mut records = CsvRecords::new(Pieces(text.as_bytes(), piece_bytes));
        let mut all = Vec::new();
        while let Some(record) = records.next_record().unwrap() {
            all.push(String::from_utf8_lossy(record.bytes).into_owned());
        }
        all
    }

    fn split_text(record: &str) -> Option<Vec<String>> {
        let split = split(record.as_bytes())?;
        let own = |cell: &[u8]| String::from_utf8_lossy(cell).into_owned();
        Some(split.cells.iter().map(|cell| own(cell)).chain(cells(split.rest).map(|cell| own(&cell))).collect())
    }

    #[test]
    fn stacks_with_line_breaks_stay_in_their_record() {
        let text = "h1,h2\n1,MALLOC,\"a\nb\n\",\n2,FREE,x,\r\n\n3,MALLOC,y";
        for piece_bytes in [1, 2, 3, 7, 100] {
            assert_eq!(
                records(text, piece_bytes),
                ["h1,h2", "1,MALLOC,\"a\nb\n\",", "2,FREE,x,", "3,MALLOC,y"],
                "pieces of {piece_bytes}"
            );
        }
    }

    #[test]
    fn an_unclosed_quote_costs_one_record_only() {
        let text = "1,MSTX,Mark,\"say \"hi,5\n12,MALLOC,HAL\nrest\"\n13,FREE,HAL";
        for piece_bytes in [1, 5, 100] {
            let expected = ["1,MSTX,Mark,\"say \"hi,5", "12,MALLOC,HAL", "rest\"\n", "13,FREE,HAL"];
            let found = records(text, piece_bytes);
            assert_eq!(found.len(), 4, "pieces of {piece_bytes}: {found:?}");
            assert_eq!((found[0].as_str(), found[3].as_str()), (expected[0], expected[3]));
        }
    }

    #[test]
    fn cells_are_split_whatever_the_quoting() {
        let row = |name: &str, attributes: &str| {
            split_text(&format!("1,MSTX,Mark,{name},12,3,4,0,N/A,{attributes},\"a\nb\",")).unwrap()
        };
        let plain = row("\"step start\"", "\"{size:1,used:2}\"");
        assert_eq!(plain[3], "step start");
        assert_eq!((plain[4].as_str(), plain[9].as_str(), plain[10].as_str()), ("12", "{size:1,used:2}", "a\nb"));
        assert_eq!(row("\"say \"\"hi\"\", you\"", "")[3], "say \"hi\", you");
        assert_eq!(row("\"say \"hi\"\"", "")[3], "say \"hi\"");
        assert_eq!(row("a,b", "")[3], "a,b");
        assert_eq!(row("op<1, 2>", "\"{\"\"size\"\":\"\"5\"\"}\"")[9], "{\"size\":\"5\"}");
        assert_eq!(row("\"\"", "")[3], "");
    }

    #[test]
    fn short_records_are_refused() {
        assert_eq!(split_text("1,MALLOC,HAL"), None);
        assert_eq!(split_text("1,MALLOC,HAL,N/A,5,6,7,0,0x10"), None);
        assert!(split_text("1,MALLOC,HAL,N/A,5,6,7,0,0x10,").is_some());
    }

    #[test]
    fn headers_are_checked_and_stacks_located() {
        let standard = REQUIRED_NAMES.join(",");
        let layout = |text: &str| CsvLayout::from_header(text.as_bytes());
        assert_eq!(layout(&standard), Ok(CsvLayout { python_stack: None, native_stack: None }));
        assert_eq!(
            layout(&format!("\u{feff}{standard},Call Stack(Python),Call Stack(C)")),
            Ok(CsvLayout { python_stack: Some(10), native_stack: Some(11) })
        );
        assert_eq!(layout("ID,Event,Kind"), Err("column 3 is \"Kind\" instead of \"Event Type\"".into()));
        let long = layout(&"(".repeat(1_000_000)).unwrap_err();
        assert!(long.len() < 100 && long.contains("(((...\" instead of \"ID\""), "{long}");
        assert_eq!(layout("ID"), Err("column 2 (\"Event\") is missing".into()));
    }
}
