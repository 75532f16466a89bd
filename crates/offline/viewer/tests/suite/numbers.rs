//! Numbers on the page are those of the analyses.

use std::path::{Path, PathBuf};

use made_recordings::{DEVICE, Recorder};
use msmemscope_analysis::moment::PoolMoment;
use msmemscope_analysis::{Answers, Questions, analyze};
use msmemscope_event::{
    ByteRange, CodeId, Fact, KernelPhase, ProcessInfoKey, PythonCallPhase, StackId, StringId, WatchDetail,
};
use msmemscope_import::open;
use msmemscope_report::headline::headline;
use msmemscope_report::units::count;
use serde_json::{Value, json};

use crate::support::{Dump, Viewer, numbers, training};

struct Case {
    _directory: tempfile::TempDir,
    answers: Answers,
    viewer: Viewer,
}

fn case(dump: &Dump) -> Case {
    let directory = tempfile::tempdir().unwrap();
    let path = dump.write(directory.path(), "memscope_dump_1.csv");
    let (answers, viewer) = both(&path);
    Case { _directory: directory, answers, viewer }
}

fn both(path: &Path) -> (Answers, Viewer) {
    let imported = open(path).unwrap();
    let answers = analyze(&imported.recordings[0], &Questions::all(), &mut |_, _| {});
    (answers, Viewer::of(&[path]).ready())
}

/// Real files of the reference tool.
fn fixtures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/fixtures");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "csv" || extension == "db"));
    files.sort();
    files
}

fn rows(value: &Value) -> Vec<(String, u64, u64)> {
    let row = |row: &Value| {
        (row["label"].as_str().unwrap().to_owned(), row["bytes"].as_u64().unwrap(), row["blocks"].as_u64().unwrap())
    };
    let mut rows: Vec<_> = value["rows"].as_array().unwrap().iter().map(row).collect();
    rows.sort();
    rows
}

/// Peaks, owners at the peak and owners at the end of every pool.
fn owners_agree(answers: &Answers, viewer: &Viewer) {
    for pool in &answers.owners.as_ref().unwrap().pools {
        let place = format!("device={}&pool={}", pool.device, pool.pool.event_type());
        let curve = viewer.ask(&format!("curve?{place}&width=37"));
        assert_eq!(curve["peak_bytes"], pool.peak_bytes, "{place}");
        assert_eq!(numbers(&curve["max"]).into_iter().max(), Some(pool.peak_bytes), "{place}");
        let held = viewer.ask(&format!("holds?{place}&by=owner&limit=500"));
        let mut expected: Vec<_> =
            pool.at_peak.iter().map(|owner| (owner.owner.clone(), owner.bytes, owner.blocks)).collect();
        expected.sort();
        assert_eq!(rows(&held), expected, "{place}");
        assert_eq!(held["used_bytes"], pool.peak_bytes);
        let t1 = viewer.ask("session")["recordings"][0]["t1"].as_u64().unwrap();
        let at_end = viewer.ask(&format!("holds?{place}&by=owner&limit=500&t={t1}"));
        let mut expected: Vec<_> =
            pool.at_end.iter().map(|owner| (owner.owner.clone(), owner.bytes, owner.blocks)).collect();
        expected.sort();
        assert_eq!(rows(&at_end), expected, "{place}");
        let flame = viewer.ask(&format!("flame?{place}&kind=peak&minimum=0"));
        assert_eq!(flame["total_bytes"], pool.peak_bytes);
        let own: u64 = numbers(&flame["self_bytes"]).iter().sum();
        assert_eq!(own, pool.peak_bytes, "every byte is somewhere");
        let tree = viewer.ask(&format!("owners?{place}"));
        assert_eq!(tree["tree"]["bytes"], pool.peak_bytes);
    }
}

#[test]
fn owners_and_peaks_are_those_of_the_analysis() {
    let case = case(&training(12));
    owners_agree(&case.answers, &case.viewer);
}

#[test]
fn events_are_counted_as_by_the_analysis() {
    let case = case(&training(12));
    let summary = &case.answers.summary;
    assert_eq!(case.viewer.ask("session")["recordings"][0]["events"], summary.events_shown + summary.events_hidden);
}

#[test]
fn real_files_have_the_numbers_of_the_analysis() {
    let files = fixtures();
    assert!(!files.is_empty());
    for file in files {
        let (answers, viewer) = both(&file);
        owners_agree(&answers, &viewer);
    }
}

#[test]
fn leaks_are_those_of_the_analysis() {
    let case = case(&training(12));
    let leaks = case.answers.leaks.as_ref().unwrap();
    let group = &leaks.leaks[0];
    assert_eq!(group.site.line, "/me/train.py:31 keep");
    let findings = case.viewer.ask("findings");
    let first = &findings["findings"][0];
    assert_eq!((first["kind"].as_str(), first["severity"].as_str()), (Some("leak"), Some("error")));
    assert_eq!((&first["bytes"], &first["count"]), (&Value::from(group.bytes), &Value::from(group.count)));
    assert_eq!((first["file"].as_str(), first["line"].as_u64()), (Some("/me/train.py"), Some(31)));
    assert!(first["sentence"].as_str().unwrap().contains("/me/train.py:31 keep"));
    let (first_step, last_step) = group.step_range;
    let figures = json!({ "bytes_per_step": group.bytes_per_step, "first_step": first_step, "last_step": last_step });
    assert_eq!(first["figures"], figures, "other languages say the same with these");
    let link = &first["link"];
    assert_eq!((link["view"].as_str(), link["kind"].as_str()), (Some("flame"), Some("leaked")));
    let flame = case.viewer.ask("flame?kind=leaked");
    assert_eq!(flame["total_bytes"], leaks.leaked_bytes());
    let table = case.viewer.ask("table/blocks?alive=leaked");
    assert_eq!(table["total"], group.count);
    assert_eq!(table["total_bytes"], group.bytes);
    let site = link["site"].as_u64().unwrap();
    let of_site = case.viewer.ask(&format!("holds?by=site&site={site}&t=9999999"));
    assert_eq!(of_site["rows"][0]["label"], "/me/train.py:31 keep");
}

/// Eight steps, each of which does the same with its number, after two weights.
fn steps(mut work: impl FnMut(&mut Dump, u64)) -> Dump {
    let mut dump = Dump::new();
    for weight in 1..=2 {
        dump.malloc("PTA", 0x10 * weight, 4096, ",owner:PTA@model@weight", "/me/model.py(3): init\n");
    }
    for step in 1..=8 {
        dump.step(true);
        work(&mut dump, step);
        dump.step(false);
    }
    dump
}

#[test]
fn one_cause_is_one_finding_with_the_words_of_the_report() {
    let module = "/usr/lib/python3/site-packages/torch/nn/modules/module.py(1800): inner\n";
    let graphs = steps(|dump, step| {
        for line in 1..=4 {
            let stack = format!("/me/model.py(1{line}): Block.forward\n{module}/me/train.py(40): main\n");
            let owner = ",owner:PTA@model@activation";
            dump.malloc("PTA", 0x10_0000 * step + line * 0x1000, 2048, owner, &stack);
        }
    });
    let states = steps(|dump, step| {
        let adam = "/usr/lib/python3/site-packages/torch/optim/adam.py(180): Adam._init_group\n";
        for made in [20, 22].into_iter().filter(|_| step == 1) {
            for weight in 0..2 {
                let owner = ",owner:PTA@model@optimizer_state";
                let stack = format!("{adam}/me/train.py({made}): main\n");
                dump.malloc("PTA", 0x10_0000 * made + weight * 0x1000, 1024, owner, &stack);
            }
        }
    });
    let swelling = steps(|dump, step| {
        dump.malloc("PTA", 0x10_0000 * step, step * 4096, "", "/me/generate.py(7): attend\n");
        if step > 1 {
            dump.free("PTA", 0x10_0000 * (step - 1));
        }
    });
    let twice = steps(|dump, step| {
        if step == 3 || step == 4 {
            dump.malloc("PTA", 0x10_0000 * step, 2048, "", "/me/train.py(12): keep\n");
        }
    });
    let cases = [
        (graphs, "leak", "Leak: the graphs made at ", 40, 4 * 6 * 2048),
        (states, "doubled_states", "Waste: optimizer states exist twice", 20, 2048),
        (swelling, "growth", "Growth: a tensor becomes larger", 7, 8 * 4096),
        (twice, "possible_leak", "Perhaps a leak: ", 12, 4096),
    ];
    for (dump, kind, first_words, line, bytes) in cases {
        let Case { viewer, answers, .. } = case(&dump);
        let answer = viewer.ask("findings");
        let unlike_others = |finding: &&Value| !["peak", "fragmentation"].contains(&finding["kind"].as_str().unwrap());
        let found: Vec<&Value> = answer["findings"].as_array().unwrap().iter().filter(unlike_others).collect();
        let [finding] = found[..] else { panic!("{kind}: {found:?}") };
        assert_eq!((&finding["kind"], &finding["bytes"]), (&json!(kind), &json!(bytes)));
        assert_eq!(finding["line"], line, "{finding}");
        let sentence = finding["sentence"].as_str().unwrap();
        assert!(sentence.starts_with(first_words), "{sentence}");
        assert_eq!(headline(&answers)[0], sentence, "told as on terminals");
        assert!(!finding["advice"].as_array().unwrap().is_empty(), "{finding}");
        // Where several lines belong to it, all of them are the evidence.
        assert_eq!(finding["link"].get("site").is_some(), ["growth", "possible_leak"].contains(&kind), "{finding}");
    }
}

#[test]
fn steps_grow_as_the_analysis_says() {
    let case = case(&training(12));
    let growth = case.answers.leaks.as_ref().unwrap().growth.iter().find(|growth| growth.pool.event_type() == "PTA");
    let growth = growth.unwrap();
    let steps = case.viewer.ask("steps");
    let shown = steps["rows"].as_array().unwrap();
    assert_eq!(shown.len(), growth.step_ends.len());
    for (shown, expected) in shown.iter().zip(&growth.step_ends) {
        assert_eq!((&shown["step"], &shown["end_bytes"]), (&expected.step.into(), &expected.used_bytes.into()));
    }
    assert_eq!(shown[3]["growth_bytes"], 2048);
    assert_eq!((&shown[3]["kept_bytes"], &shown[3]["kept_blocks"]), (&2048.into(), &1.into()));
    assert_eq!(shown[3]["grew"][0]["label"], "/me/train.py:31 keep");
    assert_eq!(steps["bytes_per_step"].as_f64(), growth.bytes_per_step());
    let largest = case.viewer.ask("steps?sort=peak_bytes&descending=1&limit=1");
    assert_eq!(largest["rows"][0]["step"], 12);
    let brief = case.viewer.ask("steps?brief=1&number=5&limit=1");
    assert!(brief["rows"][0]["step"] == 5 && brief["rows"][0].get("grew").is_none());
    let around = case.viewer.ask(&format!("steps?brief=1&around={}&limit=4", shown[6]["end"]));
    let numbers: Vec<&Value> = around["rows"].as_array().unwrap().iter().map(|row| &row["step"]).collect();
    assert_eq!(numbers, [5, 6, 7, 8], "two of them end before it");
    assert_eq!(
        (
            &case.viewer.ask("session")["recordings"][0]["first_step"],
            &case.viewer.ask("session")["recordings"][0]["last_step"]
        ),
        (&1.into(), &12.into())
    );
    let tracks = case.viewer.ask("tracks?tracks=steps,operators");
    assert_eq!(tracks["tracks"][0]["rows"][0]["start"].as_array().unwrap().len(), 12);
    assert_eq!(tracks["tracks"][1]["rows"][0]["count"].as_array().unwrap().len(), 24);
}

#[test]
fn bars_hold_all_steps_however_few_they_are() {
    let case = case(&training(50));
    let steps = case.viewer.ask("steps?limit=200");
    let rows = steps["rows"].as_array().unwrap();
    let each = case.viewer.ask("steps/bars?bars=50");
    assert_eq!((&each["total"], &each["steps_per_bar"]), (&50.into(), &1.into()));
    let few = case.viewer.ask("steps/bars?bars=7");
    let bars = few["bars"].as_array().unwrap();
    assert_eq!((&few["total"], &few["steps_per_bar"], bars.len()), (&50.into(), &8.into(), 7));
    let number = |row: &Value, key: &str| row[key].as_i64().unwrap();
    for (bar, together) in bars.iter().zip(rows.chunks(8)) {
        let all = |key: &'static str| together.iter().map(move |row| number(row, key));
        let last = together.last().unwrap();
        assert_eq!(number(bar, "steps"), together.len() as i64);
        assert_eq!((&bar["first_step"], &bar["last_step"]), (&together[0]["step"], &last["step"]));
        assert_eq!((&bar["start"], &bar["end"]), (&together[0]["start"], &last["end"]));
        assert_eq!(number(bar, "least_end_bytes"), all("end_bytes").min().unwrap());
        assert_eq!(number(bar, "most_end_bytes"), all("end_bytes").max().unwrap());
        assert_eq!(number(bar, "growth_bytes"), all("growth_bytes").sum::<i64>());
        let peak = together.iter().max_by_key(|row| number(row, "peak_bytes")).unwrap();
        assert_eq!(
            (&bar["peak_bytes"], &bar["peak_step"], &bar["peak_t"]),
            (&peak["peak_bytes"], &peak["step"], &peak["peak_t"])
        );
        let from_there = case.viewer.ask(&format!("steps?offset={}&limit=1", bar["offset"]));
        assert_eq!(from_there["rows"][0]["step"], bar["first_step"]);
    }
    for (sort, descending) in [("growth_bytes", 0), ("growth_bytes", 1), ("peak_bytes", 1), ("end_bytes", 0)] {
        let mut expected: Vec<&Value> = rows.iter().collect();
        expected.sort_by_key(|row| number(row, sort));
        if descending == 1 {
            expected.reverse();
        }
        let page = case.viewer.ask(&format!("steps?sort={sort}&descending={descending}&offset=20&limit=10"));
        assert_eq!(page["rows"].as_array().unwrap().iter().collect::<Vec<_>>(), expected[20..30], "{sort}");
    }
}

#[test]
fn gaps_are_those_of_the_analysis() {
    let case = case(&training(12));
    let pools = &case.answers.fragmentation.as_ref().unwrap().pools;
    let pool = pools.iter().find(|pool| pool.pool.event_type() == "PTA").unwrap();
    let origin: u64 = case.viewer.ask("session")["origin_ns"].as_str().unwrap().parse().unwrap();
    let looked_at = [&pool.at_end, &pool.at_peak_reserved].into_iter().chain(&pool.samples);
    let mut compared = 0;
    for (sample, gaps) in looked_at.filter_map(|sample| Some((sample, sample.gaps?))) {
        compared += 1;
        let state = case.viewer.ask(&format!("pool?t={}", sample.timestamp_ns - origin));
        assert_eq!(state["segments_total"], gaps.segments);
        assert_eq!(state["gaps_total"], gaps.gaps);
        assert_eq!(state["gap_bytes"], gaps.gap_bytes);
        assert_eq!(state["largest_gap_bytes"], gaps.largest_gap_bytes);
        assert_eq!(
            (&state["used_bytes"], &state["reserved_bytes"]),
            (&sample.used_bytes.into(), &sample.reserved_bytes.into())
        );
    }
    assert!(compared > 0);
    let over_time = case.viewer.ask("fragmentation");
    assert!(over_time["t"].as_array().unwrap().len() >= 12);
}

#[test]
fn fragmentation_of_a_window_goes_on_from_the_sample_before_it() {
    let Case { viewer, .. } = case(&training(8));
    let all = numbers(&viewer.ask("fragmentation?pool=PTA")["t"]);
    let window = format!("t0={}&t1={}", all[2] + 1, all[4] + 1);
    assert_eq!(numbers(&viewer.ask(&format!("fragmentation?pool=PTA&{window}"))["t"]), all[2..6]);
}

/// The driver's memory comes first, and stays.
#[test]
fn the_page_opens_on_the_time_in_which_its_pool_changes() {
    let Case { viewer, .. } = case(&training(3));
    let recording = viewer.ask("session")["recordings"][0].clone();
    let table = viewer.ask("table/blocks?pool=PTA&limit=500");
    let column = |name: &str| table["columns"].as_array().unwrap().iter().position(|it| it == name).unwrap();
    let rows = table["rows"].as_array().unwrap();
    let times = |name: &str| rows.iter().filter_map(|row| row[column(name)].as_u64()).collect::<Vec<_>>();
    assert_eq!(recording["active_t0"].as_u64(), times("start").into_iter().min());
    assert_eq!(recording["active_t1"].as_u64(), times("end").into_iter().max());
    assert!(recording["active_t0"].as_u64() > recording["t0"].as_u64());
}

#[test]
fn a_line_that_is_reached_along_many_ways_is_one_finding() {
    // The analysis lists 200 call stacks at most.
    for (ways, at_least) in [(120, ""), (1200, "at least ")] {
        let mut dump = training(2);
        for block in 0..1200 {
            let stack = format!("/me/cache.py(5): fill\n/me/main.py({}): main\n", block % ways);
            dump.malloc("PTA", 0x300_0000 + block * 0x10_0000, 900_000, "", &stack);
        }
        dump.operator("aten::mm", true).access("READ", "aten::mm", 0x100_0000).operator("aten::mm", false);
        let Case { viewer, answers, .. } = case(&dump);
        let report = answers.inefficient.as_ref().unwrap();
        assert_eq!(report.findings_not_listed > 0, !at_least.is_empty());
        let listed = report.findings.iter().filter(|finding| finding.site.line.contains("/me/cache.py:5 fill"));
        let blocks = count(listed.map(|finding| finding.count).sum());
        let found = viewer.ask("findings")["findings"].clone();
        let inefficient = found.as_array().unwrap().iter().filter(|it| it["kind"] == "inefficient");
        let sentences = inefficient.map(|it| it["sentence"].as_str().unwrap());
        let told: Vec<&str> = sentences.filter(|sentence| sentence.contains("/me/cache.py:5 fill")).collect();
        assert_eq!(told, [format!("Never used: {at_least}{blocks} blocks of up to 879 KiB: /me/cache.py:5 fill")]);
    }
}

/// Dumps of other ages tell less of what a pool holds than its blocks need.
#[test]
fn a_pool_that_needs_more_than_it_holds_has_no_overhead_to_tell() {
    let overheads = |total: u64| {
        let mut dump = Dump::new();
        dump.malloc("HAL", 0x100_0000, total, "", "");
        dump.malloc("PTA", 0x100_0000, 3_000_000, &format!(",total:{total}"), "/me/model.py(3): build\n");
        let found = case(&dump).viewer.ask("findings")["findings"].clone();
        let of_pool = found.as_array().unwrap().iter().filter(|it| it["kind"] == "fragmentation").cloned();
        of_pool.map(|it| it["sentence"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(overheads(2_000_000), [""; 0]);
    assert_eq!(overheads(4_000_000).len(), 1, "otherwise it is told");
}

/// The same share of a few segments is how pools work, and nothing to warn of.
#[test]
fn overhead_of_a_pool_is_a_warning_where_it_is_much() {
    let severity = |held_mib: u64| {
        let mut dump = Dump::new();
        let total = held_mib << 20;
        dump.malloc("HAL", 0x100_0000, total, "", "");
        dump.malloc("PTA", 0x100_0000, total / 2, &format!(",total:{total}"), "/me/model.py(3): build\n");
        let found = case(&dump).viewer.ask("findings")["findings"].clone();
        let overhead = found.as_array().unwrap().iter().find(|it| it["kind"] == "fragmentation").unwrap().clone();
        overhead["severity"].as_str().unwrap().to_owned()
    };
    assert_eq!((severity(4), severity(400)), ("info".to_owned(), "warning".to_owned()));
}

#[test]
fn blocks_too_small_to_matter_are_no_findings() {
    let is_told = |size: u64| {
        let mut dump = training(2);
        dump.malloc("PTA", 0x300_0000, size, "", "/me/spare.py(5): small\n");
        for _ in 0..3 {
            dump.operator("aten::mm", true).access("READ", "aten::mm", 0x100_0000).operator("aten::mm", false);
        }
        let Case { viewer, answers, .. } = case(&dump);
        let listed = &answers.inefficient.as_ref().unwrap().findings;
        assert!(listed.iter().any(|finding| finding.site.line.contains("spare.py")), "the analysis names it");
        viewer.ask("findings")["findings"].to_string().contains("spare.py:5 small")
    };
    assert!(is_told(100_000), "a part of the peak");
    assert!(!is_told(512));
}

#[test]
fn a_peak_names_the_line_that_holds_most() {
    let case = case(&training(12));
    let findings = case.viewer.ask("findings");
    let is_peak = |it: &&Value| it["kind"] == "peak" && it["pool"] == "PTA";
    let peak = findings["findings"].as_array().unwrap().iter().find(is_peak).unwrap();
    let report = case.answers.moments.as_ref().unwrap();
    let is_it = |it: &&PoolMoment| it.moment == "peak" && it.pool.event_type() == "PTA";
    let moment = report.pools.iter().find(is_it).unwrap();
    assert_eq!((&peak["file"], &peak["line"]), (&json!("/me/model.py"), &json!(3)));
    assert_eq!(peak["figures"], json!({ "line_bytes": moment.lines[0].bytes, "step": moment.step }));
    assert!(peak["link"].get("site").is_none(), "the evidence is the whole peak");
}

#[test]
fn owners_of_a_pool_tell_its_blocks_apart_or_not() {
    let told = |dump: &Dump, pool: &str| {
        let session = case(dump).viewer.ask("session");
        let pools = session["recordings"][0]["devices"][0]["pools"].as_array().unwrap().clone();
        pools.into_iter().find(|it| it["pool"] == pool).unwrap()["tells_owners"].clone()
    };
    assert_eq!((told(&training(2), "PTA"), told(&training(2), "HAL")), (json!(true), json!(false)));
}

#[test]
fn series_add_up_to_the_curve_at_every_zoom() {
    let case = case(&training(400));
    let t1 = case.viewer.ask("session")["recordings"][0]["t1"].as_u64().unwrap();
    for by in ["owner", "site", "size"] {
        for window in [format!("t0=0&t1={t1}"), format!("t0={}&t1={}", t1 / 3, t1 / 2), "t0=100&t1=140".to_owned()] {
            let curve = case.viewer.ask(&format!("curve?by={by}&{window}&width=100&series=1"));
            let most = numbers(&curve["max"]);
            let mut sums = vec![0; most.len()];
            for series in curve["series"].as_array().unwrap() {
                for (sum, value) in sums.iter_mut().zip(numbers(&series["values"])) {
                    *sum += value;
                }
            }
            assert_eq!(sums, most, "{by} {window}");
            assert!(numbers(&curve["min"]).iter().zip(&most).all(|(least, most)| least <= most));
        }
    }
    let filtered = case.viewer.ask("curve?owner=PTA@model&width=10");
    assert_eq!(filtered["peak_bytes"], 307_000);
    let words = case.viewer.ask("curve?text=TRAIN.PY:31&width=10");
    assert_eq!(words["peak_bytes"], 400 * 2048);
}

#[test]
fn tables_page_sort_and_filter() {
    let case = case(&training(50));
    let all = case.viewer.ask("table/blocks?pool=PTA&limit=7&sort=bytes&descending=1");
    assert_eq!((&all["total"], all["rows"].as_array().unwrap().len()), (&102.into(), 7));
    let bytes: Vec<u64> = all["rows"].as_array().unwrap().iter().map(|row| row[3].as_u64().unwrap()).collect();
    assert_eq!(bytes[..3], [300_000, 44_900, 44_800]);
    let second = case.viewer.ask("table/blocks?pool=PTA&limit=7&offset=7&sort=bytes&descending=1");
    assert_eq!(second["rows"][0][3], 44_300);
    let alive = case.viewer.ask("table/blocks?alive=end&pool=PTA");
    assert_eq!(alive["total"], 52);
    let inefficient = case.viewer.ask("table/blocks?inefficient=1&pool=PTA");
    let report = case.answers.inefficient.as_ref().unwrap();
    let most = report.early_allocation.blocks + report.late_deallocation.blocks + report.temporary_idleness.blocks;
    let shown = inefficient["total"].as_u64().unwrap();
    assert!(shown <= most && (most == 0) == (shown == 0), "{shown} of {most}");
    let frees = case.viewer.ask("table/events?kind=free");
    assert_eq!(frees["total"], 50);
    let words = case.viewer.ask("table/events?text=aten::add&kind=operator");
    assert_eq!(words["total"], 100);
    let last = case.viewer.ask("table/events?descending=1&limit=1");
    assert_eq!((last["rows"][0][2].as_str(), last["rows"][0][11].as_str()), (Some("range"), Some("end")));
    let (_, _, csv) = case.viewer.get(&format!("{}/api/table/events?format=csv", case.viewer.path()), "");
    assert_eq!(csv.lines().count() as u64, last["total"].as_u64().unwrap() + 1);
}

#[test]
fn events_pass_the_same_filters_as_blocks() {
    let case = case(&training(20));
    let total = |question: &str| case.viewer.ask(question)["total"].as_u64().expect(question);
    let column = |rows: &Value, index: usize| -> Vec<Value> {
        rows["rows"].as_array().unwrap().iter().map(|row| row[index].clone()).collect()
    };
    for filter in ["owner=PTA@model", "pool=PTA", "pool=HAL", "text=keep", "owner=PTA@ops&pool=PTA", "size_max=4000"] {
        let events = total(&format!("table/events?kind=malloc&{filter}"));
        assert_eq!(events, total(&format!("table/blocks?{filter}")), "{filter}");
        assert!(events > 0, "{filter}");
    }
    let blocks = case.viewer.ask("table/blocks?text=keep");
    let site = case.viewer.ask("holds?by=site&text=keep")["rows"][0]["key"].clone();
    let of_site = total(&format!("table/events?kind=malloc&site={}", site.as_str().unwrap()));
    assert_eq!(of_site, blocks["total"]);
    // Nothing but blocks has an owner; operators belong to no pool.
    assert_eq!(total("table/events?kind=operator&owner=PTA@model"), 0);
    assert_eq!(total("table/events?kind=operator&pool=PTA"), total("table/events?kind=operator"));
    let of_step = case.viewer.ask("table/events?step=7&limit=500");
    assert!(of_step["total"].as_u64().unwrap() > 0);
    assert!(column(&of_step, 7).iter().all(|step| *step == 7), "{of_step}");
    let steps: u64 = (0..=20).map(|step| total(&format!("table/events?step={step}"))).sum();
    assert!(steps <= total("table/events"));
}

#[test]
fn a_block_tells_its_life() {
    let case = case(&training(3));
    let found = case.viewer.ask("table/blocks?text=keep");
    let number = &found["rows"][1][0];
    let block = case.viewer.ask(&format!("block?block={number}"));
    assert_eq!((&block["bytes"], &block["end"], &block["step"]), (&2048.into(), &Value::Null, &2.into()));
    assert_eq!((block["owner"].as_str(), block["line"].as_str()), (Some("PTA@ops@aten"), Some("/me/train.py:31 keep")));
    assert_eq!(block["stack"][0]["function"], "keep");
    assert_eq!(block["stack"][1]["function"], "main");
    assert_eq!(block["accesses"][0]["operator"], "aten::add");
    assert_eq!((block["accesses"][0]["kind"].as_str(), &block["accesses_total"]), (Some("write"), &1.into()));
    assert_eq!(block["below"]["distance_bytes"], 0x1000 - 2048);
    let map = case.viewer.ask("blocks?width=100&height=100");
    assert_eq!(map["block"].as_array().unwrap().len(), 8);
    let zoomed =
        case.viewer.ask(&format!("blocks?t0={0}&t1={1}", block["start"], block["start"].as_u64().unwrap() + 1));
    assert!(zoomed["block"].as_array().unwrap().contains(number));
    let temporary = case.viewer.ask("table/blocks?text=train.py:9");
    let first = case.viewer.ask(&format!("block?block={}", temporary["rows"][0][0]));
    assert_eq!(
        (first["next"].is_null(), first["previous"].is_null()),
        (true, true),
        "each step has a place of its own"
    );
}

#[test]
fn many_blocks_become_coverage() {
    let mut dump = Dump::new();
    for index in 0..3000u64 {
        dump.malloc("PTA", 0x1000 * index, 0x1000, "", "");
    }
    let case = case(&dump);
    let map = case.viewer.ask("blocks?width=40&height=40");
    let more = &map["more"];
    assert_eq!((more["columns"].as_u64(), more["rows"].as_u64()), (Some(10), Some(10)));
    assert!(more["blocks"].as_u64().unwrap() >= 3000 - 40);
    assert_eq!(map["y_total"], 3000 * 0x1000);
}

#[test]
fn several_recordings_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for process in 1..=4 {
        let mut dump = training(if process == 3 { 300 } else { 12 });
        let text = dump.write(directory.path(), "x.csv");
        let renamed = std::fs::read_to_string(&text).unwrap().replace(",7,7,", &format!(",{process},7,"));
        dump.process = process;
        let path = directory.path().join(format!("memscope_dump_{process}.csv"));
        std::fs::write(&path, renamed).unwrap();
        paths.push(path);
    }
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let viewer = Viewer::of(&paths).ready();
    let ranks = viewer.ask("ranks");
    let rows = ranks["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    let different: Vec<u64> = rows
        .iter()
        .filter(|row| !row["outlier"].as_array().unwrap().is_empty())
        .map(|row| row["process_id"].as_u64().unwrap())
        .collect();
    assert_eq!(different, [3]);
    let difference = viewer.ask("flame?kind=difference&r=0&r2=2&minimum=0");
    let peak = |number: u64| rows.iter().find(|row| row["r"] == number).unwrap()["peak_bytes"].as_i64().unwrap();
    assert_eq!(difference["total_bytes"].as_i64(), Some(peak(2) - peak(0)));
    let own: i64 = difference["self_bytes"].as_array().unwrap().iter().map(|bytes| bytes.as_i64().unwrap()).sum();
    assert_eq!(own, peak(2) - peak(0));
}

#[test]
fn a_leak_of_all_ranks_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let recording = |rank: u32, operator: &str| {
        let path = directory.path().join(format!("rank{rank}"));
        let mut recorder = Recorder::create(&path, 100 + rank, 10);
        let place = format!("rank={rank}\nworld_size=3");
        let fact = Fact::ProcessInfo { key: ProcessInfoKey::Place, text: place.as_bytes() };
        recorder.record(StackId::NONE, &fact);
        let operator = recorder.string(operator);
        for step in 1..=8 {
            recorder.step_begins(step);
            recorder.operate(operator, |recorder| recorder.allocate(0x1000 * step, 4096));
            recorder.step_ends(step);
        }
        recorder.close();
        path
    };
    let paths = [recording(0, "aten.mm"), recording(1, "aten.mm"), recording(2, "aten.cat")];
    let viewer = Viewer::of(&paths.each_ref().map(PathBuf::as_path)).ready();
    let answer = viewer.ask("findings");
    let leaks: Vec<&Value> =
        answer["findings"].as_array().unwrap().iter().filter(|finding| finding["kind"] == "leak").collect();
    let told: Vec<(&Value, &Value)> = leaks.iter().map(|leak| (&leak["r"], &leak["ranks"])).collect();
    assert_eq!(told, [(&json!(0), &json!([0, 1])), (&json!(2), &json!([]))]);
    let same: Vec<&Value> = answer["headlines"].as_array().unwrap().iter().map(|one| &one["same_as"]).collect();
    assert_eq!(same, [&json!(null), &json!(0), &json!(null)]);
    let own = viewer.ask("findings?r=1");
    assert!(own["findings"].as_array().unwrap().iter().any(|finding| finding["kind"] == "leak"), "asked about alone");
}

#[test]
fn source_lines_come_from_files_that_frames_name() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("model.py");
    std::fs::write(&source, "one\ntwo\nthree\nfour\nfive\n").unwrap();
    let mut dump = Dump::new();
    dump.malloc("PTA", 0x1000, 100, "", &format!("{}(3): build\n", source.display()));
    let path = dump.write(directory.path(), "memscope_dump_1.csv");
    let viewer = Viewer::of(&[&path]).ready();
    let answer = viewer.ask(&format!("source?file={}&line=3&context=1", source.display()));
    assert_eq!(answer["lines"], serde_json::json!(["two", "three", "four"]));
    assert_eq!((&answer["first_line"], &answer["line"]), (&2.into(), &3.into()));
    let (status, _, _) = viewer.get(&format!("{}/api/source?file={}&line=4", viewer.path(), source.display()), "");
    assert_eq!(status, 404, "no frame names this line");
}

#[test]
fn kernels_and_calls_are_those_that_were_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(directory.path(), 7, 10);
    let (kernel, region) = (recorder.string("MatMul_kernel"), recorder.string("my region"));
    recorder.allocate(0x1000, 512);
    let detail = StringId::NONE;
    for task_id in 0..5 {
        for phase in [KernelPhase::ExecuteStart, KernelPhase::ExecuteEnd] {
            let fact = Fact::Kernel { phase, device: DEVICE, name: kernel, stream_id: 3, task_id, detail };
            recorder.record(StackId::NONE, &fact);
        }
    }
    for phase in [PythonCallPhase::NamedBegin, PythonCallPhase::NamedBegin, PythonCallPhase::End, PythonCallPhase::End]
    {
        recorder.record(StackId::NONE, &Fact::PythonCall { phase, code: CodeId::default(), name: region });
    }
    recorder.close();
    let viewer = Viewer::of(&[directory.path()]).ready();
    let tracks = viewer.ask("tracks?tracks=kernels&width=4000");
    let track = &tracks["tracks"][0];
    assert_eq!((&track["track"], &track["thread"]), (&"kernels".into(), &3.into()));
    let row = &track["rows"][0];
    assert_eq!(numbers(&row["count"]), [1; 5]);
    let spans = numbers(&row["start"]).into_iter().zip(numbers(&row["end"]));
    assert!(spans.clone().all(|(start, end)| end - start == 10), "{row}");
    assert_eq!(tracks["names"][0], "MatMul_kernel");
    let calls = viewer.ask("calls?width=4000");
    assert_eq!(calls["threads"][0]["calls"], 2);
    let length = |depth: usize| {
        let row = &calls["rows"][depth];
        (numbers(&row["end"])[0] - numbers(&row["start"])[0], calls["names"][0].as_str().unwrap())
    };
    assert_eq!((length(0), length(1)), ((30, "my region"), (10, "my region")));
    let inner = &calls["rows"][1];
    let from_to = (&calls["threads"][0]["t0"], &calls["threads"][0]["t1"]);
    assert_eq!(from_to, (&inner["start"][0], &inner["end"][0]), "where calls are nested");
    assert_eq!(viewer.ask("calls?width=100&text=REGION")["matches"], 1);
    let has = &viewer.ask("session")["recordings"][0]["has"];
    assert_eq!((&has["kernels"], &has["python_calls"], &has["watch"]), (&true.into(), &true.into(), &false.into()));
}

#[test]
fn changes_of_watched_memory_are_those_of_the_analysis() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(directory.path(), 7, 10);
    let (name, operator) = (recorder.string("weight"), recorder.string("aten::add"));
    recorder.allocate(0x1000, 1024);
    for (after, changed) in [(false, None), (true, Some(ByteRange { start: 512, end: 1024 }))] {
        let detail = WatchDetail {
            device: DEVICE,
            piece_bytes: 512,
            call: 3,
            changed: changed.into_iter().collect(),
            since_operator: "aten::mm".to_owned(),
            ..WatchDetail::default()
        };
        recorder.record(
            StackId::NONE,
            &Fact::Watch {
                name,
                operator,
                output_position: 0,
                after,
                address: 0x1000,
                size_bytes: 1024,
                content_hash: u64::from(after),
                detail: detail.to_text().as_bytes(),
            },
        );
    }
    recorder.close();
    let (answers, viewer) = both(directory.path());
    let report = answers.watch.as_ref().unwrap();
    let expected = report.corruptions().next().expect("a change that nobody declared");
    let watch = viewer.ask("watch");
    assert_eq!(watch["changes_total"], report.corruptions().count());
    let change = &watch["changes"][0];
    assert_eq!(change["operator"], expected.operator);
    assert_eq!((&change["call"], &change["changed_bytes"]), (&3.into(), &expected.changed_bytes.into()));
    let block = &watch["blocks"][0];
    assert_eq!((&block["name"], &block["looks"]), (&"weight".into(), &report.blocks[0].looks.into()));
    assert_eq!((&block["corruptions"], &block["bytes"]), (&1.into(), &1024.into()));
    assert_eq!(viewer.ask("findings")["findings"][0]["kind"], "watch");
    let track = &viewer.ask("tracks?tracks=watch")["tracks"][0];
    assert_eq!((&track["at"][0], &track["count"][0]), (&change["t"], &1.into()));
}

#[test]
fn words_are_looked_for_in_the_whole_stack_and_filters_count_in_steps_and_leaks() {
    let case = case(&training(8));
    let leaked = case.answers.leaks.as_ref().unwrap().leaks[0].bytes;
    // `main` is only an outer frame of the line that leaks.
    let last = |question: &str| case.viewer.ask(question)["rows"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last("steps?text=MAIN")["end_bytes"], 8 * 2048);
    assert_eq!(last("steps?text=nothing")["end_bytes"], 0);
    assert!(last("steps")["end_bytes"].as_u64().unwrap() > 8 * 2048);
    assert_eq!(last("steps?brief=1&limit=200")["step"], 8);
    let total = |question: &str| case.viewer.ask(question)["total_bytes"].clone();
    assert_eq!(total("flame?kind=leaked&text=main"), leaked);
    assert_eq!(total("flame?kind=leaked&text=nothing"), 0);
    assert_eq!(total("flame?kind=leaked&owner=PTA@model"), 0);
    assert_eq!(total("flame?kind=leaked&owner=PTA@ops"), leaked);
    assert_eq!(case.viewer.ask("table/events?text=main&kind=malloc")["total"], 8);
}

#[test]
fn a_filter_makes_no_gaps_in_the_pool() {
    let case = case(&training(8));
    let end = case.viewer.ask("session")["recordings"][0]["t1"].clone();
    let (all, some) = (case.viewer.ask(&format!("pool?t={end}")), case.viewer.ask(&format!("pool?t={end}&text=main")));
    for figure in ["used_bytes", "gaps_total", "gap_bytes", "segments_total"] {
        assert_eq!(some[figure], all[figure], "{figure}");
    }
    assert_eq!((&all["meant_bytes"], &some["meant_bytes"]), (&all["used_bytes"], &Value::from(8 * 2048)));
}
