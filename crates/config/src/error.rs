//! What can be wrong with a command line or a Python call, always told in one line.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};

/// Values are shown up to this many characters.
const LONGEST_SHOWN: usize = 120;

/// A value that an option or key does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// The option as typed (`--level`) or the Python key (`level`).
    pub name: String,
    /// The value, made printable.
    pub value: String,
    /// What exactly is wrong, where the value alone does not show it.
    pub problem: Option<String>,
    /// What is allowed.
    pub allowed: &'static str,
    /// The word that was probably meant.
    pub suggestion: Option<&'static str>,
}

impl fmt::Display for ValueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "invalid value {} for {}", quoted(&self.value), self.name)?;
        if let Some(problem) = &self.problem {
            write!(formatter, ": {problem}")?;
        }
        write!(formatter, "; allowed: {}", self.allowed)?;
        write_suggestion(formatter, self.suggestion)
    }
}

impl std::error::Error for ValueError {}

/// What is wrong with a command line. The program prints it and ends with status 2.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsageError {
    /// An option that does not exist.
    UnknownOption {
        /// The option as typed.
        option: String,
        /// The option probably meant, with its dashes.
        suggestion: Option<String>,
        /// The program before which `--` would pass the option on.
        program: Option<String>,
    },
    /// An abbreviation that fits several options.
    AmbiguousOption {
        /// The option as typed.
        option: String,
        /// The options it could stand for.
        candidates: Vec<&'static str>,
    },
    /// An option without the value it needs.
    MissingValue {
        /// The option as typed.
        option: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A value for an option that takes none.
    UnexpectedValue {
        /// The option as typed.
        option: String,
        /// The value.
        value: String,
    },
    /// A value that is not allowed.
    Value(ValueError),
    /// An option of another command.
    OptionOfOtherCommand {
        /// The option as typed.
        option: String,
        /// The command that does not know it.
        command: &'static str,
    },
    /// Too few or too many arguments of a command.
    OperandCount {
        /// The command.
        command: &'static str,
        /// How it is used.
        usage: String,
        /// How many arguments were given.
        given: usize,
    },
    /// `--compare` without `--input`.
    CompareWithoutInput,
    /// `--input` without `--compare`.
    InputWithoutCompare {
        /// The value of `--input`.
        value: String,
    },
    /// An option that acts on the calling shell, but was not sourced.
    MustBeSourced {
        /// The option.
        option: String,
        /// The program name to source.
        program: &'static str,
    },
    /// No program to run.
    NoProgram,
}

impl fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsageError::UnknownOption { option, suggestion, program } => {
                write!(formatter, "unknown option {}", quoted(option))?;
                if let Some(program) = program {
                    let program = quoted(program);
                    write!(formatter, "; to pass it to the program, write -- before {program}")?;
                } else if suggestion.is_none() {
                    formatter.write_str("; --help lists all options")?;
                }
                write_suggestion(formatter, suggestion.as_deref())
            }
            UsageError::AmbiguousOption { option, candidates } => {
                write!(formatter, "option {} is ambiguous; it could be ", quoted(option))?;
                for (index, candidate) in candidates.iter().enumerate() {
                    let separator = match index {
                        0 => "",
                        _ if index + 1 == candidates.len() => " or ",
                        _ => ", ",
                    };
                    write!(formatter, "{separator}--{candidate}")?;
                }
                Ok(())
            }
            UsageError::MissingValue { option, allowed } => {
                write!(formatter, "option {} needs a value; allowed: {allowed}", quoted(option))
            }
            UsageError::UnexpectedValue { option, value } => {
                write!(formatter, "option {} takes no value, but got {}", quoted(option), quoted(value))
            }
            UsageError::Value(error) => error.fmt(formatter),
            UsageError::OptionOfOtherCommand { option, command } => {
                write!(formatter, "option {} does not apply to the command '{command}'", quoted(option))
            }
            UsageError::OperandCount { command, usage, given } => write!(
                formatter,
                "the command '{command}' got {given} {}; usage: {usage}",
                if *given == 1 { "argument" } else { "arguments" }
            ),
            UsageError::CompareWithoutInput => {
                formatter.write_str("--compare needs the two recordings to compare: --input=<BASE>,<OTHER>")
            }
            UsageError::InputWithoutCompare { value } => {
                write!(formatter, "--input {} is only valid together with --compare", quoted(value))
            }
            UsageError::MustBeSourced { option, program } => {
                write!(formatter, "{option} must be sourced: run 'source {program} {option}' in bash")
            }
            UsageError::NoProgram => {
                formatter.write_str("no program to run; write it after the options, or see --help")
            }
        }
    }
}

impl std::error::Error for UsageError {}

impl From<ValueError> for UsageError {
    fn from(error: ValueError) -> Self {
        UsageError::Value(error)
    }
}

/// What is wrong with the arguments of the Python `config()`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that does not exist.
    UnknownKey {
        /// The key.
        key: String,
        /// The value it was given.
        value: String,
        /// The key probably meant.
        suggestion: Option<&'static str>,
    },
    /// Two spellings of one key with different values.
    GivenTwice {
        /// The first spelling.
        first: &'static str,
        /// The second spelling.
        second: &'static str,
        /// The value of the second spelling.
        value: String,
    },
    /// A value that is not allowed.
    Value(ValueError),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::UnknownKey { key, value, suggestion } => {
                write!(formatter, "unknown key {} (value {})", quoted(key), quoted(value))?;
                write_suggestion(formatter, *suggestion)
            }
            ConfigError::GivenTwice { first, second, value } => {
                write!(formatter, "{second}={} contradicts {first}: both are spellings of one key", quoted(value))
            }
            ConfigError::Value(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<ValueError> for ConfigError {
    fn from(error: ValueError) -> Self {
        ConfigError::Value(error)
    }
}

/// Text of the operating system made printable, for error messages only.
pub(crate) fn printable(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Marks that change the direction of text, and the separators that some terminals and editors take for a line end.
fn reorders(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` in quotes, on one line and of bounded length.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown = String::from("'");
    for (index, character) in text.chars().enumerate() {
        if index == LONGEST_SHOWN {
            shown.push_str("...");
            break;
        }
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ if character.is_control() || reorders(character) => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
            }
            _ => shown.push(character),
        }
    }
    shown.push('\'');
    shown
}

fn write_suggestion(formatter: &mut fmt::Formatter<'_>, suggestion: Option<&str>) -> fmt::Result {
    match suggestion {
        Some(word) => write!(formatter, "; did you mean '{word}'?"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_one_short_line() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("a\nb\u{1b}[31m\u{2028}"), "'a\\nb\\u{1b}[31m\\u{2028}'");
        assert_eq!(quoted("\u{9b}1m\u{202e}x"), "'\\u{9b}1m\\u{202e}x'");
        assert_eq!(quoted("内存"), "'内存'");
        assert_eq!(quoted(&"x".repeat(5000)).chars().count(), LONGEST_SHOWN + 5);
    }
}
