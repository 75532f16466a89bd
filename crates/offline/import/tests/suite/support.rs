//! Small helpers: fixtures, generated rows, and what a pass over an input says.

use std::path::{Path, PathBuf};

use msmemscope_import::{Imported, Recording, open};
use msmemscope_timeline::{Summary, TimelineEvent, TimelineSettings};

pub const HEADER: &str = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,\
                          Call Stack(Python),Call Stack(C)";

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Events of one process.
pub fn events(recording: &Recording) -> (Vec<TimelineEvent>, Summary) {
    let mut events = Vec::new();
    let settings = TimelineSettings::default();
    let summary =
        msmemscope_timeline::run(recording, &settings, &mut |event: TimelineEvent| events.push(event), &mut |_, _| {});
    (events, summary)
}

/// Opens a csv made of a header and these rows.
pub fn open_rows(rows: &[&str]) -> Imported {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memscope_dump_1.csv");
    std::fs::write(&path, format!("{HEADER}\n{}\n", rows.join("\n"))).unwrap();
    open(&path).unwrap()
}
