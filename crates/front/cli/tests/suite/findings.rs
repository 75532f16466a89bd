//! What the analyses say: at the end of a run, and asked for afterwards, of recordings, csv and db files.

use std::process::Output;

use serde_json::Value;

use crate::support::{Bench, assert_success, job, run, stderr, stdout};

/// Seven steps, each of which keeps a block of the pool and frees another one.
fn leaking() -> String {
    let step = "step pool:1048576 pool:4096 poolfree endstep ";
    format!("init device:0 {}fini", step.repeat(7))
}

/// The same without the block that is kept.
fn clean() -> String {
    let step = "step pool:4096 poolfree endstep ";
    format!("init device:0 pool:1048576 {}poolfree fini", step.repeat(7))
}

/// What the leak report of a leaking job starts with. Steps 2 to 6: the first never counts, the last has no later end.
const LEAK_LINE: &str = "Leak: 1.0 MiB more with every step, 5.0 MiB in 5 blocks of steps 2-6 by now,";

#[test]
fn a_run_ends_with_its_leaks() {
    let bench = Bench::new();
    let output = bench.record(&[], &leaking());
    assert_success(&output);
    let text = stderr(&output);
    assert!(text.contains(LEAK_LINE), "{text}");
    assert!(text.contains("Gap Analysis of Device 0"), "{text}");
    let findings = text.lines().skip_while(|line| *line != LEAK_LINE).take_while(|line| !line.starts_with("Results"));
    assert!(findings.into_iter().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains("Direct "), "the lines of earlier versions are not for the first screen: {text}");
    let log = log_of(&bench);
    assert!(log.contains("====== SUMMARY: 5 Mb(s) leaked in 5 allocation(s) ======"), "they are in the log: {log}");
}

fn log_of(bench: &Bench) -> String {
    let logs = bench.recording().0.join("msmemscope_logs");
    let log = std::fs::read_dir(logs).expect("logs").flatten().next().expect("a log");
    std::fs::read_to_string(log.path()).expect("a text")
}

#[test]
fn scripts_find_every_leaked_block_in_the_words_of_the_documents_and_in_those_of_the_logs() {
    let bench = Bench::new();
    let script = format!("init device:0 {}fini", "step pool:4096 endstep ".repeat(40));
    let text = stderr(&bench.record(&["--report=classic"], &script));
    let of_figure = "Direct Pytorch memory pool leak of 0.003906 Mb(s) at 0x";
    assert_eq!(text.matches(of_figure).count(), 38, "all but those of the first and the last step: {text}");
    assert!(!text.contains("more."), "{text}");
    let (log, report) = (log_of(&bench), bench.recording().0.join("report.txt"));
    let of_program = "Direct Pytorch Caching memory pool leak of 0.003906 Mb(s) at 0x";
    assert_eq!((log.matches(of_program).count(), log.matches(of_figure).count()), (38, 0), "{log}");
    assert!(log.contains("======= Pytorch Caching memory pool Gap Analysis of Device 0 ======="), "{log}");
    let report = std::fs::read_to_string(report).expect("a report");
    assert_eq!(report.matches(of_figure).count(), 38, "each once: {report}");
}

#[test]
fn leaks_are_told_by_the_line_of_the_program() {
    let bench = Bench::new();
    let output = bench.record(&["--call-stack=c:20"], &leaking());
    let text = stderr(&output);
    let sites = text.lines().skip_while(|line| !line.contains("per step ")).nth(1).unwrap_or_default();
    assert!(!sites.is_empty() && !sites.contains("mstx"), "not the header of the marking library: {text}");
    let said = text.replace('\n', " ");
    assert!(said.contains("by now, held by ") && said.contains("/job.c:"), "{text}");
}

#[test]
fn a_clean_run_has_no_findings() {
    let bench = Bench::new();
    let output = bench.record(&[], &clean());
    let text = stderr(&output);
    assert!(text.contains("No leaks found in 7 steps."), "{text}");
    assert!(!text.contains("ERROR"), "{text}");
    let output = run(bench.msmemscope(["check".as_ref(), bench.output().as_os_str(), "--no-leaks".as_ref()]));
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "passed  no-leaks: no leaks\n"));
}

/// Ten steps; those named keep a block.
fn keeping_in(keeping: &[u32], steps: u32) -> String {
    let step =
        |step| if keeping.contains(&step) { "step pool:4096 endstep " } else { "step pool:4096 poolfree endstep " };
    format!("init device:0 {}fini", (1..=steps).map(step).collect::<String>())
}

#[test]
fn a_block_kept_in_two_steps_is_shown_as_the_documents_do() {
    for script in [keeping_in(&[2, 6], 10), keeping_in(&[1, 2, 3, 4], 4)] {
        let bench = Bench::new();
        let text = stderr(&bench.record(&["--report=classic"], &script));
        assert!(text.contains("====== ERROR: Detected memory leaks on device 0 ======"), "{text}");
        assert_eq!(text.matches("\nDirect Pytorch memory pool leak of 0.003906 Mb(s) at 0x").count(), 2, "{text}");
        assert!(text.contains("====== SUMMARY: 0.0078125 Mb(s) leaked in 2 allocation(s) ======"), "{text}");
        assert!(text.contains("may be kept on purpose"), "{text}");
        assert!(text.contains("Pytorch memory pool Gap Analysis of Device 0"), "{text}");
        assert!(!text.contains("held by"), "only the known lines: {text}");
        let check = run(bench.msmemscope(["check".as_ref(), bench.output().as_os_str(), "--no-leaks".as_ref()]));
        assert_eq!(check.status.code(), Some(3), "{}", stdout(&check));
    }
    // Its clean twin: each block is replaced by that of the next step but one.
    let bench = Bench::new();
    let history = "step pool:4096 endstep ".repeat(3);
    let more = "step pooldrop pool:4096 endstep ".repeat(3);
    let text = stderr(&bench.record(&["--report=classic"], &format!("init device:0 {history}{more}fini")));
    assert!(!text.contains("ERROR"), "{text}");
}

#[test]
fn the_older_program_reports_the_older_way_and_speaks_of_itself() {
    let bench = Bench::new();
    let mut command = bench.command(crate::support::release().join("msleaks"));
    command.arg("--output").arg(bench.output()).arg("--").arg(crate::support::job());
    let output = run({
        command.args(leaking().split_whitespace());
        command
    });
    let text = stderr(&output);
    assert!(text.contains("Direct Pytorch memory pool leak of 1.000000 Mb(s)"), "{text}");
    assert!(!text.contains("What to do"), "{text}");
    let analyze = |arguments: &[&str]| {
        let mut command = bench.command(crate::support::release().join("msleaks"));
        command.args(arguments).arg(bench.output());
        let output = run(command);
        format!("{}{}", stdout(&output), stderr(&output))
    };
    assert!(!analyze(&["analyze", "--analysis=leaks"]).contains("What to do"));
    assert!(analyze(&["analyze", "--analysis=leaks", "--report=full"]).contains("What to do"));
    for arguments in [&["info"][..], &["watch-report"], &["finish"], &["doctor"]] {
        let said = analyze(arguments);
        let own = said.lines().filter(|line| !line.contains('/')).collect::<Vec<_>>().join("\n");
        assert!(!own.contains("msmemscope"), "{arguments:?}: {said}");
    }
}

#[test]
fn findings_are_shown_at_every_log_level() {
    for level in ["error", "warn"] {
        let bench = Bench::new();
        let text = stderr(&bench.record(&[&format!("--log-level={level}")], &leaking()));
        assert!(text.contains(LEAK_LINE) && text.contains("What to do"), "{level}: {text}");
        assert_eq!(text.contains("Results in "), level == "warn", "{text}");
    }
    let bench = Bench::new();
    let text = stderr(&bench.record(&["-q", "--analysis=decompose"], &clean()));
    assert!(text.contains("owner"), "an answer that was asked for: {text}");
    let text = stderr(&Bench::new().record(&["-q"], &clean()));
    assert_eq!(text, "", "nothing was found");
}

#[test]
fn the_report_is_a_file_as_well() {
    let bench = Bench::new();
    let text = stderr(&bench.record(&["-q"], &leaking()));
    let report = bench.recording().0.join("report.txt");
    let written = std::fs::read_to_string(&report).expect("a report");
    assert!(written.starts_with("Leak: ") && written.contains("Results in "), "{written}");
    assert!(written.contains(text.trim()), "{written}");
    assert!(
        written.contains("Direct Pytorch memory pool leak of 1.000000 Mb(s)"),
        "in the older words, too: {written}"
    );
    // Finishing again replaces it.
    std::fs::write(&report, "old").expect("writable");
    let mut command = bench.msmemscope(["finish", "--report=classic"]);
    command.arg(bench.output());
    assert_success(&run(command));
    let written = std::fs::read_to_string(&report).expect("a report");
    assert!(written.contains("Direct Pytorch memory pool") && !written.contains("What to do"), "{written}");
}

#[test]
fn a_run_without_memory_says_nothing_about_leaks() {
    let bench = Bench::new();
    let text = stderr(&bench.record(&[], "init device:0 mark:here fini"));
    assert!(!text.contains("No leaks") && !text.contains("steps"), "{text}");
}

#[test]
fn out_of_memory_without_steps_does_not_end_with_leaks() {
    let bench = Bench::new();
    let text = stderr(&bench.record(&[], "init device:0 alloc:1048576 alloc:70368744177664 fini"));
    assert!(text.contains("\nOut of memory on device 0") && !text.contains("No leaks found"), "{text}");
}

#[test]
fn what_the_driver_refuses_is_said_at_once_and_not_again_and_again() {
    let bench = Bench::new();
    let text = stderr(&bench.record(&[], "init device:0 alloc:70368744177664 alloc:70368744177664 fini"));
    let said: Vec<&str> = text.lines().filter(|line| line.starts_with("[msmemscope] Out of memory")).collect();
    let [line] = said[..] else { panic!("one line: {text}") };
    assert!(line.starts_with("[msmemscope] Out of memory on device 0: the driver refused 64.0 TiB"), "{line}");
}

#[test]
fn options_behind_the_program_are_named() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--output".as_ref(), bench.output().as_os_str()]);
    command.arg(crate::support::job()).args(["alloc:1", "--steps", "5"]);
    let text = stderr(&run(command));
    let job = crate::support::job().display().to_string();
    let expected = format!("taken as options of msmemscope: --steps 5; write -- before '{job}' to pass them on");
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn no_analysis_means_none() {
    let bench = Bench::new();
    let text = stderr(&bench.record(&["--analysis=none"], &leaking()));
    assert!(!text.contains("No leaks") && !text.contains("memory leaks"), "{text}");
}

#[test]
fn recordings_and_their_files_give_the_same_findings() {
    let bench = Bench::new();
    assert_success(&bench.record(&["--data-format=csv,db"], &leaking()));
    let recorded = bench.recording();
    let leaks = |path: &std::path::Path| {
        let arguments = ["analyze".as_ref(), path.as_os_str(), "--analysis=leaks".as_ref(), "--json".as_ref()];
        let output = run(bench.msmemscope(arguments));
        assert_success(&output);
        let answers: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let group = &answers["processes"][0]["leaks"]["leaks"][0];
        (group["bytes"].as_u64(), group["count"].as_u64(), group["step_range"].to_string())
    };
    let expected = (Some(5 << 20), Some(5), "[2,6]".to_owned());
    assert_eq!(leaks(&recorded.0), expected);
    assert_eq!(leaks(&recorded.tables("csv")["0"]), expected);
    assert_eq!(leaks(&recorded.tables("db")["0"]), expected);
}

#[test]
fn checks_say_what_broke_and_exit_with_one() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], &leaking()));
    let check = |rules: &[&str]| {
        let mut command = bench.msmemscope(["check"]);
        command.arg(bench.output()).args(rules);
        run(command)
    };
    let output = check(&["--max-peak=1GiB", "--no-leaks"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.starts_with("passed  max-peak: peak "), "{text}");
    assert!(text.contains("FAILED  no-leaks: 5.0 MiB leaked, limit 0 B"), "{text}");
    assert_eq!(check(&["--max-leaks=5MiB"]).status.code(), Some(0));
    assert_eq!(check(&["--max-peak=5MiB"]).status.code(), Some(1));
    assert_eq!(check(&["--max-inefficient=5%"]).status.code(), Some(3));
    let allowed = check(&["--max-inefficient=5%", "--allow-unjudged"]);
    let expected = "cannot be judged (allowed)  max-inefficient: accesses were not recorded";
    assert!(allowed.status.success() && stdout(&allowed).starts_with(expected), "{}", stdout(&allowed));
    assert_eq!(check(&["--no-leaks", "--allow-unjudged"]).status.code(), Some(1), "what is broken is broken");
    let output = check(&["--no-leaks", "--json"]);
    let results: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!((results["passed"].as_bool(), results["rules"][0]["rule"].as_str()), (Some(false), Some("no-leaks")));
}

/// Checks generous limits, and what `analyze` says is missing.
fn checked(bench: &Bench, path: &std::path::Path) -> (Option<i32>, String, Vec<String>) {
    let rules = ["--max-peak=1TiB", "--max-leaks=1TiB"];
    let mut command = bench.msmemscope(["check"]);
    command.arg(path).args(rules);
    let checked = run(command);
    let mut command = bench.msmemscope(["check", "--json"]);
    command.arg(path).args(rules);
    let results: Value = serde_json::from_str(&stdout(&run(command))).expect("JSON");
    assert_eq!(results["passed"].as_bool(), Some(checked.status.success()), "{results}");
    let analyzed = run(bench.msmemscope(["analyze".as_ref(), path.as_os_str()]));
    let analyzed = stdout(&analyzed);
    let missing = analyzed.lines().filter_map(|line| line.strip_prefix("Missing: ")).map(str::to_owned).collect();
    let json = run(bench.msmemscope(["analyze".as_ref(), path.as_os_str(), "--json".as_ref()]));
    let json: Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    assert_eq!(json["processes"][0]["missing"], serde_json::json!(missing));
    (checked.status.code(), stdout(&checked), missing)
}

#[test]
fn what_was_lost_is_told_and_no_check_passes_without_it() {
    let bench = Bench::new();
    assert_success(&bench.record(&["--max-trace-size=1MiB"], "init device:0 loop:100000 alloc:1048576 fini"));
    let (status, text, missing) = checked(&bench, &bench.output());
    assert_eq!(status, Some(3), "{text}");
    assert!(missing.len() == 1 && missing[0].ends_with("events lost: trace size limit reached"), "{missing:?}");
    let process = bench.recording().process_id();
    for rule in ["max-peak", "no-leaks"] {
        let line = format!("CANNOT BE JUDGED  {rule}: {} (process {process}); recorded: ", missing[0]);
        assert!(text.contains(&line), "{text}");
    }
    // Rows do not say what is missing, but the recording beside them does.
    let table = bench.recording().tables("csv")["0"].clone();
    let (status, text, _) = checked(&bench, &table);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("trace size limit reached"), "{text}");
}

/// Network file systems: what a killed process had not written yet is gone, and nobody claims otherwise.
#[test]
fn killed_buffered_recordings_say_what_is_missing() {
    let bench = Bench::new();
    let mut command = bench.msmemscope(["--output".as_ref(), bench.output().as_os_str(), "--".as_ref()]);
    command.arg(job()).args("init device:0 loop:1000 alloc:4096 raise:9".split_whitespace());
    assert!(
        !run({
            command.env("MSMEMSCOPE_BUFFERED", "1");
            command
        })
        .status
        .success()
    );
    let (status, text, missing) = checked(&bench, &bench.output());
    assert_eq!(status, Some(3), "{text}");
    assert!(missing.iter().any(|line| line.starts_with("the last events of each thread")), "{missing:?}");
    let information = stdout(&run(bench.msmemscope(["info".as_ref(), bench.output().as_os_str()])));
    assert!(information.contains("; the last events of each thread are missing"), "{information}");
    assert!(!information.contains("its events are here"), "{information}");
}

#[test]
fn cut_recordings_and_files_fail_checks() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], &leaking()));
    let recorded = bench.recording();
    assert_eq!(checked(&bench, &recorded.0).0, Some(0));
    let trace = std::fs::read(recorded.0.join("recording.trace")).expect("a trace");
    std::fs::create_dir(bench.path("cut")).expect("a directory");
    // The header and the start of the first chunk.
    std::fs::write(bench.path("cut/recording.trace"), &trace[..4096 + 200]).expect("a file");
    let (status, text, missing) = checked(&bench, &bench.path("cut"));
    assert_eq!(status, Some(3), "{text}");
    assert!(missing.iter().any(|line| line.contains("of the trace cannot be read")), "{missing:?}");
    assert!(text.contains("CANNOT BE JUDGED  "), "{text}");

    let table = std::fs::read_to_string(&recorded.tables("csv")["0"]).expect("a table");
    let last_row = table.trim_end().rfind('\n').expect("rows");
    std::fs::write(bench.path("memscope_dump_1.csv"), &table[..last_row + 10]).expect("a file");
    let (status, text, _) = checked(&bench, &bench.path("memscope_dump_1.csv"));
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("CANNOT BE JUDGED  max-peak: 1 row skipped"), "{text}");
}

#[test]
fn lost_details_fail_no_check() {
    let bench = Bench::new();
    assert_success(&bench.record(&["--call-stack=c:1"], &leaking()));
    let (status, text, missing) = checked(&bench, &bench.output());
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(missing, [""; 0], "nothing is missing where the depth is the one that was asked for");
    let information = stdout(&run(bench.msmemscope(["info".as_ref(), bench.output().as_os_str()])));
    assert!(information.contains("stacks were recorded to the depth that was asked for"), "{information}");
    assert!(!information.contains("Missing"), "{information}");
}

#[test]
fn marks_frame_a_search_for_leaks() {
    let bench = Bench::new();
    let script = "init device:0 mark:here alloc:1048576 alloc:4096 mark:here free mark:here fini";
    assert_success(&bench.record(&[], script));
    let mut command = bench.msmemscope(["analyze", "--marks=here"]);
    command.arg(bench.output());
    let output = run(command);
    let text = stdout(&output);
    assert!(text.contains("Leak Analysis Results for the Custom Range:"), "{text}");
    assert!(text.contains("Direct Hal memory leak of 1 Mb(s) at 0x"), "{text}");
    assert!(!text.contains("leak of 0.00"), "{text}");
}

#[test]
fn marks_that_are_not_there_are_an_error() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], "init device:0 mark:here alloc:4096 mark:here fini"));
    for format in [&[][..], &["--json"]] {
        let mut command = bench.msmemscope(["analyze", "--marks=here"]);
        command.args(format).arg(bench.output());
        let output = run(command);
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert!(!stdout(&output).contains("Results for the Custom Range"), "{}", stdout(&output));
    }
}

#[test]
fn memory_that_ran_out_is_explained_without_being_asked() {
    let bench = Bench::new();
    // More than any card has; the job fails, as it would without us.
    let output = bench.record(&[], "init device:0 alloc:1048576 alloc:70368744177664 fini");
    assert_eq!(output.status.code(), Some(99));
    let text = stderr(&output);
    assert!(text.replace('\n', " ").contains("Reason: the request is larger than the whole card"), "{text}");
}

#[test]
fn of_recordings_without_operators_memory_is_compared() {
    let bench = Bench::new();
    for (directory, script) in [
        ("--output=one", "init device:0 pool:1048576 fini"),
        ("--output=two", "init device:0 pool:1048576 pool:2097152 fini"),
        ("--output=none", "init device:0 fini"),
    ] {
        assert_success(&bench.record(&[directory], script));
    }
    let output = run(bench.msmemscope(["compare", "one", "two"]));
    assert_success(&output);
    let text = stdout(&output);
    assert!(text.starts_with("Neither side has operators that could be lined up"), "{text}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = text.lines().map(words).collect();
    for row in ["peak in use 1.0 MiB 3.0 MiB +2.0 MiB", "in use at the end 1.0 MiB 3.0 MiB +2.0 MiB"] {
        assert!(rows.iter().any(|known| known == row), "{row} is not in\n{text}");
    }
    assert!(text.contains("Call sites of memory at the peak that differ"), "{text}");
    let same = stdout(&run(bench.msmemscope(["compare", "one", "one"])));
    assert!(same.contains("No differences in peaks"), "{same}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&run(bench.msmemscope(["compare", "--json", "one", "two"])))).expect("JSON");
    assert_eq!(json["comparison"]["devices"][0]["peak_bytes"]["other"], 3 << 20);
    for arguments in [&["compare", "one", "none"][..], &["compare", "--html", "one", "two"]] {
        let output = run(bench.msmemscope(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {}", stdout(&output));
    }
}

#[test]
fn bad_input_is_one_line_and_status_two() {
    let bench = Bench::new();
    std::fs::write(bench.path("garbage.csv"), "not,a,dump\n").expect("a file");
    std::fs::create_dir(bench.path("empty")).expect("a directory");
    for arguments in [
        &["analyze", "missing.csv"][..],
        &["analyze", "garbage.csv"],
        &["analyze", "empty"],
        &["analyze", "garbage.csv", "--step=x"],
        &["check", "garbage.csv"],
        &["check", "garbage.csv", "--max-peak=much"],
        &["check", "garbage.csv", "--max-inefficient=500%"],
        &["compare", "garbage.csv"],
        &["compare", "garbage.csv", "missing.csv"],
        &["compare", "garbage.csv", "garbage.csv", "garbage.csv"],
        &["--compare", "--input=garbage.csv"],
        &["--compare", "--input=a,b,c"],
        &["--compare"],
    ] {
        let output = run(bench.msmemscope(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = stderr(&output);
        assert!(text.starts_with("[msmemscope] Error: ") && text.lines().count() == 1, "{arguments:?}: {text}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
    assert_eq!(std::fs::read_to_string(bench.path("garbage.csv")).expect("the file"), "not,a,dump\n");
}

/// Records into a directory of its own.
fn recorded_into(bench: &Bench, name: &str, script: &str) -> String {
    assert_success(&bench.record(&["--output", name], script));
    name.to_owned()
}

#[test]
fn a_recording_is_compared_with_an_accepted_one() {
    let bench = Bench::new();
    let steps = |kept: &str, size: u64| {
        let step = format!("step {kept} pool:{size} poolfree endstep ");
        format!("init device:0 {} fini", step.repeat(6))
    };
    let accepted = recorded_into(&bench, "accepted", &steps("", 1 << 20));
    let same = recorded_into(&bench, "same", &steps("", 1 << 20));
    let larger = recorded_into(&bench, "larger", &steps("", 2 << 20));
    let leaking = recorded_into(&bench, "leaking", &steps("pool:4096", 1 << 20));
    let check = |arguments: &[&str]| run(bench.msmemscope([&["check"], arguments].concat()));
    let saved = check(&["--save-baseline=base.json", &accepted]);
    assert_success(&saved);
    assert!(stderr(&saved).contains("numbers written to base.json"), "{}", stderr(&saved));
    for base in ["base.json", "accepted"] {
        let base = format!("--baseline={base}");
        let passed = check(&[&base, &same]);
        assert_success(&passed);
        let text = stdout(&passed);
        assert!(text.contains("passed  baseline-peak: peak (PyTorch caching on device 0) 1.0 MiB, accepted 1.0 MiB"));
        assert!(text.contains("passed  baseline-growth: ") && text.contains("passed  baseline-leaks: leaked 0 B"));
        let broken = check(&[&base, &larger]);
        assert_eq!(broken.status.code(), Some(1), "{}", stdout(&broken));
        let expected =
            "FAILED  baseline-peak: peak (PyTorch caching on device 0) 2.0 MiB, accepted 1.0 MiB, limit 1.0 MiB";
        assert!(stdout(&broken).contains(expected), "{}", stdout(&broken));
        assert_success(&check(&[&base, "--tolerance=100%", &larger]));
        let leaks = check(&[&base, "--tolerance=100%", &leaking]);
        assert_eq!(leaks.status.code(), Some(1), "{}", stdout(&leaks));
        assert!(stdout(&leaks).contains("FAILED  baseline-leaks: leaked "), "{}", stdout(&leaks));
        assert!(
            stdout(&leaks).contains("FAILED  baseline-growth: growth per step (PyTorch caching on device 0) 4.0 KiB")
        );
    }
    let elsewhere = recorded_into(&bench, "elsewhere", &steps("", 1 << 20).replace("device:0", "device:3"));
    let unjudged = check(&["--baseline=base.json", &elsewhere]);
    assert_eq!(unjudged.status.code(), Some(3), "{}", stdout(&unjudged));
    assert!(stdout(&unjudged).contains("of which the baseline says nothing"), "{}", stdout(&unjudged));
    std::fs::write(bench.path("bad.json"), "{\"msmemscope_baseline\": 7, \"leaked_bytes\": 0, \"pools\": []}")
        .expect("a file");
    std::fs::write(bench.path("broken.json"), "[").expect("a file");
    for (arguments, reason) in [
        (&["--baseline=bad.json"][..], "a baseline of form 7; this program reads form 1"),
        (&["--baseline=broken.json"], "not a baseline: "),
        (&["--baseline=absent.json"], "No such file"),
        (&["--baseline=absent"], "absent"),
        (&["--baseline=base.json", "--tolerance=-3"], "--tolerance must be a percentage"),
        (&["--save-baseline=base.txt"], "the name must end with .json"),
        (&["--save-baseline=nowhere/base.json"], "No such file"),
    ] {
        let failed = check(&[arguments, &["same"]].concat());
        assert_eq!(failed.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&failed);
        assert!(said.contains(reason) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
}

#[test]
fn broken_rules_are_shown_beside_the_code() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], &leaking()));
    let check = |arguments: &[&str], in_workflow: bool| {
        let mut command = bench.msmemscope([&["check", "--no-leaks", "out"], arguments].concat());
        command.env_remove("GITHUB_ACTIONS");
        if in_workflow {
            command.env("GITHUB_ACTIONS", "true");
        }
        run(command)
    };
    let is_annotated = |output: &Output| stdout(output).contains("\n::error ");
    assert!(is_annotated(&check(&["--annotate=github"], false)));
    assert!(is_annotated(&check(&[], true)), "the default in a workflow");
    assert!(!is_annotated(&check(&[], false)) && !is_annotated(&check(&["--annotate=none"], true)));
    let output = check(&["--annotate=github", "--json"], false);
    serde_json::from_str::<Value>(&stdout(&output)).expect("JSON alone on standard output");
    assert!(stderr(&output).starts_with("::error "), "{}", stderr(&output));
    let output = check(&["--annotate=github", "--annotate=gitlab:quality.json"], false);
    assert!(is_annotated(&output));
    let report = std::fs::read_to_string(bench.path("quality.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report[0]["check_name"], "msmemscope-no-leaks");
    assert!(report[0]["location"]["lines"]["begin"].is_u64(), "{report}");
    for bad in ["--annotate=gitlab:", "--annotate=pages", "--annotate=gitlab:nowhere/quality.json"] {
        let output = check(&[bad], false);
        assert_eq!(output.status.code(), Some(2), "{bad}");
        assert_eq!(stderr(&output).lines().count(), 1, "{bad}");
    }
}

#[test]
fn one_leak_of_all_ranks_is_shown_once() {
    let bench = Bench::new();
    let record = |output: &str, ranks: &str, size: &str| {
        let mut command = bench.msmemscope(["--output", output, "--", "sh", "-c"]);
        let script = format!("size={size}; for RANK in {ranks}; do export RANK WORLD_SIZE=$size; $0 \"$@\"; done");
        command.arg(script).arg(job()).args(leaking().split_whitespace());
        let output = run(command);
        assert_success(&output);
        stderr(&output)
    };
    let analyze = |output: &str| stdout(&run(bench.msmemscope(["analyze", "--analysis=leaks", output])));
    let said = record("few", "0 1", "2");
    assert_eq!(said.matches("The same leaks on both ranks; in detail of rank 0:").count(), 1, "{said}");
    assert_eq!(said.matches("Leak: ").count(), 1, "{said}");
    assert!(said.contains("\nRank 1 (process "), "{said}");
    let text = analyze("few");
    assert_eq!(text.matches("Leak: ").count(), 1, "{text}");
    assert!(text.contains("The same leaks on both ranks; in detail of rank 0:\n"), "{text}");
    assert!(text.contains(": the same leaks as rank 0; analyze its directory alone for the rest\n"), "{text}");
    let check = stdout(&run(bench.msmemscope(["check", "--no-leaks", "few"])));
    assert!(check.contains(" leaked by rank 0, rank 1, limit 0 B"), "{check}");
    let peaks = stdout(&run(bench.msmemscope(["analyze", "few"])));
    assert!(peaks.contains("analyze its directory alone for the rest\nPeak: "), "{peaks}");
    let information = stdout(&run(bench.msmemscope(["info", "few"])));
    assert!(
        information.contains("Rank          1 of 2") && !information.contains("Steps         none"),
        "{information}"
    );
    let said = record("many", "4 5 6 7", "8");
    assert_eq!(said.matches("The same leaks on ranks 4-7; in detail of rank 4:").count(), 1, "{said}");
    assert_eq!(said.matches("Leak: ").count(), 1, "{said}");
    assert!(said.contains("\nRank  ") && !said.contains("and findings in"), "{said}");
    let check = run(bench.msmemscope(["check", "--max-peak=1KiB", "many"]));
    assert!(stdout(&check).contains(", rank "), "{}", stdout(&check));
    let json = stdout(&run(bench.msmemscope(["analyze", "--json", "--analysis=leaks", "many"])));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["processes"][3]["rank"], 7);
}
