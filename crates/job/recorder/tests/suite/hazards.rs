//! The job is sacred: with the recorder it looks exactly as without, whatever it does.

mod cancellation;
mod confined;
mod descriptors;
mod preloads;
mod small_stacks;
mod threads;

use std::path::Path;
use std::process::Command;

use msmemscope_event::Fact;

use crate::support::{Lab, RECORDER, THIN, appearance, block_event_count, count, driver_allocation_sizes};
use crate::support::{library, run};

const SIMPLE: &str = include_str!("../programs/simple.c");

#[test]
fn processes_of_every_kind_have_their_own_recording() {
    let lab = Lab::new();
    let program = lab.compile("processes.c", include_str!("../programs/processes.c"), &["ascend_hal"]);
    assert_eq!(lab.same_with_and_without(&program, &[]), Vec::<String>::new());
    let mut sizes: Vec<usize> = Vec::new();
    let mut parents = 0;
    for trace in lab.traces() {
        assert!(trace.completeness().is_complete(), "{:?}", trace.completeness());
        assert_eq!(trace.run_id(), 42);
        let allocations = driver_allocation_sizes(&trace);
        // Allocations of the background thread have another size.
        let own = allocations.iter().filter(|size| **size >= 100).count();
        if allocations.len() == own {
            sizes.push(own)
        } else {
            parents += 1
        }
        assert!(block_event_count(&trace) >= 2 * own);
    }
    sizes.sort_unstable();
    // First child 2, child 3, grandchild 2, clone 3, three fresh images 4 each, 20 children of threads 2 each;
    // the idle child has none, the parent that ran the background thread is counted apart.
    let mut expected = vec![2, 3, 2, 3, 4, 4, 4];
    expected.extend([2; 20]);
    expected.sort_unstable();
    assert_eq!(sizes, expected);
    assert_eq!(parents, 1);
}

#[test]
fn ending_threads_share_chunks_and_lose_nothing() {
    let lab = Lab::new();
    let program = lab.compile("threads.cpp", include_str!("../programs/threads.cpp"), &["ascend_hal"]);
    assert_eq!(lab.same_with_and_without(&program, &[]), Vec::<String>::new());
    let trace = lab.trace();
    assert!(trace.completeness().is_complete());
    let entries = standin_truth::read_directory(&lab.log).expect("the log of the device");
    assert_eq!(crate::truth::recorded(&trace), crate::truth::expected(&entries, trace.process_id()));
    let chunks = trace.completeness().chunks_allocated;
    assert!(chunks < 200, "{chunks} chunks");
}

#[test]
fn signal_handlers_use_memory_and_jump() {
    let lab = Lab::new();
    lab.compile_library("lockless_hal.c", include_str!("../programs/lockless_hal.c"), "libascend_hal.so", &[]);
    let program = lab.compile("signals.c", include_str!("../programs/signals.c"), &["ascend_hal"]);
    let here = lab.path().to_owned();
    let said = lab.same_with_and_without_in(&program, &[], |command| {
        command.env("LD_LIBRARY_PATH", &here);
    });
    assert_eq!(said, Vec::<String>::new());
    let trace = lab.trace();
    let sizes = driver_allocation_sizes(&trace);
    assert!(sizes.iter().filter(|size| **size == 64).count() >= 300_000);
    assert!(sizes.contains(&10), "no allocation of a handler was seen");
    assert!(sizes.contains(&6500), "the thread stopped recording");
    assert_eq!(trace.completeness().losses, []);
}

/// Handlers that run on a stack of their own, of which the kernel may know nothing, or that switch to another
/// user-level thread, interrupt records in the making: all of them go on later.
fn interrupted_records_go_on(how: &str) {
    let lab = Lab::new();
    lab.compile_library("lockless_hal.c", include_str!("../programs/lockless_hal.c"), "libascend_hal.so", &[]);
    let program = lab.compile("other_stacks.c", include_str!("../programs/other_stacks.c"), &["ascend_hal"]);
    let here = lab.path().to_owned();
    let said = lab.same_with_and_without_in(&program, &[how], |command| {
        command.env("LD_LIBRARY_PATH", &here);
    });
    assert_eq!(said, Vec::<String>::new());
    let trace = lab.trace();
    assert!(trace.completeness().is_complete(), "{:?}", trace.completeness());
    let sizes = driver_allocation_sizes(&trace);
    let of_size = |wanted| sizes.iter().filter(|size| **size == wanted).count();
    // The program says how often it was interrupted by the size of its last block.
    let handled = sizes.last().expect("a last block") - 1_000_000;
    assert!(handled > 0, "nothing was interrupted");
    assert_eq!((of_size(64), of_size(10) as u64), (400_000, if how == "switch" { 0 } else { handled }));
    assert_eq!(count(&trace, |fact| matches!(fact, Fact::Free { .. })), sizes.len() - 1);
    let chunks = trace.completeness().chunks_allocated;
    assert!(chunks < 200, "{chunks} chunks");
}

#[test]
fn handlers_on_an_alternate_stack_interrupt_records() {
    interrupted_records_go_on("alternate");
}

#[test]
fn handlers_on_a_stack_the_kernel_disarms_interrupt_records() {
    interrupted_records_go_on("disarmed");
}

#[test]
fn handlers_that_switch_stacks_interrupt_records() {
    interrupted_records_go_on("switch");
}

#[test]
fn exceptions_and_long_jumps_pass() {
    let lab = Lab::new();
    lab.compile_library("jumping_hal.cpp", include_str!("../programs/jumping_hal.cpp"), "libascend_hal.so", &[]);
    let source = lab.path().join("jumps.cpp");
    std::fs::write(&source, include_str!("../programs/jumps.cpp")).expect("the source can be written");
    let program = lab.path().join("jumps");
    let compiled =
        run(Command::new("g++").arg(&source).arg("-o").arg(&program).arg("-L").arg(lab.path()).arg("-lascend_hal"));
    assert!(compiled.status.success(), "{compiled:?}");
    let here = lab.path().to_owned();
    let said = lab.same_with_and_without_in(&program, &[], |command| {
        command.env("LD_LIBRARY_PATH", &here);
    });
    assert_eq!(said, Vec::<String>::new());
    let trace = lab.trace();
    assert!(trace.completeness().is_complete());
    assert_eq!(driver_allocation_sizes(&trace), vec![100; 1000]);
    assert_eq!(count(&trace, |fact| matches!(fact, Fact::Free { .. })), 1000);
}

#[test]
fn memory_calls_at_exit_are_seen() {
    let lab = Lab::new();
    let program = lab.compile("exit.c", include_str!("../programs/exit.c"), &["ascend_hal"]);
    lab.same_with_and_without(&program, &[]);
    let trace = lab.trace();
    assert_eq!(driver_allocation_sizes(&trace), [200, 201, 202]);
    assert!(trace.completeness().closed);
    let quick = Lab::new();
    let program = quick.compile("exit.c", include_str!("../programs/exit.c"), &["ascend_hal"]);
    quick.same_with_and_without(&program, &["quick"]);
    assert_eq!(driver_allocation_sizes(&quick.trace()), [200]);
    assert!(!quick.trace().completeness().closed);
}

#[test]
fn libraries_come_and_go() {
    let lab = Lab::new();
    let libraries = standin_testing::home().join("lib64");
    let search_path = format!("-Wl,-rpath,{}", libraries.display());
    let arguments = [&format!("-L{}", libraries.display()), "-lascend_hal", &search_path];
    let plugin = lab.compile_library("plugin.c", include_str!("../programs/plugin.c"), "libplugin.so", &arguments);
    let program = lab.compile("reload.c", include_str!("../programs/reload.c"), &[]);
    let said = lab.same_with_and_without_in(&program, &[plugin.to_str().expect("a path"), "40"], |command| {
        command.env_remove("LD_LIBRARY_PATH");
    });
    assert_eq!(said, Vec::<String>::new());
    let trace = lab.trace();
    assert!(trace.completeness().is_complete());
    let mut expected = Vec::new();
    for number in 0..40 {
        expected.extend([1000 + number, 1, 1000 + number, 1]);
    }
    assert_eq!(driver_allocation_sizes(&trace), expected);
}

#[test]
fn functions_asked_for_by_name_are_seen() {
    let lab = Lab::new();
    let libraries = standin_testing::home().join("lib64");
    let program = lab.compile("lookup.c", include_str!("../programs/lookup.c"), &[]);
    let (driver, runtime) = (libraries.join("libascend_hal.so"), libraries.join("libascendcl.so"));
    let arguments = [driver.to_str().expect("a path"), runtime.to_str().expect("a path")];
    assert_eq!(lab.same_with_and_without(&program, &arguments), Vec::<String>::new());
    let trace = lab.trace();
    assert_eq!(driver_allocation_sizes(&trace), [300]);
    assert_eq!(block_event_count(&trace), 4);
    // Without CANN there is nothing to find, with or without us.
    let empty = Lab::new();
    let program = empty.compile("lookup.c", include_str!("../programs/lookup.c"), &[]);
    assert_eq!(empty.same_with_and_without(&program, &[]), Vec::<String>::new());
    assert_eq!(empty.directories(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn programs_without_device_leave_nothing() {
    let lab = Lab::new();
    for (program, arguments) in
        [("bash", ["-c", "true"]), ("git", ["--version", "--no-pager"]), ("python3", ["-c", "pass"])]
    {
        lab.same_with_and_without(Path::new(program), &arguments);
    }
    let mut loop_of_children = lab.plain(Path::new("bash"));
    loop_of_children.args(["-c", "for i in 1 2 3; do (ls / | wc -l > /dev/null) & done; wait"]);
    lab.record(&mut loop_of_children);
    let (_, said) = appearance(&run(&mut loop_of_children));
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(lab.directories(), Vec::<std::path::PathBuf>::new());
    assert!(!lab.output.exists());
}

#[test]
fn secure_execution_is_left_alone() {
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: needs root");
        return;
    }
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    // Where others can read them, whoever may read the directory they were built in. In secure execution neither
    // LD_PRELOAD nor LD_LIBRARY_PATH is honoured, so the driver is given by path.
    let [driver, recorder] =
        [standin_testing::home().join("lib64/libascend_hal.so"), library(RECORDER)].map(|original| {
            let copy = lab.path().join(original.file_name().expect("a name"));
            std::fs::copy(&original, &copy).expect("a copy");
            copy
        });
    let source = lab.path().join("simple.c");
    let compiled = run(Command::new("gcc")
        .arg("-I")
        .arg(standin_testing::home().join("include"))
        .arg(&source)
        .arg(&driver)
        .arg("-o")
        .arg(&program)
        .arg(format!("-Wl,-rpath,{}", driver.parent().expect("a directory").display())));
    assert!(compiled.status.success(), "{compiled:?}");
    for (mode, recordings) in [("0755", 1), ("4755", 0)] {
        assert!(run(Command::new("chmod").arg(mode).arg(&program)).status.success());
        assert!(run(Command::new("chmod").arg("0777").arg(lab.path())).status.success());
        let mut command = lab.plain(Path::new("setpriv"));
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        let without = appearance(&run(&mut command)).0;
        lab.record_with(&mut command, std::slice::from_ref(&recorder), &lab.recording());
        command.env_remove("STANDIN_LOG");
        let (with, said) = appearance(&run(&mut command));
        assert_eq!((with, said), (without, Vec::new()), "{mode}");
        assert_eq!(lab.directories().len(), recordings, "{mode}");
        let _ = std::fs::remove_dir_all(&lab.output);
    }
}

#[test]
fn every_subset_in_every_order_records_once() {
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let names: Vec<&str> = THIN.iter().copied().chain([RECORDER]).collect();
    let without = appearance(&run(&mut lab.plain(&program))).0;
    for subset in 1..1u32 << names.len() {
        let chosen: Vec<_> = names
            .iter()
            .enumerate()
            .filter(|(index, _)| subset >> index & 1 == 1)
            .map(|(_, name)| library(name))
            .collect();
        let mut orders = vec![chosen.clone()];
        orders.push(chosen.iter().rev().cloned().collect());
        let mut rotated = chosen.clone();
        rotated.rotate_left(chosen.len() / 2);
        orders.push(rotated);
        for order in orders {
            let mut command = lab.plain(&program);
            lab.record_with(&mut command, &order, &lab.recording());
            let (with, said) = appearance(&run(&mut command));
            assert_eq!(with, without, "{order:?}");
            // The driver is hooked by two of the libraries, the others only bring the recorder along.
            let hooks_driver = order.contains(&library(THIN[0])) || order.contains(&library(RECORDER));
            let is_complete_set = order.contains(&library(RECORDER));
            assert_eq!(said.len(), usize::from(hooks_driver && !is_complete_set), "{order:?}: {said:?}");
            if hooks_driver {
                assert_eq!(driver_allocation_sizes(&lab.trace()), (64..74).collect::<Vec<_>>(), "{order:?}");
                std::fs::remove_dir_all(&lab.output).expect("a recording can be removed");
            }
            assert_eq!(lab.directories(), Vec::<std::path::PathBuf>::new());
        }
    }
}
