//! The help texts, generated from the table.

use std::fmt::Write as _;

use msmemscope_settings::{ReportStyle, Variant, word_of};

use crate::table::{
    COMMANDS, COMPARE, CommandSpec, DEFAULT_OUTPUT, DEFAULT_REPORT, EXIT_STATUSES, FlagSpec, Group, OPTIONAL_VALUE,
    OPTIONS, OptionId, OptionSpec, RUN,
};

/// Width of a terminal nobody has enlarged.
const WIDTH: usize = 80;
/// Column in which descriptions begin.
const DESCRIPTION_COLUMN: usize = 28;

/// The text of `--help`, or of `<command> --help`. At most 80 columns wide.
pub fn help(variant: Variant, command: Option<&CommandSpec>) -> String {
    let mut text = String::new();
    match command.filter(|command| command.name != RUN) {
        Some(command) => command_help(&mut text, variant, command),
        None => main_help(&mut text, variant),
    }
    text
}

fn main_help(text: &mut String, variant: Variant) {
    let program = variant.program_name();
    text.push_str("Description:\n");
    paragraph(
        text,
        2,
        &format!(
            "{program} records the memory events of a program on Ascend NPUs (PyTorch, MindSpore, \
             ATB, plain CANN) and finds leaks, owners, inefficient use, causes of out-of-memory \
             errors and corrupted memory blocks."
        ),
    );
    text.push_str("\nUsage:\n");
    for form in [
        "[options] <program> [arguments]",
        "[options] -- <program> [arguments]",
        "--compare --input=<BASE>,<OTHER> [options]",
        "<command> [options] [arguments]",
    ] {
        let _ = writeln!(text, "  {program} {form}");
    }
    for option in ["--load-api-env", "--unload-api-env"] {
        let _ = writeln!(text, "  source {program} {option}");
    }
    text.push('\n');
    paragraph(
        text,
        2,
        "Options may stand before or after the program; -- ends them, so that arguments with dashes \
         reach the program. Lists are separated by commas, full-width ones too. Long options may be \
         shortened as long as they stay clear.",
    );
    text.push_str("\nCommands:\n");
    for command in COMMANDS {
        entry(text, &format!("{} {}", command.name, command.operands), command.summary);
    }
    let _ = writeln!(text, "\n  '{program} <command> --help' shows the options of a command.");
    for (group, heading) in Group::HEADINGS {
        let _ = writeln!(text, "\n{heading}:");
        for spec in OPTIONS.iter().filter(|spec| spec.group == *group) {
            option_entry(text, default_of(variant, spec), spec);
        }
    }
    text.push_str("\nExamples:\n");
    for (purpose, lines) in EXAMPLES {
        let _ = writeln!(text, "  {purpose}");
        for arguments in *lines {
            let _ = writeln!(text, "    {program} {arguments}");
        }
    }
    text.push_str("\nOutput:\n");
    paragraph(
        text,
        2,
        &format!(
            "Each recorded process has its own directory \
             {output}/{program}_<pid>_<time>_ascend with config.json and, per device, \
             device_<id>/dump/{dump}_<time>.csv or .db. A comparison is written to \
             {output}/compare.",
            output = variant.default_output_directory(),
            dump = variant.dump_name(),
        ),
    );
    text.push_str("\nExit status:\n");
    for (status, meaning) in EXIT_STATUSES {
        entry(text, status, &meaning.replace("msmemscope", program));
    }
}

/// What users do, with the arguments for it, one command line each.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("Record a training and look for leaks:", &["-- python train.py"]),
    ("Record a shell script, with options after it:", &["bash train.sh --level=kernel"]),
    (
        "See who owns the memory, with call stacks, in MindStudio Insight:",
        &["--analysis=decompose --call-stack=python --format=db train.sh"],
    ),
    (
        "Compare two steps:",
        &[
            "--steps=2 --output=step2 -- python train.py",
            "--steps=9 --output=step9 -- python train.py",
            "compare step2 step9",
        ],
    ),
];

fn command_help(text: &mut String, variant: Variant, command: &CommandSpec) {
    let usage = format!("{} {} [options] {}", variant.program_name(), command.name, command.operands);
    let _ = writeln!(text, "Description:\n  {}\n\nUsage:\n  {}", command.summary, usage.trim_end());
    if !command.flags.is_empty() || !command.options.is_empty() {
        text.push_str("\nOptions:\n");
    }
    for flag in command.flags {
        entry(text, &flag_heading(flag), flag.summary);
    }
    for spec in OPTIONS.iter().filter(|spec| command.options.contains(&spec.id)) {
        // Commands that work on a recording take from it what is not given.
        let default = if command.name == COMPARE { default_of(variant, spec) } else { "" };
        match file_of(command, spec) {
            Some((heading, summary)) => entry(text, &heading, summary),
            None => option_entry(text, default, spec),
        }
    }
    text.push_str("\nGeneral options:\n");
    for spec in OPTIONS.iter().filter(|spec| spec.group == Group::General) {
        option_entry(text, default_of(variant, spec), spec);
    }
}

/// All spellings of an option, `-o, --output, --output-path <DIR>`.
pub(crate) fn option_heading(spec: &OptionSpec) -> String {
    let letters = spec.letters.iter().map(|letter| format!("-{letter}"));
    let names = spec.names.iter().map(|name| format!("--{name}"));
    let spellings: Vec<String> = letters.chain(names).collect();
    with_placeholder(spellings.join(", "), spec.placeholder)
}

/// The spellings and the meaning of --output, if it names a file in this command.
pub(crate) fn file_of(command: &CommandSpec, spec: &OptionSpec) -> Option<(String, &'static str)> {
    let summary = command.output_file.filter(|_| spec.id == OptionId::Output)?;
    Some((option_heading(&OptionSpec { placeholder: Some("<FILE>"), ..*spec }), summary))
}

/// The spelling of a command's own option, `--port <NUMBER>`.
pub(crate) fn flag_heading(flag: &FlagSpec) -> String {
    with_placeholder(format!("--{}", flag.name), flag.placeholder)
}

fn with_placeholder(spelling: String, placeholder: Option<&str>) -> String {
    match placeholder {
        Some(optional) if optional.starts_with(OPTIONAL_VALUE) => format!("{spelling}{optional}"),
        Some(placeholder) => format!("{spelling} {placeholder}"),
        None => spelling,
    }
}

/// What holds without the option; empty if nothing can be named.
pub(crate) fn default_of(variant: Variant, spec: &OptionSpec) -> &'static str {
    match spec.default {
        DEFAULT_OUTPUT => variant.default_output_directory(),
        DEFAULT_REPORT => word_of(variant.default_report(), ReportStyle::WORDS),
        default => default,
    }
}

fn option_entry(text: &mut String, default: &str, spec: &OptionSpec) {
    let summary = match default {
        "" => spec.summary.to_string(),
        _ => format!("{} [default: {default}]", spec.summary),
    };
    entry(text, &option_heading(spec), &summary);
    let longest = spec.values.iter().map(|(value, _)| value.len()).max().unwrap_or_default();
    let indent = DESCRIPTION_COLUMN + 2;
    for (value, meaning) in spec.values {
        let _ = write!(text, "{:indent$}{value:<longest$}  ", "");
        wrap(text, indent + longest + 2, meaning);
    }
}

/// A heading on the left and a description on the right, below it if the heading is long.
fn entry(text: &mut String, heading: &str, description: &str) {
    let heading = format!("  {}", heading.trim_end());
    if heading.len() + 2 > DESCRIPTION_COLUMN {
        let _ = write!(text, "{heading}\n{:DESCRIPTION_COLUMN$}", "");
    } else {
        let _ = write!(text, "{heading:<DESCRIPTION_COLUMN$}");
    }
    wrap(text, DESCRIPTION_COLUMN, description);
}

fn paragraph(text: &mut String, indent: usize, words: &str) {
    let _ = write!(text, "{:indent$}", "");
    wrap(text, indent, words);
}

/// Writes words from column `indent` on, broken at the width of the terminal.
fn wrap(text: &mut String, indent: usize, words: &str) {
    let mut column = indent;
    let mut separator = "";
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + separator.len() + length > WIDTH {
            let _ = write!(text, "\n{:indent$}", "");
            column = indent;
            separator = "";
        }
        text.push_str(separator);
        text.push_str(word);
        column += separator.len() + length;
        separator = " ";
    }
    text.push('\n');
}
