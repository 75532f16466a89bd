//! Facts that somebody else observed are added behind those of the process.

use msmemscope_event::{Device, Fact};
use msmemscope_trace::{Trace, append_facts};

use crate::support::{Recording, allocation, append, free};

fn sample(used_bytes: u64) -> Fact<'static> {
    Fact::CardSample { device: Device::Npu(0), used_bytes, process_bytes: 1, total_bytes: u64::MAX }
}

fn times_and_samples(trace: &Trace) -> Vec<(u64, Option<u64>)> {
    let (mut records, mut found) = (trace.records(), Vec::new());
    while let Some(record) = records.next() {
        let sample = match record.fact {
            Fact::CardSample { used_bytes, .. } => Some(used_bytes),
            _ => None,
        };
        found.push((record.monotonic_ns, sample));
    }
    found
}

#[test]
fn added_facts_are_read_in_the_order_of_time() {
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(5, 1_000);
    assert!(append(&mut chunk, 2_000, &allocation(0x10, 8)) && append(&mut chunk, 4_000, &free(0x10)));
    recording.file.close(5_000);
    append_facts(&recording.path, &[(1_500, sample(7)), (3_000, sample(9))]).expect("appended");
    let trace = Trace::open(&recording.path).expect("trace");
    assert_eq!(times_and_samples(&trace), [(1_500, Some(7)), (2_000, None), (3_000, Some(9)), (4_000, None)]);
    assert!(trace.completeness().is_complete());
}

#[test]
fn as_many_chunks_as_needed_are_added() {
    let recording = Recording::new(false, u64::MAX);
    let facts: Vec<_> = (0..60_000).map(|number| (2_000 + number, sample(number << 40))).collect();
    append_facts(&recording.path, &facts).expect("appended");
    append_facts(&recording.path, &[(9, sample(9))]).expect("appended");
    let trace = Trace::open(&recording.path).expect("trace");
    let read = times_and_samples(&trace);
    assert_eq!(read.len(), facts.len() + 1);
    assert_eq!((read[0], read[60_000]), ((9, Some(9)), (61_999, Some(59_999 << 40))));
    assert!(trace.completeness().chunks_read > 2 && trace.completeness().is_complete());
}

#[test]
fn a_file_that_was_cut_off_is_left_alone() {
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(5, 1_000);
    assert!(append(&mut chunk, 2_000, &allocation(0x10, 8)));
    let cut = recording.bytes()[..5_000].to_vec();
    std::fs::write(&recording.path, &cut).expect("cut");
    append_facts(&recording.path, &[(3_000, sample(9))]).expect("nothing to do");
    assert_eq!(recording.bytes(), cut);
    std::fs::write(&recording.path, b"something else").expect("written");
    assert!(append_facts(&recording.path, &[(3_000, sample(9))]).is_err());
    assert_eq!(recording.bytes(), b"something else");
}
