//! The `msmemscope` program: parse, launch, supervise, finish, report.
//!
//! With a program in front all our text goes to standard error and the exit status is the job's;
//! offline commands print their results to standard output. Our own errors exit with status 2.

mod analyzing;
mod at_start;
mod availability;
mod card_memory;
mod checking;
mod cleaning;
mod comparing;
mod controlling;
mod doctor;
mod environment;
mod exit_status;
mod exporting;
mod finishing;
mod fleet;
mod guard;
mod information;
mod judging;
mod launch;
mod libraries;
mod listing;
mod output_directory;
mod preload;
mod program;
mod progress;
mod replaying;
mod reporting;
mod result_file;
mod run;
mod shells;
mod signals;
mod standin;
mod supervise;
mod terminal;
mod top;
mod version;
mod viewing;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use msmemscope_config::{Command, Invocation, Settings, Variant, help, parse};
use msmemscope_event::visible_keeping;

use crate::exit_status::ExitStatus;
use crate::terminal::Terminal;
use msmemscope_report::layout::{self, LAYOUT};

/// What a command may end with: a status, or one line that says what went wrong.
type Outcome = Result<ExitStatus, String>;

/// Runs the program with the arguments of this process.
pub fn run(variant: Variant) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let terminal = Terminal::new(variant, Settings::defaults(variant).log_level);
    let command = match parse(variant, &arguments) {
        Ok(command) => command,
        Err(error) => {
            terminal.error(error);
            return ExitStatus::Failure.into();
        }
    };
    match execute(variant, command, &terminal) {
        Ok(status) => status.into(),
        Err(message) => {
            terminal.error(message);
            ExitStatus::Failure.into()
        }
    }
}

fn execute(variant: Variant, command: Command, terminal: &Terminal) -> Outcome {
    // Behind a job reports go to standard error, else to standard output.
    let columns = match &command {
        Command::Run { .. } => terminal::columns_of(&std::io::stderr()),
        _ => terminal::columns_of(&std::io::stdout()),
    };
    columns.into_iter().for_each(layout::use_width);
    match command {
        Command::Help { command, notes } => {
            notes.iter().for_each(|note| terminal.warning(note));
            print(help(variant, command).as_bytes())
        }
        Command::Version { notes } => {
            notes.iter().for_each(|note| terminal.warning(note));
            print(version::text(variant).as_bytes())
        }
        Command::Run { settings, program, notes } => {
            let terminal = terminal.with(settings.log_level, settings.color);
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
            let terminal = terminal.with(settings.log_level, settings.color);
            for note in notes {
                terminal.warning(note);
            }
            comparing::compare_inputs(&settings, &inputs, comparing::Wanted { as_json, as_html }, &terminal)
        }
        Command::Other(invocation) => {
            signals::ignore_size_limit();
            let (level, color) = (invocation.change.log_level, invocation.change.color);
            offline(variant, &invocation, &terminal.with(level.unwrap_or_default(), color.unwrap_or_default()))
        }
    }
}

fn offline(variant: Variant, invocation: &Invocation, terminal: &Terminal) -> Outcome {
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
        "doctor" => doctor::examine(invocation),
        "list" => listing::list_directories(invocation, terminal),
        "clean" => cleaning::clean(invocation, terminal),
        "info" => information::show(invocation, terminal),
        "analyze" => analyzing::analyze_paths(invocation, terminal),
        "watch-report" => analyzing::report_watched(invocation, terminal),
        "check" => checking::check_paths(invocation, terminal),
        "fleet" => fleet::merge_summaries(invocation),
        "top" => top::follow_jobs(invocation, terminal),
        "ctl" => controlling::control_jobs(invocation, terminal),
        "view" => viewing::view_paths(invocation, terminal),
        "report" => reporting::report_paths(invocation, terminal),
        "replay" => replaying::replay_paths(invocation, terminal),
        "export" => exporting::export_paths(invocation, terminal),
        "finish" | "recover" => finishing::finish_directories(invocation, terminal),
        "standin" => standin::run_on_standin(invocation, terminal),
        "completion" => shells::print_completion(invocation, variant),
        "manual" => shells::print_manual(invocation, variant),
        name => Err(format!("the command '{name}' is not available in this version")),
    }
}

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
        _ => Ok(ExitStatus::Success),
    }
}
