//! Directories: dump files of one process are put together.

use std::fs;

use msmemscope_import::{ImportError, open};

use crate::support::{HEADER, events, fixture};

#[test]
fn files_of_all_devices_make_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let system = "1,SYSTEM,ACL_INIT,N/A,5,7,7,N/A,N/A,,,";
    for device in 0..2 {
        let dump = directory.path().join(format!("msmemscope_7_20260101000000_ascend/device_{device}/dump"));
        fs::create_dir_all(&dump).unwrap();
        let malloc = format!("{},MALLOC,PTA,N/A,1{device},7,7,{device},0x10,\"{{size:1{device}}}\",,", device + 2);
        fs::write(dump.join("memscope_dump_20260101000000.csv"), format!("{HEADER}\n{system}\n{malloc}\n")).unwrap();
    }
    let imported = open(directory.path()).unwrap();
    assert_eq!(imported.recordings.len(), 1);
    assert_eq!((imported.report.rows_used, imported.report.rows_derived), (3, 1), "the system row is there twice");
    let (_, summary) = events(&imported.recordings[0]);
    assert_eq!(summary.pools.iter().map(|pool| pool.end_used_bytes).collect::<Vec<_>>(), [10, 11]);
}

#[test]
fn old_names_and_databases_are_found() {
    let directory = tempfile::tempdir().unwrap();
    fs::copy(fixture("aten_baseline.csv"), directory.path().join("leaks_dump_20251203.csv")).unwrap();
    fs::copy(fixture("memscope_dump_20260527062213.db"), directory.path().join("memscope_dump_1.db")).unwrap();
    fs::write(directory.path().join("notes.txt"), "nothing").unwrap();
    assert_eq!(open(directory.path()).unwrap().recordings.len(), 2);
}

#[test]
fn an_empty_directory_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(matches!(error, ImportError::EmptyDirectory { .. }));
    assert!(error.to_string().starts_with("no recording, memscope_dump, leaks_dump or snapshot file in /"));
}

/// A recording that something overwrote, one that was cut off within its first page, and one that never got any.
#[test]
fn what_cannot_be_read_in_a_directory_is_left_out_and_told_of() {
    for broken in [&b"not what it was"[..], &[0; 1000], b""] {
        let directory = tempfile::tempdir().unwrap();
        fs::copy(fixture("aten_baseline.csv"), directory.path().join("memscope_dump_1.csv")).unwrap();
        let trace = directory.path().join("msmemscope_7_20260101000000_ascend").join("recording.trace");
        fs::create_dir(trace.parent().unwrap()).unwrap();
        fs::write(&trace, broken).unwrap();
        let imported = open(directory.path()).unwrap();
        assert_eq!((imported.recordings.len(), imported.report.files_left_out()), (1, 1));
        let notice = imported.report.notice().unwrap();
        assert!(notice.starts_with("1 file is left out: ") && notice.contains("recording.trace"), "{notice}");
        assert!(open(&trace).is_err(), "whoever names it is told why");
        assert!(open(trace.parent().unwrap()).is_err(), "there is nothing else");
    }
}

#[test]
fn snapshots_are_found() {
    let directory = tempfile::tempdir().unwrap();
    for (archive, name) in [("torch_npu_snapshot", "rank0.pkl"), ("torch_npu_snapshot_expandable", "rank1.pickle")] {
        let archive = fs::File::open(fixture(&format!("{archive}.pkl.gz"))).unwrap();
        let mut snapshot = fs::File::create(directory.path().join(name)).unwrap();
        std::io::copy(&mut flate2::read::GzDecoder::new(archive), &mut snapshot).unwrap();
    }
    fs::write(directory.path().join("notes.pkl"), "nothing").unwrap();
    let imported = open(directory.path()).unwrap();
    assert_eq!((imported.recordings.len(), imported.report.notice()), (2, None));
    assert!(imported.recordings.iter().all(msmemscope_import::Recording::is_snapshot));
}
