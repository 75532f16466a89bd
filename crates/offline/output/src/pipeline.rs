//! From events to files: one thread makes the events, one thread per format writes them.
//!
//! Events travel in batches. Every device has its own table; events without a device go into all of
//! them. Tables are written under temporary names; the finisher decides which of them to keep.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use msmemscope_dump::cells::PreparedCell;
use msmemscope_dump::columns::{COLUMNS, csv_header};
use msmemscope_dump::csv_writer;
use msmemscope_dump::database_writer::{self, Database, PythonCall};
use msmemscope_event::{Device, Severity};
use msmemscope_timeline::{EventKind, EventSink, FactSource, PythonSpan, Summary, TimelineEvent, TimelineSettings};

use crate::device::dump_directory;
use crate::directory::{Directory, PrivateDirectory};
use crate::files::{BufferedFile, FILE_MODE, PendingFile, create_new};
use crate::finish::{FinishError, Format};
use crate::python_trace::{Callers, PythonTraceFiles, function_text};
use crate::row::{BlockNotes, Row, RowContext, has_row};
use crate::stacks::{StackCells, StackFormatter};
use crate::watch_rows::{PendingWatch, WatchFiles};

const BATCH_ROWS: usize = 2048;
const BATCHES_IN_FLIGHT: usize = 16;
const MOST_MESSAGES: usize = 10_000;

/// A message of the recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecorderMessage {
    /// When, wall clock.
    pub timestamp_ns: u64,
    /// How important.
    pub severity: Severity,
    /// The text.
    pub text: String,
}

/// Events on their way to the writers.
#[derive(Default)]
struct Batch {
    rows: Vec<(u64, TimelineEvent)>,
    calls: Vec<(u32, PythonSpan)>,
}

/// Numbers the rows and sends them off.
struct Dispatcher<'a> {
    batch: Batch,
    writers: Vec<SyncSender<Arc<Batch>>>,
    next_row: u64,
    messages: Vec<RecorderMessage>,
    notes: &'a dyn BlockNotes,
    watch_files: WatchFiles<'a>,
}

impl Dispatcher<'_> {
    fn send(&mut self) {
        let batch = Arc::new(std::mem::take(&mut self.batch));
        self.batch.rows.reserve(BATCH_ROWS);
        // A writer that has failed hangs up; its error is found when it is joined.
        self.writers.retain(|writer| writer.send(Arc::clone(&batch)).is_ok());
    }
}

impl EventSink for Dispatcher<'_> {
    #[inline]
    fn take(&mut self, event: TimelineEvent) {
        if has_row(&event) {
            let behind = match event.kind {
                EventKind::AllocationFailed { .. } => self.notes.behind(&event),
                _ => &[],
            };
            for event in std::iter::once(event).chain(behind.iter().cloned()) {
                self.batch.rows.push((self.next_row, event));
                self.next_row += 1;
            }
        } else if let EventKind::Watch(look) = &event.kind {
            self.watch_files.push(&event, look);
        } else if let EventKind::PythonCall(span) = event.kind {
            self.batch.calls.push((event.thread_id, span));
        } else if let EventKind::Message { severity, text } = event.kind {
            if self.messages.len() < MOST_MESSAGES {
                let timestamp_ns = event.timestamp_ns;
                self.messages.push(RecorderMessage { timestamp_ns, severity, text: text.into() });
            }
            return;
        }
        if self.batch.rows.len() >= BATCH_ROWS || self.batch.calls.len() >= BATCH_ROWS {
            self.send();
        }
    }
}

/// One format's table of one device.
trait Table: Sized + Send {
    /// Makes texts of stacks ready for the format.
    const PREPARE: fn(String) -> PreparedCell;

    fn create(request: &Request<'_>, device: Device) -> Result<Self, FinishError>;
    fn write(&mut self, selection: &mut Selection<'_, '_>) -> Result<(), FinishError>;
    fn write_python_calls(&mut self, calls: &[(u32, PythonSpan)], request: &Request<'_>) -> Result<(), FinishError>;
    fn close(self) -> Result<PendingFile, FinishError>;
}

/// The rows of a batch that belong to one device.
struct Selection<'b, 'a> {
    batch: &'b Batch,
    device: Device,
    context: RowContext<'a>,
    stacks: &'b mut StackCells<'a>,
    rows: u64,
    own_rows: u64,
}

impl Selection<'_, '_> {
    #[inline]
    fn each<E>(&mut self, visit: &mut dyn FnMut(&Row<'_>) -> Result<(), E>) -> Result<(), E> {
        for (id, event) in &self.batch.rows {
            if event.device != self.device && event.device != Device::Unknown {
                continue;
            }
            let Some(mut row) = Row::new(*id, event, self.context) else { continue };
            let stack_ns = match event.kind {
                EventKind::AliveAtFailure { allocated_ns, .. } => allocated_ns,
                _ => event.timestamp_ns,
            };
            let (python, native) = self.stacks.cells(event.python_stack, event.native_stack, stack_ns);
            row.cells.python_stack = python;
            row.cells.native_stack = native;
            self.rows += 1;
            self.own_rows += u64::from(event.device == self.device);
            visit(&row)?;
        }
        Ok(())
    }
}

struct CsvTable {
    pending: PendingFile,
    buffer: BufferedFile,
    /// Where the file will be, for messages.
    shown_path: PathBuf,
}

impl Table for CsvTable {
    const PREPARE: fn(String) -> PreparedCell = csv_writer::prepared;

    fn create(request: &Request<'_>, device: Device) -> Result<Self, FinishError> {
        let (pending, file) = request.pending_file(device, Format::Csv)?;
        let mut buffer = BufferedFile::new(file);
        buffer.bytes().extend_from_slice(csv_header(COLUMNS).as_bytes());
        Ok(Self { pending, buffer, shown_path: request.shown_path(device) })
    }

    fn write(&mut self, selection: &mut Selection<'_, '_>) -> Result<(), FinishError> {
        let buffer = &mut self.buffer;
        let written = selection.each(&mut |row| {
            csv_writer::push_row(buffer.bytes(), row);
            buffer.settle()
        });
        written.map_err(|error: io::Error| FinishError::write(&self.shown_path, &error))
    }

    fn write_python_calls(&mut self, _: &[(u32, PythonSpan)], _: &Request<'_>) -> Result<(), FinishError> {
        Ok(()) // Threads have files of their own.
    }

    fn close(self) -> Result<PendingFile, FinishError> {
        self.buffer.close().map_err(|error| FinishError::write(&self.shown_path, &error))?;
        Ok(self.pending)
    }
}

struct DatabaseTable {
    pending: PendingFile,
    file: File,
    /// Where the database is written if SQLite, which needs a path, cannot use the path of its own: because it is too
    /// long, or because others could make it lead elsewhere in the meantime.
    detour: Option<(PrivateDirectory, PathBuf)>,
    database: Database,
    /// Where the file will be, for messages.
    shown_path: PathBuf,
}

impl Table for DatabaseTable {
    const PREPARE: fn(String) -> PreparedCell = database_writer::prepared;

    fn create(request: &Request<'_>, device: Device) -> Result<Self, FinishError> {
        let (pending, file) = request.pending_file(device, Format::Database)?;
        let shown_path = request.shown_path(device);
        let own_path = pending.path();
        let needs_detour =
            own_path.as_os_str().len() > database_writer::LONGEST_PATH_BYTES || !request.directory.is_own();
        let detour = needs_detour.then(|| {
            let directory = PrivateDirectory::new()?;
            let path = directory.path().join("database");
            create_new(&path, FILE_MODE)?;
            Ok((directory, path))
        });
        let detour = detour.transpose().map_err(|error: io::Error| FinishError::write(&shown_path, &error))?;
        let path = detour.as_ref().map_or(&own_path, |(_, path)| path);
        let database = Database::create(path, request.table, request.context.process_id)
            .map_err(|error| FinishError::write(&shown_path, &error))?;
        Ok(Self { pending, file, detour, database, shown_path })
    }

    fn write(&mut self, selection: &mut Selection<'_, '_>) -> Result<(), FinishError> {
        self.database
            .batch()
            .and_then(|mut batch| selection.each(&mut |row| batch.insert(row)))
            .map_err(|error| FinishError::write(&self.shown_path, &error))
    }

    fn write_python_calls(&mut self, calls: &[(u32, PythonSpan)], request: &Request<'_>) -> Result<(), FinishError> {
        let definitions = request.context.definitions;
        let call = |(thread_id, span): &(u32, PythonSpan)| PythonCall {
            function: function_text(span, definitions),
            start_ns: span.start_ns,
            end_ns: span.end_ns,
            thread_id: *thread_id,
        };
        self.database
            .write_python_calls(calls.iter().map(call))
            .map_err(|error| FinishError::write(&self.shown_path, &error))
    }

    fn close(mut self) -> Result<PendingFile, FinishError> {
        self.database.close().map_err(|error| FinishError::write(&self.shown_path, &error))?;
        if let Some((_, path)) = &self.detour {
            let copied = File::open(path).and_then(|mut detour| io::copy(&mut detour, &mut self.file));
            copied.map_err(|error| FinishError::write(&self.shown_path, &error))?;
        }
        Ok(self.pending)
    }
}

/// What to write.
pub(crate) struct Request<'a> {
    /// Directory of the process; pending files are made here.
    pub(crate) directory: &'a Arc<Directory>,
    /// Devices that may have events.
    pub(crate) devices: &'a [Device],
    pub(crate) formats: &'a [Format],
    /// Name of the event table in databases.
    pub(crate) table: &'a str,
    pub(crate) context: RowContext<'a>,
    pub(crate) formatter: Option<&'a dyn StackFormatter>,
}

impl Request<'_> {
    fn pending_file(&self, device: Device, format: Format) -> Result<(PendingFile, File), FinishError> {
        let name = format!("device_{device}.{}", format.extension());
        PendingFile::create(self.directory, &name).map_err(|error| FinishError::write(&self.shown_path(device), &error))
    }

    fn shown_path(&self, device: Device) -> PathBuf {
        self.directory.path().join(dump_directory(device))
    }
}

/// A file that is complete but has no name yet.
pub(crate) struct PendingTable {
    pub(crate) format: Format,
    pub(crate) device: Device,
    pub(crate) pending: PendingFile,
    pub(crate) rows: u64,
    /// Rows of this very device, without those that go into every table.
    pub(crate) own_rows: u64,
}

/// The Python calls of a thread or several, complete but without a name yet.
pub(crate) struct PendingPythonTrace {
    pub(crate) callers: Callers,
    pub(crate) pending: PendingFile,
    pub(crate) rows: u64,
}

/// Everything that was written, and what the pass found out.
pub(crate) struct Written {
    pub(crate) tables: Vec<PendingTable>,
    pub(crate) python_traces: Vec<PendingPythonTrace>,
    pub(crate) watch_files: Vec<PendingWatch>,
    pub(crate) summary: Summary,
    pub(crate) rows: u64,
    pub(crate) messages: Vec<RecorderMessage>,
}

type WriterResult = Result<(Vec<PendingTable>, Vec<PendingPythonTrace>), FinishError>;

/// Makes the pass and writes all tables.
pub(crate) fn write<S: FactSource>(
    source: &S,
    settings: &TimelineSettings,
    request: &Request<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Written, FinishError> {
    thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut writers = Vec::new();
        for (index, &format) in request.formats.iter().enumerate() {
            let (sender, receiver) = sync_channel(BATCHES_IN_FLIGHT);
            senders.push(sender);
            // The files of Python calls are the same whatever the format; one writer is enough for them.
            let has_python_files = index == 0;
            let spawned =
                thread::Builder::new().name(format!("write-{}", format.extension())).spawn_scoped(scope, move || {
                    match format {
                        Format::Csv => write_format::<CsvTable>(format, request, has_python_files, &receiver),
                        Format::Database => write_format::<DatabaseTable>(format, request, has_python_files, &receiver),
                    }
                });
            writers.push(spawned.map_err(|error| FinishError::write(request.directory.path(), &error))?);
        }
        let mut dispatcher = Dispatcher {
            batch: Batch::default(),
            writers: senders,
            next_row: 0,
            messages: Vec::new(),
            notes: request.context.notes,
            watch_files: WatchFiles::new(request.directory, request.context.definitions),
        };
        let summary = msmemscope_timeline::run(source, settings, &mut dispatcher, progress);
        dispatcher.send();
        dispatcher.writers.clear();
        let mut written = Written {
            tables: Vec::new(),
            python_traces: Vec::new(),
            watch_files: dispatcher
                .watch_files
                .close()
                .map_err(|error| FinishError::write(request.directory.path(), &error))?,
            summary,
            rows: dispatcher.next_row,
            messages: dispatcher.messages,
        };
        for writer in writers {
            let (tables, python_traces) = match writer.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            written.tables.extend(tables);
            written.python_traces.extend(python_traces);
        }
        Ok(written)
    })
}

struct Slot<T> {
    device: Device,
    table: T,
    rows: u64,
    own_rows: u64,
}

fn write_format<T: Table>(
    format: Format,
    request: &Request<'_>,
    has_python_files: bool,
    batches: &Receiver<Arc<Batch>>,
) -> WriterResult {
    let mut slots = Vec::new();
    for &device in request.devices {
        slots.push(Slot { device, table: T::create(request, device)?, rows: 0, own_rows: 0 });
    }
    let mut stacks = StackCells::new(request.formatter, T::PREPARE);
    let mut python_files =
        has_python_files.then(|| PythonTraceFiles::new(request.directory, request.context.process_id));
    for batch in batches {
        for slot in &mut slots {
            let mut selection = Selection {
                batch: &batch,
                device: slot.device,
                context: request.context,
                stacks: &mut stacks,
                rows: 0,
                own_rows: 0,
            };
            slot.table.write(&mut selection)?;
            slot.rows += selection.rows;
            slot.own_rows += selection.own_rows;
            slot.table.write_python_calls(&batch.calls, request)?;
        }
        if let Some(files) = &mut python_files {
            for (thread_id, span) in &batch.calls {
                files
                    .push(*thread_id, span, request.context.definitions)
                    .map_err(|error| FinishError::write(&python_trace_path(request, *thread_id), &error))?;
            }
        }
    }
    let mut tables = Vec::new();
    for Slot { device, table, rows, own_rows } in slots {
        tables.push(PendingTable { format, device, pending: table.close()?, rows, own_rows });
    }
    let threads = match python_files {
        Some(files) => files.close().map_err(|error| FinishError::write(request.directory.path(), &error))?,
        None => Default::default(),
    };
    let python_traces = threads
        .into_iter()
        .map(|(callers, file)| PendingPythonTrace { callers, pending: file.pending, rows: file.rows })
        .collect();
    Ok((tables, python_traces))
}

fn python_trace_path(request: &Request<'_>, thread_id: u32) -> PathBuf {
    request.directory.path().join(format!("python_trace_{thread_id}.csv"))
}
