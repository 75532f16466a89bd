//! Checks that a database will load in MindStudio Insight and show everything it holds.
//!
//! Insight reads the event table by column position, parses every `Attr`, and drops or misreads
//! silently whatever does not fit. [`check`] knows the whole contract and lists every breach.

mod events;
mod python;
mod rules;

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::columns::TABLES;

pub use rules::{Consequence, Rule};

/// One breach of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// Where and what.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.rule.describe(), self.detail)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InsightReport {
    /// Breaches, at most [`MOST_VIOLATIONS`] of them.
    pub violations: Vec<Violation>,
    /// All breaches, also those that are not listed.
    pub violation_count: u64,
    /// Rows of the event table.
    pub rows: u64,
    /// Whether Insight has opened the file before and added its own tables.
    pub altered_by_insight: bool,
}

/// How many breaches are listed.
pub const MOST_VIOLATIONS: usize = 200;

/// Largest file that Insight opens.
const LARGEST_FILE_BYTES: u64 = 20 << 30;
/// Characters that Insight refuses in paths, devices and types.
const REFUSED_CHARACTERS: &[char] =
    &['|', ';', '&', '$', '>', '<', '`', '\\', '\'', '"', '{', '}', '(', ')', '[', ']', '~', '*', '?', '!', '\n'];
/// Tables that Insight makes itself.
const DERIVED_TABLES: [&str; 3] = ["memory_allocation", "memory_block", "status_info"];

impl InsightReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.violation_count == 0
    }

    /// Whether some rule was broken.
    pub fn breaks(&self, rule: Rule) -> bool {
        self.violations.iter().any(|violation| violation.rule == rule)
    }

    pub(crate) fn add(&mut self, rule: Rule, detail: impl Into<String>) {
        self.violation_count += 1;
        // Every broken rule is listed at least once.
        if self.violations.len() < MOST_VIOLATIONS || !self.breaks(rule) {
            self.violations.push(Violation { rule, detail: detail.into() });
        }
    }
}

/// Whether Insight opens files below a path; it refuses those with shell characters.
pub fn accepts_path(path: &Path) -> bool {
    !path.to_string_lossy().contains(REFUSED_CHARACTERS)
}

/// Checks a database. Problems of any kind, also an unreadable file, are violations.
pub fn check(path: &Path) -> InsightReport {
    let mut report = InsightReport::default();
    check_file(path, &mut report);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let result =
        Connection::open_with_flags(path, flags).and_then(|connection| check_content(&connection, &mut report));
    if let Err(error) = result {
        report.add(Rule::Readable, error.to_string());
    }
    report
}

fn check_file(path: &Path, report: &mut InsightReport) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let digits = ["memscope_dump_", "leaks_dump_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .and_then(|rest| rest.strip_suffix(".db"))
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if digits.is_none() {
        report.add(Rule::FileName, name);
    }
    if !accepts_path(path) {
        report.add(Rule::PathCharacters, path.to_string_lossy().into_owned());
    }
    check_permissions(path, true, report);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    check_permissions(directory, false, report);
    for side_file in ["-wal", "-journal", "-shm"] {
        let mut side_path = path.as_os_str().as_bytes().to_vec();
        side_path.extend_from_slice(side_file.as_bytes());
        if Path::new(std::ffi::OsStr::from_bytes(&side_path)).exists() {
            report.add(Rule::ClosedCleanly, format!("{side_file} file beside the database"));
        }
    }
}

fn check_permissions(path: &Path, is_file: bool, report: &mut InsightReport) {
    let shown = path.display();
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return report.add(Rule::Readable, format!("{shown}: {error}")),
    };
    if is_file && !metadata.is_file() {
        report.add(Rule::PlainFile, format!("{shown}"));
    }
    if is_file && metadata.len() > LARGEST_FILE_BYTES {
        report.add(Rule::FileSize, format!("{} bytes", metadata.len()));
    }
    let mode = metadata.permissions().mode();
    let sticky = mode & 0o1000 != 0;
    if mode & 0o002 != 0 && (is_file || !sticky) {
        report.add(Rule::Permissions, format!("{shown} is writable by everybody ({:o})", mode & 0o7777));
    }
    if mode & 0o200 == 0 {
        report.add(Rule::Permissions, format!("{shown} is not writable by its owner ({:o})", mode & 0o7777));
    }
    // SAFETY: plain system call without arguments.
    let user = unsafe { libc::geteuid() };
    if user != 0 && metadata.uid() != user {
        report.add(Rule::Permissions, format!("{shown} belongs to another user"));
    }
}

fn check_content(connection: &Connection, report: &mut InsightReport) -> rusqlite::Result<()> {
    let user_version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    report.altered_by_insight = user_version != 0;
    let journal_mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if journal_mode != "delete" {
        report.add(Rule::ClosedCleanly, format!("journal mode {journal_mode}"));
    }
    let encoding: String = connection.query_row("PRAGMA encoding", [], |row| row.get(0))?;
    if encoding != "UTF-8" {
        report.add(Rule::Readable, format!("encoding {encoding}"));
    }
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_master WHERE type='table'")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for table in &tables {
        if !report.altered_by_insight && DERIVED_TABLES.contains(&table.as_str()) {
            report.add(Rule::DerivedTables, table.clone());
        }
    }
    let event_table = TABLES.into_iter().find(|name| tables.iter().any(|table| table == name));
    match event_table {
        Some(table) => events::check(connection, table, report)?,
        None => report.add(Rule::EventTable, "neither memscope_dump nor leaks_dump exists"),
    }
    python::check(connection, report)
}
