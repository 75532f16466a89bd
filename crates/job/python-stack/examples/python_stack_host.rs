//! A program that embeds an interpreter: starts it, captures stacks of code it runs, ends it, and does
//! all that again. Takes the path of a `libpython` and how often.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Mutex;

use msmemscope_event::{StackId, StringId};
use msmemscope_python_stack::{Attachment, CodeDefinition, Config, PythonStacks, Sink, Status, ThreadState};

static STACKS: PythonStacks = PythonStacks::new(Config::DEFAULT);
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static CODES: Mutex<Option<HashMap<u32, u32>>> = Mutex::new(None);
static FRAMES: Mutex<Option<HashMap<u32, Vec<u8>>>> = Mutex::new(None);

thread_local! {
    static THREAD: RefCell<ThreadState> = const { RefCell::new(ThreadState::new()) };
}

struct Keeper;

impl Sink for Keeper {
    fn string(&mut self, text: &[u8]) -> Option<StringId> {
        let mut names = NAMES.lock().expect("not poisoned");
        names.push(String::from_utf8_lossy(text).into_owned());
        Some(StringId(names.len() as u32))
    }

    fn define_code(&mut self, code: &CodeDefinition<'_>) -> bool {
        CODES.lock().expect("not poisoned").get_or_insert_default().insert(code.id.0, code.name.0);
        true
    }

    fn define_stack(&mut self, id: StackId, frames: &[u8]) -> bool {
        FRAMES.lock().expect("not poisoned").get_or_insert_default().insert(id.0, frames.to_vec());
        true
    }
}

extern "C" fn capture() -> u32 {
    THREAD.with_borrow_mut(|thread| STACKS.capture(thread, 16, &mut Keeper)).stack.0
}

/// Names of the functions of a stack, innermost first.
fn names(stack: u32) -> Vec<String> {
    let frames = FRAMES.lock().expect("not poisoned").get_or_insert_default()[&stack].clone();
    let codes = CODES.lock().expect("not poisoned");
    let names = NAMES.lock().expect("not poisoned");
    let name = |frame: &[u8; 8]| {
        let code = u64::from_le_bytes(*frame) as u32;
        names[codes.as_ref().expect("defined")[&code] as usize - 1].clone()
    };
    frames.as_chunks::<8>().0.iter().map(name).collect()
}

fn main() {
    let rounds: u32 = std::env::args().nth(2).and_then(|text| text.parse().ok()).expect("a number");
    let path = CString::new(std::env::args().nth(1).expect("path of a libpython")).expect("a path");
    // SAFETY: loads an ordinary library.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!library.is_null(), "{path:?} cannot be loaded");
    let lookup = |name: &CStr| {
        // SAFETY: a valid handle and name.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) } as usize;
        (address != 0).then_some(address)
    };
    let find = |name: &CStr| lookup(name).expect("a function of the interpreter") as *const c_void;
    // SAFETY: types as documented by CPython.
    let (initialize, finalize, run) = unsafe {
        (
            std::mem::transmute::<*const c_void, extern "C" fn(c_int)>(find(c"Py_InitializeEx")),
            std::mem::transmute::<*const c_void, extern "C" fn() -> c_int>(find(c"Py_FinalizeEx")),
            std::mem::transmute::<*const c_void, extern "C" fn(*const c_char, *const c_void) -> c_int>(find(
                c"PyRun_SimpleStringFlags",
            )),
        )
    };
    let address = capture as *const () as usize;
    let source = CString::new(format!(
        "import ctypes\n\
         capture = ctypes.CFUNCTYPE(ctypes.c_uint32)({address})\n\
         def inner(): return capture()\n\
         def outer(): return inner()\n\
         for _ in range(1000): stack = outer()\n\
         assert stack != 0\n\
         open(RESULT, 'w').write(str(stack))"
    ))
    .expect("no zeros");
    for round in 0..rounds {
        // SAFETY: one interpreter, which stays loaded.
        assert_eq!(unsafe { STACKS.try_attach(&lookup) }, Attachment::NotYet, "round {round}");
        initialize(0);
        // SAFETY: as above.
        assert_eq!(unsafe { STACKS.try_attach(&lookup) }, Attachment::Attached);
        assert_eq!(capture(), 0, "no Python code runs");
        let result = std::env::temp_dir().join(format!("python_stack_host_{}", std::process::id()));
        let prefix = CString::new(format!("RESULT = {:?}", result.display().to_string())).expect("no zeros");
        assert_eq!(run(prefix.as_ptr(), std::ptr::null()), 0);
        assert_eq!(run(source.as_ptr(), std::ptr::null()), 0);
        let stack = std::fs::read_to_string(&result).expect("a result").parse().expect("a number");
        std::fs::remove_file(&result).expect("removed");
        assert_eq!(names(stack), ["inner", "outer", "<module>"]);
        assert!(matches!(STACKS.status(), Status::Walking(_)), "{}", STACKS.status());
        assert_eq!(finalize(), 0);
        assert_eq!(capture(), 0);
        assert_eq!(STACKS.status(), Status::NotAttached);
    }
}
