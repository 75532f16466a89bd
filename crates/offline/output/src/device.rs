//! Where the files of a device are.

use std::path::PathBuf;

use msmemscope_event::Device;

/// Where the files of a device go, below the directory of the process.
pub(crate) fn dump_directory(device: Device) -> PathBuf {
    PathBuf::from(format!("device_{device}")).join("dump")
}
