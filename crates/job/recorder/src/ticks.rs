//! A quick clock: the processor's own counter, tied to CLOCK_MONOTONIC again and again.
//!
//! Reading the counter takes a third of the time of asking for CLOCK_MONOTONIC, mostly because nothing
//! waits for earlier instructions. So it may be read a little early: good enough for what a thread does
//! itself, such as Python calls, but not for memory that threads hand to each other.
//!
//! Every thread remembers a moment on both clocks, and goes by the counter for at most [`TRUST_NS`] after
//! it. How fast the counter runs is measured once, checked at every such moment, and measured anew if it
//! has changed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use msmemscope_courtesy::Descriptor;

use crate::{clock, errno};

/// How long the counter is trusted after a comparison. An error of one in a thousand then is 50 ns.
const TRUST_NS: u64 = 50_000;
/// Time over which the speed of the counter is measured.
const MEASURED_NS: u64 = 20_000_000;
/// A comparison that takes longer than this many ticks was interrupted. Counters of the two architectures
/// run at some gigahertz and at some ten megahertz.
const LONGEST_COMPARISON_TICKS: u64 = if cfg!(target_arch = "x86_64") { 600 } else { 16 };
/// Deviation of the counter's speed, as part of the time passed, that makes it be measured anew.
const TOLERATED_PART: u64 = 256;

const UNKNOWN: u8 = 0;
const USABLE: u8 = 1;
const UNUSABLE: u8 = 2;
/// Whether the kernel itself trusts the counter.
static USABILITY: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Nanoseconds per tick in units of 2^-32; zero if not known.
static SPEED: AtomicU64 = AtomicU64::new(0);
/// Ticks for which the counter is trusted; zero if its speed is not known.
static TRUSTED_TICKS: AtomicU64 = AtomicU64::new(0);
/// The moment at which the measurement began, or that it did not.
static FIRST_NS: AtomicU64 = AtomicU64::new(NOT_BEGUN);
static FIRST_TICKS: AtomicU64 = AtomicU64::new(0);

const NOT_BEGUN: u64 = 0;
/// A thread is about to begin it.
const BEGINNING: u64 = 1;

/// A moment on both clocks.
#[derive(Clone, Copy)]
struct Moment {
    ticks: u64,
    monotonic_ns: u64,
}

/// What a thread remembers.
pub struct QuickClock(Cell<Moment>);

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a register that Linux lets everybody read.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

impl QuickClock {
    /// Nothing remembered.
    pub const fn new() -> Self {
        Self(Cell::new(Moment { ticks: 0, monotonic_ns: 0 }))
    }

    /// CLOCK_MONOTONIC, perhaps some nanoseconds off.
    #[inline(always)]
    pub fn monotonic_ns(&self) -> u64 {
        let moment = self.0.get();
        let passed = ticks().wrapping_sub(moment.ticks);
        if passed < TRUSTED_TICKS.load(Ordering::Relaxed) {
            // Less than 2^32 ticks, each less than 2^32 units.
            moment.monotonic_ns + ((passed * SPEED.load(Ordering::Relaxed)) >> 32)
        } else {
            self.compare()
        }
    }

    /// Asks both clocks.
    #[inline(never)]
    fn compare(&self) -> u64 {
        let before = ticks();
        let monotonic_ns = clock::monotonic_ns();
        let took = ticks().wrapping_sub(before);
        if took < LONGEST_COMPARISON_TICKS && is_usable() {
            let moment = Moment { ticks: before.wrapping_add(took / 2), monotonic_ns };
            learn(self.0.replace(moment), moment);
        }
        monotonic_ns
    }
}

/// Measures the speed of the counter, or checks it.
fn learn(earlier: Moment, moment: Moment) {
    let speed = SPEED.load(Ordering::Relaxed);
    if speed != 0 {
        let passed_ns = moment.monotonic_ns.saturating_sub(earlier.monotonic_ns);
        let ticks = u128::from(moment.ticks.wrapping_sub(earlier.ticks));
        let supposed_ns = ((ticks * u128::from(speed)) >> 32) as u64;
        let is_comparable = earlier.monotonic_ns != 0 && passed_ns > TRUST_NS;
        if is_comparable && supposed_ns.abs_diff(passed_ns) > passed_ns / TOLERATED_PART + TRUST_NS / TOLERATED_PART {
            TRUSTED_TICKS.store(0, Ordering::Relaxed);
            SPEED.store(0, Ordering::Relaxed);
            FIRST_NS.store(NOT_BEGUN, Ordering::Relaxed);
        }
        return;
    }
    let first_ns = FIRST_NS.load(Ordering::Acquire);
    if first_ns == NOT_BEGUN {
        if FIRST_NS.compare_exchange(NOT_BEGUN, BEGINNING, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            FIRST_TICKS.store(moment.ticks, Ordering::Relaxed);
            FIRST_NS.store(moment.monotonic_ns, Ordering::Release);
        }
    } else if first_ns != BEGINNING
        && let Some(speed) = speed_between(first_ns, FIRST_TICKS.load(Ordering::Relaxed), moment)
    {
        SPEED.store(speed, Ordering::Relaxed);
        TRUSTED_TICKS.store((TRUST_NS << 32) / speed, Ordering::Relaxed);
    }
}

/// Nanoseconds per tick in units of 2^-32, if enough time has passed and the counter is neither absurdly slow nor fast.
fn speed_between(first_ns: u64, first_ticks: u64, moment: Moment) -> Option<u64> {
    let passed_ns = moment.monotonic_ns.checked_sub(first_ns).filter(|passed_ns| *passed_ns >= MEASURED_NS)?;
    let passed_ticks = moment.ticks.checked_sub(first_ticks).filter(|ticks| *ticks > 0)?;
    let speed = (u128::from(passed_ns) << 32) / u128::from(passed_ticks);
    u64::try_from(speed).ok().filter(|speed| (1 << 24..1 << 40).contains(speed))
}

/// Whether the kernel keeps its own time by this counter: it knows where counters of different
/// processors disagree or stand still.
fn is_usable() -> bool {
    match USABILITY.load(Ordering::Relaxed) {
        UNKNOWN => {
            let path = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
            let source = errno::aside(|| Descriptor::read_file(path));
            let is_usable = source.is_some_and(|name| matches!(name.trim_ascii(), b"tsc" | b"arch_sys_counter"));
            USABILITY.store(if is_usable { USABLE } else { UNUSABLE }, Ordering::Relaxed);
            is_usable
        }
        usability => usability == USABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_agree_whatever_the_counter_is_trusted_with() {
        let quick = QuickClock::new();
        let started_ns = clock::monotonic_ns();
        let mut last_ns = started_ns;
        while last_ns < started_ns + 3 * MEASURED_NS {
            let before_ns = clock::monotonic_ns();
            let quick_ns = quick.monotonic_ns();
            let after_ns = clock::monotonic_ns();
            assert!((before_ns - 1_000..=after_ns + 1_000).contains(&quick_ns), "{before_ns} {quick_ns} {after_ns}");
            last_ns = after_ns;
        }
    }

    #[test]
    fn a_speed_needs_time_and_must_be_plausible() {
        let moment = |ticks, monotonic_ns| Moment { ticks, monotonic_ns };
        assert_eq!(speed_between(1_000, 0, moment(60_000_000, 1_000 + MEASURED_NS)), Some((1 << 32) / 3));
        assert_eq!(speed_between(1_000, 0, moment(60_000, 21_000)), None);
        assert_eq!(speed_between(1_000, 70_000_000, moment(60_000_000, 1_000 + MEASURED_NS)), None);
        assert_eq!(speed_between(1_000, 0, moment(10, 1_000 + MEASURED_NS)), None);
    }
}
