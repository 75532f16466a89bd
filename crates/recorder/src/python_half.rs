//! Brings the Python half of the tool into a job that does not import it: operators, labels,
//! snapshots and the Python trace can only be seen from inside the interpreter.
//!
//! Once the runtime is up, the interpreter is asked to import the package between two of its own
//! instructions, in its main thread. Jobs without an interpreter are left alone; if the import fails,
//! one line says so and memory events go on.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::{elf, errno, message, settings};

/// Queues a function for the interpreter's main thread; non-zero if the queue is full.
type AddPendingCall = unsafe extern "C" fn(PendingCall, *mut c_void) -> c_int;
type PendingCall = unsafe extern "C" fn(*mut c_void) -> c_int;
type IsInitialized = unsafe extern "C" fn() -> c_int;
/// Runs a program text in `__main__`; prints a traceback and gives -1 if it raises.
type RunSimpleString = unsafe extern "C" fn(*const c_char) -> c_int;

static INVITED: AtomicBool = AtomicBool::new(false);
static RUN_SIMPLE_STRING: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Asks the interpreter, if there is one, to import the package; once per process.
#[cold]
pub fn invite() {
    let Some(package) = &settings::recording().python_package else { return };
    let [initialized, add_pending_call, run] =
        [c"Py_IsInitialized", c"Py_AddPendingCall", c"PyRun_SimpleString"].map(function);
    let (Some(initialized), Some(add_pending_call), Some(run)) = (initialized, add_pending_call, run) else { return };
    // SAFETY: the interpreter's function of this name has this signature and may be called at any time.
    if unsafe { std::mem::transmute::<usize, IsInitialized>(initialized)() } == 0 {
        return;
    }
    if INVITED.swap(true, Ordering::Relaxed) {
        return;
    }
    let Ok(program) = CString::new(import_program(package)) else { return };
    RUN_SIMPLE_STRING.store(run as *mut c_void, Ordering::Release);
    // SAFETY: as above; the call may be made without the interpreter's lock.
    let add_pending_call = unsafe { std::mem::transmute::<usize, AddPendingCall>(add_pending_call) };
    // SAFETY: `import` takes the text over.
    if errno::preserved(|| unsafe { add_pending_call(import, program.into_raw().cast()) }) != 0 {
        message::say("the interpreter is too busy to take in the Python half; operators are not recorded");
    }
}

/// Run by the interpreter in its main thread, with its lock held.
unsafe extern "C" fn import(program: *mut c_void) -> c_int {
    // SAFETY: the pointer is the text from `invite`, taken back exactly once.
    let program = unsafe { CString::from_raw(program.cast()) };
    let run = RUN_SIMPLE_STRING.load(Ordering::Acquire);
    // SAFETY: stored by `invite`; the interpreter's function of this name has this signature.
    let run = unsafe { std::mem::transmute::<*mut c_void, RunSimpleString>(run) };
    // SAFETY: the text is valid; the lock is held.
    unsafe { run(program.as_ptr()) };
    0
}

/// The program that imports the package without touching the job's names or search path for good.
/// Errors are told as one line: a traceback in the job's output would be taken for its own.
fn import_program(package: &Path) -> Vec<u8> {
    let mut literal = Vec::new();
    for byte in package.as_os_str().as_bytes() {
        literal.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
    }
    let mut program = b"def _msmemscope_attach():\n    import os, sys\n    place = os.fsdecode(b'".to_vec();
    program.extend_from_slice(&literal);
    program.extend_from_slice(
        b"')\n    sys.path.append(place)\n    try:\n        import msmemscope._attach\n    except BaseException as error:\n        os.write(2, ('[msmemscope] the Python half could not be imported, operators are not recorded: %s: %s\\n' % (type(error).__name__, error)).encode())\n    finally:\n        try:\n            sys.path.remove(place)\n        except ValueError:\n            pass\n_msmemscope_attach()\ndel _msmemscope_attach\n",
    );
    program
}

/// Address of a function that some loaded module exports.
fn function(name: &CStr) -> Option<usize> {
    let mut found = None;
    elf::for_each_module(|module| match module.exported_function(name) {
        Some(address) => {
            found = Some(address);
            ControlFlow::Break(())
        }
        None => ControlFlow::Continue(()),
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_survives_any_path() {
        let program = String::from_utf8(import_program(Path::new("/a b/it's \"x\"\n"))).expect("text");
        assert!(program.contains("os.fsdecode(b'\\x2f\\x61\\x20\\x62\\x2f\\x69\\x74\\x27\\x73"), "{program}");
        let checked = std::process::Command::new("python3").args(["-c", &program]).output().expect("python3");
        assert!(checked.status.success());
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(
            said.starts_with("[msmemscope] the Python half could not be imported") && said.lines().count() == 1,
            "{said}"
        );
    }
}
