//! From the directory of a recorded process to the files users asked for.
//!
//! Finishing can be repeated. A hidden manifest beside the trace says what was written:
//!
//! * The process had ended and nothing else is asked for now: nothing to do.
//! * The process was still running then, has at most added to its settings since and nobody touched the
//!   files: they are replaced by longer ones under the same names.
//! * Otherwise: new files with a new timestamp. Files of others are never overwritten.
//!
//! Files get their names only when all of them are complete, so a killed finisher leaves nothing that
//! looks finished; the next one removes its remains and goes on under the same names. A lock on the trace keeps finishers apart.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use msmemscope_event::{Device, Severity};
use msmemscope_timeline::{
    EventFilter, FactSource, Summary, TimelineSettings, collect_owners, detect_step_source, possible_devices,
};
use msmemscope_trace::{Completeness, TRACE_FILE_NAME, Trace, TraceError, open_regular_file};

use crate::directory::Directory;
use crate::files::{self, PendingFile};
use crate::manifest::{Manifest, ManifestFile};
use crate::pipeline::{self, RecorderMessage, Request, Written};
use crate::python_trace::{Callers, MOST_THREADS};
use crate::result_names;
use crate::row::{BlockNotes, NoNotes, RowContext};
use crate::stacks::StackFormatter;

/// A format of the event table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values.
    Csv,
    /// SQLite.
    Database,
}

impl Format {
    /// How file names end.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Database => "db",
        }
    }
}

/// Chosen formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// Comma-separated values.
    pub csv: bool,
    /// SQLite.
    pub database: bool,
}

impl Formats {
    fn list(self) -> Vec<Format> {
        let chosen = [(self.csv, Format::Csv), (self.database, Format::Database)];
        chosen.into_iter().filter(|(is_chosen, _)| *is_chosen).map(|(_, format)| format).collect()
    }
}

/// How to finish.
pub struct FinishOptions<'a> {
    /// Formats to write.
    pub formats: Formats,
    /// Filters, and whether the process has ended.
    pub timeline: TimelineSettings,
    /// Begin of file names and of the table name: `memscope` or `leaks`.
    pub prefix: &'a str,
    /// Name in log file names: `msmemscope` or `msleaks`.
    pub program: &'a str,
    /// Whether MALLOC rows say the owner.
    pub owners: bool,
    /// Further knowledge about blocks; replaces the owners collected here.
    pub notes: Option<&'a dyn BlockNotes>,
    /// Prints call stacks; without it their columns stay empty.
    pub stack_formatter: Option<&'a dyn StackFormatter>,
    /// Write messages of the recorder from this level on into a log file.
    pub log_level: Option<Severity>,
    /// Seconds since 1970 that file names carry; now, if nothing is said.
    pub now_seconds: Option<i64>,
}

impl Default for FinishOptions<'_> {
    fn default() -> Self {
        Self {
            formats: Formats { csv: true, database: false },
            timeline: TimelineSettings::default(),
            prefix: "memscope",
            program: "msmemscope",
            owners: false,
            notes: None,
            stack_formatter: None,
            log_level: None,
            now_seconds: None,
        }
    }
}

impl FinishOptions<'_> {
    /// One line that changes whenever the files would say something else about the same records.
    fn fingerprint(&self) -> String {
        let additions = [
            self.owners.then(|| "owners".to_owned()),
            self.stack_formatter.is_some().then(|| "stacks".to_owned()),
            self.notes.map(|notes| notes.fingerprint()),
        ];
        let additions: Vec<String> = additions.into_iter().flatten().collect();
        let mut filters: Vec<_> = self.timeline.filters().collect();
        filters.dedup();
        let filters: Vec<String> =
            filters.iter().map(|EventFilter { devices, kinds }| format!("{devices:?} {kinds:?}")).collect();
        let kept = format!("{} {:?} {:?}", self.prefix, self.formats, self.timeline.steps);
        [kept, additions.join(" "), filters.join(" ")].join(FINGERPRINT_SEPARATOR)
    }
}

/// Between what never changes, the additions and the filters in a fingerprint.
const FINGERPRINT_SEPARATOR: &str = " | ";

/// Whether `now` may continue what a finisher with the fingerprint `earlier` wrote: a process may only add to its
/// settings while it runs, be it things that rows say or filters of later scopes.
fn continues(earlier: &str, now: &str) -> bool {
    let parts = |fingerprint| -> Vec<&str> { str::split(fingerprint, FINGERPRINT_SEPARATOR).collect() };
    match (&parts(earlier)[..], &parts(now)[..]) {
        ([earlier_kept, earlier_additions, earlier_filters], [kept, additions, filters]) => {
            let is_still_there = |addition| additions.split_whitespace().any(|word| word == addition);
            earlier_kept == kept
                && earlier_additions.split_whitespace().all(is_still_there)
                && filters.starts_with(earlier_filters)
        }
        _ => false,
    }
}

/// Why a recording could not be finished.
#[derive(Debug)]
pub enum FinishError {
    /// The trace cannot be read.
    Trace {
        /// Where it is.
        path: PathBuf,
        /// Why.
        error: TraceError,
    },
    /// Another finisher is at work.
    Busy {
        /// On which directory.
        directory: PathBuf,
    },
    /// A file could not be written.
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl FinishError {
    pub(crate) fn write(path: &Path, reason: &impl fmt::Display) -> Self {
        FinishError::Write { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl fmt::Display for FinishError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FinishError::Trace { path, error } => write!(formatter, "{}: {error}", path.display()),
            FinishError::Busy { directory } => {
                write!(formatter, "{} is being finished by another process", directory.display())
            }
            FinishError::Write { path, reason } => write!(formatter, "cannot write {}: {reason}", path.display()),
        }
    }
}

impl std::error::Error for FinishError {}

/// What finishing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishOutcome {
    /// Files were written.
    Written,
    /// Longer versions of earlier files were written under their names.
    Continued,
    /// Everything was there already.
    AlreadyComplete,
}

/// A file that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// Where.
    pub path: PathBuf,
    /// Rows in it.
    pub rows: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// The result of finishing.
#[derive(Clone, Debug)]
pub struct FinishReport {
    /// What was done.
    pub outcome: FinishOutcome,
    /// All files of the recording, event tables first.
    pub files: Vec<WrittenFile>,
    /// Numbers of the pass.
    pub summary: Summary,
    /// How complete the recording is.
    pub completeness: Completeness,
    /// Distinct rows over all devices.
    pub rows: u64,
    /// Messages of the recorder.
    pub messages: Vec<RecorderMessage>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// Whether the results of a recording whose process has ended are written.
pub fn is_finished(directory: &Path) -> bool {
    let manifest = Directory::open(directory).ok().and_then(|directory| Manifest::read(&directory));
    manifest.is_some_and(|manifest| manifest.complete)
}

/// Finishes the recording in the directory of a process. `progress` is told records done and all
/// records from time to time.
pub fn finish(
    directory: &Path,
    options: &FinishOptions<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FinishReport, FinishError> {
    let path = directory.join(TRACE_FILE_NAME);
    let trace = Trace::open(&path).map_err(|error| FinishError::Trace { path, error })?;
    finish_opened(directory, &trace, options, progress)
}

/// [`finish`] with the trace of that directory already open.
pub fn finish_opened(
    directory: &Path,
    trace: &Trace,
    options: &FinishOptions<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FinishReport, FinishError> {
    let path = directory.join(TRACE_FILE_NAME);
    let _lock = Lock::take(&path).map_err(|error| match error {
        LockError::Busy => FinishError::Busy { directory: directory.to_owned() },
        LockError::Io(error) => FinishError::Trace { path, error: TraceError::Io(error) },
    })?;
    let directory = &Directory::open(directory).map(Arc::new).map_err(|error| FinishError::write(directory, &error))?;
    let mut settings = options.timeline.clone();
    if settings.step_source.is_none() {
        settings.step_source = detect_step_source(trace);
    }
    let mut notes = Vec::new();
    let removed = files::remove_pending(directory).map_err(|error| FinishError::write(directory.path(), &error))?;
    if removed > 0 {
        notes.push(format!("removed {removed} unfinished files of an interrupted run"));
    }
    let manifest = Manifest::read(directory);
    let fingerprint = options.fingerprint();
    let earlier = manifest.as_ref().filter(|manifest| continues(&manifest.options, &fingerprint));
    let same = earlier.filter(|manifest| manifest.options == fingerprint);
    if let Some(manifest) = same.filter(|manifest| is_up_to_date(manifest, directory, trace, &settings)) {
        return Ok(already_complete(directory, manifest, trace, &settings, notes, progress));
    }
    let continued = earlier
        .filter(|manifest| !manifest.complete && manifest.files.iter().all(|file| file.may_be_replaced(directory)));

    let owners = (options.owners && options.notes.is_none()).then(|| collect_owners(trace));
    let block_notes: &dyn BlockNotes = match (options.notes, &owners) {
        (Some(notes), _) => notes,
        (None, Some(owners)) => owners,
        (None, None) => &NoNotes,
    };
    let devices = candidate_devices(trace, &settings);
    let table = format!("{}_dump", options.prefix);
    let request = Request {
        directory,
        devices: &devices,
        formats: &options.formats.list(),
        table: &table,
        context: RowContext { process_id: trace.process_id(), definitions: trace.definitions(), notes: block_notes },
        formatter: options.stack_formatter,
    };
    let mut written = pipeline::write(trace, &settings, &request, progress)?;
    let python_device = keep_devices_with_rows(&mut written, &mut notes);
    if written.python_traces.iter().any(|trace| trace.callers == Callers::Others) {
        notes.push(format!(
            "more than {MOST_THREADS} threads made Python calls: those of the others are together in one file, \
             python_trace_{}_*.csv",
            Callers::Others
        ));
    }
    let naming = Naming { directory, prefix: options.prefix, python_device };
    let (planned, timestamp) = naming.plan(&mut written, continued, options.now_seconds)?;
    let mut manifest = Manifest {
        complete: false,
        options: fingerprint,
        records: trace.completeness().records,
        timestamp: timestamp.clone(),
        files: planned.iter().map(|file| file.listed.clone()).collect(),
    };
    // Written before the names are given and again after, so that a finisher killed in between is
    // continued instead of repeated.
    let write_manifest =
        |manifest: &Manifest| manifest.write(directory).map_err(|error| FinishError::write(directory.path(), &error));
    write_manifest(&manifest)?;
    naming.place(planned)?;
    // A trace of Python calls that lay with the host's files lies with those of a device that came into use since.
    for earlier in continued.iter().flat_map(|earlier| &earlier.files) {
        if !manifest.files.iter().any(|file| file.path == earlier.path) {
            let _ = directory.remove_file(&earlier.path);
        }
    }
    if settings.process_ended {
        manifest.complete = true;
        write_manifest(&manifest)?;
    }
    let mut written_files = listed(directory, &manifest);
    if let Some(level) = options.log_level {
        written_files.extend(write_log(directory, options.program, &timestamp, &written.messages, level, &mut notes));
    }
    Ok(FinishReport {
        outcome: if continued.is_some() { FinishOutcome::Continued } else { FinishOutcome::Written },
        files: written_files,
        summary: written.summary,
        completeness: trace.completeness().clone(),
        rows: written.rows,
        messages: written.messages,
        notes,
    })
}

fn is_up_to_date(manifest: &Manifest, directory: &Directory, trace: &Trace, settings: &TimelineSettings) -> bool {
    manifest.complete == settings.process_ended
        && manifest.records == trace.completeness().records
        && manifest.files.iter().all(|file| directory.facts(&file.path).is_ok())
}

fn already_complete(
    directory: &Directory,
    manifest: &Manifest,
    trace: &Trace,
    settings: &TimelineSettings,
    notes: Vec<String>,
    progress: &mut dyn FnMut(u64, u64),
) -> FinishReport {
    let mut rows = 0;
    let mut messages = Vec::new();
    let mut sink = |event: msmemscope_timeline::TimelineEvent| {
        rows += u64::from(crate::row::has_row(&event));
        if let msmemscope_timeline::EventKind::Message { severity, text } = event.kind {
            messages.push(RecorderMessage { timestamp_ns: event.timestamp_ns, severity, text: text.into() });
        }
    };
    let summary = msmemscope_timeline::run(trace, settings, &mut sink, progress);
    FinishReport {
        outcome: FinishOutcome::AlreadyComplete,
        files: listed(directory, manifest),
        summary,
        completeness: trace.completeness().clone(),
        rows,
        messages,
        notes,
    }
}

fn listed(directory: &Directory, manifest: &Manifest) -> Vec<WrittenFile> {
    let listed = |file: &ManifestFile| WrittenFile {
        path: directory.path().join(&file.path),
        rows: file.rows,
        size_bytes: file.size_bytes,
    };
    manifest.files.iter().map(listed).collect()
}

/// Devices that get a table: all that may have rows, and the host in case nobody has.
fn candidate_devices<S: FactSource>(source: &S, settings: &TimelineSettings) -> Vec<Device> {
    let mut devices = possible_devices(source);
    devices.retain(|&device| {
        device != Device::Unknown && settings.filters().any(|filter| filter.devices.includes(device))
    });
    if !devices.contains(&Device::Host) {
        devices.push(Device::Host);
    }
    devices
}

/// Drops tables that hold nothing of their own, and gives the device beside whose table the Python calls lie, which
/// have none. If all tables are like that, one is kept, so that rows without device and Python calls are not lost:
/// that of the first NPU that the process used, or else the host's.
fn keep_devices_with_rows(written: &mut Written, notes: &mut Vec<String>) -> Device {
    if let Some(first) = written.tables.iter().find(|table| table.own_rows > 0).map(|table| table.device) {
        written.tables.retain(|table| table.own_rows > 0);
        return first;
    }
    let npus = written.tables.iter().map(|table| table.device).filter(|device| matches!(device, Device::Npu(_)));
    let place = npus.min().unwrap_or(Device::Host);
    let has_python_calls = !written.python_traces.is_empty();
    written.tables.retain(|table| {
        let has_content = table.rows > 0 || (table.format == Format::Database && has_python_calls);
        table.device == place && has_content
    });
    if written.tables.iter().any(|table| table.format == Format::Database) {
        notes.push("the database holds no event of a device; MindStudio Insight will not open it".to_owned());
    }
    place
}

/// Gives files their names.
struct Naming<'a> {
    directory: &'a Directory,
    prefix: &'a str,
    /// Where the Python calls lie, which have no device.
    python_device: Device,
}

impl Naming<'_> {
    /// Decides all names without giving them yet.
    fn plan(
        &self,
        written: &mut Written,
        continued: Option<&Manifest>,
        now_seconds: Option<i64>,
    ) -> Result<(Vec<PlannedFile>, String), FinishError> {
        let tables = written
            .tables
            .drain(..)
            .map(|table| (Target::Table(table.device, table.format), table.pending, table.rows));
        let python_traces = written
            .python_traces
            .drain(..)
            .map(|trace| (Target::PythonTrace(trace.callers), trace.pending, trace.rows));
        let watch_files =
            written.watch_files.drain(..).map(|file| (Target::Watch(file.device), file.pending, file.rows));
        let pending: Vec<(Target, PendingFile, u64)> = tables.chain(python_traces).chain(watch_files).collect();
        let targets: Vec<Target> = pending.iter().map(|(target, ..)| *target).collect();
        let timestamp = match continued {
            Some(manifest) => manifest.timestamp.clone(),
            None => self.free_timestamp(&targets, now_seconds.unwrap_or_else(files::now_seconds)),
        };
        let mut planned = Vec::new();
        for (target, pending, rows) in pending {
            let path = self.path(target, &timestamp);
            let replaces = continued.is_some_and(|manifest| manifest.files.iter().any(|known| known.path == path));
            let listed = ManifestFile::of(&pending, &path, rows)
                .map_err(|error| FinishError::write(&self.directory.path().join(&path), &error))?;
            planned.push(PlannedFile { pending, listed, replaces });
        }
        Ok((planned, timestamp))
    }

    /// Gives the names.
    fn place(&self, planned: Vec<PlannedFile>) -> Result<(), FinishError> {
        for PlannedFile { pending, listed, replaces } in planned {
            let path = &listed.path;
            let placed = if replaces { pending.commit_replacing(path) } else { pending.commit(path) };
            placed.map_err(|error| FinishError::write(&self.directory.path().join(path), &error))?;
        }
        Ok(())
    }

    fn path(&self, target: Target, timestamp: &str) -> PathBuf {
        match target {
            Target::Table(device, format) => {
                result_names::table_path(device, self.prefix, timestamp, format.extension())
            }
            Target::PythonTrace(callers) => result_names::python_path(self.python_device, callers, timestamp),
            Target::Watch(device) => result_names::watch_path(device, timestamp),
        }
    }

    /// The first second from now on whose names are all free.
    fn free_timestamp(&self, targets: &[Target], now_seconds: i64) -> String {
        let mut seconds = now_seconds;
        loop {
            let timestamp = files::local_timestamp(seconds);
            let is_taken = |target: &Target| self.directory.facts(&self.path(*target, &timestamp)).is_ok();
            if !targets.iter().any(is_taken) {
                return timestamp;
            }
            seconds += 1;
        }
    }
}

/// A complete file and the name it will get.
struct PlannedFile {
    pending: PendingFile,
    listed: ManifestFile,
    /// Whether the name is that of an earlier, shorter version.
    replaces: bool,
}

#[derive(Clone, Copy)]
enum Target {
    Table(Device, Format),
    PythonTrace(Callers),
    Watch(Device),
}

fn write_log(
    directory: &Arc<Directory>,
    program: &str,
    timestamp: &str,
    messages: &[RecorderMessage],
    level: Severity,
    notes: &mut Vec<String>,
) -> Option<WrittenFile> {
    let relative = Path::new(&format!("{program}_logs")).join(format!("{program}_{timestamp}.log"));
    let path = directory.path().join(&relative);
    match crate::log::write(directory, &relative, messages, level) {
        Ok(true) => {
            let size_bytes = path.metadata().map_or(0, |metadata| metadata.len());
            Some(WrittenFile { path, rows: messages.len() as u64, size_bytes })
        }
        Ok(false) => None,
        // The log of an earlier run of this second says the same.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => None,
        Err(error) => {
            notes.push(format!("cannot write {}: {error}", path.display()));
            None
        }
    }
}

enum LockError {
    Busy,
    Io(std::io::Error),
}

/// Keeps other finishers away while it lives.
struct Lock {
    _file: File,
}

impl Lock {
    /// Where the file system has no locks the exclusive temporary names still keep things apart.
    fn take(trace_path: &Path) -> Result<Self, LockError> {
        let file = open_regular_file(trace_path).map_err(LockError::Io)?;
        // SAFETY: plain system call on a descriptor we own.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
        let is_taken = std::io::Error::last_os_error().raw_os_error() == Some(libc::EWOULDBLOCK);
        if !locked && is_taken { Err(LockError::Busy) } else { Ok(Self { _file: file }) }
    }
}
