//! What shells and `man` know about the program: completion scripts and manual pages, made from the table of options.
//!
//! The program parses its own command line, because options of two programs and of Python share one table. Here the same
//! table becomes the description that the well-known generators understand.

use clap::{Arg, ArgAction, Command, ValueHint, builder::PossibleValuesParser};
use clap_complete::{Generator, Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use msmemscope_config::{
    COMMANDS, CommandSpec, EXIT_STATUSES, FlagSpec, Invocation, OPTIONS, OptionId, OptionSpec, Variant, takes_option,
};

use crate::{Outcome, print};

/// `completion <shell>`: the script that teaches a shell our words.
pub fn print_completion(invocation: &Invocation, variant: Variant) -> Outcome {
    let word = invocation.operands.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let shell = match word.as_ref() {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        other => return Err(format!("there is no completion for '{other}'; allowed are bash, zsh and fish")),
    };
    print(&completion(shell, variant))
}

fn completion(shell: impl Generator, variant: Variant) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut description(variant), variant.program_name(), &mut script);
    script
}

/// `manual [<command>]`: a manual page, for `man -l -`.
pub fn print_manual(invocation: &Invocation, variant: Variant) -> Outcome {
    let page = match invocation.operands.first() {
        None => manual(variant, None),
        Some(word) => {
            let word = word.to_string_lossy();
            let command = COMMANDS.iter().find(|command| command.name == word);
            let command = command.ok_or_else(|| format!("there is no command '{word}'"))?;
            manual(variant, Some(command))
        }
    };
    print(&page.map_err(|error| format!("cannot write the manual page: {error}"))?)
}

fn manual(variant: Variant, of: Option<&'static CommandSpec>) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let program = variant.program_name();
    let description = match of {
        None => description(variant),
        Some(command) => {
            let full_name = format!("{program}-{}", command.name);
            let typed = format!("{program} {}", command.name);
            command_description(command).name(full_name.clone()).display_name(full_name).bin_name(typed)
        }
    };
    Man::new(description).manual(format!("{program} manual")).render(&mut page)?;
    if of.is_none() {
        let mut statuses = Roff::new();
        statuses.control("SH", ["EXIT STATUS"]);
        for (status, meaning) in EXIT_STATUSES {
            statuses.control("TP", []).text([bold(*status)]).text([roman(*meaning)]);
        }
        page.extend(statuses.render().into_bytes());
    }
    Ok(page)
}

/// The whole command line: commands, or options and the program to record.
fn description(variant: Variant) -> Command {
    let options = OPTIONS.iter().map(option);
    let program = Arg::new("program")
        .help("Program to record, with its arguments")
        .num_args(1..)
        .trailing_var_arg(true)
        .value_hint(ValueHint::CommandWithArguments);
    Command::new(variant.program_name())
        .about("Record the memory events of a program on Ascend NPUs and find leaks, owners and waste")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args(options)
        .arg(program)
        .subcommands(COMMANDS.iter().map(command_description))
}

fn command_description(command: &'static CommandSpec) -> Command {
    let shared = OPTIONS.iter().filter(|spec| takes_option(command, spec)).map(|spec| option_of(command, spec));
    let operands = Arg::new("operands").value_name(command.operands).num_args(0..);
    let takes_program = ["<program>", "<command>"].iter().any(|word| command.operands.contains(word));
    let operands = match takes_program {
        true => operands.trailing_var_arg(true).value_hint(ValueHint::CommandWithArguments),
        false => operands.value_hint(ValueHint::AnyPath),
    };
    let operands = (!command.operands.is_empty()).then_some(operands);
    Command::new(command.name)
        .about(command.summary)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(command.flags.iter().map(flag))
        .args(shared)
        .args(operands)
}

fn flag(spec: &'static FlagSpec) -> Arg {
    with_value(Arg::new(spec.name).long(spec.name).help(spec.summary), spec.placeholder, &[])
}

/// An option as a command takes it: some name a file with --output, not a directory.
fn option_of(command: &'static CommandSpec, spec: &'static OptionSpec) -> Arg {
    match command.output_file.filter(|_| spec.id == OptionId::Output) {
        Some(summary) => option(spec).help(summary).value_name("FILE"),
        None => option(spec),
    }
}

fn option(spec: &'static OptionSpec) -> Arg {
    let mut arg = Arg::new(spec.names[0]).long(spec.names[0]).help(spec.summary);
    for alias in &spec.names[1..] {
        arg = arg.visible_alias(*alias);
    }
    for (place, letter) in spec.letters.iter().enumerate() {
        arg = if place == 0 { arg.short(*letter) } else { arg.visible_short_alias(*letter) };
    }
    let words: Vec<&'static str> = spec.values.iter().flat_map(|(cell, _)| fixed_words(cell)).collect();
    with_value(arg, spec.placeholder, &words)
}

/// Says what follows an option: nothing, one of the words, a path, or something only the user knows.
fn with_value(arg: Arg, placeholder: Option<&'static str>, words: &[&'static str]) -> Arg {
    let Some(placeholder) = placeholder else {
        return arg.action(ArgAction::SetTrue);
    };
    let arg = arg.value_name(placeholder.trim_matches(|sign| "<>".contains(sign)));
    if ["DIR", "FILE", "BASE"].iter().any(|kind| placeholder.contains(kind)) {
        arg.value_hint(ValueHint::AnyPath)
    } else if words.is_empty() {
        arg.value_hint(ValueHint::Other)
    } else {
        arg.value_delimiter(',').value_parser(PossibleValuesParser::new(words))
    }
}

/// The words in a cell of the table that can be typed as they are: `op, 0` has two, `oom[:K]` one, `npu:ID` none.
fn fixed_words(cell: &'static str) -> impl Iterator<Item = &'static str> {
    let is_fixed = |word: &&str| !word.is_empty() && !word.contains(|letter: char| letter.is_ascii_uppercase());
    cell.split(", ").map(|word| word.split('[').next().unwrap_or(word)).filter(is_fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_consistent() {
        for variant in Variant::ALL {
            description(variant).debug_assert();
        }
    }

    #[test]
    fn words_of_a_cell() {
        let words = |cell: &'static str| fixed_words(cell).collect::<Vec<_>>();
        assert_eq!(words("op, 0"), ["op", "0"]);
        assert_eq!(words("oom[:K]"), ["oom"]);
        assert_eq!(words("npu:ID"), [""; 0]);
    }

    #[test]
    fn scripts_know_every_command_and_option() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completion(shell, Variant::Msmemscope)).expect("text");
            for command in COMMANDS {
                assert!(script.contains(command.name), "{shell}: {}", command.name);
            }
            for name in OPTIONS.iter().flat_map(|spec| spec.names) {
                assert!(script.contains(name), "{shell}: --{name}");
            }
        }
    }

    #[test]
    fn manual_pages_have_every_option_and_status() {
        let page = String::from_utf8(manual(Variant::Msmemscope, None).expect("a page")).expect("text");
        for name in OPTIONS.iter().map(|spec| spec.names[0]) {
            assert!(page.contains(&name.replace('-', "\\-")), "--{name}");
        }
        for (status, _) in EXIT_STATUSES {
            assert!(page.contains(&format!("\\fB{status}\\fR")), "{status}");
        }
        let check = COMMANDS.iter().find(|command| command.name == "check");
        let page = String::from_utf8(manual(Variant::Msmemscope, check).expect("a page")).expect("text");
        assert!(page.contains("msmemscope\\-check") && page.contains("max\\-peak"), "{page}");
        let synopsis = page.split(".SH ").find(|section| section.starts_with("SYNOPSIS")).expect("a synopsis");
        assert!(synopsis.contains("msmemscope check") && !synopsis.contains("msmemscope\\-check"), "{synopsis}");
    }
}
