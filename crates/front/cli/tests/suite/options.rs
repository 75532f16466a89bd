//! Every option, good and bad, through the real program; and what those that act do.

use std::collections::BTreeSet;

use crate::support::{Bench, Recorded, assert_success, attribute, column, job, release, run, stderr, stdout};

/// Four blocks on two devices, in and between two steps, one operator-free job.
const SCRIPT: &str = "init device:0 alloc:1000 step alloc:2000 device:1 alloc:3000 endstep \
                      mark:between step device:0 alloc:4000 free endstep pool:500 poolfree pinned:8192 fini";

#[test]
fn help_names_everything_that_memory_is_broken_down_by() {
    let bench = Bench::new();
    let refusal = stderr(&run(bench.msmemscope(["analyze", "--by=nonsense"])));
    let (_, words) = refusal.split_once("must be one of ").expect("the words that are known");
    let (words, _) = words.split_once(", not ").expect("and the one that is not");
    let help = stdout(&run(bench.msmemscope(["analyze", "--help"])));
    let (_, help) = help.split_once("--by <WHAT>").expect("the option");
    let (summary, _) = help.split_once("\n  --").expect("the next option");
    for word in words.split(", ") {
        assert!(summary.contains(word), "{word} is not in:{summary}");
    }
}

#[test]
fn good_values_record_and_say_nothing() {
    let bench = Bench::new();
    for options in [
        &["--steps=1,2"][..],
        &["--steps=2，3,234"],
        &["--steps=4294967295"],
        &["--device=npu"],
        &["--device=npu:0，npu:31"],
        &["--level=op"],
        &["--level=0"],
        &["--events=alloc,free,launch"],
        &["--events=alloc，free"],
        &["--events=launch"],
        &["--call-stack="],
        &["--collect-mode=immediate"],
        &["--collect-mode=deferred"],
        &["--analysis=leaks"],
        &["--analysis="],
        &["--analysis=none"],
        &["--analysis=leaks，decompose"],
        &["--data-format=csv"],
        &["--data-format=db"],
        &["--data-format=csv，db"],
        &["--format", "db"],
        &["--log-level=info"],
        &["--log-level", "warn"],
        &["--log-level=warning"],
        &["--log-level=error"],
        &["-q"],
        &["--quiet"],
        &["--watch=op0,op1,full-content"],
        &["--watch=op0:out1，op1，full-content"],
        &["--watch=,op1"],
        &["--watch=auto:64MiB"],
        &["--max-trace-size=10MiB"],
        &["--max-trace-size=1048576"],
        &["--dev=npu"],
    ] {
        let output = bench.record(options, SCRIPT);
        assert_success(&output);
        let said = stderr(&output);
        // Who runs the tests, and whether the Python package has been built, is not the options' business.
        const CIRCUMSTANCES: [&str; 3] = ["running as root", "recording into", "the Python package is not installed"];
        let of_options = |line: &&str| !CIRCUMSTANCES.iter().any(|circumstance| line.contains(circumstance));
        let unexpected = said.lines().filter(|line| line.starts_with("[msmemscope]"));
        let unexpected: Vec<&str> = unexpected.filter(of_options).collect();
        assert!(unexpected.is_empty(), "{options:?}: {unexpected:?}");
    }
    assert_eq!(bench.recordings().len(), 34, "one directory per run");
}

#[test]
fn filters_that_match_nothing_say_so() {
    let bench = Bench::new();
    let said = |option: &str| stderr(&bench.record(&[option], SCRIPT));
    assert!(said("--steps=99").contains("Note: no step 99: the job had 2 steps\n"));
    assert!(said("--device=npu:7").contains("Note: nothing was recorded on npu:7; events were seen on npu:0, npu:1\n"));
    assert!(!said("--device=npu:1,npu:7").contains("nothing was recorded"));
    let header = bench.output().join("memscope_dump_1.csv");
    let columns = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr";
    std::fs::write(&header, format!("{columns}\n")).expect("writable");
    let mut analyze = bench.msmemscope(["analyze"]);
    analyze.arg(&header);
    let output = run(analyze);
    assert_success(&output);
    assert!(stderr(&output).contains(&format!("no events in {}", header.display())), "{}", stderr(&output));
}

#[test]
fn bad_values_are_one_line_with_status_two_and_nothing_is_created() {
    let bench = Bench::new();
    let long = format!("--output=/{}", "x".repeat(4096));
    for options in [
        &["--steps="][..],
        &["--steps=0"],
        &["--steps=01"],
        &["--steps=-1"],
        &["--steps=a"],
        &["--steps=1,2,3,4,5,6"],
        &["--steps=4294967296"],
        &["--device="],
        &["--device=npu:32"],
        &["--device=gpu"],
        &["--device=npu:"],
        &["--level=2"],
        &["--level=ops"],
        &["--events=aloc"],
        &["--events=alloc,x"],
        &["--call-stack=c:1001"],
        &["--call-stack=c:00"],
        &["--call-stack=java"],
        &["--call-stack=c:"],
        &["--collect-mode="],
        &["--collect-mode=later"],
        &["--collect-mode=immediate,deferred"],
        &["--analysis=leak"],
        &["--analysis=oom:0"],
        &["--analysis=oom:1001"],
        &["--analysis=oom:ten"],
        &["--data-format="],
        &["--data-format=xml"],
        &["--watch="],
        &["--watch=full-content"],
        &["--watch=op0,op1,full"],
        &["--watch=op0:x,op1"],
        &["--output="],
        &["--output=   "],
        &[long.as_str()],
        &["--output=/dev/null/x"],
        &["--log-level=loud"],
        &["--max-trace-size=0"],
        &["--max-trace-size=ten"],
        &["--compare"],
        &["--input=/a,/b"],
        &["--compare", "--input=/a"],
        &["--nonsense"],
        &["-x"],
        &["--load-api-env"],
        &["--unload-api-env"],
    ] {
        let output = run({
            let mut command = bench.msmemscope(options);
            command.arg("--").arg(job()).arg("say:started");
            command
        });
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{options:?}");
        let said = stderr(&output);
        assert_eq!(said.lines().count(), 1, "{options:?}: {said}");
        assert!(said.starts_with("[msmemscope] Error: "), "{said}");
        let name = options[options.len() - 1].split('=').next().unwrap_or_default();
        assert!(said.contains(name), "{options:?}: {said}");
    }
    for options in [&[][..], &["--level=op"], &["--"], &["--steps=1", "--"], &["--", ""]] {
        let output = run(bench.msmemscope(options));
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains("no program to run"), "{options:?}: {}", stderr(&output));
    }
    assert_eq!(std::fs::read_dir(bench.home.path()).expect("listing").count(), 0, "nothing is created");
}

#[test]
fn levels_are_served_without_a_word() {
    let bench = Bench::new();
    for option in ["--level=kernel", "--level=0,1"] {
        let output = bench.record(&[option], "alloc:1 free");
        assert_success(&output);
        assert!(!stderr(&output).contains("--level"), "{option}: {}", stderr(&output));
    }
}

#[test]
fn both_launch_forms_and_options_after_the_program() {
    let bench = Bench::new();
    let job = job().to_string_lossy().into_owned();
    let output = bench.output();
    let output = output.to_string_lossy();
    let forms: [Vec<&str>; 5] = [
        vec!["--output", &output, &job, "alloc:10", "say:hello"],
        vec!["-o", &output, "--", &job, "alloc:10", "say:hello"],
        vec![&job, "alloc:10", "say:hello", "--output", &output, "--level=op"],
        vec!["run", "--output-path", &output, &job, "alloc:10", "say:hello"],
        vec!["-o", &output, "bash", "-c", "true"],
    ];
    for (count, form) in forms.iter().take(4).enumerate() {
        let result = run(bench.msmemscope(form));
        assert_success(&result);
        assert_eq!(stdout(&result), "hello\n", "{form:?}");
        assert_eq!(bench.recordings().len(), count + 1, "{form:?}");
    }
    let refused = run(bench.msmemscope(&forms[4]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("write -- before 'bash'"), "{}", stderr(&refused));
}

#[test]
fn help_and_version_go_to_standard_output() {
    let bench = Bench::new();
    for (program, option) in [("msmemscope", "-h"), ("msmemscope", "--help"), ("msleaks", "--help")] {
        let output = run({
            let mut command = bench.command(release().join(program));
            command.arg(option);
            command
        });
        assert_success(&output);
        let text = stdout(&output);
        for section in ["Description:", "Usage:", "General options:", "Collection options:", "Analysis options:"] {
            assert!(text.contains(section), "{section}");
        }
        assert!(text.contains(&format!("{program} [options]")) && stderr(&output).is_empty());
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }
    for (program, option) in [("msmemscope", "-v"), ("msmemscope", "-V"), ("msleaks", "--version")] {
        let output = run({
            let mut command = bench.command(release().join(program));
            command.arg(option);
            command
        });
        assert_success(&output);
        let text = stdout(&output);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(format!("{program} version {}", env!("CARGO_PKG_VERSION")).as_str()));
        for name in ["commit: ", "architecture: ", "trace format: "] {
            assert!(lines.next().is_some_and(|line| line.starts_with(name) && line.len() > name.len()), "{text}");
        }
    }
}

fn sizes(recorded: &Recorded, event: &str) -> BTreeSet<u64> {
    let rows = recorded.events(event);
    rows.iter().map(|row| attribute(row, "size").and_then(|size| size.parse().ok()).expect("a size")).collect()
}

#[test]
fn steps_choose_rows_and_blocks_keep_their_frees() {
    let bench = Bench::new();
    assert_success(&bench.record(
        &["--steps=1"],
        "init device:0 alloc:1 step alloc:2 alloc:3 endstep step free free \
                                                  alloc:4 endstep alloc:5 fini",
    ));
    let recorded = bench.recording();
    assert_eq!(sizes(&recorded, "MALLOC"), [2, 3].into());
    assert_eq!(sizes(&recorded, "FREE"), [2, 3].into(), "freed outside, but allocated inside");
    let malloc = &recorded.events("MALLOC")[0];
    assert_eq!(attribute(malloc, "used").as_deref(), Some("3"), "totals count what is not shown");
    let ranges = recorded.events("MSTX");
    assert_eq!(ranges.len(), 2, "begin and end of the chosen step: {ranges:?}");
}

#[test]
fn devices_choose_tables_and_totals_stay_right() {
    let devices = |options: &[&str]| {
        let bench = Bench::new();
        assert_success(&bench.record(options, SCRIPT));
        let recorded = bench.recording();
        let rows = recorded.rows("csv");
        let devices: BTreeSet<String> =
            rows.iter().filter(|row| row[column::EVENT] == "MALLOC").map(|row| row[column::DEVICE].clone()).collect();
        (recorded.tables("csv").into_keys().collect::<Vec<_>>(), devices.into_iter().collect::<Vec<_>>())
    };
    let both = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        (names.clone(), names)
    };
    assert_eq!(devices(&[]), both(&["0", "1"]));
    assert_eq!(devices(&["--device=npu:1"]), both(&["1"]));
    assert_eq!(devices(&["--device=npu:0,npu"]), both(&["0", "1"]));
    assert_eq!(devices(&["--device=cpu"]), both(&["cpu"]));
    assert_eq!(devices(&["--device=npu:0,cpu"]), both(&["0", "cpu"]));
}

#[test]
fn events_choose_rows() {
    let kinds = |options: &[&str]| {
        let bench = Bench::new();
        assert_success(&bench.record(options, SCRIPT));
        let rows = bench.recording().rows("csv");
        rows.iter().map(|row| row[column::EVENT].clone()).collect::<BTreeSet<String>>()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(kinds(&[]), set(&["MALLOC", "FREE", "MSTX", "SYSTEM"]));
    assert_eq!(kinds(&["--events=alloc"]), set(&["MALLOC", "FREE", "MSTX", "SYSTEM"]), "alloc brings free");
    assert_eq!(kinds(&["--events=launch"]), set(&["MSTX", "SYSTEM"]));
    assert_eq!(kinds(&["--events=launch", "--analysis=leaks"]), set(&["MALLOC", "FREE", "MSTX", "SYSTEM"]));
}

#[test]
fn no_events_at_all_leave_nothing_behind() {
    for option in ["--events=", "--events=none"] {
        let bench = Bench::new();
        let output = bench.record(&[option, "--analysis=none"], SCRIPT);
        assert_success(&output);
        assert!(stderr(&output).contains("nothing was recorded: --events selects no events"), "{}", stderr(&output));
        assert!(!bench.output().exists());
    }
}

#[test]
fn deferred_mode_waits_for_the_api() {
    let bench = Bench::new();
    let output = bench.record(&["--collect-mode=deferred"], SCRIPT);
    assert_success(&output);
    assert!(stderr(&output).contains("never called start()"), "{}", stderr(&output));
    assert!(bench.recording().tables("csv").is_empty());
}

#[test]
fn formats_choose_files() {
    for (option, csv, db) in [("csv", 2, 0), ("db", 0, 2), ("csv,db", 2, 2), ("db,csv", 2, 2)] {
        let bench = Bench::new();
        assert_success(&bench.record(&[&format!("--data-format={option}")], SCRIPT));
        let recorded = bench.recording();
        assert_eq!((recorded.tables("csv").len(), recorded.tables("db").len()), (csv, db), "{option}");
    }
}

#[test]
fn the_log_level_decides_what_is_said_and_logged() {
    let said = |options: &[&str]| {
        let bench = Bench::new();
        let output = bench.record(options, "alloc:1 say:job");
        assert_success(&output);
        assert_eq!(stdout(&output), "job\n", "standard output belongs to the job");
        let log = bench.recording().0.join("msmemscope_logs");
        let logs = std::fs::read_dir(log).map(|entries| entries.count()).unwrap_or(0);
        (stderr(&output), logs)
    };
    let (text, logs) = said(&["--log-level=error"]);
    assert_eq!((text.as_str(), logs), ("", 0), "only errors");
    let (text, logs) = said(&["--log-level=warn"]);
    assert!(text.contains("Driver (HAL)") && logs == 0, "the summary is shown, there is nothing to log: {text}");
    let (text, logs) = said(&["--log-level=info"]);
    assert!(text.contains("recording into") && logs == 1, "{text}");
}

#[test]
fn the_trace_size_is_limited_and_losses_are_told() {
    let bench = Bench::new();
    let output = bench.record(&["--max-trace-size=1MiB"], "init device:0 loop:100000 alloc:1 say:done fini");
    assert_success(&output);
    assert_eq!(stdout(&output), "done\n", "the job goes on");
    let said = stderr(&output);
    assert_eq!(said.matches("--max-trace-size").count(), 1, "{said}");
    assert!(said.contains("Missing: ") && said.contains("events lost: trace size limit reached"), "{said}");
    let recorded = bench.recording();
    let size = recorded.0.join("recording.trace").metadata().expect("trace").len();
    assert!(size <= 1 << 20, "{size}");
    assert!(recorded.events("MALLOC").len() > 10_000, "what was recorded is there");
    let logs = std::fs::read_dir(recorded.0.join("msmemscope_logs")).expect("a log").count();
    assert_eq!(logs, 1);
}
