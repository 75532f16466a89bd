//! Operators of PyTorch on all threads, through its own observer interface (`at::RecordFunction`).
//!
//! The interface is C++, but small: a structure of two function pointers and flags is handed over, and
//! the two functions are called around every operator, on whatever thread it runs. Which releases have
//! exactly this structure is decided in Python; here a trial operator must be seen before the interface
//! is relied upon. Where it is not, a dispatch mode sees the operators of the threads it is entered on.
//!
//! An operator may be made of others. Recorded are the outermost ones that a backend runs: composites,
//! which only call other operators, are left out, and so is what happens inside of a backend's operator.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use msmemscope_event::Framework;
use pyo3::ffi::Py_AddPendingCall;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::facts::intern;
use crate::panics::contained;
use crate::session::{note_devices, operator_device, recorder, records_operators};

const LIBRARY: &CStr = c"libtorch_cpu.so";
/// `at::addGlobalCallback(at::RecordFunctionCallback)`.
const ADD: &CStr = c"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE";
/// `at::removeCallback(unsigned long)`.
const REMOVE: &CStr = c"_ZN2at14removeCallbackEm";
/// `at::RecordFunction::name() const`.
const NAME: &CStr = c"_ZNK2at14RecordFunction4nameEv";
/// `at::RecordFunction::overload_name() const`.
const OVERLOAD_NAME: &CStr = c"_ZNK2at14RecordFunction13overload_nameEv";

/// `at::RecordScope::NUM_SCOPES`.
const SCOPES: usize = 10;
/// `at::RecordScope::FUNCTION`: operators.
const OPERATOR_SCOPE: usize = 0;

/// `at::RecordFunctionCallback`.
#[repr(C)]
struct Callback {
    start: *const c_void,
    end: *const c_void,
    sampling_probability: f64,
    scopes: [bool; SCOPES],
    needs_inputs: bool,
    needs_outputs: bool,
    needs_ids: bool,
}

type Add = unsafe extern "C-unwind" fn(Callback) -> u64;
type Remove = unsafe extern "C-unwind" fn(u64);
type TextOf = unsafe extern "C-unwind" fn(*const c_void) -> *const c_char;

/// Functions of the library, found together.
#[derive(Clone, Copy)]
struct Interface {
    add: Add,
    remove: Remove,
    name: TextOf,
    overload_name: TextOf,
}

impl Interface {
    /// Nothing if the library is not loaded or lacks one of the functions.
    fn find() -> Option<Interface> {
        // SAFETY: asks for a library that is loaded already; the handle keeps it loaded.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let find = |name: &CStr| {
            // SAFETY: a lookup by name in a loaded library.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let (add, remove, name, overload_name) = (find(ADD)?, find(REMOVE)?, find(NAME)?, find(OVERLOAD_NAME)?);
        // SAFETY: the mangled names say the signatures.
        unsafe {
            Some(Interface {
                add: std::mem::transmute::<*mut c_void, Add>(add),
                remove: std::mem::transmute::<*mut c_void, Remove>(remove),
                name: std::mem::transmute::<*mut c_void, TextOf>(name),
                overload_name: std::mem::transmute::<*mut c_void, TextOf>(overload_name),
            })
        }
    }
}

/// What everybody shares; locked only when something changes or an operator is new to a thread.
struct Shared {
    interface: Option<Interface>,
    handle: Option<u64>,
    /// Full names of operators that only call other operators.
    composites: HashSet<String>,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);
/// Grows with each registration; what a thread remembers from an earlier one does not count.
static GENERATION: AtomicU64 = AtomicU64::new(1);

fn with_shared<Value>(action: impl FnOnce(&mut Shared) -> Value) -> Value {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    action(shared.get_or_insert_with(|| Shared { interface: None, handle: None, composites: HashSet::new() }))
}

/// What is known about an operator: its text and the recorder's id of it, none if it is not recorded.
struct Known {
    text: Box<CStr>,
    id: Option<u32>,
}

/// What one thread remembers.
struct Memory {
    generation: u64,
    name: TextOf,
    overload_name: TextOf,
    known: FxHashMap<(usize, usize), Known>,
}

thread_local! {
    /// The outermost recorded operator that runs: address of its record, id, device, generation.
    static OPEN: Cell<(usize, u32, u32, u64)> = const { Cell::new((0, 0, 0, 0)) };
    static MEMORY: RefCell<Option<Memory>> = const { RefCell::new(None) };
    /// Operators recorded.
    static RECORDED: Cell<u64> = const { Cell::new(0) };
    /// Counts operators instead of recording them, while the interface is tried out on this thread.
    static TRIAL: Cell<Option<Trial>> = const { Cell::new(None) };
}

/// Whether the interface is being tried out on some thread.
static IS_TRIAL: AtomicBool = AtomicBool::new(false);

/// What this thread has seen of its trial, if it has one.
#[inline(always)]
fn trial() -> Option<Trial> {
    if IS_TRIAL.load(Ordering::Relaxed) { TRIAL.get() } else { None }
}

/// What was seen of the trial operator.
#[derive(Clone, Copy, Default)]
struct Trial {
    begins: u32,
    ends: u32,
    has_name: bool,
}

/// The operator for the trial, as Python's `torch.empty(0)` calls it.
const TRIAL_OPERATOR: (&CStr, &CStr) = (c"aten::empty", c"memory_format");

/// Called by PyTorch before an operator. The result is an empty `std::unique_ptr`, through a slot.
#[cfg(target_arch = "x86_64")]
unsafe extern "C-unwind" fn start(slot: *mut *mut c_void, record: *const c_void) -> *mut *mut c_void {
    // SAFETY: the caller's place for the result.
    unsafe { *slot = std::ptr::null_mut() };
    begin(record);
    slot
}

/// As above; here the slot comes in a register of its own.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn start() {
    core::arch::naked_asm!("str xzr, [x8]", "b {begin}", begin = sym begin)
}

/// Called by PyTorch after an operator, also if it raised.
unsafe extern "C-unwind" fn end(record: *const c_void, _context: *mut c_void) {
    let (open, id, device, generation) = OPEN.get();
    if let Some(trial) = trial() {
        TRIAL.set(Some(Trial { ends: trial.ends + 1, ..trial }));
    } else if open == record as usize {
        OPEN.set((0, 0, 0, 0));
        if generation == GENERATION.load(Ordering::Relaxed)
            && let Some(recorder) = recorder()
        {
            recorder.end_operator(Framework::Aten, device, id);
        }
    }
}

extern "C-unwind" fn begin(record: *const c_void) {
    let generation = GENERATION.load(Ordering::Relaxed);
    let (open, _, _, opened) = OPEN.get();
    if open != 0 && opened == generation {
        return;
    }
    let Some(recorder) = recorder() else { return };
    // A thread that is about to end has forgotten everything.
    let id = MEMORY.try_with(|memory| {
        let mut memory = memory.try_borrow_mut().ok()?;
        let memory = match &mut *memory {
            Some(known) if known.generation == generation => known,
            memory => memory.insert(Memory::of(generation)?),
        };
        // SAFETY: the functions belong to the library that called; the record is the caller's.
        let (name, overload) = unsafe { ((memory.name)(record), (memory.overload_name)(record)) };
        memory.id(name, overload)
    });
    let id = id.ok().flatten();
    if let Some(id) = id
        && records_operators(recorder)
    {
        let device = operator_device();
        OPEN.set((record as usize, id, device, generation));
        recorder.begin_operator(Framework::Aten, device, id);
        let recorded = RECORDED.get() + 1;
        RECORDED.set(recorded);
        if recorded.is_power_of_two() && recorded >= FIRST_NOTICE {
            notify();
        }
    }
}

/// Operators of a thread after which Python is told for the first time; then again with each doubling.
const FIRST_NOTICE: u64 = 256;

/// What Python wants to be told.
static NOTICE: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Has the interpreter tell Python, between two instructions of its main thread: here an operator runs.
#[cold]
fn notify() {
    // SAFETY: may be called from any thread, with the interpreter's lock or without.
    unsafe { Py_AddPendingCall(Some(give_notice), std::ptr::null_mut()) };
}

extern "C" fn give_notice(_: *mut c_void) -> c_int {
    contained((), || {
        Python::attach(|py| {
            let notice =
                NOTICE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|notice| notice.clone_ref(py));
            if let Some(Err(error)) = notice.map(|notice| notice.call0(py)) {
                error.write_unraisable(py, None);
            }
        });
    });
    0
}

/// Calls this after 256 recorded operators of a thread, after twice as many, and so on; nothing if it is None.
#[pyfunction]
fn notice_operators(notice: Option<Py<PyAny>>) {
    let before = std::mem::replace(&mut *NOTICE.lock().unwrap_or_else(PoisonError::into_inner), notice);
    drop(before); // Outside of the lock: it may run Python.
}

impl Memory {
    #[cold]
    fn of(generation: u64) -> Option<Memory> {
        let Interface { name, overload_name, .. } = contained(None, || with_shared(|shared| shared.interface))?;
        Some(Memory { generation, name, overload_name, known: FxHashMap::default() })
    }

    /// The id of an operator that is recorded. Texts stay where they are as long as the operator is
    /// registered, so that their addresses say nearly everything.
    fn id(&mut self, name: *const c_char, overload: *const c_char) -> Option<u32> {
        if name.is_null() || overload.is_null() {
            return None;
        }
        if let Some(trial) = trial() {
            // SAFETY: PyTorch's texts end with a zero and live during the call.
            let texts = unsafe { (CStr::from_ptr(name), CStr::from_ptr(overload)) };
            let has_name = trial.has_name || texts == TRIAL_OPERATOR;
            TRIAL.set(Some(Trial { begins: trial.begins + 1, has_name, ..trial }));
            return None;
        }
        let key = (name as usize, overload as usize);
        match self.known.get(&key) {
            // SAFETY: both end with a zero.
            Some(known) if unsafe { libc::strcmp(known.text.as_ptr(), name) } == 0 => known.id,
            // SAFETY: as above.
            _ => unsafe { self.learn(key, CStr::from_ptr(name), CStr::from_ptr(overload)) },
        }
    }

    #[cold]
    fn learn(&mut self, key: (usize, usize), text: &CStr, overload: &CStr) -> Option<u32> {
        let is_composite = |name: &str| with_shared(|shared| shared.composites.contains(name));
        let id = contained(None, || shown_name(text, overload, is_composite).map(|shown| intern(&shown)));
        self.known.insert(key, Known { text: text.into(), id });
        id
    }
}

/// `torch._ops.aten.add.Tensor` for `aten::add` and `Tensor`; nothing for what is no operator of a backend.
fn shown_name(text: &CStr, overload: &CStr, is_composite: impl Fn(&str) -> bool) -> Option<String> {
    let (text, overload) = (text.to_str().ok()?, overload.to_str().ok()?);
    let (namespace, name) = text.split_once("::")?;
    if namespace == "profiler" || name.contains("::") {
        return None;
    }
    let full = if overload.is_empty() { text.to_owned() } else { format!("{text}.{overload}") };
    if is_composite(&full) {
        return None;
    }
    Some(format!("torch._ops.{namespace}.{name}.{}", if overload.is_empty() { "default" } else { overload }))
}

/// Records operators of all threads from now on. `trial` calls the operator `empty`, to see whether
/// it arrives. Gives whether it works; if not, nothing is changed.
#[pyfunction]
fn observe_operators(composites: HashSet<String>, trial: &Bound<'_, PyAny>) -> PyResult<bool> {
    if recorder().is_none() {
        return Ok(false);
    }
    note_devices();
    let is_there = with_shared(|shared| {
        if shared.composites != composites {
            shared.composites = composites;
            GENERATION.fetch_add(1, Ordering::Relaxed);
        }
        shared.handle.is_some()
    });
    if is_there {
        return Ok(true);
    }
    let Some(interface) = Interface::find() else { return Ok(false) };
    with_shared(|shared| shared.interface = Some(interface));
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let mut scopes = [false; SCOPES];
    scopes[OPERATOR_SCOPE] = true;
    let callback = Callback {
        start: start as *const c_void,
        end: end as *const c_void,
        sampling_probability: 1.0,
        scopes,
        needs_inputs: false,
        needs_outputs: false,
        needs_ids: false,
    };
    // SAFETY: the structure is the one of this release, as the caller made sure; the functions never go away.
    let handle = unsafe { (interface.add)(callback) };
    TRIAL.set(Some(Trial::default()));
    IS_TRIAL.store(true, Ordering::Relaxed);
    let called = trial.call0();
    IS_TRIAL.store(false, Ordering::Relaxed);
    let seen = TRIAL.take().unwrap_or_default();
    let works = called.is_ok() && seen.begins == seen.ends && seen.has_name;
    if works {
        with_shared(|shared| shared.handle = Some(handle));
    } else {
        // SAFETY: the handle is the one just given.
        unsafe { (interface.remove)(handle) };
    }
    Ok(works)
}

/// Records operators no more.
#[pyfunction]
fn ignore_operators() {
    let registered = with_shared(|shared| Some((shared.interface?, shared.handle.take()?)));
    if let Some((interface, handle)) = registered {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the handle is of a callback that is registered.
        unsafe { (interface.remove)(handle) };
    }
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(observe_operators, module)?)?;
    module.add_function(wrap_pyfunction!(ignore_operators, module)?)?;
    module.add_function(wrap_pyfunction!(notice_operators, module)?)
}
