//! Cut and corrupted traces: whatever can be read is written, and nothing panics.

use std::fs;

use msmemscope_event::{BlockProperties, CodeId, Device, Fact, Pool, PythonCallPhase, RecordingState, StringId};
use msmemscope_output::{FinishOptions, Formats, finish};
use msmemscope_trace::TRACE_FILE_NAME;

use crate::support::Recording;

const HEADER_BYTES: usize = 4096 + 64;

/// A recording with one of everything, and where its records end.
fn colourful() -> (Recording, usize) {
    let mut recording = Recording::with_wall_offset(1_700_000_000_000_000_000);
    let name = recording.string("some name");
    let device = Device::Npu(0);
    let properties = BlockProperties::framework(Pool::PytorchCaching, device);
    recording.record(1, Fact::Recording { state: RecordingState::Shadow });
    recording.record(2, Fact::HeapRegistered { properties, address: 0x1000, size_bytes: 4096 });
    for number in 0..12u64 {
        let address = 0x1000 * (number % 5 + 1);
        recording.record(10 + 3 * number, Fact::Allocation { properties, address, size_bytes: 100 + number });
        if number % 3 == 0 {
            recording.record(11 + 3 * number, Fact::Free { properties, address });
        }
        if number == 6 {
            recording.record(30, Fact::Recording { state: RecordingState::On });
        }
        let call = if number % 2 == 0 { PythonCallPhase::NamedBegin } else { PythonCallPhase::End };
        recording.record(12 + 3 * number, Fact::PythonCall { phase: call, code: CodeId::NONE, name });
    }
    recording.record(60, Fact::RangeBegin { domain: StringId::NONE, device, range_id: 1, message: b"step start" });
    recording.record(61, Fact::Step { device, number: 1 });
    recording.record(62, Fact::RangeEnd { domain: StringId::NONE, device, range_id: 1 });
    recording.record(63, Fact::LabelAddress { address: 0x1000, level: 3, label: name });
    recording.close(70);
    let bytes = fs::read(recording.path().join(TRACE_FILE_NAME)).expect("trace");
    let committed = u32::from_le_bytes(bytes[4096 + 12..4096 + 16].try_into().expect("four bytes"));
    (recording, HEADER_BYTES + committed as usize)
}

/// Finishes a trace with these bytes; gives the number of rows.
fn rows_of(bytes: &[u8], formats: Formats) -> Option<u64> {
    let directory = tempfile::tempdir().expect("temporary directory");
    fs::write(directory.path().join(TRACE_FILE_NAME), bytes).expect("writable");
    let options = FinishOptions { formats, owners: true, ..FinishOptions::default() };
    let report = finish(directory.path(), &options, &mut |_, _| {}).ok()?;
    for file in report.files.iter().filter(|file| file.path.extension().is_some_and(|known| known == "csv")) {
        let mut reader = csv::Reader::from_path(&file.path).expect("csv");
        let rows = reader.records().filter(|record| record.is_ok()).count();
        assert_eq!(rows as u64, file.rows, "every row has all columns");
    }
    Some(report.rows)
}

const CSV: Formats = Formats { csv: true, database: false };

#[test]
fn a_trace_cut_anywhere_gives_its_rows() {
    let (recording, end) = colourful();
    let bytes = fs::read(recording.path().join(TRACE_FILE_NAME)).expect("trace");
    let mut previous = 0;
    for cut in (HEADER_BYTES..end).step_by(2).chain([end]) {
        let rows = rows_of(&bytes[..cut], CSV).expect("a header is all it takes");
        assert!(rows + 2 >= previous, "more of the trace gives more rows ({previous} then {rows} at {cut})");
        previous = rows;
    }
    assert_eq!(Some(previous), rows_of(&bytes, CSV));
    for cut in [0, 1, 8, 100, 4095] {
        assert_eq!(rows_of(&bytes[..cut], CSV), None);
    }
}

#[test]
fn corrupted_bytes_never_panic() {
    let (recording, end) = colourful();
    let original = fs::read(recording.path().join(TRACE_FILE_NAME)).expect("trace");
    for (number, position) in (4096..end).step_by(3).enumerate() {
        let mut bytes = original[..end].to_vec();
        bytes[position] = [0x00, 0x7f, 0xff, bytes[position] ^ 0x55][number % 4];
        rows_of(&bytes, Formats { csv: true, database: number % 8 == 0 });
    }
}
