//! All ranks of a job from their summaries: recordings wait until somebody asks about them, or are not there at all.

use std::path::{Path, PathBuf};
use std::time::Instant;

use made_recordings::Rank;
use msmemscope_analysis::fleet::summary::{FORMAT, PoolNumbers, Summary, VERSION};
use serde_json::Value;

use crate::support::{PATIENCE, Viewer};

const RANKS: u32 = 12;
const LEAKING: u32 = 5;

fn recording(home: &Path, rank: u32) -> PathBuf {
    let directory = home.join(format!("rank{rank}"));
    let rank = Rank {
        rank,
        world_size: RANKS,
        host: "left",
        job: "",
        command: "python\0train.py",
        steps: 8,
        kept_bytes: if rank == LEAKING { 1 << 20 } else { 0 },
    };
    rank.record(&directory);
    directory
}

/// What the summary of a rank could say: nothing of it is in the recordings, so that it is known who is believed.
fn summarise(directory: &Path, rank: u32, peak_bytes: u64) {
    let mut summary =
        Summary { format: FORMAT.to_owned(), version: VERSION, steps: 4, events: 99, ..Summary::default() };
    summary.identity.rank = Some(rank);
    summary.identity.world_size = Some(RANKS);
    summary.identity.host = "right".to_owned();
    summary.identity.command = "python train.py".to_owned();
    summary.identity.process_id = 1000 + rank;
    (summary.identity.start_ns, summary.identity.end_ns) = (10_000, 20_000);
    summary.pools = vec![PoolNumbers {
        device: "0".to_owned(),
        pool: "PTA".to_owned(),
        peak_bytes,
        peak_ns: 15_000,
        reserved_bytes: peak_bytes + 512,
        growth_bytes_per_step: Some(0.5),
        ..PoolNumbers::default()
    }];
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join("summary.json"), serde_json::to_vec(&summary).unwrap()).unwrap();
}

fn states(viewer: &Viewer) -> Vec<String> {
    let session = viewer.ask("session");
    let recordings = session["recordings"].as_array().unwrap();
    recordings.iter().map(|recording| recording["state"].as_str().unwrap().to_owned()).collect()
}

fn outliers(ranks: &Value) -> Vec<(u64, String)> {
    let rows = ranks["rows"].as_array().unwrap().iter();
    let named = rows.filter_map(|row| Some((row["rank"].as_u64()?, row["sentence"].as_str()?.to_owned())));
    named.collect()
}

#[test]
fn recordings_of_many_ranks_wait_until_somebody_asks() {
    let home = tempfile::tempdir().unwrap();
    for rank in 0..RANKS {
        let directory = recording(home.path(), rank);
        summarise(&directory, rank, if rank == 3 { 9 << 20 } else { 1 << 20 });
    }
    let viewer = Viewer::of(&[home.path()]).ready();
    assert_eq!(states(&viewer), vec!["waiting"; RANKS as usize]);
    let ranks = viewer.ask("ranks");
    let found = outliers(&ranks);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, 3, "as the summaries say it");
    assert!(found[0].1.starts_with("Outlier: rank 3 (right, device 0) peaks at 9.0 MiB"), "{}", found[0].1);
    let row = &ranks["rows"][3];
    assert_eq!((&row["unused_bytes"], &row["bytes_per_step"]), (&512.into(), &0.5.into()));
    assert_eq!((&row["r"], &row["out_of_memory"]), (&3.into(), &false.into()));
    assert_eq!(ranks["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(viewer.ask("findings")["findings"].as_array().unwrap().len(), 0);
    assert_eq!(states(&viewer), vec!["waiting"; RANKS as usize], "looking at all of them opens none");
    let known = &viewer.ask("session")["recordings"][3];
    assert_eq!((&known["events"], &known["devices"][0]["pools"][0]["peak_bytes"]), (&99.into(), &(9 << 20).into()));

    let asked = Instant::now();
    while viewer.ask("curve?r=5&by=none")["complete"] != true {
        assert!(asked.elapsed() < PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let states = states(&viewer);
    assert_eq!((states[5].as_str(), states.iter().filter(|state| *state == "waiting").count()), ("ready", 11));
    let leak = viewer.ask("findings?r=5");
    assert!(leak["findings"][0]["sentence"].as_str().unwrap().contains("train.py:21 remember"), "{leak}");
}

#[test]
fn the_page_says_which_recording_it_shows() {
    let home = tempfile::tempdir().unwrap();
    for rank in 0..RANKS {
        summarise(&recording(home.path(), rank), rank, 1 << 20);
    }
    let viewer = Viewer::of(&[home.path()]).ready();
    viewer.ask("session?r=7");
    let viewer = viewer.ready();
    assert_eq!(states(&viewer).iter().position(|state| state == "ready"), Some(7));
}

#[test]
fn summaries_that_were_copied_alone_are_enough() {
    let home = tempfile::tempdir().unwrap();
    for rank in 0..4 {
        summarise(&home.path().join(format!("host{rank}/1_rank")), rank, if rank == 2 { 4096 } else { 1024 });
    }
    std::fs::create_dir(home.path().join("broken")).unwrap();
    std::fs::write(home.path().join("broken/summary.json"), "{").unwrap();
    let viewer = Viewer::of(&[home.path()]).ready();
    assert_eq!(states(&viewer), ["summary"; 4]);
    let session = viewer.ask("session");
    let notice = session["notice"].as_str().unwrap();
    assert!(notice.starts_with("1 summary skipped: damaged; ") && notice.contains("broken/summary.json"), "{notice}");
    assert_eq!(outliers(&viewer.ask("ranks")).iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [2]);
    let (status, _, body) = viewer.get(&format!("{}/api/curve?r=1", viewer.path()), "");
    assert_eq!(status, 404);
    assert!(body.contains("Only the summary of this process is here."), "{body}");
}

#[test]
fn a_few_recordings_are_read_and_not_believed() {
    let home = tempfile::tempdir().unwrap();
    for rank in 4..8 {
        summarise(&recording(home.path(), rank), rank, 7);
    }
    let viewer = Viewer::of(&[home.path()]).ready();
    assert_eq!(states(&viewer), ["ready"; 4]);
    let ranks = viewer.ask("ranks");
    assert!(ranks["rows"][0]["peak_bytes"].as_u64() > Some(1 << 20), "{ranks}");
    let found = outliers(&ranks);
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("rank 5 (left, device 0) grows by 1.0 MiB with every step"), "{}", found[0].1);
}

#[test]
fn a_recording_that_cannot_be_opened_says_why() {
    let home = tempfile::tempdir().unwrap();
    for rank in 0..RANKS {
        let directory = recording(home.path(), rank);
        summarise(&directory, rank, 1 << 20);
        if rank == 4 {
            std::fs::write(directory.join(msmemscope_trace::TRACE_FILE_NAME), "nothing of the kind").unwrap();
        }
    }
    let viewer = Viewer::of(&[home.path()]).ready();
    viewer.ask("session?r=4");
    let viewer = viewer.ready();
    let recording = &viewer.ask("session")["recordings"][4];
    assert_eq!(recording["state"], "failed", "{recording}");
    assert!(!recording["error"].as_str().unwrap().is_empty(), "{recording}");
    assert_eq!(viewer.ask("ranks")["rows"].as_array().unwrap().len(), RANKS as usize);
}

#[test]
fn two_runs_of_the_same_ranks_are_two_jobs() {
    let home = tempfile::tempdir().unwrap();
    for (run, process_id) in [("first", 100), ("second", 200)] {
        for rank in 0..3 {
            let directory = home.path().join(run).join(format!("rank{rank}"));
            summarise(&directory, rank, process_id);
            let path = directory.join("summary.json");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replace("\"start_ns\":10000", &format!("\"start_ns\":{process_id}"))).unwrap();
        }
    }
    let viewer = Viewer::of(&[&home.path().join("first"), &home.path().join("second")]).ready();
    let ranks = viewer.ask("ranks");
    let peaks = |job: u64| -> Vec<&Value> {
        let rows = ranks["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["job"] == job).map(|row| &row["peak_bytes"]).collect()
    };
    assert_eq!((peaks(0), peaks(1)), (vec![&Value::from(100); 3], vec![&Value::from(200); 3]));
}
