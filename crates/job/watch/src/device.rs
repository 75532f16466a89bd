//! Reads device memory and waits for streams through the runtime that the framework has loaded.

use std::ffi::{CStr, c_int, c_void};

use msmemscope_event::Device;

type Memcpy = unsafe extern "C" fn(*mut c_void, usize, *const c_void, usize, c_int) -> c_int;
type GetDevice = unsafe extern "C" fn(*mut c_int) -> c_int;
type SetDevice = unsafe extern "C" fn(c_int) -> c_int;
type SynchronizeStream = unsafe extern "C" fn(*mut c_void) -> c_int;
type SynchronizeDevice = unsafe extern "C" fn() -> c_int;
type CaptureInformation = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut *mut c_void) -> c_int;

const DEVICE_TO_HOST: c_int = 2;
const RUNTIME: &CStr = c"libascendcl.so";

/// The functions of the runtime.
#[derive(Clone, Copy)]
pub struct Runtime {
    memcpy: Memcpy,
    get_device: GetDevice,
    set_device: SetDevice,
    synchronize_stream: SynchronizeStream,
    synchronize_device: SynchronizeDevice,
    /// Runtimes that cannot capture graphs lack it.
    capture_information: Option<CaptureInformation>,
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
        let synchronize = function(c"aclrtSynchronizeStream")?;
        let synchronize_device = function(c"aclrtSynchronizeDevice")?;
        let capture = function(c"aclmdlRICaptureGetInfo");
        // SAFETY: the runtime's functions of these names have these signatures.
        unsafe {
            Some(Self {
                memcpy: std::mem::transmute::<*mut c_void, Memcpy>(memcpy),
                get_device: std::mem::transmute::<*mut c_void, GetDevice>(get),
                set_device: std::mem::transmute::<*mut c_void, SetDevice>(set),
                synchronize_stream: std::mem::transmute::<*mut c_void, SynchronizeStream>(synchronize),
                synchronize_device: std::mem::transmute::<*mut c_void, SynchronizeDevice>(synchronize_device),
                capture_information: capture
                    .map(|capture| std::mem::transmute::<*mut c_void, CaptureInformation>(capture)),
            })
        }
    }

    /// Waits until a stream has nothing left to do; false if that cannot be, because what is given to it is only noted
    /// for a graph, or because it has failed.
    ///
    /// # Safety
    /// The stream must be one of the job, or null for the default one.
    pub unsafe fn wait_for(&self, stream: *mut c_void) -> bool {
        const NOT_CAPTURING: c_int = 0;
        let (mut status, mut graph) = (NOT_CAPTURING, std::ptr::null_mut());
        if let Some(capture_information) = self.capture_information {
            // SAFETY: a stream of the job; both results outlive the call.
            let result = unsafe { capture_information(stream, &mut status, &mut graph) };
            if result == 0 && status != NOT_CAPTURING {
                return false;
            }
        }
        // SAFETY: a stream of the job.
        unsafe { (self.synchronize_stream)(stream) == 0 }
    }

    /// Waits until the thread's device has nothing left to do; false if it has failed. Must not be called while a graph is
    /// being captured.
    pub fn wait_for_device(&self) -> bool {
        // SAFETY: plain call of the runtime.
        unsafe { (self.synchronize_device)() == 0 }
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
