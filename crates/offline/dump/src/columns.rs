//! The columns of a dump, in the order in which Insight reads them.

use crate::cells::{Cell, Cells};
use crate::words::Event;

/// Makes the table of columns: position, name, how SQLite stores it, whether every dump has it, and its cell in a row that
/// is written.
macro_rules! columns {
    (
        $cells:ident;
        $($(#[$documentation:meta])* $constant:ident, $name:literal, $stored:literal, $presence:ident = $cell:expr;)+
    ) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "they become the constants below")]
        enum Position { $($constant),+ }

        $($(#[$documentation])* pub const $constant: usize = Position::$constant as usize;)+

        /// All columns.
        pub const COLUMNS: &[Column] = &[$(Column { name: $name, stored: $stored, is_required: columns!(@$presence) }),+];

        /// Calls `visit` with the position and the cell of every column of a row, in order. There is no loop, so that
        /// writers know at each place what kind of cell they have.
        #[inline(always)]
        pub(crate) fn for_each_cell<E>(
            $cells: &Cells<'_>,
            mut visit: impl FnMut(usize, Cell<'_>) -> Result<(), E>,
        ) -> Result<(), E> {
            $(visit($constant, $cell)?;)+
            Ok(())
        }
    };
    (@required) => { true };
    (@optional) => { false };
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in both formats.
    pub name: &'static str,
    /// How SQLite stores it.
    pub stored: &'static str,
    /// Whether every dump has it; the others may be missing.
    pub is_required: bool,
}

columns! {
    cells;
    /// Running number over all files of the process.
    ID, "ID", "INTEGER PRIMARY KEY", required
        = Cell::Number(Some(cells.id));
    /// A word of [`crate::words::Event`].
    EVENT, "Event", "TEXT", required
        = Cell::Word(cells.event.word());
    /// A word that depends on the event.
    EVENT_TYPE, "Event Type", "TEXT", required
        = Cell::Word(cells.event_type);
    /// Operator, kernel, message.
    NAME, "Name", "TEXT", required
        = Cell::Text(&cells.name, cells.event == Event::Message);
    /// Wall clock.
    TIMESTAMP, "Timestamp(ns)", "INTEGER", required
        = Cell::Number(Some(cells.timestamp_ns));
    /// Process.
    PROCESS_ID, "Process Id", "INTEGER", required
        = Cell::Number(cells.process_and_thread.map(|(process, _)| u64::from(process)));
    /// Thread.
    THREAD_ID, "Thread Id", "INTEGER", required
        = Cell::Number(cells.process_and_thread.map(|(_, thread)| u64::from(thread)));
    /// Number of the device, `cpu`, or `N/A`.
    DEVICE_ID, "Device Id", "TEXT", required
        = Cell::Device(cells.device);
    /// First byte of the block.
    POINTER, "Ptr", "TEXT", required
        = Cell::Address(cells.pointer);
    /// Everything else, by key.
    ATTRIBUTES, "Attr", "TEXT", required
        = Cell::Attributes;
    /// Python frames.
    PYTHON_STACK, "Call Stack(Python)", "TEXT", optional
        = Cell::Prepared(cells.python_stack);
    /// Native frames.
    NATIVE_STACK, "Call Stack(C)", "TEXT", optional
        = Cell::Prepared(cells.native_stack);
}

/// Columns of the tables and files with Python calls.
pub const PYTHON_COLUMNS: &[Column] = &[
    Column { name: "FuncInfo", stored: "TEXT", is_required: true },
    Column { name: "StartTime(ns)", stored: "INTEGER", is_required: true },
    Column { name: "EndTime(ns)", stored: "INTEGER", is_required: true },
    Column { name: "Thread Id", stored: "INTEGER", is_required: true },
    Column { name: "Process Id", stored: "INTEGER", is_required: true },
];

/// What stands in a cell for which there is nothing to say.
pub const NOT_AVAILABLE: &str = "N/A";

/// How many columns every dump has; they come first.
pub const REQUIRED_COLUMNS: usize = ATTRIBUTES + 1;

/// Their names.
pub const REQUIRED_NAMES: [&str; REQUIRED_COLUMNS] = {
    let mut names = [""; REQUIRED_COLUMNS];
    let mut position = 0;
    while position < REQUIRED_COLUMNS {
        names[position] = COLUMNS[position].name;
        position += 1;
    }
    names
};

/// Names of the table with the rows in databases, the preferred one first.
pub const TABLES: [&str; 2] = ["memscope_dump", "leaks_dump"];

/// The first line of a csv file with these columns.
pub fn csv_header(columns: &[Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    names.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_that_others_read() {
        assert_eq!(
            csv_header(COLUMNS),
            "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,\
             Call Stack(Python),Call Stack(C)\n"
        );
        assert!(COLUMNS[..REQUIRED_COLUMNS].iter().all(|column| column.is_required));
        assert!(!COLUMNS[REQUIRED_COLUMNS..].iter().any(|column| column.is_required));
    }
}
