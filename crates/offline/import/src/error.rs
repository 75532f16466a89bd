//! Why an input cannot be used at all. One line each, naming the cause.

use std::fmt;
use std::io;
use std::path::PathBuf;

use msmemscope_trace::TraceError;

/// Why an input cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// The path cannot be read.
    Unreadable {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is none of the known formats.
    UnknownFormat {
        /// The path.
        path: PathBuf,
        /// What it looks like instead.
        found: String,
    },
    /// A csv file without the columns of a dump.
    WrongColumns {
        /// The path.
        path: PathBuf,
        /// What is wrong with the header.
        problem: String,
    },
    /// A database that cannot be read or has no dump table.
    Database {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A recording that cannot be opened.
    Trace {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        source: TraceError,
    },
    /// A memory snapshot that cannot be used.
    Snapshot {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A file that holds rows, none of which can be understood.
    NothingUsable {
        /// The path.
        path: PathBuf,
        /// Rows that were skipped.
        rows_skipped: u64,
        /// Why the first of them was.
        first_problem: String,
    },
    /// A directory without any recording or dump file.
    EmptyDirectory {
        /// The path.
        path: PathBuf,
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Unreadable { path, source } => write!(formatter, "cannot read {}: {source}", path.display()),
            ImportError::UnknownFormat { path, found } => {
                write!(formatter, "{} is neither a dump (csv or db) nor a recording: {found}", path.display())
            }
            ImportError::WrongColumns { path, problem } => {
                write!(formatter, "{} is not a memory dump: {problem}", path.display())
            }
            ImportError::Database { path, problem } => {
                write!(formatter, "database {} cannot be used: {problem}", path.display())
            }
            ImportError::Trace { path, source } => {
                write!(formatter, "recording {} cannot be used: {source}", path.display())
            }
            ImportError::Snapshot { path, problem } => {
                write!(formatter, "snapshot {} cannot be used: {problem}", path.display())
            }
            ImportError::NothingUsable { path, rows_skipped, first_problem } => write!(
                formatter,
                "{} has no usable row; {rows_skipped} skipped, the first because of: {first_problem}",
                path.display()
            ),
            ImportError::EmptyDirectory { path } => {
                write!(formatter, "no recording, memscope_dump, leaks_dump or snapshot file in {}", path.display())
            }
        }
    }
}

impl std::error::Error for ImportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ImportError::Unreadable { source, .. } => Some(source),
            ImportError::Trace { source, .. } => Some(source),
            _ => None,
        }
    }
}
