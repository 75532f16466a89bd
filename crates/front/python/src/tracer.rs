//! Tells the recorder about Python calls as they happen.
//!
//! Python 3.12 and later call the functions under "monitoring" below, for all threads. Older versions
//! have one profile function per thread, which [`trace_this_thread`] and [`trace_all_threads`] install.
//! Neither is part of the stable ABI, so the interpreter's functions are looked up by name.
//!
//! Every thread keeps the stack of calls it has reported. A call that was open before tracing began is
//! reported when the thread is first seen, so that its end has a start. Functions are reported by name,
//! `file(line): function`, or `nn.Module: <class>` for the call of a PyTorch module.

use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use msmemscope_event::PythonCallPhase;
use pyo3::Borrowed;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyTypeMethods};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::panics::contained;
use crate::session::recorder;

/// Names remembered per thread before the memory of them starts afresh.
const MOST_NAMES: usize = 1 << 14;
/// The function of PyTorch through which every module is called.
const MODULE_CALL: &str = "Module._wrapped_call_impl";
const MODULE_FILE: &str = "torch/nn/modules/module.py";

const EVENT_CALL: c_int = 0;
const EVENT_RETURN: c_int = 3;
const EVENT_C_CALL: c_int = 4;
const EVENT_C_EXCEPTION: c_int = 5;
const EVENT_C_RETURN: c_int = 6;

/// Where the functions of this package are.
static PACKAGE_DIRECTORY: OnceLock<String> = OnceLock::new();
/// Which run of the tracer is under way; zero if none.
static RUN: AtomicU32 = AtomicU32::new(0);
static LAST_RUN: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Python,
    Native,
    /// A function of this package or a native one called by it: not reported.
    Own,
}

/// The name of a Python function.
#[derive(Clone, Copy, Debug)]
enum CodeName {
    Fixed(u32),
    /// None: a function of this package.
    Own,
    /// That of the module which is being called.
    Module,
}

/// Places for names of functions that are called again and again.
const RECENT_NAMES: usize = 256;

/// What a thread has reported.
struct ThreadCalls {
    run: u32,
    /// How many pieces of our own work are under way, whose calls are nobody's business.
    pauses: u32,
    open: Vec<Open>,
    native_names: FxHashMap<(usize, usize), u32>,
    /// By method of a native type, kept alive as code objects are.
    method_names: FxHashMap<usize, (Py<PyAny>, u32)>,
    /// By code object, which is kept alive here so that no other can take its address.
    code_names: FxHashMap<usize, (Py<PyAny>, CodeName)>,
    /// Some of them, each at the place that its address gives it; empty before the first.
    recent_names: Vec<(usize, CodeName)>,
}

thread_local! {
    static CALLS: RefCell<ThreadCalls> = const {
        RefCell::new(ThreadCalls {
            run: 0,
            pauses: 0,
            open: Vec::new(),
            native_names: FxHashMap::with_hasher(FxBuildHasher),
            method_names: FxHashMap::with_hasher(FxBuildHasher),
            code_names: FxHashMap::with_hasher(FxBuildHasher),
            recent_names: Vec::new(),
        })
    };
}

/// Where the name of a code object is among the recent ones.
fn recent_place(code: usize) -> usize {
    (code >> 4 ^ code >> 12) % RECENT_NAMES
}

fn report(phase: PythonCallPhase, name: u32) {
    if let Some(recorder) = recorder() {
        recorder.python_call(phase, name);
    }
}

fn intern(text: &str) -> u32 {
    recorder().map_or(0, |recorder| recorder.intern(text.as_bytes()))
}

impl ThreadCalls {
    /// Takes part in a run of the tracer, with what is open already in `frame` and around it.
    #[cold]
    fn join(&mut self, run: u32, frame: Option<Bound<'_, PyAny>>) {
        self.run = run;
        self.end_all();
        let frames: Vec<_> = std::iter::successors(frame, |frame| interpreter().frame_back(frame)).collect();
        for frame in frames.iter().rev() {
            self.begin_python(PythonCallPhase::AlreadyOpen, frame);
        }
    }

    /// Reports the call of the function that runs in `frame`.
    fn begin_python(&mut self, phase: PythonCallPhase, frame: &Bound<'_, PyAny>) {
        let name = interpreter().code_of(frame).and_then(|code| self.name_of_code(&code, frame));
        if let Some(name) = name {
            report(phase, name);
        }
        self.open.push(if name.is_some() { Open::Python } else { Open::Own });
    }

    fn begin_native(&mut self, callable: &Bound<'_, PyAny>) {
        if self.open.last() != Some(&Open::Own) {
            let name = self.name_of_native(callable);
            report(PythonCallPhase::NamedBegin, name);
            self.open.push(Open::Native);
        }
    }

    /// Nothing for functions that are not reported.
    fn name_of_code(&mut self, code: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) -> Option<u32> {
        let key = code.as_ptr() as usize;
        let name = match self.recent_names.get(recent_place(key)) {
            Some((recent, name)) if *recent == key => *name,
            _ => self.less_recent_name_of_code(code),
        };
        match name {
            CodeName::Fixed(name) => Some(name),
            CodeName::Own => None,
            CodeName::Module => Some(contained(0, || module_name(frame))),
        }
    }

    #[inline(never)]
    fn less_recent_name_of_code(&mut self, code: &Bound<'_, PyAny>) -> CodeName {
        let key = code.as_ptr() as usize;
        let name = match self.code_names.get(&key) {
            Some((_, name)) => *name,
            None => {
                let name = contained(CodeName::Own, || code_name(code));
                if self.code_names.len() >= MOST_NAMES {
                    self.code_names.clear();
                    self.recent_names.clear();
                }
                self.code_names.insert(key, (code.clone().unbind(), name));
                name
            }
        };
        self.recent_names.resize(RECENT_NAMES, (0, CodeName::Own));
        self.recent_names[recent_place(key)] = (key, name);
        name
    }

    /// Ends the innermost Python call, and native ones inside it whose end went unseen.
    fn end_python(&mut self) {
        while let Some(ended) = self.end_innermost() {
            if ended != Open::Native {
                return;
            }
        }
    }

    fn end_native(&mut self) {
        if self.open.last() == Some(&Open::Native) {
            self.end_innermost();
        }
    }

    fn end_innermost(&mut self) -> Option<Open> {
        let innermost = self.open.pop()?;
        if innermost != Open::Own {
            report(PythonCallPhase::End, 0);
        }
        Some(innermost)
    }

    fn end_all(&mut self) {
        while self.end_innermost().is_some() {}
    }

    /// The id of a native function's name.
    ///
    /// Objects of bound methods come and go, so a name is remembered by the C function and by what it
    /// is bound to: the object itself if that is a module or a capsule, else its type.
    fn name_of_native(&mut self, callable: &Bound<'_, PyAny>) -> u32 {
        let pointer = callable.as_ptr();
        if is_method(callable) {
            return self.name_of_method(callable);
        }
        // SAFETY: live objects; the checked type has these fields.
        let key = unsafe {
            if ffi::PyCFunction_Check(pointer) == 0 {
                return native_name(callable);
            }
            let bound_to = ffi::PyCFunction_GetSelf(pointer);
            if bound_to.is_null() {
                return native_name(callable);
            }
            let is_lasting = ffi::PyModule_Check(bound_to) != 0 || ffi::PyCapsule_CheckExact(bound_to) != 0;
            let owner = if is_lasting { bound_to as usize } else { ffi::Py_TYPE(bound_to) as usize };
            (ffi::PyCFunction_GetFunction(pointer).map_or(0, |function| function as usize), owner)
        };
        if let Some(&name) = self.native_names.get(&key) {
            return name;
        }
        let name = contained(0, || native_name(callable));
        if self.native_names.len() >= MOST_NAMES {
            self.native_names.clear();
        }
        self.native_names.insert(key, name);
        name
    }

    /// The id of the name of a native type's method.
    fn name_of_method(&mut self, method: &Bound<'_, PyAny>) -> u32 {
        let key = method.as_ptr() as usize;
        if let Some((_, name)) = self.method_names.get(&key) {
            return *name;
        }
        let name = contained(0, || native_name(method));
        if self.method_names.len() >= MOST_NAMES {
            self.method_names.clear();
        }
        self.method_names.insert(key, (method.clone().unbind(), name));
        name
    }
}

fn text_attribute(object: &Bound<'_, PyAny>, name: &str) -> Option<String> {
    let value = object.getattr_opt(name).ok().flatten()?;
    value.cast::<PyString>().ok().map(|text| text.to_string_lossy().into_owned())
}

fn code_name(code: &Bound<'_, PyAny>) -> CodeName {
    let name = text_attribute(code, "co_qualname").or_else(|| text_attribute(code, "co_name")).unwrap_or_default();
    let file = text_attribute(code, "co_filename").unwrap_or_default();
    if MODULE_CALL.ends_with(&name) && file.ends_with(MODULE_FILE) && !name.is_empty() {
        return CodeName::Module;
    }
    if PACKAGE_DIRECTORY.get().is_some_and(|directory| file.starts_with(&**directory)) {
        return CodeName::Own;
    }
    let line = code.getattr("co_firstlineno").and_then(|line| line.extract::<u32>()).unwrap_or_default();
    CodeName::Fixed(intern(&format!("{file}({line}): {name}")))
}

/// `nn.Module: <class>` of the module whose call runs in `frame`.
fn module_name(frame: &Bound<'_, PyAny>) -> u32 {
    let module = frame.getattr("f_locals").and_then(|variables| variables.get_item("self"));
    let class = module.and_then(|module| module.get_type().qualname().map(|name| name.to_string()));
    intern(&format!("nn.Module: {}", class.unwrap_or_default()))
}

/// `module.qualified_name` of a native callable, as an id.
fn native_name(callable: &Bound<'_, PyAny>) -> u32 {
    let name = text_attribute(callable, "__qualname__").or_else(|| text_attribute(callable, "__name__"));
    let name = name.unwrap_or_else(|| callable.get_type().to_string());
    match text_attribute(callable, "__module__") {
        Some(module) => intern(&format!("{module}.{name}")),
        None => intern(&name),
    }
}

/// Runs `action` with the calls of this thread if tracing is on and the tracer is not itself at work.
///
/// `around` gives the frame that was already running before this event, for a thread seen first.
#[inline(always)]
fn with_calls<'py>(around: impl FnOnce() -> Option<Bound<'py, PyAny>>, action: impl FnOnce(&mut ThreadCalls)) {
    let run = RUN.load(Ordering::Relaxed);
    if run == 0 {
        return;
    }
    let _ = CALLS.try_with(|calls| {
        let Ok(mut calls) = calls.try_borrow_mut() else { return };
        if calls.pauses > 0 {
            return;
        }
        if calls.run != run {
            calls.join(run, around());
        }
        action(&mut calls);
    });
}

/// Functions of the interpreter outside the stable ABI.
struct Interpreter {
    frame_code: Option<unsafe extern "C" fn(*mut PyObject) -> *mut PyObject>,
    frame_back: Option<unsafe extern "C" fn(*mut PyObject) -> *mut PyObject>,
    current_frame: Option<unsafe extern "C" fn() -> *mut PyObject>,
    set_profile: Option<unsafe extern "C" fn(Option<ProfileFunction>, *mut PyObject)>,
    set_thread_profile: Option<unsafe extern "C" fn(*mut c_void, Option<ProfileFunction>, *mut PyObject) -> c_int>,
    current_interpreter: Option<unsafe extern "C" fn() -> *mut c_void>,
    first_thread: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    next_thread: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
}

type ProfileFunction = unsafe extern "C" fn(*mut PyObject, *mut PyObject, c_int, *mut PyObject) -> c_int;

/// Looks a function of the interpreter up by name.
///
/// # Safety
/// `Function` must be the type of the function with this name, in an `Option`.
unsafe fn symbol<Function>(name: &CStr) -> Option<Function> {
    // SAFETY: a plain lookup by name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: promised by the caller; a function pointer is as large as the address.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
}

fn interpreter() -> &'static Interpreter {
    static INTERPRETER: OnceLock<Interpreter> = OnceLock::new();
    // SAFETY: these are the signatures in the headers of Python 3.9 to 3.14.
    INTERPRETER.get_or_init(|| unsafe {
        Interpreter {
            frame_code: symbol(c"PyFrame_GetCode"),
            frame_back: symbol(c"PyFrame_GetBack"),
            current_frame: symbol(c"PyEval_GetFrame"),
            set_profile: symbol(c"PyEval_SetProfile"),
            set_thread_profile: symbol(c"_PyEval_SetProfile"),
            current_interpreter: symbol(c"PyInterpreterState_Get"),
            first_thread: symbol(c"PyInterpreterState_ThreadHead"),
            next_thread: symbol(c"PyThreadState_Next"),
        }
    })
}

impl Interpreter {
    fn code_of<'py>(&self, frame: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: a live frame; the result is a new reference or null.
        unsafe { Bound::from_owned_ptr_or_opt(frame.py(), self.frame_code?(frame.as_ptr())) }
    }

    /// The caller of a frame.
    fn frame_back<'py>(&self, frame: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: a live frame; the result is a new reference or null.
        unsafe { Bound::from_owned_ptr_or_opt(frame.py(), self.frame_back?(frame.as_ptr())) }
    }

    /// The frame that runs on this thread.
    fn current_frame<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: the interpreter's lock is held; the frame is lent or null.
        unsafe { Bound::from_borrowed_ptr_or_opt(py, self.current_frame?()) }
    }
}

/// The profile function of Python 3.11 and older.
unsafe extern "C" fn profile(_: *mut PyObject, frame: *mut PyObject, event: c_int, argument: *mut PyObject) -> c_int {
    if RUN.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    // SAFETY: the interpreter calls with its lock held and lends a live frame.
    let frame = unsafe { Borrowed::from_ptr(Python::assume_attached(), frame) };
    let around = || if event == EVENT_CALL { interpreter().frame_back(&frame) } else { Some(frame.to_owned()) };
    with_calls(around, |calls| match event {
        EVENT_CALL => calls.begin_python(PythonCallPhase::NamedBegin, &frame),
        EVENT_RETURN => calls.end_python(),
        // SAFETY: for these events the argument is a live function.
        EVENT_C_CALL => calls.begin_native(&*unsafe { Borrowed::from_ptr(frame.py(), argument) }),
        EVENT_C_RETURN | EVENT_C_EXCEPTION => calls.end_native(),
        _ => {}
    });
    0
}

/// Tracing begins; needs the functions below to be installed. Functions in `package_directory` are not
/// reported.
#[pyfunction]
fn trace_begin(package_directory: String) {
    PACKAGE_DIRECTORY.get_or_init(|| package_directory);
    RUN.store(LAST_RUN.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Tracing ends; open calls of this thread end now, those of other threads when they are seen again.
#[pyfunction]
fn trace_end() {
    RUN.store(0, Ordering::Relaxed);
    CALLS.with(|calls| {
        if let Ok(mut calls) = calls.try_borrow_mut() {
            calls.end_all();
        }
    });
}

/// Work of our own begins on this thread: none of its calls is reported until [`trace_resume`], which must be called
/// from the same function.
#[pyfunction]
fn trace_pause() {
    CALLS.with(|calls| {
        if let Ok(mut calls) = calls.try_borrow_mut() {
            calls.pauses += 1;
        }
    });
}

/// It is done.
#[pyfunction]
fn trace_resume() {
    CALLS.with(|calls| {
        if let Ok(mut calls) = calls.try_borrow_mut() {
            calls.pauses = calls.pauses.saturating_sub(1);
        }
    });
}

/// Installs the profile function on the calling thread.
#[pyfunction]
fn trace_this_thread() -> PyResult<()> {
    let set_profile = interpreter().set_profile.ok_or_else(|| missing("PyEval_SetProfile"))?;
    // SAFETY: the function has the signature of a profile function and lives as long as the process.
    unsafe { set_profile(Some(profile), std::ptr::null_mut()) };
    Ok(())
}

/// Where a thread's state has its profile function and its identity, in words from its start.
///
/// No function of the interpreter tells the profile function of another thread, and the place differs from
/// version to version. It is found by looking for our own in the state of the calling thread.
struct ThreadStateLayout {
    profile: usize,
    identity: Option<usize>,
}

/// Words at the start of a thread's state, all inside of it in Python 3.9 to 3.11.
const THREAD_STATE_WORDS: usize = 32;

impl ThreadStateLayout {
    /// Needs our profile function to be installed on the calling thread.
    fn find() -> Option<ThreadStateLayout> {
        // SAFETY: the interpreter's lock is held, so this thread has a state, which is larger than what is read.
        let words = unsafe { std::slice::from_raw_parts(ffi::PyThreadState_Get().cast::<usize>(), THREAD_STATE_WORDS) };
        // SAFETY: no preconditions.
        let this_thread = unsafe { libc::pthread_self() } as usize;
        Some(ThreadStateLayout {
            profile: words.iter().position(|word| *word == profile as ProfileFunction as usize)?,
            identity: words.iter().position(|word| *word == this_thread),
        })
    }
}

/// Installs the profile function on all threads that have none, or removes it wherever it is ours.
///
/// Returns the identities of threads that have a profiler of their own, which they keep; zero for unknown ones.
#[pyfunction]
fn trace_all_threads(enable: bool) -> PyResult<Vec<usize>> {
    static LAYOUT: OnceLock<Option<ThreadStateLayout>> = OnceLock::new();
    let known = interpreter();
    let mut others = Vec::new();
    if enable {
        trace_this_thread()?;
    }
    let layout = if enable {
        LAYOUT.get_or_init(ThreadStateLayout::find).as_ref()
    } else {
        LAYOUT.get().and_then(Option::as_ref)
    };
    let (Some(layout), Some(set), Some(interpreter_state), Some(first), Some(next)) =
        (layout, known.set_thread_profile, known.current_interpreter, known.first_thread, known.next_thread)
    else {
        return Ok(others);
    };
    let ours = profile as ProfileFunction as usize;
    // SAFETY: we hold the interpreter's lock, so the list of threads and their states stay as they are; the layout
    // was found in a state of this interpreter.
    unsafe {
        let mut thread = first(interpreter_state());
        while !thread.is_null() {
            let words = thread.cast::<usize>();
            let installed = *words.add(layout.profile);
            let function = enable.then_some(profile as ProfileFunction);
            if installed == if enable { 0 } else { ours } {
                if set(thread, function, std::ptr::null_mut()) != 0 {
                    return Err(PyErr::fetch(Python::assume_attached()));
                }
            } else if installed != 0 && installed != ours {
                others.push(layout.identity.map_or(0, |place| *words.add(place)));
            }
            thread = next(thread);
        }
    }
    Ok(others)
}

fn missing(name: &str) -> PyErr {
    PyRuntimeError::new_err(format!("this interpreter has no {name}"))
}

// Monitoring: callbacks of sys.monitoring in Python 3.12 and later.

/// A Python function begins or goes on.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
fn monitor_enter(py: Python<'_>, _arguments: &Bound<'_, PyTuple>) {
    let Some(frame) = interpreter().current_frame(py) else { return };
    with_calls(|| interpreter().frame_back(&frame), |calls| calls.begin_python(PythonCallPhase::NamedBegin, &frame));
}

/// A Python function returns, yields or is left by an exception.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
fn monitor_leave(py: Python<'_>, _arguments: &Bound<'_, PyTuple>) {
    with_calls(|| interpreter().current_frame(py), ThreadCalls::end_python);
}

/// Something is called; Python functions report themselves.
#[pyfunction]
#[pyo3(signature = (_code, _offset, callable, *_rest))]
fn monitor_call(
    _code: &Bound<'_, PyAny>,
    _offset: &Bound<'_, PyAny>,
    callable: &Bound<'_, PyAny>,
    _rest: &Bound<'_, PyTuple>,
) {
    if is_native(callable) {
        with_calls(|| interpreter().current_frame(callable.py()), |calls| calls.begin_native(callable));
    }
}

/// A call that is no Python function ended.
#[pyfunction]
#[pyo3(signature = (_code, _offset, callable, *_rest))]
fn monitor_native_end(
    _code: &Bound<'_, PyAny>,
    _offset: &Bound<'_, PyAny>,
    callable: &Bound<'_, PyAny>,
    _rest: &Bound<'_, PyTuple>,
) {
    if is_native(callable) {
        with_calls(|| interpreter().current_frame(callable.py()), ThreadCalls::end_native);
    }
}

/// Whether it is a function written in C. `object.method()` comes here as the method of the type.
fn is_native(callable: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object.
    unsafe { ffi::PyCFunction_Check(callable.as_ptr()) != 0 || is_method(callable) }
}

fn is_method(callable: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object and a type that lives as long as the interpreter.
    unsafe { ffi::Py_TYPE(callable.as_ptr()) == &raw mut ffi::PyMethodDescr_Type }
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(trace_begin, module)?)?;
    module.add_function(wrap_pyfunction!(trace_end, module)?)?;
    module.add_function(wrap_pyfunction!(trace_pause, module)?)?;
    module.add_function(wrap_pyfunction!(trace_resume, module)?)?;
    module.add_function(wrap_pyfunction!(trace_this_thread, module)?)?;
    module.add_function(wrap_pyfunction!(trace_all_threads, module)?)?;
    module.add_function(wrap_pyfunction!(monitor_enter, module)?)?;
    module.add_function(wrap_pyfunction!(monitor_leave, module)?)?;
    module.add_function(wrap_pyfunction!(monitor_call, module)?)?;
    module.add_function(wrap_pyfunction!(monitor_native_end, module)?)
}
