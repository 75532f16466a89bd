//! Any text behind the header of a result file: it is read with a count of what was skipped, or refused, and every
//! analysis of what was read comes to an end.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use msmemscope_analysis::{Questions, analyze};
use msmemscope_import::open;
use tempfile::TempDir;

const HEADER: &[u8] = b"ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,\
Call Stack(Python),Call Stack(C)\n";

static DIRECTORY: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a directory"));

fuzz_target!(|input: &[u8]| {
    let path = DIRECTORY.path().join("memscope_dump_20260101000000.csv");
    std::fs::write(&path, [HEADER, input].concat()).expect("a file");
    if let Ok(imported) = open(&path) {
        for recording in &imported.recordings {
            let _ = analyze(recording, &Questions::all(), &mut |_, _| {});
        }
    }
});
