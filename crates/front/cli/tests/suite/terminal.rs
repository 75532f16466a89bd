//! What people see: colours and progress on a terminal only, `info`, `doctor`.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::pseudo_terminal::Session;
use crate::support::{Bench, assert_success, job, release, run, stderr, stdout};

#[test]
fn colour_is_for_terminals_only() {
    let bench = Bench::new();
    let piped = run(bench.msmemscope(["--nonsense"]));
    assert!(!stderr(&piped).contains('\x1b'));
    let (status, seen) = Session::start(bench.msmemscope(["--nonsense"])).finish();
    assert_eq!(status.code(), Some(2));
    assert!(seen.contains("\x1b[31;1mError: \x1b[0m"), "{seen:?}");
    let mut plain = bench.msmemscope(["--nonsense"]);
    plain.env("NO_COLOR", "1");
    assert!(!Session::start(plain).finish().1.contains('\x1b'));
}

#[test]
fn the_color_option_wins_over_terminal_and_environment() {
    let bench = Bench::new();
    let script = "init device:0 step pool:4096 endstep step pool:4096 endstep step pool:4096 endstep fini";
    let recorded = bench.record(&["--color=always"], script);
    assert!(stderr(&recorded).contains("\x1b["), "{}", stderr(&recorded));
    for (command, expected) in [(&["analyze", "out"][..], "\x1b["), (&["check", "--no-leaks", "out"], "\x1b[")] {
        let with = |options: &[&str], variable: &str| {
            let mut command = bench.msmemscope([command, options].concat());
            command.env(variable, "1");
            stdout(&run(command))
        };
        assert!(with(&["--color=always"], "NO_COLOR").contains(expected), "{command:?}");
        assert!(with(&["--color", "never"], "FORCE_COLOR").find('\x1b').is_none(), "{command:?}");
        assert!(with(&["--colour=auto"], "FORCE_COLOR").contains(expected), "{command:?}");
        assert!(!with(&[], "UNRELATED").contains('\x1b'), "{command:?}");
    }
    let wrong = run(bench.msmemscope(["analyze", "--color=pink", "out"]));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("auto, always or never"), "{}", stderr(&wrong));
}

/// What is left of results that were interrupted: nothing half, and what was found.
fn assert_interrupted_tidily(bench: &Bench) {
    let recorded = bench.recording();
    assert!(!recorded.is_finished());
    let names = std::fs::read_dir(&recorded.0).expect("a recording").map(|entry| entry.expect("a file").file_name());
    let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(!names.iter().any(|name| name.starts_with(".pending")), "{names:?}");
    assert!(names.iter().any(|name| name == "summary.json"), "{names:?}");
    let report = std::fs::read_to_string(recorded.0.join("report.txt")).expect("a report");
    assert!(report.contains("Peak: "), "{report}");
    assert!(report.contains("the files with the events are not written yet: msmemscope finish "), "{report}");
}

#[test]
fn large_recordings_show_their_progress_on_a_terminal_and_can_be_interrupted() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--data-format=csv,db", "--output"]);
    command.arg(bench.output()).arg("--").arg(job()).args(["init", "device:0", "loop:300000", "fini"]);
    let mut session = Session::start(command);
    session.expect("Peak");
    session.expect("writing results");
    session.expect("%");
    session.press("\x03");
    session.expect("stopped; the recording is kept, for its results: msmemscope recover ");
    assert_eq!(session.finish().0.signal(), Some(libc::SIGINT));
    assert_interrupted_tidily(&bench);
    let mut finish = bench.msmemscope(["finish", "--data-format=csv,db"]);
    finish.arg(bench.output());
    let mut session = Session::start(finish);
    session.expect("Peak");
    session.expect("writing results");
    session.press("\x03");
    session.expect("stopped; the recording is kept, for its results: msmemscope finish ");
    assert_eq!(session.finish().0.signal(), Some(libc::SIGINT));
    assert_interrupted_tidily(&bench);
    let recover = run(bench.msmemscope([OsStr::new("recover"), bench.output().as_os_str()]));
    assert_success(&recover);
    assert!(!stderr(&recover).contains("writing results"), "nobody is watching");
    assert_eq!(bench.recording().events("MALLOC").len(), 300_000);
}

#[test]
fn info_tells_what_a_recording_contains() {
    let bench = Bench::new();
    let script = "init device:0 alloc:1048576 step loop:5 pool:2048 pool:4096 poolfree endstep step endstep fini";
    assert_success(&bench.record(&["--log-level=error"], script));
    let recorded = bench.recording();
    let info = run(bench.msmemscope([OsStr::new("info"), bench.output().as_os_str()]));
    assert_success(&info);
    let text = stdout(&info);
    let mut expected = vec![recorded.0.display().to_string()];
    expected.push(format!("  Command       {} {script}", job().display()));
    expected.push(format!("  Process       {} (parent ", recorded.process_id()));
    expected.push("  State         ended\n".to_owned());
    expected.push("  Steps         2\n".to_owned());
    expected.push("  Results       written\n".to_owned());
    expected.push("0       Driver (HAL)     1.0 MiB         -  1.0 MiB      1       6      5".to_owned());
    expected.push("0       PyTorch caching  6.0 KiB   6.0 KiB  2.0 KiB      1       2      1".to_owned());
    for line in expected {
        assert!(text.contains(&line), "{line}\n---\n{text}");
    }
}

#[test]
fn what_is_no_recording_is_named() {
    let bench = Bench::new();
    let damaged = bench.path("damaged");
    std::fs::create_dir(&damaged).expect("directory");
    std::fs::write(damaged.join("recording.trace"), [7; 9000]).expect("trace");
    let empty = bench.path("empty");
    std::fs::create_dir(&empty).expect("directory");
    let file = bench.path("memscope_dump.csv");
    std::fs::write(&file, "ID\n").expect("file");
    let cases = [
        (bench.path("missing"), "No such file or directory"),
        (empty, "no recording in this directory"),
        (damaged, "not a msmemscope trace"),
        (file, "this is a file; name the directory of a recording, or use 'msmemscope analyze'"),
    ];
    for command in ["info", "finish", "recover"] {
        for (path, reason) in &cases {
            let refused = run(bench.msmemscope([OsStr::new(command), path.as_os_str()]));
            assert_eq!(refused.status.code(), Some(2), "{command} {}", path.display());
            let message = stderr(&refused);
            // Files of rows have something to tell, if they are ones.
            let reason = if command == "info" && path.is_file() { "is not a memory dump" } else { reason };
            assert!(message.contains(reason) && message.contains(&path.display().to_string()), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
}

#[test]
fn info_says_that_a_process_was_killed_or_still_runs() {
    let bench = Bench::new();
    let _ = bench.record(&[], "alloc:1 raise:9");
    let text = stdout(&run(bench.msmemscope([OsStr::new("info"), bench.output().as_os_str()])));
    assert!(text.contains("ended without saying so"), "{text}");
    let mut command = bench.msmemscope([OsStr::new("--output"), bench.path("running").as_os_str()]);
    let script = format!("{} alloc:1 say:ready sleep:60000", job().display());
    command.args(["--", "bash", "-c", &script]);
    let mut session = Session::start(command);
    session.expect("ready");
    let text = stdout(&run(bench.msmemscope([OsStr::new("info"), bench.path("running").as_os_str()])));
    assert!(text.contains("still running") && text.contains("not written yet"), "{text}");
    let early = run(bench.msmemscope([OsStr::new("finish"), bench.path("running").as_os_str()]));
    assert_success(&early);
    session.press("\x03");
    session.expect("Results in");
    session.finish();
    let recorded = crate::support::recordings(&bench.path("running")).remove(0);
    assert_eq!((recorded.events("MALLOC").len(), recorded.events("FREE").len()), (1, 1), "the early results grew");
}

#[test]
fn doctor_explains_what_would_be_missing() {
    let bench = Bench::new();
    let fine = run(bench.msmemscope(["doctor", "--", "bash"]));
    assert_success(&fine);
    assert!(stdout(&fine).contains("Nothing stands in the way"), "{}", stdout(&fine));
    let mut command = bench.msmemscope(["doctor", "--", "nonexistent-program"]);
    command.env_remove("ASCEND_HOME_PATH").env("MSTX_INJECTION_PATH", "/opt/other.so");
    let look = run(command);
    assert_eq!(look.status.code(), Some(1));
    let text = stdout(&look);
    for cause in ["ASCEND_HOME_PATH is not set", "MSTX_INJECTION_PATH is set", "'nonexistent-program' was not found"] {
        assert!(text.contains(&format!("LOOK  {cause}")) || text.contains(cause), "{cause}: {text}");
    }
    let mut command = bench.msmemscope(["doctor"]);
    command.env("ASCEND_HOME_PATH", "/nonexistent");
    assert!(stdout(&run(command)).contains("libms_tools_ext.so is missing"));
    let preloaded = |path: &Path| {
        let mut command = bench.msmemscope(["doctor"]);
        command.env("LD_PRELOAD", path);
        stdout(&run(command))
    };
    let (library, other) = (release().join("libascend_kernel_hook.so"), bench.path("other.so"));
    assert!(preloaded(&library).contains("ok    LD_PRELOAD names our recorder"));
    std::fs::copy(&library, &other).expect("a copy");
    std::os::unix::fs::symlink(&other, bench.path("libascend_kernel_hook.so")).expect("a link");
    assert!(preloaded(&bench.path("libascend_kernel_hook.so")).contains("frameworks look at the real name"));
    std::fs::remove_file(bench.path("libascend_kernel_hook.so")).expect("removed");
    std::fs::copy(&library, bench.path("libascend_kernel_hook.so")).expect("a copy");
    assert!(preloaded(&bench.path("libascend_kernel_hook.so")).contains("the recorder of another installation"));
    assert!(preloaded(&release().join("libascend_mstx_hook.so")).contains("will not report their memory pools"));
}
