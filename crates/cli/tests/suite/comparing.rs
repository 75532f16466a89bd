//! `compare` through the real program: what it writes, and what it refuses.

use std::path::PathBuf;
use std::process::Output;

use crate::support::{Bench, assert_success, run, stderr, stdout};

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../import/tests/fixtures").join(name);
    path.canonicalize().expect("a fixture").display().to_string()
}

fn compare(bench: &Bench, arguments: &[&str]) -> Output {
    let output = format!("--output={}", bench.output().display());
    run(bench.msmemscope([&["compare", &output], arguments].concat()))
}

/// A dump with one operator that allocates from a pool.
fn dump(bench: &Bench, name: &str, pool: &str, operator: Option<&str>) -> String {
    let mut text = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,\
                    Call Stack(Python),Call Stack(C)\n"
        .to_owned();
    text.push_str(&format!("1,MALLOC,{pool},N/A,1010,7,7,0,0x1000,\"{{allocation_id:1,size:64}}\",,\n"));
    if let Some(operator) = operator {
        text.push_str(&format!("2,OP_LAUNCH,ATEN_START,{operator},1020,7,7,0,N/A,,,\n"));
        text.push_str(&format!("3,OP_LAUNCH,ATEN_END,{operator},1030,7,7,0,N/A,,,\n"));
    }
    let path = bench.home.path().join(name);
    std::fs::write(&path, text).expect("a dump");
    path.display().to_string()
}

#[test]
fn rows_and_page_are_written() {
    let bench = Bench::new();
    let (base, other) = (fixture("memscope_dump_20250428113810.csv"), fixture("memscope_dump_20250428113811.csv"));
    let result = compare(&bench, &["--level=kernel", "--html", &base, &other]);
    assert_success(&result);
    let said = stdout(&result);
    assert!(said.lines().all(|line| line.starts_with("Rows in") || line.starts_with("Page in") || line.len() <= 80));
    let mut names: Vec<String> = std::fs::read_dir(bench.output().join("compare"))
        .expect("results")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("memory_compare_")));
    let rows = std::fs::read_to_string(bench.output().join("compare").join(&names[0])).expect("rows");
    assert_eq!(rows.lines().count(), 2 + 12, "the documented number of lines");
    let older = run(bench.msmemscope([
        "--compare",
        &format!("--input={base},{other}"),
        "--level=kernel",
        &format!("--output={}", bench.output().display()),
    ]));
    assert_success(&older);
    assert_eq!(std::fs::read_dir(bench.output().join("compare")).expect("results").count(), 3);
}

#[test]
fn the_older_spelling_takes_the_same_options() {
    let bench = Bench::new();
    let (base, other) = (fixture("memscope_dump_20250428113810.csv"), fixture("memscope_dump_20250428113811.csv"));
    let newer = compare(&bench, &["--level=kernel", "--html", "--json", &base, &other]);
    let older = run(bench.msmemscope([
        "--html",
        "--json",
        "--compare",
        &format!("--input={base},{other}"),
        "--level=kernel",
        &format!("--output={}", bench.output().display()),
    ]));
    let summary = |result: &Output| -> serde_json::Value {
        assert_success(result);
        serde_json::from_str(&stdout(result)).expect("JSON")
    };
    let (newer, older) = (summary(&newer), summary(&older));
    assert_eq!(newer["comparison"], older["comparison"]);
    let page = |summary: &serde_json::Value| std::fs::read_to_string(summary["page"].as_str().expect("a page"));
    assert_eq!(page(&newer).expect("there"), page(&older).expect("there"));
}

#[test]
fn what_cannot_be_compared_is_one_line_with_status_two() {
    let bench = Bench::new();
    let pytorch = dump(&bench, "memscope_dump_1.csv", "PTA", Some("a"));
    let other = dump(&bench, "memscope_dump_4.csv", "PTA", Some("a"));
    let mindspore = dump(&bench, "memscope_dump_2.csv", "MINDSPORE", Some("a"));
    let empty = dump(&bench, "memscope_dump_3.csv", "PTA", None);
    let text = bench.home.path().join("notes.txt");
    std::fs::write(&text, "no dump").expect("a file");
    let text = text.display().to_string();
    let missing = bench.home.path().join("missing").display().to_string();
    for (arguments, expected) in [
        (&["--compare"][..], "--input"),
        (&["--compare", "--input=one"], "two"),
        (&["--compare", "--input=one,two,three"], "two"),
        (&["compare"], "compare"),
        (&["compare", &pytorch], "two recordings"),
        (&["compare", &pytorch, &pytorch, &pytorch], "compare"),
        (&["compare", &pytorch, &missing], "missing"),
        (&["compare", &pytorch, &text], "notes.txt"),
        (&["compare", &pytorch, &mindspore], "different frameworks: PTA and MINDSPORE"),
        (&["compare", &pytorch, &empty], "the other input has no operators"),
        (&["compare", &empty, &pytorch], "the base input has no operators"),
        (&["compare", "--steps=1,2", &pytorch], "in step 1"),
        (&["compare", "--steps=1", &pytorch], "--steps: step 1 would be compared with itself"),
        (&["compare", "--steps=2,2", &pytorch], "--steps: step 2 would be compared with itself"),
        (&["compare", "--steps=1", &pytorch, &other], "in step 1"),
        (&["compare", "--level=kernel", &pytorch, &pytorch], "no kernel launches; try --level=op"),
        (&["compare", "--level=0,1", &pytorch, &pytorch], "--level"),
        (&["compare", "--steps=1,2,3", &pytorch], "--steps"),
    ] {
        let result = run(bench.msmemscope(arguments));
        let said = stderr(&result);
        assert_eq!(result.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert_eq!(stdout(&result), "", "{arguments:?}");
    }
}
