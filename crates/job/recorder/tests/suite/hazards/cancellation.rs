//! Threads that are cancelled end in their own code.

use std::path::PathBuf;

use crate::support::{Lab, RECORDER, appearance, driver_allocation_sizes, library, run};

/// Compiles a program for a device that waits for nothing: threads cancelled in the device's own work are none of ours.
fn compile(lab: &Lab, name: &str, source: &str) -> PathBuf {
    let driver = include_str!("../../programs/lockless_hal.c");
    lab.compile_library("lockless_hal.c", driver, "libascend_hal.so", &[]);
    lab.compile(name, source, &["ascend_hal"])
}

#[test]
fn a_cancelled_thread_ends_where_it_would_without_us() {
    let lab = Lab::new();
    let program = compile(&lab, "cancelled.c", include_str!("../../programs/cancelled.c"));
    let without = appearance(&run(lab.plain(&program).env("LD_LIBRARY_PATH", lab.path()))).0;
    for native_depth in [None, Some(20)] {
        let mut recording = lab.recording();
        recording.settings.call_stacks.native_depth = native_depth;
        let mut command = lab.plain(&program);
        lab.record_with(&mut command, &[library(RECORDER)], &recording);
        command.env("LD_LIBRARY_PATH", lab.path());
        let (with, said) = appearance(&run(&mut command));
        assert_eq!(with, without, "{native_depth:?}");
        // A request that no card can meet is refused, which is said by whoever was refused.
        assert!(said.len() <= 1 && said.iter().all(|line| line.contains("the driver refused 1.0 EiB")), "{said:?}");
        let trace = lab.trace();
        assert!(trace.completeness().is_complete());
        assert_eq!(driver_allocation_sizes(&trace).len(), 60_002);
        lab.clear();
    }
}

#[test]
fn a_pool_of_workers_is_shut_down_by_cancelling_them() {
    let lab = Lab::new();
    let program = compile(&lab, "cancelled_pool.c", include_str!("../../programs/cancelled_pool.c"));
    let mut recording = lab.recording();
    recording.settings.call_stacks.native_depth = Some(20);
    for _ in 0..5 {
        let mut command = lab.plain(&program);
        lab.record_with(&mut command, &[library(RECORDER)], &recording);
        command.env("LD_LIBRARY_PATH", lab.path());
        let output = run(&mut command);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"shut down\n"[..]), "{output:?}");
        assert!(lab.trace().completeness().damage.is_empty());
        lab.clear();
    }
}
