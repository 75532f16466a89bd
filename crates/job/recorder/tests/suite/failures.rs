//! When nothing can be written, the job goes on, one line says so, and what is missing is counted.

use std::path::Path;
use std::process::Command;

use msmemscope_event::LossReason;

use crate::support::{Lab, appearance, block_event_count, lost, run};

const SIMPLE: &str = include_str!("../programs/simple.c");

fn is_root() -> bool {
    // SAFETY: asks only.
    unsafe { libc::geteuid() == 0 }
}

/// A file system of its own, unmounted at the end.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn new(path: &'a Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(path).expect("a directory");
        let mounted = run(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path));
        mounted.status.success().then_some(Self(path))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let mount = Mount::new(&lab.output, "size=1m,mode=777");
    if mount.is_none() {
        eprintln!("skipped: cannot mount");
        return;
    }
    let mut recording = lab.recording();
    recording.settings.max_trace_size_bytes = Some(1 << 30);
    let without = appearance(&run(lab.plain(&program).arg("200000"))).0;
    let mut command = lab.plain(&program);
    command.arg("200000");
    lab.record_with(&mut command, &[crate::support::library(crate::support::RECORDER)], &recording);
    let (with, said) = appearance(&run(&mut command));
    assert_eq!(with, without);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("No space left on device"), "{said:?}");
    let trace = lab.trace();
    let recorded = block_event_count(&trace);
    assert!(recorded > 10_000);
    // The exit of the process is one more fact that found no room.
    let missing = lost(&trace, LossReason::DiskFull) as usize;
    assert!((400_000..=400_001).contains(&(recorded + missing)), "{recorded} and {missing}");
}

#[test]
fn a_small_disk_is_used() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let Some(_mount) = Mount::new(&lab.output, "size=4m,mode=777") else {
        eprintln!("skipped: cannot mount");
        return;
    };
    assert_eq!(lab.same_with_and_without(&program, &["60000"]), Vec::<String>::new());
    let trace = lab.trace();
    assert!(trace.completeness().is_complete(), "{:?}", trace.completeness());
    assert_eq!(block_event_count(&trace), 120_000);
}

#[test]
fn a_disk_that_is_full_from_the_start() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let Some(_mount) = Mount::new(&lab.output, "size=64k,mode=777") else {
        eprintln!("skipped: cannot mount");
        return;
    };
    let said = lab.same_with_and_without(&program, &["1000"]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(lab.directories(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_read_only_directory() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let Some(_mount) = Mount::new(&lab.output, "ro") else {
        eprintln!("skipped: cannot mount");
        return;
    };
    let said = lab.same_with_and_without(&program, &["1000"]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("Read-only file system") && said[0].contains("the job goes on"), "{said:?}");
}

#[test]
fn a_place_that_cannot_be_made() {
    let mut lab = Lab::new();
    lab.output = "/proc/no/such/place".into();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let said = lab.same_with_and_without(&program, &["1000"]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("/proc/no/such/place"), "{said:?}");
}

#[test]
fn the_size_limit() {
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let mut recording = lab.recording();
    recording.settings.max_trace_size_bytes = Some(600_000);
    let without = appearance(&run(lab.plain(&program).arg("200000"))).0;
    let mut command = lab.plain(&program);
    command.arg("200000");
    lab.record_with(&mut command, &[crate::support::library(crate::support::RECORDER)], &recording);
    let (with, said) = appearance(&run(&mut command));
    assert_eq!(with, without);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("size limit"), "{said:?}");
    let trace = lab.trace();
    assert!(trace.completeness().file_bytes <= 600_000);
    assert!(lost(&trace, LossReason::SizeLimit) > 100_000);
}

#[test]
fn what_does_not_fit_is_counted_to_the_last_event() {
    const THREADS: usize = 4;
    const PAIRS: usize = 50_000;
    let lab = Lab::new();
    let hal = include_str!("../programs/lockless_hal.c");
    lab.compile_library("lockless_hal.c", hal, "libascend_hal.so", &[]);
    let program = lab.compile("limit.c", include_str!("../programs/limit.c"), &["ascend_hal"]);
    let all = 2 * PAIRS * (THREADS + 1);
    for native_depth in [None, Some(1)] {
        let mut recording = lab.recording();
        recording.settings.max_trace_size_bytes = Some(2 << 20);
        recording.settings.call_stacks.native_depth = native_depth;
        let mut command = lab.plain(&program);
        command.args([THREADS, PAIRS].map(|number| number.to_string())).env("LD_LIBRARY_PATH", lab.path());
        lab.record_with(&mut command, &[crate::support::library(crate::support::RECORDER)], &recording);
        run(&mut command);
        let mut traces = lab.traces();
        assert_eq!(traces.len(), 2, "parent and child");
        traces.sort_by_key(block_event_count);
        let [child, parent] = &traces[..] else { panic!("two traces") };
        assert_eq!((block_event_count(child), &child.completeness().losses[..]), (20, &cuts(native_depth, 20)[..]));
        let recorded = block_event_count(parent);
        assert!(recorded > 50_000, "{recorded}");
        let cut = if native_depth.is_some() { lost(parent, LossReason::StackCut) as usize } else { 0 };
        assert_eq!(recorded + lost(parent, LossReason::SizeLimit) as usize, all, "killed, but counted");
        // Each thread takes one more stack for an event for which there is no room.
        assert!(native_depth.is_none() || (recorded..=recorded + THREADS + 1).contains(&cut), "{cut} of {recorded}");
        lab.clear();
    }
}

/// The losses of a recording whose stacks are all deeper than asked for.
fn cuts(native_depth: Option<u16>, count: u64) -> Vec<(LossReason, u64)> {
    native_depth.map(|_| (LossReason::StackCut, count)).into_iter().collect()
}

#[test]
fn the_limit_of_the_shell_raises_no_signal() {
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let script = format!("ulimit -f 300; exec {} 200000", program.display());
    let without = appearance(&run(lab.plain(Path::new("bash")).args(["-c", &script]))).0;
    let mut command = lab.plain(Path::new("bash"));
    command.args(["-c", &script]);
    lab.record(&mut command);
    command.env_remove("STANDIN_LOG");
    let (with, said) = appearance(&run(&mut command));
    assert_eq!(with, without);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("ulimit -f"), "{said:?}");
    assert!(lost(&lab.trace(), LossReason::SizeLimit) > 0);
}

#[test]
fn no_descriptors_left() {
    let lab = Lab::new();
    let source = include_str!("../programs/descriptors.c");
    let program = lab.compile("descriptors.c", source, &["ascend_hal"]);
    let said = lab.same_with_and_without(&program, &["none", "unused"]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("Too many open files"), "{said:?}");
    let trace = lab.trace();
    assert!(block_event_count(&trace) > 1000);
    assert!(lost(&trace, LossReason::TraceUnavailable) > 0);
}

#[test]
fn a_job_that_closes_all_its_descriptors() {
    let lab = Lab::new();
    let source = include_str!("../programs/descriptors.c");
    let program = lab.compile("descriptors.c", source, &["ascend_hal"]);
    let file = lab.path().join("precious");
    let name = file.to_str().expect("a path");
    let said = lab.same_with_and_without(&program, &["closed", name]);
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(std::fs::read_to_string(&file).expect("the job's file"), "0 0 0\n");
    assert_eq!(block_event_count(&lab.trace()), 200_002);
}

#[test]
fn settings_that_cannot_be_read() {
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let mut command = lab.plain(&program);
    lab.record(&mut command);
    command.env(msmemscope_settings::RECORDING_VARIABLE, "9;from the future");
    let (_, said) = appearance(&run(&mut command));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("nothing is recorded") && said[0].contains("version '9'"), "{said:?}");
    assert_eq!(lab.directories(), Vec::<std::path::PathBuf>::new());
}
