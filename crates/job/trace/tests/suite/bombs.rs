//! Files that cost little to make: reading them takes time and memory in proportion to what they take on disk.

use std::time::{Duration, Instant};

use msmemscope_event::{Fact, ModuleId, StringId};
use msmemscope_trace::layout::{CHUNK_BYTES, CHUNK_HEADER_BYTES, FILE_HEADER_BYTES, chunk_offset, file_offset};
use msmemscope_trace::{Damage, MOST_DAMAGE_SHOWN, Trace, TraceError};

use crate::support::{Recording, append, read_all, sample_facts};

/// Far more than any of these files may take, far less than they take if their size counts.
const LONG: Duration = Duration::from_secs(8);

#[test]
fn holes_are_not_read() {
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(3, 1_000);
    for (time, fact) in sample_facts() {
        assert!(append(&mut chunk, time, &fact));
    }
    let whole = read_all(&Trace::open(&recording.path).expect("trace"));
    let file = std::fs::File::options().write(true).open(&recording.path).expect("trace");
    // The same chunk again behind a hole of many gigabytes, and another hole.
    let place = FILE_HEADER_BYTES as u64 + (CHUNK_BYTES as u64) * 1_000_000;
    let bytes = recording.bytes();
    let copy = &bytes[FILE_HEADER_BYTES..][..CHUNK_BYTES];
    std::os::unix::fs::FileExt::write_all_at(&file, copy, place).expect("written");
    file.set_len(8 << 40).expect("a file of holes");
    let begin = Instant::now();
    let trace = Trace::open(&recording.path).expect("trace");
    assert_eq!(read_all(&trace).len(), 2 * whole.len());
    assert_eq!(trace.completeness().damage, []);
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
}

#[test]
fn damaged_places_are_counted_and_the_first_ones_kept() {
    const RECORD: [u8; 2] = [1, 1]; // A kind without its fields.
    let recording = Recording::new(false, u64::MAX);
    let _chunk = recording.chunk(3, 1_000);
    let mut bytes = recording.bytes();
    let committed_bytes = CHUNK_BYTES - CHUNK_HEADER_BYTES;
    bytes[FILE_HEADER_BYTES + chunk_offset::COMMITTED_BYTES..][..4]
        .copy_from_slice(&(committed_bytes as u32).to_le_bytes());
    let records = &mut bytes[FILE_HEADER_BYTES + CHUNK_HEADER_BYTES..][..committed_bytes];
    records.as_chunks_mut::<2>().0.fill(RECORD);
    // The header also speaks of chunks that the file does not have.
    bytes[file_offset::CHUNKS_ALLOCATED..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let chunks_in_file = (bytes.len() - FILE_HEADER_BYTES).div_ceil(CHUNK_BYTES) as u64;
    let trace = Trace::from_bytes(bytes).expect("trace");
    let completeness = trace.completeness();
    let missing_chunks = u64::from(u32::MAX) - chunks_in_file;
    assert!(completeness.damaged_places >= committed_bytes as u64 / 2 + missing_chunks);
    assert!(completeness.damaged_places <= committed_bytes as u64 / 2 + missing_chunks + 2);
    assert_eq!(completeness.damage.len(), MOST_DAMAGE_SHOWN);
    assert!(completeness.damage.contains(&Damage::RecordDamaged { chunk: 0, offset: 2 }));
    assert!(!completeness.is_complete());
}

#[test]
fn modules_that_go_again_and_again_are_found_at_once() {
    const MODULES: u32 = 200_000;
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(3, 1_000);
    let mut add = |fact: &Fact<'_>| {
        if !append(&mut chunk, 2_000, fact) {
            chunk = recording.chunk(3, 1_000);
            assert!(append(&mut chunk, 2_000, fact));
        }
    };
    for module in 0..MODULES {
        let start_address = u64::from(module) * 4096;
        add(&Fact::DefineModule {
            id: ModuleId(module),
            start_address,
            end_address: start_address + 4096,
            load_bias: 0,
            path: StringId::NONE,
            build_id: b"",
        });
    }
    for _ in 0..MODULES {
        add(&Fact::ModuleGone { id: ModuleId(0) });
    }
    let begin = Instant::now();
    let trace = Trace::open(&recording.path).expect("trace");
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
    let modules = trace.definitions().modules();
    assert_eq!((modules[0].gone_monotonic_ns, modules[1].gone_monotonic_ns), (Some(2_000), None));
    let begin = Instant::now();
    for module in 1..MODULES {
        let found = trace.definitions().module_at(u64::from(module) * 4096 + 5, 2_000);
        assert_eq!(found.map(|module| module.id.0), Some(module));
    }
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
}

#[test]
fn chunks_larger_than_any_writer_makes_are_refused() {
    let recording = Recording::new(false, u64::MAX);
    let mut bytes = recording.bytes();
    bytes[file_offset::CHUNK_BYTES..][..4].copy_from_slice(&(64u32 << 20).to_le_bytes());
    let error = Trace::from_bytes(bytes).err().expect("an error");
    assert!(matches!(error, TraceError::HeaderDamaged { .. }), "{error}");
}
