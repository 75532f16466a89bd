//! A trace with stacks of this process, written by the writer the recorder uses.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use msmemscope_event::{Fact, ModuleId, StackId, StringId};
use msmemscope_trace::Trace;
use msmemscope_trace::writer::{Chunk, ProcessIdentity, TraceFile};
use msmemscope_unwind::{ModuleDescription, StackSink, ThreadState, Unwinder};

/// A trace in the making.
pub struct Recording {
    path: PathBuf,
    file: TraceFile,
    writer: Writer,
    unwinder: Unwinder,
    thread: Box<ThreadState>,
}

struct Writer {
    chunk: Chunk,
    now_ns: u64,
    last_string: u32,
}

impl Recording {
    /// An empty trace in a directory, of which the clock is the wall clock.
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("recording.trace");
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let identity = ProcessIdentity {
            process_id: std::process::id(),
            parent_process_id: 1,
            run_id: 1,
            wall_offset_ns: 0,
            monotonic_ns: now_ns,
        };
        let name = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        let file = TraceFile::create(name, &identity, 1 << 30).expect("a trace");
        let chunk = file.allocate_chunk(1, now_ns).expect("a chunk");
        Self {
            path,
            file,
            writer: Writer { chunk, now_ns, last_string: 0 },
            unwinder: Unwinder::new().expect("memory"),
            thread: Box::new(ThreadState::new()),
        }
    }

    /// Takes the stack of the caller.
    #[inline(never)]
    pub fn take(&mut self) -> StackId {
        self.unwinder.capture(1000, &mut self.thread, &mut self.writer).stack
    }

    /// Writes a fact.
    pub fn write(&mut self, fact: &Fact<'_>) {
        self.writer.write(fact);
    }

    /// Writes a string and returns its id.
    pub fn string(&mut self, text: &[u8]) -> StringId {
        self.writer.string(text)
    }

    /// Ends the recording and reads it back.
    pub fn finish(self) -> Trace {
        self.file.seal_chunk(self.writer.chunk);
        self.file.close(self.writer.now_ns + 1);
        Trace::open(&self.path).expect("readable")
    }
}

impl Writer {
    fn write(&mut self, fact: &Fact<'_>) {
        self.now_ns += 1;
        assert!(self.chunk.append(self.now_ns, StackId::NONE, StackId::NONE, fact), "there is room");
    }

    fn string(&mut self, text: &[u8]) -> StringId {
        self.last_string += 1;
        let id = StringId(self.last_string);
        self.write(&Fact::DefineString { id, text });
        id
    }
}

impl StackSink for Writer {
    fn define_stack(&mut self, id: StackId, frames: &[u64]) -> bool {
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_le_bytes()).collect();
        self.write(&Fact::DefineNativeStack { id, frames: &bytes });
        true
    }

    fn define_module(&mut self, module: &ModuleDescription<'_>) {
        let path = self.string(module.path);
        self.write(&Fact::DefineModule {
            id: module.id,
            start_address: module.start_address,
            end_address: module.end_address,
            load_bias: module.load_bias,
            path,
            build_id: module.build_id,
        });
    }

    fn module_gone(&mut self, id: ModuleId) {
        self.write(&Fact::ModuleGone { id });
    }
}
