//! The counter of each card: a clock of its own, with its own frequency, epoch and drift.
//!
//! The counter is a function of the host's monotonic clock, so that whoever converts it back can be judged. What a card
//! says about its frequency is the nominal one; the counter runs faster or slower by the drift, as crystals do.

use standin_support::number_from_environment;

const DEFAULT_KILOHERTZ: u64 = 50_000;
const DEFAULT_DRIFT_PPM: u64 = 20;
/// Frequencies of neighbouring cards differ by this much.
const STEP_KILOHERTZ: u64 = 500;
/// Counters of neighbouring cards began this many ticks apart.
const STEP_EPOCH_TICKS: u64 = 1_000_000_000_000;

/// How the cards' counters run.
pub struct DeviceClock {
    kilohertz: u64,
    drift_ppm: u64,
    offset_ticks: u64,
}

impl DeviceClock {
    /// As `STANDIN_CLOCK_KHZ`, `STANDIN_CLOCK_DRIFT_PPM` and `STANDIN_CLOCK_OFFSET_TICKS` say.
    pub fn from_environment() -> Self {
        Self {
            kilohertz: number_from_environment("STANDIN_CLOCK_KHZ", DEFAULT_KILOHERTZ).clamp(1, 10_000_000),
            drift_ppm: number_from_environment("STANDIN_CLOCK_DRIFT_PPM", DEFAULT_DRIFT_PPM).min(100_000),
            offset_ticks: number_from_environment("STANDIN_CLOCK_OFFSET_TICKS", 0),
        }
    }

    /// The frequency that a card says it has.
    pub fn nominal_kilohertz(&self, device: u32) -> u64 {
        self.kilohertz + u64::from(device) * STEP_KILOHERTZ
    }

    /// The counter of a card at a moment of the host's monotonic clock. Every second card is slow, the others are fast.
    pub fn ticks_at(&self, device: u32, monotonic_ns: u64) -> u64 {
        let million_parts =
            if device.is_multiple_of(2) { 1_000_000 + self.drift_ppm } else { 1_000_000 - self.drift_ppm };
        let ticks_per_1e12_ns = u128::from(self.nominal_kilohertz(device)) * u128::from(million_parts);
        let ticks = u128::from(monotonic_ns) * ticks_per_1e12_ns / 1_000_000_000_000;
        (ticks as u64 + STEP_EPOCH_TICKS * (u64::from(device) + 1)).wrapping_add(self.offset_ticks)
    }
}

/// The host's clock.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure given; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::DeviceClock;

    #[test]
    fn counters_differ_in_epoch_frequency_and_drift() {
        let clock = DeviceClock { kilohertz: 50_000, drift_ppm: 20, offset_ticks: 0 };
        let second = |device| clock.ticks_at(device, 1_000_000_000) - clock.ticks_at(device, 0);
        assert_eq!((second(0), second(1)), (50_001_000, 50_498_990));
        assert_eq!(clock.ticks_at(3, 0), 4_000_000_000_000);
        assert_eq!(clock.nominal_kilohertz(2), 51_000);
    }
}
