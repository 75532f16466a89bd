//! `msmemscope standin -- <command>`: runs anything on the stand-in Ascend device.
//!
//! The device is a tree of libraries with CANN's names (see `standin/README.md`); a command finds it
//! through environment variables. All processes of one run share its cards.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use msmemscope_config::{Invocation, size_bytes};

use crate::Outcome;
use crate::exit_status::ExitStatus;
use crate::launch::launch;
use crate::signals::{SignalGate, die_by};
use crate::supervise::{JobEnd, wait_for_job};
use crate::terminal::Terminal;

/// The device, seen from the program: a build, or an installation.
const PLACES: [&str; 2] = ["../standin", "../share/msmemscope/standin"];

/// Frameworks need a few blocks of 20 MiB before anything else.
const SMALLEST_MEMORY_BYTES: u64 = 64 << 20;

/// One of the command's own options.
struct Setting {
    name: &'static str,
    /// The device's variable.
    variable: &'static str,
    is_valid: fn(&str) -> bool,
    allowed: &'static str,
}

const SETTINGS: [Setting; 5] = [
    Setting {
        name: "devices",
        variable: "STANDIN_DEVICES",
        is_valid: |text| text.parse().is_ok_and(|count| (1..=32).contains(&count)),
        allowed: "1 to 32",
    },
    Setting {
        name: "memory",
        variable: "STANDIN_MEMORY_BYTES",
        is_valid: |text| size_bytes(text).is_some_and(|bytes| bytes >= SMALLEST_MEMORY_BYTES),
        allowed: "a size from 64MiB on, such as 64GiB",
    },
    Setting {
        name: "soc",
        variable: "STANDIN_SOC",
        is_valid: |text| !text.is_empty(),
        allowed: "a chip name such as Ascend910B1",
    },
    Setting {
        name: "workspace",
        variable: "STANDIN_WORKSPACE_BYTES",
        is_valid: is_size,
        allowed: "a size such as 1MiB",
    },
    Setting {
        name: "unknown-operators",
        variable: "STANDIN_UNKNOWN_OPERATORS",
        is_valid: |text| ["warn", "quiet", "error"].contains(&text),
        allowed: "warn, quiet, error",
    },
];

fn is_size(text: &str) -> bool {
    size_bytes(text).is_some()
}

/// Runs the command of the invocation; its status is ours.
pub fn run_on_standin(invocation: &Invocation, terminal: &Terminal) -> Outcome {
    let home = home()?;
    let cards = Cards::share()?;
    let mut environment = environment(&home, &cards);
    environment.extend(settings(invocation)?);
    let signals = SignalGate::close();
    let job = match launch(&invocation.operands, &environment, &signals) {
        Ok(job) => job,
        Err(error) => {
            terminal.error(error.message);
            return Ok(ExitStatus::OfJob(error.status));
        }
    };
    let end = wait_for_job(&job, &signals, |_| false);
    drop(cards);
    match end {
        JobEnd::Exited(status) => Ok(ExitStatus::OfJob(status)),
        JobEnd::Killed(signal) => die_by(signal),
    }
}

fn home() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find my own program file: {error}"))?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    PLACES
        .iter()
        .filter_map(|place| directory.join(place).canonicalize().ok())
        .find(|home| home.join("lib64/libascendcl.so").is_file())
        .ok_or_else(|| "the stand-in device is not installed; in the source tree 'make standin' builds it".to_owned())
}

/// The directory through which processes share the cards; removed when the run is over.
struct Cards {
    directory: PathBuf,
    is_ours: bool,
}

impl Cards {
    fn share() -> Result<Self, String> {
        const VARIABLE: &str = "STANDIN_RUN_DIR";
        if let Some(directory) = std::env::var_os(VARIABLE).filter(|directory| !directory.is_empty()) {
            return Ok(Self { directory: PathBuf::from(directory), is_ours: false });
        }
        let directory = std::env::temp_dir().join(format!("msmemscope-standin-{}", std::process::id()));
        match std::fs::create_dir(&directory) {
            Ok(()) => Ok(Self { directory, is_ours: true }),
            Err(error) => Err(format!("{}: {error}", directory.display())),
        }
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

fn environment(home: &Path, cards: &Cards) -> Vec<(OsString, OsString)> {
    let in_front = |name: &str, entry: PathBuf| {
        let mut value = entry.into_os_string();
        if let Some(existing) = std::env::var_os(name).filter(|existing| !existing.is_empty()) {
            value.push(":");
            value.push(existing);
        }
        (OsString::from(name), value)
    };
    // The ABI that frameworks of today are built with, unless somebody wants the other one.
    let atb_home = std::env::var_os("ATB_HOME_PATH").map_or_else(|| home.join("atb/cxx_abi_1"), PathBuf::from);
    let mut library_path = home.join("lib64").into_os_string();
    library_path.push(":");
    library_path.push(atb_home.join("lib"));
    vec![
        ("ASCEND_HOME_PATH".into(), home.into()),
        ("ASCEND_OPP_PATH".into(), home.join("opp").into()),
        ("ATB_HOME_PATH".into(), atb_home.clone().into()),
        in_front("LD_LIBRARY_PATH", library_path.into()),
        in_front("PYTHONPATH", home.join("python")),
        ("STANDIN_RUN_DIR".into(), cards.directory.clone().into()),
    ]
}

/// The device's settings among the command's options. Sizes are passed on in bytes.
fn settings(invocation: &Invocation) -> Result<Vec<(OsString, OsString)>, String> {
    let mut variables = Vec::new();
    for Setting { name, variable, is_valid, allowed } in SETTINGS {
        let Some(value) = invocation.flag_value(name) else { continue };
        let text = value.to_str().unwrap_or_default();
        if !is_valid(text) {
            return Err(format!("--{name}: '{}' is not allowed; allowed: {allowed}", value.to_string_lossy()));
        }
        let passed = if variable.ends_with("_BYTES") { size_bytes(text).map(|bytes| bytes.to_string()) } else { None };
        variables.push((variable.into(), passed.map_or_else(|| value.to_owned(), OsString::from)));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_an_option_of_the_command() {
        let command = msmemscope_config::COMMANDS.iter().find(|command| command.name == "standin").expect("command");
        let names = SETTINGS.map(|setting| setting.name);
        assert_eq!(command.flags.iter().map(|flag| flag.name).collect::<Vec<_>>(), names);
    }

    #[test]
    fn the_device_comes_first_and_keeps_what_the_user_had() {
        let cards = Cards { directory: PathBuf::from("/cards"), is_ours: false };
        let environment = environment(Path::new("/device"), &cards);
        let value = |name: &str| {
            let found = environment.iter().find(|(variable, _)| variable == name);
            found.map(|(_, value)| value.to_string_lossy().into_owned()).expect("variable")
        };
        assert_eq!(value("ASCEND_HOME_PATH"), "/device");
        assert!(value("LD_LIBRARY_PATH").starts_with("/device/lib64"));
        assert_eq!(value("STANDIN_RUN_DIR"), "/cards");
    }
}
