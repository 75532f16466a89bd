//! Launches of kernels.

use crate::runtime::{aclrtLaunchKernelImpl, aclrtLaunchKernelWithHostArgsImpl};
use std::ffi::c_void;

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchKernelWithHostArgs(
    function: *mut c_void,
    blocks: u32,
    stream: *mut c_void,
    configuration: *mut c_void,
    arguments: *mut c_void,
    argument_bytes: usize,
    placeholders: *mut c_void,
    placeholder_count: usize,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe {
        aclrtLaunchKernelWithHostArgsImpl(
            function,
            blocks,
            stream,
            configuration,
            arguments,
            argument_bytes,
            placeholders,
            placeholder_count,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchKernel(
    function: *mut c_void,
    blocks: u32,
    arguments: *const c_void,
    argument_bytes: usize,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe { aclrtLaunchKernelImpl(function, blocks, arguments, argument_bytes, stream) }
}
