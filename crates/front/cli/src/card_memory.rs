//! Watches the memory of whole cards while a job runs, so that results can tell what other processes held.
//!
//! The supervisor asks, not the job: two driver calls per device cost milliseconds. What it saw is added to the
//! recordings once their processes have ended, joined by time and process id. Without a driver nothing happens.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use msmemscope_event::{Device, Fact};
use msmemscope_trace::{Trace, append_facts};

use msmemscope_device_management::{DeviceManagement, DeviceMemory};
use msmemscope_results::recordings::RecordingDirectory;

const INTERVAL: Duration = Duration::from_millis(250);
/// When this many samples are kept, every second one is given up and the interval doubled.
const MOST_SAMPLES: usize = 50_000;

/// A device at a moment: CLOCK_MONOTONIC nanoseconds and its memory.
type Sample = (u64, DeviceMemory);

#[derive(Default)]
struct Shared {
    samples: Mutex<Samples>,
    stop: Condvar,
}

#[derive(Default)]
struct Samples {
    kept: Vec<Sample>,
    stopped: bool,
}

/// The cards are being watched until this goes away.
pub struct CardWatch {
    shared: Arc<Shared>,
}

impl CardWatch {
    /// Begins to watch, in a thread: a driver that does not answer must not hold up the job or its end.
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        // Without a thread there are no samples; that is no reason to fail.
        let _ = std::thread::Builder::new().name("cards".to_owned()).spawn(move || watch(&for_thread));
        Self { shared }
    }

    /// Adds what was seen to a recording whose process has ended. Devices that it does not name are left out.
    pub fn add_to(&self, recording: &RecordingDirectory) -> Result<(), String> {
        let samples = self.shared.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.kept.is_empty() {
            return Ok(());
        }
        let path = recording.trace_path();
        let describe = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let trace = Trace::open(&path).map_err(|error| describe(&error))?;
        let range_ns = (trace.start_monotonic_ns(), trace.monotonic_range_ns().1);
        let facts = facts_of(&samples.kept, &trace.devices(), trace.process_id(), range_ns);
        append_facts(&path, &facts).map_err(|error| describe(&error))
    }
}

impl Drop for CardWatch {
    fn drop(&mut self) {
        self.shared.samples.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.shared.stop.notify_all();
    }
}

/// Asks the cards again and again, and keeps what changed.
fn watch(shared: &Shared) {
    let Some(management) = DeviceManagement::load() else { return };
    let mut latest: Vec<DeviceMemory> = Vec::new();
    let mut interval = INTERVAL;
    loop {
        let now_ns = monotonic_ns();
        let memory = management.memory();
        let mut samples = shared.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.stopped {
            return;
        }
        samples.kept.extend(changed(&memory, &latest).map(|device| (now_ns, device.clone())));
        if thin_out(&mut samples.kept, MOST_SAMPLES) {
            interval *= 2;
        }
        latest = memory;
        let waited = shared.stop.wait_timeout_while(samples, interval, |samples| !samples.stopped);
        if waited.unwrap_or_else(PoisonError::into_inner).0.stopped {
            return;
        }
    }
}

/// Devices that are not as they were.
fn changed<'a>(now: &'a [DeviceMemory], before: &'a [DeviceMemory]) -> impl Iterator<Item = &'a DeviceMemory> {
    now.iter().filter(|device| !before.contains(device))
}

/// Gives up every second sample of each device if there are too many; says whether it did.
fn thin_out(samples: &mut Vec<Sample>, most: usize) -> bool {
    if samples.len() < most {
        return false;
    }
    let mut seen = std::collections::HashMap::<u16, usize>::new();
    samples.retain(|(_, memory)| {
        let count = seen.entry(memory.device).or_default();
        *count += 1;
        *count % 2 == 1
    });
    true
}

/// What one process is told: its devices, within its time. What was seen last before it began counts from its
/// begin on. A device of which nothing is in use is none that can be asked.
fn facts_of(
    samples: &[Sample],
    devices: &[Device],
    process_id: u32,
    (start_ns, end_ns): (u64, u64),
) -> Vec<(u64, Fact<'static>)> {
    let mut facts = Vec::new();
    for &device in devices {
        let of_device = || samples.iter().filter(move |(_, memory)| Device::Npu(memory.device) == device);
        let before = of_device().rfind(|(time_ns, _)| *time_ns < start_ns);
        let within = of_device().filter(|(time_ns, _)| (start_ns..=end_ns).contains(time_ns));
        for (time_ns, memory) in before.into_iter().chain(within).filter(|(_, memory)| memory.used_bytes > 0) {
            let fact = Fact::CardSample {
                device,
                used_bytes: memory.used_bytes,
                process_bytes: memory.bytes_of(process_id),
                total_bytes: memory.total_bytes,
            };
            facts.push(((*time_ns).max(start_ns), fact));
        }
    }
    facts.sort_by_key(|(time_ns, _)| *time_ns);
    facts
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: plain system call into a valid structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(device: u16, used_bytes: u64, processes: &[(u32, u64)]) -> DeviceMemory {
        DeviceMemory { device, total_bytes: 100, used_bytes, processes: processes.to_vec() }
    }

    fn fact(device: u16, used_bytes: u64, process_bytes: u64) -> Fact<'static> {
        Fact::CardSample { device: Device::Npu(device), used_bytes, process_bytes, total_bytes: 100 }
    }

    #[test]
    fn a_process_learns_of_its_devices_within_its_time() {
        let samples = [
            (1, memory(0, 5, &[])),
            (2, memory(0, 9, &[(8, 9)])),
            (2, memory(3, 7, &[])),
            (12, memory(0, 20, &[(7, 11), (8, 9)])),
            (15, memory(1, 0, &[])),
            (31, memory(0, 9, &[(8, 9)])),
        ];
        let facts = facts_of(&samples, &[Device::Npu(0), Device::Npu(1), Device::Host], 7, (10, 30));
        assert_eq!(facts, [(10, fact(0, 9, 0)), (12, fact(0, 20, 11))]);
    }

    #[test]
    fn only_changes_are_kept_and_not_too_many() {
        let (before, now) = ([memory(0, 1, &[]), memory(1, 1, &[])], [memory(0, 1, &[]), memory(1, 2, &[])]);
        assert_eq!(changed(&now, &before).collect::<Vec<_>>(), [&now[1]]);
        let mut samples: Vec<Sample> = (0..8).map(|time| (time, memory((time % 2) as u16, time, &[]))).collect();
        assert!(!thin_out(&mut samples, 9));
        assert!(thin_out(&mut samples, 8));
        assert_eq!(samples.iter().map(|(time, _)| *time).collect::<Vec<_>>(), [0, 1, 4, 5]);
    }
}
