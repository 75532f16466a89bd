//! Python calls: one csv file per thread, one database table per process.

use std::collections::BTreeMap;
use std::fmt;
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
/// Threads that have a file of their own. No job has as many; what is made up may have one per record.
pub(crate) const MOST_THREADS: usize = 4096;

/// Whose calls are in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Callers {
    /// One thread.
    Thread(u32),
    /// All that came after the first [`MOST_THREADS`].
    Others,
}

impl fmt::Display for Callers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Callers::Thread(thread_id) => write!(formatter, "{thread_id}"),
            Callers::Others => formatter.write_str("others"),
        }
    }
}

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
    files: BTreeMap<Callers, ThreadFile>,
}

impl<'a> PythonTraceFiles<'a> {
    /// No files yet; pending ones will be in `directory`.
    pub(crate) fn new(directory: &'a Arc<Directory>, process_id: u32) -> Self {
        Self { directory, process_id, files: BTreeMap::new() }
    }

    /// Adds a call.
    pub(crate) fn push(&mut self, thread_id: u32, span: &PythonSpan, definitions: &Definitions) -> io::Result<()> {
        let own = Callers::Thread(thread_id);
        let is_known = self.files.contains_key(&own);
        let callers = if is_known || self.files.len() < MOST_THREADS { own } else { Callers::Others };
        if !is_known && !self.files.contains_key(&callers) {
            let (pending, _) = PendingFile::create(self.directory, &format!("python_trace_{callers}.csv"))?;
            self.files.insert(callers, ThreadFile { pending, rows: 0, buffer: HEADER.to_vec() });
        }
        let Some(file) = self.files.get_mut(&callers) else { return Ok(()) };
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
    pub(crate) fn close(mut self) -> io::Result<BTreeMap<Callers, ThreadFile>> {
        for file in self.files.values_mut() {
            file.flush()?;
        }
        Ok(self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use msmemscope_event::{CodeId, StringId};

    #[test]
    fn any_number_of_threads_has_a_limited_number_of_files() {
        let place = tempfile::tempdir().unwrap();
        let directory = Arc::new(Directory::open(place.path()).unwrap());
        let mut files = PythonTraceFiles::new(&directory, 7);
        let span = PythonSpan { code: CodeId::NONE, name: StringId::NONE, start_ns: 1, end_ns: 2 };
        let threads = MOST_THREADS as u32 + 2;
        for thread_id in (1..=threads).chain([1, threads]) {
            files.push(thread_id, &span, &Definitions::default()).unwrap();
        }
        let files = files.close().unwrap();
        assert_eq!(files.len(), MOST_THREADS + 1);
        assert_eq!((files[&Callers::Thread(1)].rows, files[&Callers::Others].rows), (2, 3));
        let written = std::fs::read_to_string(files[&Callers::Others].pending.path()).unwrap();
        assert!(written.starts_with("FuncInfo,") && written.ends_with(&format!(",{threads},7\n")), "{written}");
    }
}
