//! The `msmemscope` program: parse, launch, supervise, finish, report.
//!
//! With a program in front all our text goes to standard error and the exit status is the job's;
//! offline commands print their results to standard output. Our own errors exit with status 2.

mod analyzing;
mod at_start;
mod availability;
mod card_memory;
mod colour;
mod comparing;
mod doctor;
mod environment;
mod finishing;
mod information;
mod launch;
mod libraries;
mod log_file;
mod output_directory;
mod preload;
mod program;
mod progress;
mod recordings;
mod report_file;
mod run;
mod scopes;
mod shell;
mod signals;
mod standin;
mod summary;
mod supervise;
mod terminal;
mod units;
mod unmatched;
mod unwatched;
mod viewing;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use msmemscope_config::{Command, Invocation, LogLevel, Settings, Variant, help, parse};
use msmemscope_event::visible_keeping;

use crate::terminal::Terminal;

/// Exit status of our own errors.
const FAILURE: u8 = 2;

/// What a command may end with: a status, or one line that says what went wrong.
type Outcome = Result<u8, String>;

/// Runs the program with the arguments of this process.
pub fn run(variant: Variant) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let terminal = Terminal::new(variant, Settings::defaults(variant).log_level);
    let command = match parse(variant, &arguments) {
        Ok(command) => command,
        Err(error) => {
            terminal.error(error);
            return ExitCode::from(FAILURE);
        }
    };
    match execute(variant, command, &terminal) {
        Ok(status) => ExitCode::from(status),
        Err(message) => {
            terminal.error(message);
            ExitCode::from(FAILURE)
        }
    }
}

fn execute(variant: Variant, command: Command, terminal: &Terminal) -> Outcome {
    match command {
        Command::Help { command, notes } => {
            notes.iter().for_each(|note| terminal.warning(note));
            print(help(variant, command).as_bytes())
        }
        Command::Version { notes } => {
            notes.iter().for_each(|note| terminal.warning(note));
            print(format!("{} version {}\n", variant.program_name(), env!("CARGO_PKG_VERSION")).as_bytes())
        }
        Command::Run { settings, program, notes } => {
            let terminal = terminal.with_level(settings.log_level);
            for note in notes {
                terminal.warning(note);
            }
            let has_python_package = libraries::python_package_directory().is_some();
            for note in availability::missing_features(&settings, has_python_package) {
                terminal.warning(note);
            }
            run::run_job(settings, &program, &terminal)
        }
        Command::Compare { settings, inputs, notes, as_json, as_html } => {
            signals::ignore_size_limit();
            let terminal = terminal.with_level(settings.log_level);
            for note in notes {
                terminal.warning(note);
            }
            comparing::compare_inputs(&settings, &inputs, comparing::Wanted { as_json, as_html }, &terminal)
        }
        Command::Other(invocation) => {
            signals::ignore_size_limit();
            let level = invocation.change.log_level.unwrap_or(LogLevel::default());
            offline(&invocation, &terminal.with_level(level))
        }
    }
}

fn offline(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    match invocation.command.name {
        "env" => {
            let directory = libraries::library_directory()?;
            if !preload::can_carry(&directory) {
                let shown = directory.display();
                return Err(format!("LD_PRELOAD cannot name '{shown}' (white space or colon); install elsewhere"));
            }
            let lines = environment::shell_lines(
                &directory,
                std::env::var_os("LD_LIBRARY_PATH").as_deref(),
                std::env::var_os("LD_PRELOAD").as_deref(),
            );
            print(&lines)
        }
        "doctor" => {
            let (report, all_fine) = doctor::examine(&invocation.operands);
            print_text(&report)?;
            Ok(u8::from(!all_fine))
        }
        "info" => information::show(&invocation.operands, terminal.program_name()),
        "analyze" => analyzing::analyze_paths(invocation, terminal),
        "watch-report" => analyzing::report_watched(invocation, terminal),
        "check" => analyzing::check_paths(invocation, terminal),
        "view" => viewing::view_paths(invocation, terminal),
        "finish" | "recover" => {
            let only_unfinished = invocation.command.name == "recover";
            finishing::finish_directories(&invocation.operands, only_unfinished, &invocation.change, terminal)
        }
        "standin" => standin::run_on_standin(invocation, terminal),
        name => Err(format!("the command '{name}' is not available in this version")),
    }
}

/// What the layout of our own texts needs.
const LAYOUT: [char; 2] = ['\n', '\t'];

/// Prints text for people; nothing in it steers their terminal. Names and paths come from others.
fn print_text(text: &str) -> Outcome {
    print(visible_keeping(text, &LAYOUT).as_bytes())
}

/// Prints a result. A reader that went away is no error.
fn print(text: &[u8]) -> Outcome {
    let mut output = std::io::stdout().lock();
    match output.write_all(text).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write the result: {error}"))
        }
        _ => Ok(0),
    }
}
