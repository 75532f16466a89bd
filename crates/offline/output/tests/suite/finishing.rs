//! Which files appear, under which names, and what happens when finishing is repeated.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use msmemscope_event::{BlockProperties, CodeId, Device, Fact, Pool, PythonCallPhase, RecordingState, StringId};
use msmemscope_output::{FinishError, FinishOptions, FinishOutcome, FinishReport, Formats, finish};
use msmemscope_timeline::{DeviceFilter, EventFilter, TimelineSettings};

use crate::support::Recording;

fn caching(device: u16) -> BlockProperties {
    BlockProperties::framework(Pool::PytorchCaching, Device::Npu(device))
}

/// Two devices, one event without device before and one after the first device shows up.
fn two_devices() -> Recording {
    let mut recording = Recording::new();
    recording.record(10, Fact::Recording { state: RecordingState::On });
    recording.record(20, Fact::Allocation { properties: caching(0), address: 0x10, size_bytes: 100 });
    recording.record(30, Fact::Allocation { properties: caching(1), address: 0x10, size_bytes: 200 });
    recording.record(40, Fact::Free { properties: caching(0), address: 0x10 });
    recording.record(50, Fact::Recording { state: RecordingState::Shadow });
    recording.close(60);
    recording
}

fn at(seconds: i64) -> FinishOptions<'static> {
    FinishOptions { now_seconds: Some(seconds), ..FinishOptions::default() }
}

#[test]
fn each_device_has_its_file_and_all_rows_without_device() {
    let recording = two_devices();
    let report = recording.finish(&FinishOptions::default());
    assert_eq!(report.outcome, FinishOutcome::Written);
    assert_eq!(report.files.len(), 2);
    assert_eq!(report.rows, 6);
    let ids = |device| -> Vec<String> {
        recording
            .csv_lines(Device::Npu(device))
            .iter()
            .map(|line| line.split(',').take(3).collect::<Vec<_>>().join(","))
            .collect()
    };
    assert_eq!(ids(0), ["0,SYSTEM,START_TRACE", "1,MALLOC,PTA", "3,FREE,PTA", "4,SYSTEM,STOP_TRACE"]);
    assert_eq!(ids(1), ["0,SYSTEM,START_TRACE", "2,MALLOC,PTA", "4,SYSTEM,STOP_TRACE", "5,FREE,PTA"]);
    assert!(!recording.path().join("device_cpu").exists());
    let names: Vec<String> = report.files.iter().map(|file| file.path.to_string_lossy().into_owned()).collect();
    let prefix = recording.path().join("device_0/dump/memscope_dump_").to_string_lossy().into_owned();
    let digits = names[0].strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".csv")).expect("documented name");
    assert_eq!(digits.len(), 14);
    assert!(digits.bytes().all(|byte| byte.is_ascii_digit()));
}

#[test]
fn modes_are_private_and_no_temporary_file_remains() {
    let recording = two_devices();
    let report = recording.finish(&FinishOptions::default());
    for file in &report.files {
        let mode = fs::metadata(&file.path).expect("file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(fs::metadata(&file.path).expect("file").len(), file.size_bytes);
    }
    let mode = fs::metadata(recording.path().join("device_0/dump")).expect("directory").permissions().mode() & 0o777;
    assert_eq!(mode & !0o750, 0);
    for entry in fs::read_dir(recording.path()).expect("listing") {
        let name = entry.expect("entry").file_name();
        assert!(!name.to_string_lossy().contains("pending"), "{name:?}");
    }
}

#[test]
fn rows_without_any_device_go_to_the_host() {
    let mut recording = Recording::new();
    recording.record(10, Fact::Recording { state: RecordingState::On });
    recording.record(20, Fact::Mark { domain: Default::default(), device: Device::Unknown, message: b"hello" });
    recording.close(60);
    recording.finish(&FinishOptions::default());
    assert_eq!(recording.csv_lines(Device::Host).len(), 2);
}

#[test]
fn an_empty_recording_leaves_no_files() {
    let mut recording = Recording::new();
    recording.close(60);
    let report = recording.finish(&FinishOptions::default());
    assert!(report.files.is_empty());
    assert!(!recording.path().join("device_cpu").exists());
}

#[test]
fn finishing_twice_does_nothing_the_second_time() {
    let recording = two_devices();
    let first = recording.finish(&at(1_700_000_000));
    let text = fs::read(&first.files[0].path).expect("file");
    let second = recording.finish(&at(1_700_000_100));
    assert_eq!(second.outcome, FinishOutcome::AlreadyComplete);
    assert_eq!(second.files, first.files);
    assert_eq!(second.summary, first.summary);
    assert_eq!(second.rows, first.rows);
    assert_eq!(fs::read(&first.files[0].path).expect("file"), text);
}

#[test]
fn other_options_give_new_files_beside_the_old_ones() {
    let recording = two_devices();
    let first = recording.finish(&at(1_700_000_000));
    let devices = DeviceFilter { all_npus: false, npus: vec![0], host: false };
    let filter = EventFilter { devices, ..EventFilter::ALL };
    let timeline = TimelineSettings { filter, ..TimelineSettings::default() };
    let second = recording.finish(&FinishOptions { timeline, ..at(1_700_000_000) });
    assert_eq!(second.outcome, FinishOutcome::Written);
    assert_eq!(second.files.len(), 1);
    assert!(first.files.iter().all(|file| file.path.exists() && file.path != second.files[0].path));
}

#[test]
fn a_taken_name_moves_the_timestamp_on() {
    let recording = two_devices();
    let first = recording.finish(&at(1_700_000_000));
    fs::remove_file(recording.path().join(".finished")).expect("manifest");
    let second = recording.finish(&at(1_700_000_000));
    assert_eq!(second.files.len(), 2);
    for (old, new) in first.files.iter().zip(&second.files) {
        assert_ne!(old.path, new.path);
        assert_eq!(fs::read(&old.path).expect("old"), fs::read(&new.path).expect("new"));
    }
}

#[test]
fn a_running_process_is_continued_under_the_same_names() {
    let mut recording = Recording::new();
    recording.record(20, Fact::Allocation { properties: caching(0), address: 0x10, size_bytes: 100 });
    let timeline = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
    let running = FinishOptions { timeline, ..at(1_700_000_000) };
    let first = recording.finish(&running);
    assert_eq!(first.files[0].rows, 1, "a block is not closed while the process lives");
    recording.record(30, Fact::Allocation { properties: caching(0), address: 0x20, size_bytes: 100 });
    recording.close(60);
    let second = recording.finish(&at(1_700_000_500));
    assert_eq!(second.outcome, FinishOutcome::Continued);
    assert_eq!(second.files.len(), 1);
    assert_eq!(second.files[0].path, first.files[0].path);
    assert_eq!(recording.csv_lines(Device::Npu(0)).len(), 4);
}

#[test]
fn a_running_process_may_add_to_what_its_rows_say_but_take_nothing_away() {
    let mut recording = Recording::new();
    recording.record(20, Fact::Allocation { properties: caching(0), address: 0x10, size_bytes: 100 });
    let running = || TimelineSettings { process_ended: false, ..TimelineSettings::default() };
    let first = recording.finish(&FinishOptions { timeline: running(), ..at(1_700_000_000) });
    recording.record(30, Fact::Allocation { properties: caching(0), address: 0x20, size_bytes: 100 });
    let second = recording.finish(&FinishOptions { timeline: running(), owners: true, ..at(1_700_000_100) });
    assert_eq!((second.outcome, &second.files[0].path), (FinishOutcome::Continued, &first.files[0].path));
    assert!(recording.csv_lines(Device::Npu(0)).iter().all(|line| line.contains("owner:PTA")));
    recording.close(60);
    let third = recording.finish(&at(1_700_000_200));
    assert_eq!(third.outcome, FinishOutcome::Written, "the owners are asked for no longer");
    assert!(second.files[0].path.exists() && second.files[0].path != third.files[0].path);
}

#[test]
fn what_has_moved_to_a_device_is_no_longer_beside_it() {
    let mut recording = Recording::new();
    recording.record(10, Fact::Recording { state: RecordingState::On });
    let timeline = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
    let first = recording.finish(&FinishOptions { timeline, ..at(1_700_000_000) });
    assert!(first.files[0].path.starts_with(recording.path().join("device_cpu")));
    recording.record(20, Fact::Allocation { properties: caching(0), address: 0x10, size_bytes: 100 });
    recording.close(60);
    let second = recording.finish(&at(1_700_000_500));
    assert_eq!(second.outcome, FinishOutcome::Continued);
    assert!(second.files[0].path.starts_with(recording.path().join("device_0")));
    assert!(!first.files[0].path.exists());
}

#[test]
fn python_calls_alone_are_written_in_every_format_beside_the_device_in_use() {
    for (formats, extensions) in [
        (Formats { csv: true, database: false }, &["csv"][..]),
        (Formats { csv: false, database: true }, &["db", "csv"]),
    ] {
        let mut recording = Recording::new();
        let name = recording.string("forward");
        recording.record(10, Fact::Recording { state: RecordingState::Shadow });
        recording.record(20, Fact::Allocation { properties: caching(3), address: 0x10, size_bytes: 100 });
        recording.record(30, Fact::PythonCall { phase: PythonCallPhase::NamedBegin, code: CodeId::NONE, name });
        let end = PythonCallPhase::End;
        recording.record(40, Fact::PythonCall { phase: end, code: CodeId::NONE, name: StringId::NONE });
        let timeline = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
        let report = recording.finish_unchecked(&FinishOptions { formats, timeline, ..at(1_700_000_000) });
        let directory = recording.path().join("device_3").join("dump");
        let paths: Vec<_> = report.files.iter().map(|file| &file.path).collect();
        assert!(paths.iter().all(|path| path.starts_with(&directory)), "{paths:?}");
        let found: Vec<_> = paths.iter().filter_map(|path| path.extension()?.to_str()).collect();
        assert_eq!(found, extensions);
    }
}

#[test]
fn files_changed_by_others_are_not_replaced() {
    let mut recording = Recording::new();
    recording.record(20, Fact::Allocation { properties: caching(0), address: 0x10, size_bytes: 100 });
    let timeline = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
    let first = recording.finish(&FinishOptions { timeline, ..at(1_700_000_000) });
    fs::write(&first.files[0].path, b"edited by the user").expect("writable");
    recording.close(60);
    let second = recording.finish(&at(1_700_000_000));
    assert_eq!(second.outcome, FinishOutcome::Written);
    assert_ne!(second.files[0].path, first.files[0].path);
    assert_eq!(fs::read(&first.files[0].path).expect("file"), b"edited by the user");
}

#[test]
fn remains_of_a_killed_finisher_are_removed() {
    let recording = two_devices();
    fs::write(recording.path().join(".pending-device_0.csv"), b"half").expect("writable");
    let report = recording.finish(&FinishOptions::default());
    assert_eq!(report.files.len(), 2);
    assert_eq!(report.notes.len(), 1);
    assert!(!recording.path().join(".pending-device_0.csv").exists());
}

#[test]
fn a_finisher_killed_while_giving_names_is_continued() {
    let recording = two_devices();
    let first = recording.finish(&at(1_700_000_000));
    // What a kill between the first and the second name leaves behind.
    let manifest = recording.path().join(".finished");
    let text = fs::read_to_string(&manifest).expect("manifest").replace("complete yes", "complete no");
    fs::write(&manifest, text).expect("writable");
    fs::remove_file(&first.files[1].path).expect("removable");
    let second = recording.finish(&at(1_700_000_900));
    assert_eq!(second.outcome, FinishOutcome::Continued);
    let paths = |report: &FinishReport| report.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&first), paths(&second));
    assert!(first.files.iter().all(|file| file.path.exists()));
    assert_eq!(recording.csv_lines(Device::Npu(0)).len(), 4, "one file per device");
}

#[test]
fn two_finishers_do_not_meet() {
    let recording = two_devices();
    let file = fs::File::open(recording.path().join("recording.trace")).expect("trace");
    file.lock().expect("lock");
    let error = finish(recording.path(), &FinishOptions::default(), &mut |_, _| {}).expect_err("busy");
    assert!(matches!(error, FinishError::Busy { .. }), "{error}");
    drop(file);
    assert_eq!(recording.finish(&FinishOptions::default()).files.len(), 2);
}

#[test]
fn the_older_variant_has_its_own_names() {
    let recording = two_devices();
    let formats = Formats { csv: true, database: true };
    let report = recording.finish(&FinishOptions { prefix: "leaks", program: "msleaks", formats, ..at(1_700_000_000) });
    assert_eq!(report.files.len(), 4);
    for file in &report.files {
        let name = file.path.file_name().expect("name").to_string_lossy().into_owned();
        assert!(name.starts_with("leaks_dump_2023"), "{name}");
    }
}

#[test]
fn errors_name_the_file() {
    let empty = tempfile::tempdir().expect("temporary directory");
    let error = finish(empty.path(), &FinishOptions::default(), &mut |_, _| {}).expect_err("no trace");
    assert!(matches!(error, FinishError::Trace { .. }));
    assert!(error.to_string().contains("recording.trace"), "{error}");
    assert!(!error.to_string().contains('\n'));
    fs::write(empty.path().join("recording.trace"), b"something else entirely").expect("writable");
    let error = finish(empty.path(), &FinishOptions::default(), &mut |_, _| {}).expect_err("not a trace");
    assert!(error.to_string().ends_with("not a msmemscope trace"), "{error}");
}
