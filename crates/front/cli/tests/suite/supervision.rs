//! The job under our program behaves as without it: statuses, signals, job control, descendants.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use crate::pseudo_terminal::Session;
use crate::support::{Bench, assert_success, column, job, recordings, release, run, stderr, stdout};

fn is_root() -> bool {
    // SAFETY: plain system call.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn exit_statuses_are_those_of_the_job() {
    let bench = Bench::new();
    for status in [0, 1, 2, 3, 99, 127, 255] {
        let output = bench.record(&[], &format!("alloc:1 exit:{status}"));
        assert_eq!(output.status.code(), Some(status));
        let output = bench.record(&[], &format!("alloc:1 _exit:{status}"));
        assert_eq!(output.status.code(), Some(status), "_exit skips everything we could do at exit");
    }
    assert_eq!(bench.recordings().len(), 14);
    for recorded in bench.recordings() {
        assert_eq!(recorded.events("MALLOC").len(), 1);
    }
}

#[test]
fn signals_that_end_the_job_end_us_the_same_way() {
    let bench = Bench::new();
    for signal in [libc::SIGKILL, libc::SIGABRT, libc::SIGSEGV, libc::SIGTERM, libc::SIGINT] {
        let output = bench.record(&[], &format!("alloc:1 raise:{signal}"));
        assert_eq!(output.status.signal(), Some(signal), "{}", stderr(&output));
        assert!(!output.status.core_dumped());
        assert!(stderr(&output).contains("Results in"), "{}", stderr(&output));
    }
    assert_eq!(bench.recordings().len(), 5);
}

#[test]
fn programs_that_cannot_be_started_are_told_apart() {
    let bench = Bench::new();
    std::fs::write(bench.path("data"), "no program").expect("file");
    std::fs::write(bench.path("script"), "#!/nonexistent/interpreter\n").expect("file");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bench.path("script"), executable).expect("mode");
    for (program, status, text) in [
        ("nonexistent-program", 127, "nonexistent-program: command not found\n"),
        ("analyse", 127, "analyse: command not found; did you mean 'analyze'?"),
        ("help", 127, "help: command not found; did you mean '--help'?"),
        ("./nonexistent", 127, "./nonexistent: command not found"),
        ("./data", 126, "./data: cannot be executed: Permission denied"),
        ("./script", 126, "./script: cannot be executed: its interpreter is missing"),
        ("/", 126, "/: cannot be executed: Permission denied"),
    ] {
        let output = run(bench.msmemscope([program]));
        assert_eq!(output.status.code(), Some(status), "{program}: {}", stderr(&output));
        assert!(stderr(&output).contains(text), "{program}: {}", stderr(&output));
    }
    assert!(!bench.path("memscopeDumpResults").exists());
}

#[test]
fn a_python_script_needs_no_interpreter_in_front() {
    let bench = Bench::new();
    let call = "import subprocess, sys\nsubprocess.run([";
    let script = format!("{call}{:?}, 'alloc:7', 'say:' + sys.argv[1]], check=True)\n", job().display().to_string());
    std::fs::write(bench.path("train.py"), script).expect("script");
    let output = run(bench.msmemscope(["train.py", "argument"]));
    assert_success(&output);
    assert_eq!(stdout(&output), "argument\n");
    assert_eq!(recordings(&bench.path("memscopeDumpResults")).len(), 1);
    let latest = run(bench.msmemscope(["analyze", "--peak", "--json"]));
    assert_success(&latest);
    let peak = serde_json::from_str::<serde_json::Value>(&stdout(&latest)).expect("JSON");
    assert_eq!(peak["processes"][0]["moments"]["pools"][0]["used_bytes"], 7, "the latest recording is taken: {peak}");
}

#[test]
fn moments_are_broken_down_as_asked_or_refused() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], "init device:0 step pool:1048576 endstep step pool:4096 endstep fini"));
    let output = bench.output();
    let analyze = |option: &str| run(bench.msmemscope(["analyze".as_ref(), output.as_os_str(), option.as_ref()]));
    let grown = analyze("--grew=step:1..step:2");
    assert_success(&grown);
    assert!(stdout(&grown).contains("from 1.0 MiB to 1.0 MiB (+4.0 KiB)"), "{}", stdout(&grown));
    let tree = analyze("--by=call-tree");
    assert_success(&tree);
    assert!(stdout(&tree).contains("call-tree"), "without a moment it is the peak: {}", stdout(&tree));
    for (option, error) in [
        ("--grew=step:1..step:9", "no step 9: the job had 2 steps"),
        ("--at=step:9", "no step 9: the job had 2 steps"),
        ("--grew=step:1", "--grew must be two moments as of --at, such as step:3..step:9, not 'step:1'"),
        ("--by=file", "--by must be one of line, module, call-tree, owner, operator, kernel, phase, not 'file'"),
    ] {
        let refused = analyze(option);
        assert_eq!(refused.status.code(), Some(2), "{option}");
        assert!(stderr(&refused).contains(error), "{option}: {}", stderr(&refused));
    }
}

#[test]
fn a_script_of_the_working_directory_needs_no_path() {
    let bench = Bench::new();
    let script = format!("#!/bin/bash\n{} alloc:7 \"say:$1 $(basename $0)\"\n", job().display());
    std::fs::write(bench.path("train.sh"), script).expect("script");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bench.path("train.sh"), executable).expect("mode");
    let output = run(bench.msmemscope(["train.sh", "argument"]));
    assert_success(&output);
    assert_eq!(stdout(&output), "argument train.sh\n");
    assert_eq!(recordings(&bench.path("memscopeDumpResults")).len(), 1);
}

/// Starts a job that says when it is ready for signals.
fn start_waiting(bench: &Bench, mut command: Command) -> (Child, BufReader<std::process::ChildStdout>) {
    command.arg("--output").arg(bench.output()).arg("--").arg(job());
    command.args("alloc:1 catch say:ready wait exit:5".split_whitespace());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("our program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    (child, lines)
}

fn send(process_id: i32, signal: i32) {
    // SAFETY: plain system call to a process this test has started.
    assert_eq!(unsafe { libc::kill(process_id, signal) }, 0);
}

#[test]
fn kill_is_passed_on_to_the_job_once() {
    let bench = Bench::new();
    for (signal, seen) in [
        (libc::SIGTERM, "int=0 term=1 usr1=0\n"),
        (libc::SIGINT, "int=1 term=0 usr1=0\n"),
        (libc::SIGUSR1, "int=0 term=0 usr1=1\n"),
    ] {
        let (mut child, mut lines) = start_waiting(&bench, bench.msmemscope([""; 0]));
        send(child.id() as i32, signal);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("the job's words");
        assert_eq!(rest, seen);
        assert_eq!(child.wait().expect("an end").code(), Some(5), "the job decides how it ends");
    }
}

/// A job that says which signals it gets, and with which value.
const LISTENER: &str = r#"
import signal, sys
wanted = [number for number in signal.valid_signals() if number not in (9, 17, 18, 19, 11)]
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print("ready", flush=True)
while True:
    print(signal.sigwaitinfo(wanted).si_signo, flush=True)
"#;

#[test]
fn every_signal_that_can_be_is_passed_on() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--output"]);
    command.arg(bench.output()).args(["--", "python3", "-c", LISTENER]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("our program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "ready");
    let ordinary = (1..32)
        .filter(|signal| ![libc::SIGKILL, libc::SIGCHLD, libc::SIGCONT, libc::SIGSTOP, libc::SIGSEGV].contains(signal));
    for signal in ordinary.chain([libc::SIGRTMIN(), libc::SIGRTMIN() + 5, libc::SIGRTMAX()]) {
        send(child.id() as i32, signal);
        assert_eq!(next(), signal.to_string());
        assert!(child.try_wait().expect("a state").is_none(), "signal {signal} ended the supervisor");
    }
    send(child.id() as i32, libc::SIGSEGV);
    assert_eq!(child.wait().expect("an end").signal(), Some(libc::SIGSEGV), "the job has not blocked this one");
}

#[test]
fn a_terminal_that_is_closed_ends_the_job_of_a_session_leader() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--output"]);
    command.arg(bench.output()).arg("--").arg(job()).args(["alloc:1", "say:ready", "sleep:100000"]);
    let mut session = Session::start(command);
    session.expect("ready");
    assert_eq!(session.hang_up().signal(), Some(libc::SIGHUP));
    assert!(bench.recording().is_finished(), "the results are written all the same");
}

#[test]
fn a_timer_set_before_the_start_ends_the_job() {
    let bench = Bench::new();
    let mut command = bench.command("python3");
    let exec = "import os, signal, sys; signal.alarm(2); os.execv(sys.argv[1], sys.argv[1:])";
    command.args(["-c", exec]).arg(release().join("msmemscope")).arg("--output").arg(bench.output());
    command.arg("--").arg(job()).args(["alloc:1", "sleep:100000"]);
    assert_eq!(run(command).status.signal(), Some(libc::SIGALRM));
}

#[test]
fn descriptors_that_are_closed_stay_closed_in_the_job() {
    let bench = Bench::new();
    let look = "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && open=$open$n; done; echo \"open: $open\" > seen";
    for (redirections, expected) in [("", "open: 012\n"), ("<&-", "open: 12\n"), ("<&- >&- 2>&-", "open: \n")] {
        let line = format!("exec \"$0\" --output out -- sh -c \"$1\" {redirections}");
        let mut command = bench.command("sh");
        command.args(["-c", &line]).arg(release().join("msmemscope")).arg(look);
        assert_success(&run(command));
        let seen = std::fs::read_to_string(bench.path("seen")).expect("what the job saw");
        assert_eq!(seen, expected, "{redirections}");
    }
}

#[test]
fn a_limit_of_file_sizes_costs_results_but_not_the_status() {
    let bench = Bench::new();
    let mut command = bench.command("bash");
    let line = "ulimit -f 1200; exec \"$0\" --output out -- \"$1\" loop:20000 exit:3";
    command.args(["-c", line]).arg(release().join("msmemscope")).arg(job());
    let output = run(command);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
    assert!(stderr(&output).contains("recover"), "{}", stderr(&output));
    let left: Vec<_> = std::fs::read_dir(&bench.recording().0).expect("listing").collect();
    assert!(left.iter().all(|entry| !entry.as_ref().expect("entry").file_name().to_string_lossy().contains("pending")));
}

#[test]
fn ignored_and_blocked_signals_are_handed_down() {
    let bench = Bench::new();
    let show = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
    let prepare = |command: &mut Command| {
        // SAFETY: only async-signal-safe system calls.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGUSR2);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                Ok(())
            });
        }
    };
    for changed in [false, true] {
        let (mut plain, mut ours) = (bench.command("sh"), bench.msmemscope(["--", "sh"]));
        for command in [&mut plain, &mut ours] {
            command.args(["-c", show]);
            if changed {
                prepare(command);
            }
        }
        assert_eq!(stdout(&run(ours)), stdout(&run(plain)));
    }
}

#[test]
fn control_c_of_the_terminal_reaches_the_job_once() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--output"]);
    command.arg(bench.output()).arg("--").arg(job());
    command.args("alloc:1 catch say:ready wait exit:7".split_whitespace());
    let mut session = Session::start(command);
    session.expect("ready");
    session.press("\x03");
    session.expect("int=1 term=0 usr1=0");
    session.expect("Results in");
    let (status, _) = session.finish();
    assert_eq!(status.code(), Some(7));
}

#[test]
fn control_c_that_ends_the_job_ends_us_after_the_results() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--output"]);
    command.arg(bench.output()).arg("--").arg(job()).args(["alloc:1", "say:ready", "sleep:60000"]);
    let mut session = Session::start(command);
    session.expect("ready");
    session.press("\x03");
    session.expect("Results in");
    let (status, _) = session.finish();
    assert_eq!(status.signal(), Some(libc::SIGINT));
    assert_eq!(bench.recording().events("FREE").len(), 1);
}

#[test]
fn a_shell_can_stop_and_continue_the_job() {
    let bench = Bench::new();
    let mut shell = bench.command("bash");
    shell.args(["--noprofile", "--norc", "-i"]).env("PS1", "prompt> ");
    let mut session = Session::start(shell);
    session.expect("prompt> ");
    let (program, output, job) = (release().join("msmemscope"), bench.output(), job());
    session.press(&format!(
        "{} -o {} -- {} alloc:1 say:rea''dy sleep:1500 alloc:2 say:aw''ake\n",
        program.display(),
        output.display(),
        job.display()
    ));
    session.expect("ready");
    session.press("\x1a");
    session.expect("Stopped");
    session.expect("prompt> ");
    session.press("jobs\n");
    session.expect("Stopped");
    session.press("fg\n");
    session.expect("awake");
    session.expect("Results in");
    session.expect("prompt> ");
    session.press("echo status=$?\n");
    session.expect("status=0");
    session.press("exit\n");
    assert!(session.finish().0.success());
    assert_eq!(bench.recording().events("MALLOC").len(), 2);
}

#[test]
fn descendants_are_recorded_each_in_its_own_directory() {
    let bench = Bench::new();
    let job = job().display();
    let script = format!(
        "true; {job} alloc:1 & {job} alloc:2 & (bash -c '{job} alloc:3; ls >/dev/null'); {job} alloc:4 fork alloc:5; wait"
    );
    let mut command = bench.msmemscope(["--output".as_ref(), bench.output().as_os_str()]);
    command.args(["--", "bash", "-c", &script]);
    let output = run(command);
    assert_success(&output);
    let all = bench.recordings();
    assert_eq!(all.len(), 5, "bash, true and ls leave nothing behind: {all:?}");
    for recorded in &all {
        let process = recorded.process_id().to_string();
        let rows = recorded.rows("csv");
        assert!(rows.iter().all(|row| row[column::PROCESS] == process), "{rows:?}");
    }
    let said = stderr(&output);
    assert!(said.contains("5 processes recorded") && said.contains("5 directories with"), "{said}");
}

#[test]
fn an_exec_in_place_begins_a_recording_of_its_own() {
    let bench = Bench::new();
    let output = bench.record(&[], "alloc:1 alloc:2 exec:again alloc:3 say:done");
    assert_success(&output);
    assert_eq!(stdout(&output), "done\n");
    let all = bench.recordings();
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].process_id(), all[1].process_id());
    let counts: Vec<usize> = all.iter().map(|recorded| recorded.events("MALLOC").len()).collect();
    assert_eq!(counts, [2, 1]);
    assert!(stderr(&output).contains(": again alloc:3 say:done"), "{}", stderr(&output));
}

#[test]
fn processes_that_outlive_the_job_are_named_and_not_waited_for() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--output".as_ref(), bench.output().as_os_str()]);
    command.arg("--").arg(job()).args("setsid alloc:1 say:alive sleep:2000 alloc:2 free free".split_whitespace());
    // The daemon keeps our standard output open: do not wait for its end, but for its first word.
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("our program starts");
    let mut daemon = BufReader::new(child.stdout.take().expect("a pipe"));
    let status = child.wait().expect("an end");
    assert_eq!(status.code(), Some(0), "the parent of the daemon has ended");
    let mut line = String::new();
    daemon.read_line(&mut line).expect("the daemon's word");
    assert_eq!(line, "alive\n");
    daemon.read_to_string(&mut line).expect("the daemon ends");
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    // It depends on the scheduler whether the daemon had begun to record when its parent ended.
    assert!(said.contains("still runs") || said.contains("no memory events were recorded"), "{said}");
    let recorded = bench.recording();
    let finish = run(bench.msmemscope(["finish".as_ref(), recorded.0.as_os_str()]));
    assert_success(&finish);
    assert_eq!((recorded.events("MALLOC").len(), recorded.events("FREE").len()), (2, 2));
}

#[test]
fn as_first_process_of_a_container_orphans_are_reaped() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let bench = Bench::new();
    let mut command = bench.command("unshare");
    let script = format!("(sleep 0.05 &) ; {} alloc:1; sleep 0.3; ps -e -o stat= | grep -c Z; exit 4", job().display());
    command.args(["--pid", "--fork", "--mount-proc"]).arg(release().join("msmemscope"));
    command.arg("--output").arg(bench.output()).args(["--", "bash", "-c", &script]);
    let output = run(command);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(stdout(&output), "0\n", "no zombies");
    assert_eq!(bench.recording().events("MALLOC").len(), 1);
    let mut command = bench.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(release().join("msmemscope"));
    command.arg("--output").arg(bench.output()).arg("--").arg(job()).args(["alloc:1", "raise:15"]);
    assert_eq!(run(command).status.code(), Some(128 + 15), "the first process cannot be killed by its own signal");
}

#[test]
fn the_users_environment_is_kept() {
    let bench = Bench::new();
    let other = standin_testing::home().join("lib64/libms_tools_ext.so");
    let mut command = bench.msmemscope(["--", "bash", "-c", "echo $LD_PRELOAD; echo $OTHER"]);
    command.env("LD_PRELOAD", &other).env("OTHER", "kept");
    let output = run(command);
    assert_success(&output);
    let ours = ["libascend_kernel_hook.so", "libatb_abi_0_hook.so", "libatb_abi_1_hook.so"];
    let ours = ours.map(|name| release().join(name).display().to_string()).join(":");
    assert_eq!(stdout(&output), format!("{ours}:{}\nkept\n", other.display()));
}
