//! Nothing is lost when our program, the job or both are killed at any moment, and people are told what to do.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{Bench, Recorded, assert_success, job, recordings, run, stderr, stdout};
use crate::truth::{assert_nothing_lost, read_log, recorded_calls, true_calls};

const ROUNDS: u32 = 50;

/// Moments from the very start to well into the writing of results.
struct Moments(u64);

impl Moments {
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
        Self(now.as_nanos() as u64 | 1)
    }

    fn next(&mut self) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_micros((self.0 >> 33) % 40_000)
    }
}

struct Round {
    bench: Bench,
    child: Child,
}

impl Round {
    fn start() -> Self {
        let bench = Bench::new();
        std::fs::create_dir(bench.path("log")).expect("a directory");
        let mut command = bench.msmemscope(["--output".as_ref(), bench.output().as_os_str()]);
        command.env("STANDIN_LOG", bench.path("log")).arg("--").arg(job()).args(["alloc:77", "loop:2000"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("our program starts");
        Self { bench, child }
    }

    fn children(&self) -> Vec<i32> {
        let id = self.child.id();
        let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    fn kill_our_program(&mut self) {
        let _ = self.child.kill();
    }

    fn kill_job(&self) {
        for process in self.children() {
            // SAFETY: plain system call to a child of a process this test has started.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
    }

    /// Waits for our program and the job, which holds the pipe open as long as it lives.
    fn wait(mut self) -> Bench {
        let mut pipe = self.child.stdout.take().expect("a pipe");
        self.child.wait().expect("an end");
        let _ = pipe.read_to_end(&mut Vec::new());
        self.bench
    }
}

/// Recovers if there is something to recover and compares with the truth.
fn check(bench: &Bench, was_killed: bool) {
    let output = bench.output();
    if recordings(&output).iter().any(|recorded| !recorded.is_finished()) {
        let mut command = bench.msmemscope(["--output".as_ref(), output.as_os_str()]);
        command.arg("true");
        let said = stderr(&run(command));
        let told = format!("1 recording has no results yet: msmemscope recover {}", output.display());
        assert!(said.contains(&told), "{said}");
        let recover = run(bench.msmemscope(["recover".as_ref(), output.as_os_str()]));
        assert_success(&recover);
        assert!(stdout(&recover).contains("Driver (HAL)") || was_killed, "{}", stdout(&recover));
    }
    let log = bench.path("log");
    let processes = true_processes(&log);
    for recorded in recordings(&output) {
        let process = recorded.process_id();
        assert_nothing_lost(&recorded_calls(&recorded), &true_calls(&log, process), was_killed);
    }
    if !was_killed {
        assert_eq!(recordings(&output).len(), processes.len());
    }
}

/// Processes that used the device.
fn true_processes(log: &Path) -> Vec<u32> {
    let mut processes: Vec<u32> = read_log(log).iter().map(|entry| entry.process).collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}

#[test]
fn our_program_is_killed() {
    let mut moments = Moments::new();
    for _ in 0..ROUNDS {
        let mut round = Round::start();
        std::thread::sleep(moments.next());
        round.kill_our_program();
        check(&round.wait(), false);
    }
}

#[test]
fn the_job_is_killed() {
    let mut moments = Moments::new();
    for _ in 0..ROUNDS {
        let round = Round::start();
        std::thread::sleep(moments.next());
        round.kill_job();
        let bench = round.wait();
        let finished = bench.recordings().iter().all(Recorded::is_finished);
        assert!(finished, "our program writes the results of a killed job");
        check(&bench, true);
    }
}

#[test]
fn both_are_killed() {
    let mut moments = Moments::new();
    for _ in 0..ROUNDS {
        let mut round = Round::start();
        std::thread::sleep(moments.next());
        let job = round.children();
        round.kill_our_program();
        for process in job {
            // SAFETY: plain system call to a child of a process this test has started.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        check(&round.wait(), true);
    }
}
