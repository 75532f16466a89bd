//! Memory in use in the course of time, in a few windows however long it takes.

/// Windows at most. When there are more, two become one.
const MOST_WINDOWS: usize = 128;
/// The first windows are this long.
const SHORTEST_WINDOW_NS: u64 = 1_000_000;

/// The most that was in use in each of equally long windows.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    start_ns: u64,
    window_ns: u64,
    peaks_bytes: Vec<u64>,
    latest_bytes: u64,
}

impl Default for Course {
    fn default() -> Self {
        Self { start_ns: 0, window_ns: SHORTEST_WINDOW_NS, peaks_bytes: Vec::new(), latest_bytes: 0 }
    }
}

impl Course {
    /// From now on so much is in use.
    #[inline]
    pub(crate) fn note(&mut self, timestamp_ns: u64, used_bytes: u64) {
        if self.peaks_bytes.is_empty() {
            self.start_ns = timestamp_ns;
        }
        let since_start_ns = timestamp_ns.saturating_sub(self.start_ns);
        while since_start_ns / self.window_ns >= MOST_WINDOWS as u64 {
            self.widen();
        }
        let window = (since_start_ns / self.window_ns) as usize;
        if self.peaks_bytes.len() <= window {
            // Nothing has changed in between.
            self.peaks_bytes.resize(window + 1, self.latest_bytes);
        }
        self.peaks_bytes[window] = self.peaks_bytes[window].max(used_bytes);
        self.latest_bytes = used_bytes;
    }

    #[cold]
    fn widen(&mut self) {
        self.window_ns *= 2;
        self.peaks_bytes = self.peaks_bytes.chunks(2).map(|two| two.iter().copied().max().unwrap_or(0)).collect();
    }

    /// Nanoseconds of a window.
    pub(crate) fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// The most that was in use in each window, in order; the last may not be over.
    pub(crate) fn peaks_bytes(&self) -> &[u64] {
        &self.peaks_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_become_longer_and_keep_their_peaks() {
        let mut course = Course::default();
        for second in 0..1000u64 {
            course.note(7 + second * 1_000_000_000, second);
        }
        assert!(course.peaks_bytes().len() <= MOST_WINDOWS && course.peaks_bytes().is_sorted());
        assert_eq!(course.peaks_bytes().last(), Some(&999));
        let covered_ns = course.window_ns() * course.peaks_bytes().len() as u64;
        assert!((999_000_000_000..=2 * 999_000_000_000).contains(&covered_ns));
    }

    #[test]
    fn what_is_in_use_stays_so_while_nothing_happens() {
        let mut course = Course::default();
        course.note(0, 5);
        course.note(SHORTEST_WINDOW_NS * 4, 2);
        course.note(SHORTEST_WINDOW_NS * 6, 1);
        assert_eq!(course.peaks_bytes(), [5, 5, 5, 5, 5, 2, 2]);
    }
}
