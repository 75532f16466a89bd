//! Rows of dump databases. Opened read-only and untouched by journals; further tables and columns,
//! such as those MindStudio Insight adds, are ignored.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use crate::csv::DUMP_COLUMNS;
use crate::report::{ImportReport, SkipReason};
use crate::row::{Row, decimal};

/// Names of the table with the rows, the preferred one first.
pub const DUMP_TABLES: [&str; 2] = ["memscope_dump", "leaks_dump"];

/// First bytes of every database file.
pub(crate) const MAGIC: &[u8] = b"SQLite format 3\0";

/// The table with the rows, if there is one.
pub fn find_dump_table(connection: &Connection) -> rusqlite::Result<Option<&'static str>> {
    for table in DUMP_TABLES {
        let sql = "SELECT count(*) FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?1";
        let count: i64 = connection.query_row(sql, [table], |row| row.get(0))?;
        if count > 0 {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

/// Reads all rows. The error says what is wrong with the database.
pub(crate) fn read(path: &Path, report: &mut ImportReport, mut take: impl FnMut(&Row<'_>, u64)) -> Result<(), String> {
    let connection = open_read_only(path).map_err(|error| describe(&error))?;
    let problem = |error: rusqlite::Error| describe(&error);
    let table = find_dump_table(&connection)
        .map_err(problem)?
        .ok_or_else(|| format!("no table {} or {}", DUMP_TABLES[0], DUMP_TABLES[1]))?;
    let columns = column_names(&connection, table).map_err(problem)?;
    if let Some(missing) = DUMP_COLUMNS.iter().find(|wanted| !columns.iter().any(|column| column == *wanted)) {
        return Err(format!("table {table} has no column {missing:?}"));
    }
    let optional = |wanted: &str| match columns.iter().any(|column| column == wanted) {
        true => format!("\"{wanted}\""),
        false => "''".to_owned(),
    };
    let list: Vec<String> = DUMP_COLUMNS.iter().map(|column| format!("\"{column}\"")).collect();
    let sql = format!(
        "SELECT {}, {}, {} FROM \"{table}\"",
        list.join(", "),
        optional("Call Stack(Python)"),
        optional("Call Stack(C)")
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
        let device_id = match row.get_ref(7) {
            Ok(ValueRef::Integer(value)) => value.to_string(),
            _ => String::new(),
        };
        let small = |index: usize| number(index).and_then(|value| u32::try_from(value).ok());
        let (Some(id), Some(timestamp_ns)) = (number(0), number(4)) else {
            report.skip(SkipReason::BadNumber, row_number);
            continue;
        };
        let cells = Row {
            id,
            event: text(1),
            event_type: text(2),
            name: text(3),
            timestamp_ns,
            process_id: small(5),
            thread_id: small(6),
            device: if device_id.is_empty() { text(7) } else { device_id.as_bytes() },
            pointer: text(8),
            attributes: text(9),
            python_stack: text(10),
            native_stack: text(11),
        };
        take(&cells, row_number);
    }
    Ok(())
}

/// A write-ahead log beside the file is read if there is one; otherwise the file is declared immutable,
/// so that no side files appear beside it.
fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    if Path::new(&wal).exists() {
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

fn column_names(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let statement = connection.prepare(&format!("SELECT * FROM \"{table}\" LIMIT 0"))?;
    Ok(statement.column_names().map(str::to_owned).collect())
}

fn describe(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}
