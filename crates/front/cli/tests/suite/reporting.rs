//! `report`: one file to take along, for browsers, issue trackers and programs; and nothing private in it if it is to
//! be mailed. What a browser makes of the page is tested in tests/browser.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::{Bench, assert_success, job, run, stderr, stdout};

/// Five steps that keep a block each.
const SCRIPT: &str = "init device:0 pool:1048576 step:0 pool:4096 endstep step:0 pool:4096 endstep step:0 pool:4096 \
                      endstep step:0 pool:4096 endstep step:0 pool:4096 endstep raise:9";

/// Rows with names that mean something in pages and issue trackers, and with names that nobody else should read.
const ROWS: &str = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,Call Stack(Python),Call Stack(C)\n\
    1,MALLOC,PTA,N/A,1000,7,7,0,0x0000000000001000,\"{allocation_id:1,size:4096,owner:PTA@/srv/trainer7/weights}\",\"/home/trainer7/secret llm/train.py(3): </script><img src=x onerror=alert(1)>\n/home/trainer7/secret llm/main.py(9): main\n\",\n\
    2,MSTX,Mark,\"reading /mnt/trainer7/corpus.bin with tokens.yaml\",1500,7,7,0,N/A,,,\n\
    3,MALLOC,PTA,N/A,2000,7,7,0,0x0000000000003000,\"{allocation_id:2,size:8192}\",\"/home/trainer7/secret llm/model.py(5): @all a|b `c` \u{202e}x\n\",\"/opt/trainer7/libprivate.so(run+0x1) [0x1]\"\n\
    4,FREE,PTA,N/A,2500,7,7,0,0x0000000000003000,\"{allocation_id:2,size:8192}\",,\n";

fn report(bench: &Bench, input: &Path, arguments: &[&str]) -> Output {
    let mut command = bench.msmemscope(["report".as_ref(), input.as_os_str()]);
    command.args(arguments).env("USER", "trainer7");
    run(command)
}

/// A report as text; none for pages that this program was built without.
fn reported(bench: &Bench, input: &Path, format: &str, more: &[&str]) -> Option<String> {
    let output = report(bench, input, &[&[&format!("--format={format}"), "--output=-"], more].concat());
    if format == "html" && stderr(&output).contains("this program was built without its page") {
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(2), 1));
        return None;
    }
    assert_success(&output);
    Some(stdout(&output))
}

fn recorded() -> Bench {
    let bench = Bench::new();
    bench.record(&["--call-stack=c:20"], SCRIPT);
    bench
}

fn dump(bench: &Bench) -> PathBuf {
    let path = bench.path("memscope_dump_1.csv");
    std::fs::write(&path, ROWS).expect("a file");
    path
}

/// Every string of some JSON.
fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| strings(value, found)),
        Value::Object(values) => values.values().for_each(|value| strings(value, found)),
        _ => {}
    }
}

#[test]
fn a_page_says_what_was_found_without_scripts_and_without_other_files() {
    let bench = recorded();
    let Some(page) = reported(&bench, &bench.output(), "html", &[]) else { return };
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    let quoted = ["src", "href"].into_iter().flat_map(|name| ["\"", "'"].map(|quote| format!("{name}={quote}")));
    for begin in quoted {
        let targets: Vec<&str> = page.match_indices(&begin).map(|(at, _)| &page[at + begin.len()..][..6]).collect();
        assert!(targets.iter().all(|target| *target == "data:,"), "{targets:?}");
    }
    assert!(page.contains("script-src 'sha256-") && page.contains("default-src 'none'"));
    let text = page.split("<script").next().expect("text");
    assert!(text.contains("<h1>Memory of job</h1>"), "{text}");
    assert!(
        text.contains("job.c:") && text.contains("with every step") && text.contains("class=\"finding error\""),
        "{text}"
    );
    assert!(text.contains("Memory per device") && text.contains("What holds memory at the peak"), "{text}");
    let curve = text.split("<pre class=\"curve\">").nth(1).expect("a curve").split("</pre>").next().expect("its end");
    assert!(curve.lines().count() == 5 && curve.lines().all(|line| line.contains('█')), "{curve}");
    let data = page.split("id=\"msmemscope-data\">").nth(1).expect("data").split("</script>").next().expect("data");
    let data: Value = serde_json::from_str(data).expect("JSON");
    for question in ["session", "findings", "ranks", "curve?by=owner", "flame?", "holds?by=site", "steps?", "pool?"] {
        let answers = data["answers"].as_object().expect("answers");
        assert!(answers.keys().any(|key| key.starts_with(question)), "{question}");
    }
}

#[test]
fn several_recordings_are_one_report() {
    let bench = recorded();
    bench.record(&["--call-stack=c:20"], SCRIPT);
    let text = reported(&bench, &bench.output(), "markdown", &[]).expect("text");
    assert!(text.starts_with("# Memory of job (2 processes)\n"), "{text}");
    let processes: Vec<u32> = bench.recordings().iter().map(|recorded| recorded.process_id()).collect();
    for process in processes {
        assert!(text.contains(&format!("Process {process}")), "{text}");
    }
}

#[test]
fn trackers_and_programs_get_the_same_answer() {
    let bench = recorded();
    let text = reported(&bench, &bench.output(), "markdown", &[]).expect("text");
    let answer = text.lines().find(|line| line.starts_with("1. ")).expect("the answer");
    assert!(answer.starts_with("1. **Problem · device 0:** Leak: ") && answer.contains("job.c:"), "{text}");
    let first_words = answer.split_once("Leak: ").expect("a leak").1.split(',').next().expect("words");
    assert_eq!(text.matches(first_words).count(), 1, "told once: {text}");
    assert!(text.contains("   - What to do: Look for what keeps its result"), "{text}");
    let (_, curve) =
        text.split_once("## Memory over time (PyTorch caching on device 0)\n\n```text\n").expect("a curve");
    assert!(curve.split("```").next().expect("its end").contains('█'), "{text}");
    // Nothing was launched by an operator, so there is no column for them.
    assert!(text.contains("\n| bytes | share | blocks | allocated at |\n| ---: | ---: | ---: | --- |\n"), "{text}");
    let report: Value =
        serde_json::from_str(&reported(&bench, &bench.output(), "json", &[]).expect("text")).expect("JSON");
    let process = &report["processes"][0];
    assert!(process["headline"][0].as_str().is_some_and(|sentence| sentence.starts_with("Leak: ")), "{process}");
    let analyze = run(bench.msmemscope(["analyze".as_ref(), bench.output().as_os_str(), "--json".as_ref()]));
    let analysis: Value = serde_json::from_str(&stdout(&analyze)).expect("JSON");
    assert_eq!(process["leaks"], analysis["processes"][0]["leaks"]);
}

#[test]
fn names_mean_nothing_in_reports() {
    let bench = Bench::new();
    let input = dump(&bench);
    let text = reported(&bench, &input, "markdown", &[]).expect("text");
    assert!(!text.contains('\u{202e}'), "{text}");
    // In tables such names are code.
    for sentence in text.lines().filter(|line| !line.starts_with('|')) {
        assert!(!sentence.contains("<img") && !sentence.contains("@all") && !sentence.contains(" `c"), "{sentence}");
    }
    if let Some(page) = reported(&bench, &input, "html", &[]) {
        assert!(!page.contains("<img") && !page.contains('\u{202e}'));
        assert_eq!(page.matches("</script>").count(), 2, "that of the data and that of the page");
    }
}

/// Whatever the recording calls its places and people is gone, however it might be spelled.
#[test]
fn redacted_reports_have_no_paths_hosts_users_or_scripts() {
    let bench = recorded();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_owned();
    let analyze = run(bench.msmemscope(["analyze".as_ref(), bench.output().as_os_str(), "--json".as_ref()]));
    let analysis: Value = serde_json::from_str(&stdout(&analyze)).expect("JSON");
    let mut secrets = vec![job().display().to_string(), bench.home.path().display().to_string(), "job.c".to_owned()];
    if host.len() > 3 {
        secrets.push(host);
    }
    let mut all = Vec::new();
    strings(&analysis, &mut all);
    secrets.extend(all.into_iter().filter(|text| text.starts_with('/') && !text.contains(' ')));
    assert!(secrets.len() > 5, "{secrets:?}");
    let mut inputs = vec![(bench.output(), secrets)];
    let words = [
        "trainer7",
        "secret llm",
        "train.py",
        "main.py",
        "model.py",
        "corpus.bin",
        "tokens.yaml",
        "weights",
        "libprivate",
    ];
    inputs.push((dump(&bench), words.map(str::to_owned).to_vec()));
    for (input, secrets) in &inputs {
        for format in ["html", "markdown", "json"] {
            let Some(plain) = reported(&bench, input, format, &[]) else { continue };
            let Some(redacted) = reported(&bench, input, format, &["--redact"]) else { continue };
            // The page's own script comes last and is the same in every report.
            let redacted = redacted.rsplit_once("<script>").map_or(redacted.as_str(), |(report, _)| report);
            assert!(secrets.iter().any(|secret| plain.contains(secret.as_str())), "{format}: nothing to hide");
            for secret in secrets {
                let encoded = secret.replace('/', "%2F");
                let spellings = [
                    secret.clone(),
                    encoded.to_lowercase(),
                    encoded.replace(' ', "%20"),
                    secret.replace('/', "\\/"),
                    secret.replace('/', "\\u002f"),
                    secret.replace('_', "\\_"),
                ];
                for spelling in spellings {
                    let behind =
                        redacted.split_once(&spelling).map(|(_, behind)| behind.chars().take(80).collect::<String>());
                    assert_eq!(behind, None, "{spelling} in {format}");
                }
            }
            assert!(redacted.contains("dir-"), "{format}");
        }
    }
    let text = reported(&bench, &inputs[1].0, "markdown", &["--redact"]).expect("text");
    assert!(text.contains("script-1.py:") || text.contains("script-2.py:"), "findings can still be followed: {text}");
}

#[test]
fn what_cannot_be_reported_is_one_line() {
    let bench = recorded();
    let refused = |arguments: &[&str], reason: &str| {
        let output = report(&bench, &bench.output(), arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(reason) && said.lines().count() == 1, "{said}");
    };
    refused(&["--format=pdf"], "--format must be one of html, markdown, json, not 'pdf'");
    refused(&["--format=markdown", "-o", "/nowhere/a.md"], "cannot write /nowhere/a.md: ");
    std::fs::write(bench.path("report.md"), "mine").expect("a file");
    refused(&["--format=markdown"], "report.md exists already; name another file with --output");
    assert_eq!(std::fs::read_to_string(bench.path("report.md")).expect("a file"), "mine");
    let output = report(&bench, &bench.path("nothing"), &["--format=markdown", "-o", "b.md"]);
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(2), 1));
    let output = report(&bench, &bench.output(), &["--format=markdown", "-o", "report.md"]);
    assert_success(&output);
    assert!(stdout(&output).starts_with("Wrote report.md ("), "{}", stdout(&output));
}
