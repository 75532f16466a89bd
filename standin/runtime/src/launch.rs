//! The functions that launch kernels, newer and older ones: they differ in how they say which kernel, and how its
//! arguments come.

use crate::error::{RuntimeError, code};
use crate::kernel::{Arguments, Kernel, UNSUPPORTED, from_handle, from_stub, standinKernel};
use crate::stream::{Stream, Task};
use crate::task_reports::ApiCall;
use std::ffi::{c_char, c_void};

type Pointer = *mut c_void;

/// Runs on the card's own processors.
const CARD_PROCESSOR: u32 = 1;

/// `rtArgsEx_t`, as far as it matters here.
#[repr(C)]
struct ArgumentsEx {
    arguments: *const c_void,
    host_inputs: *const c_void,
    size_bytes: u32,
}

/// `rtAicpuArgsEx_t`, as far as it matters here; `rtCpuKernelArgs_t` starts with it.
#[repr(C)]
struct CardProcessorArguments {
    arguments: *const c_void,
    host_inputs: *const c_void,
    kernel_offsets: *const c_void,
    size_bytes: u32,
}

/// `rtKernelLaunchNames_t`.
#[repr(C)]
struct LaunchNames {
    library: *const c_char,
    kernel: *const c_char,
    operator: *const c_char,
}

/// `rtDim3`.
#[repr(C)]
struct Extent {
    x: u32,
    y: u32,
    z: u32,
}

/// Launches with arguments as the card reads them.
unsafe fn launch(kernel: Option<&'static Kernel>, stream: Pointer, arguments: *const c_void, size_bytes: u32) -> i32 {
    // SAFETY: the caller's arguments.
    submit(kernel, stream, unsafe { Arguments::read(arguments, size_bytes as usize) })
}

fn submit(kernel: Option<&'static Kernel>, stream: Pointer, arguments: Result<Arguments, RuntimeError>) -> i32 {
    let _call = ApiCall::begin();
    let launched = || {
        let kernel = kernel.ok_or(RuntimeError::InvalidParameter)?;
        Stream::find(stream as u64)?.submit(Task::Kernel(kernel), arguments?.into_work())
    };
    code(launched())
}

/// Launches with arguments in their usual description.
unsafe fn launch_described(kernel: Option<&'static Kernel>, stream: Pointer, description: *const ArgumentsEx) -> i32 {
    // SAFETY: null or valid by the contract of the C functions.
    match unsafe { description.as_ref() } {
        // SAFETY: arguments of the caller.
        Some(described) => unsafe { launch(kernel, stream, described.arguments, described.size_bytes) },
        None => RuntimeError::InvalidParameter as i32,
    }
}

/// Launches with arguments as processors of the card have them described.
unsafe fn launch_on_card_processor(
    kernel: Option<&'static Kernel>,
    stream: Pointer,
    description: *const CardProcessorArguments,
) -> i32 {
    // SAFETY: null or valid by the contract of the C functions.
    match unsafe { description.as_ref() } {
        // SAFETY: arguments of the caller.
        Some(described) => unsafe { launch(kernel, stream, described.arguments, described.size_bytes) },
        None => RuntimeError::InvalidParameter as i32,
    }
}

/// Launches with a list of pointers to the arguments.
unsafe fn launch_listed(kernel: Option<&'static Kernel>, stream: Pointer, list: *const Pointer) -> i32 {
    // SAFETY: the caller's arguments.
    submit(kernel, stream, unsafe { Arguments::read_listed(list) })
}

/// Launches a kernel that a program has registered under a stub.
unsafe fn launch_stub(stub: *const c_void, stream: Pointer, arguments: *const c_void, size_bytes: u32) -> i32 {
    match from_stub(stub) {
        // SAFETY: arguments of the caller.
        Some(kernel) => unsafe { launch(Some(kernel), stream, arguments, size_bytes) },
        None => UNSUPPORTED,
    }
}

/// The kernel of a binary for a tiling key.
unsafe fn tiling(binary: Pointer, key: u64) -> Option<&'static Kernel> {
    // SAFETY: null or a handle.
    unsafe { from_handle(binary) }.map(|binary| binary.tiling(key))
}

/// Kernels of the card's processors are known by name.
unsafe fn on_card_processor(name: *const c_char) -> Option<&'static Kernel> {
    // SAFETY: a terminated string or null.
    unsafe { from_handle(standinKernel(name, CARD_PROCESSOR)) }
}

macro_rules! launch_functions {
    ($($name:ident($($argument:ident: $type:ty),+) => $launch:expr;)+) => {
        $(#[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "as many as CANN's function has")]
        unsafe extern "C" fn $name($($argument: $type),+) -> i32 {
            // SAFETY: null or valid by the contract of the C functions: handles, names and arguments of the caller.
            unsafe { $launch }
        })+
    };
}

// By the handle of a function.
launch_functions! {
    rtsLaunchKernelWithHostArgs(
        function: Pointer, _blocks: u32, stream: Pointer, _configuration: Pointer, arguments: Pointer, bytes: u32,
        _placeholders: Pointer, _placeholder_count: u32
    ) => launch(from_handle(function), stream, arguments, bytes);
    rtsLaunchKernelWithDevArgs(
        function: Pointer, _blocks: u32, stream: Pointer, _configuration: Pointer, arguments: *const c_void, bytes: u32,
        _reserved: Pointer
    ) => launch(from_handle(function), stream, arguments, bytes);
    rtsLaunchKernelWithConfig(
        function: Pointer, _blocks: u32, stream: Pointer, _configuration: Pointer, arguments: *const ArgumentsEx,
        _reserved: Pointer
    ) => launch_described(from_handle(function), stream, arguments);
    rtLaunchKernelWithArgsArray(
        function: Pointer, _blocks: u32, stream: Pointer, _configuration: Pointer, arguments: *const Pointer
    ) => launch_listed(from_handle(function), stream, arguments);
    rtLaunchSIMTKernelWithHostArgs(
        function: Pointer, _grid: Extent, _block: Extent, _buffer_bytes: usize, stream: Pointer, _configuration: Pointer,
        arguments: Pointer, bytes: u32, _placeholders: Pointer, _placeholder_count: u32
    ) => launch(from_handle(function), stream, arguments, bytes);
    rtLaunchSIMTKernelWithArgsArray(
        function: Pointer, _grid: Extent, _block: Extent, _buffer_bytes: usize, stream: Pointer, _configuration: Pointer,
        arguments: *const Pointer
    ) => launch_listed(from_handle(function), stream, arguments);
    rtLaunchKernelByFuncHandle(
        function: Pointer, _blocks: u32, arguments: *const ArgumentsEx, stream: Pointer
    ) => launch_described(from_handle(function), stream, arguments);
    rtLaunchKernelByFuncHandleV2(
        function: Pointer, _blocks: u32, arguments: *const ArgumentsEx, stream: Pointer, _configuration: *const c_void
    ) => launch_described(from_handle(function), stream, arguments);
    rtLaunchKernelByFuncHandleV3(
        function: Pointer, _blocks: u32, arguments: *const ArgumentsEx, stream: Pointer, _configuration: *const c_void
    ) => launch_described(from_handle(function), stream, arguments);
    rtsLaunchCpuKernel(
        function: Pointer, _blocks: u32, stream: Pointer, _configuration: *const c_void,
        arguments: *const CardProcessorArguments
    ) => launch_on_card_processor(from_handle(function), stream, arguments);
}

// By the handle of a binary and a tiling key.
launch_functions! {
    rtKernelLaunchWithHandle(
        binary: Pointer, tiling_key: u64, _blocks: u32, arguments: *const ArgumentsEx, _description: Pointer,
        stream: Pointer, _information: *const c_void
    ) => launch_described(tiling(binary, tiling_key), stream, arguments);
    rtKernelLaunchWithHandleV2(
        binary: Pointer, tiling_key: u64, _blocks: u32, arguments: *const ArgumentsEx, _description: Pointer,
        stream: Pointer, _configuration: *const c_void
    ) => launch_described(tiling(binary, tiling_key), stream, arguments);
    rtVectorCoreKernelLaunchWithHandle(
        binary: Pointer, tiling_key: u64, _blocks: u32, arguments: *const ArgumentsEx, _description: Pointer,
        stream: Pointer, _configuration: *const c_void
    ) => launch_described(tiling(binary, tiling_key), stream, arguments);
}

// By a stub, for which the handle stands.
launch_functions! {
    rtKernelLaunch(
        stub: *const c_void, _blocks: u32, arguments: *const c_void, bytes: u32, _description: Pointer, stream: Pointer
    ) => launch_stub(stub, stream, arguments, bytes);
    rtKernelLaunchWithFlag(
        stub: *const c_void, _blocks: u32, arguments: *const ArgumentsEx, _description: Pointer, stream: Pointer,
        _flags: u32
    ) => launch_described(from_stub(stub), stream, arguments);
    rtKernelLaunchWithFlagV2(
        stub: *const c_void, _blocks: u32, arguments: *const ArgumentsEx, _description: Pointer, stream: Pointer,
        _flags: u32, _configuration: *const c_void
    ) => launch_described(from_stub(stub), stream, arguments);
    rtVectorCoreKernelLaunch(
        stub: *const c_void, _blocks: u32, arguments: *const ArgumentsEx, _description: Pointer, stream: Pointer,
        _flags: u32, _configuration: *const c_void
    ) => launch_described(from_stub(stub), stream, arguments);
}

// By name, on the card's processors. Two functions say no name; what the card calls those tasks is our choice.
launch_functions! {
    rtAicpuKernelLaunchExWithArgs(
        _kind: u32, name: *const c_char, _blocks: u32, arguments: *const CardProcessorArguments,
        _description: *mut Pointer, stream: Pointer, _flags: u32
    ) => launch_on_card_processor(on_card_processor(name), stream, arguments);
    rtAicpuKernelLaunchWithFlag(
        names: *const LaunchNames, _blocks: u32, arguments: *const ArgumentsEx, _description: Pointer, stream: Pointer,
        _flags: u32
    ) => launch_described(names.as_ref().and_then(|names| on_card_processor(names.operator)), stream, arguments);
    rtCpuKernelLaunchWithFlag(
        _library: *const c_char, name: *const c_char, _blocks: u32, arguments: *const ArgumentsEx,
        _description: Pointer, stream: Pointer, _flags: u32
    ) => launch_described(on_card_processor(name), stream, arguments);
    rtKernelLaunchEx(
        arguments: *const c_void, bytes: u32, _flags: u32, stream: Pointer
    ) => launch(on_card_processor(c"KernelEx".as_ptr()), stream, arguments, bytes);
    rtFftsPlusTaskLaunch(
        arguments: *const ArgumentsEx, stream: Pointer
    ) => launch_described(on_card_processor(c"FftsPlus".as_ptr()), stream, arguments);
    rtFftsPlusTaskLaunchWithFlag(
        arguments: *const ArgumentsEx, stream: Pointer, _flags: u32
    ) => launch_described(on_card_processor(c"FftsPlus".as_ptr()), stream, arguments);
}
