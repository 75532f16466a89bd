//! Tests of the crate as its users see it.

mod command_line;
mod config_file;
mod golden;
mod handover;
mod options;
mod python;

use std::ffi::OsString;

use msmemscope_config::{Command, Note, Settings, UsageError, Variant, parse};

/// Parses arguments given as text.
fn parse_text(arguments: &[&str]) -> Result<Command, UsageError> {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    parse(Variant::Msmemscope, &arguments)
}

/// The settings and notes of a run of `job` with these options.
fn run_with(options: &[&str]) -> Result<(Settings, Vec<Note>), UsageError> {
    let arguments = [options, &["job"]].concat();
    match parse_text(&arguments)? {
        Command::Run { settings, program, notes } => {
            assert_eq!(program, ["job"]);
            Ok((settings, notes))
        }
        other => panic!("{options:?} gave {other:?} instead of a run"),
    }
}
