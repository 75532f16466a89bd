//! What PyTorch's caching pool holds on each device, as the trace knows it.
//!
//! The pool tells with every block that comes or goes, and nearly always the same: that is not written down again. It
//! tells under the lock of the device's allocator, so nobody else tells about the same device meanwhile. What is kept
//! here is what the current recording was told last: another one, as after a fork, knows nothing yet, and a message that
//! could not be written was not told. Whether recording was paused in between makes no difference.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::owner;

/// Devices whose totals are kept; the messages of others are all written down.
const DEVICES: usize = 64;

struct Told {
    /// The recording that knows the total.
    generation: AtomicU64,
    total_bytes: AtomicU64,
}

static TOLD: [Told; DEVICES] =
    [const { Told { generation: AtomicU64::new(owner::NOBODY), total_bytes: AtomicU64::new(0) } }; DEVICES];

/// Whether somebody withdraws heaps, which torch_npu never does: then every one of them matters.
static ARE_WITHDRAWN: AtomicBool = AtomicBool::new(false);

/// Whether the trace knows already that the pool holds this much on a device.
#[inline(always)]
pub fn is_known(device_id: u32, total_bytes: u64) -> bool {
    let Some(told) = TOLD.get(device_id as usize) else { return false };
    let generation = owner::generation();
    told.total_bytes.load(Ordering::Relaxed) == total_bytes
        && told.generation.load(Ordering::Relaxed) == generation
        && generation != owner::NOBODY
        && !ARE_WITHDRAWN.load(Ordering::Relaxed)
}

/// The pool has told how much it holds, and that was written down or not.
pub fn note(device_id: u32, total_bytes: u64, is_written: bool) {
    let Some(told) = TOLD.get(device_id as usize) else { return };
    let generation = if is_written { owner::generation() } else { owner::NOBODY };
    told.total_bytes.store(total_bytes, Ordering::Relaxed);
    told.generation.store(generation, Ordering::Relaxed);
}

/// A heap is withdrawn by its address.
pub fn withdrawn() {
    ARE_WITHDRAWN.store(true, Ordering::Relaxed);
}
