//! What each library shows to the loader: exactly the symbols it must, and where it finds the rest.

use std::process::Command;

use testkit::golden;

use crate::support::{Lab, RECORDER, THIN, library, run};

/// Names that a library exports.
fn exported(name: &str) -> String {
    let output = run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library(name)));
    assert!(output.status.success(), "{output:?}");
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn dynamic_section(name: &str) -> String {
    let output = run(Command::new("readelf").arg("-d").arg(library(name)));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn exports_are_exactly_the_golden_ones() {
    for name in THIN.iter().chain([&RECORDER]) {
        golden!(format!("tests/golden/{}.txt", name.trim_end_matches(".so")), &exported(name));
    }
}

#[test]
fn libraries_have_their_names_and_stay_loaded() {
    for name in THIN.iter().chain([&RECORDER]) {
        let section = dynamic_section(name);
        assert!(section.contains(&format!("Library soname: [{name}]")), "{section}");
        assert!(section.contains("NODELETE"), "{section}");
    }
    for name in THIN {
        let section = dynamic_section(name);
        assert!(section.contains(&format!("Shared library: [{RECORDER}]")), "{section}");
        assert!(section.contains("[$ORIGIN]"), "{section}");
    }
}

#[test]
fn functions_that_nobody_has_fail_as_the_driver_would() {
    let lab = Lab::new();
    let program = lab.compile("missing.c", include_str!("../programs/missing.c"), &[]);
    assert_eq!(String::from_utf8_lossy(&run(&mut lab.plain(&program)).stdout), "absent\n");
    let mut command = lab.plain(&program);
    lab.record(&mut command);
    let stdout = String::from_utf8_lossy(&run(&mut command).stdout).into_owned();
    let expected = "fffe fffe ffff ffff\n500000 500000 500000 500000\noptional function is absent, errno 11\n";
    assert_eq!(stdout, expected);
    assert_eq!(lab.directories(), Vec::<std::path::PathBuf>::new());
}
