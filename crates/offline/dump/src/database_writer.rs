//! SQLite: the table MindStudio Insight reads, one database per device.
//!
//! Everything goes into one transaction without a journal, because the file has no name yet; the
//! index is made afterwards, and the file is left in the journal mode in which it can be copied.

use std::path::Path;

use rusqlite::{CachedStatement, Connection, OpenFlags};

use crate::cells::{Cell, Prepared, PreparedCell, Value, WrittenRow};
use crate::columns::{COLUMNS, NOT_AVAILABLE, PYTHON_COLUMNS, for_each_cell};
use crate::text::{push_address, push_device};

/// SQLite opens no path of more than 512 bytes, and it adds to names.
pub const LONGEST_PATH_BYTES: usize = 480;

/// A database that is being written.
pub struct Database {
    connection: Connection,
    table: String,
    process_id: u32,
    has_python_table: bool,
    text: Vec<u8>,
}

impl Database {
    /// Opens an existing empty file.
    pub fn create(path: &Path, table: &str, process_id: u32) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.execute_batch(
            "PRAGMA page_size=4096; PRAGMA encoding='UTF-8'; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;
             PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=-32768;",
        )?;
        let columns: Vec<String> =
            COLUMNS.iter().map(|column| format!("\"{}\" {}", column.name, column.stored)).collect();
        connection.execute_batch(&format!("BEGIN; CREATE TABLE \"{table}\" ({});", columns.join(", ")))?;
        Ok(Self { connection, table: table.to_owned(), process_id, has_python_table: false, text: Vec::new() })
    }

    /// Takes rows; one batch for many of them, because preparing a statement costs more than running it.
    pub fn batch(&mut self) -> rusqlite::Result<Batch<'_>> {
        let places = vec!["?"; COLUMNS.len()].join(",");
        let statement = self.connection.prepare_cached(&format!("INSERT INTO \"{}\" VALUES ({places})", self.table))?;
        Ok(Batch { statement, text: &mut self.text })
    }

    /// Adds Python calls. The table exists only if there is one: Insight refuses an empty table.
    pub fn write_python_calls(&mut self, mut calls: impl Iterator<Item = PythonCall>) -> rusqlite::Result<()> {
        let Some(first) = calls.next() else { return Ok(()) };
        let table = format!("python_trace_{}", self.process_id);
        if !self.has_python_table {
            let columns: Vec<String> =
                PYTHON_COLUMNS.iter().map(|column| format!("\"{}\" {}", column.name, column.stored)).collect();
            self.connection.execute_batch(&format!("CREATE TABLE \"{table}\" ({})", columns.join(", ")))?;
            self.has_python_table = true;
        }
        let mut statement = self.connection.prepare_cached(&format!("INSERT INTO \"{table}\" VALUES (?,?,?,?,?)"))?;
        for call in std::iter::once(first).chain(calls) {
            let (start_ns, end_ns) = (call.start_ns as i64, call.end_ns as i64);
            statement.execute((call.function, start_ns, end_ns, call.thread_id, self.process_id))?;
        }
        Ok(())
    }

    /// Makes the index for queries by time and leaves the file as others expect it. Other columns have
    /// too few distinct values for an index to be worth its size.
    pub fn close(self) -> rusqlite::Result<()> {
        self.connection.flush_prepared_statement_cache();
        let table = &self.table;
        self.connection.execute_batch(&format!(
            "CREATE INDEX \"idx_{table}_timestamp\" ON \"{table}\" (\"Timestamp(ns)\");
             COMMIT; PRAGMA journal_mode=DELETE;"
        ))?;
        self.connection.close().map_err(|(_, error)| error)
    }
}

/// Rows that are being inserted.
pub struct Batch<'a> {
    statement: CachedStatement<'a>,
    text: &'a mut Vec<u8>,
}

impl Batch<'_> {
    /// Inserts a row.
    pub fn insert(&mut self, row: &impl WrittenRow) -> rusqlite::Result<()> {
        insert(&mut self.statement, row, self.text)
    }
}

/// A call of a Python function.
pub struct PythonCall {
    /// `file(line): function`, or a plain name.
    pub function: String,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Its thread.
    pub thread_id: u32,
}

fn insert(statement: &mut CachedStatement<'_>, row: &impl WrittenRow, text: &mut Vec<u8>) -> rusqlite::Result<()> {
    for_each_cell(row.cells(), |position, cell| {
        let place = position + 1;
        text.clear();
        match cell {
            Cell::Number(Some(number)) => return statement.raw_bind_parameter(place, number as i64),
            Cell::Number(None) | Cell::Address(None) => return statement.raw_bind_parameter(place, NOT_AVAILABLE),
            Cell::Word(word) => return statement.raw_bind_parameter(place, word),
            Cell::Text(text, _) | Cell::Prepared(Prepared(text)) => return statement.raw_bind_parameter(place, text),
            Cell::Device(device) => push_device(text, device),
            Cell::Address(Some(address)) => push_address(text, address),
            Cell::Attributes => push_json_attributes(text, row),
        }
        statement.raw_bind_parameter(place, as_text(text))
    })?;
    statement.raw_execute()?;
    Ok(())
}

/// A text as a cell, which can hold any.
pub fn prepared(text: String) -> PreparedCell {
    PreparedCell::new(text)
}

/// Bytes that were appended as text.
fn as_text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Appends the attributes as a JSON object whose values are all strings, without blanks; nothing if
/// there are none.
fn push_json_attributes(out: &mut Vec<u8>, row: &impl WrittenRow) {
    row.attributes(&mut |key: &str, value: Value<'_>| {
        out.extend_from_slice(if out.is_empty() { b"{\"" } else { b",\"" });
        push_json_text(out, key);
        out.extend_from_slice(b"\":\"");
        value.push(out, push_json_text);
        out.push(b'"');
    });
    if !out.is_empty() {
        out.push(b'}');
    }
}

fn push_json_text(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    let mut rest = text.as_bytes();
    while let Some(special) = rest.iter().position(|&byte| !is_plain(byte)) {
        out.extend_from_slice(&rest[..special]);
        match rest[special] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
        }
        rest = &rest[special + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_text_survives_a_strict_reader() {
        let strange = "quote \" backslash \\ line\nreturn\r tab\t bell\u{7} 中文";
        let mut out = vec![b'"'];
        push_json_text(&mut out, strange);
        out.push(b'"');
        let read: String = serde_json::from_slice(&out).expect("valid JSON");
        assert_eq!(read, strange);
    }
}
