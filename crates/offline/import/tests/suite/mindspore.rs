//! Files of MindSpore's memory tracker, in the layouts of its releases.

use std::path::PathBuf;

use msmemscope_event::{Device, Pool};
use msmemscope_import::{SkipReason, open};
use msmemscope_timeline::{EventKind, FactSource};

use crate::support::events;

const COLUMNS: &str = "start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,actual_peak_memory,file_name,\
                       line_num,type,producer_task,task_name,node_name,graph_name,user_tasks,python_stack,";
const STACK: &str = "File:/data/train.py;Line:12;Function:<module>|File:/data/net.py;Line:7;Function:construct|";
const FOREVER: i64 = i64::MAX;

fn file_of_rank(directory: &std::path::Path, rank: u32, columns: &str, rows: &[String]) -> PathBuf {
    let directory = directory.join(format!("rank_{rank}"));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("memory_block.csv");
    std::fs::write(&path, format!("{columns}\n{}\n", rows.join("\n"))).unwrap();
    path
}

fn row(starts: i64, ends: i64, address: u64, size_bytes: u64, kind: &str, node: &str) -> String {
    format!(
        "{starts},{ends},0x{address:x},0,Ascend,{size_bytes},0,ops.cc,31,{kind},1,PyNative,{node},,{{2-3-}},{STACK},"
    )
}

#[test]
fn blocks_of_the_pool_are_recorded_with_their_owner_and_their_line() {
    let directory = tempfile::tempdir().unwrap();
    let rows = [
        row(2, FOREVER, 0x1000, 4096, "Weight", "Parameter"),
        row(3, 6, 0x2000, 512, "PyNativeOutput", "MatMul"),
        row(5, -1, 0x3000, 1024, "WorkSpace", "Sum"),
        row(7, 8, 0x2000, 2048, "PyNativeOutput", "Add"),
        // Inside of a block that was planned ahead, and a row of the host.
        row(-1, -1, 0x1010, 16, "InSideSomas", "Mul"),
        row(9, 10, 0x9000, 64, "Other", "Cast").replace("Ascend", "CPU"),
    ];
    let path = file_of_rank(directory.path(), 3, COLUMNS, &rows);
    let imported = open(&path).unwrap();
    assert_eq!((imported.report.rows_used, imported.report.rows_derived, imported.report.rows_skipped()), (4, 2, 0));
    let recording = &imported.recordings[0];
    assert_eq!(recording.devices(), [Device::Npu(3)]);
    let (events, summary) = events(recording);
    assert_eq!(summary.unknown_frees, []);
    let used: Vec<u64> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Malloc(block) | EventKind::Free(block) if !block.shadow => {
                assert_eq!(block.properties.pool, Pool::Mindspore);
                Some(block.used_bytes)
            }
            _ => None,
        })
        .collect();
    assert_eq!(used, [4096, 4608, 5632, 5120, 7168, 5120], "two blocks are never freed");
    let (malloc, block) = events
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::Malloc(block) => Some((event, block)),
            _ => None,
        })
        .unwrap();
    assert_eq!(recording.stated_owner(block.allocation_id), Some("MINDSPORE@Weight"));
    assert_eq!(
        recording.stated_stack(malloc.python_stack),
        Some("/data/net.py(7): construct\n/data/train.py(12): <module>")
    );
    assert_eq!(recording.stated_stack(malloc.native_stack), Some("Parameter"));
}

#[test]
fn other_releases_have_other_columns_and_ranks_lie_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let columns = "start_time_stamp,end_time_stamp,device_addr,size,actual_used_memory,type,node_name,last_user_task,";
    for rank in [0, 1] {
        file_of_rank(directory.path(), rank, columns, &["2,9,0x1000,4096,4096,Weight,Parameter,8,".to_owned()]);
    }
    let imported = open(directory.path()).unwrap();
    let devices: Vec<Vec<Device>> = imported.recordings.iter().map(FactSource::devices).collect();
    assert_eq!(devices, [[Device::Npu(0)], [Device::Npu(1)]]);
}

#[test]
fn damaged_rows_are_counted_and_a_file_without_a_good_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let good = row(2, FOREVER, 0x1000, 4096, "Weight", "Parameter");
    let bad = ["2,3", "x,3,0x1,0,Ascend,1", "2,3,here,0,Ascend,1", "2,3,0x1,0,Ascend,much"].map(str::to_owned);
    let path = file_of_rank(directory.path(), 0, COLUMNS, &[vec![good], bad.to_vec()].concat());
    let report = open(&path).unwrap().report;
    let skipped = [SkipReason::TooFewCells, SkipReason::BadNumber, SkipReason::BadAddress, SkipReason::MissingSize]
        .map(|reason| report.skipped(reason));
    assert_eq!((report.rows_used, skipped), (1, [1; 4]));
    let path = file_of_rank(directory.path(), 1, COLUMNS, &bad);
    let refusal = open(&path).unwrap_err().to_string();
    assert!(refusal.contains("no usable row; 4 skipped, the first because of: too few cells (row 1)"), "{refusal}");
}
