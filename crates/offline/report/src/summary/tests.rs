//! The report fits a terminal nobody has enlarged, whatever the numbers are.

use testkit::golden;

use super::*;

/// A pool with numbers of this size.
fn pool(pool: Pool, device: Device, bytes: u64, allocations: u64) -> PoolSummary {
    PoolSummary {
        pool,
        device,
        peak_used_bytes: bytes,
        peak_timestamp_ns: 1,
        end_used_bytes: bytes / 2,
        peak_total_bytes: bytes,
        end_total_bytes: bytes,
        allocations,
        frees: allocations / 2,
        allocated_bytes: bytes,
        residual_blocks: 0,
        clamped_frees: 0,
    }
}

fn report(process_id: u32, command: &str, pools: Vec<PoolSummary>, records: u64) -> ProcessReport {
    let directory = PathBuf::from(format!("/data/out/msmemscope_{process_id}_20260102030405_ascend"));
    let file = WrittenFile {
        path: directory.join("device_0/dump/memscope_dump_20260102030406.csv"),
        rows: 1234,
        size_bytes: 5 << 20,
    };
    let summary = Summary {
        process_id,
        pools,
        events_shown: records,
        steps: 8,
        first_timestamp_ns: 1_000_000_000,
        last_timestamp_ns: 3_500_000_000,
        ..Summary::default()
    };
    let completeness = Completeness { closed: true, ..Completeness::default() };
    let command = command.to_owned();
    let findings = String::new();
    let (files, notes) = (vec![file], vec![]);
    ProcessReport {
        place: Place::default(),
        leak_keys: Vec::new(),
        directory,
        command,
        summary,
        completeness,
        files,
        notes,
        findings,
        classic_findings: String::new(),
        log_findings: String::new(),
        has_alarm: false,
        answers_questions: false,
    }
}

/// What is on the screen in the end.
fn render_all(reports: &[ProcessReport], program: &str) -> String {
    let found = render_found(reports, program);
    let gap = if found.is_empty() { "" } else { "\n" };
    format!("{found}{gap}{}", render_rest(reports, program))
}

fn assert_fits(text: &str) {
    for line in text.lines().filter(|line| !line.contains('/')) {
        assert!(line.width() <= 80, "{} columns: {line}", line.width());
    }
}

#[test]
fn one_process_is_shown_with_its_pools() {
    let mut process = report(
        4711,
        "python train.py --epochs 3",
        vec![
            pool(Pool::Hal, Device::Npu(0), 150 << 20, 12),
            pool(Pool::PytorchCaching, Device::Npu(0), 100 << 20, 123_456),
            pool(Pool::HostPinned, Device::Host, 4096, 1),
        ],
        247_000,
    );
    process.completeness.losses = vec![(LossReason::DiskFull, 1500)];
    process.summary.unknown_frees = vec![(Pool::Hal, 3)];
    let text = render_all(&[process], "msmemscope");
    assert_fits(&text);
    golden!("tests/golden/summary-one.txt", &text);
}

#[test]
fn details_and_what_was_before_recording_began_are_no_lost_events() {
    let completeness = Completeness {
        losses: vec![
            (LossReason::StackCut, 5),
            (LossReason::TextCut, 1),
            (LossReason::StackMissing, 2),
            (LossReason::StackTableFull, 9),
        ],
        records_left_out: 7,
        closed: true,
        buffered: true,
        ..Completeness::default()
    };
    let summary = Summary { unknown_frees: vec![(Pool::Hal, 3)], ..Summary::default() };
    assert_eq!(missing(&completeness, &summary).len(), 4);
    assert_eq!(left_out_as_asked(&completeness).count(), 1);
    assert_eq!(lost_events(&completeness), [""; 0]);
    let completeness = Completeness { closed: false, ..completeness };
    assert_eq!(lost_events(&completeness).len(), 1, "what was buffered when the process ended is gone");
}

#[test]
fn a_flight_recorder_says_since_when_everything_is_there() {
    let completeness = Completeness {
        complete_since_ns: Some(5_000_000_000),
        latest_ns: 17_500_000_000,
        records_left_out: 1 << 40,
        closed: true,
        ..Completeness::default()
    };
    let lines = ["what came and went before the last 12.5 s (flight recorder)"];
    assert_eq!(missing(&completeness, &Summary::default()), lines);
    let everything = Completeness { complete_since_ns: None, ..completeness };
    assert_eq!(missing(&everything, &Summary::default()), [""; 0]);
}

#[test]
fn many_processes_are_shown_as_a_table_with_totals() {
    let processes: Vec<ProcessReport> = (0..25)
        .map(|rank| {
            let device = Device::Npu(rank % 8);
            let command = format!("/usr/bin/python3 -u /data/project/train.py --rank={rank}");
            report(1000 + u32::from(rank), &command, vec![pool(Pool::Hal, device, 1 << 30, 100)], 5000)
        })
        .collect();
    let text = render_all(&processes, "msmemscope");
    assert_fits(&text);
    golden!("tests/golden/summary-many.txt", &text);
}

#[test]
fn the_largest_numbers_and_names_fit() {
    let devices = [Device::Npu(31), Device::Npu(30), Device::Host, Device::Unknown];
    let pools = [Pool::Hal, Pool::PytorchWorkspace, Pool::HostPinned, Pool::Unknown];
    let all: Vec<PoolSummary> = devices
        .into_iter()
        .flat_map(|device| pools.map(|kind| pool(kind, device, 1_099_000_000_000_000, u64::MAX)))
        .collect();
    let command = "训练 \"a b\"\nsecond line ".repeat(40);
    let one = report(4_194_304, &command, all.clone(), u64::MAX / 2);
    assert_fits(&render_all(std::slice::from_ref(&one), "msmemscope"));
    let gaps: Vec<PoolSummary> = (0..32).step_by(2).map(|n| pool(Pool::Hal, Device::Npu(n), 1, 1)).collect();
    let many = [one.clone(), one.clone(), report(1, "", vec![], 0), report(2, &command, gaps, 1)];
    let many = many.map(|mut process| {
        process.summary.events_shown = 1 << 60;
        process.summary.pools.iter_mut().for_each(|pool| (pool.allocations, pool.frees) = (1 << 60, 1));
        process
    });
    assert_fits(&render_all(&many, "msmemscope"));
}

#[test]
fn devices_are_listed_as_ranges() {
    let list = |numbers: &[u16]| {
        let pools: Vec<_> = numbers.iter().map(|&number| pool(Pool::Hal, Device::Npu(number), 1, 1)).collect();
        device_list(&pools)
    };
    assert_eq!(list(&[]), "-");
    assert_eq!(list(&[0, 1, 2, 3]), "0-3");
    assert_eq!(list(&[7, 0, 1, 7]), "0-1,7");
}
