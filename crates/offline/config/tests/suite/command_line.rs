//! The shape of a command line: where options may stand, how they may be written, what is started.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use msmemscope_config::{COMMANDS, Command, LevelSet, OPTIONS, UsageError, Variant, parse};
use proptest::prelude::*;

use crate::{parse_text, run_with};

/// The program of a run and its level.
fn program(arguments: &[&str]) -> (Vec<OsString>, LevelSet) {
    match parse_text(arguments) {
        Ok(Command::Run { settings, program, .. }) => (program, settings.level),
        other => panic!("{arguments:?} gave {other:?} instead of a run"),
    }
}

#[test]
fn options_stand_anywhere_before_two_dashes() {
    for (arguments, expected, level) in [
        (&["bash", "x.sh"][..], &["bash", "x.sh"][..], LevelSet::OP),
        (&["bash", "x.sh", "--level=kernel"], &["bash", "x.sh"], LevelSet::KERNEL),
        (&["bash", "--level", "kernel", "x.sh"], &["bash", "x.sh"], LevelSet::KERNEL),
        (&["--level=kernel", "bash", "x.sh"], &["bash", "x.sh"], LevelSet::KERNEL),
        (
            &["--level=1", "--", "python", "x.py", "--level=op", "-v"],
            &["python", "x.py", "--level=op", "-v"],
            LevelSet::KERNEL,
        ),
        (&["python", "--level=1", "--", "-c", "x"], &["python", "-c", "x"], LevelSet::KERNEL),
        (&["--", "--", "x"], &["--", "x"], LevelSet::OP),
        (&["--", "info", "x"], &["info", "x"], LevelSet::OP),
        (&["run", "info", "x"], &["info", "x"], LevelSet::OP),
        (&["run", "--level=1", "--", "job", "-x"], &["job", "-x"], LevelSet::KERNEL),
        (&["job", "-"], &["job", "-"], LevelSet::OP),
        (&["job", ""], &["job", ""], LevelSet::OP),
        (&["job", "info"], &["job", "info"], LevelSet::OP),
        (&["--level=0", "--level=1", "job"], &["job"], LevelSet::KERNEL),
        (&["--lev=1", "job"], &["job"], LevelSet::KERNEL),
    ] {
        let (program, chosen) = program(arguments);
        assert_eq!(program, expected, "{arguments:?}");
        assert_eq!(chosen, level, "{arguments:?}");
    }
}

#[test]
fn env_with_arguments_is_the_program_of_that_name() {
    assert_eq!(program(&["env", "A=1", "python"]).0, ["env", "A=1", "python"]);
    assert!(matches!(parse_text(&["env"]), Ok(Command::Other(other)) if other.command.name == "env"));
    assert!(matches!(parse_text(&["env", "-q"]), Ok(Command::Other(_))));
}

#[test]
fn every_unambiguous_abbreviation_works() {
    let names: Vec<&str> = OPTIONS.iter().flat_map(|spec| spec.names.iter().copied()).collect();
    for spec in OPTIONS {
        for name in spec.names {
            for length in 1..=name.len() {
                let typed = &name[..length];
                let is_exact = names.contains(&typed);
                let fits_others = OPTIONS
                    .iter()
                    .any(|other| other.id != spec.id && other.names.iter().any(|name| name.starts_with(typed)));
                let parsed = parse_text(&[&format!("--{typed}")]);
                let is_ambiguous = matches!(parsed, Err(UsageError::AmbiguousOption { .. }));
                assert_eq!(is_ambiguous, fits_others && !is_exact, "--{typed}: {parsed:?}");
                assert!(!matches!(parsed, Err(UsageError::UnknownOption { .. })), "--{typed}");
            }
        }
    }
}

#[test]
fn help_and_version() {
    for arguments in [&["-h"][..], &["--help"], &["--he"], &["job", "-h"], &["-qh"], &["--help", "--nonsense"]] {
        assert!(matches!(parse_text(arguments), Ok(Command::Help { command: None, .. })), "{arguments:?}");
    }
    for arguments in [&["-v"][..], &["-V"], &["--version"], &["-qv"], &["job", "-v"]] {
        assert!(matches!(parse_text(arguments), Ok(Command::Version { .. })), "{arguments:?}");
    }
    let help = parse_text(&["info", "--help"]);
    assert!(matches!(help, Ok(Command::Help { command: Some(command), .. }) if command.name == "info"));
    assert!(parse_text(&["--nonsense", "--help"]).is_err(), "the first mistake counts");
}

#[test]
fn options_behind_the_program_are_ours_and_that_is_said() {
    let arguments = ["python", "args.py", "--steps", "5", "-qo", "ckpt", "data.txt", "--device=npu:1"];
    let Ok(Command::Run { settings, program, notes }) = parse_text(&arguments) else { panic!("a run") };
    assert_eq!(program, ["python", "args.py", "data.txt"]);
    assert_eq!(settings.steps, [5]);
    let said: Vec<String> = notes.iter().map(ToString::to_string).collect();
    let expected = "taken as options of msmemscope: --steps 5 -qo ckpt --device=npu:1; \
                    write -- before 'python' to pass them on";
    assert_eq!(said, [expected]);

    for arguments in [&["--steps=5", "job", "x"][..], &["--steps=5", "--", "job", "--steps=6"], &["job", "--", "-q"]] {
        let Ok(Command::Run { notes, .. }) = parse_text(arguments) else { panic!("a run") };
        assert_eq!(notes, [], "{arguments:?}");
    }
    for arguments in [["job", "--help"], ["job", "-v"]] {
        let notes = match parse_text(&arguments) {
            Ok(Command::Help { notes, .. } | Command::Version { notes }) => notes,
            other => panic!("{arguments:?}: {other:?}"),
        };
        assert!(notes[0].to_string().starts_with("taken as options of msmemscope: -"), "{notes:?}");
    }
    let older = [OsString::from("job"), OsString::from("-q")];
    let Ok(Command::Run { notes, .. }) = parse(Variant::Msleaks, &older) else { panic!("a run") };
    assert!(notes[0].to_string().starts_with("taken as options of msleaks: -q;"), "{notes:?}");
}

#[test]
fn values_follow_in_either_form() {
    for arguments in [
        &["--output=/data", "job"][..],
        &["--output", "/data", "job"],
        &["--output-path", "/data", "job"],
        &["-o", "/data", "job"],
        &["-o/data", "job"],
        &["-qo/data", "job"],
        &["job", "-qo", "/data"],
        &["--outp=/data", "job"],
    ] {
        let Ok(Command::Run { settings, program, .. }) = parse_text(arguments) else {
            panic!("{arguments:?}");
        };
        assert_eq!(settings.output, Path::new("/data"), "{arguments:?}");
        assert_eq!(program, ["job"]);
    }
    for arguments in [&["job", "--output"][..], &["-o"], &["--output", "--", "job"], &["-o", "--level=0"]] {
        let error = parse_text(arguments).expect_err("a forgotten value");
        assert!(matches!(error, UsageError::MissingValue { .. }), "{arguments:?}: {error}");
    }
}

#[test]
fn comparison_in_all_its_forms() {
    for arguments in [
        &["--compare", "--input=/a,/b"][..],
        &["--compare", "--input", "/a，/b"],
        &["--input-path=/a,/b", "--compare"],
        &["-i", "/a,/b", "--compare"],
        &["--compare", "--input=,/a,,/b,"],
        &["compare", "/a", "/b"],
        &["compare", "--input=/a,/b"],
    ] {
        let Ok(Command::Compare { settings, inputs, notes, .. }) = parse_text(arguments) else {
            panic!("{arguments:?}");
        };
        assert_eq!(inputs, [PathBuf::from("/a"), PathBuf::from("/b")], "{arguments:?}");
        assert_eq!(settings.level, LevelSet::OP);
        assert_eq!(notes, []);
    }
    let Ok(Command::Compare { settings, notes, .. }) =
        parse_text(&["--compare", "--input=/a,/b", "--level=kernel", "job"])
    else {
        panic!("a comparison");
    };
    assert_eq!(settings.level, LevelSet::KERNEL);
    assert_eq!(notes.len(), 1, "the program is not run, and the user is told");
    for arguments in [
        &["compare", "--json", "--html", "/a", "/b"][..],
        &["--compare", "--input=/a,/b", "--json", "--html"],
        &["--json", "--html", "--comp", "-i", "/a,/b"],
    ] {
        let Ok(Command::Compare { as_json, as_html, .. }) = parse_text(arguments) else { panic!("{arguments:?}") };
        assert!(as_json && as_html, "{arguments:?}");
    }
    for arguments in [&["--html", "job"][..], &["--json", "--", "job", "--compare"], &["analyze", "--html", "/a"]] {
        let error = parse_text(arguments).expect_err("an option of a comparison only");
        assert!(matches!(error, UsageError::UnknownOption { .. }), "{arguments:?}: {error}");
    }
    for arguments in [
        &["--compare"][..],
        &["--compare", "--input="],
        &["--compare", "--input=/a"],
        &["--compare", "--input=/a,/b,/c"],
        &["--input=/a,/b"],
        &["--input=/a,/b", "job"],
        &["compare", "/a"],
        &["compare"],
    ] {
        assert!(parse_text(arguments).is_err(), "{arguments:?}");
    }
    let long = format!("--input=/a,/{}", "x".repeat(4096));
    assert!(parse_text(&["--compare", &long]).is_err());
}

#[test]
fn paths_keep_their_bytes() {
    let arguments =
        [b"-o\xff\xfe".to_vec(), b"--input=/\xe9,/\xef\xbc".to_vec(), b"--compare".to_vec()].map(OsString::from_vec);
    let Ok(Command::Compare { settings, inputs, .. }) = parse(Variant::Msmemscope, &arguments) else {
        panic!("a comparison");
    };
    assert_eq!(settings.output, PathBuf::from(OsString::from_vec(b"\xff\xfe".to_vec())));
    assert_eq!(inputs[0], PathBuf::from(OsString::from_vec(b"/\xe9".to_vec())));
    assert_eq!(inputs[1], PathBuf::from(OsString::from_vec(b"/\xef\xbc".to_vec())));
}

#[test]
fn commands_take_their_own_options_only() {
    let Ok(Command::Other(finish)) = parse_text(&["-q", "finish", "--format=db", "a", "b"]) else {
        panic!("a command");
    };
    assert_eq!(finish.command.name, "finish");
    assert_eq!(finish.operands, ["a", "b"]);
    assert!(finish.change.data_formats.is_some_and(|formats| formats.db && !formats.csv));
    assert!(finish.change.events.is_none(), "what is not given is left to the recording");
    let error = parse_text(&["--watch=x", "finish", "a"]).expect_err("an option of another command");
    assert_eq!(error.to_string(), "option '--watch' does not apply to the command 'finish'");
    let Ok(Command::Other(doctor)) = parse_text(&["doctor", "--", "python", "--level=2"]) else {
        panic!("a command");
    };
    assert_eq!(doctor.operands, ["python", "--level=2"]);
}

#[test]
fn older_name_has_its_own_defaults() {
    let arguments = [OsString::from("job")];
    let Ok(Command::Run { settings, .. }) = parse(Variant::Msleaks, &arguments) else {
        panic!("a run");
    };
    assert_eq!(settings.output, Path::new("leaksDumpResults"));
    assert_eq!(settings.variant.dump_name(), "leaks_dump");
    let (current, _) = run_with(&[]).expect("no options");
    assert_eq!(current.output, Path::new("memscopeDumpResults"));
}

#[test]
fn shell_options_must_be_sourced() {
    for option in ["--load-api-env", "--unload-api-env"] {
        let error = parse_text(&[option]).expect_err("not sourced").to_string();
        assert!(error.contains("must be sourced") && error.contains(option), "{error}");
    }
}

/// Arguments that come close to real ones, so that random lines reach deep into the parser.
fn argument() -> impl Strategy<Value = OsString> {
    let names: Vec<String> = OPTIONS
        .iter()
        .flat_map(|spec| spec.names.iter().map(|name| format!("--{name}")))
        .chain(OPTIONS.iter().flat_map(|spec| spec.letters.iter().map(|letter| format!("-{letter}"))))
        .collect();
    let commands: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    let value = prop_oneof![
        "[a-z0-9:,，-]{0,12}",
        "\\PC{0,8}",
        Just("alloc,free".to_string()),
        Just("op0:out1,op1,full-content".to_string()),
        Just("npu:3,cpu".to_string()),
        Just("oom:7".to_string()),
        Just("1,2".to_string()),
    ];
    let name = proptest::sample::select(names);
    prop_oneof![
        4 => (name.clone(), value.clone()).prop_map(|(name, value)| OsString::from(format!("{name}={value}"))),
        2 => (name, any::<prop::sample::Index>())
            .prop_map(|(name, cut)| OsString::from(&name[..=cut.index(name.len())])),
        2 => value.prop_map(OsString::from),
        1 => proptest::sample::select(commands).prop_map(OsString::from),
        1 => Just(OsString::from("--")),
        1 => proptest::collection::vec(1u8.., 0..10).prop_map(OsString::from_vec),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_lines_never_panic_and_errors_are_one_line(
        arguments in proptest::collection::vec(argument(), 0..6),
        is_older in any::<bool>(),
    ) {
        let variant = Variant::ALL[usize::from(is_older)];
        match parse(variant, &arguments) {
            Ok(Command::Run { program, .. }) => prop_assert!(!program.is_empty()),
            Ok(_) => {}
            Err(error) => {
                let text = error.to_string();
                prop_assert!(!text.contains('\n') && text.chars().count() < 700, "{}", text);
            }
        }
    }

    #[test]
    fn every_refused_value_is_named_with_its_option(
        index in 0..OPTIONS.len(),
        value in "[a-zA-Z0-9:,，;/ -]{0,40}",
    ) {
        let spec = &OPTIONS[index];
        let name = format!("--{}", spec.names[0]);
        let argument = OsString::from(format!("{name}={value}"));
        if let Err(error) = parse(Variant::Msmemscope, &[argument, OsString::from("job")]) {
            let text = error.to_string();
            prop_assert!(text.contains(&name), "{}", text);
            prop_assert!(text.contains(&format!("'{value}'")), "{}", text);
        }
    }
}
