//! What the analyses say: at the end of a run, and asked for afterwards, of recordings, csv and db files.

use serde_json::Value;

use crate::support::{Bench, assert_success, run, stderr, stdout};

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

/// The first line the leak report of a leaking job has.
const LEAK_LINE: &str = "====== ERROR: Detected memory leaks on device 0 ======";

#[test]
fn a_run_ends_with_its_leaks() {
    let bench = Bench::new();
    let output = bench.record(&[], &leaking());
    assert_success(&output);
    let text = stderr(&output);
    assert!(text.contains(LEAK_LINE), "{text}");
    // Steps 2 to 6: the first never counts, the last has no later end.
    assert!(text.contains("====== SUMMARY: 5 Mb(s) leaked in 5 allocation(s) ======"), "{text}");
    assert!(text.contains("Gap Analysis of Device 0"), "{text}");
    let findings = text.lines().skip_while(|line| *line != LEAK_LINE);
    assert!(findings.into_iter().all(|line| line.starts_with("Direct ") || line.chars().count() <= 80), "{text}");
}

#[test]
fn leaks_are_told_by_the_line_of_the_program() {
    let bench = Bench::new();
    let output = bench.record(&["--call-stack=c:20"], &leaking());
    let text = stderr(&output);
    let sites = text.lines().skip_while(|line| !line.contains("allocated at")).nth(1).unwrap_or_default();
    assert!(!sites.is_empty() && !sites.contains("mstx"), "not the header of the marking library: {text}");
    let advice = text.lines().find(|line| line.trim_start().starts_with("Look at")).unwrap_or_default();
    assert!(!advice.is_empty() && !advice.contains("ms_tools_ext"), "{text}");
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
        assert!(text.contains(LEAK_LINE), "{text}");
        assert_eq!(text.matches("\nDirect Pytorch memory pool leak of 0.003906 Mb(s) at 0x").count(), 2, "{text}");
        assert!(text.contains("====== SUMMARY: 0.0078125 Mb(s) leaked in 2 allocation(s) ======"), "{text}");
        assert!(text.contains("may be kept on purpose"), "{text}");
        assert!(text.contains("Pytorch memory pool Gap Analysis of Device 0"), "{text}");
        assert!(!text.contains("allocated at"), "only the known lines: {text}");
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
    assert!(written.starts_with("Process ") && written.contains("Results in "), "{written}");
    assert!(written.contains(text.trim()), "{written}");
    assert!(written.contains("Direct Pytorch Caching memory pool leak of 1.000000 Mb(s)"), "{written}");
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
    assert!(text.contains("OUT OF MEMORY") && !text.contains("No leaks found"), "{text}");
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
    assert!(text.contains("FAILED  no-leaks: 5.00 MiB leaked, limit 0 B"), "{text}");
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
}

#[test]
fn cut_recordings_and_files_fail_checks() {
    let bench = Bench::new();
    assert_success(&bench.record(&[], &leaking()));
    let recorded = bench.recording();
    assert_eq!(checked(&bench, &recorded.0).0, Some(0));
    let trace = std::fs::read(recorded.0.join("recording.trace")).expect("a trace");
    std::fs::create_dir(bench.path("cut")).expect("a directory");
    // The header and the begin of the first chunk.
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
    assert!(missing.iter().any(|line| line.contains("outer ends of stacks")), "{missing:?}");
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
    assert!(text.contains("====== OUT OF MEMORY on device 0 ======\nReason: demand"), "{text}");
}

#[test]
fn recordings_without_operators_cannot_be_compared() {
    let bench = Bench::new();
    let script = clean();
    assert_success(&bench.record(&["--output=one"], &script));
    assert_success(&bench.record(&["--output=two"], &script));
    let output = run(bench.msmemscope(["compare", "one", "two"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the base input has no operators"), "{}", stderr(&output));
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
