//! `replay`: the same of a recording and of the files made of it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Bench, assert_success, run, stdout};

/// The file of a dump with an ending.
fn dump(recording: &Path, ending: &str) -> PathBuf {
    let files = std::fs::read_dir(recording.join("device_0/dump")).expect("dumps");
    let mut files = files.map(|file| file.expect("a file").path());
    files.find(|file| file.extension().is_some_and(|extension| extension == ending)).expect("a dump")
}

#[test]
fn a_recording_and_its_files_are_replayed_alike() {
    let bench = Bench::new();
    let script =
        "init device:0 step pool:2097152 pool:512 endstep step pool:41943040 poolfree pool:41943040 endstep fini";
    assert_success(&bench.record(&["--data-format=csv,db"], script));
    let recording = bench.recording().0;
    let replayed = |path: &Path, options: &[&str]| {
        let mut command = bench.msmemscope(["replay"]);
        let output = run({
            command.arg(path).args(options);
            command
        });
        assert_success(&output);
        stdout(&output)
    };
    let numbers = |path: &Path| -> Value {
        let all: Value = serde_json::from_str(&replayed(path, &["--json", "--card=1GiB"])).expect("json");
        let card = &all["cards"][0];
        let agreement = ["events", "differing", "largest_difference_bytes"].map(|key| card["agreement"][key].clone());
        assert_eq!(agreement[0], 5, "{card}");
        let peaks = ["peak_reserved_bytes", "peak_used_bytes"].map(|key| card["recorded"][key].clone());
        serde_json::json!([agreement, peaks, card["trials"], card["smallest_cards"], card["allocations"]])
    };
    let expected = numbers(&recording);
    for ending in ["csv", "db"] {
        let file = dump(&recording, ending);
        assert_eq!(numbers(&file), expected, "{ending}");
        let said = replayed(&file, &[]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("settings were not recorded; default settings are assumed"), "{said}");
        assert!(!said.contains("card of 0 B") && !said.contains("runs out"), "{said}");
    }
    assert!(replayed(&recording, &[]).replace('\n', " ").contains("made with default settings"));
}
