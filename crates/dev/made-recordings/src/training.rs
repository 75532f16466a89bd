//! A training-like run: a model of many layers goes forward and backward in steps, with Python stacks, operators,
//! accesses, segments of the driver, samples of the card, and one line that keeps a block with every step.

use std::collections::BTreeMap;
use std::path::Path;

use msmemscope_event::{AccessKind, BlockProperties, CodeId, Fact, Pool, ProcessInfoKey, StackId, StringId};

use crate::{DEVICE, Recorder};

/// Time from one event to the next.
const STEP_NS: u64 = 700;
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

/// Records a run of about this many events.
pub fn training(directory: &Path, events: u64, process_id: u32) {
    let mut recorder = Recorder::create(directory, process_id, STEP_NS);
    run(&mut recorder, events);
    recorder.close();
}

/// The caching allocator of a framework: places of equal size are used again.
#[derive(Default)]
struct Allocator {
    free: BTreeMap<u64, Vec<u64>>,
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
    let mut range_id = 0;
    while recorder.events() < events {
        range_id += 1;
        recorder.step_begins(range_id);
        let mut activations: Vec<(u64, u64)> = Vec::new();
        for (layer, &stack) in stacks.forward.iter().enumerate() {
            for (position, &operator) in operators.iter().enumerate() {
                let size_bytes = (1 + (layer as u64 * 7 + position as u64 * 13 + range_id % 3) % 40) << 12;
                recorder.operate(operator, |recorder| {
                    activations.push((allocator.take(recorder, size_bytes, stack), size_bytes));
                    recorder.touch(operator, AccessKind::Read, weights[layer]);
                });
            }
        }
        allocator.take(recorder, 64 << 10, stacks.leak);
        for (layer, &stack) in stacks.backward.iter().enumerate().rev() {
            for (position, &operator) in operators.iter().enumerate() {
                let gradient_bytes = (1 + (layer as u64 + position as u64) % 8) << 14;
                recorder.operate(operator, |recorder| {
                    let gradient = allocator.take(recorder, gradient_bytes, stack);
                    let (activation, size_bytes) = activations.pop().expect("as many as forward");
                    recorder.touch(operator, AccessKind::Write, gradient);
                    allocator.give(recorder, activation, size_bytes);
                    allocator.give(recorder, gradient, gradient_bytes);
                });
            }
        }
        let (used_bytes, process_bytes) = (allocator.held + (3 << 30), allocator.held + (1 << 28));
        let sample = Fact::CardSample { device: DEVICE, used_bytes, process_bytes, total_bytes: 64 << 30 };
        recorder.record(StackId::NONE, &sample);
        recorder.step_ends(range_id);
    }
}
