//! JSON of the Firefox Profiler: a thread per pool and kind of memory, whose samples weigh bytes.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame as LabelledFrame, FrameFlags, FrameInfo, ProcessHandle, Profile,
    ReferenceTimestamp, SamplingInterval, Timestamp, WeightType,
};
use rustc_hash::FxHashMap;

use crate::MemoryKind;
use crate::sites::Sites;

/// Samples have no times; they come one after the other.
const INTERVAL_MS: u64 = 1;
/// The weight of a sample is a number of 32 bits.
const LARGEST_WEIGHT: u64 = i32::MAX as u64;

pub(crate) fn write(sites: &Sites, out: &mut dyn Write) -> io::Result<()> {
    let start = ReferenceTimestamp::from_system_time(UNIX_EPOCH + Duration::from_nanos(sites.first_ns));
    let mut profile = Profile::new("device memory", start, SamplingInterval::from_millis(INTERVAL_MS));
    // Nothing is left to be looked up by address.
    profile.set_symbolicated(true);
    let mut processes: FxHashMap<u32, ProcessHandle> = FxHashMap::default();
    let mut threads = 0;
    for (pool, of_process) in sites.pools.iter().enumerate() {
        let process_id = of_process.process_id;
        let process = *processes.entry(process_id).or_insert_with(|| {
            profile.add_process(&format!("process {process_id}"), process_id, Timestamp::from_nanos_since_reference(0))
        });
        for kind in MemoryKind::ALL {
            threads += u32::from(add_thread(&mut profile, process, threads, sites, pool, kind));
        }
    }
    serde_json::to_writer(out, &profile).map_err(io::Error::from)
}

/// Adds what one pool has of a kind of memory; false if it has none.
fn add_thread(
    profile: &mut Profile,
    process: ProcessHandle,
    number: u32,
    sites: &Sites,
    pool: usize,
    kind: MemoryKind,
) -> bool {
    let of_pool = || sites.sites.iter().filter(|site| site.pool == pool && site.amount(kind).bytes > 0);
    if of_pool().next().is_none() {
        return false;
    }
    // A main thread would be called like its process.
    let thread = profile.add_thread(process, number + 1, Timestamp::from_nanos_since_reference(0), false);
    profile.set_thread_name(thread, &format!("{}, {}", sites.pool_text(pool), kind.phrase()));
    profile.set_thread_samples_weight_type(thread, WeightType::Bytes);
    let mut samples = 0;
    for site in of_pool() {
        let labels: Vec<String> = site.frames.iter().map(|&frame| sites.frames[frame].describe()).collect();
        let frames: Vec<FrameInfo> = labels
            .iter()
            .map(|label| FrameInfo {
                frame: LabelledFrame::Label(profile.intern_string(label)),
                category_pair: CategoryHandle::OTHER.into(),
                flags: FrameFlags::empty(),
            })
            .collect();
        let stack = profile.intern_stack_frames(thread, frames.into_iter());
        let mut left_bytes = site.amount(kind).bytes;
        while left_bytes > 0 {
            let weight = left_bytes.min(LARGEST_WEIGHT);
            let moment = Timestamp::from_millis_since_reference((samples * INTERVAL_MS) as f64);
            profile.add_sample(thread, moment, stack, CpuDelta::ZERO, weight as i32);
            left_bytes -= weight;
            samples += 1;
        }
    }
    profile.set_thread_end_time(thread, Timestamp::from_millis_since_reference((samples * INTERVAL_MS) as f64));
    true
}
