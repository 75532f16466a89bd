//! `--flight-recorder`, `--trigger` and `--on`: a bounded file that knows what is alive, written out at moments worth it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use msmemscope_event::Fact;
use msmemscope_trace::Trace;

use crate::support::{Bench, Recorded, assert_success, job, recordings, run, stderr, stdout};

/// Far more than fits into the smallest flight recorder.
const MUCH: &str = "loop:500000";
const PATIENCE: Duration = Duration::from_secs(60);

/// Our program with its job. Both end with the test, whatever becomes of it: some jobs would go on for ever.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self(command.spawn().expect("our program starts"))
    }

    fn id(&self) -> i32 {
        self.0.id() as i32
    }

    fn wait(mut self) {
        self.0.wait().expect("an end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Of a program that has ended the number may be somebody else's.
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            // SAFETY: plain system call to the group of processes that this test has started.
            unsafe { libc::kill(-self.id(), libc::SIGKILL) };
            let _ = self.0.wait();
        }
    }
}

fn start(bench: &Bench, options: &[&str], script: &str) -> Running {
    let mut command = bench.msmemscope(["--output".as_ref(), bench.output().as_os_str()]);
    command.args(options).arg("--").arg(job()).args(script.split_whitespace());
    Running::start(command)
}

/// The copies that were written out, in order.
fn written_out(bench: &Bench) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(bench.output().join("flight")) else { return Vec::new() };
    let mut directories: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    directories.sort();
    directories
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How often the block of 2 MiB is allocated that the jobs here keep, as the results tell it.
fn kept_blocks(recording: &Recorded) -> usize {
    recording.events("MALLOC").iter().filter(|row| format!("{row:?}").contains("size:2097152,")).count()
}

#[test]
fn a_bounded_file_knows_what_is_alive() {
    let bench = Bench::new();
    let script = format!("init device:0 alloc:1048576 step {MUCH} alloc:2097152 {MUCH} endstep fini");
    let output = bench.record(&["--flight-recorder=8MiB", "--trigger=end"], &script);
    assert_success(&output);
    let said = stderr(&output);
    assert!(said.contains("(flight recorder)"), "{said}");
    let recording = bench.recording();
    let trace = Trace::open(&recording.0.join("recording.trace")).expect("a trace");
    assert!(trace.completeness().file_bytes <= 8 << 20);
    assert!(trace.completeness().records_left_out > 1_000_000 && trace.completeness().is_complete());
    assert_eq!(kept_blocks(&recording), 1);
    let information = stdout(&run(bench.msmemscope(["info".as_ref(), recording.0.as_os_str()])));
    assert!(information.contains("what came and went before the last "), "{information}");
    // Limits on what nobody knows cannot be judged.
    let checked = run(bench.msmemscope(["check".as_ref(), recording.0.as_os_str(), "--max-peak=1TiB".as_ref()]));
    assert_eq!(checked.status.code(), Some(3), "{}", stdout(&checked));
}

#[test]
fn results_are_written_at_the_end_if_asked_for() {
    let bench = Bench::new();
    let output = bench.record(&["--flight-recorder"], "init device:0 alloc:1048576 fini");
    assert_success(&output);
    assert!(!bench.recording().is_finished());
    assert!(stderr(&output).contains("msmemscope finish "), "{}", stderr(&output));
    let mut command = bench.msmemscope(["finish"]);
    command.arg(&bench.recording().0);
    assert_success(&run(command));
    assert!(bench.recording().is_finished());
}

#[test]
fn memory_that_runs_out_writes_it_out_and_runs_the_command() {
    let bench = Bench::new();
    let told = bench.path("told");
    let command =
        format!("echo $MSMEMSCOPE_EVENT $MSMEMSCOPE_EVENT_PROCESS $MSMEMSCOPE_EVENT_PATH >> {}", told.display());
    let reaction = format!("--on=oom:run {command}");
    // The job is over before anybody can have looked: it is judged nevertheless.
    let options = ["--flight-recorder=8MiB", reaction.as_str()];
    let output =
        bench.record(&options, "init device:0 alloc:1048576 refused:1125899906842624 refused:1125899906842624 fini");
    assert_success(&output);
    let copies = written_out(&bench);
    assert_eq!(copies, [bench.output().join("flight/1-oom")], "once a minute at most: {}", stderr(&output));
    wait_until("the command", || told.exists());
    let process_id = bench.recording().process_id();
    let expected = format!("oom {process_id} {}\n", copies[0].display());
    wait_until("what it writes", || std::fs::read_to_string(&told).expect("told") == expected);
    let copied = recordings(&copies[0]).pop().expect("a copy");
    let trace = Trace::open(&copied.0.join("recording.trace")).expect("a trace");
    let (mut records, mut refusals) = (trace.records(), 0);
    while let Some(record) = records.next() {
        refusals += u32::from(matches!(record.fact, Fact::AllocationFailed { .. }));
    }
    assert_eq!(refusals, 2);
    assert_success(&run(bench.msmemscope(["analyze".as_ref(), copies[0].as_os_str()])));
}

#[test]
fn a_signal_writes_it_out_while_the_job_goes_on() {
    let bench = Bench::new();
    let mut child = start(&bench, &["--flight-recorder=8MiB"], &format!("init device:0 alloc:2097152 {MUCH} forever"));
    wait_until("the first round", || {
        let made_room = |recording: &Recorded| {
            let trace = Trace::open(&recording.0.join("recording.trace"));
            trace.is_ok_and(|trace| trace.completeness().complete_since_ns.is_some())
        };
        recordings(&bench.output()).iter().any(made_room)
    });
    for number in 1..=2 {
        // SAFETY: plain system call to a process this test has started.
        assert_eq!(unsafe { libc::kill(child.id(), libc::SIGUSR2) }, 0);
        let copy = bench.output().join(format!("flight/{number}-signal"));
        wait_until("a copy", || {
            recordings(&copy).iter().any(|recorded| Trace::open(&recorded.0.join("recording.trace")).is_ok())
        });
        std::thread::sleep(Duration::from_millis(300));
        let copied = recordings(&copy).pop().expect("a copy");
        let trace = Trace::open(&copied.0.join("recording.trace")).expect("a trace");
        assert!(trace.completeness().is_complete() && trace.completeness().is_moment);
        let mut command = bench.msmemscope(["finish"]);
        command.arg(&copied.0);
        let finished = run(command);
        assert_success(&finished);
        assert_eq!(kept_blocks(&copied), 1, "{}", stdout(&finished));
        assert!(!stdout(&finished).contains("of blocks allocated before"), "{}", stdout(&finished));
    }
    let process_id = recordings(&bench.output())[0].process_id().to_string();
    let asked = run(bench.msmemscope(["ctl", process_id.as_str(), "snapshot"]));
    assert_success(&asked);
    assert_eq!(kept_blocks(&recordings(&bench.output().join("flight/3-ctl"))[0]), 1, "{}", stdout(&asked));
    assert!(child.0.try_wait().expect("a child").is_none(), "the job goes on");
    // SAFETY: as above.
    unsafe { libc::kill(child.id(), libc::SIGTERM) };
    child.wait();
}

#[test]
fn a_command_does_not_hold_up_the_job_or_its_end() {
    let bench = Bench::new();
    let started = Instant::now();
    let output = bench.record(&["--on=peak>1MiB:run sleep 20"], "init device:0 alloc:4194304 sleep:1500 fini");
    assert_success(&output);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert!(written_out(&bench).is_empty());
    assert!(bench.recording().is_finished());
}

#[test]
fn wrong_rules_are_one_line() {
    let bench = Bench::new();
    for option in ["--trigger=growth>1GiB", "--trigger=rain", "--on=oom", "--on=oom:run", "--on=end:run true"] {
        let output = bench.record(&[option], "init fini");
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn every_limit_and_every_process_has_its_command() {
    let bench = Bench::new();
    let told = bench.path("told");
    let reaction =
        |limit: &str| format!("--on=peak>{limit}:run echo {limit} $MSMEMSCOPE_EVENT_PROCESS >> {}", told.display());
    // Both processes cross both limits long before a minute is over.
    let script = "init device:0 alloc:62914560 sleep:1500 alloc:62914560 sleep:1500 fork alloc:1048576 fini";
    assert_success(&bench.record(&[&reaction("50MiB"), &reaction("100MiB")], script));
    wait_until("all commands", || {
        let lines = std::fs::read_to_string(&told).unwrap_or_default();
        lines.lines().filter(|line| line.starts_with("50MiB ")).count() >= 1
            && lines.lines().filter(|line| line.starts_with("100MiB ")).count() >= 1
    });
}

#[test]
fn copies_of_a_flight_recorder_count_for_nothing_beside_the_recordings() {
    let bench = Bench::new();
    let mut commands = Vec::new();
    for rank in 0..3 {
        let mut command = bench.msmemscope(["--flight-recorder=8MiB", "--trigger=end,signal", "--output"]);
        command.arg(bench.output()).arg("--").arg(job());
        command.args("init device:0 alloc:2097152 catch wait alloc:4194304 fini".split_whitespace());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "3");
        commands.push(Running::start(command));
    }
    let originals = || -> Vec<Recorded> {
        let is_original = |recorded: &Recorded| recorded.0.join("recording.trace").is_file();
        recordings(&bench.output()).into_iter().filter(is_original).collect()
    };
    wait_until("three recordings", || originals().len() == 3);
    std::thread::sleep(Duration::from_millis(300));
    // Jobs that rest have no counters to add, which the exit status says.
    let output = bench.output();
    let snapshot =
        run(bench.msmemscope(["ctl".as_ref(), output.as_os_str(), "snapshot".as_ref(), "--wait=0.2".as_ref()]));
    assert_eq!(written_out(&bench).len(), 1, "{}", stderr(&snapshot));
    for recorded in originals() {
        // SAFETY: plain system call to a process this test has started.
        unsafe { libc::kill(recorded.process_id() as i32, libc::SIGTERM) };
    }
    commands.into_iter().for_each(Running::wait);
    let fleet = run(bench.msmemscope(["fleet".as_ref(), bench.output().as_os_str()]));
    assert_success(&fleet);
    let said = stdout(&fleet);
    assert!(said.contains("Job, 3 ranks") && said.contains("3 partial summaries skipped"), "{said}");
    assert!(!said.contains("Killed") && !said.contains("Outlier"), "{said}");
    let dataset = bench.path("dataset");
    let export = |from: &std::path::Path| {
        let mut command =
            bench.msmemscope(["export".as_ref(), from.as_os_str(), "--to=parquet".as_ref(), "-o".as_ref()]);
        command.arg(&dataset);
        run(command)
    };
    let exported = export(&bench.output());
    assert!(stdout(&exported).starts_with("Wrote 3 recordings"), "{}{}", stdout(&exported), stderr(&exported));
    assert!(stderr(&exported).contains("3 copies of flight recorders left out"), "{}", stderr(&exported));
    let copies = export(&written_out(&bench)[0]);
    assert!(stderr(&copies).contains("3 recordings left out: the dataset has more"), "{}", stderr(&copies));
    let analyzed = run(bench.msmemscope(["analyze".as_ref(), bench.output().as_os_str()]));
    assert_eq!(stdout(&analyzed).matches("device 0").count() % 3, 0, "{}", stdout(&analyzed));
    assert!(stderr(&analyzed).contains("3 copies of flight recorders left out"), "{}", stderr(&analyzed));
}

#[test]
fn a_test_that_fails_leaves_no_job_behind() {
    let bench = Bench::new();
    let child = start(&bench, &["--flight-recorder=8MiB"], "init device:0 alloc:2097152 forever");
    wait_until("a recording", || recordings(&bench.output()).len() == 1);
    let job = recordings(&bench.output())[0].process_id() as i32;
    let is_there = || std::path::Path::new(&format!("/proc/{job}/exe")).exists();
    assert!(is_there());
    drop(child);
    wait_until("the end of the job", || !is_there());
}
