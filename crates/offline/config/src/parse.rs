//! The command line: options anywhere, abbreviations, both launch forms, commands.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use msmemscope_settings::{LogLevel, Settings, Variant, printable};

use crate::change::{SettingsChange, read_input};
use crate::error::UsageError;
use crate::note::Note;
use crate::suggest::nearest;
use crate::table::{
    COMMANDS, COMPARE, CommandSpec, FlagSpec, Group, OPTIONAL_VALUE, OPTIONS, OptionId, OptionSpec, RUN,
};

/// What the user wants done.
#[derive(Clone, Debug)]
pub enum Command {
    /// Show the help text. See [`crate::help()`].
    Help {
        /// Of one command, or of the whole program.
        command: Option<&'static CommandSpec>,
        /// What the user should be told first.
        notes: Vec<Note>,
    },
    /// Show the version.
    Version {
        /// What the user should be told first.
        notes: Vec<Note>,
    },
    /// Record a program.
    Run {
        /// The settings.
        settings: Settings,
        /// The program and its arguments, never empty.
        program: Vec<OsString>,
        /// What the user should be told first.
        notes: Vec<Note>,
    },
    /// Compare two recordings.
    Compare {
        /// The settings.
        settings: Settings,
        /// The base and the other recording; the same twice to compare two steps of one.
        inputs: [PathBuf; 2],
        /// Whether the summary is wanted as JSON.
        as_json: bool,
        /// Whether a page is wanted as well.
        as_html: bool,
        /// What the user should be told first.
        notes: Vec<Note>,
    },
    /// Any other command of the table.
    Other(Invocation),
}

/// A command of the table with its arguments.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The command.
    pub command: &'static CommandSpec,
    /// Options of the main table; what is not given is left to the recording in question.
    pub change: SettingsChange,
    /// The arguments, as many as the table allows.
    pub operands: Vec<OsString>,
    /// The command's own options in the order given, with their values.
    pub flags: Vec<(&'static str, Option<OsString>)>,
}

impl Invocation {
    /// Whether the command's own option `name` (without dashes) was given.
    pub fn has_flag(&self, name: &str) -> bool {
        self.flags.iter().any(|(flag, _)| *flag == name)
    }

    /// The values given to the command's own option `name`, in order.
    pub fn flag_values(&self, name: &str) -> impl Iterator<Item = &OsStr> {
        self.flags.iter().filter(move |(flag, _)| *flag == name).filter_map(|(_, value)| value.as_deref())
    }

    /// The last value given to the command's own option `name`.
    pub fn flag_value(&self, name: &str) -> Option<&OsStr> {
        let given = self.flags.iter().rev().find(|(flag, _)| *flag == name)?;
        given.1.as_deref()
    }
}

/// Reads a command line, without the program's own name (`argv[1..]`).
///
/// Options may stand anywhere, also after the program to run; `--` ends them. The first mistake ends
/// the reading, as do `--help` and `--version`.
pub fn parse(variant: Variant, arguments: &[OsString]) -> Result<Command, UsageError> {
    let mut parser = Parser { variant, ..Parser::default() };
    parser.will_compare = parser.asks_for_comparison(arguments);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        let first = arguments.len() - rest.len() - 1;
        let is_behind_program = parser.is_run() && !parser.operands.is_empty();
        if bytes == b"--" {
            parser.operands.extend(rest.cloned());
            break;
        }
        let request = if let Some(long) = bytes.strip_prefix(b"--") {
            parser.long_option(long, &mut rest)?
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            parser.letters(argument, &mut rest)?
        } else {
            parser.operand(argument, rest.as_slice())?;
            continue;
        };
        if is_behind_program {
            parser.taken.extend_from_slice(&arguments[first..arguments.len() - rest.len()]);
        }
        match request {
            Some(Request::Help) => return Ok(Command::Help { command: parser.command, notes: parser.taken_notes() }),
            Some(Request::Version) => return Ok(Command::Version { notes: parser.taken_notes() }),
            None => {}
        }
    }
    parser.finish()
}

/// A resolved option: one of the main table or one of the command.
#[derive(Clone, Copy)]
enum Found {
    Main(&'static OptionSpec),
    Own(&'static FlagSpec),
}

impl Found {
    fn placeholder(self) -> Option<&'static str> {
        match self {
            Found::Main(spec) => spec.placeholder,
            Found::Own(flag) => flag.placeholder,
        }
    }

    fn takes_value(self) -> bool {
        self.placeholder().is_some()
    }

    /// Whether the value may be left out.
    fn is_optional(self) -> bool {
        self.placeholder().is_some_and(|placeholder| placeholder.starts_with(OPTIONAL_VALUE))
    }

    fn allowed(self) -> &'static str {
        match self {
            Found::Main(spec) => spec.allowed,
            Found::Own(flag) => flag.placeholder.unwrap_or_default(),
        }
    }

    fn is_same(self, other: Found) -> bool {
        match (self, other) {
            (Found::Main(left), Found::Main(right)) => left.id == right.id,
            (Found::Own(left), Found::Own(right)) => left.name == right.name,
            _ => false,
        }
    }
}

/// What ends the reading at once.
enum Request {
    Help,
    Version,
}

type Rest<'a> = std::slice::Iter<'a, OsString>;

#[derive(Default)]
struct Parser {
    variant: Variant,
    change: SettingsChange,
    command: Option<&'static CommandSpec>,
    operands: Vec<OsString>,
    flags: Vec<(&'static str, Option<OsString>)>,
    /// Main options seen so far with the spelling used, to check them against a command that follows.
    seen: Vec<(&'static OptionSpec, String)>,
    /// Options of ours that stand behind the program's name, with their values.
    taken: Vec<OsString>,
    is_verbose: bool,
    is_quiet: bool,
    is_comparison: bool,
    /// Whether `--compare` stands anywhere, so that the options of that command are known before it, too.
    will_compare: bool,
    /// The paths of `--input` and its value as given.
    input: Option<([PathBuf; 2], String)>,
}

impl Parser {
    /// Whether `--compare` is among the arguments. What begins with two dashes is never a value.
    fn asks_for_comparison(&self, arguments: &[OsString]) -> bool {
        let options = arguments.iter().map(|argument| argument.as_bytes()).take_while(|argument| *argument != b"--");
        options.filter_map(|argument| argument.strip_prefix(b"--")).any(|typed| {
            let found = self.resolve(OsStr::from_bytes(typed));
            matches!(found, Ok((_, Found::Main(spec))) if spec.id == OptionId::Compare)
        })
    }

    /// The options that only the command has; without a command those of what `--compare` stands for.
    fn own_flags(&self) -> &'static [FlagSpec] {
        let comparison = || COMMANDS.iter().find(|command| self.will_compare && command.name == COMPARE);
        self.command.or_else(comparison).map_or(&[], |command| command.flags)
    }

    /// Handles `--name`, `--name=value` and `--name value`, given without the dashes.
    fn long_option(&mut self, long: &[u8], rest: &mut Rest<'_>) -> Result<Option<Request>, UsageError> {
        let mut halves = long.splitn(2, |byte| *byte == b'=');
        let typed = OsStr::from_bytes(halves.next().unwrap_or_default());
        let inline = halves.next().map(OsStr::from_bytes);
        let (name, found) = self.resolve(typed)?;
        let name = format!("--{name}");
        let value = match (found.takes_value(), inline) {
            (true, Some(value)) => Some(value),
            (true, None) if found.is_optional() => None,
            (true, None) => Some(next_value(&name, found, rest)?),
            (false, None) => None,
            (false, Some(value)) => {
                return Err(UsageError::UnexpectedValue { option: name, value: printable(value) });
            }
        };
        self.take(found, name, value)
    }

    /// Handles `-x`, `-xy`, `-x value` and `-xvalue`.
    fn letters(&mut self, argument: &OsStr, rest: &mut Rest<'_>) -> Result<Option<Request>, UsageError> {
        let bytes = argument.as_bytes();
        for position in 1..bytes.len() {
            let letter = char::from(bytes[position]);
            let Some(spec) = OPTIONS.iter().find(|spec| spec.letters.contains(&letter)) else {
                return Err(self.unknown_option(argument));
            };
            let found = Found::Main(spec);
            let name = format!("-{letter}");
            let attached = &bytes[position + 1..];
            let value = match found.takes_value() {
                false => None,
                true if attached.is_empty() => Some(next_value(&name, found, rest)?),
                true => Some(OsStr::from_bytes(attached)),
            };
            if let Some(request) = self.take(found, name, value)? {
                return Ok(Some(request));
            }
            if value.is_some() {
                break;
            }
        }
        Ok(None)
    }

    /// The option that `typed` names or abbreviates, with its full name.
    fn resolve(&self, typed: &OsStr) -> Result<(&'static str, Found), UsageError> {
        let with_dashes = || format!("--{}", printable(typed));
        let Some(text) = typed.to_str().filter(|text| !text.is_empty()) else {
            return Err(self.unknown_option(OsStr::new(&with_dashes())));
        };
        let own = self.own_flags().iter().map(|flag| (flag.name, Found::Own(flag)));
        let main = OPTIONS.iter().flat_map(|spec| spec.names.iter().map(move |name| (*name, Found::Main(spec))));
        let fitting: Vec<(&'static str, Found)> = own.chain(main).filter(|(name, _)| name.starts_with(text)).collect();
        if let Some(exact) = fitting.iter().find(|(name, _)| *name == text) {
            return Ok(*exact);
        }
        match fitting[..] {
            [] => Err(self.unknown_option(OsStr::new(&with_dashes()))),
            [first, ref others @ ..] if others.iter().all(|other| other.1.is_same(first.1)) => Ok(first),
            _ => Err(UsageError::AmbiguousOption {
                option: with_dashes(),
                candidates: fitting.iter().map(|(name, _)| *name).collect(),
            }),
        }
    }

    fn unknown_option(&self, typed: &OsStr) -> UsageError {
        let typed = printable(typed);
        let word = typed.trim_start_matches('-').split('=').next().unwrap_or_default();
        let main = OPTIONS.iter().filter(|spec| applies(self.command, spec));
        let names =
            self.own_flags().iter().map(|flag| flag.name).chain(main.flat_map(|spec| spec.names.iter().copied()));
        UsageError::UnknownOption {
            suggestion: analysis_word(word)
                .or_else(|| report_format(word).filter(|_| !self.is_run()))
                .or_else(|| nearest(word, names).map(|name| format!("--{name}"))),
            program: self.is_run().then(|| self.operands.first().map(|name| printable(name))).flatten(),
            option: typed,
        }
    }

    /// Acts on an option; `Some` if nothing after it matters.
    fn take(&mut self, found: Found, name: String, value: Option<&OsStr>) -> Result<Option<Request>, UsageError> {
        let spec = match found {
            Found::Main(spec) => spec,
            Found::Own(flag) => {
                self.flags.push((flag.name, value.map(OsStr::to_os_string)));
                return Ok(None);
            }
        };
        check_applies(self.command, spec, &name)?;
        let value = value.unwrap_or_default();
        match spec.id {
            OptionId::Help => return Ok(Some(Request::Help)),
            OptionId::Version => return Ok(Some(Request::Version)),
            OptionId::LoadApiEnvironment | OptionId::UnloadApiEnvironment => {
                return Err(UsageError::MustBeSourced { option: name, program: self.variant.program_name() });
            }
            OptionId::Verbose => self.is_verbose = true,
            OptionId::Quiet => self.is_quiet = true,
            OptionId::Compare => self.is_comparison = true,
            OptionId::Input => {
                self.input = Some((read_input(spec, &name, value)?, printable(value)));
            }
            _ => self.change.set(spec, &name, value)?,
        }
        self.seen.push((spec, name));
        Ok(None)
    }

    /// Takes an argument that is no option: a command if it is the first, else a part of the program.
    fn operand(&mut self, argument: &OsString, rest: &[OsString]) -> Result<(), UsageError> {
        if self.command.is_none() && self.operands.is_empty() && !self.is_comparison {
            let is_alone = || rest.iter().all(|other| other.as_bytes().starts_with(b"-"));
            let command = COMMANDS
                .iter()
                .find(|command| argument.as_os_str() == command.name)
                .filter(|command| !command.only_alone || is_alone());
            if let Some(command) = command {
                for (spec, name) in &self.seen {
                    check_applies(Some(command), spec, name)?;
                }
                self.command = Some(command);
                return Ok(());
            }
        }
        self.operands.push(argument.clone());
        Ok(())
    }

    /// That options behind the program's name were taken as ours, if there are any.
    fn taken_notes(&self) -> Vec<Note> {
        let Some(program) = self.operands.first().filter(|_| !self.taken.is_empty()) else { return Vec::new() };
        let words: Vec<String> = self.taken.iter().map(|word| printable(word)).collect();
        let tool = self.variant.program_name();
        vec![Note::TakenFromProgram { tool, options: words.join(" "), program: printable(program) }]
    }

    fn is_run(&self) -> bool {
        self.command.is_none_or(|command| command.name == RUN)
    }

    fn finish(mut self) -> Result<Command, UsageError> {
        if self.change.log_level.is_none() {
            self.change.log_level = match (self.is_verbose, self.is_quiet) {
                (true, _) => Some(LogLevel::Debug),
                (false, true) => Some(LogLevel::Error),
                (false, false) => None,
            };
        }
        if self.is_comparison || self.command.is_some_and(|command| command.name == COMPARE) {
            return self.finish_comparison();
        }
        if let Some((_, value)) = self.input {
            return Err(UsageError::InputWithoutCompare { value });
        }
        if let Some(command) = self.command.filter(|command| command.name != RUN) {
            check_count(self.variant, command, self.operands.len())?;
            return Ok(Command::Other(Invocation {
                command,
                change: self.change,
                operands: self.operands,
                flags: self.flags,
            }));
        }
        if self.operands.first().is_none_or(|program| program.is_empty()) {
            return Err(UsageError::NoProgram);
        }
        let (settings, mut notes) = self.change.apply_to(&Settings::defaults(self.variant));
        notes.extend(self.taken_notes());
        Ok(Command::Run { settings, program: self.operands, notes })
    }

    fn finish_comparison(mut self) -> Result<Command, UsageError> {
        let inputs = match (self.input, self.command) {
            (Some((inputs, _)), _) => {
                if let Some(program) = self.operands.first() {
                    self.change.notes.push(Note::ProgramIgnored { program: printable(program) });
                }
                inputs
            }
            (None, None) => return Err(UsageError::CompareWithoutInput),
            (None, Some(command)) => {
                check_count(self.variant, command, self.operands.len())?;
                let mut paths = self.operands.into_iter().map(PathBuf::from);
                match (paths.next(), paths.next()) {
                    (Some(base), Some(other)) => [base, other],
                    (Some(only), None) if self.change.steps.is_some() => [only.clone(), only],
                    _ => return Err(UsageError::CompareWithItself),
                }
            }
        };
        let (settings, notes) = self.change.apply_to(&Settings::defaults(self.variant));
        let has_flag = |name: &str| self.flags.iter().any(|(flag, _)| *flag == name);
        let (as_json, as_html) = (has_flag("json"), has_flag("html"));
        Ok(Command::Compare { settings, inputs, as_json, as_html, notes })
    }
}

/// The argument after an option that needs a value. Another option there means that it was forgotten.
fn next_value<'a>(name: &str, found: Found, rest: &mut Rest<'a>) -> Result<&'a OsStr, UsageError> {
    let missing = || UsageError::MissingValue { option: name.to_string(), allowed: found.allowed() };
    match rest.next() {
        Some(value) if !value.as_bytes().starts_with(b"--") => Ok(value),
        _ => Err(missing()),
    }
}

/// Whether a main option means something for a command; without a command all of them do.
/// Whether a command takes an option of the main table.
pub fn takes_option(command: &CommandSpec, spec: &OptionSpec) -> bool {
    applies(Some(command), spec)
}

pub(crate) fn applies(command: Option<&CommandSpec>, spec: &OptionSpec) -> bool {
    command.is_none_or(|command| spec.group == Group::General || command.options.contains(&spec.id))
}

fn check_applies(command: Option<&'static CommandSpec>, spec: &OptionSpec, name: &str) -> Result<(), UsageError> {
    match command {
        Some(command) if !applies(Some(command), spec) => {
            Err(UsageError::OptionOfOtherCommand { option: name.to_string(), command: command.name })
        }
        _ => Ok(()),
    }
}

fn check_count(variant: Variant, command: &'static CommandSpec, given: usize) -> Result<(), UsageError> {
    let (fewest, most) = command.operand_count;
    if (fewest..=most).contains(&given) {
        return Ok(());
    }
    let usage = format!("{} {} {}", variant.program_name(), command.name, command.operands);
    Err(UsageError::OperandCount { command: command.name, usage: usage.trim_end().to_string(), given })
}

/// An analysis that was written as if it were an option.
fn analysis_word(word: &str) -> Option<String> {
    ["leaks", "decompose", "inefficient", "oom"].contains(&word).then(|| format!("--analysis={word}"))
}

/// The command that is meant by the format of a report.
fn report_format(word: &str) -> Option<String> {
    ["html", "markdown"].contains(&word).then(|| format!("report --format={word}"))
}
