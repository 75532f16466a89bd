//! A trace that is read while it is written gives every record once, and in the end what one look at all of it gives.

use msmemscope_event::{Fact, StringId};
use msmemscope_trace::writer::Chunk;
use msmemscope_trace::{RecordStream, Trace};
use proptest::prelude::*;

use crate::support::{Kept, Recording, allocation, append, free, read_all};

fn kept(mut stream: RecordStream) -> Vec<Kept> {
    let mut kept = Vec::new();
    while let Some(record) = stream.next() {
        kept.push(Kept::new(&record));
    }
    kept
}

fn look(trace: &mut Trace, until_monotonic_ns: u64) -> Vec<Kept> {
    kept(trace.catch_up(until_monotonic_ns).expect("the trace can be read").expect("no room was made"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Threads write in turns, large chunks and small ones, and looks come at any moment.
    #[test]
    fn looks_add_up_to_the_whole(turns in prop::collection::vec((0u32..4, 1usize..6000, 0u64..3), 1..16)) {
        let recording = Recording::new(false, u64::MAX);
        let mut chunks: Vec<Option<Chunk>> = (0..4).map(|_| None).collect();
        let mut trace = Trace::open_unread(&recording.path).expect("trace");
        let mut seen = Vec::new();
        let mut now = 2_000;
        for (thread, count, looks) in turns {
            for number in 0..count {
                now += 10;
                let fact = if number % 2 == 0 { allocation(now << 9, 512) } else { free((now - 10) << 9) };
                let chunk = &mut chunks[thread as usize];
                if !chunk.as_mut().is_some_and(|chunk| append(chunk, now, &fact)) {
                    chunk.take().into_iter().for_each(|full| recording.file.seal_chunk(full));
                    let next = chunk.insert(recording.chunk(thread, now));
                    prop_assert!(append(next, now, &fact));
                }
            }
            for back in (0..looks).rev() {
                // What is later than the look began is left for the next one.
                let records = look(&mut trace, now - back * 40);
                prop_assert!(records.iter().all(|record| record.monotonic_ns <= now - back * 40));
                seen.extend(records);
            }
        }
        seen.extend(look(&mut trace, u64::MAX));
        prop_assert_eq!(look(&mut trace, u64::MAX), vec![]);
        let whole = Trace::open(&recording.path).expect("trace");
        prop_assert_eq!(trace.completeness().records, whole.completeness().records);
        prop_assert_eq!(&seen, &read_all(&whole));
        prop_assert_eq!(&seen, &read_all(&trace));
    }
}

#[test]
fn definitions_losses_and_the_end_are_learned() {
    let recording = Recording::new(false, u64::MAX);
    let mut trace = Trace::open(&recording.path).expect("trace");
    let mut chunk = recording.chunk(1, 1_000);
    append(&mut chunk, 1_001, &Fact::DefineString { id: StringId(1), text: b"weights" });
    recording.file.count_loss(msmemscope_event::LossReason::StackMissing, 3);
    assert_eq!(look(&mut trace, u64::MAX).len(), 1);
    recording.file.count_loss(msmemscope_event::LossReason::StackMissing, 2);
    recording.file.close(1_002);
    assert_eq!(look(&mut trace, u64::MAX).len(), 0);
    assert_eq!(trace.definitions().string(StringId(1)), "weights");
    assert_eq!(trace.completeness().losses, [(msmemscope_event::LossReason::StackMissing, 5)]);
    assert_eq!((trace.completeness().closed, trace.closed_monotonic_ns()), (true, Some(1_002)));
}

#[test]
fn room_made_meanwhile_is_told() {
    let recording = Recording::new(false, 24 * 256 * 1024 + 4096);
    let mut chunk = recording.chunk(1, 1_000);
    let mut trace = Trace::open(&recording.path).expect("trace");
    let mut number = 0;
    loop {
        let fact = if number % 2 == 0 { allocation(512, 512) } else { free(512) };
        if append(&mut chunk, 1_000 + number, &fact) {
            number += 1;
            continue;
        }
        recording.file.seal_chunk(chunk);
        match recording.file.allocate_chunk(1, 1_000 + number) {
            Ok(next) => chunk = next,
            Err(_) => break,
        }
    }
    assert!(trace.catch_up(u64::MAX).expect("the trace can be read").is_some());
    assert!(recording.file.compact(std::slice::from_ref(&(0..u64::MAX)), 1_000 + number) > 0);
    assert!(trace.catch_up(u64::MAX).expect("the trace can be read").is_none());
}
