//! Jobs that give up what they may do, so that the trace cannot go on: they do, and what is lost is counted.

use msmemscope_event::LossReason;

use crate::support::{Lab, block_event_count, lost};

/// What the program has done: 1,000 blocks before it confines itself and 100,000 afterwards, each taken and given back.
const BLOCK_EVENTS: u64 = 2 * 101_000;

#[test]
fn jobs_that_give_up_their_rights_go_on_and_losses_are_counted() {
    // SAFETY: asks only.
    let is_root = unsafe { libc::geteuid() } == 0;
    for (how, needs_root) in [("descriptors", false), ("denied", false), ("user", true), ("root", true)] {
        if needs_root && !is_root {
            eprintln!("skipped: {how} needs root");
            continue;
        }
        let lab = Lab::new();
        lab.compile_library("lockless_hal.c", include_str!("../../programs/lockless_hal.c"), "libascend_hal.so", &[]);
        let program = lab.compile("confined.c", include_str!("../../programs/confined.c"), &["ascend_hal"]);
        let empty = lab.path().join("empty");
        std::fs::create_dir(&empty).expect("a directory");
        let here = lab.path().to_owned();
        let said = lab.same_with_and_without_in(&program, &[how, empty.to_str().expect("a path")], |command| {
            command.env("LD_LIBRARY_PATH", &here);
        });
        assert!(
            said.len() == 1 && said[0].contains("events are lost from here on, the job goes on"),
            "{how}: {said:?}"
        );
        let trace = lab.trace();
        let (recorded, missing) = (block_event_count(&trace) as u64, lost(&trace, LossReason::TraceUnavailable));
        assert!(recorded > 2000 && missing > 0, "{how}: {recorded} and {missing}");
        // A fact or two about the process itself may be among what is missing.
        assert!((BLOCK_EVENTS..BLOCK_EVENTS + 5).contains(&(recorded + missing)), "{how}: {recorded} and {missing}");
    }
}
