//! A progress bar on the terminal, shown only when there is enough to wait for.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use msmemscope_config::Variant;
use msmemscope_results::finishing::Progress;

/// Less work is done before a bar could be read.
const WORTH_A_BAR: u64 = 200_000;
/// Steps between two updates.
const UPDATE_INTERVAL: u64 = 10_000;

/// A bar that appears with the first report of much work and goes away with the value.
pub struct Bar {
    bar: ProgressBar,
    activity: &'static str,
    shown: u64,
}

impl Bar {
    /// A bar for an activity, not shown yet.
    pub fn new(activity: &'static str) -> Self {
        Self { bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()), activity, shown: 0 }
    }

    /// This much of the whole is done.
    pub fn show(&mut self, done: u64, total: u64) {
        if total >= WORTH_A_BAR && self.bar.length().is_none() {
            let program = Variant::from_program_name(&std::env::args_os().next().unwrap_or_default()).program_name();
            let template = format!("[{program}] {} {{bar:30}} {{percent:>3}} %  {{eta}}", self.activity);
            let style = ProgressStyle::with_template(&template);
            self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.bar.set_length(total);
            // Draws only if standard error is a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.enable_steady_tick(Duration::from_millis(200));
        }
        if done >= self.shown + UPDATE_INTERVAL {
            self.shown = done;
            self.bar.set_position(done);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// One bar after the other, for one activity each.
#[derive(Default)]
pub struct Bars {
    current: Option<Bar>,
}

impl Progress for Bars {
    fn start(&mut self, activity: &'static str) {
        self.current = Some(Bar::new(activity));
    }

    fn show(&mut self, done: u64, total: u64) {
        if let Some(bar) = &mut self.current {
            bar.show(done, total);
        }
    }
}

/// Bytes of a trace for each step of a bar: about those of an event.
const BYTES_PER_STEP: u64 = 10;

/// One bar for work that is done side by side, measured by the bytes of the traces.
pub struct SharedBar {
    bar: Mutex<(Bar, u64)>,
    total: u64,
}

impl SharedBar {
    /// A bar for an activity with traces of this many bytes in all, not shown yet.
    pub fn new(activity: &'static str, total_bytes: u64) -> Self {
        Self { bar: Mutex::new((Bar::new(activity), 0)), total: total_bytes / BYTES_PER_STEP }
    }

    /// The part of the work that a trace of this size is.
    pub fn part(&self, size_bytes: u64) -> BarPart<'_> {
        BarPart { bar: self, steps: size_bytes / BYTES_PER_STEP, told: 0 }
    }

    fn advance(&self, steps: u64) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.1 += steps;
        let done = bar.1;
        bar.0.show(done, self.total);
    }
}

/// A part of the work of a [`SharedBar`], which is done when this goes.
pub struct BarPart<'a> {
    bar: &'a SharedBar,
    steps: u64,
    told: u64,
}

impl BarPart<'_> {
    fn tell(&mut self, steps: u64) {
        // Not for every event: others wait meanwhile.
        if steps >= self.told + UPDATE_INTERVAL || steps == self.steps {
            self.bar.advance(steps.saturating_sub(self.told));
            self.told = self.told.max(steps);
        }
    }
}

impl Progress for BarPart<'_> {
    /// The bar says what all parts do.
    fn start(&mut self, _activity: &'static str) {}

    fn show(&mut self, done: u64, total: u64) {
        let share = done.min(total) as f64 / total.max(1) as f64;
        self.tell((share * self.steps as f64) as u64);
    }
}

impl Drop for BarPart<'_> {
    fn drop(&mut self) {
        self.tell(self.steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let bar = SharedBar::new("testing", 40_000_000);
        for parts in [10, 3] {
            let mut part = bar.part(20_000_000);
            (0..=parts).for_each(|done| part.show(done, parts));
        }
        assert_eq!(bar.bar.into_inner().expect("nobody panicked").1, 4_000_000);
    }
}
