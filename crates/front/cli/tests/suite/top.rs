//! `top`: a job that grows, forks and is killed is followed from the outside, with the numbers of its device.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::pseudo_terminal::Session;
use crate::support::{Bench, assert_success, job, run, stderr, stdout};

const PATIENCE: Duration = Duration::from_secs(60);

/// A recorded job that is still running, and what it says.
pub struct Running {
    pub launcher: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(bench: &Bench, script: &str) -> Self {
        let mut command = bench.msmemscope(["--output"]);
        command.arg(bench.output()).arg("--").arg(job()).args(script.split_whitespace());
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        let output = BufReader::new(launcher.stdout.take().expect("its output"));
        Self { launcher, output }
    }

    pub fn hear(&mut self, words: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), words);
    }
}

pub fn signal(process_id: u64, signal: i32) {
    // SAFETY: plain system call for a process that this test has started.
    unsafe { libc::kill(process_id as i32, signal) };
}

/// What `top` says about all processes, the one that needs most attention first.
fn look(bench: &Bench, operand: &str) -> Vec<Value> {
    let output = run(bench.msmemscope(["top", "--json", operand]));
    assert_success(&output);
    let answer: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    answer["processes"].as_array().expect("processes").clone()
}

fn pool<'a>(process: &'a Value, name: &str) -> &'a Value {
    let pools = process["memory"]["pools"].as_array().expect("pools");
    pools.iter().find(|pool| pool["pool"] == name).unwrap_or_else(|| panic!("no pool {name} in {process}"))
}

pub const TWO_STEPS: &str = "init device:0 step pool:4096 pool:1000 poolfree endstep step pool:8192 endstep";

#[test]
fn a_job_that_grows_and_is_killed_is_followed() {
    let bench = Bench::new();
    let mut job =
        Running::start(&bench, &format!("{TWO_STEPS} catch say:first wait pool:100000 say:second sleep:60000"));
    job.hear("first");
    let output = bench.output().display().to_string();
    let [first] = &look(&bench, &output)[..] else { panic!("one process") };
    assert_eq!(first["state"], "running");
    let (pta, steps) = (pool(first, "PTA"), &first["memory"]["steps"]);
    assert_eq!((&pta["used_bytes"], &pta["peak_bytes"]), (&Value::from(12_288), &Value::from(12_288)), "{first}");
    assert_eq!(steps[0]["number"], 1, "{steps}");
    assert_eq!((&steps[0]["peak_bytes"], &steps[0]["end_bytes"]), (&Value::from(5_096), &Value::from(4_096)));
    assert_eq!((&steps[1]["end_bytes"], &steps[1]["change_bytes"]), (&Value::from(12_288), &Value::from(8_192)));
    let process_id = first["process_id"].as_u64().expect("a process");
    signal(process_id, libc::SIGUSR1);
    job.hear("int=0 term=0 usr1=1");
    job.hear("second");
    // By the number of the process, and of the launcher that started it.
    for operand in [process_id.to_string(), job.launcher.id().to_string()] {
        let [second] = &look(&bench, &operand)[..] else { panic!("one process") };
        assert_eq!(pool(second, "PTA")["used_bytes"], 112_288, "{second}");
    }
    signal(process_id, libc::SIGKILL);
    job.launcher.wait().expect("its end");
    let [last] = &look(&bench, &output)[..] else { panic!("one process") };
    assert_eq!((&last["state"], &pool(last, "PTA")["used_bytes"]), (&Value::from("cut off"), &Value::from(112_288)));
}

#[test]
fn a_job_that_forks_is_shown_with_its_children() {
    let bench = Bench::new();
    let mut job = Running::start(&bench, "init device:0 alloc:5000 fork alloc:70000 catch say:here wait");
    job.hear("here");
    let processes = look(&bench, &job.launcher.id().to_string());
    let used: Vec<&Value> = processes.iter().map(|process| &pool(process, "HAL")["used_bytes"]).collect();
    assert_eq!(processes.len(), 2, "{processes:?}");
    assert!(used.contains(&&Value::from(5_000)) && used.iter().any(|bytes| **bytes != 5_000), "{used:?}");
    let text = stdout(&run(bench.msmemscope(["top", "--once", "--ascii", &bench.output().display().to_string()])));
    assert!(text.is_ascii() && text.matches(": running, ").count() == 2, "{text}");
    assert!(text.contains("Lines that hold most\n") && !text.contains("grew"), "one look sees no growth: {text}");
    let child = processes.iter().find(|process| pool(process, "HAL")["used_bytes"] != 5_000).expect("the child");
    signal(child["process_id"].as_u64().expect("a process"), libc::SIGUSR1);
    job.launcher.wait().expect("its end");
}

#[test]
fn people_watch_a_job_until_it_ends() {
    let bench = Bench::new();
    let mut job = Running::start(&bench, &format!("{TWO_STEPS} catch say:here wait pool:1048576 sleep:400"));
    job.hear("here");
    let mut watcher =
        Session::start(bench.msmemscope(["top", "--interval=0.1", &bench.output().display().to_string()]));
    let screen = watcher.expect("allocated at");
    assert!(screen.contains("PyTorch caching on device 0: 12.0 KiB in use"), "{screen}");
    assert!(screen.contains("Latest steps") && screen.contains("+8.0 KiB"), "{screen}");
    let [process] = &look(&bench, &bench.output().display().to_string())[..] else { panic!("one process") };
    signal(process["process_id"].as_u64().expect("a process"), libc::SIGUSR1);
    watcher.expect("1.0 MiB in use");
    // Behind the screen of its own the last picture stays.
    let rest = watcher.expect("\x1b[?1049l");
    assert!(rest.contains("\x1b[?25h"), "{rest}");
    let (status, rest) = watcher.finish();
    assert!(status.success() && rest.contains("ended"), "{status} {rest}");
    job.launcher.wait().expect("its end");
}

#[test]
fn somebody_who_has_seen_enough_ends_only_the_watching() {
    let bench = Bench::new();
    let mut job = Running::start(&bench, "init device:0 alloc:4096 catch say:here wait");
    job.hear("here");
    let mut watcher = Session::start(bench.msmemscope(["top", &bench.output().display().to_string()]));
    watcher.expect("Driver (HAL) on device 0");
    watcher.press("\x03");
    assert!(watcher.finish().0.success());
    let [process] = &look(&bench, &bench.output().display().to_string())[..] else { panic!("one process") };
    assert_eq!(process["state"], "running");
    signal(process["process_id"].as_u64().expect("a process"), libc::SIGUSR1);
    let deadline = Instant::now() + PATIENCE;
    while job.launcher.try_wait().expect("its state").is_none() {
        assert!(Instant::now() < deadline, "the job does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_cannot_be_followed_is_said_in_a_line() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("empty")).unwrap();
    let mut stranger = std::process::Command::new("sleep").arg("600").spawn().expect("a process");
    let stranger_id = stranger.id().to_string();
    for (arguments, words) in [
        (&["top", "999999999"][..], "there is no process 999999999"),
        (&["top", &stranger_id], "is not being recorded"),
        (&["top"], "no recordings in"),
        (&["top", "empty"], "empty"),
        (&["top", "--interval=0", "empty"], "--interval must be seconds from 0.1"),
        (&["top", "--interval=often", "empty"], "not 'often'"),
    ] {
        let output = run(bench.msmemscope(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = stderr(&output);
        assert!(text.contains(words) && text.trim_end().lines().count() == 1, "{arguments:?}: {text}");
    }
    stranger.kill().expect("killed");
    stranger.wait().expect("its end");
}
