//! Decides by content what a path holds.

use std::fs;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use msmemscope_dump::columns::REQUIRED_COLUMNS;
use msmemscope_dump::csv_reader::{self, CsvLayout, CsvRecords};
use msmemscope_dump::database_reader;
use msmemscope_dump::row::{Row, decimal};
use msmemscope_event::{Device, Record, StackId};
use msmemscope_timeline::{FactSource, FactStream};
use msmemscope_trace::{
    BYTES_OF_HOLES_READ, Definitions, RecordStream, TRACE_FILE_NAME, Trace, hole_bytes, open_regular_file,
};
use rustc_hash::FxHashMap;

use crate::error::ImportError;
use crate::interpret::interpret;
use crate::mindspore_blocks;
use crate::process::{ImportedProcess, ImportedStream, ProcessBuilder};
use crate::report::{ImportReport, SkipReason};
use crate::torch_snapshot;

/// Where a flight recorder leaves copies of the recordings beside it.
const COPIES: &str = "flight";

/// How deep a directory is searched for dump files (`<run>/<process>/device_0/dump/<file>`).
const SEARCH_DEPTH: usize = 4;

/// How much of a file tells its format.
const HEAD_BYTES: u64 = 512;

/// What a path held.
#[derive(Debug)]
pub struct Imported {
    /// One entry per process, by process id.
    pub recordings: Vec<Recording>,
    /// What happened to the rows of dump files.
    pub report: ImportReport,
}

/// The facts of one process, from wherever they came.
pub enum Recording {
    /// A recording of our own.
    Trace {
        /// The recording.
        trace: Box<Trace>,
        /// The file it came from.
        path: PathBuf,
    },
    /// Rows of dump files.
    Process(Box<ImportedProcess>),
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Recording::Trace { path, .. } => {
                formatter.debug_struct("Trace").field("path", path).finish_non_exhaustive()
            }
            Recording::Process(process) => formatter.debug_tuple("Process").field(&process.process_id()).finish(),
        }
    }
}

impl Recording {
    /// Owners as the file states them; recordings of our own derive them instead.
    pub fn stated_owner(&self, allocation_id: u64) -> Option<&str> {
        match self {
            Recording::Trace { .. } => None,
            Recording::Process(process) => process.owner(allocation_id),
        }
    }

    /// The text of a stack as the file has it; recordings of our own need symbols instead.
    pub fn stated_stack(&self, stack: StackId) -> Option<&str> {
        match self {
            Recording::Trace { .. } => None,
            Recording::Process(process) => process.stack_text(stack),
        }
    }
}

impl FactSource for Recording {
    type Stream = RecordingStream;

    fn process_id(&self) -> u32 {
        match self {
            Recording::Trace { trace, .. } => trace.process_id(),
            Recording::Process(process) => process.process_id(),
        }
    }

    fn wall_offset_ns(&self) -> i64 {
        match self {
            Recording::Trace { trace, .. } => trace.wall_offset_ns(),
            Recording::Process(process) => process.wall_offset_ns(),
        }
    }

    fn definitions(&self) -> &Definitions {
        match self {
            Recording::Trace { trace, .. } => trace.definitions(),
            Recording::Process(process) => process.definitions(),
        }
    }

    fn devices(&self) -> Vec<Device> {
        match self {
            Recording::Trace { trace, .. } => trace.devices(),
            Recording::Process(process) => process.devices(),
        }
    }

    fn mentions_steps(&self) -> bool {
        match self {
            Recording::Trace { trace, .. } => trace.mentions_steps(),
            Recording::Process(process) => process.mentions_steps(),
        }
    }

    fn shows_module_calls(&self) -> bool {
        matches!(self, Recording::Trace { .. })
    }

    fn end_monotonic_ns(&self) -> u64 {
        match self {
            Recording::Trace { trace, .. } => FactSource::end_monotonic_ns(&**trace),
            Recording::Process(process) => process.end_monotonic_ns(),
        }
    }

    fn facts(&self) -> RecordingStream {
        match self {
            Recording::Trace { trace, .. } => RecordingStream::Trace(Box::new(trace.facts())),
            Recording::Process(process) => RecordingStream::Process(process.facts()),
        }
    }
}

impl Recording {
    /// Whether it is what another tool saw at one moment.
    pub fn is_snapshot(&self) -> bool {
        match self {
            Recording::Trace { .. } => false,
            Recording::Process(process) => process.is_snapshot(),
        }
    }

    /// The directory of the process, with everything it left; only recordings of our own have one.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Recording::Trace { path, .. } => path.parent(),
            Recording::Process(_) => None,
        }
    }
}

/// One pass over the facts of a recording.
pub enum RecordingStream {
    /// Of a recording of our own.
    Trace(Box<RecordStream>),
    /// Of an imported process.
    Process(ImportedStream),
}

impl FactStream for RecordingStream {
    #[inline]
    fn next(&mut self) -> Option<Record<'_>> {
        match self {
            RecordingStream::Trace(stream) => FactStream::next(&mut **stream),
            RecordingStream::Process(stream) => stream.next(),
        }
    }

    fn progress(&self) -> (u64, u64) {
        match self {
            RecordingStream::Trace(stream) => FactStream::progress(&**stream),
            RecordingStream::Process(stream) => stream.progress(),
        }
    }
}

/// Opens a dump file, a recording, or a directory of either.
pub fn open(path: &Path) -> Result<Imported, ImportError> {
    open_several(&[path])
}

/// Opens several paths as one input; dump files of the same process are put together.
pub fn open_several(paths: &[&Path]) -> Result<Imported, ImportError> {
    let (files, copies_left_out) = find_all(paths)?;
    let mut imported = open_files(&files)?;
    imported.report.merge(&ImportReport::of_copies(copies_left_out));
    Ok(imported)
}

/// Opens files as one input. Those that were found in a directory and cannot be read are left out and told of, as long
/// as there is anything else.
pub fn open_files(files: &[InputFile]) -> Result<Imported, ImportError> {
    let mut input = Input::default();
    let mut first_error = None;
    for InputFile { path, is_named } in files {
        let Err(error) = input.add_file(path) else { continue };
        if *is_named {
            return Err(error);
        }
        input.report.file_is_left_out(&error);
        first_error.get_or_insert(error);
    }
    let imported = input.finish();
    match first_error {
        Some(error) if imported.recordings.is_empty() => Err(error),
        _ => Ok(imported),
    }
}

/// A file of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Where it is.
    pub path: PathBuf,
    /// Whether somebody asked for this very file, rather than for the directory it was found in.
    pub is_named: bool,
}

/// The recordings and dump files that paths stand for: files are themselves, directories what is found in them.
/// Only what is a pickle by its name is opened, to see whether it is one. Copies that a flight recorder left are no
/// recordings where those themselves are found; how many of them are left out is said, too.
pub fn find_all(paths: &[&Path]) -> Result<(Vec<InputFile>, u64), ImportError> {
    let (mut files, mut copies_left_out) = (Vec::new(), 0);
    for &path in paths {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        if !fs::metadata(path).map_err(unreadable)?.is_dir() {
            files.push(InputFile { path: path.to_owned(), is_named: true });
            continue;
        }
        let mut found = FoundFiles::default();
        search(path, SEARCH_DEPTH, &mut found).map_err(unreadable)?;
        if found.traces.is_empty() && found.dumps.is_empty() {
            return Err(ImportError::EmptyDirectory { path: path.to_owned() });
        }
        copies_left_out += found.copies_left_out;
        let found = found.traces.into_iter().chain(found.dumps);
        files.extend(found.map(|path| InputFile { path, is_named: false }));
    }
    Ok((files, copies_left_out))
}

#[derive(Default)]
struct Input {
    traces: Vec<Recording>,
    /// By process, with the first file that speaks of it.
    builders: FxHashMap<u32, (PathBuf, ProcessBuilder)>,
    /// Files that name no process, such as snapshots: each is one.
    processes_of_files: Vec<(PathBuf, ProcessBuilder)>,
    report: ImportReport,
}

impl Input {
    fn add_file(&mut self, path: &Path) -> Result<(), ImportError> {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let mut file = open_regular_file(path).map_err(unreadable)?;
        let holes_bytes = hole_bytes(&file.metadata().map_err(unreadable)?);
        let mut head = Vec::new();
        (&mut file).take(HEAD_BYTES).read_to_end(&mut head).map_err(unreadable)?;
        let is_trace = head.starts_with(&msmemscope_trace::layout::FILE_MAGIC)
            || path.file_name().is_some_and(|name| name == TRACE_FILE_NAME);
        if !is_trace && holes_bytes > BYTES_OF_HOLES_READ {
            let found = format!("{holes_bytes} bytes of it were never written");
            return Err(ImportError::UnknownFormat { path: path.to_owned(), found });
        }
        if head.starts_with(database_reader::MAGIC) {
            return self.add_dump(path, |input, report| {
                let take = |row: Option<&Row<'_>>, row_number| match row {
                    Some(row) => input.take(row, row_number),
                    None => report.skip(SkipReason::BadNumber, row_number),
                };
                database_reader::read(path, take)
                    .map_err(|problem| ImportError::Database { path: path.to_owned(), problem })
            });
        }
        if is_trace {
            let trace = Trace::open(path).map_err(|source| ImportError::Trace { path: path.to_owned(), source })?;
            self.traces.push(Recording::Trace { trace: Box::new(trace), path: path.to_owned() });
            return Ok(());
        }
        if torch_snapshot::may_be_pickle(&head) {
            return self.add_snapshot(path, file);
        }
        if mindspore_blocks::is_block_file(&head) {
            return self.add_mindspore_blocks(path, file);
        }
        if let Some(found) = foreign_format(&head) {
            return Err(ImportError::UnknownFormat { path: path.to_owned(), found });
        }
        self.add_dump(path, |input, report| input.read_csv(path, report))
    }

    /// Reads a memory snapshot of PyTorch: a process of its own.
    fn add_snapshot(&mut self, path: &Path, mut file: fs::File) -> Result<(), ImportError> {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        file.rewind().map_err(unreadable)?;
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        let builder =
            torch_snapshot::read(&bytes).map_err(|problem| ImportError::Snapshot { path: path.to_owned(), problem })?;
        self.processes_of_files.push((path.to_owned(), builder));
        Ok(())
    }

    /// Reads a file of MindSpore's memory tracker: a process of its own.
    fn add_mindspore_blocks(&mut self, path: &Path, mut file: fs::File) -> Result<(), ImportError> {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        file.rewind().map_err(unreadable)?;
        let mut report = ImportReport::default();
        let device = mindspore_blocks::device_of(path);
        let builder = mindspore_blocks::read(&mut BufReader::new(file), device, &mut report).map_err(unreadable)?;
        self.processes_of_files.extend(builder.map(|builder| (path.to_owned(), builder)));
        self.take_report(path, &report)
    }

    /// Runs a reader over a dump and checks that it was good for something.
    fn add_dump(
        &mut self,
        path: &Path,
        read: impl FnOnce(&mut DumpTaker<'_>, &mut ImportReport) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        let mut skipped_by_reader = ImportReport::default();
        let mut taker =
            DumpTaker { path, builders: &mut self.builders, report: ImportReport::default(), process_id: None };
        read(&mut taker, &mut skipped_by_reader)?;
        let mut report = taker.report;
        report.merge(&skipped_by_reader);
        self.take_report(path, &report)
    }

    /// Adds what became of the rows of a file; one without any usable row is an error.
    fn take_report(&mut self, path: &Path, report: &ImportReport) -> Result<(), ImportError> {
        if report.rows_used == 0 && report.rows_derived == 0 {
            let Some((reason, row_number)) = report.first_problem() else {
                self.report.file_is_empty(path);
                return Ok(());
            };
            return Err(ImportError::NothingUsable {
                path: path.to_owned(),
                rows_skipped: report.rows_skipped(),
                first_problem: format!("{reason} (row {row_number})"),
            });
        }
        self.report.merge(report);
        Ok(())
    }

    fn finish(mut self) -> Imported {
        let mut recordings = self.traces;
        for (path, builder) in self.builders.into_values().chain(self.processes_of_files) {
            let (process, rows_derived) = builder.finish(path);
            self.report.rows_derived += rows_derived;
            self.report.rows_used = self.report.rows_used.saturating_sub(rows_derived);
            recordings.push(Recording::Process(Box::new(process)));
        }
        recordings.sort_by_key(FactSource::process_id);
        Imported { recordings, report: self.report }
    }
}

/// Hands the rows of one file to the processes they belong to.
struct DumpTaker<'i> {
    path: &'i Path,
    builders: &'i mut FxHashMap<u32, (PathBuf, ProcessBuilder)>,
    report: ImportReport,
    /// Process of the latest row; rows of the device itself name none.
    process_id: Option<u32>,
}

impl DumpTaker<'_> {
    fn take(&mut self, row: &Row<'_>, row_number: u64) {
        let meaning = match interpret(row) {
            Ok(meaning) => meaning,
            Err(reason) => return self.report.skip(reason, row_number),
        };
        let process_id = row.process_id.or(self.process_id).unwrap_or(0);
        self.process_id = Some(process_id);
        let new = || (self.path.to_owned(), ProcessBuilder::new(process_id));
        let (_, builder) = self.builders.entry(process_id).or_insert_with(new);
        match builder.add(row, meaning) {
            true => self.report.rows_used += 1,
            false => self.report.rows_derived += 1,
        }
    }

    fn read_csv(&mut self, path: &Path, report: &mut ImportReport) -> Result<(), ImportError> {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let wrong_columns = |problem: String| ImportError::WrongColumns { path: path.to_owned(), problem };
        let mut records = CsvRecords::new(open_regular_file(path).map_err(unreadable)?);
        let layout = match records.next_record().map_err(unreadable)? {
            Some(header) => CsvLayout::from_header(header.bytes).map_err(wrong_columns)?,
            None => return Err(wrong_columns("the file is empty".to_owned())),
        };
        let mut row_number = 0;
        while let Some(record) = records.next_record().map_err(unreadable)? {
            row_number += 1;
            if record.cut {
                report.skip(SkipReason::TooLong, row_number);
                continue;
            }
            match self.take_record(record.bytes, layout, row_number) {
                Ok(()) => {}
                Err(reason) => report.skip(reason, row_number),
            }
        }
        Ok(())
    }

    #[inline]
    fn take_record(&mut self, record: &[u8], layout: CsvLayout, row_number: u64) -> Result<(), SkipReason> {
        let split = csv_reader::split(record).ok_or(SkipReason::TooFewCells)?;
        let [id, event, event_type, name, timestamp, process, thread, device, pointer, attributes] = &split.cells;
        let small = |cell: &[u8]| decimal(cell).and_then(|value| u32::try_from(value).ok());
        let mut row = Row {
            id: decimal(id).ok_or(SkipReason::BadNumber)?,
            event,
            event_type,
            name,
            timestamp_ns: decimal(timestamp).ok_or(SkipReason::BadNumber)?,
            process_id: small(process),
            thread_id: small(thread),
            device,
            pointer,
            attributes,
            ..Row::default()
        };
        let has_stacks = split.rest.iter().any(|&byte| byte != b',');
        if !has_stacks {
            self.take(&row, row_number);
            return Ok(());
        }
        let rest: Vec<_> = csv_reader::cells(split.rest).collect();
        let cell = |position: Option<usize>| {
            position.and_then(|position| rest.get(position - REQUIRED_COLUMNS)).map_or(&b""[..], |cell| cell)
        };
        row.python_stack = cell(layout.python_stack);
        row.native_stack = cell(layout.native_stack);
        self.take(&row, row_number);
        Ok(())
    }
}

/// Files that are certainly no csv, and what they are.
fn foreign_format(head: &[u8]) -> Option<String> {
    let known: [(&[u8], &str); 6] = [
        (b"PAR1", "a parquet file"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x80", "a pickle"),
        (b"\x7fELF", "a program or library"),
        (b"{", "a JSON file"),
    ];
    if head.is_empty() {
        return Some("the file is empty".to_owned());
    }
    if let Some((_, name)) = known.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(format!("it is {name}"));
    }
    head.contains(&0).then(|| "it holds binary data".to_owned())
}

#[derive(Default)]
struct FoundFiles {
    traces: Vec<PathBuf>,
    dumps: Vec<PathBuf>,
    copies_left_out: u64,
}

impl FoundFiles {
    fn count(&self) -> usize {
        self.traces.len() + self.dumps.len()
    }
}

/// Whether a file looks like a snapshot of PyTorch.
fn begins_as_pickle(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = open_regular_file(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.is_ok() && torch_snapshot::may_be_pickle(&head)
}

/// Collects recordings, dump files and snapshots in name order. Dump files beside a recording repeat it.
fn search(directory: &Path, depth: usize, found: &mut FoundFiles) -> std::io::Result<()> {
    let trace = directory.join(TRACE_FILE_NAME);
    if trace.is_file() {
        found.traces.push(trace);
        return Ok(());
    }
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    entries.sort();
    let before = found.count();
    // What a flight recorder copied comes last: where the recordings themselves are, it repeats them.
    let copies = entries.iter().position(|path| path.ends_with(COPIES)).map(|position| entries.remove(position));
    for path in entries {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            if depth > 0 && !path.is_symlink() {
                search(&path, depth - 1, found)?;
            }
            continue;
        }
        let is_dump = (name.starts_with("memscope_dump_") || name.starts_with("leaks_dump_"))
            && (name.ends_with(".csv") || name.ends_with(".db"));
        // The same rows may be there in both formats.
        let is_second = name.ends_with(".db") && path.with_extension("csv").is_file();
        let is_snapshot = || [".pkl", ".pickle"].iter().any(|end| name.ends_with(end)) && begins_as_pickle(&path);
        if (is_dump && !is_second) || name == mindspore_blocks::FILE_NAME || is_snapshot() {
            found.dumps.push(path);
        }
    }
    let Some(copies) = copies.filter(|copies| depth > 0 && copies.is_dir() && !copies.is_symlink()) else {
        return Ok(());
    };
    if found.count() == before {
        return search(&copies, depth - 1, found);
    }
    let mut repeated = FoundFiles::default();
    search(&copies, depth - 1, &mut repeated)?;
    found.copies_left_out += repeated.count() as u64;
    Ok(())
}
