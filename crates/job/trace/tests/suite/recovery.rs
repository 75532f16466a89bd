//! A cut or damaged file gives back every complete record and names what is missing.

use msmemscope_trace::layout::{CHUNK_BYTES, CHUNK_HEADER_BYTES, FILE_HEADER_BYTES, chunk_offset};
use msmemscope_trace::{Damage, Trace, TraceError};

use crate::support::{Recording, allocation, append, read_all, sample_facts};

/// A small recording and, for every record, the file offset behind it.
fn small_recording() -> (Vec<u8>, Vec<usize>) {
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(3, 1_000);
    let mut ends = Vec::new();
    for (time, fact) in sample_facts() {
        assert!(append(&mut chunk, time, &fact));
        let bytes = recording.bytes();
        let committed = FILE_HEADER_BYTES + chunk_offset::COMMITTED_BYTES;
        let committed_bytes = u32::from_le_bytes(bytes[committed..committed + 4].try_into().expect("four bytes"));
        ends.push(FILE_HEADER_BYTES + CHUNK_HEADER_BYTES + committed_bytes as usize);
    }
    (recording.bytes(), ends)
}

#[test]
fn a_file_cut_at_any_byte_keeps_every_complete_record() {
    let (bytes, ends) = small_recording();
    let whole = read_all(&Trace::from_bytes(bytes.clone()).expect("trace"));
    let last_end = *ends.last().expect("records");
    for cut in 0..=last_end + 10 {
        let trace = match Trace::from_bytes(bytes[..cut].to_vec()) {
            Ok(trace) => trace,
            Err(error) => {
                assert!(cut < FILE_HEADER_BYTES, "cut at {cut}: {error}");
                let expected = if cut == 0 { "not a msmemscope trace" } else { "ends inside its header" };
                assert!(error.to_string().contains(expected), "cut at {cut}: {error}");
                continue;
            }
        };
        let complete = ends.iter().filter(|&&end| end <= cut).count();
        assert_eq!(read_all(&trace), whole[..complete], "cut at {cut}");
        let expected_damage = if cut >= last_end {
            vec![]
        } else if cut < FILE_HEADER_BYTES + CHUNK_HEADER_BYTES {
            vec![Damage::ChunkMissing { chunk: 0 }]
        } else {
            vec![Damage::ChunkCut { chunk: 0, missing_bytes: (last_end - cut) as u64 }]
        };
        assert_eq!(trace.completeness().damage, expected_damage, "cut at {cut}");
    }
}

/// Small generator of reproducible numbers; the tests need no better one.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// Three chunks of one thread after each other, and the number of records up to each.
fn large_recording() -> (Vec<u8>, u64) {
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(3, 1_000);
    let mut written = 0u64;
    let mut sealed = 0;
    while sealed < 3 {
        if append(&mut chunk, 1_000 + 11 * written, &allocation(written * 4096, 1 + written)) {
            written += 1;
        } else {
            sealed += 1;
            recording.file.seal_chunk(chunk);
            chunk = recording.chunk(3, 1_000 + 11 * written);
        }
    }
    (recording.bytes(), written)
}

#[test]
fn a_large_file_cut_anywhere_keeps_a_prefix() {
    let (bytes, written) = large_recording();
    let mut numbers = Numbers(42);
    let mut fewest_before = written;
    let mut cuts: Vec<usize> = (0..10_000).map(|_| FILE_HEADER_BYTES + numbers.next(3 * CHUNK_BYTES)).collect();
    cuts.sort_unstable_by_key(|&cut| std::cmp::Reverse(cut));
    // One buffer, cut shorter and shorter: the number of records can only fall.
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("cut.trace");
    std::fs::write(&path, &bytes).expect("copy");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("copy");
    for (number, cut) in cuts.into_iter().enumerate() {
        file.set_len(cut as u64).expect("cut");
        let trace = Trace::open(&path).expect("trace");
        let records = trace.completeness().records;
        assert!(records <= fewest_before, "cut at {cut}");
        // At most one record per byte is missing, and the shortest record has more than four.
        assert!(records * 16 + 4 * 64 + 32 >= (cut - FILE_HEADER_BYTES) as u64, "cut at {cut}: {records}");
        assert!(!trace.completeness().is_complete());
        fewest_before = records;
        if number % 500 == 0 {
            let mut stream = trace.records();
            let mut seen = 0u64;
            while let Some(record) = stream.next() {
                assert_eq!(record.fact, allocation(seen * 4096, 1 + seen));
                seen += 1;
            }
            assert_eq!(seen, records);
        }
    }
}

#[test]
fn flipped_bits_never_panic_and_are_noticed() {
    let (bytes, _) = small_recording();
    let used = FILE_HEADER_BYTES + CHUNK_HEADER_BYTES + 600;
    let mut numbers = Numbers(7);
    for _ in 0..5_000 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + numbers.next(4) {
            let position = numbers.next(used);
            damaged[position] ^= 1 << numbers.next(8);
        }
        if let Ok(trace) = Trace::from_bytes(damaged) {
            read_all(&trace);
        }
    }
    let (mut sealed, _) = large_recording();
    sealed[FILE_HEADER_BYTES + CHUNK_HEADER_BYTES + 100] ^= 4;
    let trace = Trace::from_bytes(sealed).expect("trace");
    assert!(trace.completeness().damage.contains(&Damage::ChecksumMismatch { chunk: 0 }));
}

#[test]
fn zeroed_pages_are_reported_as_torn() {
    let (mut bytes, ends) = small_recording();
    let from = ends[4];
    let lost_bytes = (ends.last().expect("records") - from) as u64;
    bytes[from..].fill(0);
    let trace = Trace::from_bytes(bytes).expect("trace");
    assert_eq!(read_all(&trace).len(), 5);
    let offset = (from - FILE_HEADER_BYTES - CHUNK_HEADER_BYTES) as u64;
    assert_eq!(trace.completeness().damage, [Damage::RecordTorn { chunk: 0, offset, lost_bytes }]);
}

#[test]
fn other_files_are_refused_by_name() {
    assert!(matches!(Trace::from_bytes(vec![]), Err(TraceError::NotATrace)));
    assert!(matches!(Trace::from_bytes(b"SQLite format 3\0".to_vec()), Err(TraceError::NotATrace)));
    let (mut bytes, _) = small_recording();
    bytes[8] = 9;
    assert!(matches!(Trace::from_bytes(bytes.clone()), Err(TraceError::Version { major: 9 })));
    bytes[8] = 1;
    bytes[16..20].copy_from_slice(&7u32.to_le_bytes());
    assert!(matches!(Trace::from_bytes(bytes), Err(TraceError::HeaderDamaged { .. })));
}

#[test]
fn an_existing_file_is_never_overwritten() {
    let recording = Recording::new(false, u64::MAX);
    let again = msmemscope_trace::writer::TraceFile::create(
        crate::support::c_path(&recording.path),
        &crate::support::IDENTITY,
        u64::MAX,
    );
    assert_eq!(again.err(), Some(libc::EEXIST));
}
