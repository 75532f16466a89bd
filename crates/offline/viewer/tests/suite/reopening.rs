//! The index beside a recording: it shows the same as the recording, counts only for exactly that recording, and is
//! never needed.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use crate::support::{PATIENCE, Viewer};

const EVENTS: u64 = 150_000;
const TRACE: &str = "recording.trace";
const INDEX: &str = "viewer.index";
const QUESTIONS: [&str; 19] = [
    "session",
    "findings",
    "curve?width=300&by=owner",
    "curve?width=300&by=site&text=block_7",
    "curve?width=300&by=pool",
    "tracks?width=300",
    "blocks?width=400&height=300",
    "block?block=4711",
    "holds?by=site",
    "owners",
    "flame?kind=peak",
    "flame?kind=leaked",
    "steps",
    "ranks",
    "pool",
    "fragmentation?width=50",
    "table/blocks?sort=bytes&descending=1",
    "table/events?offset=100000&kind=malloc,free",
    "source?file=/data/nothing.py&line=1",
];

fn answers(viewer: &Viewer) -> Vec<(&'static str, Value)> {
    let body = |question| viewer.get(&format!("{}/api/{question}", viewer.path()), "").2;
    QUESTIONS.iter().map(|&question| (question, serde_json::from_str(&body(question)).unwrap())).collect()
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < deadline, "{} is not written", path.display());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A directory with a recording and its index, and the answers about it.
fn indexed() -> (tempfile::TempDir, PathBuf, Vec<(&'static str, Value)>) {
    let directory = tempfile::tempdir().unwrap();
    made_recordings::training(directory.path(), EVENTS, 4711);
    let viewer = Viewer::of(&[directory.path()]).ready();
    let first = answers(&viewer);
    let index = directory.path().join(INDEX);
    wait_for(&index);
    (directory, index, first)
}

/// Overwrites all records, and nothing else: whoever reads them finds none.
fn wipe_records(trace: &Path) {
    let times = fs::metadata(trace).unwrap().modified().unwrap();
    let file = File::options().write(true).open(trace).unwrap();
    let (header, chunk, chunk_header) = (4096, 256 * 1024, 64);
    let chunks = (file.metadata().unwrap().len() - header) / chunk;
    for number in 0..chunks {
        let zeros = vec![0; (chunk - chunk_header) as usize];
        file.write_all_at(&zeros, header + number * chunk + chunk_header).unwrap();
    }
    file.set_modified(times).unwrap();
}

#[test]
fn an_index_shows_the_same_without_the_recording_being_read() {
    let (directory, index, first) = indexed();
    let of_trace = fs::metadata(directory.path().join(TRACE)).unwrap();
    let of_index = fs::metadata(&index).unwrap();
    assert_eq!(of_index.permissions().mode(), of_trace.permissions().mode(), "whoever reads one reads the other");
    assert!(!directory.path().join("viewer.index.new").exists());
    wipe_records(&directory.path().join(TRACE));
    let again = answers(&Viewer::of(&[directory.path()]).ready());
    for ((question, before), (_, after)) in first.iter().zip(&again) {
        assert_eq!(before, after, "{question}");
    }
    let kept = fs::metadata(&index).unwrap();
    assert_eq!((kept.ino(), kept.mtime_nsec()), (of_index.ino(), of_index.mtime_nsec()), "it is not written again");
}

#[test]
fn an_index_of_another_state_is_thrown_away() {
    let (directory, index, _) = indexed();
    let stale = fs::metadata(&index).unwrap();
    fs::remove_file(directory.path().join(TRACE)).unwrap();
    made_recordings::training(directory.path(), 2 * EVENTS, 4711);
    let viewer = Viewer::of(&[directory.path()]).ready();
    let events = viewer.ask("session")["recordings"][0]["events"].as_u64().unwrap();
    assert!(events > 2 * EVENTS - 1000, "{events}");
    wait_for(&index);
    let deadline = Instant::now() + PATIENCE;
    while fs::metadata(&index).is_ok_and(|fresh| fresh.ino() == stale.ino() && fresh.len() == stale.len()) {
        assert!(Instant::now() < deadline, "the new index is not written");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn whatever_is_wrong_with_an_index_the_recording_counts() {
    let (directory, index, first) = indexed();
    let good = fs::read(&index).unwrap();
    let last = good.len() - 1;
    let mut damaged = good.clone();
    damaged[last / 2] ^= 1;
    let mut other_version = good.clone();
    other_version[8] ^= 1;
    let broken = [damaged, other_version, good[..last].to_vec(), good[..20].to_vec(), b"MSMSVIEW".to_vec(), Vec::new()];
    for bytes in broken {
        fs::write(&index, &bytes).unwrap();
        let again = answers(&Viewer::of(&[directory.path()]).ready());
        assert_eq!(again[0].1["recordings"][0]["events"], first[0].1["recordings"][0]["events"]);
        assert_eq!(again[2], first[2]);
    }
    // Something else of that name stays as it is.
    let other = tempfile::tempdir().unwrap();
    made_recordings::training(other.path(), EVENTS, 4711);
    fs::create_dir(other.path().join(INDEX)).unwrap();
    assert_eq!(answers(&Viewer::of(&[other.path()]).ready())[2], first[2]);
    assert!(other.path().join(INDEX).is_dir());
}

#[test]
fn nothing_is_written_where_the_user_may_not_or_beside_what_is_not_theirs() {
    let directory = tempfile::tempdir().unwrap();
    made_recordings::training(directory.path(), EVENTS, 4711);
    let is_foreign = std::os::unix::fs::chown(directory.path().join(TRACE), Some(65_534), Some(65_534)).is_ok();
    if !is_foreign {
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o555)).unwrap();
    }
    let viewer = Viewer::of(&[directory.path()]).ready();
    assert_eq!(viewer.ask("curve?width=10")["complete"], true);
    // The reading is over: ending waits for whatever is being written.
    std::thread::sleep(std::time::Duration::from_millis(300));
    viewer.session.end();
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [TRACE]);
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn small_recordings_have_no_index() {
    let directory = tempfile::tempdir().unwrap();
    made_recordings::training(directory.path(), 5000, 4711);
    let viewer = Viewer::of(&[directory.path()]).ready();
    std::thread::sleep(std::time::Duration::from_millis(200));
    viewer.session.end();
    assert!(!directory.path().join(INDEX).exists());
}
