//! The reading half, for tests that compare a recording with what really happened.

use crate::format::{CONTINUATION, CONTINUATION_BYTES, LINE_BYTES, MAGIC, NO_TEXT, Record};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// One completed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Process that made the call.
    pub process: u32,
    /// Library of the stand-in that served it.
    pub library: String,
    /// The call.
    pub record: Record,
    /// Its message, where the call has one and it was not null.
    pub text: Option<String>,
}

/// One file of a log directory.
#[derive(Clone, Debug, Default)]
pub struct TruthFile {
    /// Completed calls in file order.
    pub entries: Vec<Entry>,
    /// Lines reserved by calls that never completed.
    pub incomplete_lines: u64,
    /// Records that found no room in the file.
    pub lost_records: u64,
}

/// Why a log could not be read.
#[derive(Debug)]
pub enum TruthError {
    /// The file or directory could not be read.
    Io(PathBuf, std::io::Error),
    /// The file is not a ground-truth log.
    NotALog(PathBuf),
}

impl std::fmt::Display for TruthError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(path, error) => write!(formatter, "{}: {error}", path.display()),
            Self::NotALog(path) => write!(formatter, "{}: not a ground-truth log", path.display()),
        }
    }
}

impl std::error::Error for TruthError {}

/// Reads all logs of a directory, in the order of the calls.
///
/// # Errors
/// When the directory or one of its `.truth` files cannot be read.
pub fn read_directory(directory: &Path) -> Result<Vec<Entry>, TruthError> {
    let io_error = |error| TruthError::Io(directory.to_owned(), error);
    let mut entries = Vec::new();
    for item in std::fs::read_dir(directory).map_err(io_error)? {
        let path = item.map_err(io_error)?.path();
        if path.extension().is_some_and(|extension| extension == "truth") {
            entries.append(&mut read_file(&path)?.entries);
        }
    }
    entries.sort_by_key(|entry| entry.record.sequence);
    Ok(entries)
}

/// Reads one log file; the process that writes it may be dead or alive.
///
/// # Errors
/// When the file cannot be read or is something else.
pub fn read_file(path: &Path) -> Result<TruthFile, TruthError> {
    let io_error = |error| TruthError::Io(path.to_owned(), error);
    let mut input = BufReader::with_capacity(1 << 20, File::open(path).map_err(io_error)?);
    let mut line = [0; LINE_BYTES];
    input.read_exact(&mut line).map_err(io_error)?;
    if word(&line, 0) != MAGIC {
        return Err(TruthError::NotALog(path.to_owned()));
    }
    let process = word(&line, 8) as u32;
    let reserved_lines = word(&line, 16);
    let mut file = TruthFile { lost_records: word(&line, 24), ..TruthFile::default() };
    let name_end = line[32..].iter().position(|byte| *byte == 0).unwrap_or(LINE_BYTES - 32);
    let library = String::from_utf8_lossy(&line[32..32 + name_end]).into_owned();

    let mut text_left = 0;
    let mut text = Vec::new();
    for _ in 1..reserved_lines {
        if input.read_exact(&mut line).is_err() {
            break;
        }
        if word(&line, 0) as u32 == CONTINUATION {
            let part = text_left.min(CONTINUATION_BYTES);
            text.extend_from_slice(&line[4..4 + part]);
            text_left -= part;
            if part > 0 && text_left == 0 {
                set_text(&mut file.entries, &mut text);
            }
            continue;
        }
        let Some(record) = Record::from_line(&line) else {
            file.incomplete_lines += 1;
            text_left = 0;
            continue;
        };
        text.clear();
        text_left = if record.text_bytes == NO_TEXT { 0 } else { record.text_bytes as usize };
        let has_text = record.text_bytes != NO_TEXT;
        file.entries.push(Entry { process, library: library.clone(), record, text: has_text.then(String::new) });
    }
    Ok(file)
}

fn set_text(entries: &mut [Entry], text: &mut Vec<u8>) {
    if let Some(entry) = entries.last_mut() {
        entry.text = Some(String::from_utf8_lossy(text).into_owned());
    }
    text.clear();
}

fn word(line: &[u8; LINE_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&line[at..at + 8]);
    u64::from_le_bytes(bytes)
}
