//! What rows leave out is restored: ranges, pools of frees, heaps, who was really freed.

use msmemscope_event::{AllocationInterface, Pool};
use msmemscope_timeline::EventKind;

use crate::support::{events, open_rows};

#[test]
fn blocks_alive_at_the_end_are_not_freed_by_their_closing_rows() {
    let imported = open_rows(&[
        r#"1,MALLOC,PTA,N/A,100,7,7,0,0x0000000000001000,"{allocation_id:1,addr:0x0000000000001000,size:10,used:10,total:99,owner:PTA@weight}",,"#,
        r#"2,MALLOC,PTA,N/A,110,7,7,0,0x0000000000002000,"{allocation_id:2,addr:0x0000000000002000,size:20,used:30,total:99}",,"#,
        r#"3,FREE,PTA,N/A,120,7,7,0,0x0000000000002000,"{allocation_id:2,addr:0x0000000000002000,size:20,shadow:true}",,"#,
        r#"4,SYSTEM,STOP_TRACE,N/A,130,7,7,N/A,N/A,,,"#,
        r#"5,FREE,PTA,N/A,140,7,7,0,0x0000000000001000,"{allocation_id:1,addr:0x0000000000001000,size:10,shadow:true}",,"#,
    ]);
    assert_eq!((imported.report.rows_used, imported.report.rows_derived), (4, 1));
    let (events, summary) = events(&imported.recordings[0]);
    assert_eq!(summary.live_blocks, 1);
    assert_eq!(imported.recordings[0].stated_owner(1), Some("PTA@weight"));
    assert_eq!(imported.recordings[0].stated_owner(2), None);
    let EventKind::Malloc(block) = &events[0].kind else { panic!("{events:?}") };
    assert_eq!((block.used_bytes, block.total_bytes), (10, 99));
}

#[test]
fn blocks_freed_after_the_last_scope_are_freed() {
    let imported = open_rows(&[
        r#"1,SYSTEM,START_TRACE,N/A,100,7,7,N/A,N/A,,,"#,
        r#"2,MALLOC,PTA,N/A,110,7,7,0,0x1000,"{allocation_id:1,size:10,used:10,total:99}",,"#,
        r#"3,MALLOC,PTA,N/A,120,7,7,0,0x2000,"{allocation_id:2,size:20,used:30,total:99}",,"#,
        r#"4,SYSTEM,STOP_TRACE,N/A,130,7,7,N/A,N/A,,,"#,
        r#"5,FREE,PTA,N/A,140,7,7,0,0x1000,"{allocation_id:1,size:10,shadow:true,freed:true}",,"#,
        r#"6,FREE,PTA,N/A,150,7,7,0,0x2000,"{allocation_id:2,size:20,shadow:true}",,"#,
    ]);
    let (_, summary) = events(&imported.recordings[0]);
    let pool = &summary.pools[0];
    assert_eq!((pool.peak_used_bytes, pool.end_used_bytes, pool.live_blocks()), (30, 20, 1));
}

#[test]
fn blocks_alive_before_the_start_are_told_as_such() {
    let imported = open_rows(&[
        r#"1,SYSTEM,START_TRACE,N/A,100,7,7,N/A,N/A,"{free:40,total:100}",,"#,
        r#"2,MALLOC,HAL,N/A,100,7,7,0,0x0000000000001000,"{allocation_id:1,addr:0x0000000000001000,size:10,shadow:true}",,"#,
        r#"3,MALLOC,HAL,N/A,105,7,7,0,0x0000000000002000,"{allocation_id:2,addr:0x0000000000002000,size:5,used:15}",,"#,
    ]);
    let (events, _) = events(&imported.recordings[0]);
    let mallocs: Vec<(bool, u64)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Malloc(block) => Some((block.shadow, block.used_bytes)),
            _ => None,
        })
        .collect();
    assert_eq!(mallocs, [(true, 10), (false, 15)]);
    let card = events.iter().find_map(|event| match event.kind {
        EventKind::StartTrace { card } => card,
        _ => None,
    });
    assert_eq!(card, Some((40, 100)));
}

#[test]
fn frees_find_blocks_whose_rows_say_more() {
    let imported = open_rows(&[
        r#"1,MALLOC,HAL,N/A,1,7,7,0,0x10,"{size:10,page_type:huge,alloc_type:create}",,"#,
        r#"2,MALLOC,PTA,N/A,2,7,7,0,0x20,"{size:20,owner:PTA_WORKSPACE}",,"#,
        r#"3,MALLOC,ATB,N/A,3,7,7,0,0x30,"{size:30}",,"#,
        r#"4,FREE,HAL,N/A,4,7,7,0,0x10,"{size:10}",,"#,
        r#"5,FREE,PTA,N/A,5,7,7,0,0x20,"{size:20}",,"#,
        r#"6,FREE,ATB,N/A,6,7,7,0,0x30,"{size:30}",,"#,
    ]);
    let (events, summary) = events(&imported.recordings[0]);
    assert_eq!((summary.unknown_free_count(), summary.live_blocks, summary.regions_without_heap), (0, 0, 0));
    let EventKind::Malloc(block) = &events[0].kind else { panic!() };
    assert_eq!(block.properties.interface, AllocationInterface::Create);
    let EventKind::Free(block) = &events[4].kind else { panic!("{:?}", events[4]) };
    assert_eq!(block.properties.pool, Pool::PytorchWorkspace);
}

#[test]
fn blocks_know_the_stream_that_their_rows_name() {
    let imported = open_rows(&[
        r#"1,MALLOC,PTA,N/A,1,7,7,0,0x10,"{allocation_id:1,size:10,used:10,total:99,stream:96}",,"#,
        r#"2,MALLOC,PTA,N/A,2,7,7,0,0x20,"{allocation_id:2,size:20,used:30,total:99}",,"#,
        r#"3,FREE,PTA,N/A,3,7,7,0,0x10,"{allocation_id:1,size:10,used:20,total:99}",,"#,
    ]);
    let (events, _) = events(&imported.recordings[0]);
    let streams: Vec<u32> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Malloc(block) | EventKind::Free(block) => Some(block.stream),
            _ => None,
        })
        .take(3)
        .collect();
    assert_eq!(streams, [96, 0, 96]);
}

#[test]
fn blocks_of_snapshots_know_their_stream() {
    let block = b"}(\x8c\x04sizeK\x08\x8c\x05state\x8c\x10active_allocatedu";
    let numbers = b"}(\x8c\x06deviceK\x00\x8c\x0atotal_sizeK\x09\x8c\x07addressK\x01\x8c\x06streamK\x07";
    let segment = [&numbers[..], b"\x8c\x06blocks](", block, b"eu"].concat();
    let traces = b"e\x8c\x0ddevice_traces]u.";
    let file = [&b"\x80\x04}(\x8c\x08segments]("[..], &segment, traces].concat();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot.pickle");
    std::fs::write(&path, file).unwrap();
    let imported = msmemscope_import::open(&path).unwrap();
    let (events, _) = events(&imported.recordings[0]);
    let block = events.iter().find_map(|event| match &event.kind {
        EventKind::Malloc(block) if block.properties.pool == Pool::PytorchCaching => Some(block),
        _ => None,
    });
    assert_eq!(block.map(|block| (block.size_bytes, block.stream)), Some((8, 7)));
}

#[test]
fn range_ends_close_the_range_they_belong_to() {
    let imported = open_rows(&[
        r#"1,MSTX,Range_start,"step start",1,7,7,0,N/A,,,"#,
        r#"2,MSTX,Range_start,"inner",2,7,7,0,N/A,,,"#,
        r#"3,MSTX,Range_end,"",3,7,7,0,N/A,,,"#,
        r#"4,MALLOC,PTA,N/A,4,7,7,0,0x20,"{size:20}",,"#,
        r#"5,MSTX,Range_end,"",5,7,7,0,N/A,,,"#,
        r#"6,MSTX,Range_start,"step start",6,7,7,0,N/A,,,"#,
    ]);
    let (events, summary) = events(&imported.recordings[0]);
    assert_eq!(summary.steps, 2);
    let malloc = events.iter().find(|event| matches!(event.kind, EventKind::Malloc(_))).unwrap();
    assert_eq!(malloc.step, 1, "the inner range did not end the step");
}

#[test]
fn stacks_over_several_lines_are_kept_whole() {
    let imported = open_rows(&[
        "1,MALLOC,PTA,N/A,1,7,7,0,0x10,\"{size:10}\",\"/a/train.py(12): step\n/a/train.py(40): <module>\n\",\"lib.so(f+0x1) [0x5]\n\"",
        "2,MALLOC,PTA,N/A,2,7,7,0,0x20,\"{size:10}\",\"NA\",",
    ]);
    let recording = &imported.recordings[0];
    let (events, _) = events(recording);
    assert_eq!(
        recording.stated_stack(events[0].python_stack),
        Some("/a/train.py(12): step\n/a/train.py(40): <module>")
    );
    assert_eq!(recording.stated_stack(events[0].native_stack), Some("lib.so(f+0x1) [0x5]"));
    assert!(!events[1].python_stack.is_some());
}
