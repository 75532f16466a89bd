//! `view`: an address at once, one clear line when there is nothing to show, and a clean end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Bench, run};
use crate::top::{Running, TWO_STEPS, signal};

const PATIENCE: Duration = Duration::from_secs(60);

const ROWS: &str = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr\n\
    1,MALLOC,PTA,N/A,1000,7,7,0,0x0000000000001000,\"{allocation_id:1,size:4096}\"\n";

fn start(bench: &Bench, arguments: &[&str]) -> (Child, String) {
    let mut command = bench.msmemscope(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

fn ask(url: &str, path: &str) -> String {
    let host = url.split('/').nth(2).unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let token = url.split('/').nth(3).unwrap();
    write!(stream, "GET /{token}/{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn end_by(mut child: Child, signal: i32) -> (Option<i32>, String) {
    // SAFETY: plain system call for a child of ours that has not been waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the viewer does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_viewer_serves_until_interrupted() {
    let bench = Bench::new();
    std::fs::write(bench.path("memscope_dump_1.csv"), ROWS).unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let (child, url) = start(&bench, &["view", "memscope_dump_1.csv", "--no-browser"]);
        assert!(url.starts_with("http://127.0.0.1:") && url.ends_with('/'), "{url}");
        let port = url.split(':').nth(2).unwrap().split('/').next().unwrap().to_owned();
        assert!(ask(&url, "api/session").contains("\"process_id\":7"));
        assert!(ask(&url, "").starts_with("HTTP/1.1"), "the page, or that there is none");
        let (status, stderr) = end_by(child, signal);
        assert_eq!(status, Some(0), "{stderr}");
        assert!(stderr.contains(&format!("ssh -L {port}:127.0.0.1:{port} ")), "{stderr}");
    }
    assert!(std::fs::read_dir(bench.home.path()).unwrap().count() == 1, "small files get no index");
}

#[test]
fn a_port_can_be_chosen() {
    let bench = Bench::new();
    std::fs::write(bench.path("memscope_dump_1.csv"), ROWS).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run(bench.msmemscope(["view", "memscope_dump_1.csv", "--no-browser", "--port", &port]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("port {port}")));
    drop(taken);
    let (child, url) = start(&bench, &["view", "memscope_dump_1.csv", "--no-browser", &format!("--port={port}")]);
    assert!(url.starts_with(&format!("http://127.0.0.1:{port}/")), "{url}");
    assert_eq!(end_by(child, libc::SIGINT).0, Some(0));
}

#[test]
fn what_cannot_be_shown_is_one_line() {
    let bench = Bench::new();
    std::fs::write(bench.path("empty.csv"), "").unwrap();
    for arguments in [
        &["view", "nothing", "--no-browser"][..],
        &["view", "empty.csv"],
        &["view", "."],
        &["view"],
        &["view", ".", "--port=x"],
        &["view", "--live"],
        &["view", "--live", "empty.csv"],
        &["view", "--live", "999999999"],
    ] {
        let output = run(bench.msmemscope(arguments));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// The answer to a question, once it is as wanted.
fn ask_until(url: &str, question: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask(url, &format!("api/{question}"));
        let value: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        if is_wanted(&value) {
            return value;
        }
        assert!(Instant::now() < deadline, "{question}: {value}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn pta_bytes(recording: &Value, figure: &str) -> u64 {
    let pools = recording["devices"].as_array().into_iter().flatten().flat_map(|device| device["pools"].as_array());
    let pta = pools.flatten().find(|pool| pool["pool"] == "PTA");
    pta.and_then(|pool| pool[figure].as_u64()).unwrap_or(0)
}

#[test]
fn a_job_that_grows_and_is_killed_is_followed() {
    let bench = Bench::new();
    let mut job =
        Running::start(&bench, &format!("{TWO_STEPS} catch say:first wait pool:100000 say:second sleep:60000"));
    job.hear("first");
    let launcher = job.launcher.id().to_string();
    let (child, url) = start(&bench, &["view", "--live", &launcher, "--no-browser"]);
    let first = ask_until(&url, "session", |session| session["complete"] == true);
    assert_eq!(first["live"], true);
    let recording = &first["recordings"][0];
    assert_eq!((pta_bytes(recording, "end_bytes"), &recording["steps"]), (12_288, &Value::from(2)), "{recording}");
    let running = |session: &Value| session["recordings"][0]["live"]["condition"] == "running";
    let first = ask_until(&url, "session", running);
    let live = &first["recordings"][0]["live"];
    assert!(live["pools"].as_array().unwrap().iter().any(|pool| pool["used_bytes"] == 12_288), "{live}");
    let process_id = recording["process_id"].as_u64().unwrap();
    signal(process_id, libc::SIGUSR1);
    job.hear("int=0 term=0 usr1=1");
    job.hear("second");
    let grown = |session: &Value| pta_bytes(&session["recordings"][0], "end_bytes") == 112_288;
    let second = ask_until(&url, "session", grown);
    assert!(second["recordings"][0]["live"]["revision"].as_u64() > Some(0));
    let held =
        ask_until(&url, &format!("holds?t={}", second["recordings"][0]["t1"]), |holds| holds["complete"] == true);
    assert_eq!(held["used_bytes"], 112_288);
    signal(process_id, libc::SIGKILL);
    job.launcher.wait().unwrap();
    let last = ask_until(&url, "session", |session| session["live"] == false);
    assert_eq!(last["recordings"][0]["live"]["condition"], "cut_off");
    assert_eq!(pta_bytes(&last["recordings"][0], "end_bytes"), 112_288);
    assert_eq!(end_by(child, libc::SIGINT).0, Some(0));
}

#[test]
fn processes_that_a_job_starts_join_in() {
    let bench = Bench::new();
    let mut job = Running::start(&bench, "init device:0 alloc:5000 catch say:alone wait fork alloc:70000 say:two wait");
    job.hear("alone");
    let output = bench.output().display().to_string();
    let (child, url) = start(&bench, &["view", "--live", &output, "--no-browser"]);
    let alone = ask_until(&url, "session", |session| session["complete"] == true);
    let [parent] = &alone["recordings"].as_array().unwrap()[..] else { panic!("one process: {alone}") };
    signal(parent["process_id"].as_u64().unwrap(), libc::SIGUSR1);
    let both = ask_until(&url, "session", |session| {
        session["complete"] == true && session["recordings"].as_array().unwrap().len() == 2
    });
    assert_eq!(both["recordings"][0]["process_id"], parent["process_id"], "numbers of recordings stay");
    for recording in both["recordings"].as_array().unwrap() {
        signal(recording["process_id"].as_u64().unwrap(), libc::SIGKILL);
    }
    job.launcher.wait().unwrap();
    ask_until(&url, "session", |session| session["live"] == false);
    assert_eq!(end_by(child, libc::SIGTERM).0, Some(0));
}
