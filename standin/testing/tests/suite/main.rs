//! The stand-in device as C programs see it.

mod channels;
mod device;
mod kernels;
mod kill;
mod libraries;
mod memory;
mod mstx;
mod streams;

use standin_truth::{Entry, read_directory};
use std::path::Path;
use std::process::Output;

/// A directory for one test: program and log.
fn workspace() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Compiles and runs `source` and returns what it printed and what the device logged.
fn run(name: &str, source: &str, libraries: &[&str], variables: &[(&str, &str)]) -> (Output, Vec<Entry>) {
    let directory = workspace();
    let log = directory.path().join("log");
    std::fs::create_dir(&log).expect("a log directory");
    let program = standin_testing::compile(directory.path(), name, source, libraries);
    let mut command = standin_testing::command(&program, Some(&log));
    for (variable, value) in variables {
        command.env(variable, value);
    }
    let output = command.output().expect("the program starts");
    let entries = read_directory(&log).expect("a readable log");
    (output, entries)
}

/// The standard output of a program that must have succeeded.
fn success(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

/// Addresses of all entries of a kind that succeeded.
fn addresses(entries: &[Entry], kind: standin_truth::Kind) -> Vec<u64> {
    let wanted = entries.iter().filter(|entry| entry.record.kind == kind && entry.record.result == 0);
    wanted.map(|entry| entry.record.address).collect()
}

/// What `readelf -d` says about a library.
fn dynamic_section(library: &Path) -> String {
    let output = std::process::Command::new("readelf").arg("-d").arg(library).output().expect("readelf");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
