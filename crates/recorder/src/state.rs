//! What is recorded right now: one word that every hook reads.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use msmemscope_event::RecordingState;

use crate::clock;

/// Set once and for good when the recorder must not or can no longer work.
const DISABLED: u32 = u32::MAX;

static LAST_CHANGE_NS: AtomicU64 = AtomicU64::new(0);
static STATE: AtomicU32 = AtomicU32::new(RecordingState::Off as u32);
/// Whether anything was recorded that somebody asked for, in this process or before its fork.
static WAS_WANTED: AtomicBool = AtomicBool::new(false);

/// The latest time in which only what is alive mattered; none yet.
static SHADOW_BEGIN_NS: AtomicU64 = AtomicU64::new(u64::MAX);
static SHADOW_END_NS: AtomicU64 = AtomicU64::new(0);

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
        SHADOW_END_NS.fetch_min(now_ns, Ordering::SeqCst);
    }
    let update = |before| (before != DISABLED).then_some(state as u32);
    let before = STATE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).ok()?;
    Some(RecordingState::from_code(u64::from(before)))
}

/// The trace knows from now on that only what is alive matters.
pub fn shadow_began() {
    SHADOW_BEGIN_NS.store(clock::monotonic_ns(), Ordering::Relaxed);
    SHADOW_END_NS.store(u64::MAX, Ordering::Release);
}

/// The latest time in which only what is alive at its end matters; it may not have ended. Events outside it matter.
pub fn shadow() -> Range<u64> {
    let end_ns = SHADOW_END_NS.load(Ordering::Acquire);
    SHADOW_BEGIN_NS.load(Ordering::Relaxed)..end_ns
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
