//! Checksums of watched blocks.

use msmemscope_event::{Device, Fact, StringId, WatchDetail};
use msmemscope_output::FinishOptions;

use crate::support::Recording;

fn look<'a>(names: (StringId, StringId), after: bool, detail: &'a str) -> Fact<'a> {
    Fact::Watch {
        name: names.0,
        operator: names.1,
        output_position: 1,
        after,
        address: 0x1000,
        size_bytes: 8,
        content_hash: 1,
        detail: detail.as_bytes(),
    }
}

#[test]
fn every_look_with_a_checksum_is_a_row() {
    let mut recording = Recording::new();
    let names = (recording.string("token0/start"), recording.string("op,1"));
    let detail = |checksum: Option<u64>, call: u64| {
        WatchDetail { device: Device::Npu(3), checksum, call, ..WatchDetail::default() }.to_text()
    };
    recording.record(10, look(names, false, &detail(Some(0xb868_83e6_fa71_0a9f), 2)));
    recording.record(20, look(names, true, &detail(Some(0), 2)));
    recording.record(30, look(names, true, &detail(None, 3)));
    recording.close(40);
    let options = FinishOptions { now_seconds: Some(0), ..FinishOptions::default() };
    let report = recording.finish(&options);
    let file = report.files.iter().find(|file| file.path.to_string_lossy().contains("watch_dump")).expect("a file");
    assert_eq!(file.rows, 2);
    let directory = recording.path().join("device_3/watch_dump");
    assert_eq!(file.path.parent(), Some(&*directory));
    let name = file.path.file_name().expect("a name").to_string_lossy();
    assert!(name.starts_with("watch_dump_data_check_sum_3_") && name.ends_with(".csv"), "{name}");
    let text = std::fs::read_to_string(&file.path).expect("text");
    assert_eq!(
        text,
        "Tensor info,Check data sum\n\
         \"3_1234_op,1_2-token0/start_1_before.bin\",b86883e6fa710a9f\n\
         \"3_1234_op,1_2-token0/start_1_after.bin\",0000000000000000\n"
    );
}
