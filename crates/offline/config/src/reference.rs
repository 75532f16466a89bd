//! The reference page of all options and commands, generated from the table.

use std::fmt::Write as _;

use msmemscope_settings::{EventSet, Variant};

use crate::help::{default_of, file_of, flag_heading, option_heading};
use crate::link::ANALYSIS_NEEDS;
use crate::table::{COMMANDS, CommandSpec, EXIT_STATUSES, Group, OPTIONS, OptionSpec};

/// The reference page of all options and commands, as Markdown.
pub fn reference_page() -> String {
    let variant = Variant::Msmemscope;
    let program = variant.program_name();
    let mut text = String::from(
        "# Options and commands\n\n\
         This page is generated from the options table of the program; `--help` shows the same.\n\n\
         Options may stand before or after the program to run; `--` ends them. A value follows after\n\
         `=` or as the next argument, and the last of several values counts. Lists are separated by `,`\n\
         or the full-width `，`; blanks around items do not matter. Long options may be shortened as\n\
         long as they stay clear. A wrong command line is answered by one line and exit status 2, and\n\
         nothing is created.\n",
    );
    for (group, heading) in Group::HEADINGS {
        let _ = writeln!(text, "\n## {heading}");
        for spec in OPTIONS.iter().filter(|spec| spec.group == *group) {
            option_section(&mut text, variant, spec);
        }
    }
    text.push_str("\n## Commands\n");
    for command in COMMANDS {
        command_section(&mut text, program, command);
    }
    text.push_str(
        "\nEvery command also takes the general options. To run a program that has the name of a\n\
         command, write `--` before it.\n",
    );
    text.push_str("\n## Exit status\n\n| Status | Meaning |\n|---|---|\n");
    for (status, meaning) in EXIT_STATUSES {
        let _ = writeln!(text, "| {status} | {meaning} |");
    }
    linking(&mut text);
    older_names(&mut text);
    text
}

/// A command with its own options, each with its meaning, and the names of those described above.
fn command_section(text: &mut String, program: &str, command: &CommandSpec) {
    let usage = format!("{program} {} {}", command.name, command.operands);
    let _ = writeln!(text, "\n### `{}`\n\n{}", usage.trim_end(), command.summary);
    let mut lines: Vec<String> =
        command.flags.iter().map(|flag| format!("- `{}`: {}", flag_heading(flag), flag.summary)).collect();
    let accepted = || OPTIONS.iter().filter(|spec| command.options.contains(&spec.id));
    let files = accepted().filter_map(|spec| file_of(command, spec));
    lines.extend(files.map(|(heading, summary)| format!("- `{heading}`: {summary}")));
    let shared: Vec<String> = accepted()
        .filter(|spec| file_of(command, spec).is_none())
        .map(|spec| format!("[`--{0}`](#--{0})", spec.names[0]))
        .collect();
    if !shared.is_empty() {
        lines.push(format!("- as described above: {}", shared.join(", ")));
    }
    if !lines.is_empty() {
        let _ = writeln!(text, "\n{}", lines.join("\n"));
    }
}

fn option_section(text: &mut String, variant: Variant, spec: &OptionSpec) {
    let _ = writeln!(text, "\n### `--{}`\n\n{}\n", spec.names[0], spec.summary);
    let _ = writeln!(text, "- Spellings: `{}`", option_heading(spec));
    if !spec.allowed.is_empty() {
        let _ = writeln!(text, "- Allowed: {}", spec.allowed);
    }
    let default = default_of(variant, spec);
    if !default.is_empty() {
        let _ = writeln!(text, "- Default: {default}");
    }
    if !spec.example.is_empty() {
        let _ = writeln!(text, "- Example: `--{}={}`", spec.names[0], spec.example);
    }
    if !spec.python_keys.is_empty() {
        let keys: Vec<String> = spec.python_keys.iter().map(|key| format!("`{key}`")).collect();
        let _ = writeln!(text, "- In Python: `config()` key {}", keys.join(" or "));
    }
    if !spec.values.is_empty() {
        text.push_str("\n| Value | Meaning |\n|---|---|\n");
        for (value, meaning) in spec.values {
            let _ = writeln!(text, "| `{value}` | {meaning} |");
        }
    }
}

fn older_names(text: &mut String) {
    text.push_str(
        "\n## The earlier name\n\nStarted as `msleaks` the program uses the names of earlier releases.\n\n\
         | | `msmemscope` | `msleaks` |\n|---|---|---|\n",
    );
    let [new, old] = Variant::ALL;
    for (what, of) in [
        ("Output directory", Variant::default_output_directory as fn(Variant) -> &'static str),
        ("Start of dump files, table in `.db`", Variant::dump_name),
    ] {
        let _ = writeln!(text, "| {what} | `{}` | `{}` |", of(new), of(old));
    }
}

fn linking(text: &mut String) {
    text.push_str(
        "\n## Events that come along\n\n`alloc` brings `free` and the reverse; `access` brings both. An \
         analysis brings what it needs:\n\n\
         | Analysis | Written too, if the analysis was asked for | Only used by the analysis |\n\
         |---|---|---|\n",
    );
    for needs in ANALYSIS_NEEDS {
        let cell = |events: EventSet| match events.is_empty() {
            true => String::new(),
            false => format!("`{events}`"),
        };
        let _ = writeln!(text, "| `{}` | {} | {} |", needs.analysis, cell(needs.written), cell(needs.collected));
    }
    text.push_str(
        "\nAn explicit `--events=none` (or an empty value) wins: nothing is collected, and analyses are off\n\
         with a note.\n",
    );
}
