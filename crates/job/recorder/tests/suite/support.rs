//! A place to compile a program, run it with and without the recorder, and look at what was recorded.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use msmemscope_event::{Fact, LossReason, Pool};
use msmemscope_settings::{CollectMode, RECORDING_VARIABLE, Recording, Settings, Variant};
use msmemscope_trace::{TRACE_FILE_NAME, Trace};

/// The library that does the work.
pub const RECORDER: &str = "libascend_kernel_hook.so";
/// The libraries that jump into it.
pub const THIN: [&str; 4] =
    ["libleaks_ascend_hal_hook.so", "libascend_mstx_hook.so", "libatb_abi_0_hook.so", "libatb_abi_1_hook.so"];

/// Path of one of our libraries.
pub fn library(name: &str) -> PathBuf {
    match std::env::var_os("MSMEMSCOPE_LIBRARIES") {
        Some(directory) => Path::new(&directory).join(name).canonicalize().expect("a library that exists"),
        None => testkit::built::release_file(name),
    }
}

/// A temporary directory with a place for recordings and one for the log of the device.
pub struct Lab {
    directory: tempfile::TempDir,
    /// Where recordings go.
    pub output: PathBuf,
    /// Where the device logs.
    pub log: PathBuf,
}

/// What a run looked like from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appearance {
    stdout: String,
    stderr: String,
    code: Option<i32>,
    signal: Option<i32>,
}

impl Lab {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (output, log) = (directory.path().join("output"), directory.path().join("log"));
        std::fs::create_dir(&log).expect("a directory");
        Self { directory, output, log }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Compiles a program against the device.
    pub fn compile(&self, name: &str, source: &str, libraries: &[&str]) -> PathBuf {
        standin_testing::compile(self.path(), name, source, libraries)
    }

    /// Compiles a shared library that needs nothing.
    pub fn compile_library(&self, name: &str, source: &str, soname: &str, arguments: &[&str]) -> PathBuf {
        let file = self.path().join(name);
        std::fs::write(&file, source).expect("the source can be written");
        let library = self.path().join(soname);
        let compiler = if name.ends_with(".cpp") { "g++" } else { "gcc" };
        let output = Command::new(compiler)
            .args(["-shared", "-fPIC", "-O1", "-g"])
            .arg(format!("-Wl,-soname,{soname}"))
            .arg("-I")
            .arg(standin_testing::home().join("include"))
            .arg(&file)
            .arg("-o")
            .arg(&library)
            .args(arguments)
            .output()
            .expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        library
    }

    /// A command that runs a program on the device.
    pub fn plain(&self, program: &Path) -> Command {
        let mut command = standin_testing::command(program, None);
        command.current_dir(self.path());
        command
    }

    /// The settings of a run under a launcher.
    pub fn recording(&self) -> Recording {
        let mut settings = Settings::defaults(Variant::Msmemscope);
        settings.output.clone_from(&self.output);
        settings.collect_mode = CollectMode::Immediate;
        Recording {
            settings,
            run_id: 42,
            wall_clock_offset_ns: 1_000_000,
            is_supervised: true,
            finisher: None,
            python_package: None,
        }
    }

    /// Adds the recorder to a command.
    pub fn record(&self, command: &mut Command) {
        self.record_with(command, &[library(RECORDER)], &self.recording());
    }

    /// Adds libraries and settings to a command.
    pub fn record_with(&self, command: &mut Command, libraries: &[PathBuf], recording: &Recording) {
        let mut preload = OsString::new();
        for library in libraries {
            if !preload.is_empty() {
                preload.push(":");
            }
            preload.push(library);
        }
        command.env("LD_PRELOAD", preload);
        command.env(RECORDING_VARIABLE, recording.to_environment());
        command.env("STANDIN_LOG", &self.log);
    }

    /// Runs a program with and without the recorder and demands that both look the same. Returns what
    /// the recorder said.
    pub fn same_with_and_without(&self, program: &Path, arguments: &[&str]) -> Vec<String> {
        self.same_with_and_without_in(program, arguments, |_| {})
    }

    /// The same, with something changed about the environment of both.
    pub fn same_with_and_without_in(
        &self,
        program: &Path,
        arguments: &[&str],
        prepare: impl Fn(&mut Command),
    ) -> Vec<String> {
        let other_log = self.path().join("log of the plain run");
        std::fs::create_dir_all(&other_log).expect("a directory");
        let mut plain = self.plain(program);
        plain.args(arguments).env("STANDIN_LOG", &other_log);
        prepare(&mut plain);
        let (without, said) = appearance(&run(&mut plain));
        assert_eq!(said, Vec::<String>::new());
        let mut recorded = self.plain(program);
        recorded.args(arguments);
        self.record(&mut recorded);
        prepare(&mut recorded);
        let (with, said) = appearance(&run(&mut recorded));
        assert_eq!(with, without);
        said
    }

    /// Forgets the recordings and the log.
    pub fn clear(&self) {
        let _ = std::fs::remove_dir_all(&self.output);
        std::fs::remove_dir_all(&self.log).expect("a log can be removed");
        std::fs::create_dir(&self.log).expect("a directory");
    }

    /// All recordings, ordered by their directory. A process that was killed before it had made its trace has none: the
    /// directory comes first, the first bytes of the file last.
    pub fn traces(&self) -> Vec<Trace> {
        let is_made = |path: &&PathBuf| match std::fs::read(path.join(TRACE_FILE_NAME)) {
            Ok(bytes) => !bytes.iter().take(8).all(|byte| *byte == 0),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        };
        self.directories().iter().filter(is_made).map(|path| open(path)).collect()
    }

    /// All directories of recordings.
    pub fn directories(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.output) else { return Vec::new() };
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        paths
    }

    /// The only recording.
    pub fn trace(&self) -> Trace {
        let mut traces = self.traces();
        assert_eq!(traces.len(), 1, "{:?}", self.directories());
        traces.remove(0)
    }
}

fn open(directory: &Path) -> Trace {
    Trace::open(&directory.join(TRACE_FILE_NAME)).unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// What a run looked like, without the recorder's words, and those words.
pub fn appearance(output: &Output) -> (Appearance, Vec<String>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let stderr = text(&output.stderr);
    let (ours, theirs): (Vec<&str>, Vec<&str>) = stderr.lines().partition(|line| line.starts_with("[msmemscope] "));
    let appearance = Appearance {
        stdout: text(&output.stdout),
        stderr: theirs.join("\n"),
        code: output.status.code(),
        signal: output.status.signal(),
    };
    (appearance, ours.into_iter().map(str::to_owned).collect())
}

/// Sizes of the driver's allocations in a trace, in order.
pub fn driver_allocation_sizes(trace: &Trace) -> Vec<u64> {
    let mut sizes = Vec::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        if let Fact::Allocation { properties, size_bytes, .. } = record.fact
            && properties.pool == Pool::Hal
        {
            sizes.push(size_bytes);
        }
    }
    sizes
}

/// How many facts of a trace satisfy a condition.
pub fn count(trace: &Trace, condition: impl Fn(&Fact<'_>) -> bool) -> usize {
    let mut count = 0;
    let mut records = trace.records();
    while let Some(record) = records.next() {
        count += usize::from(condition(&record.fact));
    }
    count
}

/// How many allocations or frees of any kind a trace has.
pub fn block_event_count(trace: &Trace) -> usize {
    count(trace, |fact| matches!(fact, Fact::Allocation { .. } | Fact::Free { .. }))
}

/// The losses of a trace for one reason.
pub fn lost(trace: &Trace, reason: LossReason) -> u64 {
    let losses = &trace.completeness().losses;
    losses.iter().filter(|(each, _)| *each == reason).map(|(_, count)| count).sum()
}
