//! Threads and signal handlers with little stack have enough of it with the recorder, too.

use msmemscope_event::{Fact, LossReason};

use crate::support::{Lab, RECORDER, appearance, block_event_count, count, library, lost, run};

#[test]
fn the_smallest_threads_and_signal_stacks() {
    let lab = Lab::new();
    lab.compile_library("lockless_hal.c", include_str!("../../programs/lockless_hal.c"), "libascend_hal.so", &[]);
    let program = lab.compile("small_stacks.c", include_str!("../../programs/small_stacks.c"), &["ascend_hal"]);
    let without = appearance(&run(lab.plain(&program).env("LD_LIBRARY_PATH", lab.path()))).0;
    for native_depth in [None, Some(20)] {
        let mut recording = lab.recording();
        recording.settings.call_stacks.native_depth = native_depth;
        let mut command = lab.plain(&program);
        lab.record_with(&mut command, &[library(RECORDER)], &recording);
        command.env("LD_LIBRARY_PATH", lab.path());
        let (with, said) = appearance(&run(&mut command));
        assert_eq!((with, said), (without.clone(), Vec::new()), "{native_depth:?}");
        let trace = lab.trace();
        assert_eq!(block_event_count(&trace), 8);
        assert_eq!(count(&trace, |fact| matches!(fact, Fact::AllocationFailed { .. })), 4);
        // The stacks themselves are what there is no room for, and that is counted.
        let expected = if native_depth.is_some() { 12 } else { 4 };
        assert_eq!(lost(&trace, LossReason::StackMissing), expected);
        lab.clear();
    }
}
