//! Any bytes as a memory snapshot of PyTorch: nothing is executed, they are refused or read, and every analysis of what was
//! read comes to an end.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use msmemscope_analysis::{Questions, analyze};
use msmemscope_import::open;
use tempfile::TempDir;

static DIRECTORY: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a directory"));

fuzz_target!(|input: &[u8]| {
    let path = DIRECTORY.path().join("snapshot.pickle");
    std::fs::write(&path, [b"\x80\x04", input].concat()).expect("a file");
    if let Ok(imported) = open(&path) {
        for recording in &imported.recordings {
            let _ = analyze(recording, &Questions::all(), &mut |_, _| {});
        }
    }
});
