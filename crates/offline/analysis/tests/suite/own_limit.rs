//! Memory that PyTorch refused because of a limit of the job, without asking the driver.

use msmemscope_analysis::Questions;
use msmemscope_analysis::out_of_memory::OutOfMemoryReport;
use msmemscope_analysis::verdict::Verdict;
use msmemscope_event::{BlockProperties, Device, Fact, Pool, PoolRefusal, SnapshotNumbers};
use msmemscope_report as text;

use crate::support::{Dump, Traced};

const DEVICE: Device = Device::Npu(0);
const SEGMENT: u64 = 0x1000_0000;

fn segment() -> BlockProperties {
    BlockProperties::framework(Pool::Hal, DEVICE)
}

/// A job that has one segment of driver memory.
fn job() -> Traced {
    let mut trace = Traced::new();
    trace.record(Fact::Allocation { properties: segment(), address: SEGMENT, size_bytes: 2 << 20 });
    trace
}

fn refuse(trace: &mut Traced, error: i64) {
    trace.record(Fact::AllocationFailed { properties: segment(), size_bytes: 1 << 30, flag: 0, error });
}

fn snapshot(trace: &mut Traced, name: &str) {
    let name = trace.string(name);
    let numbers = SnapshotNumbers {
        reserved_bytes: 2 << 20,
        total_bytes: 64 << 30,
        free_bytes: 63 << 30,
        ..SnapshotNumbers::default()
    };
    trace.record(Fact::Snapshot { device: DEVICE, name, numbers });
}

fn report(trace: Traced) -> OutOfMemoryReport {
    trace.ask(&Questions { out_of_memory: Some(3), ..Questions::default() }).out_of_memory.unwrap()
}

#[test]
fn a_refusal_without_the_driver_is_a_limit_of_the_job() {
    let mut trace = job();
    snapshot(&mut trace, "OOM_Snapshot");
    snapshot(&mut trace, "OOM_Snapshot After");
    let found = report(trace);
    assert_eq!((found.failures, found.limit_failures, found.details.len()), (0, 1, 1));
    assert!(found.has_failures());
    let failure = found.decisive().unwrap();
    assert_eq!((failure.verdict, failure.process_bytes), (Verdict::OwnLimit, 2 << 20));
    let first = text::headline::out_of_memory(failure, None);
    let expected = "Out of memory on device 0: a limit that the job has set itself";
    assert!(first.starts_with(expected), "{first}");
    let text = text::out_of_memory(&found);
    assert!(text.contains("set_per_process_memory_fraction") && !text.contains("Asked for at"), "{text}");
    assert!(text.contains("It held 2.0 MiB then; of the 64.0 GiB of the card 63.0 GiB were free."), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// PyTorch gives up, with a limit of its own or none.
fn give_up(trace: &mut Traced, requested_bytes: u64, limit_bytes: u64) {
    let (total_bytes, free_bytes) = (64 << 30, 63 << 30);
    let refusal = PoolRefusal {
        requested_bytes,
        limit_bytes,
        reserved_bytes: 2 << 20,
        free_bytes,
        total_bytes,
        ..Default::default()
    };
    trace.record_at_line(Fact::PoolRefusal { device: DEVICE, refusal }, "train", "/me/t.py", 9);
}

#[test]
fn the_request_and_the_limit_are_in_the_first_sentence_where_pytorch_tells_them() {
    let mut trace = job();
    let pool = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    trace.record(Fact::HeapRegistered { properties: pool, address: SEGMENT, size_bytes: 2 << 20 });
    trace.record(Fact::Allocation { properties: pool, address: SEGMENT, size_bytes: 1 << 20 });
    give_up(&mut trace, 34 << 20, 20 << 20);
    snapshot(&mut trace, "OOM_Snapshot");
    let found = report(trace);
    assert_eq!((found.failures, found.limit_failures, found.details.len()), (0, 1, 1), "told once");
    let failure = found.decisive().unwrap();
    assert_eq!((failure.verdict, failure.requested_bytes), (Verdict::OwnLimit, 34 << 20));
    let first = text::headline::out_of_memory(failure, None);
    let expected = "Out of memory on device 0: /me/t.py:9 train asked for 34.0 MiB. Reason: a limit that the job has set \
                    itself, 20.0 MiB";
    assert!(first.starts_with(expected), "{first}");
    let said = text::verdict::reason(failure).explanation.join(" ");
    assert!(said.contains(
        "PyTorch was asked for 34.0 MiB on device 0, and holds 2.0 MiB there. The job lets it have 20.0 MiB"
    ));
    assert!(said.ends_with("Of the 64.0 GiB of the card 63.0 GiB were free."), "{said}");
}

#[test]
fn a_limit_that_leaves_room_is_not_to_blame() {
    let mut trace = job();
    refuse(&mut trace, 6);
    give_up(&mut trace, 1 << 30, 32 << 30);
    snapshot(&mut trace, "OOM_Snapshot");
    let found = report(trace);
    assert_eq!((found.failures, found.limit_failures, found.details.len()), (1, 0, 1));
    assert_ne!(found.decisive().unwrap().verdict, Verdict::OwnLimit);
}

#[test]
fn a_refusal_of_the_driver_stays_one() {
    for error in [6, 7] {
        let mut trace = job();
        refuse(&mut trace, error);
        snapshot(&mut trace, "OOM_Snapshot");
        let found = report(trace);
        assert_eq!((found.failures, found.limit_failures), (u64::from(error == 6), 0));
    }
}

#[test]
fn a_limit_met_after_the_driver_gave_memory_again_is_told() {
    let mut trace = job();
    refuse(&mut trace, 6);
    trace.record(Fact::Allocation { properties: segment(), address: SEGMENT << 1, size_bytes: 1 << 30 });
    snapshot(&mut trace, "OOM_Snapshot");
    let found = report(trace);
    assert_eq!((found.failures, found.limit_failures), (1, 1));
    assert_eq!(found.decisive().unwrap().verdict, Verdict::OwnLimit, "the other one was recovered from");
}

#[test]
fn nothing_is_said_without_knowing_what_the_driver_did() {
    let mut trace = Traced::new();
    snapshot(&mut trace, "OOM_Snapshot");
    assert!(!report(trace).has_failures(), "driver memory was not recorded");
    let mut trace = job();
    snapshot(&mut trace, "mine");
    assert!(!report(trace).has_failures());
    // Other tools take such snapshots when the driver refuses, and may leave that out of their files.
    let mut dump = Dump::new();
    dump.malloc("HAL", SEGMENT, 2 << 20).snapshot("OOM_Snapshot");
    let answers = dump.ask(&Questions { out_of_memory: Some(3), ..Questions::default() });
    assert!(!answers.out_of_memory.unwrap().has_failures());
}
