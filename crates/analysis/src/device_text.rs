//! Devices and pools as text, the way dump files spell them.

use msmemscope_event::{Device, Pool};
use serde::Serializer;

use crate::text::Style;

/// Writes a device as text.
pub(crate) fn device_text<S: Serializer>(device: &Device, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(device)
}

/// Writes a pool as its event type.
pub(crate) fn pool_text<S: Serializer>(pool: &Pool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(pool.event_type())
}

/// What a pool is called in leak reports.
pub(crate) fn pool_name_in_reports(pool: Pool, style: Style) -> &'static str {
    match pool {
        Pool::PytorchCaching if style == Style::Classic => "Pytorch memory pool",
        Pool::Hal => "Hal memory",
        Pool::PytorchCaching => "Pytorch Caching memory pool",
        Pool::PytorchWorkspace => "Pytorch Workspace memory pool",
        Pool::Mindspore => "Mindspore memory pool",
        Pool::Atb => "ATB memory pool",
        Pool::HostPinned => "Host pinned memory",
        Pool::HostTensor => "Host memory",
        Pool::Unknown => "unknown pool",
    }
}
