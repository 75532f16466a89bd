//! Real files of the reference tool, asked everything; where it documents how it judges, its way is applied to the
//! same file and must give the same.

use std::fs;

use msmemscope_analysis::marks::{MarkOutcome, MarkSettings};
use msmemscope_analysis::{Questions, analyze};
use msmemscope_event::Pool;
use msmemscope_import::open;
use msmemscope_report as text;
use proptest::prelude::*;

use crate::support::fixture;

const FILES: [&str; 5] = [
    "aten_baseline.csv",
    "aten_compare.csv",
    "memscope_dump_20250428113810.csv",
    "memscope_dump_20250428113811.csv",
    "memscope_dump_20260527062213.db",
];
const WITH_MARKS: &str = "memscope_dump_20250428113810.csv";
const MARK: &str = "[mstx]: mstxMarkA :------training start----- ";

#[test]
fn everything_can_be_asked_and_no_file_changes() {
    for name in FILES {
        let before = fs::read(fixture(name)).unwrap();
        for recording in &open(&fixture(name)).unwrap().recordings {
            let answers = analyze(recording, &Questions::all(), &mut |_, _| {});
            let leaks = answers.leaks.unwrap();
            assert!(leaks.leaks.is_empty(), "{name}: these files hold at most one step");
            let inefficient = answers.inefficient.unwrap();
            assert_eq!((inefficient.accesses, inefficient.findings.len()), (0, 0), "{name}");
            assert_eq!(answers.out_of_memory.unwrap().failures, 0, "{name}");
            let owners = answers.owners.unwrap();
            for pool in &owners.pools {
                let summary =
                    answers.summary.pools.iter().find(|known| (known.pool, known.device) == (pool.pool, pool.device));
                assert_eq!(pool.peak_bytes, summary.unwrap().peak_used_bytes, "{name}");
            }
            assert!(text::owners(&owners).lines().all(|line| line.chars().count() <= 80), "{name}");
        }
        assert_eq!(fs::read(fixture(name)).unwrap(), before);
    }
}

/// Fewer than three marks with the text: an error line for the device, and no result.
#[test]
fn too_few_marks_are_told_per_device() {
    let imported = open(&fixture(WITH_MARKS)).unwrap();
    let questions =
        Questions { marks: Some(MarkSettings { message: MARK.into(), start_index: 0 }), ..Questions::default() };
    let report = analyze(&imported.recordings[0], &questions, &mut |_, _| {}).marks.unwrap();
    assert!(report.devices.iter().all(|device| device.outcome == MarkOutcome::TooFewMarks));
    let text = text::marks(&report);
    assert!(
        text.contains("INFO: Starting to analyze data for device 0...\nERROR: device 0 has 1 mark named"),
        "{text}"
    );
    assert!(!report.is_answered() && !text.contains("Results"), "a heading without results says nothing: {text}");
}

/// A row of the file that matters here.
struct Row {
    id: u64,
    event: String,
    pointer: String,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// The documented way to find leaks between marks: rows by ID; HAL allocations between A and B open, frees until
    /// C with the same pointer close; what is open is a leak. Marks are put into a real file at random places.
    #[test]
    fn leaks_between_marks_agree_with_the_documented_way(
        places in prop::collection::vec(any::<prop::sample::Index>(), 3),
    ) {
        let original = fs::read_to_string(fixture(WITH_MARKS)).unwrap();
        let (header, body) = original.split_once('\n').unwrap();
        // One process and device, in time order.
        let mut lines: Vec<Vec<&str>> = body
            .lines()
            .map(|line| line.splitn(10, ',').collect::<Vec<_>>())
            .filter(|cells| cells[5] == "2523738" && cells[7] == "0" && cells[1] != "MSTX")
            .collect();
        lines.sort_by_key(|cells| cells[4].parse::<u64>().unwrap());
        let mut marks: Vec<usize> = places.iter().map(|place| place.index(lines.len())).collect();
        marks.sort_unstable();
        let mut file = format!("{header}\n");
        let mut rows: Vec<Row> = Vec::new();
        let mut next_id = 0;
        for (position, cells) in lines.iter().enumerate() {
            next_id += 1;
            let rest = cells[1..].join(",");
            file.push_str(&format!("{next_id},{rest}\n"));
            let event = format!("{} {}", cells[1], cells[2]);
            rows.push(Row { id: next_id, event, pointer: cells[8].to_owned() });
            for _ in marks.iter().filter(|&&mark| mark == position) {
                next_id += 1;
                file.push_str(&format!("{next_id},MSTX,Mark,\"here\",{},2523738,2523738,0,N/A,,,\n", cells[4]));
                rows.push(Row { id: next_id, event: "MSTX Mark".into(), pointer: String::new() });
            }
        }
        let at: Vec<u64> = rows.iter().filter(|row| row.event == "MSTX Mark").map(|row| row.id).collect();
        let (a, b, c) = (at[0], at[1], at[2]);
        let mut expected: Vec<(u64, &str)> = Vec::new();
        for row in &rows {
            if row.event == "MALLOC HAL" && a <= row.id && row.id <= b {
                expected.push((row.id, &row.pointer));
            } else if row.event == "FREE HAL" && a <= row.id && row.id <= c {
                expected.retain(|(_, pointer)| *pointer != row.pointer);
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memscope_dump_1.csv");
        fs::write(&path, &file).unwrap();
        let questions = Questions {
            marks: Some(MarkSettings { message: "here".into(), start_index: 0 }),
            ..Questions::default()
        };
        let imported = open(&path).unwrap();
        let report = analyze(&imported.recordings[0], &questions, &mut |_, _| {}).marks.unwrap();
        let device = &report.devices[0];
        prop_assert_eq!(device.outcome, MarkOutcome::Complete);
        let found: Vec<u64> =
            device.leaks.iter().filter(|leak| leak.pool == Pool::Hal).map(|leak| leak.index).collect();
        let expected: Vec<u64> = expected.into_iter().map(|(id, _)| id).collect();
        prop_assert!(found.iter().all(|id| expected.contains(id)), "{found:?} {expected:?}");
        // What a pool keeps for later is counted, not listed.
        prop_assert_eq!(found.len() as u64 + device.kept_by_pools, expected.len() as u64);
    }
}
