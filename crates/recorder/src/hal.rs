//! Hooks of the driver interface: device and host memory, and physical memory of the virtual memory
//! manager.

use std::ffi::c_void;

use msmemscope_control::SOURCE_DRIVER;
use msmemscope_event::{AllocationInterface, BlockProperties, Device, Fact, MemoryType, PageType, Pool};

use crate::real::RealFunction;
use crate::{card, sources, state, thread};

const LIBRARY: &str = "libascend_hal.so";
/// What the driver interface returns for a function it does not have.
const NOT_SUPPORTED: i32 = 0xfffe;
const RESERVED: i32 = 0xffff;
const SUCCESS: i32 = 0;
const OUT_OF_MEMORY: i32 = 6;

pub static MEM_ALLOC: RealFunction = RealFunction::new(LIBRARY, &[c"halMemAlloc", c"halMemAllocInner"]);
pub static MEM_FREE: RealFunction = RealFunction::new(LIBRARY, &[c"halMemFree", c"halMemFreeInner"]);
pub static MEM_CREATE: RealFunction = RealFunction::new(LIBRARY, &[c"halMemCreate", c"halMemCreateInner"]);
pub static MEM_RELEASE: RealFunction = RealFunction::new(LIBRARY, &[c"halMemRelease", c"halMemReleaseInner"]);

/// The driver's own, where a library of the user stands before it.
pub static DRIVER_MEM_ALLOC: RealFunction = RealFunction::of_owner(LIBRARY, &[c"halMemAlloc", c"halMemAllocInner"]);
/// As above.
pub static DRIVER_MEM_FREE: RealFunction = RealFunction::of_owner(LIBRARY, &[c"halMemFree", c"halMemFreeInner"]);
/// As above.
pub static DRIVER_MEM_CREATE: RealFunction = RealFunction::of_owner(LIBRARY, &[c"halMemCreate", c"halMemCreateInner"]);
/// As above.
pub static DRIVER_MEM_RELEASE: RealFunction =
    RealFunction::of_owner(LIBRARY, &[c"halMemRelease", c"halMemReleaseInner"]);

type MemAlloc = unsafe extern "C-unwind" fn(*mut *mut c_void, u64, u64) -> i32;
type MemFree = unsafe extern "C-unwind" fn(*mut c_void) -> i32;
type MemCreate = unsafe extern "C-unwind" fn(*mut *mut c_void, usize, *const MemoryRequest, u64) -> i32;
type MemRelease = unsafe extern "C-unwind" fn(*mut c_void) -> i32;

/// `drv_mem_prop`: what kind of physical memory is asked for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryRequest {
    side: u32,
    device_id: u32,
    module_id: u32,
    page_type: u32,
    memory_type: u32,
    _reserved: u64,
}

/// `MEM_DEV_SIDE`; the other sides are host memory.
const SIDE_DEVICE: u32 = 1;

impl MemoryRequest {
    fn properties(&self) -> BlockProperties {
        let on_device = self.side == SIDE_DEVICE;
        BlockProperties {
            pool: if on_device { Pool::Hal } else { Pool::HostPinned },
            device: if on_device { Device::from_id(i64::from(self.device_id)) } else { Device::Host },
            memory_type: if on_device { MemoryType::Device } else { MemoryType::Host },
            page_type: PageType::from_code(u64::from(self.page_type)),
            interface: AllocationInterface::Create,
            module_id: u8::try_from(self.module_id).unwrap_or(u8::MAX),
        }
    }
}

/// Properties of a block that is known by its address only.
#[inline(always)]
fn properties_of_free(interface: AllocationInterface) -> BlockProperties {
    BlockProperties {
        pool: Pool::Hal,
        device: Device::Unknown,
        memory_type: MemoryType::Device,
        page_type: PageType::Normal,
        interface,
        module_id: 0,
    }
}

#[inline(always)]
fn record_allocation(result: i32, properties: BlockProperties, address: *mut *mut c_void, size_bytes: u64, flag: u64) {
    if result == SUCCESS && !address.is_null() {
        // SAFETY: the driver has just stored the new block here.
        let address = unsafe { *address } as u64;
        thread::record_event_now(&Fact::Allocation { properties, address, size_bytes });
    } else if result != SUCCESS && state::records_everything() {
        record_refusal(result, properties, size_bytes, flag);
    }
}

#[cold]
fn record_refusal(result: i32, properties: BlockProperties, size_bytes: u64, flag: u64) {
    if result == OUT_OF_MEMORY {
        card::sample(properties.device);
    }
    thread::record_rare_now(&Fact::AllocationFailed { properties, size_bytes, flag, error: i64::from(result) });
}

#[inline(always)]
fn record_free(result: i32, monotonic_ns: u64, interface: AllocationInterface, block: *mut c_void) {
    let (properties, address) = (properties_of_free(interface), block as u64);
    if result != SUCCESS {
        thread::record_event(monotonic_ns, &Fact::FreeFailed { properties, address, error: i64::from(result) });
    } else if !block.is_null() {
        thread::record_event(monotonic_ns, &Fact::Free { properties, address });
    }
}

/// Declares a hook and its twin for callers that asked the driver itself for the function.
macro_rules! hook {
    ($name:literal, $hook:ident, $driver_hook:ident, $body:ident, $real:ident, $driver_real:ident,
     ($($argument:ident: $kind:ty),+)) => {
        #[doc = concat!("Hook of `", $name, "`.")]
        pub unsafe extern "C-unwind" fn $hook($($argument: $kind),+) -> i32 {
            // SAFETY: arguments of the caller.
            unsafe { $body(&$real, $($argument),+) }
        }

        #[doc = concat!("Hook of the driver's own `", $name, "`.")]
        pub unsafe extern "C-unwind" fn $driver_hook($($argument: $kind),+) -> i32 {
            // SAFETY: arguments of the caller.
            unsafe { $body(&$driver_real, $($argument),+) }
        }
    };
}

hook!(
    "halMemAlloc", mem_alloc, driver_mem_alloc, allocate, MEM_ALLOC, DRIVER_MEM_ALLOC,
    (address: *mut *mut c_void, size_bytes: u64, flag: u64)
);
hook!("halMemFree", mem_free, driver_mem_free, free, MEM_FREE, DRIVER_MEM_FREE, (address: *mut c_void));
hook!(
    "halMemCreate", mem_create, driver_mem_create, create, MEM_CREATE, DRIVER_MEM_CREATE,
    (handle: *mut *mut c_void, size_bytes: usize, request: *const MemoryRequest, flag: u64)
);
hook!("halMemRelease", mem_release, driver_mem_release, release, MEM_RELEASE, DRIVER_MEM_RELEASE, (handle: *mut c_void));

#[inline(always)]
unsafe fn allocate(real: &'static RealFunction, address: *mut *mut c_void, size_bytes: u64, flag: u64) -> i32 {
    let Some(real) = real.address() else { return NOT_SUPPORTED };
    // SAFETY: the driver's function of this name has this signature; arguments are the caller's.
    let result = unsafe { std::mem::transmute::<*mut c_void, MemAlloc>(real)(address, size_bytes, flag) };
    sources::note(SOURCE_DRIVER);
    if state::records_blocks() {
        record_allocation(result, BlockProperties::from_driver_flag(flag), address, size_bytes, flag);
    }
    result
}

#[inline(always)]
unsafe fn free(real: &'static RealFunction, address: *mut c_void) -> i32 {
    let Some(real) = real.address() else { return NOT_SUPPORTED };
    let monotonic_ns = if state::records_blocks() { thread::stamp() } else { 0 };
    // SAFETY: the driver's function of this name has this signature; the argument is the caller's.
    let result = unsafe { std::mem::transmute::<*mut c_void, MemFree>(real)(address) };
    if monotonic_ns != 0 {
        record_free(result, monotonic_ns, AllocationInterface::Alloc, address);
    }
    result
}

/// The block is known by its handle.
#[inline(always)]
unsafe fn create(
    real: &'static RealFunction,
    handle: *mut *mut c_void,
    size_bytes: usize,
    request: *const MemoryRequest,
    flag: u64,
) -> i32 {
    let Some(real) = real.address() else { return RESERVED };
    // SAFETY: the driver's function of this name has this signature; arguments are the caller's.
    let result = unsafe { std::mem::transmute::<*mut c_void, MemCreate>(real)(handle, size_bytes, request, flag) };
    sources::note(SOURCE_DRIVER);
    if state::records_blocks() {
        // SAFETY: null, or a request that the driver has just read.
        let properties = unsafe { request.as_ref() }
            .map_or(properties_of_free(AllocationInterface::Create), MemoryRequest::properties);
        record_allocation(result, properties, handle, size_bytes as u64, flag);
    }
    result
}

#[inline(always)]
unsafe fn release(real: &'static RealFunction, handle: *mut c_void) -> i32 {
    let Some(real) = real.address() else { return RESERVED };
    let monotonic_ns = if state::records_blocks() { thread::stamp() } else { 0 };
    // SAFETY: the driver's function of this name has this signature; the argument is the caller's.
    let result = unsafe { std::mem::transmute::<*mut c_void, MemRelease>(real)(handle) };
    if monotonic_ns != 0 {
        record_free(result, monotonic_ns, AllocationInterface::Create, handle);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_physical_memory_are_decoded() {
        assert_eq!(size_of::<MemoryRequest>(), 32);
        let request =
            MemoryRequest { side: 1, device_id: 3, module_id: 33, page_type: 2, memory_type: 0, _reserved: 0 };
        let properties = request.properties();
        assert_eq!(properties.device, Device::Npu(3));
        assert_eq!(properties.pool, Pool::Hal);
        assert_eq!(properties.page_type, PageType::Giant);
        assert_eq!(properties.module_id, 33);
        for side in [0, 2] {
            let host = MemoryRequest { side, ..request }.properties();
            assert_eq!((host.pool, host.device), (Pool::HostPinned, Device::Host));
        }
        let strange = MemoryRequest { device_id: u32::MAX, module_id: 300, page_type: 77, ..request }.properties();
        assert_eq!(strange.device, Device::Unknown);
        assert_eq!(strange.module_id, 255);
        assert_eq!(strange.page_type, PageType::Unknown);
    }
}
