//! The trace equals the device's own log: every event once, whole, in order per thread and per address.

use std::collections::HashMap;
use std::time::Instant;

use msmemscope_event::{AllocationInterface, Fact, LossReason, Pool};
use msmemscope_trace::Trace;

use crate::support::{Lab, lost, run};
use crate::truth;

pub const STRESS: &str = include_str!("../programs/stress.c");

/// Runs the stress program and compares; returns how many events it had.
fn compare(threads: u32, operations: u32, seed: u32) -> usize {
    compare_buffered(threads, operations, seed, false)
}

fn compare_buffered(threads: u32, operations: u32, seed: u32, is_buffered: bool) -> usize {
    let lab = Lab::new();
    let program = lab.compile("stress.c", STRESS, &["ascendcl", "ascend_hal", "ms_tools_ext"]);
    let mut command = lab.plain(&program);
    command.args([threads, operations, seed].map(|number| number.to_string()));
    lab.record(&mut command);
    command.env("MSMEMSCOPE_BUFFERED", if is_buffered { "1" } else { "0" });
    let started = Instant::now();
    let output = run(&mut command);
    assert!(output.status.success(), "{output:?}");
    // The driver refuses some of what is asked for, which is said once, and again after ten seconds at the earliest.
    let said = String::from_utf8_lossy(&output.stderr);
    let most_lines = 1 + started.elapsed().as_secs() / 10;
    assert!(
        said.lines().count() as u64 <= most_lines
            && said.lines().all(|line| line.contains("the driver refused 1.0 PiB")),
        "{said}"
    );
    let trace = lab.trace();
    let entries = standin_truth::read_directory(&lab.log).expect("the log of the device");
    let (recorded, expected) = (truth::recorded(&trace), truth::expected(&entries, trace.process_id()));
    assert_eq!(recorded.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "the threads");
    let mut events = 0;
    for (thread, expected) in &expected {
        let recorded = &recorded[thread];
        for (position, (one, other)) in recorded.iter().zip(expected).enumerate() {
            assert_eq!(one, other, "thread {thread}, event {position}");
        }
        assert_eq!(recorded.len(), expected.len(), "thread {thread}");
        events += recorded.len();
    }
    // The only thing the recorder could not use are the empty messages the program sends on purpose.
    let completeness = trace.completeness();
    assert_eq!(completeness.damage, []);
    assert!(completeness.closed);
    assert_eq!(completeness.buffered, is_buffered);
    assert!(completeness.losses.iter().all(|(reason, _)| *reason == LossReason::BadMessage), "{completeness:?}");
    assert!(lost(&trace, LossReason::BadMessage) > 0);
    replay(&trace);
    events
}

/// In recorded order no address is alive twice and nothing is freed that is not alive.
pub fn replay(trace: &Trace) {
    let mut alive: HashMap<(Pool, AllocationInterface, u64), u64> = HashMap::new();
    let mut handles: HashMap<u64, u64> = HashMap::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        match record.fact {
            Fact::Allocation { properties, address, size_bytes } => {
                let key = (driver_pool(properties.pool, properties.interface), properties.interface, address);
                assert_eq!(alive.insert(key, size_bytes), None, "{record:?} is alive twice");
            }
            Fact::AllocationWithHandle { address, handle, .. } => {
                assert_eq!(handles.insert(handle, address), None, "{record:?} has a used handle");
            }
            Fact::Free { properties, address } => {
                let key = (driver_pool(properties.pool, properties.interface), properties.interface, address);
                let known = alive.remove(&key);
                // Host memory that was registered without being pinned is not recorded, its end is.
                let optional = properties.interface == AllocationInterface::HostRegister;
                assert!(known.is_some() || optional, "{record:?} frees what is not alive");
            }
            Fact::FreeByHandle { handle, .. } => {
                assert!(handles.remove(&handle).is_some(), "{record:?} frees an unknown handle");
            }
            _ => {}
        }
    }
}

/// A free does not know whether the driver's block was on the host.
pub fn driver_pool(pool: Pool, interface: AllocationInterface) -> Pool {
    match interface {
        AllocationInterface::Alloc | AllocationInterface::Create => Pool::Hal,
        _ => pool,
    }
}

#[test]
fn one_thread() {
    assert!(compare(1, 60_000, 1) > 50_000);
}

#[test]
fn few_threads() {
    assert!(compare(2, 40_000, 2) > 60_000);
    assert!(compare(5, 20_000, 3) > 70_000);
}

#[test]
fn buffered_writing() {
    assert!(compare_buffered(4, 20_000, 5, true) > 60_000);
}

#[test]
fn a_million_events_of_sixteen_threads() {
    assert!(compare(16, 75_000, 4) > 1_000_000);
}
