//! The files of a run: names, rows, permissions, formats that agree.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Bench, Recorded, Row, assert_success, column, compile, read_table, recordings, release, run};

const SCRIPT: &str = "init device:0 alloc:1000 step alloc:2000 pool:300 device:1 alloc:3000 endstep mark:between \
                      step device:0 pool:400 poolfree free endstep loop:500 pinned:8192 fini";

/// The sample of the user manual: a mark and a step range.
const MANUAL_SAMPLE: &str = r#"
#include <iostream>
#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"
int main(void)
{
    mstxMarkA("MarkA", nullptr);
    aclInit(nullptr);
    aclrtSetDevice(0);
    uint64_t id_1 = mstxRangeStartA("step start", nullptr);
    void *memory = nullptr;
    aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_NORMAL_ONLY);
    aclrtFree(memory);
    mstxRangeEnd(id_1);
    return 0;
}
"#;

#[test]
fn the_sample_of_the_manual_gives_its_rows() {
    let bench = Bench::new();
    let program = compile("manual_sample.cpp", MANUAL_SAMPLE, &["ascendcl", "ms_tools_ext"]);
    let mut command = bench.msmemscope(["--data-format=csv,db", "--output"]);
    command.arg(bench.output()).arg(program);
    assert_success(&run(command));
    let recorded = bench.recording();
    let rows: Vec<(String, String, String)> = recorded
        .rows("csv")
        .into_iter()
        .map(|mut row| {
            (std::mem::take(&mut row[column::EVENT]), std::mem::take(&mut row[column::TYPE]), row[column::NAME].clone())
        })
        .collect();
    let has = |event: &str, kind: &str, name: &str| {
        rows.iter().filter(|row| (row.0.as_str(), row.1.as_str(), row.2.as_str()) == (event, kind, name)).count()
    };
    assert_eq!(has("MSTX", "Mark", "MarkA"), 1, "{rows:?}");
    assert_eq!(has("MSTX", "Range_start", "step start"), 1, "{rows:?}");
    assert_eq!(rows.iter().filter(|row| row.1 == "Range_end").count(), 1, "{rows:?}");
    assert_eq!((has("MALLOC", "HAL", "N/A"), has("FREE", "HAL", "N/A")), (1, 1), "{rows:?}");
    let text = std::fs::read_to_string(&recorded.tables("csv")["0"]).expect("a csv file");
    assert!(text.contains(",MSTX,Range_start,\"step start\","), "messages stay quoted as readers know them");
    assert_same_rows(&recorded);
}

/// The attributes of a database row in the form of the csv file.
fn as_in_csv(mut row: Row) -> Row {
    if row[column::ATTRIBUTES].is_empty() {
        return row;
    }
    let json: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&row[column::ATTRIBUTES]).expect("attributes are a JSON object");
    assert!(json.values().all(serde_json::Value::is_string), "{row:?}");
    let text = row[column::ATTRIBUTES].replace("\":\"", ":").replace("\",\"", ",").replace(['"'], "");
    row[column::ATTRIBUTES] = text;
    row
}

fn assert_same_rows(recorded: &Recorded) {
    let (csv, db) = (recorded.tables("csv"), recorded.tables("db"));
    assert_eq!(csv.keys().collect::<Vec<_>>(), db.keys().collect::<Vec<_>>());
    for (device, path) in &csv {
        let from_db: Vec<Row> = read_table(&db[device]).into_iter().map(as_in_csv).collect();
        assert_eq!(read_table(path), from_db, "device {device}");
    }
}

#[test]
fn csv_and_database_of_one_run_carry_the_same_rows() {
    let bench = Bench::new();
    for options in [
        &["--data-format=csv,db"][..],
        &["--data-format=csv,db", "--steps=2"],
        &["--data-format=csv,db", "--device=npu:1,cpu"],
        &["--data-format=csv,db", "--analysis=decompose"],
        &["--data-format=csv,db", "--events=launch"],
    ] {
        assert_success(&bench.record(options, SCRIPT));
    }
    for recorded in bench.recordings() {
        assert_same_rows(&recorded);
        let rows = recorded.rows("csv");
        let times: Vec<u64> = rows.iter().map(|row| row[column::TIMESTAMP].parse().expect("a time")).collect();
        assert!(times.is_sorted(), "rows are sorted by time");
    }
}

#[test]
fn decompose_names_owners() {
    let bench = Bench::new();
    assert_success(&bench.record(&["--analysis=decompose"], SCRIPT));
    let rows = bench.recording().events("MALLOC");
    let owners = |kind: &str| {
        let rows = rows.iter().filter(|row| row[column::TYPE] == kind);
        rows.filter(|row| row[column::ATTRIBUTES].contains("owner:")).count()
    };
    assert!(owners("PTA") == 2 && owners("HAL") > 0, "{rows:?}");
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().expect("a file").permissions().mode() & 0o7777
}

#[test]
fn permissions_are_tight() {
    let bench = Bench::new();
    assert_success(&bench.record(&["--data-format=csv,db", "--log-level=info"], SCRIPT));
    let recorded = bench.recording();
    assert_eq!(mode(&recorded.0), 0o750);
    assert_eq!(mode(&recorded.0.join("device_0/dump")), 0o750);
    assert_eq!(mode(&recorded.0.join("config.json")), 0o640);
    assert_eq!(mode(&recorded.0.join("recording.trace")), 0o600);
    for path in recorded.tables("csv").values().chain(recorded.tables("db").values()) {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    let logs = recorded.0.join("msmemscope_logs");
    let log = std::fs::read_dir(&logs).expect("logs").next().expect("a log").expect("a log").path();
    assert_eq!((mode(&logs), mode(&log)), (0o750, 0o600));
    let text = std::fs::read_to_string(&log).expect("a log");
    for line in text.lines() {
        let (date, rest) = line.split_at(19);
        let digits = date.bytes().filter(u8::is_ascii_digit).count();
        assert!(digits == 14 && (rest.starts_with(" [INFO]  ") || rest.starts_with(" [WARN]  ")), "{line}");
    }
    assert!(text.contains("Recorded process"), "{text}");
}

#[test]
fn the_settings_are_beside_the_results() {
    let bench = Bench::new();
    assert_success(&bench.record(&["--data-format=db", "--steps=1,2", "--device=npu:3", "--analysis=none"], SCRIPT));
    let recorded = bench.recording();
    let text = std::fs::read_to_string(recorded.0.join("config.json")).expect("settings");
    let json: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(json["dataFormat"], 1);
    assert_eq!(json["SelectedStepList"]["stepIdList"], serde_json::json!([1, 2, 0, 0, 0]));
    assert_eq!(json["npuSlots"], 8);
    assert_eq!(json["analysisType"], 0);
    assert_eq!(json["outputDir"], recorded.0.to_string_lossy().as_ref());
}

#[test]
fn the_older_name_has_its_own_file_names() {
    let bench = Bench::new();
    let mut command = bench.command(release().join("msleaks"));
    command.args(["--data-format=csv,db", "--log-level=info", "--"]).arg(crate::support::job());
    command.args(SCRIPT.split_whitespace());
    assert_success(&run(command));
    let all = recordings(&bench.path("leaksDumpResults"));
    let [recorded] = &all[..] else { panic!("{all:?}") };
    let name = recorded.0.file_name().expect("a name").to_string_lossy();
    assert!(name.starts_with("msleaks_") && name.ends_with("_ascend"), "{name}");
    assert!(recorded.0.join("msleaks_logs").is_dir());
    for path in recorded.tables("csv").values().chain(recorded.tables("db").values()) {
        assert!(path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("leaks_dump_")));
    }
    assert_same_rows(recorded);
}

#[test]
fn results_of_a_run_are_never_overwritten_and_finishing_can_be_repeated() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], SCRIPT));
    let recorded = bench.recording();
    let first = recorded.tables("csv")["0"].clone();
    let content = std::fs::read(&first).expect("a csv file");
    let again = run(bench.msmemscope(["finish".as_ref(), recorded.0.as_os_str()]));
    assert_success(&again);
    assert_eq!(recorded.tables("csv")["0"], first, "nothing new to write");
    let database = run(bench.msmemscope(["finish".as_ref(), "--format=db".as_ref(), recorded.0.as_os_str()]));
    assert_success(&database);
    assert_eq!(std::fs::read(&first).expect("still there"), content);
    assert_same_rows(&recorded);
    let recover = run(bench.msmemscope(["recover".as_ref(), bench.output().as_os_str()]));
    assert_success(&recover);
    assert!(crate::support::stdout(&recover).contains("Nothing to recover"));
}
