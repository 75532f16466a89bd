//! The contract, rule by rule.

/// What happens if a rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consequence {
    /// Something is shown wrongly or not at all.
    Hidden,
    /// The file cannot be opened.
    Refused,
}

macro_rules! rules {
    ($($(#[$documentation:meta])* $name:ident: $consequence:ident, $text:literal;)+) => {
        /// One rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($(#[$documentation])* $name,)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)+];

            /// What the rule asks for, in a few words.
            pub fn describe(self) -> &'static str {
                match self {
                    $(Rule::$name => $text,)+
                }
            }

            /// What happens if it is broken.
            pub fn consequence(self) -> Consequence {
                match self {
                    $(Rule::$name => Consequence::$consequence,)+
                }
            }
        }
    };
}

rules! {
    /// The name decides which importer is used.
    FileName: Refused, "file name must be memscope_dump_<digits>.db or leaks_dump_<digits>.db";
    /// The path is checked against shell characters.
    PathCharacters: Refused, "path must be free of shell characters";
    /// Symbolic links are refused.
    PlainFile: Refused, "must be a plain file";
    /// There is a limit.
    FileSize: Refused, "file must not exceed 20 GiB";
    /// The file is opened for writing by its owner.
    Permissions: Refused, "file and directory must be writable by their owner and by nobody else";
    /// It must be a database.
    Readable: Refused, "must be a readable UTF-8 SQLite database";
    /// A copied file must be whole.
    ClosedCleanly: Hidden, "must be closed with journal mode delete and without side files";
    /// The table of events.
    EventTable: Refused, "must have a table memscope_dump or leaks_dump";
    /// Values are read by position.
    Columns: Refused, "columns must be the documented ones in order";
    /// The time range must not be empty.
    TimeRange: Refused, "needs two different timestamps above zero";
    /// Rows of unusable devices are invisible.
    UsableDevice: Refused, "needs a row with a usable device";
    /// Insight makes these tables itself.
    DerivedTables: Hidden, "must not ship tables that Insight derives";
    /// Timestamps are integers.
    Timestamp: Hidden, "timestamps must be positive integers";
    /// Devices are compared as text.
    DeviceText: Hidden, "device ids must be text without special characters";
    /// Types become selector entries.
    TypeText: Hidden, "event types must be text without special characters";
    /// Blocks are found by this text.
    PointerText: Hidden, "Ptr of memory events must be 0x and sixteen digits";
    /// Valid JSON that is no object crashes the reader.
    AttributeObject: Refused, "Attr must be a JSON object or no JSON at all";
    /// Numbers are read as empty text.
    AttributeStrings: Hidden, "Attr values must be JSON strings";
    /// One lookup searches the text.
    AttributeBlanks: Hidden, "Attr must have no blanks between its parts";
    /// MALLOC and FREE without a size are dropped.
    Size: Hidden, "size must be a number above zero";
    /// Events of a block are tied by this.
    AllocationId: Hidden, "allocation_id must be a number above zero";
    /// Two blocks with one id become one.
    AllocationIdUnique: Hidden, "allocation_id must belong to one block only";
    /// The curve subtracts the size of the FREE.
    FreeMatches: Hidden, "FREE must name the device, type, Ptr and size of its MALLOC";
    /// Accesses with another Ptr are discarded.
    AccessMatches: Hidden, "ACCESS must name the Ptr of its MALLOC";
    /// A second MALLOC on a live block is ignored.
    Alternation: Hidden, "MALLOC and FREE of one place must alternate";
    /// Rows are sorted by time alone.
    StrictOrder: Hidden, "timestamps of one block must strictly increase";
    /// Tables of Python calls are found by this pattern.
    PythonTableName: Refused, "tables like python_trace_% must be named python_trace_<pid>";
    /// A missing column fails the import.
    PythonColumns: Refused, "Python trace tables must have the documented columns";
    /// An empty one fails the import.
    PythonRows: Refused, "Python trace tables must have a row with both times";
    /// Others are never drawn.
    PythonSlices: Hidden, "Python calls must have a thread, their process and an end after their begin";
    /// Nesting is rebuilt from times.
    PythonNesting: Hidden, "Python calls of a thread must nest, and siblings must not touch";
}
