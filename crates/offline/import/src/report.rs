//! What happened to the rows of an input: nothing is dropped without being counted.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::ImportError;

/// Why a row was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SkipReason {
    /// Fewer cells than a row needs.
    TooFewCells,
    /// A cell that must be a number is not.
    BadNumber,
    /// The Event cell holds a word nobody knows.
    UnknownEvent,
    /// The Event Type cell does not fit the event.
    UnknownEventType,
    /// The Ptr cell of an allocation or free is no address.
    BadAddress,
    /// An allocation without a size.
    MissingSize,
    /// A row longer than any row can be; usually a quote that is never closed.
    TooLong,
}

impl SkipReason {
    /// All reasons.
    pub const ALL: [SkipReason; 7] = [
        SkipReason::TooFewCells,
        SkipReason::BadNumber,
        SkipReason::UnknownEvent,
        SkipReason::UnknownEventType,
        SkipReason::BadAddress,
        SkipReason::MissingSize,
        SkipReason::TooLong,
    ];
}

impl fmt::Display for SkipReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SkipReason::TooFewCells => "too few cells",
            SkipReason::BadNumber => "a cell that must be a number is not",
            SkipReason::UnknownEvent => "unknown event",
            SkipReason::UnknownEventType => "unknown event type",
            SkipReason::BadAddress => "no address",
            SkipReason::MissingSize => "no size",
            SkipReason::TooLong => "row too long",
        })
    }
}

/// What happened to the rows of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Rows that became facts.
    pub rows_used: u64,
    /// Rows that only repeat what other rows say (block lists of out-of-memory reports, rows copied
    /// into the file of every device, closing rows of blocks alive at the end).
    pub rows_derived: u64,
    /// Copies of flight recorders that were left out because the recordings themselves are there.
    copies_left_out: u64,
    skipped: [u64; SkipReason::ALL.len()],
    first_problem: Option<(SkipReason, u64)>,
    empty_files: Vec<PathBuf>,
    /// Why files that were found in directories are left out.
    left_out: Vec<String>,
}

impl ImportReport {
    /// This many copies of flight recorders were left out.
    pub fn of_copies(copies_left_out: u64) -> Self {
        Self { copies_left_out, ..Self::default() }
    }

    pub(crate) fn skip(&mut self, reason: SkipReason, row_number: u64) {
        self.skipped[reason as usize] += 1;
        self.first_problem.get_or_insert((reason, row_number));
    }

    /// A file had no rows.
    pub(crate) fn file_is_empty(&mut self, path: &Path) {
        self.empty_files.push(path.to_owned());
    }

    /// A file that was found in a directory cannot be read.
    pub(crate) fn file_is_left_out(&mut self, reason: &ImportError) {
        self.left_out.push(reason.to_string());
    }

    pub(crate) fn merge(&mut self, other: &ImportReport) {
        self.rows_used += other.rows_used;
        self.rows_derived += other.rows_derived;
        self.copies_left_out += other.copies_left_out;
        for (mine, theirs) in self.skipped.iter_mut().zip(other.skipped) {
            *mine += theirs;
        }
        self.first_problem = match (self.first_problem, other.first_problem) {
            (Some(mine), Some(theirs)) if theirs.1 < mine.1 => Some(theirs),
            (mine, theirs) => mine.or(theirs),
        };
        self.empty_files.extend_from_slice(&other.empty_files);
        self.left_out.extend_from_slice(&other.left_out);
    }

    /// Rows skipped for one reason.
    pub fn skipped(&self, reason: SkipReason) -> u64 {
        self.skipped[reason as usize]
    }

    /// All rows skipped.
    pub fn rows_skipped(&self) -> u64 {
        self.skipped.iter().sum()
    }

    /// Why and where the first row was skipped. Rows count from one, without the header.
    pub fn first_problem(&self) -> Option<(SkipReason, u64)> {
        self.first_problem
    }

    /// Files found in directories that could not be read.
    pub fn files_left_out(&self) -> usize {
        self.left_out.len()
    }

    /// One line for people, or nothing if every file that was found was read, had rows, and had all of them used.
    pub fn notice(&self) -> Option<String> {
        let parts = [
            self.notice_of_files_left_out(),
            self.notice_of_copies(),
            self.notice_of_empty_files(),
            self.notice_of_skipped_rows(),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    fn notice_of_files_left_out(&self) -> Option<String> {
        let first = self.left_out.first()?;
        Some(match self.left_out.len() {
            1 => format!("1 file is left out: {first}"),
            files => format!("{files} files are left out; the first: {first}"),
        })
    }

    fn notice_of_copies(&self) -> Option<String> {
        let why = "left out, because the recordings themselves are there; name one to look at it";
        match self.copies_left_out {
            0 => None,
            1 => Some(format!("1 copy of a flight recorder {why}")),
            copies => Some(format!("{copies} copies of flight recorders {why}")),
        }
    }

    fn notice_of_empty_files(&self) -> Option<String> {
        let first = self.empty_files.first()?.display();
        Some(match self.empty_files.len() - 1 {
            0 => format!("no events in {first}"),
            1 => format!("no events in {first} and 1 other file"),
            others => format!("no events in {first} and {others} other files"),
        })
    }

    fn notice_of_skipped_rows(&self) -> Option<String> {
        let (reason, row_number) = self.first_problem?;
        let counts: Vec<String> = SkipReason::ALL
            .into_iter()
            .filter(|&reason| self.skipped(reason) > 0)
            .map(|reason| format!("{} {reason}", self.skipped(reason)))
            .collect();
        Some(format!(
            "{} skipped ({}); the first is row {row_number}: {reason}",
            if self.rows_skipped() == 1 { "1 row".to_owned() } else { format!("{} rows", self.rows_skipped()) },
            counts.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notice_names_counts_and_the_first_row() {
        let mut report = ImportReport::default();
        assert_eq!(report.notice(), None);
        report.skip(SkipReason::BadNumber, 7);
        report.skip(SkipReason::MissingSize, 9);
        report.skip(SkipReason::BadNumber, 11);
        assert_eq!(
            report.notice().as_deref(),
            Some(
                "3 rows skipped (2 a cell that must be a number is not, 1 no size); \
                 the first is row 7: a cell that must be a number is not"
            )
        );
    }
}
