//! From the counter of a card to the host's clock.
//!
//! A card counts with a crystal of its own. Both clocks are compared when the card's channel is opened and about every
//! second from then on; a moment of the card is placed on a line through two comparisons, the later of which is never
//! far from it. Until two are far enough apart, the frequency that the card says it has must do.
//!
//! Every comparison moves the line a little, but must not change the order of moments: what lies before the latest
//! moment placed so far stays on the lines that were used up to there, whenever it is read.

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Counter of the card.
    pub ticks: u64,
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
}

/// Time between comparisons.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Time after the first comparison at which the second is worth making: comparisons are some 100 microseconds off.
const FIRST_INTERVAL_NS: u64 = 500_000_000;
/// Comparisons this far apart tell the speed of the counter so well that the earlier one is replaced.
const LONGEST_BASE_NS: u64 = 10_000_000_000;
/// A counter whose speed differs from the nominal one by more than this part was set anew in between.
const TOLERATED_PART: u64 = 8;
/// Lines that are remembered, for streams that are read late.
const MOST_SECTIONS: usize = 8;

/// The clock of one card.
#[derive(Debug)]
pub struct DeviceClock {
    nominal_kilohertz: u64,
    /// In order of time; only the first `section_count` are in use, at least one.
    sections: [Section; MOST_SECTIONS],
    section_count: usize,
    /// The latest moment that was placed, if any.
    placed: Option<Comparison>,
    /// Nanoseconds added to what is placed from now on; see [`DeviceClock::changes_hands`].
    later_by_ns: u64,
}

/// A part of the card's time that is on one line.
#[derive(Clone, Copy, Debug)]
struct Section {
    /// The moment after which it begins. The first one has no beginning.
    from: Comparison,
    line: Line,
}

/// Two comparisons, the same twice if there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    earlier: Comparison,
    latest: Comparison,
}

impl DeviceClock {
    /// A clock of which one moment is known.
    pub fn new(nominal_kilohertz: u64, first: Comparison) -> Self {
        let section = Section { from: first, line: Line { earlier: first, latest: first } };
        Self {
            nominal_kilohertz: nominal_kilohertz.max(1),
            sections: [section; MOST_SECTIONS],
            section_count: 1,
            placed: None,
            later_by_ns: 0,
        }
    }

    /// Whether it is time to compare again.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let Line { earlier, latest } = self.line();
        let interval_ns = if earlier == latest { FIRST_INTERVAL_NS } else { INTERVAL_NS };
        now_ns.saturating_sub(latest.monotonic_ns) >= interval_ns
    }

    /// Both clocks were compared again.
    pub fn compared(&mut self, comparison: Comparison) {
        let Line { earlier, latest } = self.line();
        let passed_ns = comparison.monotonic_ns.saturating_sub(latest.monotonic_ns);
        let passed_ticks = comparison.ticks.wrapping_sub(latest.ticks);
        let expected_ticks = (u128::from(passed_ns) * u128::from(self.nominal_kilohertz) / 1_000_000) as u64;
        let is_steady = passed_ticks > 0 && passed_ticks.abs_diff(expected_ticks) <= expected_ticks / TOLERATED_PART;
        if !is_steady && comparison.ticks < self.placed.map_or(latest.ticks, |placed| placed.ticks) {
            *self = Self { later_by_ns: self.later_by_ns, ..Self::new(self.nominal_kilohertz, comparison) };
            return;
        }
        let has_long_base = latest.monotonic_ns - earlier.monotonic_ns >= LONGEST_BASE_NS;
        let earlier = match (is_steady, has_long_base) {
            (false, _) => comparison,
            (true, false) => earlier,
            (true, true) => latest,
        };
        self.continue_on(Line { earlier, latest: comparison });
    }

    /// What comes after the latest moment placed so far is on this line.
    fn continue_on(&mut self, line: Line) {
        let current = &mut self.sections[self.section_count - 1];
        let from = match self.placed {
            Some(placed) if self.section_count == 1 || placed.ticks > current.from.ticks => placed,
            _ => return current.line = line, // Nothing is on the current line.
        };
        if self.section_count == MOST_SECTIONS {
            self.sections.rotate_left(1);
            self.section_count -= 1;
        }
        self.sections[self.section_count] = Section { from, line };
        self.section_count += 1;
    }

    /// From now on another thread writes down what is placed. Records of two threads at the same time have no order, so
    /// what it writes is never at the same time as what was written before.
    pub fn changes_hands(&mut self) {
        self.later_by_ns += 1;
    }

    /// When the counter had this value. A later value is never placed before an earlier one, in whatever order streams
    /// are read.
    pub fn place(&mut self, ticks: u64) -> u64 {
        let sections = &self.sections[..self.section_count];
        let index = sections.iter().rposition(|section| section.from.ticks < ticks).unwrap_or_default();
        let mut monotonic_ns = self.on_line(&sections[index].line, ticks);
        if index > 0 {
            monotonic_ns = monotonic_ns.max(sections[index].from.monotonic_ns);
        }
        if let Some(next) = sections.get(index + 1) {
            monotonic_ns = monotonic_ns.min(next.from.monotonic_ns);
        }
        if self.placed.is_none_or(|placed| ticks >= placed.ticks) {
            self.placed = Some(Comparison { ticks, monotonic_ns });
        }
        monotonic_ns + self.later_by_ns
    }

    fn line(&self) -> Line {
        self.sections[self.section_count - 1].line
    }

    fn on_line(&self, line: &Line, ticks: u64) -> u64 {
        let Line { earlier, latest } = line;
        let distance_ticks = ticks.wrapping_sub(latest.ticks).cast_signed();
        let base_ticks = latest.ticks.wrapping_sub(earlier.ticks).cast_signed();
        let (base_ns, base_ticks) = match base_ticks {
            0 => (1_000_000, self.nominal_kilohertz.cast_signed()),
            ticks => ((latest.monotonic_ns - earlier.monotonic_ns).cast_signed(), ticks),
        };
        let distance_ns = match distance_ticks.checked_mul(base_ns) {
            Some(product) => product / base_ticks,
            None => (i128::from(distance_ticks) * i128::from(base_ns) / i128::from(base_ticks)) as i64,
        };
        latest.monotonic_ns.saturating_add_signed(distance_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An hour in which the crystal warms up and cools down, with comparisons that are a little off.
    #[test]
    fn an_hour_of_wandering_drift_stays_within_a_millisecond() {
        for (kilohertz, jitter_ns) in [(50_000u64, 0), (50_000, 150_000), (1_000, 150_000), (1_000_000, 20_000)] {
            let (mut ticks, mut now_ns) = (7_000_000_000_000_000f64, 5_000_000_000u64);
            let mut random = 12345u64;
            let mut clock = DeviceClock::new(kilohertz, Comparison { ticks: ticks as u64, monotonic_ns: now_ns });
            let mut worst_ns = 0;
            let mut unread: Vec<(u64, u64)> = Vec::new();
            for step in 0..3_600u64 * 10 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let drift_ppm = 60.0 + 40.0 * (step as f64 / 3_000.0).sin();
                now_ns += 100_000_000;
                ticks += 100.0 * kilohertz as f64 * (1.0 + drift_ppm / 1e6);
                unread.push((ticks as u64, now_ns));
                if clock.is_due(now_ns) && !step.is_multiple_of(7) {
                    let off_ns = (random >> 33) % (jitter_ns + 1);
                    clock.compared(Comparison { ticks: ticks as u64, monotonic_ns: now_ns + off_ns });
                }
                for (ticks, true_ns) in unread.drain(..) {
                    worst_ns = worst_ns.max(clock.place(ticks).abs_diff(true_ns));
                }
            }
            assert!(worst_ns < 1_000_000, "{kilohertz} kHz: {worst_ns} ns");
        }
    }

    #[test]
    fn the_nominal_frequency_serves_until_there_is_a_second_comparison() {
        let mut clock = DeviceClock::new(50_000, Comparison { ticks: 1_000, monotonic_ns: 1_000_000 });
        assert_eq!(clock.place(950), 999_000);
        assert_eq!(clock.place(1_050), 1_001_000);
        assert!(!clock.is_due(500_000_000) && clock.is_due(501_000_000));
        clock.compared(Comparison { ticks: 25_501_000, monotonic_ns: 501_000_000 });
        assert!(!clock.is_due(1_500_000_000) && clock.is_due(1_501_000_000));
        assert_eq!(clock.place(1_000), 1_000_000);
        assert_eq!(clock.place(25_501_051), 501_001_000);
        // The next comparison says that this was earlier; what comes next is not placed before it.
        assert_eq!(clock.place(76_501_000), 1_501_000_000);
        clock.compared(Comparison { ticks: 76_501_000, monotonic_ns: 1_500_000_000 });
        assert_eq!(clock.place(76_501_050), 1_501_000_000);
        assert_eq!(clock.place(76_500_949), 1_500_999_000);
        assert!(clock.place(76_601_000) > 1_501_000_000);
    }

    /// Streams are read in turns, so one of them may be behind when the line moves, by more than one comparison, and
    /// comparisons are off by anything.
    #[test]
    fn what_is_read_late_keeps_its_order() {
        let mut random = 99u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % limit
        };
        for _ in 0..200 {
            let mut clock = DeviceClock::new(1_000, Comparison { ticks: 0, monotonic_ns: below(50_000_000) });
            let mut placed: [Vec<(u64, u64)>; 3] = Default::default();
            let mut streams_ticks = [0u64; 3];
            let mut now_ns = 0;
            for _ in 0..12 {
                now_ns += 400_000_000 + below(900_000_000);
                if below(3) > 0 {
                    let comparison = Comparison { ticks: now_ns / 1_000, monotonic_ns: now_ns + below(20_000_000) };
                    clock.compared(comparison);
                }
                for _ in 0..below(40) {
                    let stream = below(3) as usize;
                    streams_ticks[stream] += below(3).pow(2) * below(100_000);
                    let ticks = streams_ticks[stream];
                    placed[stream].push((ticks, clock.place(ticks)));
                }
            }
            for stream in &placed {
                assert!(stream.is_sorted_by_key(|(_, monotonic_ns)| *monotonic_ns), "{stream:?}");
            }
            let mut all = placed.concat();
            all.sort_unstable();
            assert!(all.is_sorted_by_key(|(_, monotonic_ns)| *monotonic_ns), "{all:?}");
        }
    }

    #[test]
    fn two_threads_never_write_at_the_same_time() {
        let mut clock = DeviceClock::new(1_000, Comparison { ticks: 0, monotonic_ns: 0 });
        let (start_ns, late_ns) = (clock.place(7), clock.place(5));
        clock.changes_hands();
        assert!(clock.place(7) > start_ns && clock.place(5) > late_ns && clock.place(5) < start_ns);
    }

    #[test]
    fn a_counter_that_was_set_anew_does_not_bend_time() {
        let mut clock = DeviceClock::new(50_000, Comparison { ticks: 900_000_000, monotonic_ns: 1_000_000_000 });
        clock.compared(Comparison { ticks: 50, monotonic_ns: 2_000_000_000 });
        assert_eq!(clock.place(100), 2_000_001_000);
    }
}
