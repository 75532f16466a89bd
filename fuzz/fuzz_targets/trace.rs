//! Any bytes behind a valid header: the reader must neither panic nor loop, its two passes must agree, and every analysis
//! of what was read comes to an end.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use msmemscope_analysis::{Questions, analyze};
use msmemscope_event::Fact;
use msmemscope_import::Recording;
use msmemscope_trace::Trace;
use msmemscope_trace::layout::{CHUNK_BYTES, FILE_HEADER_BYTES, FILE_MAGIC, VERSION_MAJOR, file_offset};

fuzz_target!(|input: &[u8]| {
    let mut bytes = vec![0; FILE_HEADER_BYTES];
    bytes[..8].copy_from_slice(&FILE_MAGIC);
    bytes[file_offset::VERSION_MAJOR..][..2].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
    bytes[file_offset::HEADER_BYTES..][..4].copy_from_slice(&(FILE_HEADER_BYTES as u32).to_le_bytes());
    bytes[file_offset::CHUNK_BYTES..][..4].copy_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
    bytes.extend_from_slice(input);
    let trace = Trace::from_bytes(bytes).expect("the header is valid");
    let mut stream = trace.records();
    let mut records = 0;
    while let Some(record) = stream.next() {
        records += u64::from(!matches!(record.fact, Fact::Thread { .. }));
    }
    assert_eq!(records, trace.completeness().records);
    let recording = Recording::Trace { trace: Box::new(trace), path: PathBuf::new() };
    let _ = analyze(&recording, &Questions::all(), &mut |_, _| {});
});
