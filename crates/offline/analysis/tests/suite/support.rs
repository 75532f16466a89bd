//! Builds small recordings, as dump files or traces, and asks questions about them.

use std::ffi::CString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use msmemscope_analysis::{Answers, Questions, analyze};
use msmemscope_event::{CodeId, Fact, StackId, StringId};
use msmemscope_import::{Imported, open};
use msmemscope_trace::TRACE_FILE_NAME;
use msmemscope_trace::writer::{Chunk, ProcessIdentity, TraceFile};

/// A real file of the reference tool.
pub fn fixture(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/fixtures").join(name)
}

/// Rows of a dump under construction. Time goes on by ten with every row.
#[derive(Clone, Default)]
pub struct Dump {
    text: String,
    rows: u64,
    allocations: u64,
    pub thread: u32,
}

const HEADER: &str =
    "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,Call Stack(Python),Call Stack(C)\n";

impl Dump {
    pub fn new() -> Self {
        Self { text: HEADER.to_owned(), rows: 0, allocations: 0, thread: 7 }
    }

    fn row(&mut self, event: &str, event_type: &str, name: &str, device: &str, pointer: &str, rest: &str) -> &mut Self {
        self.rows += 1;
        let (id, time, thread) = (self.rows, 1000 + self.rows * 10, self.thread);
        writeln!(self.text, "{id},{event},{event_type},{name},{time},7,{thread},{device},{pointer},{rest}").unwrap();
        self
    }

    pub fn malloc_with(&mut self, pool: &str, device: u32, address: u64, size: u64, attributes: &str, stack: &str) {
        self.allocations += 1;
        let id = self.allocations;
        let attributes = format!("\"{{allocation_id:{id},size:{size}{attributes}}}\",\"{stack}\",");
        self.row("MALLOC", pool, "N/A", &device.to_string(), &format!("{address:#018x}"), &attributes);
    }

    pub fn malloc(&mut self, pool: &str, address: u64, size: u64) -> &mut Self {
        self.malloc_with(pool, 0, address, size, "", "");
        self
    }

    pub fn malloc_at(&mut self, address: u64, size: u64, stack: &str) -> &mut Self {
        self.malloc_with("PTA", 0, address, size, "", stack);
        self
    }

    pub fn free(&mut self, pool: &str, address: u64) -> &mut Self {
        self.row("FREE", pool, "N/A", "0", &format!("{address:#018x}"), "\"{size:1}\",,")
    }

    pub fn access(&mut self, kind: &str, operator: &str, address: u64) -> &mut Self {
        self.access_in("PTA", kind, operator, address)
    }

    pub fn access_in(&mut self, pool: &str, kind: &str, operator: &str, address: u64) -> &mut Self {
        let pointer = format!("{address:#018x}");
        self.row("ACCESS", kind, operator, "0", &pointer, &format!("\"{{size:1,type:{pool}}}\",,"))
    }

    /// An operator of ATB, with what happens inside of it.
    pub fn atb(&mut self, operator: &str, inside: impl FnOnce(&mut Self)) -> &mut Self {
        self.row("OP_LAUNCH", "ATB_START", operator, "0", "N/A", ",,");
        inside(self);
        self.row("OP_LAUNCH", "ATB_END", operator, "0", "N/A", ",,")
    }

    pub fn begin(&mut self, operator: &str) -> &mut Self {
        self.row("OP_LAUNCH", "ATEN_START", operator, "0", "N/A", ",,")
    }

    pub fn end(&mut self, operator: &str) -> &mut Self {
        self.row("OP_LAUNCH", "ATEN_END", operator, "0", "N/A", ",,")
    }

    pub fn kernel(&mut self, name: &str) -> &mut Self {
        self.kernel_on(name, 0)
    }

    pub fn kernel_on(&mut self, name: &str, device: u32) -> &mut Self {
        self.row("KERNEL_LAUNCH", "KERNEL_LAUNCH", name, &device.to_string(), "N/A", ",,")
    }

    /// A kernel of ATB, with what happens inside of it.
    pub fn atb_kernel(&mut self, name: &str, inside: impl FnOnce(&mut Self)) -> &mut Self {
        self.row("KERNEL_LAUNCH", "KERNEL_START", name, "0", "N/A", ",,");
        inside(self);
        self.row("KERNEL_LAUNCH", "KERNEL_END", name, "0", "N/A", ",,")
    }

    pub fn step_begin(&mut self) -> &mut Self {
        self.row("MSTX", "Range_start", "\"step start\"", "0", "N/A", ",,")
    }

    pub fn step_end(&mut self) -> &mut Self {
        self.row("MSTX", "Range_end", "\"step start\"", "0", "N/A", ",,")
    }

    /// A step begins before the job has chosen a device.
    pub fn step_begin_without_device(&mut self) -> &mut Self {
        self.row("MSTX", "Range_start", "\"step start\"", "N/A", "N/A", ",,")
    }

    pub fn step_end_without_device(&mut self) -> &mut Self {
        self.row("MSTX", "Range_end", "\"step start\"", "N/A", "N/A", ",,")
    }

    /// The API ends a step and begins the next one.
    pub fn api_step(&mut self, number: u64) -> &mut Self {
        self.row("SYSTEM", "STEP", &number.to_string(), "0", "N/A", ",,")
    }

    pub fn snapshot(&mut self, name: &str) -> &mut Self {
        self.row("SNAPSHOT", "SNAPSHOT", name, "0", "N/A", "\"{reserved:1,total:2,free:1}\",,")
    }

    pub fn mark(&mut self, message: &str) -> &mut Self {
        self.row("MSTX", "Mark", &format!("\"{message}\""), "0", "N/A", ",,")
    }

    /// A mark before the job has chosen a device.
    pub fn mark_without_device(&mut self, message: &str) -> &mut Self {
        self.row("MSTX", "Mark", &format!("\"{message}\""), "N/A", "N/A", ",,")
    }

    pub fn system(&mut self, event: &str) -> &mut Self {
        self.row("SYSTEM", event, "N/A", "N/A", "N/A", ",,")
    }

    pub fn system_with(&mut self, event: &str, attributes: &str) -> &mut Self {
        self.row("SYSTEM", event, "N/A", "N/A", "N/A", &format!("\"{{{attributes}}}\",,"))
    }

    pub fn refused(&mut self, size: u64) -> &mut Self {
        self.refused_at(size, "")
    }

    pub fn refused_at(&mut self, size: u64, stack: &str) -> &mut Self {
        let attributes = format!("\"{{func:halMemAlloc,req_size:{size},flag:0}}\",\"{stack}\",");
        self.row("OOM_DETAIL", "OOM_TRIGGER", "OOM_Trigger", "0", "N/A", &attributes)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn open(&self) -> Imported {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memscope_dump_1.csv");
        std::fs::write(&path, &self.text).unwrap();
        let imported = open(&path).unwrap();
        assert_eq!(imported.report.rows_skipped(), 0, "{:?}", imported.report.notice());
        imported
    }

    /// Asks about the only process.
    pub fn ask(&self, questions: &Questions) -> Answers {
        analyze(&self.open().recordings[0], questions, &mut |_, _| {})
    }
}

/// A trace under construction, of one thread. Time goes on by ten with every fact.
pub struct Traced {
    pub directory: tempfile::TempDir,
    file: TraceFile,
    chunk: Chunk,
    time: u64,
    strings: u32,
}

impl Traced {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = CString::new(directory.path().join(TRACE_FILE_NAME).as_os_str().as_bytes()).unwrap();
        let identity =
            ProcessIdentity { process_id: 7, parent_process_id: 1, run_id: 1, wall_offset_ns: 0, monotonic_ns: 0 };
        let file = TraceFile::create(path, &identity, 1 << 30).unwrap();
        let chunk = file.allocate_chunk(7, 0).unwrap();
        Self { directory, file, chunk, time: 0, strings: 0 }
    }

    pub fn record(&mut self, fact: Fact<'_>) {
        self.record_with_stack(fact, StackId::NONE);
    }

    pub fn record_with_stack(&mut self, fact: Fact<'_>, native_stack: StackId) {
        self.time += 10;
        assert!(self.chunk.append(self.time, native_stack, StackId::NONE, &fact));
    }

    /// Records what was called at a line of Python, told as a stack of one frame.
    pub fn record_at_line(&mut self, fact: Fact<'_>, function: &str, file: &str, first_line: u32) {
        let (name, file) = (self.string(function), self.string(file));
        let (code, stack) = (CodeId(first_line), StackId(first_line));
        self.record(Fact::DefineCode { id: code, name, file, first_line, python_version: 0, line_table: &[] });
        let frames = [code.0.to_le_bytes(), [0; 4]].concat();
        self.record(Fact::DefinePythonStack { id: stack, frames: &frames });
        self.time += 10;
        assert!(self.chunk.append(self.time, StackId::NONE, stack, &fact));
    }

    pub fn string(&mut self, text: &str) -> StringId {
        if text.is_empty() {
            return StringId::NONE;
        }
        self.strings += 1;
        let id = StringId(self.strings);
        self.record(Fact::DefineString { id, text: text.as_bytes() });
        id
    }

    /// Asks about the finished recording.
    pub fn ask(self, questions: &Questions) -> Answers {
        let Self { directory, file, chunk, time, .. } = self;
        file.seal_chunk(chunk);
        file.close(time + 10);
        let imported = open(directory.path()).unwrap();
        analyze(&imported.recordings[0], questions, &mut |_, _| {})
    }
}
