//! Whether a moment has come that the user wants to know of: judged again and again on what is seen of a running process.

use std::collections::VecDeque;
use std::time::Duration;

use msmemscope_analysis::fluctuation::is_framework_pool;
use msmemscope_analysis::live::LivePicture;
use msmemscope_config::{GrowthRate, Trigger};
use msmemscope_event::Device;

/// A peak is worth telling if it is higher than the last one by one of so many parts.
const PEAK_SHARE: u64 = 100;
/// Growth is measured between the least use in the first and in the last of so many parts of a time.
const PARTS: usize = 4;
/// A time that growth is measured over is one of so many parts of the time that a rule names, within limits.
const OBSERVED_SHARE: u32 = 12;
const SHORTEST_OBSERVATION: Duration = Duration::from_secs(10);
const LONGEST_OBSERVATION: Duration = Duration::from_secs(1800);

/// What matters of a process at one look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    /// Bytes in use on all cards: those of frameworks, or what came from the driver if there are none.
    pub used_bytes: u64,
    /// The most bytes that were in use.
    pub peak_bytes: u64,
    /// When memory was last refused; zero if never.
    pub latest_refusal_ns: u64,
}

impl Sight {
    /// What matters of all that is known.
    pub fn of(picture: &LivePicture) -> Self {
        let on_cards = || picture.pools.iter().filter(|pool| matches!(pool.device, Device::Npu(_)));
        let has_framework = on_cards().any(|pool| is_framework_pool(pool.pool) && pool.peak_bytes > 0);
        let meant = || on_cards().filter(|pool| is_framework_pool(pool.pool) == has_framework);
        Self {
            used_bytes: meant().map(|pool| pool.used_bytes).sum(),
            peak_bytes: meant().map(|pool| pool.peak_bytes).sum(),
            latest_refusal_ns: picture.latest_refusal_ns,
        }
    }
}

/// Judges one process by one rule.
#[derive(Debug)]
pub enum Judge {
    /// The time of the latest refusal that was told.
    OutOfMemory { told_ns: u64 },
    /// How memory in use grows.
    Growth(GrowthWatch),
    /// The highest peak that was told, and the limit if there is one.
    Peak { told_bytes: u64, limit_bytes: Option<u64> },
    /// Told by others.
    Never,
}

impl Judge {
    /// For a process that is new.
    pub fn new(trigger: Trigger) -> Self {
        match trigger {
            Trigger::OutOfMemory => Judge::OutOfMemory { told_ns: 0 },
            Trigger::Growth(rate) => Judge::Growth(GrowthWatch::new(rate)),
            Trigger::Peak(limit_bytes) => Judge::Peak { told_bytes: limit_bytes.unwrap_or(0), limit_bytes },
            Trigger::Signal | Trigger::End => Judge::Never,
        }
    }

    /// Whether the moment has come, at a time since the process was first seen.
    pub fn look(&mut self, at: Duration, sight: &Sight) -> bool {
        match self {
            Judge::OutOfMemory { told_ns } => {
                let is_new = sight.latest_refusal_ns > *told_ns;
                *told_ns = sight.latest_refusal_ns.max(*told_ns);
                is_new
            }
            Judge::Growth(growth) => growth.look(at, sight.used_bytes),
            Judge::Peak { told_bytes, limit_bytes } => {
                // A peak that is still rising is not told yet, a limit at once.
                let is_over = limit_bytes.is_some() || sight.used_bytes < sight.peak_bytes;
                let is_new = is_over
                    && sight.peak_bytes > *told_bytes + *told_bytes / PEAK_SHARE * u64::from(limit_bytes.is_none());
                if is_new {
                    *told_bytes = if limit_bytes.is_some() { u64::MAX } else { sight.peak_bytes };
                }
                is_new
            }
            Judge::Never => false,
        }
    }
}

/// Finds growth in what is in use: the least of a time, so that what steps take and give back does not count.
#[derive(Debug)]
pub struct GrowthWatch {
    rate: GrowthRate,
    observation: Duration,
    first_seen: Option<Duration>,
    /// Since when it is measured.
    measured_since: Option<Duration>,
    looks: VecDeque<(Duration, u64)>,
}

impl GrowthWatch {
    fn new(rate: GrowthRate) -> Self {
        let observation = Duration::from_secs(rate.seconds) / OBSERVED_SHARE;
        let observation = observation.clamp(SHORTEST_OBSERVATION, LONGEST_OBSERVATION);
        Self { rate, observation, first_seen: None, measured_since: None, looks: VecDeque::new() }
    }

    /// Whether memory grows faster than the rule allows, and has done so all the time.
    fn look(&mut self, at: Duration, used_bytes: u64) -> bool {
        let first_seen = *self.first_seen.get_or_insert(at);
        if at - first_seen < self.observation {
            return false; // A job that has just started builds up what it needs.
        }
        let measured_since = *self.measured_since.get_or_insert(at);
        self.looks.push_back((at, used_bytes));
        let start = at.saturating_sub(self.observation);
        while self.looks.front().is_some_and(|(time, _)| *time < start) {
            self.looks.pop_front();
        }
        if measured_since > start {
            return false;
        }
        let part = self.observation / PARTS as u32;
        let mut least = [None::<u64>; PARTS];
        for (time, bytes) in &self.looks {
            let index = ((*time - start).as_nanos() / part.as_nanos().max(1)) as usize;
            let least = &mut least[index.min(PARTS - 1)];
            *least = Some(least.map_or(*bytes, |least| least.min(*bytes)));
        }
        let [Some(first), .., Some(last)] = least else { return false };
        let always_grows = least.is_sorted() && least.iter().all(Option::is_some);
        let grown_bytes = last.saturating_sub(first) as f64;
        let seconds = (part * (PARTS as u32 - 1)).as_secs_f64();
        let is_too_fast = grown_bytes / seconds > self.rate.bytes as f64 / self.rate.seconds as f64;
        if always_grows && is_too_fast {
            self.looks.clear(); // The next time is another one.
            self.measured_since = None;
        }
        always_grows && is_too_fast
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(used_bytes: u64, peak_bytes: u64, latest_refusal_ns: u64) -> Sight {
        Sight { used_bytes, peak_bytes, latest_refusal_ns }
    }

    #[test]
    fn a_refusal_is_told_once() {
        let mut judge = Judge::new(Trigger::OutOfMemory);
        let refusals = [0, 7, 7, 9, 8, 9];
        let told = refusals.map(|latest_ns| judge.look(Duration::ZERO, &sight(1, 1, latest_ns)));
        assert_eq!(told, [false, true, false, true, false, false]);
    }

    #[test]
    fn peaks_are_told_when_they_are_over_and_limits_at_once() {
        let mut judge = Judge::new(Trigger::Peak(None));
        let mut told = |used_bytes, peak_bytes| judge.look(Duration::ZERO, &sight(used_bytes, peak_bytes, 0));
        assert_eq!([told(1000, 1000), told(500, 1000), told(500, 1005), told(500, 1011)], [false, true, false, true]);
        let mut judge = Judge::new(Trigger::Peak(Some(1000)));
        let mut told = |used_bytes, peak_bytes| judge.look(Duration::ZERO, &sight(used_bytes, peak_bytes, 0));
        assert_eq!([told(1000, 1000), told(1001, 1001), told(5000, 5000)], [false, true, false]);
    }

    /// Seconds after which growth is told, of a job that starts with 1 GiB and goes on as a function of the second says.
    fn told_at(rate: GrowthRate, seconds: u64, used_bytes: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut judge = Judge::new(Trigger::Growth(rate));
        let mut told = |second: &u64| judge.look(Duration::from_secs(*second), &sight(used_bytes(*second), 0, 0));
        (0..seconds).filter(|second| told(second)).collect()
    }

    #[test]
    fn growth_is_what_stays() {
        let rate = GrowthRate { bytes: 1 << 20, seconds: 1 };
        // Steps take and give back a GiB; two MiB stay of each second.
        let leaks = |second: u64| (second % 2) * (1 << 30) + second * (2 << 20);
        assert_eq!(told_at(rate, 21, leaks), [20]);
        assert_eq!(told_at(rate, 200, |second| (second % 7) * (1 << 30)), [0; 0]);
        // Slower than the rule says, only at the start, only once.
        assert_eq!(told_at(rate, 200, |second| second * (1 << 19)), [0; 0]);
        assert_eq!(told_at(rate, 200, |second| second.min(9) * (1 << 30)), [0; 0]);
        assert_eq!(told_at(rate, 200, |second| if second < 100 { 1 } else { 2 }), [0; 0]);
    }

    #[test]
    fn an_hour_is_judged_by_minutes() {
        let rate = GrowthRate::DEFAULT;
        let told = told_at(rate, 3600, |second| second * (1 << 20));
        assert!((590..620).contains(&told[0]), "{told:?}");
    }
}
