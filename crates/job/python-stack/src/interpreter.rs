//! The interpreter in this process: its functions and what they say about the calling thread.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::api::ApiFunctions;
use crate::layout::Layout;
use crate::memory::Address;
use crate::preparation::PreparationFunctions;
use crate::status::{FallbackReason, PythonVersion, Refusal};

/// Says where a symbol of the interpreter is. All answers must come from the same library or program.
pub(crate) type SymbolLookup<'a> = &'a dyn Fn(&CStr) -> Option<usize>;

type Ask = unsafe extern "C" fn() -> *mut c_void;
type AskNumber = unsafe extern "C" fn() -> c_int;

/// Functions that neither need the interpreter's lock nor change anything.
#[derive(Clone, Copy)]
struct Functions {
    this_thread_state: Ask,
    main_interpreter: Ask,
    is_finalizing: AskNumber,
    /// The thread state that holds the lock, if that is the calling thread's.
    current_thread_state: Option<Ask>,
}

/// An initialised interpreter that can be read in some way.
pub(crate) struct Interpreter {
    pub version: PythonVersion,
    /// Where things are; nothing if only the functions can be used.
    pub layout: Result<Layout, FallbackReason>,
    /// The functions of the fallback and of the self-check.
    pub api: Option<ApiFunctions>,
    /// The functions that prepare for the end of the interpreter.
    pub preparation: Option<PreparationFunctions>,
    functions: Functions,
    /// Address of the type of code objects.
    pub code_type: Option<usize>,
}

/// Why there is no [`Interpreter`].
pub(crate) enum Absence {
    /// None is loaded or initialised.
    NotYet,
    /// There is one that cannot be read.
    Refused(Refusal),
}

/// Makes a function pointer out of an address.
///
/// # Safety
/// `F` must be a function pointer type and the function at `address` must have that type.
pub(crate) unsafe fn function<F: Copy>(address: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: promised by the caller.
    unsafe { std::mem::transmute_copy(&address) }
}

impl Interpreter {
    /// Looks for the interpreter.
    ///
    /// # Safety
    /// `lookup` must answer with addresses of one CPython's symbols that stay loaded.
    pub unsafe fn find(lookup: SymbolLookup<'_>) -> Result<Self, Absence> {
        let find = |name: &CStr| lookup(name).ok_or(Absence::NotYet);
        // SAFETY: types as documented by CPython since 3.9.
        let (is_initialized, version_text, this_thread_state, main_interpreter) = unsafe {
            (
                function::<AskNumber>(find(c"Py_IsInitialized")?),
                function::<unsafe extern "C" fn() -> *const c_char>(find(c"Py_GetVersion")?),
                function::<Ask>(find(c"PyGILState_GetThisThreadState")?),
                function::<Ask>(find(c"PyInterpreterState_Main")?),
            )
        };
        // SAFETY: may be called at any time.
        if unsafe { is_initialized() } == 0 {
            return Err(Absence::NotYet);
        }
        // SAFETY: may be called at any time; returns a static text.
        let text = unsafe { CStr::from_ptr(version_text()) }.to_bytes();
        let version = PythonVersion::parse(text).filter(|version| *version >= PythonVersion::OLDEST);
        let version = version.ok_or(Absence::Refused(Refusal::TooOld))?;
        let runtime = lookup(c"_PyRuntime");
        let names_it = text.windows(14).any(|part| part == b"free-threading");
        // SAFETY: the address is that of this version.
        if names_it || unsafe { Layout::says_free_threaded(version, runtime) } {
            return Err(Absence::Refused(Refusal::FreeThreaded));
        }
        let is_finalizing = find(c"Py_IsFinalizing").or_else(|_| find(c"_Py_IsFinalizing"))?;
        let current = lookup(c"PyThreadState_GetUnchecked").or_else(|| lookup(c"_PyThreadState_UncheckedGet"));
        let functions = Functions {
            this_thread_state,
            main_interpreter,
            // SAFETY: all of these take nothing.
            is_finalizing: unsafe { function(is_finalizing) },
            // SAFETY: as above.
            current_thread_state: current.map(|address| unsafe { function(address) }),
        };
        let layout = match lookup(c"_Py_AddToAllObjects") {
            Some(_) => Err(FallbackReason::TracedReferences),
            // SAFETY: the address is that of this version.
            None => unsafe { Layout::of(version, runtime) }.ok_or(FallbackReason::UnknownVersion),
        };
        // SAFETY: promised by the caller.
        let (api, preparation) = unsafe { (ApiFunctions::find(lookup), PreparationFunctions::find(lookup)) };
        if layout.is_err() && (api.is_none() || functions.current_thread_state.is_none()) {
            return Err(Absence::Refused(Refusal::Unknown));
        }
        Ok(Self { version, layout, api, preparation, functions, code_type: lookup(c"PyCode_Type") })
    }

    /// The calling thread's state, if it has one and the interpreter is not shutting down.
    #[inline(always)]
    fn thread_state(&self) -> Option<Address> {
        // SAFETY: these may be called at any time in any thread.
        unsafe {
            let state = Address::new((self.functions.this_thread_state)() as usize)?;
            ((self.functions.is_finalizing)() == 0).then_some(state)
        }
    }

    /// The calling thread's state if its frames can be read: it belongs to the main interpreter.
    #[inline(always)]
    pub fn readable_thread_state(&self, layout: &Layout) -> Option<Address> {
        let state = self.thread_state()?;
        // SAFETY: the state of a running thread stays until the thread or the interpreter ends.
        let interpreter: usize = unsafe { state.load(layout.thread_interpreter) };
        // SAFETY: may be called at any time.
        let main = unsafe { (self.functions.main_interpreter)() } as usize;
        (interpreter == main).then_some(state)
    }

    /// Whether the calling thread holds the interpreter's lock.
    ///
    /// `PyGILState_Check` says yes to everybody once there are sub-interpreters, so the thread state
    /// that holds the lock is compared with the thread's own.
    pub fn holds_lock(&self) -> bool {
        let Some(current) = self.functions.current_thread_state else { return false };
        // SAFETY: may be called at any time in any thread.
        self.thread_state().is_some_and(|state| state.get() == unsafe { current() } as usize)
    }

    /// Whether an object is a code object.
    ///
    /// # Safety
    /// `object` must be a live object.
    pub unsafe fn is_code(&self, object: Address) -> bool {
        const OBJECT_TYPE: u16 = 8;
        // SAFETY: promised by the caller.
        self.code_type.is_none_or(|code_type| unsafe { object.load::<usize>(OBJECT_TYPE) } == code_type)
    }
}
