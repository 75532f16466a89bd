//! Stand-in for CANN's `libacl_rt_impl.so`: the functions behind AscendCL that tools look up by name.

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

unsafe extern "C" {
    fn rtGetDevice(device: *mut i32) -> i32;
    fn rtGetStreamId(stream: Pointer, id: *mut i32) -> i32;
    fn rtsLaunchKernelWithHostArgs(
        function: Pointer,
        blocks: u32,
        stream: Pointer,
        configuration: Pointer,
        arguments: Pointer,
        argument_bytes: u32,
        placeholders: Pointer,
        placeholder_count: u32,
    ) -> i32;
    fn rtsLaunchKernelWithDevArgs(
        function: Pointer,
        blocks: u32,
        stream: Pointer,
        configuration: Pointer,
        arguments: *const c_void,
        argument_bytes: u32,
        reserved: Pointer,
    ) -> i32;
    fn rtsLaunchKernelWithConfig(
        function: Pointer,
        blocks: u32,
        stream: Pointer,
        configuration: Pointer,
        arguments: Pointer,
        reserved: Pointer,
    ) -> i32;
    fn rtLaunchKernelWithArgsArray(
        function: Pointer,
        blocks: u32,
        stream: Pointer,
        configuration: Pointer,
        arguments: *mut Pointer,
    ) -> i32;
    fn rtLaunchSIMTKernelWithHostArgs(
        function: Pointer,
        grid: Extent,
        block: Extent,
        buffer_bytes: usize,
        stream: Pointer,
        configuration: Pointer,
        arguments: Pointer,
        argument_bytes: u32,
        placeholders: Pointer,
        placeholder_count: u32,
    ) -> i32;
    fn rtLaunchSIMTKernelWithArgsArray(
        function: Pointer,
        grid: Extent,
        block: Extent,
        buffer_bytes: usize,
        stream: Pointer,
        configuration: Pointer,
        arguments: *mut Pointer,
    ) -> i32;
    fn rtLaunchKernelByFuncHandleV3(
        function: Pointer,
        blocks: u32,
        arguments: *const ArgumentsEx,
        stream: Pointer,
        configuration: *const c_void,
    ) -> i32;
}

/// `rtArgsEx_t`.
#[repr(C)]
struct ArgumentsEx {
    arguments: *const c_void,
    host_inputs: *const c_void,
    size_bytes: u32,
    rest: [u32; 3],
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchKernelImpl(
    function: *mut c_void,
    blocks: u32,
    arguments: *const c_void,
    argument_bytes: usize,
    stream: *mut c_void,
) -> i32 {
    let host_inputs = std::ptr::null();
    let arguments = ArgumentsEx { arguments, host_inputs, size_bytes: argument_bytes as u32, rest: [0; 3] };
    // SAFETY: arguments of the caller; their description outlives the call.
    unsafe { rtLaunchKernelByFuncHandleV3(function, blocks, &raw const arguments, stream, std::ptr::null()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtGetDeviceImpl(device: *mut i32) -> i32 {
    // SAFETY: the runtime checks the pointer; writable by the contract of the C function.
    unsafe { rtGetDevice(device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtStreamGetIdImpl(stream: *mut c_void, id: *mut i32) -> i32 {
    // SAFETY: the runtime checks both pointers.
    unsafe { rtGetStreamId(stream, id) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchKernelWithHostArgsImpl(
    function: *mut c_void,
    blocks: u32,
    stream: *mut c_void,
    configuration: *mut c_void,
    arguments: *mut c_void,
    argument_bytes: usize,
    placeholders: *mut c_void,
    placeholder_count: usize,
) -> i32 {
    let (bytes, count) = (argument_bytes as u32, placeholder_count as u32);
    // SAFETY: arguments of the caller.
    unsafe {
        rtsLaunchKernelWithHostArgs(function, blocks, stream, configuration, arguments, bytes, placeholders, count)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchKernelV2Impl(
    function: Pointer,
    blocks: u32,
    arguments: *const c_void,
    argument_bytes: usize,
    configuration: Pointer,
    stream: Pointer,
) -> i32 {
    let (bytes, reserved) = (argument_bytes as u32, std::ptr::null_mut());
    // SAFETY: arguments of the caller.
    unsafe { rtsLaunchKernelWithDevArgs(function, blocks, stream, configuration, arguments, bytes, reserved) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchKernelWithConfigImpl(
    function: Pointer,
    blocks: u32,
    stream: Pointer,
    configuration: Pointer,
    arguments: Pointer,
    reserved: Pointer,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe { rtsLaunchKernelWithConfig(function, blocks, stream, configuration, arguments, reserved) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchKernelWithArgsArrayImpl(
    function: Pointer,
    blocks: u32,
    stream: Pointer,
    configuration: Pointer,
    arguments: *mut Pointer,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe { rtLaunchKernelWithArgsArray(function, blocks, stream, configuration, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchSIMTKernelWithHostArgsImpl(
    function: Pointer,
    grid: Extent,
    block: Extent,
    buffer_bytes: usize,
    stream: Pointer,
    configuration: Pointer,
    arguments: Pointer,
    argument_bytes: usize,
    placeholders: Pointer,
    placeholder_count: usize,
) -> i32 {
    let (bytes, count) = (argument_bytes as u32, placeholder_count as u32);
    // SAFETY: arguments of the caller.
    unsafe {
        rtLaunchSIMTKernelWithHostArgs(
            function,
            grid,
            block,
            buffer_bytes,
            stream,
            configuration,
            arguments,
            bytes,
            placeholders,
            count,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclrtLaunchSIMTKernelWithArgsArrayImpl(
    function: Pointer,
    grid: Extent,
    block: Extent,
    buffer_bytes: usize,
    stream: Pointer,
    configuration: Pointer,
    arguments: *mut Pointer,
) -> i32 {
    // SAFETY: arguments of the caller.
    unsafe { rtLaunchSIMTKernelWithArgsArray(function, grid, block, buffer_bytes, stream, configuration, arguments) }
}
