//! Recordings of any size for tests and measurements, made without a device.
//!
//! [`Recorder`] writes facts one after the other; [`training()`] is a whole run, [`Rank`] one of many ranks.

mod rank;
mod training;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use msmemscope_event::{AccessKind, BlockProperties, Device, Fact, Framework, Pool, StackId, StringId};
use msmemscope_trace::TRACE_FILE_NAME;
use msmemscope_trace::writer::{Chunk, ProcessIdentity, TraceFile};

pub use rank::Rank;
pub use training::training;

/// The device that everything happens on.
pub const DEVICE: Device = Device::Npu(0);

/// When a recording starts, in nanoseconds of its own clock.
const START_NS: u64 = 1000;
/// Wall clock of a recording minus its own clock.
const WALL_OFFSET_NS: i64 = 1_763_300_000_000_000_000;

/// Writes facts one after the other, in the name of one thread.
pub struct Recorder {
    file: TraceFile,
    chunk: Option<Chunk>,
    thread_id: u32,
    step_ns: u64,
    time_ns: u64,
    events: u64,
    strings: u32,
}

impl Recorder {
    /// Starts a recording in a directory; `step_ns` passes from one event to the next.
    pub fn create(directory: &Path, process_id: u32, step_ns: u64) -> Self {
        std::fs::create_dir_all(directory).expect("a directory");
        let path = CString::new(directory.join(TRACE_FILE_NAME).as_os_str().as_bytes()).expect("no NUL");
        let identity = ProcessIdentity {
            process_id,
            parent_process_id: 1,
            run_id: 1,
            wall_offset_ns: WALL_OFFSET_NS,
            monotonic_ns: START_NS,
        };
        let file = TraceFile::create(path, &identity, u64::MAX).expect("a trace file");
        let chunk = file.allocate_chunk(process_id, START_NS).expect("disk space");
        Self { file, chunk: Some(chunk), thread_id: process_id, step_ns, time_ns: START_NS, events: 0, strings: 0 }
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Records a fact with the Python stack that it comes from.
    pub fn record(&mut self, python: StackId, fact: &Fact<'_>) {
        self.time_ns += self.step_ns;
        self.events += 1;
        let mut chunk = self.chunk.take().expect("a chunk");
        if !chunk.append(self.time_ns, StackId::NONE, python, fact) {
            self.file.seal_chunk(chunk);
            chunk = self.file.allocate_chunk(self.thread_id, self.time_ns).expect("disk space");
            assert!(chunk.append(self.time_ns, StackId::NONE, python, fact));
        }
        self.chunk = Some(chunk);
    }

    /// Defines a string.
    pub fn string(&mut self, text: &str) -> StringId {
        self.strings += 1;
        let id = StringId(self.strings);
        self.record(StackId::NONE, &Fact::DefineString { id, text: text.as_bytes() });
        id
    }

    /// A block of the caching allocator.
    pub fn allocate(&mut self, address: u64, size_bytes: u64) {
        let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
        self.record(StackId::NONE, &Fact::Allocation { properties, address, size_bytes });
    }

    /// A range with the message that marks steps begins.
    pub fn step_begins(&mut self, range_id: u64) {
        let (domain, message) = (StringId::NONE, &b"step start"[..]);
        self.record(StackId::NONE, &Fact::RangeBegin { domain, device: DEVICE, range_id, message });
    }

    /// The range ends.
    pub fn step_ends(&mut self, range_id: u64) {
        self.record(StackId::NONE, &Fact::RangeEnd { domain: StringId::NONE, device: DEVICE, range_id });
    }

    /// An operator runs.
    pub fn operate(&mut self, name: StringId, inside: impl FnOnce(&mut Self)) {
        let (framework, device, detail) = (Framework::Aten, DEVICE, StringId::NONE);
        self.record(StackId::NONE, &Fact::OperatorBegin { framework, device, name, detail });
        inside(self);
        self.record(StackId::NONE, &Fact::OperatorEnd { framework, device, name, detail });
    }

    /// An operator touches memory.
    pub fn touch(&mut self, operator: StringId, kind: AccessKind, address: u64) {
        let access = Fact::Access {
            kind,
            framework: Framework::Aten,
            device: DEVICE,
            operator,
            address,
            size_bytes: 512,
            element_type: StringId::NONE,
            shape: StringId::NONE,
            format: StringId::NONE,
            output_position: 0,
        };
        self.record(StackId::NONE, &access);
    }

    /// The process ends in the normal way.
    pub fn close(mut self) {
        if let Some(chunk) = self.chunk.take() {
            self.file.seal_chunk(chunk);
        }
        self.file.close(self.time_ns);
    }
}
