//! Blocks of PyTorch's pool are recorded with the stream that they are for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use msmemscope_event::{Fact, Pool};
use msmemscope_settings::CallStacks;
use msmemscope_trace::Trace;

use crate::support::{Lab, RECORDER, library, run};

const FIRST_ADDRESS: u64 = 0x1000_0000_0000;
const BLOCK_BYTES: u64 = 512;
/// Blocks of all threads, and those of one.
const BLOCKS: u64 = 12;
const BLOCKS_OF_THREAD: u64 = 4;

/// Streams by pool and number of the block; zero is the default one.
fn streams(trace: &Trace) -> BTreeMap<(Pool, u64), u32> {
    let mut found = BTreeMap::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        let (properties, address, stream) = match record.fact {
            Fact::Allocation { properties, address, .. } => (properties, address, 0),
            Fact::AllocationOnStream { properties, address, stream, .. } => (properties, address, stream),
            _ => continue,
        };
        found.insert((properties.pool, (address - FIRST_ADDRESS) / BLOCK_BYTES), stream);
    }
    found
}

/// The library with streams, and the program that uses it.
fn compiled(lab: &Lab, library_arguments: &[&str]) -> (PathBuf, PathBuf) {
    let source = include_str!("../programs/torch_npu.c");
    let library = lab.compile_library("torch_npu.c", source, "libtorch_npu.so", library_arguments);
    let source = include_str!("../programs/torch_streams.c");
    (library, lab.compile("torch_streams.c", source, &["ms_tools_ext", "pthread", "dl"]))
}

fn recorded(library_arguments: &[&str]) -> BTreeMap<(Pool, u64), u32> {
    let lab = Lab::new();
    let (library, program) = compiled(&lab, library_arguments);
    let said = lab.same_with_and_without(&program, &[library.to_str().expect("a path")]);
    assert_eq!(said, Vec::<String>::new());
    let trace = lab.trace();
    assert_eq!(trace.completeness().losses, []);
    streams(&trace)
}

fn expected(stream_of: impl Fn(u64) -> u32) -> BTreeMap<(Pool, u64), u32> {
    let blocks = (0..BLOCKS).map(|number| ((Pool::PytorchCaching, number), stream_of(number)));
    blocks.chain((0..BLOCKS).map(|number| ((Pool::PytorchWorkspace, number), 0))).collect()
}

#[test]
fn every_block_has_the_stream_of_its_thread() {
    let on_another = |number: u64| if number % BLOCKS_OF_THREAD % 2 == 1 { number as u32 } else { 0 };
    assert_eq!(recorded(&[]), expected(on_another));
}

/// It is not known how such a library would return a stream.
#[test]
fn a_library_of_another_form_is_not_asked() {
    assert_eq!(recorded(&["-DOF_ANOTHER_FORM"]), expected(|_| 0));
}

#[test]
fn blocks_of_all_streams_have_stacks_where_only_allocations_are_to_have_one() {
    let lab = Lab::new();
    let (streams, program) = compiled(&lab, &[]);
    let mut recording = lab.recording();
    recording.settings.call_stacks =
        CallStacks { native_depth: Some(20), native_at_allocations_only: true, ..CallStacks::default() };
    let mut command = lab.plain(&program);
    lab.record_with(command.arg(streams), &[library(RECORDER)], &recording);
    assert!(run(&mut command).status.success());
    let trace = lab.trace();
    let mut records = trace.records();
    let mut with_stack = [0; 2];
    while let Some(record) = records.next() {
        match record.fact {
            Fact::AllocationOnStream { .. } => with_stack[0] += u64::from(record.native_stack.is_some()),
            Fact::Free { .. } => with_stack[1] += u64::from(record.native_stack.is_some()),
            _ => {}
        }
    }
    assert_eq!(with_stack, [BLOCKS / 2, 0]);
}
