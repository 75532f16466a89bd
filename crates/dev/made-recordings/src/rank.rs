//! One rank of a job: a short training run that says its place, with as much kept per step as is wanted.

use std::path::Path;

use msmemscope_event::{AccessKind, BlockProperties, CodeId, Fact, Pool, ProcessInfoKey, StackId};

use crate::{DEVICE, Recorder};

const LAYERS: u64 = 6;
const WEIGHT_BYTES: u64 = 1 << 20;
const FIRST_ADDRESS: u64 = 0x12c0_8000_0000;

/// What a rank is and does.
#[derive(Clone, Copy, Debug)]
pub struct Rank<'a> {
    /// Its number.
    pub rank: u32,
    /// Ranks of the job.
    pub world_size: u32,
    /// Name of its machine.
    pub host: &'a str,
    /// Id of the job; empty without one.
    pub job: &'a str,
    /// Words of the command, separated by NUL bytes.
    pub command: &'a str,
    /// Steps that it makes.
    pub steps: u64,
    /// Bytes that it keeps of every step.
    pub kept_bytes: u64,
}

impl Rank<'_> {
    /// Records it.
    pub fn record(&self, directory: &Path) {
        let mut recorder = Recorder::create(directory, 1000 + self.rank, 700);
        let place = format!("rank={}\nlocal_rank={}\nworld_size={}", self.rank, self.rank % 8, self.world_size);
        let said = [
            (ProcessInfoKey::CommandLine, self.command),
            (ProcessInfoKey::HostName, self.host),
            (ProcessInfoKey::Place, place.as_str()),
            (ProcessInfoKey::Job, self.job),
        ];
        for (key, text) in said.into_iter().filter(|(_, text)| !text.is_empty()) {
            recorder.record(StackId::NONE, &Fact::ProcessInfo { key, text: text.as_bytes() });
        }
        let stacks = define_stacks(&mut recorder);
        let operator = recorder.string("aten::mm");
        for layer in 0..LAYERS {
            take(&mut recorder, stacks[0], FIRST_ADDRESS + layer * WEIGHT_BYTES, WEIGHT_BYTES);
        }
        let activations = FIRST_ADDRESS + LAYERS * WEIGHT_BYTES;
        let kept = activations + LAYERS * WEIGHT_BYTES;
        for step in 1..=self.steps {
            recorder.step_begins(step);
            for layer in 0..LAYERS {
                recorder.operate(operator, |recorder| {
                    take(recorder, stacks[1], activations + layer * WEIGHT_BYTES, (layer + 1) << 16);
                    recorder.touch(operator, AccessKind::Read, FIRST_ADDRESS + layer * WEIGHT_BYTES);
                });
            }
            if self.kept_bytes > 0 {
                take(&mut recorder, stacks[2], kept + step * self.kept_bytes, self.kept_bytes);
            }
            for layer in 0..LAYERS {
                let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
                let address = activations + layer * WEIGHT_BYTES;
                recorder.record(StackId::NONE, &Fact::Free { properties, address });
            }
            recorder.step_ends(step);
        }
        recorder.close();
    }
}

fn take(recorder: &mut Recorder, stack: StackId, address: u64, size_bytes: u64) {
    let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    recorder.record(stack, &Fact::Allocation { properties, address, size_bytes });
}

/// Stacks of the weights, of the activations, and of what is kept.
fn define_stacks(recorder: &mut Recorder) -> [StackId; 3] {
    let file = recorder.string("/data/train.py");
    let mut define = |number: u32, name: &str, line: u32| {
        let name = recorder.string(name);
        let (id, stack) = (CodeId(number), StackId(number));
        let code = Fact::DefineCode { id, name, file, first_line: line, python_version: 3 << 8 | 11, line_table: b"" };
        recorder.record(StackId::NONE, &code);
        let frames: Vec<u8> = [id.0.to_le_bytes(), [0; 4]].concat();
        recorder.record(StackId::NONE, &Fact::DefinePythonStack { id: stack, frames: &frames });
        stack
    };
    [define(1, "load", 3), define(2, "forward", 12), define(3, "remember", 21)]
}
