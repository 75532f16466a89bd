//! Python calls: one csv file per thread, one database table per process.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use msmemscope_dump::csv_writer::push_cell;
use msmemscope_dump::text::push_number;
use msmemscope_timeline::PythonSpan;
use msmemscope_trace::Definitions;

use crate::directory::Directory;
use crate::files::PendingFile;

/// First line of every file.
pub(crate) const HEADER: &[u8] = b"FuncInfo,StartTime(ns),EndTime(ns),Thread Id,Process Id\n";
const BUFFER_BYTES: usize = 64 << 10;

/// The `FuncInfo` text of a call: `file(line): function`, or the plain name of a region or C function.
pub(crate) fn function_text(span: &PythonSpan, definitions: &Definitions) -> String {
    match definitions.code(span.code) {
        Some(code) => {
            format!("{}({}): {}", definitions.string(code.file), code.first_line, definitions.string(code.name))
        }
        None => definitions.string(span.name).into_owned(),
    }
}

/// The file of one thread. It is open only while it is appended to: a job may have had any number of
/// threads, a finisher has not any number of descriptors.
pub(crate) struct ThreadFile {
    pub(crate) pending: PendingFile,
    pub(crate) rows: u64,
    buffer: Vec<u8>,
}

impl ThreadFile {
    fn flush(&mut self) -> io::Result<()> {
        self.pending.reopen()?.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// The csv files of all threads. Calls are in the order of their ends.
pub(crate) struct PythonTraceFiles<'a> {
    directory: &'a Arc<Directory>,
    process_id: u32,
    threads: BTreeMap<u32, ThreadFile>,
}

impl<'a> PythonTraceFiles<'a> {
    /// No files yet; pending ones will be in `directory`.
    pub(crate) fn new(directory: &'a Arc<Directory>, process_id: u32) -> Self {
        Self { directory, process_id, threads: BTreeMap::new() }
    }

    /// Adds a call.
    pub(crate) fn push(&mut self, thread_id: u32, span: &PythonSpan, definitions: &Definitions) -> io::Result<()> {
        if !self.threads.contains_key(&thread_id) {
            let (pending, _) = PendingFile::create(self.directory, &format!("python_trace_{thread_id}.csv"))?;
            self.threads.insert(thread_id, ThreadFile { pending, rows: 0, buffer: HEADER.to_vec() });
        }
        let Some(file) = self.threads.get_mut(&thread_id) else { return Ok(()) };
        let out = &mut file.buffer;
        push_cell(out, &function_text(span, definitions));
        for number in [span.start_ns, span.end_ns, u64::from(thread_id), u64::from(self.process_id)] {
            out.push(b',');
            push_number(out, number);
        }
        out.push(b'\n');
        file.rows += 1;
        if file.buffer.len() >= BUFFER_BYTES { file.flush() } else { Ok(()) }
    }

    /// All files, complete.
    pub(crate) fn close(mut self) -> io::Result<BTreeMap<u32, ThreadFile>> {
        for file in self.threads.values_mut() {
            file.flush()?;
        }
        Ok(self.threads)
    }
}
