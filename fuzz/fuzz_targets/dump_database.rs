//! Any bytes in place of a database: read as far as it is one, or refused, and left as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use msmemscope_import::open;

fuzz_target!(|input: &[u8]| {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("memscope_dump_20260101000000.db");
    std::fs::write(&path, input).expect("a file");
    let _ = open(&path);
    assert_eq!(std::fs::read(&path).expect("still there"), input);
});
