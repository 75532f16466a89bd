//! A progress bar on the terminal, shown only when there is enough to wait for.

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
