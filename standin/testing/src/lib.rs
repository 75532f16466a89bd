//! Compiles C programs against the stand-in device and runs them on it, for tests.
//!
//! The device must have been built (`make standin`); it is expected in `target/standin`, or where the environment
//! variable `STANDIN_HOME` says.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The installed stand-in device.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn home() -> PathBuf {
    let home = std::env::var_os("STANDIN_HOME")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/standin"), PathBuf::from);
    let library = home.join("lib64/libascendcl.so");
    assert!(library.exists(), "{} is missing: run `make standin` first", library.display());
    home.canonicalize().unwrap_or(home)
}

/// Compiles C or C++ `source` (by file name `name`) into `directory`, linked with the given libraries of the device
/// (for example `ascendcl`, `ascend_hal`, `ms_tools_ext`), and returns the program.
///
/// # Panics
/// When the compiler fails.
#[must_use]
pub fn compile(directory: &Path, name: &str, source: &str, libraries: &[&str]) -> PathBuf {
    let home = home();
    let file = directory.join(name);
    std::fs::write(&file, source).expect("the source can be written");
    let program = file.with_extension("");
    let is_plus_plus = file.extension().is_some_and(|extension| extension == "cpp");
    let mut command = Command::new(if is_plus_plus { "g++" } else { "gcc" });
    command.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-g"]);
    command.arg("-I").arg(home.join("include")).arg(&file).arg("-o").arg(&program);
    command.arg("-L").arg(home.join("lib64")).arg("-Wl,--no-as-needed");
    command.arg(format!("-Wl,-rpath-link,{}", home.join("lib64").display()));
    command.args(libraries.iter().map(|library| format!("-l{library}"))).arg("-ldl");
    let output = command.output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A command that runs `program` on the device, logging into `log` when given.
#[must_use]
pub fn command(program: &Path, log: Option<&Path>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", home().join("lib64")).env("ASCEND_HOME_PATH", home());
    match log {
        Some(log) => command.env("STANDIN_LOG", log),
        None => command.env_remove("STANDIN_LOG"),
    };
    command
}
