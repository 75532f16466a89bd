//! Makes trace files for the tests.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use msmemscope_event::{BlockProperties, Device, Fact, Pool, Record, StackId, StringId};
use msmemscope_trace::writer::{Chunk, ChunkError, ProcessIdentity, TraceFile};
use msmemscope_trace::{TRACE_FILE_NAME, Trace};

pub const IDENTITY: ProcessIdentity = ProcessIdentity {
    process_id: 77,
    parent_process_id: 7,
    run_id: 0x1234_5678_9abc_def0,
    wall_offset_ns: 1_700_000_000_000_000_000,
    monotonic_ns: 1_000,
};

/// A directory with one trace file in the making.
pub struct Recording {
    _directory: Option<tempfile::TempDir>,
    pub path: PathBuf,
    pub file: TraceFile,
}

impl Recording {
    pub fn new(buffered: bool, limit_bytes: u64) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join(TRACE_FILE_NAME);
        let file = TraceFile::create_with(c_path(&path), &IDENTITY, limit_bytes, buffered).expect("trace file");
        Self { _directory: Some(directory), path, file }
    }

    /// In a directory of somebody else.
    pub fn at(path: PathBuf, limit_bytes: u64) -> Self {
        let file = TraceFile::create(c_path(&path), &IDENTITY, limit_bytes).expect("trace file");
        Self { _directory: None, path, file }
    }

    pub fn chunk(&self, thread_id: u32, monotonic_ns: u64) -> Chunk {
        self.file.allocate_chunk(thread_id, monotonic_ns).expect("chunk")
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).expect("trace file")
    }
}

/// Threads that write into chunks of one file.
pub struct Threads {
    pub recording: Recording,
    chunks: HashMap<u32, Chunk>,
}

impl Threads {
    pub fn new(limit_bytes: u64) -> Self {
        Self::of(Recording::new(false, limit_bytes))
    }

    pub fn of(recording: Recording) -> Self {
        Self { recording, chunks: HashMap::new() }
    }

    /// False if there is no room.
    pub fn write(&mut self, thread_id: u32, monotonic_ns: u64, fact: &Fact<'_>) -> bool {
        let (native_stack, python_stack) = (StackId::NONE, StackId::NONE);
        self.write_record(&Record { monotonic_ns, thread_id, native_stack, python_stack, fact: *fact })
    }

    /// False if there is no room.
    pub fn write_record(&mut self, record: &Record<'_>) -> bool {
        let Record { monotonic_ns, thread_id, native_stack, python_stack, fact } = record;
        let (&thread_id, &monotonic_ns) = (thread_id, monotonic_ns);
        let append = |chunk: &mut Chunk| chunk.append(monotonic_ns, *native_stack, *python_stack, fact);
        if let Some(chunk) = self.chunks.get_mut(&thread_id)
            && append(chunk)
        {
            return true;
        }
        self.seal(thread_id);
        match self.recording.file.allocate_chunk(thread_id, monotonic_ns) {
            Ok(mut chunk) => {
                assert!(append(&mut chunk));
                self.chunks.insert(thread_id, chunk);
                true
            }
            Err(error) => {
                assert_eq!(error, ChunkError::SizeLimit);
                false
            }
        }
    }

    pub fn seal(&mut self, thread_id: u32) {
        if let Some(full) = self.chunks.remove(&thread_id) {
            self.recording.file.seal_chunk(full);
        }
    }

    pub fn trace(&self) -> Trace {
        let trace = Trace::open(&self.recording.path).expect("trace");
        assert_eq!(trace.completeness().damage, []);
        trace
    }
}

pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("path without NUL")
}

pub fn append(chunk: &mut Chunk, monotonic_ns: u64, fact: &Fact<'_>) -> bool {
    chunk.append(monotonic_ns, StackId::NONE, StackId::NONE, fact)
}

pub fn allocation(address: u64, size_bytes: u64) -> Fact<'static> {
    Fact::Allocation { properties: caching(), address, size_bytes }
}

pub fn free(address: u64) -> Fact<'static> {
    Fact::Free { properties: caching(), address }
}

pub fn caching() -> BlockProperties {
    BlockProperties::framework(Pool::PytorchCaching, Device::Npu(0))
}

/// A record that can be kept and compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub monotonic_ns: u64,
    pub thread_id: u32,
    pub text: String,
}

impl Kept {
    pub fn new(record: &Record<'_>) -> Self {
        Self {
            monotonic_ns: record.monotonic_ns,
            thread_id: record.thread_id,
            text: format!("{:?} {:?} {:?}", record.fact, record.native_stack, record.python_stack),
        }
    }
}

pub fn read_all(trace: &Trace) -> Vec<Kept> {
    let mut stream = trace.records();
    let mut kept = Vec::new();
    while let Some(record) = stream.next() {
        kept.push(Kept::new(&record));
    }
    kept
}

/// Facts of many shapes, the way one thread would write them.
pub fn sample_facts() -> Vec<(u64, Fact<'static>)> {
    let mut facts = vec![(1_010, Fact::DefineString { id: StringId(1), text: b"aten::add" })];
    for round in 0..12u64 {
        let time = 2_000 + round * 300;
        let address = 0x12c0_4140_0000 + (round % 5) * 0x20_0000;
        facts.push((time, allocation(address, 512 << round)));
        facts.push((time + 40, Fact::Mark { domain: StringId(1), device: Device::Npu(1), message: b"a mark" }));
        facts.push((time + 90, free(address)));
    }
    facts.push((9_000, Fact::Mark { domain: StringId::NONE, device: Device::Unknown, message: &[b'x'; 700] }));
    facts
}
