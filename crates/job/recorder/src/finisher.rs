//! Finishes a recording that nobody supervises: runs `msmemscope finish` at exit and waits for it.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use msmemscope_settings::RECORDING_VARIABLE;

use crate::{errno, message, settings};

/// Where the program may be, seen from this library: installed, in a wheel, or a build. The launcher
/// script comes last: the program itself needs no shell.
const PLACES: [&str; 4] = ["../bin/msmemscope.bin", "msmemscope.bin", "msmemscope", "../bin/msmemscope"];

/// Runs the finisher, `given` or found near this library, on a directory.
pub fn finish(given: Option<&Path>, directory: &Path) {
    let program = given.map(Path::to_owned).or_else(find);
    let end = program.and_then(|program| spawn(program.as_os_str(), directory.as_os_str()));
    if end != Some(0) {
        let directory = directory.display();
        let when = if end.is_some() { "once the cause is removed" } else { "for its results" };
        let tool = settings::tool_name();
        message::say(&format!("the recording is in {directory}; {when}: {tool} finish '{directory}'"));
    }
}

/// The program that belongs to this library.
fn find() -> Option<PathBuf> {
    // SAFETY: plain old data, for which zero is a valid value.
    let mut facts: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: asks about an address of this library; the answer lives as long as the library.
    let name = unsafe {
        if libc::dladdr(finish as *const _, &mut facts) == 0 || facts.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(facts.dli_fname)
    };
    let library = std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()?;
    let home = library.parent()?;
    PLACES.iter().map(|place| home.join(place)).find(|program| program.is_file())
}

/// Runs a program and waits for it, without the job's own handlers hearing of this child. What it
/// prints goes to stderr: stdout is the job's. Returns its status, if it could be started.
fn spawn(program: &OsStr, directory: &OsStr) -> Option<c_int> {
    let text = |text: &OsStr| CString::new(text.as_bytes()).ok();
    let (program, directory) = (text(program)?, text(directory)?);
    let arguments = [program.as_ptr(), c"finish".as_ptr(), directory.as_ptr(), std::ptr::null()];
    let environment = environment_without_recorder();
    let mut environment_pointers: Vec<_> = environment.iter().map(|entry| entry.as_ptr().cast_mut()).collect();
    environment_pointers.push(std::ptr::null_mut());
    // SAFETY: all arrays end with null and outlive the calls; the sets and actions are initialised before use.
    unsafe {
        let mut child_signal: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut child_signal);
        libc::sigaddset(&mut child_signal, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &child_signal, &mut before);
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&mut actions);
        if !message::stderr_is_unchanged() {
            let flags = libc::O_WRONLY;
            libc::posix_spawn_file_actions_addopen(&mut actions, libc::STDERR_FILENO, c"/dev/null".as_ptr(), flags, 0);
        }
        libc::posix_spawn_file_actions_adddup2(&mut actions, libc::STDERR_FILENO, libc::STDOUT_FILENO);
        let (mut child, mut end) = (0, 0);
        let status = libc::posix_spawn(
            &mut child,
            program.as_ptr(),
            &actions,
            std::ptr::null(),
            arguments.as_ptr().cast::<*mut _>(),
            environment_pointers.as_ptr(),
        );
        libc::posix_spawn_file_actions_destroy(&mut actions);
        if status == 0 {
            while libc::waitpid(child, &mut end, 0) < 0 && errno::last() == libc::EINTR {}
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&child_signal, std::ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        (status == 0).then_some(end)
    }
}

/// The environment of the job without what would record the finisher as well.
fn environment_without_recorder() -> Vec<CString> {
    std::env::vars_os()
        .filter(|(name, _)| name != "LD_PRELOAD" && name != RECORDING_VARIABLE)
        .filter_map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            CString::new(name.into_vec()).ok()
        })
        .collect()
}
