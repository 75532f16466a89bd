//! Writes the `inefficient_type` attribute into a dump file.
//!
//! The new file is written beside the old one and takes its name only when it is complete, so that
//! whatever happens the input stays as it was. Everything but the attribute is kept: cells, their
//! order, further tables and columns.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustc_hash::FxHashMap;

use crate::attributes::{AttributeText, set_attribute};
use crate::columns::{self, COLUMNS};
use crate::csv_reader::{CsvRecord, CsvRecords};
use crate::database_reader::{MAGIC, find_dump_table};
use crate::keys;
use crate::words::Event;

const ATTRIBUTE: &[u8] = keys::INEFFICIENT_TYPE.as_bytes();

/// Why a file was not annotated. It is as it was.
#[derive(Debug)]
pub enum AnnotateError {
    /// Reading or writing failed.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database refused.
    Database {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: rusqlite::Error,
    },
    /// Only dump files can be annotated.
    NotADump {
        /// The file.
        path: PathBuf,
    },
}

impl fmt::Display for AnnotateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnnotateError::Io { path, source } => {
                write!(formatter, "{} could not be annotated and is unchanged: {source}", path.display())
            }
            AnnotateError::Database { path, source } => {
                write!(formatter, "{} could not be annotated and is unchanged: {source}", path.display())
            }
            AnnotateError::NotADump { path } => {
                write!(formatter, "{} is no csv or db file, so it cannot be annotated", path.display())
            }
        }
    }
}

impl std::error::Error for AnnotateError {}

/// What the rows of allocations should say, by process and row id.
#[derive(Debug, Default)]
pub struct RowNotes {
    by_row: FxHashMap<(u32, u64), &'static str>,
}

impl RowNotes {
    /// A row of a process that is to say something.
    pub fn insert(&mut self, process_id: u32, row_id: u64, text: &'static str) {
        self.by_row.insert((process_id, row_id), text);
    }

    /// Rows that will say something.
    pub fn len(&self) -> usize {
        self.by_row.len()
    }

    /// Whether none will.
    pub fn is_empty(&self) -> bool {
        self.by_row.is_empty()
    }
}

/// Writes notes into a dump file. Earlier notes are replaced.
pub fn annotate(path: &Path, notes: &RowNotes) -> Result<(), AnnotateError> {
    let failed = |source| AnnotateError::Io { path: path.to_owned(), source };
    // The file itself is replaced, not a link to it.
    let path = &path.canonicalize().map_err(failed)?;
    let failed = |source| AnnotateError::Io { path: path.to_owned(), source };
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut copy = tempfile::Builder::new().prefix(".msmemscope_annotate_").tempfile_in(directory).map_err(failed)?;
    let mut input = File::open(path).map_err(failed)?;
    let mut head = [0; 16];
    let head_bytes = input.read(&mut head).map_err(failed)?;
    if head[..head_bytes].starts_with(MAGIC) {
        fs::copy(path, copy.path()).map_err(failed)?;
        annotate_database(copy.path(), notes)
            .map_err(|source| AnnotateError::Database { path: path.to_owned(), source })?;
    } else if head[..head_bytes].starts_with(b"ID,") || head[..head_bytes].starts_with(b"\xef\xbb\xbfID,") {
        let input = File::open(path).map_err(failed)?;
        annotate_csv(input, copy.as_file_mut(), notes).map_err(failed)?;
    } else {
        return Err(AnnotateError::NotADump { path: path.to_owned() });
    }
    let permissions = fs::metadata(path).map_err(failed)?.permissions();
    fs::set_permissions(copy.path(), permissions).map_err(failed)?;
    copy.as_file().sync_all().map_err(failed)?;
    copy.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn annotate_csv(input: File, output: &mut File, notes: &RowNotes) -> io::Result<()> {
    let mut output = BufWriter::new(output);
    let mut records = CsvRecords::new(input);
    let mut is_header = true;
    while let Some(record) = records.next_record()? {
        if is_header || !write_annotated(record.bytes, notes, &mut output)? {
            output.write_all(record.bytes)?;
        }
        is_header = false;
        output.write_all(b"\n")?;
    }
    output.flush()
}

/// Writes a MALLOC row with its note; false if the record stays as it is.
fn write_annotated(record: &[u8], notes: &RowNotes, output: &mut impl Write) -> io::Result<bool> {
    let Some(cells) = CsvRecord { bytes: record, cut: false }.cells() else { return Ok(false) };
    if cells.get(columns::EVENT) != Some(Event::Malloc.word()) {
        return Ok(false);
    }
    let number = |index: usize| cells.get(index).and_then(|cell| cell.parse::<u64>().ok());
    let (Some(row_id), Some(process_id)) = (number(columns::ID), number(columns::PROCESS_ID)) else { return Ok(false) };
    let note = u32::try_from(process_id).ok().and_then(|process_id| notes.by_row.get(&(process_id, row_id)));
    let attributes = cells.attributes();
    let has_note = AttributeText::new(attributes).get(ATTRIBUTE).is_some();
    if note.is_none() && !has_note {
        return Ok(false);
    }
    let changed = set_attribute(attributes, ATTRIBUTE, note.map(|text| text.as_bytes()));
    output.write_all(cells.before_attributes())?;
    output.write_all(b"\"")?;
    for &byte in &changed {
        output.write_all(if byte == b'"' { b"\"\"" } else { std::slice::from_ref(&byte) })?;
    }
    output.write_all(b"\"")?;
    output.write_all(cells.after_attributes())?;
    Ok(true)
}

fn annotate_database(path: &Path, notes: &RowNotes) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    let Some(table) = find_dump_table(&connection)? else { return Ok(()) };
    let transaction = connection.transaction()?;
    {
        let attribute = COLUMNS[columns::ATTRIBUTES].name;
        let select = format!(
            "SELECT rowid, \"ID\", \"Process Id\", \"{attribute}\" FROM \"{table}\" WHERE \"Event\" = '{}'",
            Event::Malloc.word()
        );
        let mut update =
            transaction.prepare(&format!("UPDATE \"{table}\" SET \"{attribute}\" = ?1 WHERE rowid = ?2"))?;
        let mut statement = transaction.prepare(&select)?;
        let mut rows = statement.query([])?;
        let mut changes: Vec<(i64, String)> = Vec::new();
        while let Some(row) = rows.next()? {
            let (rowid, row_id, process_id): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2).unwrap_or(-1));
            let attributes: String = row.get(3).unwrap_or_default();
            let key = (u32::try_from(process_id).unwrap_or(u32::MAX), u64::try_from(row_id).unwrap_or(u64::MAX));
            let note = notes.by_row.get(&key);
            let has_note = attributes.contains("\"inefficient_type\"");
            if note.is_some() || has_note {
                let changed = set_attribute(attributes.as_bytes(), ATTRIBUTE, note.map(|text| text.as_bytes()));
                changes.push((rowid, String::from_utf8_lossy(&changed).into_owned()));
            }
        }
        for (rowid, attributes) in changes {
            update.execute((attributes, rowid))?;
        }
    }
    transaction.commit()?;
    // Nothing may be left in side files: only the database takes the place of the old one.
    connection.pragma_update(None, "journal_mode", "DELETE")?;
    connection.close().map_err(|(_, error)| error)
}
