//! Host memory of PyTorch: wrappers around the two functions through which its default allocator takes
//! and returns memory. Every thread and every way to make a tensor goes through them.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use msmemscope_control::AllocationFact;
use msmemscope_event::{Device, Pool};
use pyo3::prelude::*;

use crate::exceptions::RecorderError;
use crate::session::recorder;

const LIBRARY: &CStr = c"libc10.so";
/// `c10::alloc_cpu(unsigned long)`.
const ALLOCATE: &CStr = c"_ZN3c109alloc_cpuEm";
/// `c10::free_cpu(void*)`.
const FREE: &CStr = c"_ZN3c108free_cpuEPv";

static REAL_ALLOCATE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_FREE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Allocate = unsafe extern "C-unwind" fn(usize) -> *mut c_void;
type Free = unsafe extern "C-unwind" fn(*mut c_void);

/// Takes the place of `c10::alloc_cpu`, which may throw.
unsafe extern "C-unwind" fn allocate(size_bytes: usize) -> *mut c_void {
    let real = REAL_ALLOCATE.load(Ordering::Relaxed);
    // SAFETY: set before any slot leads here; the function of this mangled name has this signature.
    let address = unsafe { std::mem::transmute::<*mut c_void, Allocate>(real)(size_bytes) };
    if let Some(recorder) = recorder()
        && !address.is_null()
    {
        let fact = AllocationFact {
            pool: Pool::HostTensor as u32,
            device: Device::Host.code(),
            address: address as u64,
            size_bytes: size_bytes as u64,
        };
        recorder.allocation(&fact);
    }
    address
}

/// Takes the place of `c10::free_cpu`.
unsafe extern "C-unwind" fn free(address: *mut c_void) {
    if let Some(recorder) = recorder()
        && !address.is_null()
    {
        recorder.free(Pool::HostTensor, Device::Host, address as u64);
    }
    let real = REAL_FREE.load(Ordering::Relaxed);
    // SAFETY: set before any slot leads here; the function of this mangled name has this signature.
    unsafe { std::mem::transmute::<*mut c_void, Free>(real)(address) }
}

/// Puts the wrappers in place in all loaded libraries; may be repeated for libraries loaded later.
/// Gives the number of call sites changed.
#[pyfunction]
fn watch_host_tensors() -> PyResult<u64> {
    let Some(recorder) = recorder() else { return Ok(0) };
    // SAFETY: asks for a library that is loaded already; the handle keeps it loaded.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
    if library.is_null() {
        return Ok(0);
    }
    // SAFETY: lookups by name in a loaded library.
    let (real_allocate, real_free) =
        unsafe { (libc::dlsym(library, ALLOCATE.as_ptr()), libc::dlsym(library, FREE.as_ptr())) };
    if real_allocate.is_null() || real_free.is_null() {
        return Err(RecorderError::new_err("this PyTorch has no alloc_cpu and free_cpu: CPU tensors cannot be seen"));
    }
    REAL_ALLOCATE.store(real_allocate, Ordering::Relaxed);
    REAL_FREE.store(real_free, Ordering::Release);
    let redirect = |name: &CStr, replacement: *const c_void| {
        // SAFETY: the replacement has the signature of the original and this module is never unloaded.
        unsafe { recorder.redirect_import(name, replacement) }
    };
    Ok(redirect(FREE, free as *const c_void) + redirect(ALLOCATE, allocate as *const c_void))
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(watch_host_tensors, module)?)
}
