//! Launches of kernels: each function calls that of its implementation.

use std::ffi::c_void;

type Pointer = *mut c_void;

/// `dim3`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Extent {
    x: u32,
    y: u32,
    z: u32,
}

macro_rules! launch_functions {
    ($($name:ident $implementation:ident($($argument:ident: $type:ty),+);)+) => {
        unsafe extern "C" {
            $(fn $implementation($($argument: $type),+) -> i32;)+
        }

        $(#[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "as many as CANN's function has")]
        unsafe extern "C" fn $name($($argument: $type),+) -> i32 {
            // SAFETY: arguments of the caller.
            unsafe { $implementation($($argument),+) }
        })+
    };
}

launch_functions! {
    aclrtLaunchKernel aclrtLaunchKernelImpl(
        function: Pointer, blocks: u32, arguments: *const c_void, bytes: usize, stream: Pointer
    );
    aclrtLaunchKernelV2 aclrtLaunchKernelV2Impl(
        function: Pointer, blocks: u32, arguments: *const c_void, bytes: usize, configuration: Pointer, stream: Pointer
    );
    aclrtLaunchKernelWithConfig aclrtLaunchKernelWithConfigImpl(
        function: Pointer, blocks: u32, stream: Pointer, configuration: Pointer, arguments: Pointer, reserved: Pointer
    );
    aclrtLaunchKernelWithHostArgs aclrtLaunchKernelWithHostArgsImpl(
        function: Pointer, blocks: u32, stream: Pointer, configuration: Pointer, arguments: Pointer, bytes: usize,
        placeholders: Pointer, placeholder_count: usize
    );
    aclrtLaunchKernelWithArgsArray aclrtLaunchKernelWithArgsArrayImpl(
        function: Pointer, blocks: u32, stream: Pointer, configuration: Pointer, arguments: *mut Pointer
    );
    aclrtLaunchSIMTKernelWithHostArgs aclrtLaunchSIMTKernelWithHostArgsImpl(
        function: Pointer, grid: Extent, block: Extent, buffer_bytes: usize, stream: Pointer, configuration: Pointer,
        arguments: Pointer, bytes: usize, placeholders: Pointer, placeholder_count: usize
    );
    aclrtLaunchSIMTKernelWithArgsArray aclrtLaunchSIMTKernelWithArgsArrayImpl(
        function: Pointer, grid: Extent, block: Extent, buffer_bytes: usize, stream: Pointer, configuration: Pointer,
        arguments: *mut Pointer
    );
}
