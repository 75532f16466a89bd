//! SQLite: the table MindStudio Insight reads, one database per device.
//!
//! Everything goes into one transaction without a journal, because the file has no name yet; the
//! index is made afterwards, and the file is left in the journal mode in which it can be copied.

use std::path::Path;

use msmemscope_timeline::PythonSpan;
use msmemscope_trace::Definitions;
use rusqlite::{CachedStatement, Connection, OpenFlags};

use crate::python_trace::function_text;
use crate::row::{Row, Value};
use crate::text::push_address;

/// Columns of the event table, in the order in which Insight reads them.
pub const COLUMNS: [(&str, &str); 12] = [
    ("ID", "INTEGER PRIMARY KEY"),
    ("Event", "TEXT"),
    ("Event Type", "TEXT"),
    ("Name", "TEXT"),
    ("Timestamp(ns)", "INTEGER"),
    ("Process Id", "INTEGER"),
    ("Thread Id", "INTEGER"),
    ("Device Id", "TEXT"),
    ("Ptr", "TEXT"),
    ("Attr", "TEXT"),
    ("Call Stack(Python)", "TEXT"),
    ("Call Stack(C)", "TEXT"),
];

const NOT_AVAILABLE: &str = "N/A";
/// SQLite opens no path of more than 512 bytes, and it adds to names.
pub(crate) const LONGEST_PATH_BYTES: usize = 480;

/// A database that is being written.
pub(crate) struct Database {
    connection: Connection,
    table: String,
    process_id: u32,
    has_python_table: bool,
    text: Vec<u8>,
}

impl Database {
    /// Opens an existing empty file.
    pub(crate) fn create(path: &Path, table: &str, process_id: u32) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.execute_batch(
            "PRAGMA page_size=4096; PRAGMA encoding='UTF-8'; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;
             PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=-32768;",
        )?;
        let columns: Vec<String> = COLUMNS.iter().map(|(name, kind)| format!("\"{name}\" {kind}")).collect();
        connection.execute_batch(&format!("BEGIN; CREATE TABLE \"{table}\" ({});", columns.join(", ")))?;
        Ok(Self { connection, table: table.to_owned(), process_id, has_python_table: false, text: Vec::new() })
    }

    /// Writes rows; one call per batch, because preparing a statement costs more than running it.
    pub(crate) fn write(
        &mut self,
        each_row: impl FnOnce(&mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let sql = format!("INSERT INTO \"{}\" VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", self.table);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let text = &mut self.text;
        each_row(&mut |row| insert(&mut statement, row, text))
    }

    /// Adds Python calls. The table exists only if there is one: Insight refuses an empty table.
    pub(crate) fn write_python_calls(
        &mut self,
        calls: &[(u32, PythonSpan)],
        definitions: &Definitions,
    ) -> rusqlite::Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        let table = format!("python_trace_{}", self.process_id);
        if !self.has_python_table {
            self.connection.execute_batch(&format!(
                "CREATE TABLE \"{table}\" (\"FuncInfo\" TEXT, \"StartTime(ns)\" INTEGER, \"EndTime(ns)\" INTEGER, \
                 \"Thread Id\" INTEGER, \"Process Id\" INTEGER)"
            ))?;
            self.has_python_table = true;
        }
        let mut statement = self.connection.prepare_cached(&format!("INSERT INTO \"{table}\" VALUES (?,?,?,?,?)"))?;
        for (thread_id, span) in calls {
            let text = function_text(span, definitions);
            statement.execute((text, span.start_ns as i64, span.end_ns as i64, thread_id, self.process_id))?;
        }
        Ok(())
    }

    /// Makes the index for queries by time and leaves the file as others expect it. Other columns have
    /// too few distinct values for an index to be worth its size.
    pub(crate) fn close(self) -> rusqlite::Result<()> {
        self.connection.flush_prepared_statement_cache();
        let table = &self.table;
        self.connection.execute_batch(&format!(
            "CREATE INDEX \"idx_{table}_timestamp\" ON \"{table}\" (\"Timestamp(ns)\");
             COMMIT; PRAGMA journal_mode=DELETE;"
        ))?;
        self.connection.close().map_err(|(_, error)| error)
    }
}

fn insert(statement: &mut CachedStatement<'_>, row: &Row<'_>, text: &mut Vec<u8>) -> rusqlite::Result<()> {
    statement.raw_bind_parameter(1, row.id as i64)?;
    statement.raw_bind_parameter(2, row.event)?;
    statement.raw_bind_parameter(3, row.event_type)?;
    statement.raw_bind_parameter(4, &*row.name)?;
    statement.raw_bind_parameter(5, row.timestamp_ns as i64)?;
    match row.process_and_thread {
        Some((process_id, thread_id)) => {
            statement.raw_bind_parameter(6, process_id)?;
            statement.raw_bind_parameter(7, thread_id)?;
        }
        None => {
            statement.raw_bind_parameter(6, NOT_AVAILABLE)?;
            statement.raw_bind_parameter(7, NOT_AVAILABLE)?;
        }
    }
    text.clear();
    crate::device::push_device(text, row.device);
    statement.raw_bind_parameter(8, as_text(text))?;
    text.clear();
    match row.pointer {
        Some(pointer) => push_address(text, pointer),
        None => text.extend_from_slice(NOT_AVAILABLE.as_bytes()),
    }
    statement.raw_bind_parameter(9, as_text(text))?;
    text.clear();
    push_json_attributes(text, row);
    statement.raw_bind_parameter(10, as_text(text))?;
    statement.raw_bind_parameter(11, row.python_stack)?;
    statement.raw_bind_parameter(12, row.native_stack)?;
    statement.raw_execute()?;
    Ok(())
}

/// Bytes that were appended as text.
fn as_text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Appends the attributes as a JSON object whose values are all strings, without blanks; nothing if
/// there are none.
fn push_json_attributes(out: &mut Vec<u8>, row: &Row<'_>) {
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
