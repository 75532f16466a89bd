//! Starts the job, with the environment that brings the recorder into it and into all its descendants.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use msmemscope_config::{RECORDING_VARIABLE, Recording, nearest_command};
use msmemscope_event::visible;

use crate::at_start::closed_at_start;
use crate::libraries::ATB_LIBRARIES;
use crate::preload;
use crate::program;
use crate::signals::SignalGate;

/// Why the job could not be started, with the exit status a shell would give.
pub struct LaunchError {
    /// 127 if there is no such program, 126 if it cannot be executed.
    pub status: u8,
    /// One line for the user.
    pub message: String,
}

/// The value of `LD_PRELOAD`: the recorder with its companions, then whatever the user had. Runtimes of sanitizers stay in front: they want to
/// be the first of all.
fn preload_value(recorder: &Path, companions: &[PathBuf], existing: Option<&OsStr>) -> OsString {
    let existing = preload::entries(existing.unwrap_or_default());
    let (mut entries, others): (Vec<_>, Vec<_>) =
        existing.into_iter().partition(|entry| preload::is_sanitizer_runtime(entry));
    entries.push(recorder);
    entries.extend(companions.iter().map(PathBuf::as_path));
    entries.extend(others);
    entries.iter().map(|entry| entry.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// What brings the recorder into the job and all its descendants.
pub fn recording_environment(recorder: &Path, recording: &Recording) -> Vec<(OsString, OsString)> {
    let companions = ATB_LIBRARIES.map(|name| recorder.with_file_name(name)).into_iter().filter(|path| path.is_file());
    let companions: Vec<PathBuf> = companions.collect();
    let preload = preload_value(recorder, &companions, std::env::var_os("LD_PRELOAD").as_deref());
    vec![("LD_PRELOAD".into(), preload), (RECORDING_VARIABLE.into(), recording.to_environment().into())]
}

/// Starts a job with some variables set. The child handles signals the way we were started.
pub fn launch(
    program: &[OsString],
    environment: &[(OsString, OsString)],
    signals: &SignalGate,
) -> Result<Child, LaunchError> {
    let program = program::with_interpreter(program);
    let name = &program[0];
    let file = program::find(name);
    let mut command = Command::new(file.as_deref().map_or(name.as_os_str(), Path::as_os_str));
    command.arg0(name).args(&program[1..]).envs(environment.iter().map(|(name, value)| (name, value)));
    let original = signals.original();
    let closed = closed_at_start();
    // SAFETY: the closure only makes async-signal-safe system calls.
    unsafe {
        command.pre_exec(move || {
            for &descriptor in &closed {
                libc::close(descriptor);
            }
            original.restore()
        })
    };
    command.spawn().map_err(|error| explain(name, file.is_some(), &error))
}

fn explain(name: &OsStr, exists: bool, error: &io::Error) -> LaunchError {
    let name = name.to_string_lossy();
    let name = visible(&name);
    match error.kind() {
        io::ErrorKind::NotFound if exists => {
            LaunchError { status: 126, message: format!("{name}: cannot be executed: its interpreter is missing") }
        }
        io::ErrorKind::NotFound => {
            // What other programs call a command is an option here.
            let meant = if name == "help" { Some("--help") } else { nearest_command(&name) };
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean '{meant}'?"));
            LaunchError { status: 127, message: format!("{name}: command not found{meant}") }
        }
        _ => LaunchError { status: 126, message: format!("{name}: cannot be executed: {error}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_preloads_stay_behind_ours() {
        let ours = Path::new("/lib64/libascend_kernel_hook.so");
        let value = |existing: Option<&str>| preload_value(ours, &[], existing.map(OsStr::new));
        assert_eq!(value(None), "/lib64/libascend_kernel_hook.so");
        assert_eq!(value(Some("")), "/lib64/libascend_kernel_hook.so");
        assert_eq!(value(Some("/a.so:/b.so")), "/lib64/libascend_kernel_hook.so:/a.so:/b.so");
        let sanitized = value(Some("/a.so /usr/lib/libasan.so.8:libclang_rt.tsan-x86_64.so"));
        let expected = "/usr/lib/libasan.so.8:libclang_rt.tsan-x86_64.so:/lib64/libascend_kernel_hook.so:/a.so";
        assert_eq!(sanitized, expected);
        let companions = ["/lib64/x.so".into()];
        let value = preload_value(ours, &companions, Some(OsStr::new("/a.so")));
        assert_eq!(value, "/lib64/libascend_kernel_hook.so:/lib64/x.so:/a.so");
    }
}
