//! Kernels: handles by name, and what a launch of one computes.
//!
//! A handle stands for a function of a binary that the card would have loaded. What it computes comes with the arguments
//! of the launch: a function of the host and what it is given.

use crate::error::RuntimeError;
use crate::stream::{TaskType, Work};
use crate::task_reports::name_hash;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The feature does not exist.
pub const UNSUPPORTED: i32 = 207_000;

/// A kernel that can be launched. Lives as long as the process.
pub struct Kernel {
    /// Its full name.
    pub name: CString,
    /// Which unit of the card runs it.
    pub task_type: TaskType,
    hash: AtomicU64,
    /// Kernels of the same binary by tiling key, for the older way to launch.
    tilings: Mutex<HashMap<u64, &'static Kernel>>,
}

type Function = Option<unsafe extern "C" fn(*mut c_void)>;

/// What a launch computes: the arguments of every kernel here.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Arguments {
    function: Function,
    argument: *mut c_void,
}

// SAFETY: whoever launches gives the argument away to the worker of the stream.
unsafe impl Send for Arguments {}
// SAFETY: as above; the worker alone uses it.
unsafe impl Sync for Arguments {}

impl Arguments {
    /// Copies the arguments of a launch, as a card does.
    pub unsafe fn read(arguments: *const c_void, size_bytes: usize) -> Result<Self, RuntimeError> {
        if arguments.is_null() || size_bytes < size_of::<Self>() {
            return Err(RuntimeError::InvalidParameter);
        }
        // SAFETY: checked above; valid for its size by the contract of the C functions.
        Ok(unsafe { arguments.cast::<Self>().read_unaligned() })
    }

    /// Copies the arguments of a launch that gives a pointer to each of them.
    pub unsafe fn read_listed(list: *const *mut c_void) -> Result<Self, RuntimeError> {
        if list.is_null() {
            return Err(RuntimeError::InvalidParameter);
        }
        // SAFETY: checked above; two pointers to arguments by the contract of the C functions.
        unsafe {
            let (function, argument) = (list.read().cast::<Function>(), list.add(1).read().cast::<*mut c_void>());
            Ok(Self { function: function.read_unaligned(), argument: argument.read_unaligned() })
        }
    }

    /// What the worker of the stream does.
    pub fn into_work(self) -> Work {
        Arc::new(move || self.compute())
    }

    fn compute(self) {
        if let Some(function) = self.function {
            // SAFETY: function and argument belong together by the contract of the launch.
            unsafe { function(self.argument) };
        }
    }
}

impl Kernel {
    fn new(name: CString, task_type: TaskType) -> &'static Self {
        let tilings = Mutex::new(HashMap::new());
        Box::leak(Box::new(Self { name, task_type, hash: AtomicU64::new(0), tilings }))
    }

    /// The number that names it in reports. It is asked for until there is one.
    pub fn hash(&self) -> u64 {
        match self.hash.load(Ordering::Relaxed) {
            0 => {
                let hash = name_hash(&self.name);
                self.hash.store(hash, Ordering::Relaxed);
                hash
            }
            known => known,
        }
    }

    /// The kernel of this binary for a tiling key.
    pub fn tiling(&'static self, key: u64) -> &'static Self {
        let mut tilings = self.tilings.lock().unwrap_or_else(PoisonError::into_inner);
        tilings.entry(key).or_insert_with(|| {
            let name = format!("{}_{key}", self.name.to_string_lossy());
            Self::new(CString::new(name).unwrap_or_default(), self.task_type)
        })
    }
}

static KERNELS: Mutex<Option<HashMap<CString, &'static Kernel>>> = Mutex::new(None);

/// Our own: the handle of a kernel, or of a binary for the launch functions that take a tiling key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinKernel(name: *const c_char, task_type: u32) -> *mut c_void {
    if name.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: checked above; a terminated string by the contract of this function.
    let name = unsafe { CStr::from_ptr(name) };
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let kernels = kernels.get_or_insert_default();
    let kernel = match kernels.get(name) {
        Some(known) => known,
        None => {
            let kernel = Kernel::new(name.to_owned(), TaskType(task_type));
            kernels.insert(name.to_owned(), kernel);
            kernel
        }
    };
    std::ptr::from_ref(kernel).cast_mut().cast()
}

/// A kernel behind a handle of `standinKernel`.
pub unsafe fn from_handle(handle: *mut c_void) -> Option<&'static Kernel> {
    // SAFETY: null or a handle, which lives as long as the process.
    unsafe { handle.cast::<Kernel>().as_ref() }
}

/// The kernel for which a stub stands: a handle of `standinKernel`. Anything else is a kernel that cannot run here.
pub fn from_stub(stub: *const c_void) -> Option<&'static Kernel> {
    let kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    kernels.as_ref()?.values().copied().find(|kernel| std::ptr::from_ref(*kernel).cast() == stub)
}

/// Kernels given as binaries cannot run here; programs that only link against these functions still load.
#[unsafe(no_mangle)]
extern "C" fn rtDevBinaryRegister(_binary: *const c_void, _handle: *mut *mut c_void) -> i32 {
    UNSUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn rtFunctionRegister(
    _binary: *mut c_void,
    _stub: *const c_void,
    _name: *const c_char,
    _information: *const c_void,
    _mode: u32,
) -> i32 {
    UNSUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn rtGetC2cCtrlAddr(_address: *mut u64, _length: *mut u32) -> i32 {
    UNSUPPORTED
}
