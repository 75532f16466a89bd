//! Brings the Python half of the tool into a job that does not import it: operators, labels,
//! snapshots and the Python trace can only be seen from inside the interpreter.
//!
//! Once the runtime is up, the interpreter is asked to import the package between two of its own
//! instructions, in its main thread. If memory of CPU tensors is wanted, that is too late, and without
//! an NPU it never happens: the interpreter is then asked when it imports PyTorch. A thread other than
//! the main one, which may be waiting for it, imports the package itself then. Jobs without an
//! interpreter are left alone; if the import fails, one line says so and memory events go on.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::{elf, errno, message, settings};

/// Queues a function for the interpreter's main thread; non-zero if the queue is full.
type AddPendingCall = unsafe extern "C" fn(PendingCall, *mut c_void) -> c_int;
type PendingCall = unsafe extern "C" fn(*mut c_void) -> c_int;
type IsTrue = unsafe extern "C" fn() -> c_int;
/// Runs a program text in `__main__`; prints a traceback and gives -1 if it raises.
type RunSimpleString = unsafe extern "C" fn(*const c_char) -> c_int;

static INVITED: AtomicBool = AtomicBool::new(false);
static RUN_SIMPLE_STRING: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// What the interpreter looks up when it imports the native part of PyTorch, and of some other packages.
const FRAMEWORK_ENTRY: &CStr = c"PyInit__C";
/// The library with the allocator of CPU tensors.
const HOST_ALLOCATOR: &str = "libc10.so";

/// Somebody looks up a function by name: invites the package if PyTorch is being imported and its CPU
/// tensors are wanted.
pub fn note_lookup(name: &CStr) {
    if name == FRAMEWORK_ENTRY && settings::recording().settings.devices.cpu && is_loaded(HOST_ALLOCATOR) {
        invite_at_import();
    }
}

fn is_loaded(library: &str) -> bool {
    let mut found = false;
    elf::for_each_module(|module| {
        found = module.is_named(library);
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// Asks the interpreter, if there is one, to import the package; once per process.
#[cold]
pub fn invite() {
    let Some(program) = prepare() else { return };
    let Some(add_pending_call) = function(c"Py_AddPendingCall") else { return };
    // SAFETY: the interpreter's function of this name has this signature.
    let add_pending_call = unsafe { std::mem::transmute::<usize, AddPendingCall>(add_pending_call) };
    // SAFETY: the call may be made without the interpreter's lock; `import` takes the text over.
    if errno::aside(|| unsafe { add_pending_call(import, program.into_raw().cast()) }) != 0 {
        message::say("the interpreter is too busy to take in the Python half; operators are not recorded");
    }
}

/// As [`invite`], at an import on this thread.
#[cold]
fn invite_at_import() {
    // SAFETY: plain system calls.
    let is_main_thread = unsafe { libc::gettid() == libc::getpid() };
    if is_main_thread || !holds_interpreter_lock() {
        invite();
    } else if let Some(program) = prepare() {
        // SAFETY: the lock is held, and this is called from where the interpreter may run any code; `import`
        // takes the text over.
        errno::aside(|| unsafe { import(program.into_raw().cast()) });
    }
}

fn holds_interpreter_lock() -> bool {
    // SAFETY: the interpreter's function of this name has this signature and may be called at any time.
    function(c"PyGILState_Check").is_some_and(|check| unsafe { std::mem::transmute::<usize, IsTrue>(check)() } != 0)
}

/// The program that imports the package, if there is an interpreter that can run it and none was asked before.
fn prepare() -> Option<CString> {
    let package = settings::recording().python_package.as_ref()?;
    let [initialized, run] = [c"Py_IsInitialized", c"PyRun_SimpleString"].map(function);
    let (initialized, run) = (initialized?, run?);
    // SAFETY: the interpreter's function of this name has this signature and may be called at any time.
    if unsafe { std::mem::transmute::<usize, IsTrue>(initialized)() } == 0 || INVITED.swap(true, Ordering::Relaxed) {
        return None;
    }
    RUN_SIMPLE_STRING.store(run as *mut c_void, Ordering::Release);
    CString::new(import_program(package)).ok()
}

/// Run with the interpreter's lock held.
unsafe extern "C" fn import(program: *mut c_void) -> c_int {
    // SAFETY: the pointer is the text from `prepare`, taken back exactly once.
    let program = unsafe { CString::from_raw(program.cast()) };
    let run = RUN_SIMPLE_STRING.load(Ordering::Acquire);
    // SAFETY: stored by `prepare`; the interpreter's function of this name has this signature.
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
