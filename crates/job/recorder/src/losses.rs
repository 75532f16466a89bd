//! Counts what could not be recorded: in the trace if there is one, else here until there is.

use std::sync::atomic::{AtomicU64, Ordering};

use msmemscope_event::LossReason;
use msmemscope_trace::layout::LOSS_COUNTERS;

use crate::process;

static WAITING: [AtomicU64; LOSS_COUNTERS] = [const { AtomicU64::new(0) }; LOSS_COUNTERS];

/// Counts a loss. Safe in signal handlers.
#[cold]
pub fn count(reason: LossReason, count: u64) {
    match process::existing() {
        Some(process) => process.trace.count_loss(reason, count),
        None => {
            WAITING[reason as usize].fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// Losses counted so far.
pub fn counted(reason: LossReason) -> u64 {
    let waiting = WAITING[reason as usize].load(Ordering::Relaxed);
    waiting + process::existing().map_or(0, |process| process.trace.loss_count(reason))
}

/// Moves losses counted before there was a trace into it.
pub fn settle(process: &process::Process) {
    for &reason in LossReason::ALL {
        let count = WAITING[reason as usize].swap(0, Ordering::Relaxed);
        if count > 0 {
            process.trace.count_loss(reason, count);
        }
    }
}
