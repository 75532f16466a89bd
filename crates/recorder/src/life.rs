//! What happens when the library is loaded and when the process exits in the normal way.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use msmemscope_event::{Device, Fact, SystemEvent};

use crate::{clock, errno, message, process, real, settings, state, thread};

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = load;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = exit;

/// Reads the settings and gets ready; makes no file, mapping or thread.
extern "C" fn load() {
    // SAFETY: asks the kernel's auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        state::disable();
        return;
    }
    let prepared = errno::preserved(|| {
        std::panic::catch_unwind(|| {
            // Our panics are told in our own words.
            std::panic::set_hook(Box::new(|_| {}));
            message::remember_stderr();
            real::note_startup_modules();
            thread::prepare();
            settings::load();
        })
    });
    match prepared {
        Ok(()) => {
            state::change(settings::initial_state());
        }
        Err(_) => {
            state::disable();
        }
    }
}

/// Marks the recording of this process, if it has one, as complete.
extern "C" fn exit() {
    let _ = errno::preserved(|| std::panic::catch_unwind(close));
}

fn close() {
    let Some(process) = process::existing() else { return };
    if state::records_everything() {
        thread::record_now(&Fact::System { event: SystemEvent::ProcessExit, device: Device::Unknown, result: 0 });
    }
    let _ = process.flush();
    process.trace.close(clock::monotonic_ns());
    let recording = settings::recording();
    if !recording.is_supervised
        && let Some(finisher) = &recording.finisher
    {
        finish(finisher.as_os_str(), process.directory.as_os_str());
    }
}

/// Runs the finisher and waits for it, without the job's own handlers hearing of this child.
fn finish(finisher: &OsStr, directory: &OsStr) {
    let text = |text: &OsStr| CString::new(text.as_bytes()).ok();
    let (Some(program), Some(directory)) = (text(finisher), text(directory)) else { return };
    let arguments = [program.as_ptr(), c"finish".as_ptr(), directory.as_ptr(), std::ptr::null()];
    let environment = process::environment_without_recorder();
    let mut environment_pointers: Vec<_> = environment.iter().map(|entry| entry.as_ptr().cast_mut()).collect();
    environment_pointers.push(std::ptr::null_mut());
    // SAFETY: all arrays end with null and outlive the calls; the sets are initialised before use.
    unsafe {
        let mut child_signal: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut child_signal);
        libc::sigaddset(&mut child_signal, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &child_signal, &mut before);
        let mut child = 0;
        let status = libc::posix_spawn(
            &mut child,
            program.as_ptr(),
            std::ptr::null(),
            std::ptr::null(),
            arguments.as_ptr().cast::<*mut _>(),
            environment_pointers.as_ptr(),
        );
        if status == 0 {
            while libc::waitpid(child, std::ptr::null_mut(), 0) < 0 && errno::last() == libc::EINTR {}
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&child_signal, std::ptr::null_mut(), &at_once);
        } else {
            let directory = directory.to_string_lossy();
            message::say(&format!("the recording is in {directory}; finish it with: msmemscope finish {directory}"));
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
}
