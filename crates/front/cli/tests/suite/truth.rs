//! Compares recordings with what the stand-in device says it did.

use std::path::Path;

use standin_truth::{Entry, Kind, TruthError, read_file};

use crate::support::{Recorded, Row, attribute, column};

/// One call on driver memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub is_allocation: bool,
    pub address: u64,
    pub size_bytes: u64,
}

/// Everything the device logged, in order. A process killed at its very first call leaves an empty log.
pub fn read_log(directory: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    for item in std::fs::read_dir(directory).expect("a log directory") {
        match read_file(&item.expect("listing").path()) {
            Ok(mut file) => entries.append(&mut file.entries),
            Err(TruthError::NotALog(_)) => {}
            Err(TruthError::Io(_, error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
            Err(error) => panic!("{error}"),
        }
    }
    entries.sort_by_key(|entry| entry.record.sequence);
    entries
}

/// Successful allocations and frees of driver memory of one process, in order.
pub fn true_calls(log: &Path, process_id: u32) -> Vec<Call> {
    let call = |entry: &Entry| {
        let is_allocation = match entry.record.kind {
            Kind::HalAlloc => true,
            Kind::HalFree => false,
            _ => return None,
        };
        let done = entry.process == process_id && entry.record.result == 0;
        done.then_some(Call { is_allocation, address: entry.record.address, size_bytes: entry.record.size_bytes })
    };
    read_log(log).iter().filter_map(call).collect()
}

/// The same from the rows of a recording, without the frees that were added at the end.
pub fn recorded_calls(recorded: &Recorded) -> Vec<Call> {
    let is_call = |row: &&Row| {
        row[column::TYPE] == "HAL" && !(row[column::EVENT] == "FREE" && row[column::ATTRIBUTES].contains("shadow:true"))
    };
    let rows = recorded.rows("csv");
    let call = |row: &Row| Call {
        is_allocation: row[column::EVENT] == "MALLOC",
        address: u64::from_str_radix(row[column::ADDRESS].trim_start_matches("0x"), 16).expect("an address"),
        size_bytes: attribute(row, "size").and_then(|size| size.parse().ok()).expect("a size"),
    };
    rows.iter().filter(is_call).map(call).collect()
}

/// Asserts that nothing is missing: a killed single-threaded process may have been inside one call.
#[track_caller]
pub fn assert_nothing_lost(recorded: &[Call], truth: &[Call], was_killed: bool) {
    let common = recorded.len().min(truth.len());
    assert!(recorded[..common] == truth[..common], "the calls differ");
    let difference = recorded.len().abs_diff(truth.len());
    let allowed = usize::from(was_killed);
    assert!(difference <= allowed, "{} recorded, {} happened", recorded.len(), truth.len());
}
