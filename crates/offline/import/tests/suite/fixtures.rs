//! Real files of the reference tool.

use msmemscope_event::{Device, Pool};
use msmemscope_import::{Recording, open};
use msmemscope_timeline::{EventKind, FactSource};

use crate::support::{events, fixture};

fn used_by_event(recording: &Recording, pool: Pool) -> Vec<u64> {
    let (events, _) = events(recording);
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Malloc(block) | EventKind::Free(block) if block.properties.pool == pool && !block.shadow => {
                Some(block.used_bytes)
            }
            _ => None,
        })
        .collect()
}

#[test]
fn the_layout_of_early_2025_with_two_processes_in_one_file() {
    let imported = open(&fixture("memscope_dump_20250428113810.csv")).unwrap();
    assert_eq!(imported.report.rows_skipped(), 0, "{:?}", imported.report.notice());
    let process_ids: Vec<u32> = imported.recordings.iter().map(FactSource::process_id).collect();
    assert_eq!(process_ids, [2_523_738, 2_523_740]);
    let first = &imported.recordings[0];
    assert!(first.devices().contains(&Device::Npu(0)));
    let (all, summary) = events(first);
    let kernels = all.iter().filter(|event| matches!(event.kind, EventKind::Kernel { .. })).count();
    assert_eq!(kernels, 6);
    let unknown = [(Pool::Hal, 1)];
    assert_eq!(summary.unknown_frees, unknown, "one allocation is missing from the file; all others are found");
}

#[test]
fn our_running_sum_agrees_with_the_one_in_the_file_until_rows_are_missing_from_it() {
    let text = std::fs::read_to_string(fixture("memscope_dump_20250428113810.csv")).unwrap();
    let mut stated: Vec<(u64, u64)> = text
        .lines()
        .filter(|line| line.contains("MALLOC,PTA,") && line.contains(",2523738,"))
        .take(200)
        .map(|line| {
            let timestamp = line.split(',').nth(4).unwrap().parse().unwrap();
            let used = line.split("used:").nth(1).unwrap().split(['}', ',']).next().unwrap().parse().unwrap();
            (timestamp, used)
        })
        .collect();
    stated.sort_unstable_by_key(|&(timestamp, _)| timestamp);
    let imported = open(&fixture("memscope_dump_20250428113810.csv")).unwrap();
    let found = used_by_event(&imported.recordings[0], Pool::PytorchCaching);
    let stated: Vec<u64> = stated.into_iter().map(|(_, used)| used).collect();
    assert_eq!(found[..stated.len()], stated);
}

#[test]
fn the_layout_of_late_2025_with_operators() {
    let imported = open(&fixture("aten_compare.csv")).unwrap();
    assert_eq!((imported.report.rows_used, imported.report.rows_skipped()), (130, 0));
    let (events, _) = events(&imported.recordings[0]);
    let begins = events.iter().filter(|event| matches!(event.kind, EventKind::Operator { begins: true, .. })).count();
    assert_eq!(begins, 44);
    assert!(events.is_sorted_by_key(|event| event.timestamp_ns));
}

#[test]
fn a_database_that_insight_has_altered() {
    let path = fixture("memscope_dump_20260527062213.db");
    let before = std::fs::read(&path).unwrap();
    let imported = open(&path).unwrap();
    assert_eq!((imported.report.rows_used, imported.report.rows_skipped()), (10, 0));
    let recording = &imported.recordings[0];
    let (events, summary) = events(recording);
    assert_eq!(summary.pools.len(), 1);
    assert_eq!((summary.pools[0].pool, summary.pools[0].allocations, summary.live_blocks), (Pool::HostPinned, 6, 5));
    let malloc = events.iter().find(|event| matches!(event.kind, EventKind::Malloc(_))).unwrap();
    let python = recording.definitions().python_stack(malloc.python_stack).unwrap();
    assert_eq!(python.len(), 2);
    let innermost = recording.definitions().code(python[0].code).unwrap();
    assert_eq!(recording.definitions().string(innermost.name), "__torch_dispatch__");
    assert_eq!(innermost.first_line, 174);
    assert!(recording.stated_stack(malloc.native_stack).unwrap().contains("halMemAlloc+0x118"));
    assert_eq!(std::fs::read(&path).unwrap(), before, "the input is never changed");
    let side_files = std::fs::read_dir(path.parent().unwrap()).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with("-wal") || name.to_string_lossy().ends_with("-shm")
    });
    assert_eq!(side_files.count(), 0);
}

/// What torch's own tools add up for the same files: `segsum` of `torch.cuda._memory_viz`.
#[test]
fn snapshots_of_torch_npu_have_the_totals_that_torch_computes() {
    for (name, [reserved_bytes, used_bytes, blocks]) in [
        ("torch_npu_snapshot.pkl.gz", [551_550_976, 0, 0]),
        ("torch_npu_snapshot_expandable.pkl.gz", [643_825_664, 408_698_880, 645]),
    ] {
        let packed = std::fs::File::open(fixture(name)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("snapshot.pickle");
        let mut file = std::fs::File::create(&path).unwrap();
        std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut file).unwrap();
        let imported = open(&path).unwrap();
        let (_, summary) = events(&imported.recordings[0]);
        let pool = summary.pools.iter().find(|pool| pool.pool == Pool::PytorchCaching).unwrap();
        assert_eq!(pool.device, Device::Npu(0), "{name}");
        assert_eq!(
            [pool.end_total_bytes, pool.end_used_bytes, pool.live_blocks()],
            [reserved_bytes, used_bytes, blocks]
        );
    }
}
