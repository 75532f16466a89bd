//! How devices are spelled in cells and directories.

use std::path::PathBuf;

use msmemscope_event::Device;

use crate::text::push_number;

/// Appends the text of the `Device Id` column.
#[inline]
pub(crate) fn push_device(out: &mut Vec<u8>, device: Device) {
    match device {
        Device::Npu(id) => push_number(out, u64::from(id)),
        Device::Host => out.extend_from_slice(b"cpu"),
        Device::Unknown => out.extend_from_slice(b"N/A"),
    }
}

/// Where the files of a device go, below the directory of the process.
pub(crate) fn dump_directory(device: Device) -> PathBuf {
    PathBuf::from(format!("device_{device}")).join("dump")
}
