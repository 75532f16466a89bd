//! The whole tool against the device's own log, for a job of many processes.

use std::collections::BTreeMap;

use standin_truth::Kind;

use crate::support::{Bench, assert_success, attribute, column, job, run};
use crate::truth::{assert_nothing_lost, read_log, recorded_calls, true_calls};

#[test]
fn every_process_of_a_job_is_recorded_exactly() {
    let bench = Bench::new();
    let log = bench.path("log");
    std::fs::create_dir(&log).expect("a directory");
    let job = job().display();
    let script = format!(
        "for rank in 0 1 2 3; do {job} init device:$rank alloc:1000 step loop:3000 pool:64 pool:128 poolfree \
         mark:rank$rank fork loop:500 alloc:$((rank+1)) mark:child endstep alloc:9 _exit:0 & done; wait"
    );
    let mut command = bench.msmemscope(["--data-format=csv,db", "--output"]);
    command.arg(bench.output()).args(["--", "bash", "-c", &script]).env("STANDIN_LOG", &log);
    assert_success(&run(command));
    let truth = read_log(&log);
    let all = bench.recordings();
    assert_eq!(all.len(), 8, "four ranks and their children");
    for recorded in &all {
        let process = recorded.process_id();
        let calls = recorded_calls(recorded);
        assert_nothing_lost(&calls, &true_calls(&log, process), false);
        let rows = recorded.rows("csv");
        assert_eq!(rows.len(), recorded.rows("db").len());
        for (kind, event, row_type) in [
            (Kind::Mark, "MSTX", "Mark"),
            (Kind::RangeStart, "MSTX", "Range_start"),
            (Kind::RegionRegister, "MALLOC", "PTA"),
        ] {
            let happened = truth.iter().filter(|entry| entry.process == process && entry.record.kind == kind).count();
            let shown = rows.iter().filter(|row| row[column::EVENT] == event && row[column::TYPE] == row_type).count();
            assert_eq!(shown, happened, "{event} {row_type} of process {process}");
        }
        // `used` is the running sum per device and type.
        let mut used: BTreeMap<(String, String), i64> = BTreeMap::new();
        for row in rows.iter().filter(|row| ["MALLOC", "FREE"].contains(&row[column::EVENT].as_str())) {
            let number = |key| attribute(row, key).and_then(|text| text.parse::<i64>().ok());
            let Some(shown) = number("used") else { continue };
            let sum = used.entry((row[column::DEVICE].clone(), row[column::TYPE].clone())).or_default();
            let size = number("size").expect("a size");
            *sum += if row[column::EVENT] == "MALLOC" { size } else { -size };
            assert_eq!(shown, *sum, "{row:?}");
        }
    }
}
