//! What is shown while a recording is being read, and what cannot be opened.

use std::time::Duration;

use msmemscope_viewer::{Session, ViewSettings};

use crate::support::{Dump, PATIENCE, Viewer, training};

#[test]
fn what_cannot_be_opened_is_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let garbage = directory.path().join("memscope_dump_1.csv");
    std::fs::write(&garbage, "not,a,dump\n1,2,3\n").unwrap();
    for path in [directory.path().join("nothing"), garbage] {
        let session =
            Session::open(ViewSettings { paths: vec![path], missing: |_, _| Vec::new(), trusts_summaries: true });
        let reason = session.wait_until_opened(PATIENCE).unwrap_err();
        assert!(!reason.is_empty() && !reason.contains('\n'), "{reason}");
    }
}

#[test]
fn questions_are_answered_at_any_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = training(3000).write(directory.path(), "memscope_dump_1.csv");
    let viewer = Viewer::of(&[&path]);
    let mut latest = 0.0;
    loop {
        let curve = viewer.ask("curve?width=50");
        let fraction = curve["fraction"].as_f64().unwrap();
        assert!((latest..=1.0).contains(&fraction), "progress goes on");
        latest = fraction;
        for question in ["session", "findings", "holds", "tracks", "ranks", "table/blocks"] {
            let answer = viewer.ask(question);
            assert!(answer["complete"].is_boolean(), "{question}");
        }
        if curve["complete"] == true {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(viewer.ask("curve?width=50")["approximate"], false);
}

#[test]
fn every_recording_has_the_name_of_its_own_file() {
    let directory = tempfile::tempdir().unwrap();
    let paths = [7, 8].map(|process| {
        let mut dump = Dump::new();
        dump.process = process;
        dump.malloc("PTA", 0x900_0000, 100, "", "");
        dump.write(directory.path(), &format!("memscope_dump_{process}.csv"))
    });
    let viewer = Viewer::of(&[&paths[1], &paths[0]]).ready();
    let session = viewer.ask("session");
    let names: Vec<_> = session["recordings"].as_array().unwrap().iter().map(|found| &found["name"]).collect();
    assert_eq!(names, ["memscope_dump_7.csv", "memscope_dump_8.csv"], "by process");
}
