//! The part of a pass summary that belongs into JSON.

use msmemscope_timeline::Summary;
use serde::Serializer;
use serde_json::json;

/// Writes peaks and ends of all pools.
pub(crate) fn serialize<S: Serializer>(summary: &Summary, serializer: S) -> Result<S::Ok, S::Error> {
    let pool = |pool: &msmemscope_timeline::PoolSummary| {
        json!({
            "pool": pool.pool.event_type(),
            "device": pool.device.to_string(),
            "peak_used_bytes": pool.peak_used_bytes,
            "peak_timestamp_ns": pool.peak_timestamp_ns,
            "end_used_bytes": pool.end_used_bytes,
            "peak_total_bytes": pool.peak_total_bytes,
            "allocations": pool.allocations,
            "frees": pool.frees,
        })
    };
    let pools: Vec<_> = summary.pools.iter().map(pool).collect();
    let value = json!({
        "events": summary.events_shown,
        "steps": summary.steps,
        "live_blocks": summary.live_blocks,
        "pools": pools,
    });
    serde::Serialize::serialize(&value, serializer)
}
