//! Every option with good and bad values.

use msmemscope_config::{
    CallStacks, CollectMode, DataFormats, DeviceSelection, GrowthRate, LogLevel, Reaction, ReportStyle, Settings,
    Trigger, UsageError, Variant, apply_python_config,
};

use crate::run_with;

/// The settings that `options` change, checked against a closure that changes the defaults.
fn assert_run(options: &[&str], change: impl FnOnce(&mut Settings)) {
    let (settings, _) = run_with(options).unwrap_or_else(|error| panic!("{options:?}: {error}"));
    let mut expected = Settings::defaults(Variant::Msmemscope);
    change(&mut expected);
    assert_eq!(settings, expected, "{options:?}");
}

/// Checks that each value is refused in one line that names the option and the value.
fn assert_refused(option: &str, values: &[&str]) {
    for value in values {
        let error = run_with(&[&format!("{option}={value}")]).expect_err(value);
        assert!(matches!(error, UsageError::Value(_)), "{option}={value}: {error:?}");
        let text = error.to_string();
        assert!(text.starts_with("invalid value '"), "{text}");
        assert!(text.contains(&format!("' for {option}")), "{text}");
        assert!(text.contains("; allowed: "), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn level() {
    for (value, bits) in [
        ("op", 1),
        ("0", 1),
        ("kernel", 2),
        ("1", 2),
        ("0,1", 3),
        ("op，kernel", 3),
        ("kernel, 0", 3),
        ("", 0),
        (",", 0),
    ] {
        let (settings, _) = run_with(&[&format!("--level={value}")]).expect(value);
        assert_eq!(settings.level.bits(), bits, "{value}");
    }
    assert_refused("--level", &["2", "01", "OP", "op kernel", "op,x", "-1"]);
}

#[test]
fn events_and_analysis() {
    for (options, collected, written, analysis) in [
        (&[][..], "alloc,free,launch", "alloc,free,launch", "leaks"),
        (&["--events=alloc"], "alloc,free", "alloc,free", "leaks"),
        (&["--events=free"], "alloc,free", "alloc,free", "leaks"),
        (&["--events=access"], "alloc,free,access", "alloc,free,access", "leaks"),
        (&["--events=alloc，launch"], "alloc,free,launch", "alloc,free,launch", "leaks"),
        (&["--events=launch", "--analysis="], "launch", "launch", "none"),
        (&["--events=launch", "--analysis=none"], "launch", "launch", "none"),
        (&["--events=launch"], "alloc,free,launch", "launch", "leaks"),
        (&["--events=launch", "--analysis=leaks"], "alloc,free,launch", "alloc,free,launch", "leaks"),
        (&["--analysis="], "alloc,free,launch", "alloc,free,launch", "none"),
        (&["--analysis=decompose"], "alloc,free,launch,access", "alloc,free,launch", "decompose"),
        (
            &["--events=alloc", "--analysis=inefficient"],
            "alloc,free,launch,access",
            "alloc,free,launch,access",
            "inefficient",
        ),
        (&["--analysis=leaks，oom"], "alloc,free,launch", "alloc,free,launch", "leaks,oom"),
        (&["--events=", "--analysis=inefficient"], "none", "none", "none"),
        (&["--events=none"], "none", "none", "none"),
        (&["--events=none,alloc"], "none", "none", "none"),
        (&["--analysis=none,leaks"], "alloc,free,launch", "alloc,free,launch", "none"),
        (&["--events=traceback", "--analysis="], "traceback", "traceback", "none"),
    ] {
        let (settings, _) = run_with(options).expect("valid");
        assert_eq!(settings.events.collected.to_string(), collected, "{options:?}");
        assert_eq!(settings.events.written.to_string(), written, "{options:?}");
        assert_eq!(settings.analysis.to_string(), analysis, "{options:?}");
    }
    assert_refused("--events", &["x", "Alloc", "alloc free", "alloc;free", "all", "none,x"]);
    assert_refused("--analysis", &["x", "oomx", "leak", "oom:", "oom:x", "oom:5:6", "leaks:1"]);
}

#[test]
fn out_of_memory_block_count() {
    for (value, count) in [("oom", 10), ("oom:1", 1), ("oom:1000", 1000), ("leaks,oom:7", 7)] {
        let (settings, _) = run_with(&[&format!("--analysis={value}")]).expect(value);
        assert_eq!(settings.oom_block_count, count);
    }
    assert_refused("--analysis", &["oom:0", "oom:1001", "oom:-1", "oom:01"]);
}

#[test]
fn steps() {
    for (value, steps) in [
        ("1", &[1][..]),
        ("1,2,3,4,5", &[1, 2, 3, 4, 5]),
        ("2，3,234", &[2, 3, 234]),
        ("4294967295", &[u32::MAX]),
        (",7,,7,", &[7]),
        ("9,1", &[1, 9]),
    ] {
        assert_run(&[&format!("--steps={value}")], |settings| settings.steps = steps.to_vec());
    }
    assert_refused(
        "--steps",
        &["", ",", "0", "01", "4294967296", "1,2,3,4,5,6", "-1", "1.5", "one", "0x1", "1 2", "１"],
    );
}

#[test]
fn call_stack() {
    for (value, native_depth, python_depth) in [
        ("c", Some(50), None),
        ("python", None, Some(50)),
        ("c,python", Some(50), Some(50)),
        ("c:20，python:10", Some(20), Some(10)),
        ("c:0", Some(0), None),
        ("c:1000", Some(1000), None),
        ("c:3,c:4", Some(4), None),
        ("", None, None),
    ] {
        assert_run(&[&format!("--call-stack={value}")], |settings| {
            settings.call_stacks = CallStacks { native_depth, python_depth, ..CallStacks::default() };
        });
    }
    for (value, native_depth, python_depth, native_at_allocations_only, python_at_allocations_only) in [
        ("c:alloc", Some(50), None, true, false),
        ("c:20:alloc,python:10", Some(20), Some(10), true, false),
        ("c:20,python:10:alloc", Some(20), Some(10), false, true),
        ("c:20:alloc,c", Some(50), None, false, false),
    ] {
        assert_run(&[&format!("--call-stack={value}")], |settings| {
            settings.call_stacks =
                CallStacks { native_depth, python_depth, native_at_allocations_only, python_at_allocations_only };
        });
    }
    assert_refused(
        "--call-stack",
        &[
            "C",
            "py",
            "c:",
            "c:00",
            "c:010",
            "c:1001",
            "c:-1",
            "python:x",
            "c:5:6",
            "50",
            "alloc",
            "c:alloc:5",
            ":alloc",
            "c:5:free",
        ],
    );
}

#[test]
fn collect_mode() {
    assert_run(&["--collect-mode=immediate"], |_| {});
    assert_run(&["--collect-mode=deferred"], |settings| {
        settings.collect_mode = CollectMode::Deferred;
    });
    assert_refused("--collect-mode", &["", "later", "immediate,deferred", "Deferred"]);
}

#[test]
fn device() {
    let none = DeviceSelection { all_npus: false, npu_slots: 0, cpu: false };
    for (value, devices) in [
        ("npu", DeviceSelection { all_npus: true, ..none }),
        ("npu:0", DeviceSelection { npu_slots: 1, ..none }),
        ("npu:31", DeviceSelection { npu_slots: 1 << 31, ..none }),
        ("npu:0x1f", DeviceSelection { npu_slots: 1 << 31, ..none }),
        ("npu:2，npu:7", DeviceSelection { npu_slots: 1 << 2 | 1 << 7, ..none }),
        ("npu,npu:7", DeviceSelection { all_npus: true, ..none }),
        ("cpu", DeviceSelection { cpu: true, ..none }),
        ("npu,cpu", DeviceSelection { all_npus: true, cpu: true, ..none }),
    ] {
        assert_run(&[&format!("--device={value}")], |settings| settings.devices = devices);
    }
    assert_refused(
        "--device",
        &["", ",", "gpu", "npu:", "npu:32", "npu:-1", "npu:07", "npu:0x", "npu:0x+1", "npu:a", "cpu:0", "0"],
    );
}

#[test]
fn max_trace_size() {
    for (value, bytes) in [("1048576", 1 << 20), ("1MiB", 1 << 20), ("20GiB", 20 << 30), ("2gb", 2_000_000_000)] {
        assert_run(&[&format!("--max-trace-size={value}")], |settings| {
            settings.max_trace_size_bytes = Some(bytes);
        });
    }
    assert_refused("--max-trace-size", &["", "0", "1023KiB", "-1", "1.5GiB", "big", "99999999TiB"]);
}

#[test]
fn flight_recorder() {
    for (option, bytes) in [
        ("--flight-recorder", Some(256 << 20)),
        ("--flight-recorder=on", Some(256 << 20)),
        ("--flight-recorder=8MiB", Some(8 << 20)),
        ("--flight-recorder=off", None),
    ] {
        assert_run(&[option], |settings| settings.flight_recorder_bytes = bytes);
    }
    assert_refused("--flight-recorder", &["0", "7MiB", "-1", "big"]);
}

#[test]
fn triggers_and_reactions() {
    use Trigger::{End, Growth, OutOfMemory, Peak};
    let rate = GrowthRate { bytes: 10 << 20, seconds: 60 };
    for (value, triggers) in [
        ("oom", vec![OutOfMemory]),
        ("end, growth>10MiB/min", vec![End, Growth(rate)]),
        ("peak>1GiB", vec![Peak(Some(1 << 30))]),
        ("none", vec![]),
        ("", vec![]),
    ] {
        assert_run(&[&format!("--trigger={value}")], |settings| settings.triggers = triggers);
    }
    assert_refused("--trigger", &["rain", "growth>1GiB", "oom>1", "peak>"]);
    let reaction = |trigger, command: &str| Reaction { trigger, command: command.to_owned() };
    assert_run(&["--on=oom:run a, b", "--on=peak:run c"], |settings| {
        settings.reactions = vec![reaction(OutOfMemory, "a, b"), reaction(Peak(None), "c")];
    });
    assert_refused("--on", &["", "oom", "oom:run", "end:run x", "oom:stop"]);
}

#[test]
fn data_format() {
    for option in ["--data-format", "--format"] {
        for (value, csv, db) in
            [("csv", true, false), ("db", false, true), ("csv,db", true, true), ("db，csv", true, true)]
        {
            assert_run(&[&format!("{option}={value}")], |settings| {
                settings.data_formats = DataFormats { csv, db };
            });
        }
        assert_refused(option, &["", ",", "sqlite", "CSV", "csv;db"]);
    }
}

#[test]
fn output() {
    for option in ["--output", "--output-path"] {
        assert_run(&[&format!("{option}=/data/projects/output")], |settings| {
            settings.output = "/data/projects/output".into();
        });
        assert_refused(option, &["", " ", "\t\n"]);
    }
    for path in ["a b", "数据，目录/ｘ", "it's \"here\"\n", "-dash", "~"] {
        assert_run(&[&format!("-o{path}")], |settings| settings.output = path.into());
        assert_run(&["-o", path], |settings| settings.output = path.into());
    }
    let longest = "内".repeat(4096);
    assert_run(&["--output", &longest], |settings| settings.output = longest.clone().into());
    assert_refused("--output", &[&"x".repeat(4097)]);
}

#[test]
fn report() {
    assert_run(&["--report=classic"], |settings| settings.report = ReportStyle::Classic);
    assert_run(&["--report=full"], |settings| settings.report = ReportStyle::Full);
    assert_eq!(Settings::defaults(Variant::Msmemscope).report, ReportStyle::Full);
    assert_eq!(Settings::defaults(Variant::Msleaks).report, ReportStyle::Classic);
    assert!(run_with(&["--report=short"]).is_err());
    let change = apply_python_config(&[("report", "classic")]).expect("a key");
    let (settings, _) = change.apply_in_python(&Settings::defaults(Variant::Msmemscope), None, true);
    assert_eq!(settings.report, ReportStyle::Classic);
    let (later, _) = apply_python_config(&[]).expect("no keys").apply_in_python(&settings, None, true);
    assert_eq!(later.report, ReportStyle::Classic, "it holds for the whole process");
}

#[test]
fn log_level() {
    for (options, level) in [
        (&["--log-level=debug"][..], LogLevel::Debug),
        (&["--log-level=info"], LogLevel::Info),
        (&["--log-level=warn"], LogLevel::Warn),
        (&["--log-level=warning"], LogLevel::Warn),
        (&["--log-level=error"], LogLevel::Error),
        (&["--verbose"], LogLevel::Debug),
        (&["--debug"], LogLevel::Debug),
        (&["-q"], LogLevel::Error),
        (&["--quiet"], LogLevel::Error),
        (&["-q", "--debug"], LogLevel::Debug),
        (&["--debug", "-q"], LogLevel::Debug),
        (&["--log-level=info", "--debug", "-q"], LogLevel::Info),
        (&["--debug", "--log-level=error"], LogLevel::Error),
        (&[], LogLevel::Warn),
    ] {
        assert_run(options, |settings| settings.log_level = level);
    }
    assert_refused("--log-level", &["", "warn,info", "WARN", "2", "trace"]);
}

#[test]
fn watch() {
    for value in
        ["op0,op1,full-content", "op0:out1,op1", "op0:1，op1", "end", ",end", "auto", "auto:1GiB", "auto,owner=weight"]
    {
        let (settings, _) = run_with(&[&format!("--watch={value}")]).expect(value);
        assert!(settings.watch.is_some(), "{value}");
    }
    assert_refused("--watch", &["", ",", "op0,", "full-content", "op0:01,op1", "op0,op1,all", "auto:0", "auto,owner="]);
}
