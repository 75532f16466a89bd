//! Whatever ends the process, everything completed before is in the trace.

use std::process::Stdio;

use msmemscope_trace::{TRACE_FILE_NAME, Trace};
use standin_truth::{Entry, TruthError};

use crate::support::Lab;
use crate::truth;

pub const KILL: &str = include_str!("../programs/kill.c");
const MOMENTS: u32 = 25;
/// Fewer events would show nothing; on a busy machine it takes more moments to have them.
const FEWEST_EVENTS: usize = 1_000;
const MOST_MOMENTS: u32 = 20 * MOMENTS;

/// Ends the program at random moments. A call in flight may be in the log, in the trace, in both or
/// in none; everything else must be in both.
fn end_at_random_moments(threads: u32, how: &str) {
    let lab = Lab::new();
    let program = lab.compile("kill.c", KILL, &["ascend_hal"]);
    let mut random = u64::from(threads) * 77 + how.len() as u64;
    let mut events = 0;
    let mut moments = 0;
    while moments < MOMENTS || (events < FEWEST_EVENTS && moments < MOST_MOMENTS) {
        moments += 1;
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let microseconds = (random >> 33) % 20_000;
        let mut command = lab.plain(&program);
        command.args([threads.to_string(), how.to_owned(), microseconds.to_string()]);
        lab.record(&mut command);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("a run");
        assert!(!status.success());
        let entries = logged(&lab);
        for directory in lab.directories() {
            let Ok(trace) = Trace::open(&directory.join(TRACE_FILE_NAME)) else {
                // Ended while the first event was on its way into a trace that was just being made.
                assert!(entries.len() <= threads as usize, "{} events without a trace", entries.len());
                continue;
            };
            assert!(!trace.completeness().closed);
            assert_eq!(trace.completeness().losses, []);
            assert_eq!(trace.completeness().damage, []);
            let (recorded, expected) = (truth::recorded(&trace), truth::expected(&entries, trace.process_id()));
            for thread in recorded.keys().chain(expected.keys()) {
                let none = Vec::new();
                let (one, other) = (recorded.get(thread).unwrap_or(&none), expected.get(thread).unwrap_or(&none));
                let common = one.len().min(other.len());
                assert_eq!(one[..common], other[..common], "thread {thread}");
                assert!(one.len().abs_diff(other.len()) <= 1, "{how}: {} and {}", one.len(), other.len());
                events += common;
            }
        }
        lab.clear();
    }
    assert!(events >= FEWEST_EVENTS, "only {events} events");
}

/// The log of the device; empty if the process ended while it was just being made.
pub fn logged(lab: &Lab) -> Vec<Entry> {
    match standin_truth::read_directory(&lab.log) {
        Ok(entries) => entries,
        Err(TruthError::NotALog(_)) => Vec::new(),
        Err(TruthError::Io(_, error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn killed() {
    end_at_random_moments(1, "kill");
    end_at_random_moments(4, "kill");
}

#[test]
fn aborted() {
    end_at_random_moments(1, "abort");
    end_at_random_moments(4, "abort");
}

#[test]
fn crashed() {
    end_at_random_moments(1, "segv");
    end_at_random_moments(4, "segv");
}

#[test]
fn exited_at_once() {
    end_at_random_moments(1, "exit");
    end_at_random_moments(4, "exit");
}
