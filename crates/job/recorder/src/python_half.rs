//! Brings the Python half of the tool into a job that does not import it: operators, labels,
//! snapshots and the Python trace can only be seen from inside the interpreter.
//!
//! When torch_npu is imported, or at the latest when the runtime is up, the interpreter is asked to import
//! the package between two of its own instructions, in its main thread; when it is up, the package is asked
//! to look again. If memory of CPU tensors is wanted, that is too late, and without an NPU it never happens:
//! the interpreter is then asked when it imports PyTorch. A thread other than the main one, which may be waiting for it, imports the package itself then.
//! Jobs without an interpreter are left alone; if the import fails, one line says so and memory events go on.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::{elf, errno, message, settings, thread};

/// Queues a function for the interpreter's main thread; non-zero if the queue is full.
type AddPendingCall = unsafe extern "C" fn(PendingCall, *mut c_void) -> c_int;
type PendingCall = unsafe extern "C" fn(*mut c_void) -> c_int;
type IsTrue = unsafe extern "C" fn() -> c_int;
/// Runs a program text in `__main__`; prints a traceback and gives -1 if it raises.
type RunSimpleString = unsafe extern "C" fn(*const c_char) -> c_int;

/// Whether the package was asked for at an import, and whether it was when the runtime was up.
static IS_INVITED_EARLY: AtomicBool = AtomicBool::new(false);
static IS_INVITED: AtomicBool = AtomicBool::new(false);
static RUN_SIMPLE_STRING: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// What the interpreter looks up when it imports the native part of PyTorch, and of some other packages.
const FRAMEWORK_ENTRY: &CStr = c"PyInit__C";
/// The library with the allocator of CPU tensors.
const HOST_ALLOCATOR: &str = "libc10.so";
/// The library of PyTorch's device, loaded with the native part of torch_npu.
const DEVICE_BACKEND: &str = "libtorch_npu.so";

/// Somebody looks up a function by name: invites the package if torch_npu is being imported, so that not even its first
/// operator and no mark before that is missed, or if PyTorch is and its CPU tensors are wanted.
pub fn note_lookup(name: &CStr) {
    if name != FRAMEWORK_ENTRY {
        return;
    }
    let wants_host = settings::recording().settings.devices.cpu;
    if is_loaded(DEVICE_BACKEND) || (wants_host && is_loaded(HOST_ALLOCATOR)) {
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

/// Whether PyTorch's device is in the process, so that the package sees operators and looks around them.
pub fn has_framework() -> bool {
    is_loaded(DEVICE_BACKEND)
}

/// The runtime is up: asks the interpreter, if there is one, to import the package; once per process.
#[cold]
pub fn invite() {
    invite_unless(&IS_INVITED);
}

fn invite_unless(is_invited: &AtomicBool) {
    let Some(program) = prepare(is_invited) else { return };
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
    let is_main_thread = thread::thread_id() == std::process::id();
    if is_main_thread || !holds_interpreter_lock() {
        invite_unless(&IS_INVITED_EARLY);
    } else if let Some(program) = prepare(&IS_INVITED_EARLY) {
        // SAFETY: the lock is held, and this is called from where the interpreter may run any code; `import`
        // takes the text over.
        errno::aside(|| unsafe { import(program.into_raw().cast()) });
    }
}

/// Asks the package, if the interpreter has imported it, to follow what was asked for from outside: in the main thread,
/// between two of its instructions. False if nobody will.
#[cold]
pub fn ask_to_follow(request: u32, wants_snapshot: bool) -> bool {
    let [initialized, run, add] = [c"Py_IsInitialized", c"PyRun_SimpleString", c"Py_AddPendingCall"].map(function);
    let (Some(initialized), Some(run), Some(add)) = (initialized, run, add) else { return false };
    // SAFETY: the interpreter's function of this name has this signature and may be called at any time.
    if unsafe { std::mem::transmute::<usize, IsTrue>(initialized)() } == 0 {
        return false;
    }
    RUN_SIMPLE_STRING.store(run as *mut c_void, Ordering::Release);
    let text = FOLLOW_PROGRAM.replace("@REQUEST@", &request.to_string());
    let Ok(text) = CString::new(text.replace("@SNAPSHOT@", if wants_snapshot { "True" } else { "False" })) else {
        return false;
    };
    // SAFETY: the interpreter's function of this name has this signature.
    let add_pending_call = unsafe { std::mem::transmute::<usize, AddPendingCall>(add) };
    let text = text.into_raw();
    // SAFETY: the call may be made without the interpreter's lock; `import` takes the text over.
    if unsafe { add_pending_call(import, text.cast()) } == 0 {
        return true;
    }
    // SAFETY: the queue has not taken it.
    drop(unsafe { CString::from_raw(text) });
    false
}

/// What the interpreter runs then, with `@REQUEST@` for the number of the request and `@SNAPSHOT@` for whether counters of
/// frameworks are wanted. A package that is not there, or is of another age, answers nothing.
const FOLLOW_PROGRAM: &str = include_str!("follow_request.py");

fn holds_interpreter_lock() -> bool {
    // SAFETY: the interpreter's function of this name has this signature and may be called at any time.
    function(c"PyGILState_Check").is_some_and(|check| unsafe { std::mem::transmute::<usize, IsTrue>(check)() } != 0)
}

/// What the interpreter runs, with `@PACKAGE@` for the bytes of the path to the package.
const IMPORT_PROGRAM: &str = include_str!("import_package.py");

/// The program that imports the package, if there is an interpreter that can run it and none was asked before.
fn prepare(is_invited: &AtomicBool) -> Option<CString> {
    let package = settings::recording().python_package.as_ref()?;
    let [initialized, run] = [c"Py_IsInitialized", c"PyRun_SimpleString"].map(function);
    let (initialized, run) = (initialized?, run?);
    // SAFETY: the interpreter's function of this name has this signature and may be called at any time.
    if unsafe { std::mem::transmute::<usize, IsTrue>(initialized)() } == 0 || is_invited.swap(true, Ordering::Relaxed) {
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
    let literal: String = package.as_os_str().as_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect();
    IMPORT_PROGRAM.replace("@PACKAGE@", &literal).into_bytes()
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
        assert!(program.contains("os.fsdecode(b\"\\x2f\\x61\\x20\\x62\\x2f\\x69\\x74\\x27\\x73"), "{program}");
        let checked = std::process::Command::new("python3").args(["-c", &program]).output().expect("python3");
        assert!(checked.status.success());
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(
            said.starts_with("[msmemscope] the Python half could not be imported") && said.lines().count() == 1,
            "{said}"
        );
    }
}
