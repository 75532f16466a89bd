//! What is recorded right now: one word that every hook reads.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use msmemscope_event::RecordingState;

use crate::clock;

/// Set once and for good when the recorder must not or can no longer work.
const DISABLED: u32 = u32::MAX;

static LAST_CHANGE_NS: AtomicU64 = AtomicU64::new(0);
static STATE: AtomicU32 = AtomicU32::new(RecordingState::Off as u32);
/// Whether anything was recorded that somebody asked for, in this process or before its fork.
static WAS_WANTED: AtomicBool = AtomicBool::new(false);

/// The times in which only what was alive at their end mattered, in order; the last may not have ended.
static PAUSES: Mutex<Vec<Range<u64>>> = Mutex::new(Vec::new());
const LONGEST_WAIT_FOR_PAUSES_NS: u64 = 100_000_000;

/// Whether allocations and frees are recorded.
#[inline(always)]
pub fn records_blocks() -> bool {
    let state = STATE.load(Ordering::Relaxed);
    state == RecordingState::On as u32 || state == RecordingState::Shadow as u32
}

/// Whether everything else is recorded.
#[inline(always)]
pub fn records_everything() -> bool {
    STATE.load(Ordering::Relaxed) == RecordingState::On as u32
}

/// The state; a disabled recorder is off.
pub fn current() -> RecordingState {
    match STATE.load(Ordering::Relaxed) {
        DISABLED => RecordingState::Off,
        state => RecordingState::from_code(u64::from(state)),
    }
}

/// Changes the state and returns the former one, or nothing if the recorder is disabled.
pub fn change(state: RecordingState) -> Option<RecordingState> {
    let now_ns = clock::monotonic_ns();
    LAST_CHANGE_NS.store(now_ns, Ordering::Relaxed);
    if state == RecordingState::On {
        note_wanted();
    }
    if state != RecordingState::Shadow {
        // Before anybody records more than what is alive.
        with_pauses(|pauses| {
            if let Some(latest) = pauses.last_mut() {
                latest.end = latest.end.min(now_ns);
            }
        });
    }
    let update = |before| (before != DISABLED).then_some(state as u32);
    let before = STATE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).ok()?;
    Some(RecordingState::from_code(u64::from(before)))
}

/// The trace knows from now on that only what is alive matters.
pub fn pause_began() {
    let now_ns = clock::monotonic_ns();
    with_pauses(|pauses| pauses.push(now_ns..u64::MAX));
}

/// The times of each of which only what is alive at its end matters, in order; the last may not have ended. Events
/// outside them matter.
pub fn pauses() -> Vec<Range<u64>> {
    with_pauses(|pauses| pauses.clone()).unwrap_or_default()
}

/// Nothing if the list cannot be had: a thread that is no more held it when this process was forked.
fn with_pauses<Value>(work: impl FnOnce(&mut Vec<Range<u64>>) -> Value) -> Option<Value> {
    let asked_ns = clock::monotonic_ns();
    loop {
        match PAUSES.try_lock() {
            Ok(mut pauses) => return Some(work(&mut pauses)),
            Err(TryLockError::Poisoned(_)) => return None,
            Err(TryLockError::WouldBlock) if clock::monotonic_ns() - asked_ns > LONGEST_WAIT_FOR_PAUSES_NS => {
                return None;
            }
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

/// When the state changed last.
pub fn last_change_ns() -> u64 {
    LAST_CHANGE_NS.load(Ordering::Relaxed)
}

/// Notes that something was recorded that somebody asked for.
pub fn note_wanted() {
    // Threads that only look share the cache line.
    if !WAS_WANTED.load(Ordering::Relaxed) {
        WAS_WANTED.store(true, Ordering::Relaxed);
    }
}

/// Whether the recording holds more than the shadow of what is alive.
pub fn was_wanted() -> bool {
    WAS_WANTED.load(Ordering::Relaxed)
}

/// Whether the recorder is off for good.
pub fn is_disabled() -> bool {
    STATE.load(Ordering::Relaxed) == DISABLED
}

/// Switches the recorder off for good; true for the first caller.
pub fn disable() -> bool {
    STATE.swap(DISABLED, Ordering::Relaxed) != DISABLED
}
