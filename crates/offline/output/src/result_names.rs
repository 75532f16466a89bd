//! Names of result files below the directory of a process: what they are, and whether a path is one.

use std::path::{Path, PathBuf};

use msmemscope_event::Device;

use crate::device::dump_directory;
use crate::python_trace::Callers;
use crate::watch_rows::watch_directory;

/// What event tables are called, by the name the program was started under.
const PREFIXES: [&str; 2] = ["memscope", "leaks"];
const TIMESTAMP_DIGITS: usize = 14;

/// The table of a device.
pub(crate) fn table_path(device: Device, prefix: &str, timestamp: &str, extension: &str) -> PathBuf {
    dump_directory(device).join(format!("{prefix}_dump_{timestamp}.{extension}"))
}

/// The Python calls of a thread, or of all that have no file of their own.
pub(crate) fn python_path(device: Device, callers: Callers, timestamp: &str) -> PathBuf {
    dump_directory(device).join(format!("python_trace_{callers}_{timestamp}.csv"))
}

/// The checksums of watched blocks.
pub(crate) fn watch_path(device: Device, timestamp: &str) -> PathBuf {
    watch_directory(device).join(format!("watch_dump_data_check_sum_{device}_{timestamp}.csv"))
}

/// Whether a text is a timestamp as file names carry it.
pub(crate) fn is_timestamp(text: &str) -> bool {
    text.len() == TIMESTAMP_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a path is one of those that the functions above make: what its parts say is put together again and compared.
pub(crate) fn is_result_path(path: &Path, timestamp: &str) -> bool {
    let Some(text) = path.to_str().and_then(|text| text.strip_prefix("device_")) else { return false };
    let Some(device) = device_at_start(text) else { return false };
    let name = text.rsplit('/').next().unwrap_or_default();
    let callers = name.strip_prefix("python_trace_").and_then(|rest| match rest.split('_').next()? {
        "others" => Some(Callers::Others),
        digits => digits.parse().ok().map(Callers::Thread),
    });
    let tables = PREFIXES.into_iter().flat_map(|prefix| {
        ["csv", "db"].into_iter().map(move |extension| table_path(device, prefix, timestamp, extension))
    });
    let calls = callers.map(|callers| python_path(device, callers, timestamp));
    // Compared as text: paths that differ in dots and slashes only count as equal.
    tables.chain(calls).chain([watch_path(device, timestamp)]).any(|known| known.as_os_str() == path.as_os_str())
}

/// The device whose text, with a slash behind it, a path starts with.
fn device_at_start(text: &str) -> Option<Device> {
    let card = text.split('/').next().and_then(|digits| digits.parse().ok()).map(Device::Npu);
    let is_at_start =
        |device: &Device| text.strip_prefix(&device.to_string()).is_some_and(|rest| rest.starts_with('/'));
    card.into_iter().chain([Device::Host, Device::Unknown]).find(is_at_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_known() {
        let timestamp = "20250102030405";
        for device in [Device::Npu(0), Device::Npu(31), Device::Host, Device::Unknown] {
            for path in [
                table_path(device, "memscope", timestamp, "csv"),
                table_path(device, "leaks", timestamp, "db"),
                python_path(device, Callers::Thread(4711), timestamp),
                python_path(device, Callers::Others, timestamp),
                watch_path(device, timestamp),
            ] {
                assert!(is_result_path(&path, timestamp), "{path:?}");
                assert!(!is_result_path(&path, "20250102030406"), "{path:?}");
            }
        }
        assert!(!is_result_path(Path::new("device_007/dump/memscope_dump_20250102030405.csv"), timestamp));
        assert!(!is_result_path(Path::new("device_0//dump/memscope_dump_20250102030405.csv"), timestamp));
    }
}
