//! Memory that MindSpore's pool refused, without asking the driver.

use msmemscope_analysis::Questions;
use msmemscope_analysis::out_of_memory::OutOfMemoryReport;
use msmemscope_analysis::verdict::Verdict;
use msmemscope_event::{BlockProperties, Device, Fact, Pool};
use msmemscope_report as text;

use crate::support::Traced;

const DEVICE: Device = Device::Npu(0);
const CARD_BYTES: u64 = 2 << 30;
const BLOCK: u64 = 0x1000_0000_0000;

fn report(trace: Traced) -> OutOfMemoryReport {
    trace.ask(&Questions { out_of_memory: Some(3), ..Questions::default() }).out_of_memory.unwrap()
}

/// A job that has one block of a pool, which has as much from the driver, and is refused more.
fn refused(used_bytes: u64, size_bytes: u64, is_limited: bool) -> OutOfMemoryReport {
    let mut trace = Traced::new();
    for pool in [Pool::Hal, Pool::Mindspore] {
        let properties = BlockProperties::framework(pool, DEVICE);
        trace.record(Fact::Allocation { properties, address: BLOCK, size_bytes: used_bytes });
    }
    let (process_bytes, total_bytes) = (used_bytes, CARD_BYTES);
    trace.record(Fact::CardSample { device: DEVICE, used_bytes, process_bytes, total_bytes });
    let properties = BlockProperties::framework(Pool::Mindspore, DEVICE);
    trace.record(Fact::AllocationFailed { properties, size_bytes, flag: u64::from(is_limited), error: 6 });
    report(trace)
}

#[test]
fn a_full_card_is_a_job_that_needs_too_much() {
    let found = refused(CARD_BYTES - (100 << 20), 0, false);
    let failure = found.decisive().expect("a failure");
    assert_eq!((found.failures, failure.function, failure.verdict), (1, "MindSpore", Verdict::Demand));
    assert!(!failure.recovered);
    let said = text::out_of_memory(&found);
    assert!(said.contains("does not say how much was"), "{said}");
    assert!(!said.contains("0 B that"), "{said}");
}

#[test]
fn the_size_of_the_request_counts_where_it_is_known() {
    let found = refused(CARD_BYTES - (100 << 20), 1 << 30, false);
    let said = text::out_of_memory(&found);
    assert!(said.contains("MindSpore's pool was asked for 1.0 GiB on device 0."), "{said}");
    assert_eq!(found.decisive().expect("a failure").verdict, Verdict::Demand);
}

#[test]
fn what_is_left_free_is_a_limit_of_the_job_or_too_large_a_request() {
    let found = refused(CARD_BYTES / 2, 0, true);
    assert_eq!(found.decisive().expect("a failure").verdict, Verdict::OwnLimit);
    let said = text::out_of_memory(&found);
    assert!(said.contains("set_memory(max_size=...)") && !said.contains("PyTorch"), "{said}");
    let found = refused(CARD_BYTES / 2, 0, false);
    assert_eq!(found.decisive().expect("a failure").verdict, Verdict::Demand);
    let said = text::out_of_memory(&found);
    assert!(said.contains("the request alone must have been"), "{said}");
}
