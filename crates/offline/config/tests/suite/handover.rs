//! The environment value: every recording survives it, and nothing makes its reader panic.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use msmemscope_config::{
    AnalysisSet, CallStacks, CollectMode, ColorChoice, DataFormats, DeviceSelection, EventSelection, EventSet,
    HandoverError, LevelSet, LogLevel, Recording, ReportStyle, Settings, Trigger, Variant, Watch, WatchTarget,
};
use proptest::prelude::*;

fn path() -> impl Strategy<Value = PathBuf> {
    proptest::collection::vec(1u8.., 1..60).prop_map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
}

fn watch() -> impl Strategy<Value = Watch> {
    let operators = (proptest::option::of("\\PC{1,20}"), proptest::option::of(0..u32::MAX), "\\PC{1,20}")
        .prop_map(|(start, output_index, end)| WatchTarget::Operators { start, output_index, end });
    let automatic = (proptest::option::of(1u64..), proptest::option::of("\\PC{1,20}"))
        .prop_map(|(size_limit_bytes, owner)| WatchTarget::Automatic { size_limit_bytes, owner });
    (prop_oneof![operators, automatic], any::<bool>()).prop_map(|(target, full_content)| Watch { target, full_content })
}

fn settings() -> impl Strategy<Value = Settings> {
    let sets = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>());
    let stacks = (proptest::option::of(0u16..=1000), proptest::option::of(0u16..=1000), any::<u16>());
    let devices = (any::<bool>(), any::<u32>(), any::<bool>());
    let choices = (0usize..2, 0usize..2, 0usize..4, any::<bool>(), any::<bool>());
    let values = (
        proptest::collection::btree_set(1u32.., 0..5),
        any::<u16>(),
        proptest::option::of(watch()),
        path(),
        proptest::option::of(any::<u64>()),
        proptest::option::of(any::<u64>()),
    );
    (sets, stacks, devices, choices, values).prop_map(|(sets, stacks, devices, choices, values)| {
        let levels = [LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error];
        Settings {
            variant: Variant::ALL[choices.0],
            level: LevelSet::from_bits(sets.0),
            events: EventSelection { collected: EventSet::from_bits(sets.1), written: EventSet::from_bits(sets.2) },
            steps: values.0.into_iter().collect(),
            call_stacks: CallStacks {
                native_depth: stacks.0,
                python_depth: stacks.1,
                native_at_allocations_only: choices.3,
                python_at_allocations_only: choices.4,
            },
            python_frames: stacks.2,
            collect_mode: [CollectMode::Immediate, CollectMode::Deferred][choices.1],
            devices: DeviceSelection { all_npus: devices.0, npu_slots: devices.1, cpu: devices.2 },
            analysis: AnalysisSet::from_bits(sets.3),
            oom_block_count: values.1,
            report: [ReportStyle::Full, ReportStyle::Classic][choices.1],
            watch: values.2,
            data_formats: DataFormats { csv: choices.3, db: choices.4 },
            output: values.3,
            log_level: levels[choices.2],
            color: ColorChoice::default(),
            holders: choices.3,
            max_trace_size_bytes: values.4,
            flight_recorder_bytes: values.5,
            triggers: Trigger::DEFAULT.to_vec(),
            reactions: Vec::new(),
        }
    })
}

fn recording() -> impl Strategy<Value = Recording> {
    (settings(), any::<u64>(), any::<i64>(), any::<bool>(), proptest::option::of(path()), proptest::option::of(path()))
        .prop_map(|(settings, run_id, wall_clock_offset_ns, is_supervised, finisher, package)| Recording {
            settings,
            run_id,
            wall_clock_offset_ns,
            is_supervised,
            finisher,
            python_package: package,
        })
}

proptest! {
    #[test]
    fn every_recording_survives(recording in recording()) {
        let value = recording.to_environment();
        prop_assert!(value.bytes().all(|byte| byte.is_ascii_graphic()), "{}", value);
        prop_assert_eq!(Recording::from_environment(&value), Ok(recording));
    }

    #[test]
    fn unknown_keys_are_ignored(recording in recording(), key in "[a-z]{1,8}", text in "[a-z0-9%]*") {
        let value = format!("{};future_{key}={text}", recording.to_environment());
        prop_assert_eq!(Recording::from_environment(&value), Ok(recording));
    }

    #[test]
    fn damaged_values_never_panic(recording in recording(), cut in any::<prop::sample::Index>(), junk in "\\PC{0,8}") {
        let value = recording.to_environment();
        let cut = cut.index(value.len());
        let damaged = format!("{}{junk}{}", &value[..cut], &value[cut..]);
        let _ = Recording::from_environment(&damaged);
        let _ = Recording::from_environment(&value[..cut]);
        let _ = Recording::from_environment(&junk);
    }
}

#[test]
fn missing_keys_take_defaults() {
    let recording = Recording::from_environment("1;output=/out;run=ff").expect("a minimal value");
    let mut expected = Settings::defaults(Variant::Msmemscope);
    expected.output = PathBuf::from("/out");
    assert_eq!(recording.settings, expected);
    assert_eq!(recording.run_id, 255);
    assert!(!recording.is_supervised);
}

#[test]
fn errors_name_the_part_that_is_wrong() {
    for (value, message) in [
        ("", "MSMEMSCOPE_RECORDING: version '' instead of 1"),
        ("2;output=/out;run=1", "MSMEMSCOPE_RECORDING: version '2' instead of 1"),
        ("1;output=/out", "MSMEMSCOPE_RECORDING: 'run' is missing"),
        ("1;run=1", "MSMEMSCOPE_RECORDING: 'output' is missing"),
        ("1;output=/out;run=xyz", "MSMEMSCOPE_RECORDING: 'run' has the unreadable value 'xyz'"),
        ("1;output=%F;run=1", "MSMEMSCOPE_RECORDING: 'output' has the unreadable value '%F'"),
        ("1;output=/o;run=1;csv=yes", "MSMEMSCOPE_RECORDING: 'csv' has the unreadable value 'yes'"),
        ("1;output=/o;run=1;x", "MSMEMSCOPE_RECORDING: 'x' has the unreadable value ''"),
    ] {
        let error: HandoverError = Recording::from_environment(value).expect_err(value);
        assert_eq!(error.to_string(), message);
    }
}
