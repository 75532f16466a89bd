//! How full a card is when the driver refuses an allocation.
//!
//! Only device management (DCMI) knows what other processes hold. It is asked once per refusal, just
//! before the refusal is written down, so that the two can be read together. The answer is a fact like
//! any other; a job without device management goes on without it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use msmemscope_device_management::DeviceManagement;
use msmemscope_event::{Device, Fact};

use crate::{clock, errno, stack_room, thread};

/// A job that fails in a loop must not spend its time here.
const SMALLEST_INTERVAL_NS: u64 = 10_000_000;
/// Stack that must be left for that.
const LOADING_BYTES: usize = 64 << 10;

static MANAGEMENT: OnceLock<Option<DeviceManagement>> = OnceLock::new();
static IS_ASKING: AtomicBool = AtomicBool::new(false);
static LATEST_NS: AtomicU64 = AtomicU64::new(0);

/// How full a card is.
#[derive(Clone, Copy, Debug)]
pub struct CardMemory {
    /// Bytes that nobody holds.
    pub free_bytes: u64,
    /// All of them.
    pub total_bytes: u64,
}

/// Writes down how full the card of a device is, if somebody can tell, and gives it back.
#[cold]
pub fn sample(device: Device) -> Option<CardMemory> {
    let Device::Npu(number) = device else { return None };
    let now = clock::monotonic_ns();
    if now.saturating_sub(LATEST_NS.load(Ordering::Relaxed)) < SMALLEST_INTERVAL_NS {
        return None;
    }
    // Device management may have to be loaded, with all it does by itself then.
    if !stack_room::has(LOADING_BYTES) {
        return None;
    }
    // One at a time, and never from within itself.
    if IS_ASKING.swap(true, Ordering::Acquire) {
        return None;
    }
    LATEST_NS.store(now, Ordering::Relaxed);
    let asked = errno::aside(|| MANAGEMENT.get_or_init(DeviceManagement::load).as_ref()?.memory_of(number));
    if let Some(memory) = &asked {
        thread::record_now(&Fact::CardSample {
            device,
            used_bytes: memory.used_bytes,
            process_bytes: memory.bytes_of(std::process::id()),
            total_bytes: memory.total_bytes,
        });
    }
    IS_ASKING.store(false, Ordering::Release);
    asked.map(|memory| CardMemory {
        free_bytes: memory.total_bytes.saturating_sub(memory.used_bytes),
        total_bytes: memory.total_bytes,
    })
}
