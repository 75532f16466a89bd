//! Hooks of the driver interface: device and host memory, and physical memory of the virtual memory
//! manager.

use std::ffi::c_void;

use msmemscope_control::SOURCE_DRIVER;
use msmemscope_event::{AllocationInterface, BlockProperties, Device, Fact, MemoryType, PageType, Pool};

use crate::hooks::{halMemAlloc, halMemCreate, halMemFree, halMemRelease};
use crate::real::RealFunction;
use crate::{card, refusals, sources, state, thread};

/// What the driver interface returns for a function it does not have.
const NOT_SUPPORTED: i32 = 0xfffe;
const RESERVED: i32 = 0xffff;
const SUCCESS: i32 = 0;
const OUT_OF_MEMORY: i32 = 6;

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
    let card = if result == OUT_OF_MEMORY { card::sample(properties.device) } else { None };
    thread::record_rare_now(&Fact::AllocationFailed { properties, size_bytes, flag, error: i64::from(result) });
    if result == OUT_OF_MEMORY {
        refusals::tell(properties.device, size_bytes, card);
    }
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

/// What the hook of `halMemAlloc` does.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn allocate(
    real: &'static RealFunction<halMemAlloc::Signature>,
    address: *mut *mut c_void,
    size_bytes: u64,
    flag: u64,
) -> i32 {
    let Some(real) = real.function() else { return NOT_SUPPORTED };
    // SAFETY: the driver's function of this name has this signature; arguments are the caller's.
    let result = unsafe { real(address, size_bytes, flag) };
    sources::note(SOURCE_DRIVER);
    if state::records_blocks() {
        record_allocation(result, BlockProperties::from_driver_flag(flag), address, size_bytes, flag);
    }
    result
}

/// What the hook of `halMemFree` does.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn free(real: &'static RealFunction<halMemFree::Signature>, address: *mut c_void) -> i32 {
    let Some(real) = real.function() else { return NOT_SUPPORTED };
    let monotonic_ns = if state::records_blocks() { thread::stamp() } else { 0 };
    // SAFETY: the driver's function of this name has this signature; the argument is the caller's.
    let result = unsafe { real(address) };
    if monotonic_ns != 0 {
        record_free(result, monotonic_ns, AllocationInterface::Alloc, address);
    }
    result
}

/// What the hook of `halMemCreate` does. The block is known by its handle.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn create(
    real: &'static RealFunction<halMemCreate::Signature>,
    handle: *mut *mut c_void,
    size_bytes: usize,
    request: *const MemoryRequest,
    flag: u64,
) -> i32 {
    let Some(real) = real.function() else { return RESERVED };
    // SAFETY: the driver's function of this name has this signature; arguments are the caller's.
    let result = unsafe { real(handle, size_bytes, request, flag) };
    sources::note(SOURCE_DRIVER);
    if state::records_blocks() {
        // SAFETY: null, or a request that the driver has just read.
        let properties = unsafe { request.as_ref() }
            .map_or(properties_of_free(AllocationInterface::Create), MemoryRequest::properties);
        record_allocation(result, properties, handle, size_bytes as u64, flag);
    }
    result
}

/// What the hook of `halMemRelease` does.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn release(real: &'static RealFunction<halMemRelease::Signature>, handle: *mut c_void) -> i32 {
    let Some(real) = real.function() else { return RESERVED };
    let monotonic_ns = if state::records_blocks() { thread::stamp() } else { 0 };
    // SAFETY: the driver's function of this name has this signature; the argument is the caller's.
    let result = unsafe { real(handle) };
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
