//! Out of memory where PyTorch has told which of its unused memory a request could have had.

use msmemscope_analysis::Questions;
use msmemscope_analysis::out_of_memory::OutOfMemoryReport;
use msmemscope_analysis::verdict::{Unusable, Verdict};
use msmemscope_event::{AllocationInterface, BlockProperties, Device, Fact, Pool, PoolRefusal, PoolSegment};
use msmemscope_report as text;

use crate::support::Traced;

const DEVICE: Device = Device::Npu(0);
const MEBIBYTE: u64 = 1 << 20;
const START: u64 = 0x1000_0000;
/// The stream that asks.
const STREAM: u64 = 5;

/// A pool of 300 MiB, of which 100 are in use, on a card of 400 MiB: PyTorch gives up a request for 150 MiB, of which the
/// driver has refused a page, and tells of its segments.
fn gives_up(segments: &[PoolSegment], told: u64) -> OutOfMemoryReport {
    let mut trace = Traced::new();
    let pool = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    let driver = BlockProperties { pool: Pool::Hal, interface: AllocationInterface::Create, ..pool };
    trace.record(Fact::Allocation { properties: driver, address: 0x10, size_bytes: 300 * MEBIBYTE });
    trace.record(Fact::HeapRegistered { properties: pool, address: 0x10, size_bytes: 300 * MEBIBYTE });
    let block = Fact::Allocation { properties: pool, address: START, size_bytes: 100 * MEBIBYTE };
    trace.record_at_line(block, "table", "/me/t.py", 4);
    let refused = Fact::AllocationFailed { properties: driver, size_bytes: 20 * MEBIBYTE, flag: 0, error: 6 };
    trace.record_at_line(refused, "main", "/me/t.py", 9);
    for segment in segments {
        trace.record(Fact::PoolSegment { device: DEVICE, segment: *segment });
    }
    let refusal = PoolRefusal {
        requested_bytes: 150 * MEBIBYTE,
        reserved_bytes: 300 * MEBIBYTE,
        free_bytes: 90 * MEBIBYTE,
        total_bytes: 400 * MEBIBYTE,
        limit_bytes: 0,
        stream: STREAM,
        segments: told,
    };
    trace.record(Fact::PoolRefusal { device: DEVICE, refusal });
    trace.ask(&Questions { out_of_memory: Some(3), ..Questions::default() }).out_of_memory.unwrap()
}

fn segment(unused_mebibytes: u64, largest_mebibytes: u64, stream: u64, traits: u32) -> PoolSegment {
    PoolSegment {
        address: START,
        size_bytes: 300 * MEBIBYTE,
        unused_bytes: unused_mebibytes * MEBIBYTE,
        largest_gap_bytes: largest_mebibytes * MEBIBYTE,
        stream,
        traits,
    }
}

/// What is said of a pool that looks like this.
fn said(segments: &[PoolSegment]) -> (Unusable, String, String) {
    let report = gives_up(segments, segments.len() as u64);
    let failure = report.decisive().unwrap();
    assert_eq!(failure.verdict, Verdict::Fragmentation);
    assert_eq!((failure.requested_bytes, failure.free_bytes), (150 * MEBIBYTE, Some(90 * MEBIBYTE)));
    assert_eq!((failure.card, failure.others_bytes), (Some((310 * MEBIBYTE, 400 * MEBIBYTE)), 10 * MEBIBYTE));
    let first = text::headline::out_of_memory(failure, None);
    assert!(first.starts_with("Out of memory on device 0: /me/t.py:9 main asked for 150 MiB. Reason: "), "{first}");
    let text::verdict::Reason { explanation, advice } = text::verdict::reason(failure);
    (failure.unusable(), format!("{first} {}", explanation.join(" ")), advice.join(" "))
}

const EXPANDABLE: u32 = PoolSegment::EXPANDABLE;
const SMALL: u32 = PoolSegment::SMALL_BLOCKS;

#[test]
fn gaps_where_the_request_could_go_would_do_together() {
    let (unusable, said, advice) = said(&[segment(200, 12, STREAM, EXPANDABLE)]);
    assert_eq!(unusable, Unusable::InPieces);
    let gaps = "200 MiB of it lie in segments for larger blocks of the stream that asked; the largest gap has 12.0 MiB. \
                Segments can grow here (expandable_segments): only pages on which no block lies are given back. So it is \
                fragmentation: it would have fitted if the gaps were together.";
    assert!(said.ends_with(gaps), "{said}");
    assert!(said.contains("The driver (halMemCreate) was asked for 150 MiB on device 0, page by page."), "{said}");
    assert!(!advice.contains("stream"), "{advice}");
}

#[test]
fn what_another_stream_has_is_no_room_whether_in_pieces_or_whole() {
    for largest in [12, 160] {
        let (unusable, said, advice) = said(&[segment(160, largest, 6, EXPANDABLE), segment(40, 40, STREAM, SMALL)]);
        assert_eq!(unusable, Unusable::OnOtherStream);
        assert!(said.contains("Reason: the memory that is unused belongs to another stream; most"), "{said}");
        let gaps = format!(
            "160 MiB belong to another stream (held by blocks allocated at /me/t.py:4 table), the largest gap has \
             {largest}{} MiB: PyTorch gives memory only to the stream for which it was allocated.",
            if largest < 100 { ".0" } else { "" }
        );
        assert!(said.contains(&gaps) && !said.contains("together"), "{said}");
        assert!(said.contains("40.0 MiB lie in gaps of segments for small blocks, where a larger one cannot go."));
        let first = if largest < 100 {
            "Free the blocks allocated at /me/t.py:4 table before: what holds nothing is given back. Or use one stream"
        } else {
            "Allocate it on the stream to which the unused memory belongs, or free the blocks allocated at /me/t.py:4"
        };
        assert!(advice.starts_with(first), "{advice}");
    }
}

#[test]
fn blocks_of_another_size_are_told_also_where_segments_grow() {
    let (unusable, said, advice) = said(&[segment(200, 1, STREAM, SMALL | EXPANDABLE)]);
    assert_eq!(unusable, Unusable::InOtherClass);
    assert!(said.contains("Reason: fragmentation: only small blocks find room; most"), "{said}");
    let gaps = "200 MiB lie in gaps of segments for small blocks (held by blocks allocated at /me/t.py:4 table), where a \
                larger one cannot go.";
    assert!(said.contains(gaps) && !said.contains("together"), "{said}");
    assert!(advice.starts_with("Free the blocks allocated at /me/t.py:4 table before"), "{advice}");
}

#[test]
fn what_graphs_keep_and_what_may_not_be_split_is_told() {
    let (unusable, text, advice) = said(&[segment(200, 180, STREAM, PoolSegment::PRIVATE)]);
    assert_eq!(unusable, Unusable::InPrivatePool);
    assert!(text.contains("200 MiB are kept for graphs or for pools of the job's own (held by"), "{text}");
    assert!(advice.contains("torch.npu.MemPool"), "{advice}");
    let (unusable, text, advice) = said(&[segment(200, 180, STREAM, 0)]);
    assert_eq!(unusable, Unusable::Unsplit);
    assert!(text.contains("may not be split (max_split_size_mb)") && advice.contains("max_split_size_mb"), "{text}");
}

#[test]
fn segments_are_left_out_if_some_were_not_recorded() {
    let report = gives_up(&[segment(160, 160, 6, 0)], 2);
    let failure = report.decisive().unwrap();
    assert!(!failure.knows_classes() && failure.requested_bytes == 150 * MEBIBYTE);
}
