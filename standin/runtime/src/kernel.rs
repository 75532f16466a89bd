//! Kernels: handles by name, and the functions that launch them.
//!
//! A handle stands for a function of a binary that the card would have loaded. What it computes comes with the arguments
//! of the launch: a function of the host and what it is given.

use crate::error::{RuntimeError, code};
use crate::stream::{Stream, Task, TaskType, Work};
use crate::task_reports::{ApiCall, name_hash};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The feature does not exist.
const UNSUPPORTED: i32 = 207_000;

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

/// What a launch computes: the arguments of every kernel here.
#[derive(Clone, Copy)]
#[repr(C)]
struct Arguments {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
}

// SAFETY: whoever launches gives the argument away to the worker of the stream.
unsafe impl Send for Arguments {}

impl Arguments {
    /// Copies the arguments of a launch, as a card does.
    unsafe fn read(arguments: *const c_void, size_bytes: usize) -> Result<Self, RuntimeError> {
        if arguments.is_null() || size_bytes < size_of::<Self>() {
            return Err(RuntimeError::InvalidParameter);
        }
        // SAFETY: checked above; valid for its size by the contract of the C functions.
        Ok(unsafe { arguments.cast::<Self>().read_unaligned() })
    }

    fn into_work(self) -> Work {
        Box::new(move || self.compute())
    }

    fn compute(self) {
        if let Some(function) = self.function {
            // SAFETY: function and argument belong together by the contract of the launch.
            unsafe { function(self.argument) };
        }
    }
}

/// `rtArgsEx_t`, as far as it matters here.
#[repr(C)]
struct ArgumentsEx {
    arguments: *const c_void,
    host_inputs: *const c_void,
    size_bytes: u32,
}

/// `rtAicpuArgsEx_t`, as far as it matters here.
#[repr(C)]
struct CardProcessorArguments {
    arguments: *const c_void,
    host_inputs: *const c_void,
    kernel_offsets: *const c_void,
    size_bytes: u32,
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
    fn tiling(&'static self, key: u64) -> &'static Self {
        let mut tilings = self.tilings.lock().unwrap_or_else(PoisonError::into_inner);
        tilings.entry(key).or_insert_with(|| {
            let name = format!("{}_{key}", self.name.to_string_lossy());
            Self::new(CString::new(name).unwrap_or_default(), self.task_type)
        })
    }
}

/// Our own: the handle of a kernel, or of a binary for the launch functions that take a tiling key.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinKernel(name: *const c_char, task_type: u32) -> *mut c_void {
    static KERNELS: Mutex<Option<HashMap<CString, &'static Kernel>>> = Mutex::new(None);
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

unsafe fn launch(
    kernel: Option<&'static Kernel>,
    stream: *mut c_void,
    arguments: *const c_void,
    size_bytes: usize,
) -> i32 {
    let _call = ApiCall::begin();
    let launched = || {
        let kernel = kernel.ok_or(RuntimeError::InvalidParameter)?;
        // SAFETY: the caller's arguments.
        let work = unsafe { Arguments::read(arguments, size_bytes) }?.into_work();
        Stream::find(stream as u64)?.submit(Task::Kernel(kernel), work)
    };
    code(launched())
}

/// A kernel behind a handle of `standinKernel`.
unsafe fn from_handle(handle: *mut c_void) -> Option<&'static Kernel> {
    // SAFETY: null or a handle, which lives as long as the process.
    unsafe { handle.cast::<Kernel>().as_ref() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtsLaunchKernelWithHostArgs(
    function: *mut c_void,
    _blocks: u32,
    stream: *mut c_void,
    _configuration: *mut c_void,
    arguments: *mut c_void,
    argument_bytes: u32,
    _placeholders: *mut c_void,
    _placeholder_count: u32,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe { launch(from_handle(function), stream, arguments, argument_bytes as usize) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtKernelLaunchWithHandleV2(
    handle: *mut c_void,
    tiling_key: u64,
    _blocks: u32,
    arguments: *const ArgumentsEx,
    _description: *mut c_void,
    stream: *mut c_void,
    _configuration: *const c_void,
) -> i32 {
    // SAFETY: null or a handle; arguments of the caller.
    unsafe { launch_ex(from_handle(handle).map(|binary| binary.tiling(tiling_key)), stream, arguments) }
}

/// Launches with arguments in their usual description.
unsafe fn launch_ex(kernel: Option<&'static Kernel>, stream: *mut c_void, arguments: *const ArgumentsEx) -> i32 {
    // SAFETY: null or valid by the contract of the C functions.
    let Some(arguments) = (unsafe { arguments.as_ref() }) else { return RuntimeError::InvalidParameter as i32 };
    // SAFETY: arguments of the caller.
    unsafe { launch(kernel, stream, arguments.arguments, arguments.size_bytes as usize) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtsLaunchKernelWithDevArgs(
    function: *mut c_void,
    _blocks: u32,
    stream: *mut c_void,
    _configuration: *mut c_void,
    arguments: *const c_void,
    argument_bytes: u32,
    _reserved: *mut c_void,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe { launch(from_handle(function), stream, arguments, argument_bytes as usize) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtsLaunchKernelWithConfig(
    function: *mut c_void,
    _blocks: u32,
    stream: *mut c_void,
    _configuration: *mut c_void,
    arguments: *const ArgumentsEx,
    _reserved: *mut c_void,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe { launch_ex(from_handle(function), stream, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtLaunchKernelByFuncHandleV3(
    function: *mut c_void,
    _blocks: u32,
    arguments: *const ArgumentsEx,
    stream: *mut c_void,
    _configuration: *const c_void,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe { launch_ex(from_handle(function), stream, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtKernelLaunchWithFlagV2(
    stub: *mut c_void,
    _blocks: u32,
    arguments: *const ArgumentsEx,
    _description: *mut c_void,
    stream: *mut c_void,
    _flags: u32,
    _configuration: *const c_void,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe { launch_ex(from_handle(stub), stream, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rtVectorCoreKernelLaunchWithHandle(
    handle: *mut c_void,
    tiling_key: u64,
    _blocks: u32,
    arguments: *const ArgumentsEx,
    _description: *mut c_void,
    stream: *mut c_void,
    _configuration: *const c_void,
) -> i32 {
    // SAFETY: null or a handle; arguments of the caller.
    unsafe { launch_ex(from_handle(handle).map(|binary| binary.tiling(tiling_key)), stream, arguments) }
}

/// Kernels of the card's processors are known by name.
#[unsafe(no_mangle)]
unsafe extern "C" fn rtAicpuKernelLaunchExWithArgs(
    _kind: u32,
    name: *const c_char,
    _blocks: u32,
    arguments: *const CardProcessorArguments,
    _description: *mut *mut c_void,
    stream: *mut c_void,
    _flags: u32,
) -> i32 {
    const CARD_PROCESSOR: u32 = 1;
    // SAFETY: null or valid by the contract of the C function.
    let Some(arguments) = (unsafe { arguments.as_ref() }) else { return RuntimeError::InvalidParameter as i32 };
    // SAFETY: a terminated string or null; arguments of the caller.
    unsafe {
        let kernel = from_handle(standinKernel(name, CARD_PROCESSOR));
        launch(kernel, stream, arguments.arguments, arguments.size_bytes as usize)
    }
}

/// Kernels given as binaries cannot run here; programs that only link against the following functions still load.
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
extern "C" fn rtKernelLaunch(
    _stub: *const c_void,
    _blocks: u32,
    _arguments: *mut c_void,
    _argument_bytes: u32,
    _description: *mut c_void,
    _stream: *mut c_void,
) -> i32 {
    UNSUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn rtGetC2cCtrlAddr(_address: *mut u64, _length: *mut u32) -> i32 {
    UNSUPPORTED
}
