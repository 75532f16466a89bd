//! Things the user should be told although they are no errors.

use std::fmt;

use msmemscope_settings::AnalysisSet;

/// One remark about accepted settings; shown as one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// `none` stood beside other values and cleared them.
    NoneMixed {
        /// The option or key.
        name: String,
    },
    /// All NPUs were chosen, so single ones beside them have no effect.
    SingleDevicesCovered {
        /// The option or key.
        name: String,
    },
    /// Analyses are off because no events are collected.
    AnalysisWithoutEvents(AnalysisSet),
    /// A key that holds for the whole process was given again.
    FixedKey {
        /// The key.
        name: String,
        /// The value that counts, as far as it can be written in a word.
        kept: String,
        /// Whether the command line set it.
        by_command_line: bool,
    },
    /// `config()` changed something that the command line had set.
    CommandLineReplaced {
        /// The key.
        name: &'static str,
    },
    /// Options behind the program's name were taken as ours.
    TakenFromProgram {
        /// Our own name.
        tool: &'static str,
        /// The options with their values, as they were written.
        options: String,
        /// The program.
        program: String,
    },
    /// A program was named where none is run.
    ProgramIgnored {
        /// The program.
        program: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::NoneMixed { name } => {
                write!(formatter, "{name}: 'none' mixed with other values turns them all off")
            }
            Note::SingleDevicesCovered { name } => {
                write!(formatter, "{name}: 'npu' selects all NPUs, single ones beside it have no effect")
            }
            Note::AnalysisWithoutEvents(analysis) => {
                write!(formatter, "no events are collected, so analysis '{analysis}' is off")
            }
            Note::FixedKey { name, kept, by_command_line } => {
                let who = if *by_command_line { "of the command line" } else { "set first" };
                write!(formatter, "{name} can only be set once, before recording starts: {kept} {who} counts")
            }
            Note::CommandLineReplaced { name } => {
                write!(formatter, "{name}: the value in config() counts, not that of the command line")
            }
            Note::TakenFromProgram { tool, options, program } => {
                write!(formatter, "taken as options of {tool}: {options}; write -- before '{program}' to pass them on")
            }
            Note::ProgramIgnored { program } => {
                write!(formatter, "a comparison runs no program, '{program}' is ignored")
            }
        }
    }
}
