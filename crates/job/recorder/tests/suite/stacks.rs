//! Every memory event has the stack it came from, in the trace of its own process.

use std::collections::HashMap;

use msmemscope_event::{Fact, LossReason};
use msmemscope_settings::CallStacks;
use msmemscope_symbols::Symbols;
use msmemscope_trace::Trace;

use crate::support::{Lab, RECORDER, library, lost, run};

const PROGRAM: &str = include_str!("../programs/stacks.c");
const LIBRARY: &str = "
#include <ascend_hal.h>
void allocate_in_library(void) {
    void *block;
    if (!halMemAlloc(&block, 8192, MEM_TYPE_DEVICE)) halMemFree(block);
}
";

/// Runs the program with a depth of native stacks; returns the traces of parent and child, and the
/// place where the program is, which symbols need.
fn record(native_depth: Option<u16>, rounds: u32) -> (Trace, Trace, Lab) {
    record_stacks(CallStacks { native_depth, ..CallStacks::default() }, rounds)
}

fn record_stacks(call_stacks: CallStacks, rounds: u32) -> (Trace, Trace, Lab) {
    let lab = Lab::new();
    let program = lab.compile("stacks.c", PROGRAM, &["ascend_hal", "dl", "pthread"]);
    let loaded = lab.compile_library("loaded.c", LIBRARY, "libloaded.so", &[]);
    let mut command = lab.plain(&program);
    command.arg(loaded).arg(rounds.to_string());
    let mut recording = lab.recording();
    recording.settings.call_stacks = call_stacks;
    lab.record_with(&mut command, &[library(RECORDER)], &recording);
    let output = run(&mut command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut traces = lab.traces();
    assert_eq!(traces.len(), 2);
    if traces[0].parent_process_id() == traces[1].process_id() {
        traces.swap(0, 1);
    }
    let child = traces.remove(1);
    (traces.remove(0), child, lab)
}

/// Names of the functions of each event's stack that lie in the program or its library, and how many
/// events had them.
fn functions_of_events(trace: &Trace) -> HashMap<(&'static str, String), u32> {
    let symbols = Symbols::new(trace.definitions(), trace.wall_offset_ns());
    let mut found = HashMap::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        let kind = match record.fact {
            Fact::Allocation { .. } => "allocation",
            Fact::Free { .. } => "free",
            Fact::AllocationFailed { .. } => "failure",
            _ => continue,
        };
        let mut text = String::new();
        symbols.print_native(record.native_stack, &mut text);
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once('(')?.1.split_once(['+', ')']).map(|(name, _)| name))
            .filter(|name| {
                !name.is_empty() && !name.starts_with('_') && *name != "start_thread" && !name.starts_with("clone")
            })
            .collect();
        *found.entry((kind, names.join(" "))).or_insert(0) += 1;
    }
    found
}

fn expected_paths(outer: &str) -> Vec<String> {
    (0..5).map(|depth| format!("innermost{} outermost{outer}", " middle".repeat(depth + 1))).collect()
}

#[test]
fn every_event_has_the_stack_it_came_from() {
    let (parent, child, _lab) = record(Some(50), 500);
    let of_parent = functions_of_events(&parent);
    for kind in ["allocation", "free"] {
        for path in expected_paths("") {
            assert_eq!(of_parent.get(&(kind, path.clone())), Some(&300), "{kind} {path}: {of_parent:?}");
        }
        for path in expected_paths(" main") {
            assert_eq!(of_parent.get(&(kind, path.clone())), Some(&200), "{kind} {path}: {of_parent:?}");
        }
        let in_library = "allocate_in_library use_library main".to_owned();
        assert_eq!(of_parent.get(&(kind, in_library)), Some(&3), "{of_parent:?}");
    }
    assert_eq!(of_parent.get(&("failure", "fail main".to_owned())), Some(&1), "{of_parent:?}");
    assert_eq!(of_parent.values().sum::<u32>(), 2 * 2500 + 6 + 1);
    let of_child = functions_of_events(&child);
    for kind in ["allocation", "free"] {
        for path in expected_paths(" main") {
            assert_eq!(of_child.get(&(kind, path.clone())), Some(&100), "{kind} {path}: {of_child:?}");
        }
    }
    for trace in [&parent, &child] {
        assert_eq!(trace.completeness().losses, []);
    }
}

#[test]
fn frees_have_no_stack_where_only_allocations_are_to_have_one() {
    let stacks = CallStacks { native_depth: Some(50), native_at_allocations_only: true, ..CallStacks::default() };
    let (parent, _, _lab) = record_stacks(stacks, 10);
    let of_parent = functions_of_events(&parent);
    for path in expected_paths("") {
        assert_eq!(of_parent.get(&("allocation", path.clone())), Some(&6), "{path}: {of_parent:?}");
    }
    let frees: Vec<_> = of_parent.iter().filter(|((kind, _), _)| *kind == "free").collect();
    assert_eq!(frees, [(&("free", String::new()), &53)]);
    assert_eq!(of_parent.get(&("failure", "fail main".to_owned())), Some(&1), "{of_parent:?}");
}

#[test]
fn stacks_are_cut_at_the_depth_and_the_cuts_are_counted() {
    let (parent, _, _lab) = record(Some(2), 10);
    let of_parent = functions_of_events(&parent);
    assert_eq!(of_parent.get(&("allocation", "innermost middle".to_owned())), Some(&50), "{of_parent:?}");
    assert_eq!(lost(&parent, LossReason::StackCut), 106);
}

#[test]
fn without_the_option_only_failures_have_stacks() {
    for depth in [None, Some(0)] {
        let (parent, child, _lab) = record(depth, 10);
        let of_parent = functions_of_events(&parent);
        assert_eq!(of_parent.get(&("allocation", String::new())), Some(&53), "{of_parent:?}");
        assert_eq!(of_parent.get(&("failure", "fail main".to_owned())), Some(&1), "{of_parent:?}");
        assert_eq!(child.definitions().modules(), []);
    }
}

#[test]
fn the_main_thread_is_asked_for_its_bounds_once() {
    let lab = Lab::new();
    let program = lab.compile("main_thread.c", include_str!("../programs/main_thread.c"), &["ascend_hal"]);
    let mut recording = lab.recording();
    recording.settings.call_stacks.native_depth = Some(20);
    let mut command = lab.plain(&program);
    lab.record_with(&mut command, &[library(RECORDER)], &recording);
    let output = run(&mut command);
    let questions: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    assert!(questions < 20, "{questions} system calls for 2000 stacks");
    assert_eq!(lab.trace().completeness().losses, []);
}
