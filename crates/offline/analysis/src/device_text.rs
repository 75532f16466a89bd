//! Devices and pools as text, the way dump files spell them.

use msmemscope_event::{Device, Pool};
use serde::Serializer;

/// Writes a device as text.
pub(crate) fn device_text<S: Serializer>(device: &Device, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(device)
}

/// Writes a pool as its event type.
pub(crate) fn pool_text<S: Serializer>(pool: &Pool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(pool.event_type())
}
