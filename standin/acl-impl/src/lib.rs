//! Stand-in for CANN's `libacl_rt_impl.so`: the functions behind AscendCL that tools look up by name.

use std::ffi::c_void;

unsafe extern "C" {
    fn rtGetDevice(device: *mut i32) -> i32;
    fn rtGetStreamId(stream: *mut c_void, id: *mut i32) -> i32;
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
