//! Any bytes in place of a database: read as far as it is one, or refused, and left as it was.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use msmemscope_import::open;
use tempfile::TempDir;

static DIRECTORY: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a directory"));

fuzz_target!(|input: &[u8]| {
    let path = DIRECTORY.path().join("memscope_dump_20260101000000.db");
    std::fs::write(&path, input).expect("a file");
    let _ = open(&path);
    assert_eq!(std::fs::read(&path).expect("still there"), input);
    assert_eq!(std::fs::read_dir(DIRECTORY.path()).expect("a listing").count(), 1, "nothing appears beside it");
});
