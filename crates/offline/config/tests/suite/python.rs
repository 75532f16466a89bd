//! The keys of the Python `config()`.

use msmemscope_config::{
    AnalysisSet, CollectMode, ConfigError, EventSet, LogLevel, Note, Settings, Variant, apply_python_config,
    python_keys,
};

fn defaults() -> Settings {
    Settings::defaults(Variant::Msmemscope)
}

#[test]
fn the_documented_call() {
    let change = apply_python_config(&[
        ("call_stack", "c:10,python:5"),
        ("events", "launch,alloc,free"),
        ("level", "0"),
        ("device", "npu"),
        ("analysis", "leaks,decompose"),
        ("watch", "op0,op1,full-content"),
        ("data_format", "db"),
        ("output", "/data/projects/output"),
    ])
    .expect("the call of the manual");
    let (settings, notes) = change.apply_in_python(&defaults(), None, false);
    assert_eq!(notes, []);
    assert_eq!(settings.call_stacks.native_depth, Some(10));
    assert_eq!(settings.call_stacks.python_depth, Some(5));
    assert_eq!(settings.analysis, AnalysisSet::LEAKS.union(AnalysisSet::DECOMPOSE));
    assert!(settings.events.collected.contains(EventSet::ACCESS));
    assert_eq!(settings.events.written, EventSet::DEFAULT);
    assert!(settings.data_formats.db && !settings.data_formats.csv);
    assert_eq!(settings.output.to_str(), Some("/data/projects/output"));
    assert!(settings.watch.is_some());
    assert_eq!(settings.collect_mode, CollectMode::Deferred);
}

#[test]
fn no_arguments_are_the_defaults() {
    let change = apply_python_config(&[]).expect("no arguments");
    let (settings, notes) = change.apply_in_python(&defaults(), None, false);
    assert_eq!(settings, Settings { collect_mode: CollectMode::Deferred, ..defaults() });
    assert_eq!(notes, []);
}

#[test]
fn both_spellings_mean_the_same() {
    for (one, other, value) in [("data_format", "format", "db"), ("output", "output_path", "/data/out")] {
        let first = apply_python_config(&[(one, value)]).expect(one);
        let second = apply_python_config(&[(other, value)]).expect(other);
        assert_eq!(first, second);
        assert_eq!(apply_python_config(&[(one, value), (other, value)]), Ok(first));
        let error = apply_python_config(&[(one, value), (other, "csv")]).expect_err("contradiction");
        assert!(matches!(error, ConfigError::GivenTwice { .. }), "{error}");
    }
}

#[test]
fn a_further_call_starts_from_defaults_but_keeps_what_holds_for_the_process() {
    let first = apply_python_config(&[
        ("events", "access"),
        ("level", "kernel"),
        ("output", "/data/out"),
        ("data_format", "db"),
        ("log_level", "debug"),
        ("max_trace_size", "2GiB"),
        ("steps", "2"),
    ]);
    let (first, _) = first.expect("valid").apply_in_python(&defaults(), None, false);
    let second = apply_python_config(&[("level", "op"), ("format", "csv"), ("output", "/data/out")]);
    let (second, notes) = second.expect("valid").apply_in_python(&first, None, true);
    assert_eq!(second.events.written, EventSet::DEFAULT);
    assert!(second.steps.is_empty());
    assert_eq!(second.output, first.output);
    assert_eq!(second.data_formats, first.data_formats);
    assert_eq!(second.log_level, LogLevel::Debug);
    assert_eq!(second.max_trace_size_bytes, Some(2 << 30));
    let kept = Note::FixedKey { name: "data_format".into(), kept: "'db'".into(), by_command_line: false };
    assert_eq!(notes, [kept]);
}

#[test]
fn what_a_flight_recorder_has_forgotten_is_gone() {
    let begun = Settings { flight_recorder_bytes: Some(64 << 20), ..defaults() };
    for (value, is_fixed, expected) in
        [("off", false, None), ("off", true, Some(64 << 20)), ("32MiB", true, Some(32 << 20))]
    {
        let change = apply_python_config(&[("flight_recorder", value)]).expect("valid");
        let (settings, notes) = change.apply_in_python(&begun, None, is_fixed);
        assert_eq!(settings.flight_recorder_bytes, expected);
        assert_eq!(notes.len(), usize::from(value == "off" && is_fixed));
    }
    let (settings, _) = apply_python_config(&[]).expect("valid").apply_in_python(&begun, None, true);
    assert_eq!(settings.flight_recorder_bytes, begun.flight_recorder_bytes, "it holds for the process");
}

#[test]
fn keys_that_a_call_does_not_name_stay_as_the_command_line_set_them() {
    let launched = Settings { steps: vec![7], output: "/data/cli".into(), ..defaults() };
    let change = apply_python_config(&[("analysis", "leaks,decompose"), ("output", "/data/script")]).expect("valid");
    let (settings, notes) = change.apply_in_python(&launched, Some(&launched), true);
    assert_eq!((settings.steps, settings.output), (vec![7], "/data/cli".into()));
    assert!(settings.analysis.contains(AnalysisSet::DECOMPOSE));
    let said: Vec<String> = notes.iter().map(ToString::to_string).collect();
    let output = "output can only be set once, before recording starts: '/data/cli' of the command line counts";
    assert_eq!(said, [output]);
    let change = apply_python_config(&[("steps", "2")]).expect("valid");
    let (settings, notes) = change.apply_in_python(&launched, Some(&launched), true);
    assert_eq!(settings.steps, [2]);
    assert_eq!(notes, [Note::CommandLineReplaced { name: "steps" }]);
}

#[test]
fn empty_values_turn_items_off_where_that_makes_sense() {
    let change = apply_python_config(&[("events", ""), ("analysis", ""), ("call_stack", "")]);
    let (settings, notes) = change.expect("valid").apply_in_python(&defaults(), None, false);
    assert!(settings.events.collected.is_empty() && settings.analysis.is_empty());
    assert_eq!(notes, []);
    let watch = apply_python_config(&[("watch", "full,exp")]).expect("valid").watch.expect("given");
    let watching = Settings { watch, ..defaults() };
    for is_fixed in [false, true] {
        let change = apply_python_config(&[("watch", "")]).expect("valid");
        let (settings, notes) = change.apply_in_python(&watching, None, is_fixed);
        assert_eq!((settings.watch, notes), (None, vec![]));
        let (settings, _) = apply_python_config(&[]).expect("valid").apply_in_python(&watching, None, is_fixed);
        assert_eq!(settings.watch, watching.watch, "it holds for the process");
    }
    for key in ["device", "data_format", "format", "steps", "output", "log_level"] {
        let error = apply_python_config(&[(key, "")]).expect_err(key);
        assert!(error.to_string().contains(&format!("'' for {key}")), "{error}");
    }
}

#[test]
fn errors_name_key_and_value() {
    for key in python_keys() {
        // No list, number, word or path can hold this.
        let value = "\u{0}no,such:value:";
        let error = apply_python_config(&[(key, value)]).expect_err(key).to_string();
        assert!(error.contains(key) && error.contains("no,such:value:"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
    let error = apply_python_config(&[("evnts", "alloc")]).expect_err("unknown key").to_string();
    assert_eq!(error, "unknown key 'evnts' (value 'alloc'); did you mean 'events'?");
}
