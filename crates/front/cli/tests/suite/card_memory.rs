//! Memory of whole cards, seen by the supervisor: results tell what other processes held.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::{Bench, job, run, stderr};

#[test]
fn memory_of_other_processes_is_told_when_memory_runs_out() {
    let bench = Bench::new();
    let cards = bench.path("cards");
    std::fs::create_dir(&cards).expect("directory of the cards");
    let mut other = bench.command(job());
    other.args(["init", "device:0", "alloc:3221225472", "catch", "say:ready", "wait"]);
    other.env("STANDIN_RUN_DIR", &cards).env("STANDIN_MEMORY_BYTES", "5G").stdout(Stdio::piped());
    let mut other = other.spawn().expect("the other process starts");
    let mut line = String::new();
    BufReader::new(other.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");

    let mut command = bench.msmemscope(["--output"]);
    command.arg(bench.output()).arg("--").arg(job());
    // Time for the supervisor to look at the card between the first and the second allocation.
    command.args(["init", "device:0", "alloc:1073741824", "sleep:1500", "alloc:4096", "alloc:2147483648"]);
    let output = run({
        command.env("STANDIN_RUN_DIR", &cards).env("STANDIN_MEMORY_BYTES", "5G");
        command
    });
    // SAFETY: the process is our child and not reaped yet.
    unsafe { libc::kill(other.id() as libc::pid_t, libc::SIGTERM) };
    other.wait().expect("the other process ends");

    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(99), "{text}");
    assert!(text.contains("Other processes hold 3.0 GiB of the card"), "{text}");
    let rows = std::fs::read_to_string(&bench.recording().tables("csv")["0"]).expect("rows");
    let second = rows.lines().find(|row| row.contains("size:4096,")).expect("the second allocation");
    assert!(second.contains("process_used:1073741824,device_used:4294967296"), "{second}");
}

#[test]
fn nothing_is_told_where_nobody_shares_a_card() {
    let bench = Bench::new();
    let output = bench.record(&[], "init device:0 alloc:4096 sleep:600 alloc:4096 fini");
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = std::fs::read_to_string(&bench.recording().tables("csv")["0"]).expect("rows");
    assert!(!rows.contains("device_used"), "{rows}");
}
