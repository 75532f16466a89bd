//! Other libraries that are preloaded, and programs that are built to be watched by others.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Lab, RECORDER, appearance, block_event_count, driver_allocation_sizes, library, run};

const SIMPLE: &str = include_str!("../../programs/simple.c");

/// Runs a program with libraries preloaded, without and with the recorder at a place among them, and demands that both
/// look the same.
fn same_with_and_without(lab: &Lab, program: &Path, libraries: &[PathBuf], place: usize) {
    let joined = libraries.iter().map(|library| library.as_os_str().to_owned()).collect::<Vec<_>>();
    let without = run(lab.plain(program).env("LD_PRELOAD", joined.join(&OsString::from(":"))));
    let mut libraries = libraries.to_vec();
    libraries.insert(place, library(RECORDER));
    let mut command = lab.plain(program);
    lab.record_with(&mut command, &libraries, &lab.recording());
    let (with, said) = appearance(&run(&mut command));
    assert_eq!((with, said), (appearance(&without).0, Vec::new()), "{libraries:?}");
}

#[test]
fn libraries_that_replace_what_they_look_up() {
    let lab = Lab::new();
    let program = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let source = include_str!("../../programs/lock_wrapper.c");
    let wrapper = lab.compile_library("lock_wrapper.c", source, "liblock_wrapper.so", &[]);
    for place in [0, 1] {
        same_with_and_without(&lab, &program, std::slice::from_ref(&wrapper), place);
        assert_eq!(block_event_count(&lab.trace()), 20);
        lab.clear();
    }
}

#[test]
fn a_library_of_the_user_before_the_driver_stays_there() {
    let lab = Lab::new();
    let program = lab.compile("quota.c", include_str!("../../programs/quota.c"), &["ascend_hal"]);
    let source = include_str!("../../programs/own_driver.c");
    let own = lab.compile_library("own_driver.c", source, "libown_driver.so", &[]);
    for place in [0, 1] {
        same_with_and_without(&lab, &program, std::slice::from_ref(&own), place);
        // What is asked for beyond 1000 bytes is refused, by whoever the job would be refused by without us.
        assert_eq!(driver_allocation_sizes(&lab.trace()).iter().sum::<u64>(), 1000);
        lab.clear();
    }
}

#[test]
fn programs_with_sanitizers() {
    let lab = Lab::new();
    // Sanitizers have something to say about the stand-in device itself.
    let driver = include_str!("../../programs/lockless_hal.c");
    lab.compile_library("lockless_hal.c", driver, "libascend_hal.so", &[]);
    let plain = lab.compile("simple.c", SIMPLE, &["ascend_hal"]);
    let in_lab = |command: &mut Command| appearance(&run(command.env("LD_LIBRARY_PATH", lab.path())));
    let expected = in_lab(&mut lab.plain(&plain)).0;
    for sanitizer in ["address", "thread", "undefined"] {
        let program = lab.path().join(sanitizer);
        let built = run(Command::new("gcc")
            .arg(format!("-fsanitize={sanitizer}"))
            .args(["-pthread", "-g", "-I"])
            .arg(standin_testing::home().join("include"))
            .arg(plain.with_extension("c"))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(lab.path())
            .arg("-lascend_hal"));
        if !built.status.success() {
            eprintln!("skipped: no -fsanitize={sanitizer} here");
            continue;
        }
        assert_eq!(in_lab(&mut lab.plain(&program)).0, expected, "{sanitizer}");
        let mut command = lab.plain(&program);
        lab.record(&mut command);
        assert_eq!(in_lab(&mut command), (expected.clone(), Vec::new()), "{sanitizer}");
        assert_eq!(block_event_count(&lab.trace()), 20, "{sanitizer}");
        lab.clear();
    }
}
