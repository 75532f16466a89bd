//! Others touch the file while it is being written, or it cannot be written any more.

use msmemscope_event::LossReason;
use msmemscope_trace::Trace;
use msmemscope_trace::writer::{ChunkError, Incident};

use crate::support::{Recording, allocation, append, free, read_all};

#[test]
fn what_cannot_be_flushed_is_counted() {
    let recording = Recording::new(true, 1 << 30);
    let mut chunk = recording.chunk(1, 1_000);
    for number in 0..10 {
        assert!(append(&mut chunk, 1_001 + number, &allocation(number, 8)));
    }
    recording.file.flush_chunk(&chunk).expect("a flush");
    for number in 10..15 {
        assert!(append(&mut chunk, 1_001 + number, &allocation(number, 8)));
    }
    std::fs::remove_file(&recording.path).expect("a file");
    recording.file.seal_chunk(chunk);
    assert_eq!(recording.file.loss_count(LossReason::TraceUnavailable), 5);
}

#[test]
fn recording_goes_on_in_a_copy_that_took_the_place_of_the_file() {
    let recording = Recording::new(false, 1 << 30);
    let mut chunk = recording.chunk(1, 1_000);
    assert!(append(&mut chunk, 1_001, &allocation(1, 8)));
    let other = recording.path.with_extension("copy");
    std::fs::copy(&recording.path, &other).expect("a copy");
    std::fs::rename(&other, &recording.path).expect("a file that is replaced");
    assert!(append(&mut chunk, 1_002, &free(1)));
    let mut next = recording.chunk(1, 1_003);
    assert_eq!((recording.file.take_incident(), recording.file.take_incident()), (Some(Incident::Replaced), None));
    assert!(append(&mut next, 1_003, &allocation(2, 8)));
    recording.file.seal_chunk(chunk);
    recording.file.flush_chunk(&next).expect("a flush");
    recording.file.close(1_004);
    let trace = Trace::open(&recording.path).expect("a trace");
    assert!(trace.completeness().is_complete() && trace.completeness().buffered);
    let times: Vec<u64> = read_all(&trace).iter().map(|record| record.monotonic_ns).collect();
    assert_eq!(times, [1_001, 1_002, 1_003]);
}

#[test]
fn another_file_in_its_place_is_left_alone() {
    let recording = Recording::new(false, 1 << 30);
    std::fs::remove_file(&recording.path).expect("a file");
    std::fs::write(&recording.path, "somebody's own").expect("a file");
    let refused = recording.file.allocate_chunk(1, 1_000).err();
    assert_eq!(refused, Some(ChunkError::System(libc::ESTALE)));
    assert_eq!(recording.bytes(), b"somebody's own");
}

#[test]
fn a_file_that_was_cut_is_as_long_again_and_the_loss_is_counted() {
    let recording = Recording::new(false, 1 << 30);
    for thread_id in 1..4 {
        let mut chunk = recording.chunk(thread_id, 1_000);
        assert!(append(&mut chunk, 1_001, &allocation(u64::from(thread_id), 8)));
        recording.file.seal_chunk(chunk);
    }
    let length = recording.bytes().len() as u64;
    let file = std::fs::File::options().write(true).open(&recording.path).expect("a file");
    file.set_len(100).expect("a cut");
    let mut chunk = recording.chunk(4, 1_002);
    assert!(append(&mut chunk, 1_003, &allocation(9, 8)));
    assert_eq!(recording.file.take_incident(), Some(Incident::Cut));
    assert!(recording.bytes().len() as u64 > length);
    let trace = Trace::open(&recording.path).expect("a trace");
    assert_eq!(trace.completeness().losses, [(LossReason::TraceUnavailable, 3)]);
    assert!(!trace.completeness().is_complete());
    let times: Vec<u64> = read_all(&trace).iter().map(|record| record.monotonic_ns).collect();
    assert_eq!(times, [1_003]);
}
