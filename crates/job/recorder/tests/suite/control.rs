//! Requests from outside to a job under load: none is lost, none changes the job, and every block is recorded.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use msmemscope_event::{Fact, LossReason, RecordingState};
use msmemscope_settings::{CallStacks, Recording, Settings};
use msmemscope_trace::requests::{Answer, Command, RequestError, Requests};
use msmemscope_trace::{TRACE_FILE_NAME, Trace};

use crate::exact::{STRESS, replay};
use crate::support::{Lab, library};
use crate::truth::{self, ByThread};

const PATIENCE: Duration = Duration::from_secs(60);

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// The trace of a job that has just been started, once it lets itself be asked.
fn door(lab: &Lab, job: &mut Child) -> Option<(Requests, PathBuf)> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let entries = std::fs::read_dir(&lab.output).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path().join(TRACE_FILE_NAME));
        if let Some(found) = paths.filter_map(|path| Some((Requests::open(&path).ok()?, path))).next() {
            return Some(found);
        }
        if job.try_wait().expect("a child").is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("the job makes no trace");
}

/// What a random request is to do.
fn request(recording: &Recording, numbers: &mut Numbers) -> (Command, String) {
    let settings = |depth: u64| {
        let call_stacks = CallStacks { native_depth: (depth > 0).then_some(depth as u16), ..CallStacks::default() };
        let settings = Settings { call_stacks, ..recording.settings.clone() };
        Recording { settings, ..recording.clone() }.to_environment()
    };
    match numbers.below(5) {
        0 => (Command::Start, String::new()),
        1 => (Command::Stop, String::new()),
        2 => (Command::Step, String::new()),
        3 => (Command::Snapshot, String::new()),
        _ => (Command::Configure, settings(numbers.below(4))),
    }
}

/// Only blocks: what else there is is recorded only between start and stop.
fn blocks(lines: ByThread) -> ByThread {
    let is_block = |line: &String| ["allocation", "free ", "heap"].iter().any(|start| line.starts_with(start));
    let is_whole = |line: &String| is_block(line) && !line.starts_with("free failed");
    let keep = |lines: Vec<String>| lines.into_iter().filter(is_whole).collect::<Vec<_>>();
    lines.into_iter().map(|(thread, lines)| (thread, keep(lines))).filter(|(_, lines)| !lines.is_empty()).collect()
}

/// Runs the stress program and asks it for random things until it ends or there are enough; gives how many were answered.
fn ask_at_random(seed: u64, most: usize) -> usize {
    let lab = Lab::new();
    let program = lab.compile("stress.c", STRESS, &["ascendcl", "ascend_hal", "ms_tools_ext"]);
    let mut command = lab.plain(&program);
    command.args(["4", "60000", &seed.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let recording = lab.recording();
    lab.record_with(&mut command, &[library(crate::support::RECORDER)], &recording);
    let mut job = command.spawn().expect("the program starts");
    let mut numbers = Numbers(seed * 7919 + 1);
    let (mut answered, mut steps, mut is_on) = (0, 0, true);
    if let Some((requests, _)) = door(&lab, &mut job) {
        while answered < most {
            let (command, text) = request(&recording, &mut numbers);
            let turn = requests.lock(Instant::now()).expect("a lock").expect("nobody else asks");
            let asked = turn.ask(command, text.as_bytes()).expect("asked");
            let answer = asked.wait(PATIENCE).expect("the trace");
            match (answer, command) {
                (Answer::NotYet, _) => {
                    assert!(requests.has_ended().expect("the trace"), "no answer to {command:?}");
                    break;
                }
                (Answer::Refused(errno), Command::Step) => assert!(!is_on && errno == libc::EAGAIN),
                (Answer::Refused(errno), _) => panic!("{command:?} failed: {errno}"),
                (Answer::Met, Command::Start) => is_on = true,
                (Answer::Met, Command::Stop) => is_on = false,
                (Answer::Met, Command::Step) => {
                    assert!(is_on);
                    steps += 1;
                }
                (Answer::Met, _) => {}
                (Answer::Occupied(_), _) => panic!("{command:?} was asked for"),
            }
            answered += 1;
            let condition = requests.condition().expect("the trace");
            let state = if is_on { RecordingState::On } else { RecordingState::Shadow };
            assert_eq!((condition.state, condition.steps), (Some(state), steps));
        }
    }
    let output = job.wait_with_output().expect("its end");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().all(|line| line.contains("the driver refused 1.0 PiB")), "{said}");
    let trace = lab.trace();
    let entries = standin_truth::read_directory(&lab.log).expect("the log of the device");
    let recorded = blocks(truth::recorded(&trace));
    let expected = blocks(truth::expected(&entries, trace.process_id()));
    assert_eq!(recorded.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "the threads");
    for (thread, expected) in &expected {
        assert_eq!(recorded[thread].len(), expected.len(), "thread {thread}");
        for (position, (one, other)) in recorded[thread].iter().zip(expected).enumerate() {
            assert_eq!(one, other, "thread {thread}, block {position}");
        }
    }
    let completeness = trace.completeness();
    assert_eq!(completeness.damage, []);
    // Some of the settings ask for short stacks, and the program sends messages that nobody can use.
    let is_expected = |reason| matches!(reason, LossReason::BadMessage | LossReason::StackCut);
    assert!(completeness.losses.iter().all(|(reason, _)| is_expected(*reason)), "{completeness:?}");
    replay(&trace);
    assert_eq!(count_steps(&trace), steps);
    answered
}

fn count_steps(trace: &Trace) -> u64 {
    let mut records = trace.records();
    let mut steps = 0;
    while let Some(record) = records.next() {
        steps += u64::from(matches!(record.fact, Fact::Step { .. }));
    }
    steps
}

#[test]
fn a_thousand_random_requests_lose_nothing_and_change_nothing() {
    let (mut answered, mut seed) = (0, 1);
    while answered < 1000 {
        answered += ask_at_random(seed, 1000 - answered);
        seed += 1;
        assert!(seed < 200, "only {answered} requests were answered");
    }
}

#[test]
fn a_job_that_wants_no_control_is_left_alone() {
    let lab = Lab::new();
    let program = lab.compile("stress.c", STRESS, &["ascendcl", "ascend_hal", "ms_tools_ext"]);
    let mut command = lab.plain(&program);
    command.args(["1", "2000", "1"]).env("MSMEMSCOPE_CONTROL", "off");
    lab.record(&mut command);
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    let path = lab.directories()[0].join(TRACE_FILE_NAME);
    // As if it were still running.
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the trace");
    file.write_all_at(&0u32.to_le_bytes(), msmemscope_trace::layout::file_offset::CLOSED as u64).expect("written");
    assert!(matches!(Requests::open(&path), Err(RequestError::SwitchedOff)));
}

/// Garbage in the words of a request, over and over, does nothing to a job.
#[test]
fn hostile_words_do_nothing() {
    let lab = Lab::new();
    let program = lab.compile("stress.c", STRESS, &["ascendcl", "ascend_hal", "ms_tools_ext"]);
    let mut command = lab.plain(&program);
    command.args(["2", "40000", "9"]).stdout(Stdio::null()).stderr(Stdio::piped());
    lab.record(&mut command);
    let mut job = command.spawn().expect("the program starts");
    let (_, path) = door(&lab, &mut job).expect("a trace");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the trace");
    let mut numbers = Numbers(77);
    while job.try_wait().expect("a child").is_none() {
        let garbage: Vec<u8> = (0..64).map(|_| numbers.below(256) as u8).collect();
        let number = msmemscope_trace::layout::file_offset::REQUEST_NUMBER as u64;
        file.write_all_at(&garbage, number).expect("written");
        file.write_all_at(&garbage, number + 768).expect("written");
    }
    let output = job.wait_with_output().expect("its end");
    assert!(output.status.success(), "{output:?}");
    let trace = lab.trace();
    assert_eq!(trace.completeness().damage, []);
    assert!(trace.definitions().settings().len() == 1, "no settings were taken over");
    assert_eq!(count_steps(&trace), 0);
}
