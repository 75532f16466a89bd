//! Two runs side by side.

use msmemscope_analysis::compare::{CompareError, Comparison, Level, Part, SharedNames, compare, profile};
use msmemscope_import::{Imported, open};
use msmemscope_report::{self as text, write_csv, write_html};
use proptest::prelude::*;

use crate::support::{Dump, fixture};

fn compare_inputs(base: &Imported, other: &Imported, level: Level) -> Result<(Comparison, String), CompareError> {
    compare_steps((base, None), (other, None), level)
}

fn compare_steps(
    base: (&Imported, Option<u64>),
    other: (&Imported, Option<u64>),
    level: Level,
) -> Result<(Comparison, String), CompareError> {
    let mut names = SharedNames::default();
    let part = |step: Option<u64>| step.map_or(Part::Everything, Part::Step);
    let left = profile(&base.0.recordings, level, part(base.1), &mut names);
    let right = profile(&other.0.recordings, level, part(other.1), &mut names);
    let comparison = compare(&left, &right, &names)?;
    let mut csv = Vec::new();
    write_csv(&comparison, &names, &mut csv).unwrap();
    Ok((comparison, String::from_utf8(csv).unwrap()))
}

fn compare_dumps(base: &Dump, other: &Dump) -> (Comparison, String) {
    compare_inputs(&base.open(), &other.open(), Level::Operator).unwrap()
}

/// A run of operators, each of which allocates this many bytes.
fn run(operators: &[(&str, u64)]) -> Dump {
    let mut dump = Dump::new();
    for (position, (name, size)) in operators.iter().enumerate() {
        dump.begin(name);
        if *size > 0 {
            dump.malloc("PTA", 0x10_0000 * (position as u64 + 1), *size);
        }
        dump.end(name);
    }
    dump
}

const PLAIN: [(&str, u64); 5] = [("a", 100), ("b", 0), ("c", 50), ("b", 0), ("d", 7)];

#[test]
fn the_fixtures_give_the_documented_number_of_lines() {
    let base = open(&fixture("memscope_dump_20250428113810.csv")).unwrap();
    let other = open(&fixture("memscope_dump_20250428113811.csv")).unwrap();
    let (comparison, csv) = compare_inputs(&base, &other, Level::Kernel).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], ",,,Base,Compare");
    assert_eq!(lines[1], "Event,Name,Device Id,Allocated Memory(byte),Allocated Memory(byte),Diff Memory(byte)");
    assert_eq!(lines.len() - 2, 12);
    assert_eq!(comparison.devices.len(), 2);
    assert_eq!(comparison.devices.iter().map(|device| device.items.base).sum::<i64>(), 12);
    assert_eq!(comparison.devices.iter().map(|device| device.items.other).sum::<i64>(), 10);
}

#[test]
fn operators_of_real_files_are_compared() {
    let base = open(&fixture("aten_baseline.csv")).unwrap();
    let other = open(&fixture("aten_compare.csv")).unwrap();
    let (comparison, _) = compare_inputs(&base, &other, Level::Operator).unwrap();
    let device = &comparison.devices[0];
    assert_eq!((device.items.base, device.items.other), (40, 44));
    assert!(!comparison.is_equal());
    assert!(text::comparison(&comparison).lines().all(|line| line.chars().count() <= 80));
}

/// Libraries of operators announce kernels whose launch the runtime reports as well. Where it reports nothing, and where
/// only starts were recorded, these count.
#[test]
fn kernels_that_are_announced_and_launched_count_once() {
    let mut launched = Dump::new();
    let mut announced = Dump::new();
    for name in ["AddKernel", "MulKernel", "AddKernel"] {
        launched.atb_kernel(name, |dump| _ = dump.kernel("Add_8"));
        announced.atb_kernel(name, |_| {});
    }
    launched.kernel("Cast_8").malloc("PTA", 0x1000, 512);
    announced.atb_kernel("CastKernel", |_| {}).malloc("PTA", 0x1000, 512);
    let (comparison, csv) = compare_inputs(&launched.open(), &announced.open(), Level::Kernel).unwrap();
    let items = &comparison.devices[0].items;
    assert_eq!((items.base, items.other), (4, 4), "{csv}");
    assert!(csv.contains("Cast_8") && csv.contains("CastKernel"), "{csv}");
}

#[test]
fn equal_runs_have_no_differences() {
    let (comparison, csv) = compare_dumps(&run(&PLAIN), &run(&PLAIN));
    assert!(comparison.is_equal());
    assert!(comparison.names.is_empty() && comparison.owners.is_empty() && comparison.sites.is_empty());
    assert_eq!(csv.lines().nth(2), Some("OP_LAUNCH,a,0,100,100,0"));
    assert!(text::comparison(&comparison).starts_with("No differences in 5 operators.\n"));
}

#[test]
fn one_change_gives_exactly_that_change() {
    let different = |rows: &str| -> Vec<String> {
        rows.lines().skip(2).filter(|line| !line.ends_with(",0") || line.contains("N/A")).map(str::to_owned).collect()
    };
    let mut larger = PLAIN;
    larger[2].1 = 80;
    assert_eq!(different(&compare_dumps(&run(&PLAIN), &run(&larger)).1), ["OP_LAUNCH,c,0,50,80,30"]);
    let removed = [PLAIN[0], PLAIN[1], PLAIN[3], PLAIN[4]];
    assert_eq!(different(&compare_dumps(&run(&PLAIN), &run(&removed)).1), ["OP_LAUNCH,c,0,50,N/A,-50"]);
    let (comparison, rows) = compare_dumps(&run(&removed), &run(&PLAIN));
    assert_eq!(different(&rows), ["OP_LAUNCH,c,0,N/A,50,50"]);
    assert_eq!(comparison.names[0].name, "c");
    assert!(text::comparison(&comparison).contains("new, 1  c"));
    let mut swapped = PLAIN;
    swapped.swap(0, 1);
    let rows = different(&compare_dumps(&run(&PLAIN), &run(&swapped)).1);
    assert_eq!(rows.len(), 2, "one operator gone from its place, and there again: {rows:?}");
}

#[test]
fn lines_that_hold_more_memory_at_the_peak_are_named() {
    let growing = |kept: u64| {
        let mut dump = Dump::new();
        dump.begin("load").malloc_at(0x1000, 100, "/me/train.py(3): load\n").end("load");
        for index in 0..kept {
            dump.begin("step").malloc_at(0x10_000 + index * 0x1000, 64, "/me/train.py(9): step\n").end("step");
        }
        for index in 0..kept {
            dump.begin("drop").free("PTA", 0x10_000 + index * 0x1000).end("drop");
        }
        dump.free("PTA", 0x1000);
        dump.begin("last").malloc_at(0x2000, 8, "/me/train.py(12): last\n").end("last");
        dump
    };
    let (comparison, _) = compare_dumps(&growing(2), &growing(5));
    let [site] = &comparison.peak_sites[..] else { panic!("{:?}", comparison.peak_sites) };
    assert!(site.name.contains("train.py:9"), "{}", site.name);
    assert_eq!((site.bytes.base, site.bytes.other, site.count.base, site.count.other), (128, 320, 2, 5));
    assert!(comparison.sites.is_empty(), "all of it is gone at the end");
    let in_use: Vec<[u64; 2]> = comparison.rows.iter().map(|row| row.in_use_bytes).collect();
    assert_eq!((in_use[0], in_use.last()), ([100, 100], Some(&[8, 8])));
    assert_eq!(in_use.iter().map(|use_of| use_of[1]).max(), Some(100 + 5 * 64));
    let text = text::comparison(&comparison);
    assert!(text.contains("Call sites of memory at the peak that differ:"), "{text}");
    let line: Vec<&str> = text.lines().filter(|line| line.contains("train.py:9")).collect();
    assert_eq!(line[0].split_whitespace().take(9).collect::<Vec<_>>().join(" "), "+192 B 128 B 320 B 2 to 5");
}

#[test]
fn names_with_commas_are_quoted() {
    let run = run(&[("op<1, 2>", 4)]);
    let (_, csv) = compare_dumps(&run, &run);
    assert_eq!(csv.lines().nth(2), Some("OP_LAUNCH,\"op<1, 2>\",0,4,4,0"));
}

#[test]
fn two_steps_of_one_run() {
    let mut dump = Dump::new();
    for step in 1..=3u64 {
        dump.step_begin().begin("a");
        dump.malloc("PTA", 0x1000, 10 * step);
        dump.end("a").begin("b").end("b").free("PTA", 0x1000).step_end();
    }
    let input = dump.open();
    let (comparison, csv) = compare_steps((&input, Some(1)), (&input, Some(3)), Level::Operator).unwrap();
    assert_eq!(csv.lines().skip(2).collect::<Vec<_>>(), ["OP_LAUNCH,a,0,10,30,20", "OP_LAUNCH,b,0,0,0,0"]);
    let device = &comparison.devices[0];
    assert_eq!((device.peak_bytes.base, device.peak_bytes.other, device.outside_bytes.other), (10, 30, -30));
    let error = compare_steps((&input, Some(1)), (&input, Some(9)), Level::Operator).unwrap_err();
    assert_eq!(error.to_string(), "the other input has no operators in step 9");
}

#[test]
fn what_cannot_be_compared_is_named() {
    let mut mindspore = Dump::new();
    mindspore.malloc("MINDSPORE", 0x1000, 10).kernel("k");
    let mut pytorch = Dump::new();
    pytorch.malloc("PTA", 0x1000, 10).kernel("k");
    let error = compare_inputs(&pytorch.open(), &mindspore.open(), Level::Kernel).unwrap_err();
    assert_eq!(error.to_string(), "the inputs use different frameworks: PTA and MINDSPORE");
    let error = compare_inputs(&pytorch.open(), &pytorch.open(), Level::Operator).unwrap_err();
    assert_eq!(error.to_string(), "the base input has no operators; try --level=kernel");
}

#[test]
fn what_only_one_side_has_leaves_what_both_hold() {
    let with_operators = run(&PLAIN);
    let mut snapshot = Dump::new();
    snapshot.malloc_at(0x1000, 70, "/me/train.py(3): load\n");
    let (with_operators, snapshot) = (with_operators.open(), snapshot.open());
    for (base, other, lacking) in [(&with_operators, &snapshot, "The other"), (&snapshot, &with_operators, "The base")]
    {
        let (comparison, _) = compare_inputs(base, other, Level::Operator).unwrap();
        assert!(comparison.is_of_memory_only() && !comparison.is_equal());
        let device = &comparison.devices[0];
        let (peak, end) = (device.peak_bytes, device.end_bytes);
        assert!(peak.base != peak.other && [peak.base, peak.other].contains(&70), "{peak:?}");
        assert!([end.base, end.other].contains(&70), "{end:?}");
        assert!(comparison.sites.iter().any(|site| site.name == "/me/train.py:3 load"), "{:?}", comparison.sites);
        let text = msmemscope_report::comparison(&comparison);
        let first =
            format!("{lacking} has no operators that could be lined up; what they hold is compared.\nDevice 0:\n");
        assert!(text.starts_with(&first), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows give back both sequences, and all changes together are the pools'.
    #[test]
    fn rows_are_faithful(
        base in prop::collection::vec((0u8..4, 0u64..5), 1..60),
        other in prop::collection::vec((0u8..4, 0u64..5), 1..60),
    ) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let named = |items: &[(u8, u64)]| -> Vec<(&'static str, u64)> {
            items.iter().map(|(name, size)| (NAMES[usize::from(*name)], size * 8)).collect()
        };
        let (left, right) = (named(&base), named(&other));
        let (comparison, csv) = compare_dumps(&run(&left), &run(&right));
        let column = |index: usize| -> Vec<(String, u64)> {
            let rows = csv.lines().skip(2).map(|line| line.split(',').collect::<Vec<_>>());
            rows.filter(|cells| cells[index] != "N/A")
                .map(|cells| (cells[1].to_owned(), cells[index].parse().unwrap()))
                .collect()
        };
        let owned = |items: &[(&str, u64)]| items.iter().map(|(name, size)| (name.to_string(), *size)).collect::<Vec<_>>();
        prop_assert_eq!(column(3), owned(&left));
        prop_assert_eq!(column(4), owned(&right));
        let device = &comparison.devices[0];
        prop_assert_eq!(device.inside_bytes.base + device.outside_bytes.base, device.end_bytes.base);
        prop_assert_eq!(device.inside_bytes.other + device.outside_bytes.other, device.end_bytes.other);
    }
}

#[test]
fn the_page_says_the_same_and_needs_nothing_else() {
    let mut larger = PLAIN;
    larger[2].1 = 80;
    let base = run(&PLAIN).open();
    let mut other = run(&larger);
    other.begin("<b>&\"new\"").end("<b>&\"new\"");
    let other = other.open();
    let mut names = SharedNames::default();
    let left = profile(&base.recordings, Level::Operator, Part::Everything, &mut names);
    let right = profile(&other.recordings, Level::Operator, Part::Everything, &mut names);
    let comparison = compare(&left, &right, &names).unwrap();
    let mut page = Vec::new();
    write_html(&comparison, &names, ["a<b", "other"], &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for forbidden in ["http:", "https:", "<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("a&lt;b") && page.contains("&lt;b&gt;&amp;&quot;new&quot;") && !page.contains("<b>&"));
    assert!(page.contains("Peak +30 B, at the end +30 B; 1 operators are new, 0 are gone."), "{page}");
    assert!(page.contains("<td class=\"number more\">+30 B</td><td><code>c</code></td>"), "{page}");
    let equal = compare(&left, &left, &names).unwrap();
    let mut page = Vec::new();
    write_html(&equal, &names, ["a", "b"], &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("No differences.") && !page.contains("that differ"));
}
