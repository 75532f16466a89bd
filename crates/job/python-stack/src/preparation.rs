//! What is done once in the interpreter's main thread, at a point where it may run anything: the
//! self-check, and arrangements for the end of the interpreter.
//!
//! The point is a pending call, which any thread may ask for without the interpreter's lock.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::interpreter::{SymbolLookup, function};

type Object = *mut c_void;
type Work = unsafe extern "C" fn(*mut c_void) -> c_int;

const TAKES_NO_ARGUMENTS: c_int = 4;

/// Describes a function written in C to the interpreter.
#[repr(C)]
struct MethodDefinition {
    name: *const c_char,
    function: unsafe extern "C" fn(Object, Object) -> Object,
    flags: c_int,
    documentation: *const c_char,
}

// SAFETY: never changes.
unsafe impl Sync for MethodDefinition {}

static AT_EXIT: MethodDefinition = MethodDefinition {
    name: c"end_of_interpreter".as_ptr(),
    function: end_begins,
    flags: TAKES_NO_ARGUMENTS,
    documentation: std::ptr::null(),
};

/// Who wants to know about the end of the interpreter. The process has one interpreter at a time.
static LISTENER: AtomicPtr<Listener> = AtomicPtr::new(null_mut());

/// What is told about the end.
pub(crate) struct Listener {
    /// Whom to tell.
    pub subject: *const c_void,
    /// The interpreter is about to shut down; its lock is held.
    pub begins: fn(*const c_void),
    /// It has shut down.
    pub is_over: fn(*const c_void),
    /// The interpreter's none.
    none: usize,
    take_reference: unsafe extern "C" fn(Object),
}

/// The functions.
#[derive(Clone, Copy)]
pub(crate) struct PreparationFunctions {
    add_pending_call: unsafe extern "C" fn(Work, *mut c_void) -> c_int,
    import: unsafe extern "C" fn(*const c_char) -> Object,
    attribute: unsafe extern "C" fn(Object, *const c_char) -> Object,
    call: unsafe extern "C" fn(Object, ...) -> Object,
    new_function: unsafe extern "C" fn(*const MethodDefinition, Object, Object) -> Object,
    at_last: unsafe extern "C" fn(unsafe extern "C" fn()) -> c_int,
    clear_error: unsafe extern "C" fn(),
    take_reference: unsafe extern "C" fn(Object),
    drop_reference: unsafe extern "C" fn(Object),
    none: usize,
}

const NOT_ASKED: u8 = 0;
const ASKED: u8 = 1;

/// Whether the pending call was asked for.
pub(crate) struct Request(AtomicU8);

impl Request {
    pub fn new() -> Self {
        Self(AtomicU8::new(NOT_ASKED))
    }

    /// Asks for one call of `work(subject)`, if that was not done yet.
    #[inline(always)]
    pub fn once(&self, functions: Option<&PreparationFunctions>, work: Work, subject: *const c_void) {
        if self.0.load(Ordering::Relaxed) == NOT_ASKED {
            self.ask(functions, work, subject);
        }
    }

    #[cold]
    fn ask(&self, functions: Option<&PreparationFunctions>, work: Work, subject: *const c_void) {
        let Some(functions) = functions else { return };
        if self.0.compare_exchange(NOT_ASKED, ASKED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            // SAFETY: may be called in any thread at any time; `work` takes what it is given.
            && unsafe { (functions.add_pending_call)(work, subject.cast_mut()) } != 0
        {
            // The queue is full for the moment.
            self.0.store(NOT_ASKED, Ordering::Relaxed);
        }
    }
}

impl PreparationFunctions {
    /// Finds the functions; nothing if one is missing.
    ///
    /// # Safety
    /// `lookup` must answer with addresses of one CPython's symbols that stay loaded.
    pub unsafe fn find(lookup: SymbolLookup<'_>) -> Option<Self> {
        // SAFETY: types as documented by CPython since 3.9.
        unsafe {
            Some(Self {
                add_pending_call: function(lookup(c"Py_AddPendingCall")?),
                import: function(lookup(c"PyImport_ImportModule")?),
                attribute: function(lookup(c"PyObject_GetAttrString")?),
                call: function(lookup(c"PyObject_CallFunctionObjArgs")?),
                new_function: function(lookup(c"PyCFunction_NewEx")?),
                at_last: function(lookup(c"Py_AtExit")?),
                clear_error: function(lookup(c"PyErr_Clear")?),
                take_reference: function(lookup(c"Py_IncRef")?),
                drop_reference: function(lookup(c"Py_DecRef")?),
                none: lookup(c"_Py_NoneStruct")?,
            })
        }
    }

    /// Has a listener told about the end of the interpreter. False if that cannot be arranged.
    ///
    /// # Safety
    /// In the main thread, with the interpreter's lock. The subject must live for good.
    pub unsafe fn listen(&self, subject: *const c_void, begins: fn(*const c_void), is_over: fn(*const c_void)) -> bool {
        let (none, take_reference) = (self.none, self.take_reference);
        let listener = Box::new(Listener { subject, begins, is_over, none, take_reference });
        // The listener of an interpreter that is over stays: it costs nothing.
        LISTENER.store(Box::into_raw(listener), Ordering::Release);
        // SAFETY: promised by the caller; every reference that is got is dropped again.
        unsafe {
            let module = (self.import)(c"atexit".as_ptr());
            let register = self.if_some(module, |module| (self.attribute)(module, c"register".as_ptr()));
            let callback = (self.new_function)(&AT_EXIT, null_mut(), null_mut());
            let result = self.if_some(register, |register| match callback.is_null() {
                false => (self.call)(register, callback, null_mut::<c_void>()),
                true => null_mut(),
            });
            let is_registered = !result.is_null() && (self.at_last)(end_is_over) == 0;
            for object in [module, register, callback, result] {
                if !object.is_null() {
                    (self.drop_reference)(object);
                }
            }
            if !is_registered {
                (self.clear_error)();
            }
            is_registered
        }
    }

    fn if_some(&self, object: Object, work: impl FnOnce(Object) -> Object) -> Object {
        if object.is_null() { null_mut() } else { work(object) }
    }
}

/// The interpreter runs its exit functions; the states of other threads still exist.
unsafe extern "C" fn end_begins(_: Object, _: Object) -> Object {
    // SAFETY: set before this was registered, never freed.
    let listener = unsafe { &*LISTENER.load(Ordering::Acquire) };
    (listener.begins)(listener.subject);
    let none = listener.none as Object;
    // SAFETY: called by the interpreter with its lock held.
    unsafe { (listener.take_reference)(none) };
    none
}

/// The interpreter has shut down.
unsafe extern "C" fn end_is_over() {
    // SAFETY: set before this was registered, never freed.
    let listener = unsafe { &*LISTENER.load(Ordering::Acquire) };
    (listener.is_over)(listener.subject);
}
