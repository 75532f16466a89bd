//! Runs the real program on the stand-in device and reads what it wrote.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use msmemscope_dump::insight;

/// Directory of the release build.
pub fn release() -> &'static Path {
    static RELEASE: OnceLock<PathBuf> = OnceLock::new();
    RELEASE.get_or_init(|| {
        for name in ["msmemscope", "msleaks", "libascend_kernel_hook.so"] {
            testkit::built::release_file(name);
        }
        testkit::built::release_directory().canonicalize().expect("release directory")
    })
}

/// The program whose arguments are its script, compiled once.
pub fn job() -> &'static Path {
    static JOB: OnceLock<PathBuf> = OnceLock::new();
    JOB.get_or_init(|| {
        let source = include_str!("../programs/job.c");
        compile("job.c", source, &["ascendcl", "ascend_hal", "ms_tools_ext"])
    })
}

/// Compiles a program into a directory that lives as long as the build.
pub fn compile(name: &str, source: &str, libraries: &[&str]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-programs-{name}"));
    std::fs::create_dir_all(&directory).expect("directory for programs");
    standin_testing::compile(&directory, name, source, libraries)
}

/// One test's directory, with the output of everything it runs.
pub struct Bench {
    /// Removed at the end.
    pub home: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self { home: tempfile::tempdir().expect("temporary directory") }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.home.path().join(name)
    }

    /// Where recordings go, unless a test says otherwise.
    pub fn output(&self) -> PathBuf {
        self.path("out")
    }

    /// A command of our program in the test's directory, on the stand-in device.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = standin_testing::command(program.as_ref(), None);
        command.current_dir(self.home.path()).env("MSMEMSCOPE_TEST", "1").env_remove("LD_PRELOAD").stdin(Stdio::null());
        command
    }

    pub fn msmemscope<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(release().join("msmemscope"));
        command.args(arguments);
        command
    }

    /// Records the scriptable job with options and gives the output of our program.
    pub fn record(&self, options: &[&str], script: &str) -> Output {
        let mut command = self.msmemscope(options);
        if !options.iter().any(|option| option.starts_with("--output") || option.starts_with("-o")) {
            command.arg("--output").arg(self.output());
        }
        command.arg("--").arg(job()).args(script.split_whitespace());
        run(command)
    }

    /// The recordings of the test's output directory.
    pub fn recordings(&self) -> Vec<Recorded> {
        recordings(&self.output())
    }

    /// The one recording.
    pub fn recording(&self) -> Recorded {
        let mut all = self.recordings();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

/// Runs to the end.
pub fn run(mut command: Command) -> Output {
    command.output().expect("the program starts")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}\n{}{}", output.status, stdout(output), stderr(output));
}

/// The directory of one recorded process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recorded(pub PathBuf);

/// Process directories below an output directory, by name.
pub fn recordings(output: &Path) -> Vec<Recorded> {
    let Ok(entries) = std::fs::read_dir(output) else { return Vec::new() };
    let mut all: Vec<Recorded> = entries.map(|entry| Recorded(entry.expect("listing").path())).collect();
    // A process killed while it makes the file has recorded nothing.
    all.retain(|recorded| msmemscope_trace::Trace::identify(&recorded.0.join("recording.trace")).is_ok());
    all.sort();
    all
}

/// One row of a table: twelve texts.
pub type Row = Vec<String>;

/// Positions of the columns.
pub mod column {
    pub const EVENT: usize = 1;
    pub const TYPE: usize = 2;
    pub const NAME: usize = 3;
    pub const TIMESTAMP: usize = 4;
    pub const PROCESS: usize = 5;
    pub const DEVICE: usize = 7;
    pub const ADDRESS: usize = 8;
    pub const ATTRIBUTES: usize = 9;
}

impl Recorded {
    pub fn process_id(&self) -> u32 {
        let name = self.0.file_name().expect("a name").to_string_lossy().into_owned();
        name.split('_').nth(1).and_then(|text| text.parse().ok()).expect("a process id in the name")
    }

    /// Whether its results are written.
    pub fn is_finished(&self) -> bool {
        msmemscope_output::is_finished(&self.0)
    }

    /// Tables of one format by device, with the device as in the directory name.
    pub fn tables(&self, extension: &str) -> BTreeMap<String, PathBuf> {
        let mut tables = BTreeMap::new();
        for entry in std::fs::read_dir(&self.0).expect("listing") {
            let path = entry.expect("listing").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let Some(device) = name.strip_prefix("device_") else { continue };
            for file in std::fs::read_dir(path.join("dump")).expect("listing") {
                let file = file.expect("listing").path();
                let is_table = file.file_name().is_some_and(|name| name.to_string_lossy().contains("_dump_"));
                if is_table && file.extension() == Some(OsStr::new(extension)) {
                    assert!(tables.insert(device.to_owned(), file).is_none(), "two tables of device {device}");
                }
            }
        }
        tables
    }

    /// All rows of one format. Rows without a device are in every table; they are taken once.
    pub fn rows(&self, extension: &str) -> Vec<Row> {
        let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
        for path in self.tables(extension).values() {
            for row in read_table(path) {
                rows.insert(row[0].parse().expect("a row number"), row);
            }
        }
        rows.into_values().collect()
    }

    /// Rows of one event in the csv files.
    pub fn events(&self, event: &str) -> Vec<Row> {
        self.rows("csv").into_iter().filter(|row| row[column::EVENT] == event).collect()
    }
}

/// The rows of a csv file or database; databases are checked against Insight's expectations as well.
/// Copies a program that is going to be run. Another process does it: a child that some other test forks
/// in the meantime would inherit a file of ours that is open for writing, and running it would fail.
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("--").args([from, to]).status().expect("cp");
    assert!(status.success(), "cp {} {}", from.display(), to.display());
}

pub fn read_table(path: &Path) -> Vec<Row> {
    if path.extension() == Some(OsStr::new("csv")) {
        let mut reader = csv::Reader::from_path(path).expect("a readable csv file");
        assert_eq!(reader.headers().expect("a header").len(), 12);
        return reader.records().map(|row| row.expect("a row").iter().map(str::to_owned).collect()).collect();
    }
    // SQLite opens no long paths.
    let short = tempfile::tempdir().expect("temporary directory");
    let copy = short.path().join(path.file_name().expect("a name"));
    let path = if path.as_os_str().len() > 480 {
        std::fs::copy(path, &copy).expect("a copy");
        &copy
    } else {
        path
    };
    let report = insight::check(path);
    let is_expected = |violation: &insight::Violation| match violation.rule {
        // Tests with strange directories, and with filters that leave a single row.
        insight::Rule::PathCharacters => !insight::accepts_path(path),
        insight::Rule::TimeRange => report.rows < 2,
        _ => false,
    };
    assert!(report.violations.iter().all(is_expected), "{}: {report:?}", path.display());
    let connection = rusqlite::Connection::open(path).expect("a database");
    let table = if path.to_string_lossy().contains("leaks_dump") { "leaks_dump" } else { "memscope_dump" };
    let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY ID")).expect("a query");
    let columns = statement.column_count();
    assert_eq!(columns, 12);
    let cell = |row: &rusqlite::Row<'_>, index| match row.get_ref(index)? {
        rusqlite::types::ValueRef::Null => Ok(String::new()),
        rusqlite::types::ValueRef::Integer(number) => Ok(number.to_string()),
        rusqlite::types::ValueRef::Text(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        other => panic!("unexpected value {other:?}"),
    };
    let read = |row: &rusqlite::Row<'_>| (0..columns).map(|index| cell(row, index)).collect::<rusqlite::Result<Row>>();
    statement.query_map([], read).expect("rows").map(|row| row.expect("a row")).collect()
}

/// The value of a key of the attributes of a row in the csv form `{key:value,...}`.
pub fn attribute(row: &Row, key: &str) -> Option<String> {
    let text = row[column::ATTRIBUTES].trim_matches(['{', '}']);
    text.split(',').find_map(|pair| pair.strip_prefix(key)?.strip_prefix(':').map(str::to_owned))
}
