//! What can be wrong with a command line or a Python call, always told in one line.

use std::fmt;

use msmemscope_settings::quoted;

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
    /// `compare` with one recording and no steps.
    CompareWithItself,
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
            UsageError::CompareWithItself => formatter.write_str(
                "compare needs two recordings (compare <BASE> <OTHER>), or two steps of one (compare --steps=2,9 <DIR>)",
            ),
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

fn write_suggestion(formatter: &mut fmt::Formatter<'_>, suggestion: Option<&str>) -> fmt::Result {
    match suggestion {
        Some(word) => write!(formatter, "; did you mean '{word}'?"),
        None => Ok(()),
    }
}
