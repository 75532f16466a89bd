//! The runtime's state in this process, and the device of each thread.

use crate::driver::{drvGetDevNum, halGetDeviceInfo};
use crate::error::RuntimeError;
use crate::event::Events;
use crate::kernel::Kernel;
use crate::stream::Stream;
use crate::task_reports::TaskIdentity;
use standin_support::ProcessCell;
use standin_truth::{Kind, Record, TruthWriter};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Everything the runtime knows in this process.
pub struct State {
    /// Logical to physical device ids.
    visible_devices: Vec<u32>,
    /// Device that threads use which never chose one; -1 for none.
    default_device: AtomicI32,
    /// Streams by handle.
    pub streams: RwLock<HashMap<u64, Arc<Stream>>>,
    /// The stream behind a null handle, per logical device.
    pub default_streams: Mutex<HashMap<i32, Arc<Stream>>>,
    /// Events by handle.
    pub events: RwLock<Events>,
    /// Whether every piece of work is waited for at once (`ASCEND_LAUNCH_BLOCKING=1`).
    pub blocking: bool,
    /// Whether cards of this kind count tasks for all their streams together.
    pub counts_tasks_by_card: bool,
    log: Option<TruthWriter>,
}

static STATE: ProcessCell<State> = ProcessCell::new();

thread_local! {
    static CURRENT_DEVICE: Cell<i32> = const { Cell::new(-1) };
}

/// The state of this process.
pub fn state() -> &'static State {
    STATE.get(|| State {
        visible_devices: visible_devices(),
        default_device: AtomicI32::new(-1),
        streams: RwLock::new(HashMap::new()),
        default_streams: Mutex::new(HashMap::new()),
        events: RwLock::default(),
        counts_tasks_by_card: std::env::var("STANDIN_SOC").is_ok_and(|soc| soc.contains("950") || soc.contains("960")),
        log: TruthWriter::from_environment("runtime"),
        blocking: std::env::var("ASCEND_LAUNCH_BLOCKING").is_ok_and(|value| value.trim() == "1"),
    })
}

/// Physical ids of the devices this process may use: all, or those of `ASCEND_RT_VISIBLE_DEVICES` up to the first
/// that does not exist.
fn visible_devices() -> Vec<u32> {
    let mut count = 0;
    // SAFETY: writes one number.
    unsafe { drvGetDevNum(&raw mut count) };
    match std::env::var("ASCEND_RT_VISIBLE_DEVICES") {
        Ok(list) if !list.trim().is_empty() => {
            list.split(',').map_while(|item| item.trim().parse().ok()).take_while(|device| *device < count).collect()
        }
        _ => (0..count).collect(),
    }
}

impl State {
    /// Number of devices this process may use.
    pub fn device_count(&self) -> u32 {
        self.visible_devices.len() as u32
    }

    /// Physical id of a logical device.
    pub fn physical_device(&self, logical: i32) -> Result<u32, RuntimeError> {
        let index = usize::try_from(logical).map_err(|_| RuntimeError::InvalidDevice)?;
        self.visible_devices.get(index).copied().ok_or(RuntimeError::InvalidDevice)
    }

    /// The counter of a card now, if that is logged.
    pub fn card_clock(&self, device: u32) -> u64 {
        const COUNTER: i32 = 13;
        let mut ticks = 0i64;
        if self.log.is_some() {
            // SAFETY: writes one number.
            unsafe { halGetDeviceInfo(device, 0, COUNTER, &raw mut ticks) };
        }
        ticks.cast_unsigned()
    }

    /// Writes down what happens to a kernel, now or at a moment given.
    pub fn log_kernel(
        &self,
        kind: Kind,
        identity: TaskIdentity,
        kernel: &Kernel,
        ticks: u64,
        time_ns: Option<u64>,
        result: i32,
    ) {
        let Some(log) = &self.log else { return };
        let stamp = log.stamp();
        let record = Record {
            kind,
            text_bytes: 0,
            sequence: stamp.sequence,
            time_ns: time_ns.unwrap_or(stamp.time_ns),
            address: u64::from(identity.stream) << 32 | u64::from(identity.task),
            size_bytes: ticks,
            flags: u64::from(kernel.task_type.0),
            device: identity.device.cast_signed(),
            result,
            thread: 0,
        };
        log.append(record, Some(kernel.name.to_bytes()));
    }

    /// Makes `device` the device of threads that have none.
    pub fn set_default_device(&self, device: i32) {
        self.default_device.store(device, Ordering::Release);
    }

    /// Logical device of the calling thread.
    pub fn current_device(&self) -> Result<i32, RuntimeError> {
        let own = CURRENT_DEVICE.get();
        let device = if own >= 0 { own } else { self.default_device.load(Ordering::Acquire) };
        if device >= 0 { Ok(device) } else { Err(RuntimeError::NoContext) }
    }
}

/// Sets the device of the calling thread; -1 takes it away.
pub fn set_current_device(device: i32) {
    CURRENT_DEVICE.set(device);
}

/// Locks, ignoring that another thread may have panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
