//! Rows of dump databases. Opened read-only and untouched by journals; further tables and columns,
//! such as those MindStudio Insight adds, are ignored.
//!
//! Only rows that are stored are read, and not more of them than the file has room for: a view, a computed column or
//! a tree that leads back to itself would make a small file cost any amount of time and memory.

use std::path::{Path, PathBuf};

use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::columns::{self, COLUMNS, REQUIRED_NAMES, TABLES};
use crate::row::{Row, decimal};

/// First bytes of every database file.
pub const MAGIC: &[u8] = b"SQLite format 3\0";

/// Text of all rows together, per byte of the file. Recoding takes some; more is not stored but repeated.
const MOST_TEXT_PER_BYTE: u64 = 4;
/// Instructions of SQLite's machine per byte of the file. A row of twelve columns takes about twenty instructions and
/// as many bytes.
const MOST_INSTRUCTIONS_PER_BYTE: u64 = 16;
/// What every file may take besides, whatever its size.
const FREE_TEXT_BYTES: u64 = 1 << 20;
const FREE_INSTRUCTIONS: u64 = 1 << 20;
/// Instructions between two looks at what was used up.
const INSTRUCTIONS_PER_LOOK: u64 = 1000;

const MORE_THAN_FITS: &str = "it yields more than its size allows, so it is damaged or was made to do harm";

/// The table with the rows, if there is one.
pub fn find_dump_table(connection: &Connection) -> rusqlite::Result<Option<&'static str>> {
    for table in TABLES {
        let sql = "SELECT count(*) FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?1";
        let count: i64 = connection.query_row(sql, [table], |row| row.get(0))?;
        if count > 0 {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

/// Reads all rows with their numbers from one; nothing stands for a row whose own number or time is none. The error says
/// what is wrong with the database.
pub fn read(path: &Path, mut take: impl FnMut(Option<&Row<'_>>, u64)) -> Result<(), String> {
    let mut connection = open_read_only(path).map_err(|error| describe(&error))?;
    let file_bytes = stored_bytes(path);
    limit_work(&mut connection, file_bytes).map_err(|error| describe(&error))?;
    let mut text_bytes_left = file_bytes.saturating_mul(MOST_TEXT_PER_BYTE).saturating_add(FREE_TEXT_BYTES);
    let problem = |error: rusqlite::Error| describe(&error);
    let table = find_dump_table(&connection)
        .map_err(problem)?
        .ok_or_else(|| format!("no table {} or {}", TABLES[0], TABLES[1]))?;
    let columns = stored_columns(&connection, table)?;
    if let Some(missing) = REQUIRED_NAMES.iter().find(|wanted| !columns.iter().any(|column| column == *wanted)) {
        return Err(format!("table {table} has no column {missing:?}"));
    }
    let optional = |wanted: &str| match columns.iter().any(|column| column == wanted) {
        true => format!("\"{wanted}\""),
        false => "''".to_owned(),
    };
    let list: Vec<String> = REQUIRED_NAMES.iter().map(|column| format!("\"{column}\"")).collect();
    let sql = format!(
        "SELECT {}, {}, {} FROM \"{table}\"",
        list.join(", "),
        optional(COLUMNS[columns::PYTHON_STACK].name),
        optional(COLUMNS[columns::NATIVE_STACK].name)
    );
    let mut statement = connection.prepare(&sql).map_err(problem)?;
    let mut rows = statement.query([]).map_err(problem)?;
    let mut row_number = 0;
    while let Some(row) = rows.next().map_err(problem)? {
        row_number += 1;
        let text = |index: usize| match row.get_ref(index) {
            Ok(ValueRef::Text(text) | ValueRef::Blob(text)) => text,
            _ => &b""[..],
        };
        let number = |index: usize| match row.get_ref(index) {
            Ok(ValueRef::Integer(value)) => u64::try_from(value).ok(),
            Ok(ValueRef::Text(text)) => decimal(text),
            _ => None,
        };
        let device_id = match row.get_ref(columns::DEVICE_ID) {
            Ok(ValueRef::Integer(value)) => value.to_string(),
            _ => String::new(),
        };
        let small = |index: usize| number(index).and_then(|value| u32::try_from(value).ok());
        let (Some(id), Some(timestamp_ns)) = (number(columns::ID), number(columns::TIMESTAMP)) else {
            take(None, row_number);
            continue;
        };
        let cells = Row {
            id,
            event: text(columns::EVENT),
            event_type: text(columns::EVENT_TYPE),
            name: text(columns::NAME),
            timestamp_ns,
            process_id: small(columns::PROCESS_ID),
            thread_id: small(columns::THREAD_ID),
            device: if device_id.is_empty() { text(columns::DEVICE_ID) } else { device_id.as_bytes() },
            pointer: text(columns::POINTER),
            attributes: text(columns::ATTRIBUTES),
            python_stack: text(columns::PYTHON_STACK),
            native_stack: text(columns::NATIVE_STACK),
        };
        let texts = [cells.event, cells.event_type, cells.name, cells.pointer, cells.attributes];
        let texts = texts.into_iter().chain([cells.python_stack, cells.native_stack]);
        let text_bytes = texts.map(|text| text.len() as u64).sum();
        text_bytes_left = text_bytes_left.checked_sub(text_bytes).ok_or(MORE_THAN_FITS)?;
        take(Some(&cells), row_number);
    }
    Ok(())
}

/// A write-ahead log beside the file is read if there is one; otherwise the file is declared immutable,
/// so that no side files appear beside it.
fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    if wal_path(path).exists() {
        return Connection::open_with_flags(path, flags);
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = String::from("file:");
    for &byte in std::os::unix::ffi::OsStrExt::as_bytes(absolute.as_os_str()) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => uri.push(char::from(byte)),
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    Connection::open_with_flags(uri, flags)
}

/// Bytes that can hold rows: the file, and a write-ahead log beside it.
fn stored_bytes(path: &Path) -> u64 {
    [path.to_owned(), wal_path(path)].iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum()
}

/// Lets queries fail when they take more than a file of this size can need.
fn limit_work(connection: &mut Connection, file_bytes: u64) -> rusqlite::Result<()> {
    let longest_bytes = file_bytes.saturating_add(FREE_TEXT_BYTES).min(i32::MAX as u64) as i32;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest_bytes)?;
    let most = file_bytes.saturating_mul(MOST_INSTRUCTIONS_PER_BYTE).saturating_add(FREE_INSTRUCTIONS);
    let mut looks_left = most / INSTRUCTIONS_PER_LOOK;
    let is_used_up = move || {
        looks_left = looks_left.saturating_sub(1);
        looks_left == 0
    };
    connection.progress_handler(INSTRUCTIONS_PER_LOOK as i32, Some(is_used_up))
}

/// The names of a table's columns, all of which must hold what is stored in the file.
fn stored_columns(connection: &Connection, table: &str) -> Result<Vec<String>, String> {
    let problem = |error: rusqlite::Error| describe(&error);
    let sql = "SELECT type = 'table' AND rootpage > 0 FROM sqlite_master WHERE name = ?1";
    let is_stored: bool = connection.query_row(sql, [table], |row| row.get(0)).map_err(problem)?;
    if !is_stored {
        return Err(format!("{table} is not a table with rows of its own"));
    }
    let mut statement = connection.prepare("SELECT name, hidden FROM pragma_table_xinfo(?1)").map_err(problem)?;
    let mut rows = statement.query([table]).map_err(problem)?;
    let mut names = Vec::new();
    while let Some(row) = rows.next().map_err(problem)? {
        let (Ok(ValueRef::Text(name)), Ok(ValueRef::Integer(hidden))) = (row.get_ref(0), row.get_ref(1)) else {
            return Err(format!("the columns of {table} cannot be read"));
        };
        let name = String::from_utf8_lossy(name).into_owned();
        if hidden != 0 {
            return Err(format!("column {name:?} of {table} is computed"));
        }
        names.push(name);
    }
    Ok(names)
}

fn wal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

fn describe(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) if failure.code == ErrorCode::OperationInterrupted => {
            MORE_THAN_FITS.to_owned()
        }
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}
