//! JSON of speedscope: one profile per pool and kind of memory, over one table of frames.

use std::io::{self, Write};

use msmemscope_event::Pool;
use serde_json::{Value, json};

use crate::MemoryKind;
use crate::sites::Sites;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

pub(crate) fn write(sites: &Sites, out: &mut dyn Write) -> io::Result<()> {
    let frames: Vec<Value> = sites
        .frames
        .iter()
        .map(|frame| {
            let mut value = json!({ "name": frame.function });
            if !frame.file.is_empty() {
                value["file"] = json!(frame.file);
            }
            if frame.line > 0 {
                value["line"] = json!(frame.line);
            }
            value
        })
        .collect();
    let mut profiles = Vec::new();
    // Frameworks' pools say more than the driver's, which only has the blocks that those are made of.
    let (drivers, frameworks): (Vec<usize>, Vec<usize>) =
        (0..sites.pools.len()).partition(|&pool| sites.pools[pool].pool == Pool::Hal);
    for pool in frameworks.into_iter().chain(drivers) {
        for kind in MemoryKind::ALL {
            profiles.extend(profile(sites, pool, kind));
        }
    }
    if profiles.is_empty() {
        // The format wants one.
        profiles.push(sampled("no device memory", &[], &[]));
    }
    let file = json!({
        "$schema": SCHEMA,
        "exporter": concat!("msmemscope ", env!("CARGO_PKG_VERSION")),
        "name": "device memory",
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": profiles,
    });
    serde_json::to_writer(out, &file).map_err(io::Error::from)
}

/// What one pool has of a kind of memory; nothing if it has none.
fn profile(sites: &Sites, pool: usize, kind: MemoryKind) -> Option<Value> {
    let of_pool = sites.sites.iter().filter(|site| site.pool == pool && site.amount(kind).bytes > 0);
    let (samples, weights): (Vec<&[usize]>, Vec<u64>) =
        of_pool.map(|site| (site.frames.as_slice(), site.amount(kind).bytes)).unzip();
    let name = || format!("{}, {}", sites.pool_text(pool), kind.phrase());
    (!samples.is_empty()).then(|| sampled(&name(), &samples, &weights))
}

fn sampled(name: &str, samples: &[&[usize]], weights: &[u64]) -> Value {
    json!({
        "type": "sampled",
        "name": name,
        "unit": "bytes",
        "startValue": 0,
        "endValue": weights.iter().sum::<u64>(),
        "samples": samples,
        "weights": weights,
    })
}
