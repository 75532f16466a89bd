//! `ctl`: jobs are started, stopped and changed while they run, and give results; others' jobs and files are refused.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use msmemscope_config::{Recording, apply_python_config};
use msmemscope_event::{Fact, Pool};
use msmemscope_trace::Trace;
use serde_json::Value;

use crate::support::{
    Bench, Recorded, assert_success, attribute, column, job, recordings, release, run, stderr, stdout,
};
use crate::top::{Running, signal};
use crate::truth::{Call, assert_nothing_lost, true_calls};

/// Works until it is sent SIGUSR1.
const WORK: &str = "init device:0 alloc:5000 catch say:ready beat say:done";

fn ctl(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = bench.msmemscope(["ctl"]);
    command.args(arguments);
    run(command)
}

/// What a process says about itself after a request.
fn told(bench: &Bench, arguments: &[&str]) -> Value {
    let output = ctl(bench, &[arguments, &["--json"]].concat());
    assert_success(&output);
    let answer: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let [process] = &answer["processes"].as_array().expect("processes")[..] else { panic!("one process: {answer}") };
    process.clone()
}

/// Marks of the recording's own states and the number of steps in its rows.
fn count(recorded: &Recorded, event: &str, row_type: &str) -> usize {
    recorded.rows("csv").iter().filter(|row| row[column::EVENT] == event && row[column::TYPE] == row_type).count()
}

#[test]
fn a_supervised_job_does_what_it_is_told_and_goes_on() {
    let bench = Bench::new();
    let mut job = Running::start(&bench, WORK);
    job.hear("ready");
    let output = bench.output().display().to_string();
    let status = told(&bench, &[&output, "status"]);
    assert_eq!((&status["state"], &status["steps"]), (&Value::from("recording"), &Value::from(0)));
    let process_id = status["process_id"].as_u64().expect("a process");
    let process = process_id.to_string();

    assert_eq!(told(&bench, &[&process, "stop"])["state"], "paused");
    let refused = ctl(&bench, &[&process, "step"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stdout(&refused).contains("not recording, so there is no step to end"), "{}", stdout(&refused));
    assert_eq!(told(&bench, &[&process, "start"])["state"], "recording");
    for step in 1..=3 {
        assert_eq!(told(&bench, &[&process, "step"])["steps"], step);
    }
    let changed = ctl(&bench, &[&process, "set", "call_stack=c:4", "analysis=leaks,decompose"]);
    assert_success(&changed);
    assert!(stdout(&changed).contains("recording, with the new settings"), "{}", stdout(&changed));

    // Results while the job goes on: nothing ends at their end.
    let snapshot = ctl(&bench, &[&process, "snapshot"]);
    assert_success(&snapshot);
    let first = bench.recording().rows("csv");
    let is_alive = |rows: &[Vec<String>]| {
        let of_block = |row: &&Vec<String>| attribute(row, "size").as_deref() == Some("5000");
        rows.iter().filter(of_block).map(|row| row[column::EVENT].clone()).collect::<Vec<_>>()
    };
    assert_eq!(is_alive(&first), ["MALLOC"], "alive, and not said to have ended");
    assert!(first.iter().any(|row| row[11].contains("job.c")), "stacks were asked for");

    let finish = ctl(&bench, &[&output, "finish"]);
    assert_success(&finish);
    assert!(stdout(&finish).contains("paused; what is alive is still noted"), "{}", stdout(&finish));
    let second = bench.recording().rows("csv");
    assert!(second.len() > first.len(), "{} rows, then {}", first.len(), second.len());
    assert_eq!(told(&bench, &[&process, "status"])["state"], "paused");

    signal(process_id, libc::SIGUSR1);
    job.hear("done");
    assert!(job.launcher.wait().expect("its end").success());
    let recorded = bench.recording();
    assert_eq!(is_alive(&recorded.rows("csv")), ["MALLOC", "FREE"]);
    assert_eq!(count(&recorded, "MSTX", "Mark"), 0);
    let gone = ctl(&bench, &[&output, "status"]);
    assert_eq!(gone.status.code(), Some(2));
    assert!(stderr(&gone).contains("none of these processes is running any more"), "{}", stderr(&gone));
}

/// A job with the library preloaded by hand, of which nobody knows.
fn unsupervised(bench: &Bench, script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = bench.command(job());
    command.args(script.split_whitespace()).env("LD_PRELOAD", release().join("libascend_kernel_hook.so"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the job starts");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    (child, output)
}

#[test]
fn an_unsupervised_job_is_started_from_outside() {
    let bench = Bench::new();
    let (child, mut output) = unsupervised(&bench, WORK);
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let process = child.id().to_string();
    assert_eq!(told(&bench, &[&process, "status"])["state"], "paused");
    assert_eq!(told(&bench, &[&process, "start"])["state"], "recording");
    let finish = ctl(&bench, &[&process, "finish"]);
    assert_success(&finish);
    let all = recordings(&bench.path("memscopeDumpResults"));
    let [recorded] = &all[..] else { panic!("one recording, not {all:?}") };
    assert!(count(recorded, "MALLOC", "HAL") > 1, "what came after the start is shown");
    signal(u64::from(child.id()), libc::SIGUSR1);
    let end = child.wait_with_output().expect("its end");
    assert!(end.status.success(), "{end:?}");
}

#[test]
fn a_job_that_rests_follows_later() {
    let bench = Bench::new();
    let mut job =
        Running::start(&bench, "init device:0 alloc:5000 catch say:ready wait alloc:1000 alloc:1000 say:awake wait");
    job.hear("ready");
    let output = bench.output().display().to_string();
    let late = ctl(&bench, &[&output, "stop", "--wait=0.3"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(stdout(&late).contains("no memory event in 0.3 s; it will follow with its next one"), "{}", stdout(&late));
    let process_id = told(&bench, &[&output, "status"])["process_id"].as_u64().expect("a process");
    assert_eq!(told(&bench, &[&output, "status"])["state"], "recording");
    signal(process_id, libc::SIGUSR1);
    job.hear("int=0 term=0 usr1=1");
    job.hear("awake");
    assert_eq!(told(&bench, &[&output, "status"])["state"], "paused");
    let step = ctl(&bench, &[&output, "step", "--wait=0.1"]);
    assert_eq!(step.status.code(), Some(1));
    assert!(stdout(&step).contains("so there is no step to end"), "{}", stdout(&step));
    signal(process_id, libc::SIGUSR1);
    job.hear("int=0 term=0 usr1=2");
    job.launcher.wait().expect("its end");
}

#[test]
fn what_waits_for_a_job_that_rests_is_not_lost_to_the_next() {
    let bench = Bench::new();
    let mut job = Running::start(&bench, "init device:0 alloc:5000 catch say:ready wait alloc:1000 say:awake wait");
    job.hear("ready");
    let output = bench.output().display().to_string();
    let late = |arguments: &[&str], words: &str| {
        let refused = ctl(&bench, &[&[output.as_str()][..], arguments, &["--wait=0.1"]].concat());
        assert_eq!(refused.status.code(), Some(1));
        assert!(stdout(&refused).contains(words), "{arguments:?}: {}", stdout(&refused));
    };
    late(&["start"], "it will follow with its next one");
    late(&["stop"], "it will follow with its next one");
    let occupied = "not done: an earlier 'stop' still waits for the job's next memory event";
    late(&["step"], occupied);
    late(&["set", "call_stack=c:3"], occupied);
    let process_id = told(&bench, &[&output, "status"])["process_id"].as_u64().expect("a process");
    signal(process_id, libc::SIGUSR1);
    job.hear("int=0 term=0 usr1=1");
    job.hear("awake");
    assert_eq!(told(&bench, &[&output, "status"])["state"], "paused", "as the latest of them wanted");
    signal(process_id, libc::SIGUSR1);
    job.hear("int=0 term=0 usr1=2");
    job.launcher.wait().expect("its end");
}

/// What the recorder saw of driver memory, paused or not.
fn calls_of(trace: &Trace) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut sizes = HashMap::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        let (is_allocation, address) = match record.fact {
            Fact::Allocation { properties, address, size_bytes } if properties.pool == Pool::Hal => {
                sizes.insert(address, size_bytes);
                (true, address)
            }
            Fact::Free { properties, address } if properties.pool == Pool::Hal => (false, address),
            _ => continue,
        };
        calls.push(Call { is_allocation, address, size_bytes: sizes.get(&address).copied().unwrap_or_default() });
    }
    calls
}

/// Three users change a setting each, and a fourth starts and stops, all of them at the same time.
#[test]
fn a_thousand_commands_at_the_same_time_lose_nothing_and_change_nothing() {
    const COMMANDS_OF_EACH: u64 = 250;
    let bench = Bench::new();
    let log = bench.path("log");
    std::fs::create_dir(&log).expect("a directory");
    let mut command = bench.msmemscope(["--output"]);
    command.arg(bench.output()).arg("--").arg(job()).args(WORK.split_whitespace()).arg("exit:7");
    command.env("STANDIN_LOG", &log);
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut output = BufReader::new(launcher.stdout.take().expect("its output"));
    let mut heard = String::new();
    output.read_line(&mut heard).expect("a line");
    let process_id = bench.recording().process_id();
    let process = process_id.to_string();
    let steps = AtomicU64::new(0);
    let ask = |arguments: &[&str]| {
        let output = ctl(&bench, &[&[process.as_str()][..], arguments, &["--wait=60", "--json"]].concat());
        let answer: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
        let answer = answer["processes"][0]["answer"].clone();
        let may_be_refused = arguments == ["step"];
        assert!(answer == "done" || may_be_refused && answer == "refused", "{arguments:?}: {answer}");
        steps.fetch_add(u64::from(arguments == ["step"] && answer == "done"), Ordering::Relaxed);
    };
    let change = |key: &str, values: &[&str], seed: u64| {
        let mut last = values[0];
        for turn in 0..COMMANDS_OF_EACH {
            match (turn * 31 + seed * 17) % 5 {
                0 => ask(&["step"]),
                1 => ask(&["status"]),
                _ => {
                    last = values[(turn * 7 + seed) as usize % values.len()];
                    ask(&["set", &format!("{key}={last}")]);
                }
            }
        }
        (key.to_owned(), last.to_owned())
    };
    let switch = || {
        for turn in 0..COMMANDS_OF_EACH {
            ask(&[["stop", "step", "start", "step", "status"][(turn % 5) as usize]]);
        }
    };
    let expected: Vec<(String, String)> = std::thread::scope(|scope| {
        let switching = scope.spawn(switch);
        let changing = [
            scope.spawn(|| change("call_stack", &["c:1", "c:2", "c:9"], 1)),
            scope.spawn(|| change("analysis", &["leaks", "leaks,decompose", "inefficient"], 2)),
            scope.spawn(|| change("steps", &["1", "2,5", "9"], 3)),
        ];
        switching.join().expect("no panic");
        changing.map(|thread| thread.join().expect("no panic")).to_vec()
    });
    let status = told(&bench, &[&process, "status"]);
    assert_eq!((&status["state"], &status["steps"]), (&Value::from("recording"), &steps.into_inner().into()));
    let trace = || Trace::open(&bench.recording().0.join("recording.trace")).expect("a trace");
    let latest = trace().definitions().settings().last().map(|known| known.text.to_vec()).expect("settings");
    let latest = Recording::from_environment(std::str::from_utf8(&latest).expect("text")).expect("settings").settings;
    let expected: Vec<_> = expected.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let (with_all, _) = apply_python_config(&expected).expect("settings").apply_to(&latest);
    assert_eq!(latest, with_all, "nobody's change is lost to another's");

    signal(u64::from(process_id), libc::SIGUSR1);
    output.read_to_string(&mut heard).expect("its output");
    let end = launcher.wait_with_output().expect("its end");
    assert_eq!((end.status.code(), heard.as_str()), (Some(7), "ready\ndone\n"), "{}", stderr(&end));
    assert_nothing_lost(&calls_of(&trace()), &true_calls(&log, process_id), false);
}

#[test]
fn others_and_hostile_files_are_refused() {
    let bench = Bench::new();
    let mut job = Running::start(&bench, WORK);
    job.hear("ready");
    let output = bench.output().display().to_string();
    let process_id = told(&bench, &[&output, "status"])["process_id"].as_u64().expect("a process");
    let trace = bench.recording().0.join("recording.trace");

    let refused = |arguments: &[&str], words: &str| {
        let output = ctl(&bench, arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{arguments:?}: {said}");
    };
    for (arguments, words) in [
        (&["fly"][..], "'fly' is none of start, stop, step, snapshot, finish, status, set"),
        (&["start", "again"], "'again' is one argument too many"),
        (&["set"], "say what to set"),
        (&["set", "call_stack"], "'call_stack' is not of the form key=value"),
        (&["set", "levle=op"], "did you mean 'level'?"),
        (&["set", "output=/tmp/elsewhere"], "output cannot be changed while the job runs"),
        (&["set", "max_trace_size=1GiB"], "max_trace_size cannot be changed while the job runs"),
        (&["4194303", "start"], "there is no process 4194303"),
        (&["start", "--wait=never"], "--wait must be seconds"),
    ] {
        refused(arguments, words);
    }

    // A recording in which a foreign process is named as the one that writes it.
    let forged = bench.path("forged/msmemscope_1_20250101000000_ascend");
    std::fs::create_dir_all(&forged).expect("directory");
    std::fs::copy(&trace, forged.join("recording.trace")).expect("a copy");
    refused(&[&bench.path("forged").display().to_string(), "stop"], "none of these processes is running any more");
    let linked = bench.path("linked/msmemscope_1_20250101000000_ascend");
    std::fs::create_dir_all(&linked).expect("directory");
    std::os::unix::fs::symlink(&trace, linked.join("recording.trace")).expect("a link");
    refused(&[&linked.display().to_string(), "stop"], "");

    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(&trace, Some(65534), None).expect("another owner");
        refused(&[&output, "stop"], "the recording belongs to user 65534; only that user can control the job");
        std::os::unix::fs::chown(&trace, Some(0), None).expect("the owner");
        let mut stranger = Command::new("sleep").arg("60").uid(65534).spawn().expect("a process");
        let process = stranger.id().to_string();
        refused(
            &[&process, "stop"],
            &format!("process {process} belongs to user 65534; only that user can control it"),
        );
        stranger.kill().expect("its end");
        stranger.wait().expect("its end");
    }
    assert_eq!(told(&bench, &[&output, "status"])["state"], "recording", "none of this has reached the job");
    signal(process_id, libc::SIGUSR1);
    job.hear("done");
    assert!(job.launcher.wait().expect("its end").success());
}

#[test]
fn a_job_that_wants_no_control_says_so() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--output"]);
    command.arg(bench.output()).arg("--").arg(job()).args(WORK.split_whitespace()).env("MSMEMSCOPE_CONTROL", "off");
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut output = BufReader::new(launcher.stdout.take().expect("its output"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let process_id = bench.recording().process_id();
    let refused = ctl(&bench, &[&bench.output().display().to_string(), "stop"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("MSMEMSCOPE_CONTROL=off"), "{}", stderr(&refused));
    signal(u64::from(process_id), libc::SIGUSR1);
    assert!(launcher.wait().expect("its end").success());
}

#[test]
fn every_process_of_a_job_is_asked() {
    let bench = Bench::new();
    let script = format!("for rank in 0 1 2; do RANK=$rank WORLD_SIZE=3 {} {WORK} & done; wait", job().display());
    let mut command = bench.msmemscope(["--output"]);
    command.arg(bench.output()).args(["--", "bash", "-c", &script]);
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut output = BufReader::new(launcher.stdout.take().expect("its output"));
    for _ in 0..3 {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
    }
    let stopped = ctl(&bench, &[&launcher.id().to_string(), "stop"]);
    assert_success(&stopped);
    let said = stdout(&stopped);
    for rank in 0..3 {
        assert!(said.contains(&format!("Rank {rank} (process ")), "{said}");
    }
    assert_eq!(said.matches("paused").count(), 3, "{said}");
    for recorded in bench.recordings() {
        signal(u64::from(recorded.process_id()), libc::SIGUSR1);
    }
    assert!(launcher.wait().expect("its end").success());
}
