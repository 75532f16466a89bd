//! Makes small recordings and reads back what was written.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use msmemscope_dump::insight;
use msmemscope_event::{Device, Fact, StackId, StringId};
use msmemscope_output::{FinishOptions, FinishReport, finish};
use msmemscope_trace::TRACE_FILE_NAME;
use msmemscope_trace::writer::{Chunk, ProcessIdentity, TraceFile};

/// Process id of all recordings here.
pub const PROCESS_ID: u32 = 123;
/// Thread id of records unless said otherwise.
pub const THREAD_ID: u32 = 1234;

/// A recording being made.
pub struct Recording {
    directory: tempfile::TempDir,
    file: TraceFile,
    chunk: Option<Chunk>,
    strings: u32,
}

impl Recording {
    pub fn new() -> Self {
        Self::with_wall_offset(0)
    }

    pub fn with_wall_offset(wall_offset_ns: i64) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join(TRACE_FILE_NAME);
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL in paths");
        let identity = ProcessIdentity {
            process_id: PROCESS_ID,
            parent_process_id: 1,
            run_id: 1,
            wall_offset_ns,
            monotonic_ns: 0,
        };
        let file = TraceFile::create(path, &identity, 1 << 30).expect("trace file");
        let chunk = file.allocate_chunk(THREAD_ID, 0).expect("chunk");
        Self { directory, file, chunk: Some(chunk), strings: 0 }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn record(&mut self, time: u64, fact: Fact<'_>) -> &mut Self {
        self.record_with_stacks(time, StackId::NONE, StackId::NONE, fact)
    }

    pub fn record_with_stacks(&mut self, time: u64, native: StackId, python: StackId, fact: Fact<'_>) -> &mut Self {
        let chunk = self.chunk.as_mut().expect("recording goes on");
        if !chunk.append(time, native, python, &fact) {
            let full = self.chunk.take().expect("recording goes on");
            self.file.seal_chunk(full);
            let mut fresh = self.file.allocate_chunk(THREAD_ID, time).expect("chunk");
            assert!(fresh.append(time, native, python, &fact));
            self.chunk = Some(fresh);
        }
        self
    }

    pub fn string(&mut self, text: &str) -> StringId {
        self.strings += 1;
        let id = StringId(self.strings);
        self.record(0, Fact::DefineString { id, text: text.as_bytes() });
        id
    }

    pub fn close(&mut self, time: u64) -> &mut Self {
        self.file.close(time);
        self
    }

    /// Finishes the recording; every database must pass the checker.
    pub fn finish(&self, options: &FinishOptions<'_>) -> FinishReport {
        let report = self.finish_unchecked(options);
        for file in report.files.iter().filter(|file| file.path.extension().is_some_and(|known| known == "db")) {
            let check = insight::check(&file.path);
            assert!(check.is_clean(), "{}: {:#?}", file.path.display(), check.violations);
            assert!(!check.altered_by_insight);
            assert_eq!(check.rows, file.rows);
        }
        report
    }

    pub fn finish_unchecked(&self, options: &FinishOptions<'_>) -> FinishReport {
        finish(self.path(), options, &mut |_, _| {}).expect("finish")
    }

    /// Text of the only file with this name ending below the directory of a device.
    pub fn dump(&self, device: Device, extension: &str) -> PathBuf {
        let directory = self.path().join(format!("device_{device}")).join("dump");
        let mut found: Vec<PathBuf> = std::fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
            .map(|entry| entry.expect("entry").path())
            .filter(|path| path.extension().is_some_and(|known| known == extension))
            .filter(|path| path.file_name().is_some_and(|name| !name.as_bytes().starts_with(b"python_trace")))
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// Lines of the csv file of a device without its header.
    pub fn csv_lines(&self, device: Device) -> Vec<String> {
        let text = std::fs::read_to_string(self.dump(device, "csv")).expect("csv");
        let mut lines = text.lines().map(str::to_owned);
        let header = lines.next().expect("header");
        assert_eq!(
            header,
            "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,Call Stack(Python),Call Stack(C)"
        );
        lines.collect()
    }
}
