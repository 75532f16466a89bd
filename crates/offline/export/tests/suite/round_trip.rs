//! A snapshot of PyTorch that we wrote is a recording again, in which every block that is alive has its size and its stack.

use std::collections::BTreeMap;
use std::path::Path;

use made_recordings::{DEVICE, Recorder};
use msmemscope_analysis::names::SiteText;
use msmemscope_analysis::situation::Situation;
use msmemscope_analysis::{Frame, RecordingNames};
use msmemscope_event::{AutogradPhase, BlockProperties, CodeId, Fact, Pool, StackId};
use msmemscope_export::{Format, MemoryKind, export};
use msmemscope_import::{Recording, open};
use msmemscope_timeline::{EventSink, TimelineEvent, TimelineSettings, run};

const FIRST_ADDRESS: u64 = 0x12c0_8000_0000;
const SEGMENT_BYTES: u64 = 20 << 20;

/// Defines a stack of functions of one file, innermost first: the name of each and its line.
fn define_stack(recorder: &mut Recorder, number: u32, functions: &[(&str, u32)]) -> StackId {
    let file = recorder.string("/data/train.py");
    let mut frames = Vec::new();
    for (index, (name, line)) in functions.iter().enumerate() {
        let (id, name) = (CodeId(number * 10 + index as u32), recorder.string(name));
        let code = Fact::DefineCode { id, name, file, first_line: *line, python_version: 3 << 8 | 11, line_table: b"" };
        recorder.record(StackId::NONE, &code);
        frames.extend([id.0.to_le_bytes(), [0; 4]].concat());
    }
    recorder.record(StackId::NONE, &Fact::DefinePythonStack { id: StackId(number), frames: &frames });
    StackId(number)
}

/// A job that keeps blocks of several stacks, some without one, and what a backward pass has allocated.
fn record(directory: &Path) {
    let mut recorder = Recorder::create(directory, 7, 1000);
    let load = define_stack(&mut recorder, 1, &[("load", 3), ("main", 40)]);
    let forward = define_stack(&mut recorder, 2, &[("forward", 12), ("__call__", 20), ("main", 44)]);
    let backward = define_stack(&mut recorder, 3, &[("train_step", 31), ("main", 45)]);
    let operator = recorder.string("aten::mm");
    let mut next = FIRST_ADDRESS;
    let properties = BlockProperties::from_driver_flag(1 << 10);
    recorder.record(StackId::NONE, &Fact::Allocation { properties, address: next, size_bytes: SEGMENT_BYTES });
    let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    let mut take = |recorder: &mut Recorder, stack: StackId, size_bytes: u64| {
        recorder.record(stack, &Fact::Allocation { properties, address: next, size_bytes });
        next += size_bytes;
        next - size_bytes
    };
    for size in 1..=40 {
        let (stack, is_freed) = ([load, forward, StackId::NONE][size as usize % 3], size % 4 == 0);
        let address = take(&mut recorder, stack, size * 512);
        if is_freed {
            recorder.record(StackId::NONE, &Fact::Free { properties, address });
        }
    }
    recorder.operate(operator, |recorder| {
        take(recorder, StackId::NONE, 1 << 20);
    });
    recorder.record(backward, &Fact::Autograd { phase: AutogradPhase::Backward, device: DEVICE });
    take(&mut recorder, StackId::NONE, 2 << 20);
    recorder.record(StackId::NONE, &Fact::Autograd { phase: AutogradPhase::Other, device: DEVICE });
    recorder.close();
}

/// Follows what is alive.
struct Following<'a> {
    names: &'a RecordingNames<'a>,
    situation: Situation,
}

impl EventSink for Following<'_> {
    fn take(&mut self, event: TimelineEvent) {
        self.situation.update(&event, self.names);
    }
}

/// Size and frames, innermost first, of every block of the caching allocator that is alive at the end, by address.
fn alive(recording: &Recording) -> BTreeMap<u64, (u64, Vec<String>)> {
    let names = RecordingNames::new(recording);
    let mut following = Following { names: &names, situation: Situation::of(recording) };
    let settings = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
    run(recording, &settings, &mut following, &mut |_, _| {});
    let situation = &following.situation;
    let of_pool = situation.live_blocks().filter(|block| block.properties.pool == Pool::PytorchCaching);
    let frames = |site: &SiteText| -> Vec<String> {
        let operator = Some(format!("operator {}", site.operator)).filter(|_| !site.operator.is_empty());
        match site.python.is_empty() {
            true => operator.into_iter().collect(),
            false => site.python.iter().map(Frame::describe).collect(),
        }
    };
    let of_block = |block: &_| frames(&SiteText::of(block, situation, &names));
    of_pool.map(|block| (block.address, (block.size_bytes, of_block(block)))).collect()
}

fn exported(recording: Recording, format: Format) -> Vec<u8> {
    let mut file = Vec::new();
    export(&[recording], format, MemoryKind::Alive, &mut file, &mut |_, _| {}).expect("memory is there");
    file
}

fn recorded(directory: &Path) -> Recording {
    record(directory);
    open(directory).expect("a recording").recordings.remove(0)
}

#[test]
fn every_block_that_is_alive_comes_back_with_its_size_and_stack() {
    let home = tempfile::tempdir().expect("temporary directory");
    let recording = recorded(home.path());
    let before = alive(&recording);
    let path = home.path().join("snapshot.pickle");
    std::fs::write(&path, exported(recording, Format::TorchSnapshot)).expect("room");
    let after = alive(&open(&path).expect("a snapshot").recordings.remove(0));
    assert_eq!(before.len(), 32);
    for (address, block) in &before {
        assert_eq!(after.get(address), Some(block), "{address:#x}");
    }
    assert_eq!(after.len(), before.len());
    let of = |size_bytes: u64| before.values().find(|(size, _)| *size == size_bytes).expect("a block").1.join(", ");
    assert_eq!(of(512), "/data/train.py:12 forward, /data/train.py:20 __call__, /data/train.py:44 main");
    assert_eq!((of(1 << 20).as_str(), of(1024).as_str()), ("operator aten::mm", ""));
}

#[test]
fn what_autograd_allocates_is_exported_with_the_line_that_called_for_the_backward_pass() {
    let home = tempfile::tempdir().expect("temporary directory");
    let folded = String::from_utf8(exported(recorded(home.path()), Format::Folded)).expect("text");
    let line = folded.lines().find(|line| line.ends_with(&format!(" {}", 2 << 20))).expect("the block of autograd");
    assert!(line.contains("main") && line.contains("train_step") && line.contains("train.py:31"), "{line}");
    let home = tempfile::tempdir().expect("temporary directory");
    let snapshot = exported(recorded(home.path()), Format::TorchSnapshot);
    let holds = |word: &[u8]| snapshot.windows(word.len()).any(|part| part == word);
    assert!(holds(b"train_step"));
}
