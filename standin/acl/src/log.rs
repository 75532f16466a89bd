//! The ground-truth log of the calls that end in AscendCL and do not reach the driver.

use standin_support::ProcessCell;
use standin_truth::{Kind, Record, TruthWriter};

static LOG: ProcessCell<Option<TruthWriter>> = ProcessCell::new();

/// Writes one call with its outcome.
pub fn log(kind: Kind, address: u64, size_bytes: u64, flags: u64, device: i32, result: i32) {
    if let Some(log) = LOG.get(|| TruthWriter::from_environment("ascendcl")) {
        let stamp = log.stamp();
        let record = Record {
            kind,
            text_bytes: 0,
            sequence: stamp.sequence,
            time_ns: stamp.time_ns,
            address,
            size_bytes,
            flags,
            device,
            result,
            thread: 0,
        };
        log.append(record, None);
    }
}
