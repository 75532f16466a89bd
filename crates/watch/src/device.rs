//! Reads device memory through the runtime that the framework has loaded.

use std::ffi::{CStr, c_int, c_void};

use msmemscope_event::Device;

type Memcpy = unsafe extern "C" fn(*mut c_void, usize, *const c_void, usize, c_int) -> c_int;
type GetDevice = unsafe extern "C" fn(*mut c_int) -> c_int;
type SetDevice = unsafe extern "C" fn(c_int) -> c_int;

const DEVICE_TO_HOST: c_int = 2;
const RUNTIME: &CStr = c"libascendcl.so";

/// The functions of the runtime.
#[derive(Clone, Copy)]
pub struct Runtime {
    memcpy: Memcpy,
    get_device: GetDevice,
    set_device: SetDevice,
}

impl Runtime {
    /// The runtime, if it is loaded. Never loads it.
    pub fn find() -> Option<Self> {
        // SAFETY: a plain lookup; nothing is loaded.
        let library = unsafe { libc::dlopen(RUNTIME.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        let function = |name: &CStr| {
            // SAFETY: the library is loaded and stays so: its handle is kept.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let (memcpy, get, set) =
            (function(c"aclrtMemcpy")?, function(c"aclrtGetDevice")?, function(c"aclrtSetDevice")?);
        // SAFETY: the runtime's functions of these names have these signatures.
        unsafe {
            Some(Self {
                memcpy: std::mem::transmute::<*mut c_void, Memcpy>(memcpy),
                get_device: std::mem::transmute::<*mut c_void, GetDevice>(get),
                set_device: std::mem::transmute::<*mut c_void, SetDevice>(set),
            })
        }
    }

    /// Copies memory of a device that has no work left to do.
    pub fn read(&self, device: Device, address: u64, buffer: &mut [u8]) -> Result<(), String> {
        let mut current = -1;
        // SAFETY: the variable outlives the call.
        let known = unsafe { (self.get_device)(&mut current) } == 0;
        let wanted = match device {
            Device::Npu(id) => c_int::from(id),
            _ => current,
        };
        let moves = known && wanted != current;
        if moves {
            // SAFETY: the framework works on this device, so it is open.
            unsafe { (self.set_device)(wanted) };
        }
        // SAFETY: the buffer has this length; the runtime itself checks the device address.
        let error = unsafe {
            (self.memcpy)(
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                address as *const c_void,
                buffer.len(),
                DEVICE_TO_HOST,
            )
        };
        if moves {
            // SAFETY: back to where this thread was.
            unsafe { (self.set_device)(current) };
        }
        if error == 0 { Ok(()) } else { Err(format!("aclrtMemcpy returned {error}")) }
    }
}
