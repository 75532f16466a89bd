//! Records a training-like run of any size: `viewer_input <directory> <millions of events> [process id]`.
//!
//! A model of many layers goes forward and backward in steps, with Python stacks, operators, accesses, segments of the
//! driver, samples of the card, and one line that keeps a block with every step. For measurements and for tests in a
//! browser.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use msmemscope_event::{
    AccessKind, BlockProperties, CodeId, Device, Fact, Framework, Pool, ProcessInfoKey, StackId, StringId,
};
use msmemscope_trace::TRACE_FILE_NAME;
use msmemscope_trace::writer::{Chunk, ProcessIdentity, TraceFile};

const DEVICE: Device = Device::Npu(0);
const LAYERS: u32 = 96;
const FUNCTIONS: [&str; 6] = ["main", "train_step", "forward", "backward", "layer", "remember_loss"];
const OPERATORS: [&str; 8] = [
    "aten::mm",
    "aten::add",
    "aten::layer_norm",
    "aten::softmax",
    "aten::gelu",
    "aten::mul",
    "aten::native_dropout",
    "aten::copy_",
];
const SEGMENT_BYTES: u64 = 20 << 20;
const FIRST_SEGMENT: u64 = 0x12c0_8000_0000;

/// Writes facts one after the other.
struct Recorder {
    file: TraceFile,
    chunk: Option<Chunk>,
    time: u64,
    events: u64,
    strings: u32,
}

impl Recorder {
    fn record(&mut self, python: StackId, fact: &Fact<'_>) {
        self.time += 700;
        self.events += 1;
        let mut chunk = self.chunk.take().expect("a chunk");
        if !chunk.append(self.time, StackId::NONE, python, fact) {
            self.file.seal_chunk(chunk);
            chunk = self.file.allocate_chunk(4711, self.time).expect("disk space");
            assert!(chunk.append(self.time, StackId::NONE, python, fact));
        }
        self.chunk = Some(chunk);
    }

    fn string(&mut self, text: &str) -> StringId {
        self.strings += 1;
        let id = StringId(self.strings);
        self.record(StackId::NONE, &Fact::DefineString { id, text: text.as_bytes() });
        id
    }
}

/// The caching allocator of a framework: places of equal size are used again.
#[derive(Default)]
struct Allocator {
    free: std::collections::BTreeMap<u64, Vec<u64>>,
    next: u64,
    held: u64,
}

impl Allocator {
    fn take(&mut self, recorder: &mut Recorder, size_bytes: u64, stack: StackId) -> u64 {
        let address = match self.free.get_mut(&size_bytes).and_then(Vec::pop) {
            Some(address) => address,
            None => {
                if self.next + size_bytes > self.held {
                    let properties = BlockProperties::from_driver_flag(1 << 10);
                    let address = FIRST_SEGMENT + self.held;
                    recorder
                        .record(StackId::NONE, &Fact::Allocation { properties, address, size_bytes: SEGMENT_BYTES });
                    self.next = self.held;
                    self.held += SEGMENT_BYTES;
                }
                self.next += size_bytes;
                FIRST_SEGMENT + self.next - size_bytes
            }
        };
        let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
        recorder.record(stack, &Fact::Allocation { properties, address, size_bytes });
        address
    }

    fn give(&mut self, recorder: &mut Recorder, address: u64, size_bytes: u64) {
        let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
        recorder.record(StackId::NONE, &Fact::Free { properties, address });
        self.free.entry(size_bytes).or_default().push(address);
    }
}

/// The program's functions as code objects, and a stack for every layer in every direction.
struct Stacks {
    forward: Vec<StackId>,
    backward: Vec<StackId>,
    leak: StackId,
}

fn define_stacks(recorder: &mut Recorder) -> Stacks {
    let file = recorder.string("/data/train.py");
    let model = recorder.string("/data/model.py");
    let mut codes = 0;
    let mut code = |recorder: &mut Recorder, name: &str, file: StringId, first_line: u32| {
        codes += 1;
        let id = CodeId(codes);
        let name = recorder.string(name);
        let fact = Fact::DefineCode { id, name, file, first_line, python_version: 3 << 8 | 11, line_table: b"" };
        recorder.record(StackId::NONE, &fact);
        id
    };
    let [main, step, forward, backward, layer, leak] = std::array::from_fn(|index| {
        let file = if index == 4 { model } else { file };
        code(recorder, FUNCTIONS[index], file, 10 + 11 * index as u32)
    });
    let layers: Vec<CodeId> =
        (0..LAYERS).map(|number| code(recorder, &format!("block_{number}"), model, 100 + number)).collect();
    let mut stacks = 0;
    let mut stack = |recorder: &mut Recorder, frames: &[CodeId]| {
        stacks += 1;
        let bytes: Vec<u8> = frames.iter().flat_map(|code| [code.0.to_le_bytes(), [0; 4]].concat()).collect();
        recorder.record(StackId::NONE, &Fact::DefinePythonStack { id: StackId(stacks), frames: &bytes });
        StackId(stacks)
    };
    Stacks {
        forward: layers.iter().map(|own| stack(recorder, &[layer, *own, forward, step, main])).collect(),
        backward: layers.iter().map(|own| stack(recorder, &[layer, *own, backward, step, main])).collect(),
        leak: stack(recorder, &[leak, step, main]),
    }
}

fn run(recorder: &mut Recorder, events: u64) {
    recorder
        .record(StackId::NONE, &Fact::ProcessInfo { key: ProcessInfoKey::CommandLine, text: b"python\0train.py\0" });
    recorder.record(StackId::NONE, &Fact::ProcessInfo { key: ProcessInfoKey::HostName, text: b"node7" });
    let stacks = define_stacks(recorder);
    let operators = OPERATORS.map(|name| recorder.string(name));
    let mut allocator = Allocator::default();
    let weights: Vec<u64> =
        (0..LAYERS as usize).map(|layer| allocator.take(recorder, 4 << 20, stacks.forward[layer])).collect();
    let domain = StringId::NONE;
    let mut range_id = 0;
    while recorder.events < events {
        range_id += 1;
        let message = b"step start";
        recorder.record(StackId::NONE, &Fact::RangeBegin { domain, device: DEVICE, range_id, message });
        let mut activations: Vec<(u64, u64)> = Vec::new();
        for (layer, &stack) in stacks.forward.iter().enumerate() {
            for (position, &operator) in operators.iter().enumerate() {
                let size_bytes = (1 + (layer as u64 * 7 + position as u64 * 13 + range_id % 3) % 40) << 12;
                operate(recorder, operator, |recorder| {
                    activations.push((allocator.take(recorder, size_bytes, stack), size_bytes));
                    touch(recorder, operator, AccessKind::Read, weights[layer]);
                });
            }
        }
        allocator.take(recorder, 64 << 10, stacks.leak);
        for (layer, &stack) in stacks.backward.iter().enumerate().rev() {
            for (position, &operator) in operators.iter().enumerate() {
                let gradient_bytes = (1 + (layer as u64 + position as u64) % 8) << 14;
                operate(recorder, operator, |recorder| {
                    let gradient = allocator.take(recorder, gradient_bytes, stack);
                    let (activation, size_bytes) = activations.pop().expect("as many as forward");
                    touch(recorder, operator, AccessKind::Write, gradient);
                    allocator.give(recorder, activation, size_bytes);
                    allocator.give(recorder, gradient, gradient_bytes);
                });
            }
        }
        let (used_bytes, process_bytes) = (allocator.held + (3 << 30), allocator.held + (1 << 28));
        let sample = Fact::CardSample { device: DEVICE, used_bytes, process_bytes, total_bytes: 64 << 30 };
        recorder.record(StackId::NONE, &sample);
        recorder.record(StackId::NONE, &Fact::RangeEnd { domain, device: DEVICE, range_id });
    }
}

fn operate(recorder: &mut Recorder, name: StringId, inside: impl FnOnce(&mut Recorder)) {
    let (framework, device, detail) = (Framework::Aten, DEVICE, StringId::NONE);
    recorder.record(StackId::NONE, &Fact::OperatorBegin { framework, device, name, detail });
    inside(recorder);
    recorder.record(StackId::NONE, &Fact::OperatorEnd { framework, device, name, detail });
}

fn touch(recorder: &mut Recorder, operator: StringId, kind: AccessKind, address: u64) {
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
    recorder.record(StackId::NONE, &access);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, millions, rest @ ..] = &arguments[..] else {
        eprintln!("usage: viewer_input <directory> <millions of events> [process id]");
        std::process::exit(2);
    };
    let millions: f64 = millions.parse().expect("a number of millions");
    let process_id = rest.first().map_or(4711, |text| text.parse().expect("a process id"));
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory).expect("a directory");
    let path = CString::new(directory.join(TRACE_FILE_NAME).as_os_str().as_bytes()).expect("no NUL");
    let identity = ProcessIdentity {
        process_id,
        parent_process_id: 1,
        run_id: 1,
        wall_offset_ns: 1_763_300_000_000_000_000,
        monotonic_ns: 1000,
    };
    let file = TraceFile::create(path, &identity, u64::MAX).expect("a trace file");
    let chunk = file.allocate_chunk(process_id, 1000).expect("disk space");
    let mut recorder = Recorder { file, chunk: Some(chunk), time: 1000, events: 0, strings: 0 };
    run(&mut recorder, (millions * 1e6) as u64);
    if let Some(chunk) = recorder.chunk.take() {
        recorder.file.seal_chunk(chunk);
    }
    recorder.file.close(recorder.time);
}
