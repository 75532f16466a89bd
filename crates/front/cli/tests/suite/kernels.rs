//! Kernels from launch to file: rows of both formats, which Insight takes, the table and the export.

use crate::support::{Bench, assert_success, attribute, column, compile, run, stdout};

#[test]
fn kernels_are_rows_of_both_formats_and_of_the_table() {
    const LAUNCHES: usize = 50;
    const PROGRAM: &str = include_str!("../../../../job/recorder/tests/programs/kernels.c");
    let bench = Bench::new();
    let program = compile("kernels.c", PROGRAM, &["ascendcl", "runtime", "ascend_hal", "profapi"]);
    let mut command = bench.msmemscope(["--level=kernel", "--data-format=csv,db", "-o"]);
    command.arg(bench.output()).arg("--").arg(program).args(["exit", "1", &LAUNCHES.to_string()]);
    assert_eq!(run(command).status.code(), Some(3), "that of the job");
    let recording = bench.recording();
    // Reading a database checks that Insight takes it.
    let (rows, of_database) = (recording.rows("csv"), recording.rows("db"));
    assert_eq!(rows.len(), of_database.len());
    let of_kernels: Vec<_> = rows.iter().filter(|row| row[column::EVENT] == "KERNEL_LAUNCH").collect();
    for kind in ["KERNEL_LAUNCH", "KERNEL_EXECUTE_START", "KERNEL_EXECUTE_END"] {
        assert_eq!(of_kernels.iter().filter(|row| row[column::TYPE] == kind).count(), LAUNCHES, "{kind}");
        assert_eq!(of_database.iter().filter(|row| row[column::TYPE] == kind).count(), LAUNCHES, "{kind}");
    }
    for row in of_kernels {
        assert!(attribute(row, "streamId").is_some() && attribute(row, "taskId").is_some(), "{row:?}");
    }
    let output = run(bench.msmemscope(["analyze".as_ref(), bench.output().as_os_str()]));
    assert_success(&output);
    assert!(stdout(&output).contains(&format!("Kernels: {LAUNCHES} launches of")), "{}", stdout(&output));
    let mut command = bench.msmemscope(["export".as_ref(), bench.output().as_os_str()]);
    command.args(["--to=kernels", "-o", "-"]);
    let output = run(command);
    assert_success(&output);
    let mut table = csv::Reader::from_reader(output.stdout.as_slice());
    let rows: Vec<csv::StringRecord> = table.records().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), LAUNCHES);
    assert!(rows.iter().all(|row| !row[8].is_empty() && !row[9].is_empty()), "starts and ends");
}
