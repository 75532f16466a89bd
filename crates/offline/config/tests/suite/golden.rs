//! Texts users read, compared with the ones that were reviewed. `UPDATE_GOLDEN=1` rewrites them.

use msmemscope_config::{COMMANDS, Variant, apply_python_config, help, reference_page};
use testkit::golden;

use crate::{parse_text, run_with};

#[test]
fn the_reference_page_is_whole() {
    let page = reference_page();
    let mut columns = None;
    for line in page.lines() {
        let cells = line.starts_with('|').then(|| line.matches('|').count());
        assert!(columns.is_none() || cells.is_none() || columns == cells, "a row of another width: {line}");
        columns = cells;
    }
    for flag in COMMANDS.iter().flat_map(|command| command.flags) {
        assert!(page.contains(&format!("- `--{}", flag.name)) && page.contains(flag.summary), "--{}", flag.name);
    }
}

#[test]
fn help_text() {
    golden!("tests/golden/help.txt", &help(Variant::Msmemscope, None));
    golden!("tests/golden/help-msleaks.txt", &help(Variant::Msleaks, None));
}

#[test]
fn command_help_texts() {
    let mut texts = String::new();
    for command in COMMANDS {
        let text = help(Variant::Msmemscope, Some(command));
        if command.name == "run" {
            assert_eq!(text, help(Variant::Msmemscope, None), "run is what the main help is about");
        } else {
            texts.push_str(&format!("$ msmemscope {} --help\n{text}\n", command.name));
        }
    }
    golden!("tests/golden/help-commands.txt", &texts);
}

#[test]
fn help_texts_fit_a_terminal() {
    for variant in Variant::ALL {
        let texts = COMMANDS.iter().map(Some).chain([None]).map(|command| help(variant, command));
        for line in texts.flat_map(|text| text.lines().map(str::to_string).collect::<Vec<_>>()) {
            assert!(line.chars().count() <= 80, "{line}");
            assert_eq!(line.trim_end(), line, "trailing blanks");
            assert!(line.is_ascii(), "{line}");
        }
    }
}

#[test]
fn help_has_every_section_in_order() {
    let text = help(Variant::Msmemscope, None);
    let mut position = 0;
    for heading in [
        "Description:",
        "Usage:",
        "Environment setup:",
        "General options:",
        "Collection options:",
        "Analysis options:",
        "Input / Output options:",
        "Examples:",
        "Output:",
    ] {
        let found = text[position..].find(&format!("{heading}\n"));
        position += found.unwrap_or_else(|| panic!("{heading} is missing or out of order"));
    }
    assert!(text.contains("msmemscope -- python train.py"));
    assert!(text.contains("--output-path <DIR>"));
}

#[test]
fn reference_page_is_up_to_date() {
    golden!("../../../docs/reference/options.md", &reference_page());
}

#[test]
fn errors() {
    let cases: &[&[&str]] = &[
        &["--levl=op"],
        &["--evnts", "alloc"],
        &["-x"],
        &["-level=op"],
        &["--ver"],
        &["--de=npu"],
        &["--help=x"],
        &["--output"],
        &["--steps", "--level=op"],
        &["--level=opp"],
        &["--level=op,kernal"],
        &["--level=2"],
        &["--events=aloc,free"],
        &["--events=non"],
        &["--events=ALLOC"],
        &["--steps="],
        &["--steps=0"],
        &["--steps=1,2,3,4,5,6"],
        &["--steps=4294967296"],
        &["--steps=01"],
        &["--steps=a\nb"],
        &["--call-stack=pyton"],
        &["--call-stack=c:1001"],
        &["--call-stack=c:00"],
        &["--collect-mode="],
        &["--collect-mode=defered"],
        &["--device="],
        &["--device=npu:32"],
        &["--device=gpu"],
        &["--max-trace-size=10"],
        &["--max-trace-size=10 parsecs"],
        &["--analysis=leak"],
        &["--analysis=oom:0"],
        &["--analysis=oom:1001"],
        &["--watch="],
        &["--watch=full-content"],
        &["--watch=op0,op1,full"],
        &["--watch=op0:x,op1"],
        &["--watch=auto:much"],
        &["--watch=auto,owner="],
        &["--watch=op0,owner=weight"],
        &["--watch=auto,owner=PTA@model@weight"],
        &["--output="],
        &["--data-format="],
        &["--data-format=sqlite"],
        &["--log-level=warm"],
        &["--compare"],
        &["--compare", "--input=/a"],
        &["--input=/a,/b", "job"],
        &["--load-api-env"],
        &[],
        &["--level=op"],
        &["bash", "train.sh", "--epochs", "5"],
        &["python", "-c", "print()"],
        &["compare", "a"],
        &["--leaks", "prog"],
        &["analyze", "--leaks", "a"],
        &["analyze", "--html", "a"],
        &["--device=0", "prog"],
        &["--steps=1-5", "prog"],
        &["compare", "a", "b", "c"],
        &["info"],
        &["info", "dir", "--watch=x"],
        &["--steps=1", "info", "dir"],
        &["doctor", "--levl=op"],
    ];
    let mut texts = String::new();
    for arguments in cases {
        let error = parse_text(arguments).expect_err(&format!("{arguments:?}")).to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        texts.push_str(&format!("$ msmemscope {}\n{error}\n\n", arguments.join(" ").escape_debug()));
    }
    for arguments in [
        &[("levl", "op")][..],
        &[("collect_mode", "deferred")],
        &[("device", "")],
        &[("format", "db"), ("data_format", "csv")],
    ] {
        let error = apply_python_config(arguments).expect_err(&format!("{arguments:?}"));
        let call: Vec<String> = arguments.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        texts.push_str(&format!(">>> msmemscope.config({})\n{error}\n\n", call.join(", ")));
    }
    golden!("tests/golden/errors.txt", &texts);
}

#[test]
fn notes() {
    let mut texts = String::new();
    for options in [
        &["--events=none,alloc"][..],
        &["--analysis=none,leaks"],
        &["--events=", "--analysis=decompose,inefficient"],
        &["--events=none"],
        &["--device=npu,npu:3"],
    ] {
        let (_, notes) = run_with(options).expect("accepted");
        texts.push_str(&format!("$ msmemscope {} job\n", options.join(" ")));
        notes.iter().for_each(|note| texts.push_str(&format!("{note}\n")));
        texts.push('\n');
    }
    golden!("tests/golden/notes.txt", &texts);
}
