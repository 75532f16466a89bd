//! Allocations of Python code have the Python stack they came from.

use std::collections::HashMap;

use msmemscope_event::{Fact, LossReason, ProcessInfoKey, StackId};
use msmemscope_settings::CallStacks;
use msmemscope_symbols::Symbols;
use msmemscope_trace::Trace;

use crate::support::{Lab, RECORDER, appearance, library, lost, run};

const PROGRAM: &str = include_str!("../programs/python_stacks.py");

/// Runs the program; returns the traces of parent and child and what the program says about every
/// allocation, by its size.
fn record(python_frames: u16, python_depth: Option<u16>) -> (Vec<Trace>, HashMap<u64, Vec<String>>) {
    let lab = Lab::new();
    let script = lab.path().join("python_stacks.py");
    std::fs::write(&script, PROGRAM).expect("the program can be written");
    let mut command = lab.plain("python3".as_ref());
    command.arg(script);
    let mut recording = lab.recording();
    recording.settings.python_frames = python_frames;
    recording.settings.call_stacks = CallStacks { python_depth, ..CallStacks::default() };
    lab.record_with(&mut command, &[library(RECORDER)], &recording);
    let output = run(&mut command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(appearance(&output).1, Vec::<String>::new());
    let mut expected = HashMap::new();
    for line in String::from_utf8(output.stdout).expect("UTF-8").lines() {
        let mut cells = line.split('\t').map(str::to_owned);
        let size = cells.next().expect("a size").parse().expect("a number");
        expected.insert(size, cells.collect::<Vec<_>>());
    }
    let traces = lab.traces();
    assert_eq!(traces.len(), 2);
    (traces, expected)
}

/// Compares every allocation of a trace with what the program said; returns how many there were.
fn compare(trace: &Trace, expected: &HashMap<u64, Vec<String>>, depth: usize) -> usize {
    let symbols = Symbols::new(trace.definitions(), trace.wall_offset_ns());
    let mut compared = 0;
    let mut records = trace.records();
    while let Some(record) = records.next() {
        let Fact::Allocation { size_bytes, .. } = record.fact else { continue };
        let mut text = String::new();
        symbols.print_python(record.python_stack, &mut text);
        let frames = &expected[&size_bytes];
        let wanted = &frames[..frames.len().min(depth)];
        assert_eq!(text.lines().collect::<Vec<_>>(), wanted, "{size_bytes}");
        compared += 1;
    }
    compared
}

fn stacks_of_frees(trace: &Trace) -> (usize, usize) {
    let (mut with, mut without) = (0, 0);
    let mut records = trace.records();
    while let Some(record) = records.next() {
        if let Fact::Free { .. } = record.fact {
            *(if record.python_stack == StackId::NONE { &mut without } else { &mut with }) += 1;
        }
    }
    (with, without)
}

#[test]
fn allocations_have_as_many_frames_as_asked_for() {
    let (traces, expected) = record(16, None);
    let compared: usize = traces.iter().map(|trace| compare(trace, &expected, 16)).sum();
    assert_eq!(compared, expected.len() + 1, "parent and child use the last size both");
    for trace in &traces {
        let version = trace.definitions().process_information(ProcessInfoKey::PythonVersion).expect("a version");
        assert!(version.starts_with(b"3."), "{version:?}");
        assert_eq!(stacks_of_frees(trace).0, 0);
        assert_eq!(lost(trace, LossReason::StackCut), 0, "nobody asked for more");
        assert_eq!(lost(trace, LossReason::StackMissing), 0);
    }
}

#[test]
fn deeper_stacks_are_taken_if_asked_for_and_for_frees_too() {
    let (traces, expected) = record(16, Some(25));
    for trace in &traces {
        assert!(compare(trace, &expected, 25) > 0);
        assert_eq!(stacks_of_frees(trace).1, 0);
    }
    let cuts: u64 = traces.iter().map(|trace| lost(trace, LossReason::StackCut)).sum();
    assert_eq!(cuts, 6, "three allocations and their frees in deep recursion");
}

#[test]
fn no_frames_are_taken_if_none_are_wanted() {
    let (traces, _) = record(0, None);
    for trace in &traces {
        let mut records = trace.records();
        while let Some(record) = records.next() {
            assert_eq!(record.python_stack, StackId::NONE);
        }
        assert_eq!(trace.definitions().process_information(ProcessInfoKey::PythonVersion), None);
    }
}
