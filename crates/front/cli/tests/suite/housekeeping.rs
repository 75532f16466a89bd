//! `list` and `clean`: what is there, and getting rid of it without touching anything else.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::pseudo_terminal::Session;
use crate::support::{Bench, Recorded, assert_success, job, run, stderr, stdout};

const SCRIPT: &str = "init device:0 alloc:12 free";

fn name(recorded: &Recorded) -> String {
    recorded.0.file_name().expect("a name").to_string_lossy().into_owned()
}

fn clean(bench: &Bench, arguments: &[&str]) -> Output {
    run(bench.msmemscope([&["clean"], arguments].concat()))
}

/// Two ranks of one job.
fn record_two_ranks(bench: &Bench) {
    let mut command = bench.msmemscope(["--output", "out", "--", "sh", "-c"]);
    let ranks = "for RANK in 0 1; do export RANK WORLD_SIZE=2; $0 init device:0 alloc:12; done";
    command.arg(ranks).arg(job());
    assert_success(&run(command));
}

#[test]
fn recordings_are_listed_by_run_the_latest_first() {
    let bench = Bench::new();
    let listing = run(bench.msmemscope(["list"]));
    assert_success(&listing);
    assert_eq!(stdout(&listing), "No recordings in memscopeDumpResults.\n");
    record_two_ranks(&bench);
    let ranks = bench.recordings();
    bench.record(&[], "init device:0 alloc:12 raise:9");
    let killed = bench.recordings().into_iter().find(|recorded| !ranks.contains(recorded)).expect("one more");
    let listing = run(bench.msmemscope(["list", "out"]));
    assert_success(&listing);
    let text = stdout(&listing);
    let lines: Vec<&str> = text.lines().collect();
    let starts = |line: usize, words: &[&str]| {
        let found: Vec<&str> = lines[line].split_whitespace().collect();
        assert!(found.starts_with(words), "{text}");
    };
    starts(0, &["name", "started", "on", "disk", "state"]);
    starts(1, &[&name(&killed)]);
    assert!(lines[1].ends_with("cut off"), "{text}");
    let cut = |line: usize, end: &str| assert!(lines[line].ends_with(end) && lines[line].len() <= 80, "{text}");
    cut(2, "device:0 alloc:12 raise:9");
    assert!(ranks.iter().any(|rank| lines[3].contains(&name(rank))) && lines[3].ends_with("finished"), "{text}");
    assert!(lines[4].starts_with("    2 processes, ranks 0-1: "), "{text}");
    cut(4, " init device:0 alloc:12");
    assert!(lines[6].starts_with("2 recordings of 3 processes, "), "{text}");
    assert!(lines[..5].iter().all(|line| line.starts_with("    ") || line.chars().count() <= 80), "{text}");
    std::fs::remove_file(killed.0.join(".finished")).expect("a manifest");
    let text = stdout(&run(bench.msmemscope(["list", "out"])));
    assert!(text.contains("no results\n") && text.ends_with("To write missing results: msmemscope recover out\n"));
    let json: serde_json::Value =
        serde_json::from_slice(&run(bench.msmemscope(["list", "--json", "out"])).stdout).expect("JSON");
    assert_eq!(json["recordings"][1]["processes"][1]["rank"], 1);
    assert_eq!(json["recordings"][0]["state"], "no results");
    let information = stdout(&run(bench.msmemscope(["info", "out"])));
    assert!(information.contains("  Rank          1 of 2\n"), "{information}");
}

#[test]
fn cleaning_says_what_goes_and_waits_for_a_yes() {
    let bench = Bench::new();
    for _ in 0..2 {
        assert_success(&bench.record(&["--output", "memscopeDumpResults"], SCRIPT));
    }
    let output = bench.path("memscopeDumpResults");
    let count = || crate::support::recordings(&output).len();
    let vague = clean(&bench, &[]);
    assert_eq!(vague.status.code(), Some(2));
    assert!(stderr(&vague).contains("memscopeDumpResults has 2 recordings: say which with"), "{}", stderr(&vague));
    let unasked = clean(&bench, &["--all"]);
    assert_eq!(unasked.status.code(), Some(2));
    assert!(stdout(&unasked).contains("2 recordings, "), "{}", stdout(&unasked));
    assert!(stderr(&unasked).contains("nothing was removed: add --yes"), "{}", stderr(&unasked));
    for bad in ["--older-than=soon", "--older-than=7", "--older-than=99999999999999999999w", "--keep=some"] {
        assert_eq!(clean(&bench, &[bad, "--yes"]).status.code(), Some(2), "{bad}");
    }
    let young = clean(&bench, &["--older-than=1d", "--yes"]);
    assert_eq!(stdout(&young), "Nothing to remove.\n");
    for (answer, left) in [("n\n", 2), ("\n", 2), ("y\n", 0)] {
        let mut session = Session::start(bench.msmemscope(["clean", "--all"]));
        session.expect("Remove these 2 recordings? [y/N] ");
        session.press(answer);
        assert_eq!(session.finish().0.code(), Some(0));
        assert_eq!(count(), left, "{answer:?}");
    }
    assert!(output.is_dir());
    assert_eq!(stdout(&clean(&bench, &["--all", "--yes"])), "Nothing to remove.\n");
}

#[test]
fn the_latest_are_kept_and_names_are_understood() {
    let bench = Bench::new();
    let mut names = Vec::new();
    for _ in 0..3 {
        assert_success(&bench.record(&["--output", "memscopeDumpResults"], SCRIPT));
        let all = crate::support::recordings(&bench.path("memscopeDumpResults"));
        names.push(all.iter().map(name).find(|name| !names.contains(name)).expect("a new one"));
    }
    let left =
        || -> Vec<String> { crate::support::recordings(&bench.path("memscopeDumpResults")).iter().map(name).collect() };
    let removed = clean(&bench, &["--keep=2", "--yes"]);
    assert_success(&removed);
    assert!(stdout(&removed).ends_with("Removed 1 recording.\n"), "{}", stdout(&removed));
    assert!(!left().contains(&names[0]) && left().len() == 2);
    assert_success(&clean(&bench, &[&names[2], "--yes"]));
    assert_eq!(left(), [names[1].clone()]);
    assert_success(&clean(&bench, &["--older-than=0s", "memscopeDumpResults", "--yes"]));
    assert!(left().is_empty());
}

#[test]
fn programs_are_told_what_was_removed() {
    let bench = Bench::new();
    let json = |output: &Output| -> serde_json::Value { serde_json::from_slice(&output.stdout).expect("JSON") };
    let nothing = run(bench.msmemscope(["list", "--json"]));
    assert_success(&nothing);
    assert_eq!(json(&nothing)["recordings"], serde_json::json!([]));
    assert_success(&bench.record(&["--output", "memscopeDumpResults"], SCRIPT));
    let unasked = clean(&bench, &["--all", "--json"]);
    assert_eq!((unasked.status.code(), stdout(&unasked).as_str()), (Some(2), ""), "{}", stderr(&unasked));
    let removed = clean(&bench, &["--all", "--json", "--yes"]);
    assert_success(&removed);
    let removed = json(&removed);
    assert_eq!(removed["removed"].as_array().map(Vec::len), Some(1), "{removed}");
    assert!(removed["removed"][0]["disk_bytes"].as_u64() > Some(0), "{removed}");
    let again = clean(&bench, &["--all", "--json"]);
    assert_eq!(json(&again), serde_json::json!({ "removed": [], "left": [], "schema_version": 1 }));
}

#[test]
fn nothing_but_recordings_is_removed() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], SCRIPT));
    let recorded = bench.recording();
    let precious = bench.path("precious");
    std::fs::create_dir(&precious).expect("a directory");
    std::fs::write(precious.join("file"), "precious").expect("a file");
    assert_success(&bench.record(&["--output", "elsewhere"], SCRIPT));
    // Links in a recording, links beside recordings, directories that only look like recordings, the user's own files.
    symlink(&precious, recorded.0.join("device_7")).expect("a link");
    symlink(&precious, recorded.0.join("device_0/dump/link")).expect("a link");
    symlink(bench.path("elsewhere"), bench.output().join("msmemscope_1_20250101000000_ascend")).expect("a link");
    std::fs::create_dir(bench.output().join("compare")).expect("a directory");
    let fake = bench.output().join("msmemscope_2_20250101000000_ascend");
    std::fs::create_dir(&fake).expect("a directory");
    std::fs::write(fake.join("recording.trace"), [b'x'; 8192]).expect("a file");
    std::fs::write(recorded.0.join("notes.txt"), "mine").expect("a file");
    std::fs::create_dir(bench.output().join("watch_dump")).expect("a directory");
    let link = bench.output().join("watch_dump").join(format!("{}_device_0", name(&recorded)));
    symlink("../nowhere", &link).expect("a link");
    let removed = clean(&bench, &["--all", "--yes", "out"]);
    assert_success(&removed);
    let said = stderr(&removed);
    assert!(said.contains("stays with files that are not of the recording: notes.txt"), "{said}");
    assert_eq!(std::fs::read_to_string(precious.join("file")).expect("still there"), "precious");
    assert_eq!(std::fs::read_to_string(recorded.0.join("notes.txt")).expect("still there"), "mine");
    assert_eq!(std::fs::read_dir(&recorded.0).expect("listing").count(), 1);
    assert_eq!(crate::support::recordings(&bench.path("elsewhere")).len(), 1);
    assert!(fake.join("recording.trace").exists() && bench.output().join("compare").exists());
    assert!(!bench.output().join("watch_dump").exists(), "links to what is gone go as well");
    for path in ["precious", "out/compare", "out/nothing", "precious/file", "out/msmemscope_2_20250101000000_ascend"] {
        clean(&bench, &["--all", "--yes", path]);
    }
    assert!(precious.join("file").exists() && fake.exists() && bench.output().join("compare").exists());
}

#[test]
fn what_still_runs_stays() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--output", "out", "--"]);
    command.arg(job()).args("init device:0 alloc:12 say:ready catch wait".split_whitespace());
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut line = String::new();
    let output = running.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
    let listing = stdout(&run(bench.msmemscope(["list", "out"])));
    assert!(listing.contains("  running\n"), "{listing}");
    let named = bench.recording().0;
    for place in [Path::new("out"), named.as_path()] {
        let refused = clean(&bench, &["--all", "--yes", place.to_str().expect("text")]);
        assert!(stderr(&refused).contains("is still running and stays"), "{}", stderr(&refused));
        assert_eq!(stdout(&refused), "Nothing to remove.\n");
    }
    // SAFETY: plain system call; the child was not waited for yet.
    unsafe { libc::kill(running.id() as i32, libc::SIGTERM) };
    running.wait().expect("it ends");
    assert_success(&clean(&bench, &["--all", "--yes", "out"]));
    assert!(bench.recordings().is_empty());
}
