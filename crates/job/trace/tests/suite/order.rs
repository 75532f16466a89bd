//! Records of many threads come back in one order.

use msmemscope_event::{Fact, LossReason};
use msmemscope_trace::Trace;
use msmemscope_trace::writer::ChunkError;
use proptest::prelude::*;

use crate::support::{IDENTITY, Kept, Recording, allocation, append, free, read_all};

#[test]
fn the_header_tells_who_was_recorded() {
    let recording = Recording::new(false, u64::MAX);
    recording.file.count_loss(LossReason::DiskFull, 3);
    recording.file.count_loss(LossReason::DiskFull, 2);
    recording.file.close(5_555);
    let trace = Trace::open(&recording.path).expect("trace");
    assert_eq!((trace.process_id(), trace.parent_process_id()), (77, 7));
    assert_eq!(trace.run_id(), IDENTITY.run_id);
    assert_eq!(trace.wall_ns(1), IDENTITY.wall_offset_ns as u64 + 1);
    assert_eq!(trace.closed_monotonic_ns(), Some(5_555));
    assert_eq!(trace.completeness().losses, [(LossReason::DiskFull, 5)]);
    assert!(!trace.completeness().is_complete());
    let identity = Trace::identify(&recording.path).expect("identity");
    assert!(identity.closed && identity.process_id == 77);
}

#[test]
fn chunks_overflow_into_the_next_one_and_the_limit_holds() {
    let recording = Recording::new(false, 3 * 256 * 1024 + 4096);
    let mut written = 0u64;
    let mut chunk = recording.chunk(1, 1_000);
    let error = loop {
        if append(&mut chunk, 1_000 + written * 10, &allocation(written << 9, 512)) {
            written += 1;
            continue;
        }
        recording.file.seal_chunk(chunk);
        match recording.file.allocate_last_chunk(1, 1_000 + written * 10) {
            Ok(next) => chunk = next,
            Err(error) => break error,
        }
    };
    assert_eq!(error, ChunkError::SizeLimit);
    let trace = Trace::open(&recording.path).expect("trace");
    assert_eq!(trace.completeness().records, written);
    assert_eq!(trace.completeness().chunks_read, 3);
    assert!(trace.completeness().is_complete());
    let records = read_all(&trace);
    assert!(records.is_sorted_by_key(|record| record.monotonic_ns));
    assert_eq!(records.len() as u64, written);
}

#[test]
fn a_chunk_can_pass_from_thread_to_thread() {
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(1, 1_000);
    append(&mut chunk, 1_001, &allocation(1, 1));
    append(&mut chunk, 1_002, &Fact::Thread { thread_id: 2 });
    append(&mut chunk, 1_003, &free(1));
    assert_eq!(chunk.thread_id(), 2);
    let threads: Vec<u32> =
        read_all(&Trace::open(&recording.path).expect("trace")).iter().map(|record| record.thread_id).collect();
    assert_eq!(threads, [1, 2, 2]);
}

#[test]
fn buffered_mode_reads_the_same_after_flush_and_seal() {
    let recording = Recording::new(true, u64::MAX);
    let mut chunk = recording.chunk(1, 1_000);
    append(&mut chunk, 1_001, &allocation(1, 1));
    assert_eq!(read_all(&Trace::open(&recording.path).expect("trace")).len(), 0);
    recording.file.flush_chunk(&chunk).expect("flush");
    assert_eq!(read_all(&Trace::open(&recording.path).expect("trace")).len(), 1);
    append(&mut chunk, 1_002, &free(1));
    recording.file.seal_chunk(chunk);
    let trace = Trace::open(&recording.path).expect("trace");
    assert_eq!(read_all(&trace).len(), 2);
    assert!(trace.completeness().buffered && trace.completeness().is_complete());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn the_merge_equals_a_sort(threads in prop::collection::vec(prop::collection::vec((0..200u64, any::<bool>()), 0..60), 1..6)) {
        let recording = Recording::new(false, u64::MAX);
        let mut expected = Vec::new();
        for (index, steps) in threads.iter().enumerate() {
            let thread_id = 100 + index as u32;
            let mut time = 1_000u64;
            let mut used_times = std::collections::HashSet::new();
            let mut chunk = recording.chunk(thread_id, time);
            for (number, (step, is_free)) in steps.iter().enumerate() {
                // Some records are stamped before their predecessor, as a free around nested calls is.
                time = time + step - 60.min(*step / 2);
                while !used_times.insert(time) {
                    time += 1;
                }
                let fact = if *is_free { free(number as u64) } else { allocation(number as u64, 8) };
                prop_assert!(append(&mut chunk, time, &fact));
                let text = format!("{fact:?} StackId(0) StackId(0)");
                expected.push((time, u8::from(!is_free), thread_id, number, text));
                if number % 17 == 16 {
                    recording.file.seal_chunk(chunk);
                    chunk = recording.chunk(thread_id, time);
                }
            }
        }
        expected.sort();
        let expected: Vec<Kept> = expected
            .into_iter()
            .map(|(monotonic_ns, _, thread_id, _, text)| Kept { monotonic_ns, thread_id, text })
            .collect();
        prop_assert_eq!(read_all(&Trace::open(&recording.path).expect("trace")), expected);
    }
}

/// Records that were brought into order may need other notes of whose they are than were written.
#[test]
fn records_are_counted_without_the_notes_of_whose_they_are() {
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(1, 1_000);
    append(&mut chunk, 1_009, &allocation(1, 1));
    append(&mut chunk, 1_005, &Fact::Thread { thread_id: 2 });
    append(&mut chunk, 1_005, &allocation(2, 1));
    append(&mut chunk, 1_007, &Fact::Thread { thread_id: 3 });
    append(&mut chunk, 1_007, &Fact::Thread { thread_id: 2 });
    append(&mut chunk, 1_003, &allocation(3, 1));
    let trace = Trace::open(&recording.path).expect("trace");
    let records = read_all(&trace).iter().filter(|record| !record.text.starts_with("Thread ")).count();
    assert_eq!((trace.completeness().records, records), (3, 3));
}

/// No clock says so, but damaged files do.
#[test]
fn a_record_at_the_end_of_time_is_read() {
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(1, 1_000);
    append(&mut chunk, u64::MAX, &allocation(1, 1));
    let trace = Trace::open(&recording.path).expect("trace");
    assert_eq!((trace.completeness().records, read_all(&trace).len()), (1, 1));
}
