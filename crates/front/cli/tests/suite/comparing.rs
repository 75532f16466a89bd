//! `compare` through the real program: what it writes, and what it refuses.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use msmemscope_config::{Settings, Variant};
use msmemscope_event::{
    BlockProperties, Device, Fact, Framework, Pool, ProcessInfoKey, RecordingState, StackId, StringId,
};
use msmemscope_trace::writer::{ProcessIdentity, TraceFile};

use crate::support::{Bench, Recorded, assert_success, run, stderr, stdout};

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../offline/import/tests/fixtures").join(name);
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

/// A recording of nine steps, the last of which allocates twice as much, made with `--steps`; and its csv file.
fn recorded_with_steps(bench: &Bench, name: &str, steps: &[u32]) -> (PathBuf, PathBuf) {
    let directory = bench.path(name);
    std::fs::create_dir(&directory).expect("a directory");
    let path = CString::new(directory.join("recording.trace").into_os_string().into_vec()).expect("a path");
    let identity =
        ProcessIdentity { process_id: 7, parent_process_id: 1, run_id: 1, wall_offset_ns: 0, monotonic_ns: 0 };
    let file = TraceFile::create(path, &identity, 1 << 30).expect("a trace");
    let mut chunk = file.allocate_chunk(7, 0).expect("a chunk");
    let mut time = 0;
    let mut record = |fact: Fact<'_>| {
        time += 10;
        assert!(chunk.append(time, StackId::NONE, StackId::NONE, &fact));
    };
    let settings = Settings { steps: steps.to_vec(), ..Settings::defaults(Variant::Msmemscope) };
    let settings = msmemscope_config::Recording {
        settings: Settings { output: bench.output(), ..settings },
        run_id: 1,
        wall_clock_offset_ns: 0,
        is_supervised: true,
        finisher: None,
        python_package: None,
    };
    record(Fact::ProcessInfo { key: ProcessInfoKey::Settings, text: settings.to_environment().as_bytes() });
    record(Fact::Recording { state: RecordingState::On });
    let (device, framework) = (Device::Npu(0), Framework::Aten);
    let properties = BlockProperties::framework(Pool::PytorchCaching, device);
    for (id, name) in [(StringId(1), "aten.add"), (StringId(2), "aten.mul")] {
        record(Fact::DefineString { id, text: name.as_bytes() });
    }
    // Alive in every step, and of no file that has one of them only.
    record(Fact::Allocation { properties, address: 0x100_0000, size_bytes: 1 << 20 });
    for step in 1..=9u64 {
        record(Fact::RangeBegin { domain: StringId::NONE, device, range_id: step, message: b"step start" });
        for name in [StringId(1), StringId(2)] {
            let address = 0x1_0000_0000 * step + u64::from(name.0) * 0x1000_0000;
            record(Fact::OperatorBegin { framework, device, name, detail: StringId::NONE });
            let size_bytes = if step == 9 { 8192 } else { 4096 };
            record(Fact::Allocation { properties, address, size_bytes });
            record(Fact::OperatorEnd { framework, device, name, detail: StringId::NONE });
            if step > 1 {
                record(Fact::Free { properties, address: address - 0x1_0000_0000 });
            }
        }
        record(Fact::RangeEnd { domain: StringId::NONE, device, range_id: step });
    }
    file.seal_chunk(chunk);
    file.close(time + 10);
    let mut finish = bench.msmemscope(["finish"]);
    finish.arg(&directory);
    assert_success(&run(finish));
    let csv = Recorded(directory.clone()).tables("csv").remove("0").expect("a csv file");
    (directory, csv)
}

#[test]
fn recordings_of_chosen_steps_are_compared_as_their_files_are() {
    let bench = Bench::new();
    let (second, second_csv) = recorded_with_steps(&bench, "step2", &[2]);
    let (ninth, ninth_csv) = recorded_with_steps(&bench, "step9", &[9]);
    let summary = |arguments: &[&str]| -> serde_json::Value {
        let output = format!("--output={}", bench.output().display());
        let result = run(bench.msmemscope([arguments, &["--json", &output]].concat()));
        assert_success(&result);
        let mut summary: serde_json::Value = serde_json::from_str(&stdout(&result)).expect("JSON");
        // Files name owners only with --analysis=decompose.
        summary["comparison"]["owners"].take();
        summary["comparison"].take()
    };
    let text = |path: &Path| path.display().to_string();
    let mut by_files = summary(&["compare", &text(&second_csv), &text(&ninth_csv)]);
    assert_eq!(by_files["devices"][0]["peak_bytes"], serde_json::json!({ "base": 8192, "other": 16384 }));
    assert_eq!(by_files["devices"][0]["items"], serde_json::json!({ "base": 2, "other": 2 }));
    // Files hold nothing else, so they need not say which steps they are of.
    by_files["recorded_steps"] = serde_json::json!([[2], [9]]);
    let traces = [second.join("recording.trace"), ninth.join("recording.trace")].map(|path| text(&path));
    let inputs = format!("--input={},{}", text(&second), text(&ninth));
    for arguments in [&["compare", "step2", "step9"][..], &["compare", &traces[0], &traces[1]], &["--compare", &inputs]]
    {
        assert_eq!(summary(arguments), by_files, "{arguments:?}");
    }
    let shown = compare(&bench, &["step2", "step9"]);
    let heading = "Compared: step 2 of the base, step 9 of the other, as recorded.\n";
    assert!(stdout(&shown).starts_with(heading), "{}", stdout(&shown));
    // Who names steps means those, whatever was chosen for the files.
    let named = summary(&["compare", "--steps=2,9", "step2"]);
    assert_eq!(named["devices"][0]["items"], serde_json::json!({ "base": 2, "other": 2 }));
    assert_eq!(named["recorded_steps"], serde_json::json!([[], []]));
    let (never, _) = recorded_with_steps(&bench, "never", &[2, 99]);
    assert!(
        stdout(&compare(&bench, &["step2", &text(&never)])).starts_with("Compared: step 2 of the base, steps 2, 99")
    );
}

#[test]
fn a_side_without_operators_is_compared_by_what_it_holds() {
    let bench = Bench::new();
    let with = dump(&bench, "memscope_dump_1.csv", "PTA", Some("a"));
    let without = dump(&bench, "memscope_dump_3.csv", "PTA", None);
    for (base, other, lacking) in
        [(&with, &without, "The other has no operators"), (&without, &with, "The base has no")]
    {
        let result = run(bench.msmemscope(["compare", base.as_str(), other.as_str()]));
        assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
        assert!(stdout(&result).starts_with(lacking), "{}", stdout(&result));
    }
}

#[test]
fn what_cannot_be_compared_is_one_line_with_status_two() {
    let bench = Bench::new();
    let pytorch = dump(&bench, "memscope_dump_1.csv", "PTA", Some("a"));
    let other = dump(&bench, "memscope_dump_4.csv", "PTA", Some("a"));
    let mindspore = dump(&bench, "memscope_dump_2.csv", "MINDSPORE", Some("a"));
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
