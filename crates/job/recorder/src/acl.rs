//! Hooks of the runtime interface: begin and end, the current device, pinned host memory.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use msmemscope_control::SOURCE_RUNTIME;
use msmemscope_event::{AllocationInterface, BlockProperties, Device, Fact, MemoryType, PageType, Pool, SystemEvent};

use crate::hooks::{aclFinalize, aclInit, aclrtHostRegisterV2, aclrtHostUnregister, aclrtSetDevice};
use crate::real::RealFunction;
use crate::thread::CurrentDevice;
use crate::{hooks, import_tables, kernels, python_half, sources, state, thread};

const LIBRARY: &str = "libascendcl.so";
/// What the runtime interface returns when something inside it is missing.
const INTERNAL_ERROR: i32 = 500_000;
const SUCCESS: i32 = 0;
/// Bit of the register flag: the memory is locked, not only mapped.
const PINNED: u32 = 0x1000_0000;

static GET_DEVICE_COUNT: RealFunction<GetDeviceCount> = RealFunction::new(LIBRARY, &[c"aclrtGetDeviceCount"]);
static GET_DEVICE: RealFunction<GetDevice> = RealFunction::new(LIBRARY, &[c"aclrtGetDevice"]);

type GetDeviceCount = unsafe extern "C-unwind" fn(*mut u32) -> i32;
type GetDevice = unsafe extern "C-unwind" fn(*mut i32) -> i32;

/// How many devices there are; zero while that is not known.
static DEVICE_COUNT: AtomicU32 = AtomicU32::new(0);

const PINNED_PROPERTIES: BlockProperties = BlockProperties {
    pool: Pool::HostPinned,
    device: Device::Host,
    memory_type: MemoryType::Host,
    page_type: PageType::Normal,
    interface: AllocationInterface::HostRegister,
    module_id: 0,
};

#[inline(always)]
fn record_system(event: SystemEvent, device: Device, result: i32, is_first_choice: bool) {
    if state::records_everything() {
        thread::record_system_now(&Fact::System { event, device, result: i64::from(result) }, is_first_choice);
    }
}

/// Hooks functions that some runtimes lack, in all libraries that use them, once they are seen.
#[cold]
pub fn redirect_optional_functions() {
    let optional = hooks::hooks().filter(|hook| !hook.is_exported);
    import_tables::redirect(&optional.filter_map(hooks::Hook::redirection).collect::<Vec<_>>());
}

/// What the hook of `aclInit` does.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn init(real: &'static RealFunction<aclInit::Signature>, configuration: *const c_char) -> i32 {
    let Some(real) = real.function() else { return INTERNAL_ERROR };
    // SAFETY: the runtime's function of this name has this signature; the argument is the caller's.
    let result = unsafe { real(configuration) };
    sources::note(SOURCE_RUNTIME);
    redirect_optional_functions();
    record_system(SystemEvent::AclInit, Device::Unknown, result, true);
    python_half::invite();
    result
}

/// What the hook of `aclFinalize` does.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn finalize(real: &'static RealFunction<aclFinalize::Signature>) -> i32 {
    let Some(real) = real.function() else { return INTERNAL_ERROR };
    kernels::catch_up();
    // SAFETY: the runtime's function of this name has this signature.
    let result = unsafe { real() };
    record_system(SystemEvent::AclFinalize, Device::Unknown, result, false);
    result
}

/// What the hook of `aclrtSetDevice` does.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn set_device(real: &'static RealFunction<aclrtSetDevice::Signature>, device_id: i32) -> i32 {
    let Some(real) = real.function() else { return INTERNAL_ERROR };
    // SAFETY: the runtime's function of this name has this signature; the argument is the caller's.
    let result = unsafe { real(device_id) };
    sources::note(SOURCE_RUNTIME);
    let device = Device::from_id(i64::from(device_id));
    let is_first_choice = !matches!(thread::device(), CurrentDevice::Known(Device::Npu(_)));
    if result == SUCCESS {
        if matches!(thread::device(), CurrentDevice::NotAsked) {
            redirect_optional_functions();
        }
        thread::set_device(device);
        kernels::device_chosen(device);
    }
    record_system(SystemEvent::SetDevice, device, result, is_first_choice);
    result
}

/// What the hook of `aclrtHostRegisterV2`, which not every runtime has, does.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn host_register_v2(
    real: &'static RealFunction<aclrtHostRegisterV2::Signature>,
    address: *mut c_void,
    size_bytes: u64,
    flag: u32,
) -> i32 {
    let Some(real) = real.function() else { return INTERNAL_ERROR };
    // SAFETY: the runtime's function of this name has this signature; arguments are the caller's.
    let result = unsafe { real(address, size_bytes, flag) };
    if flag & PINNED != 0 && state::records_blocks() {
        let properties = PINNED_PROPERTIES;
        if result == SUCCESS {
            thread::record_event_now(&Fact::Allocation { properties, address: address as u64, size_bytes });
        } else if state::records_everything() {
            let (flag, error) = (u64::from(flag), i64::from(result));
            thread::record_rare_now(&Fact::AllocationFailed { properties, size_bytes, flag, error });
        }
    }
    result
}

/// What the hook of `aclrtHostUnregister` does. Memory that was registered without being pinned is unknown to the
/// reader, which ignores its end.
///
/// # Safety
/// Arguments as the function itself demands them.
#[inline(always)]
pub unsafe fn host_unregister(
    real: &'static RealFunction<aclrtHostUnregister::Signature>,
    address: *mut c_void,
) -> i32 {
    let Some(real) = real.function() else { return INTERNAL_ERROR };
    let monotonic_ns = if state::records_blocks() { thread::stamp() } else { 0 };
    // SAFETY: the runtime's function of this name has this signature; the argument is the caller's.
    let result = unsafe { real(address) };
    if monotonic_ns != 0 {
        let (properties, address) = (PINNED_PROPERTIES, address as u64);
        let fact = match result {
            SUCCESS => Fact::Free { properties, address },
            error => Fact::FreeFailed { properties, address, error: i64::from(error) },
        };
        thread::record_event(monotonic_ns, &fact);
    }
    result
}

/// The device this thread works on: the one it chose last, else what the runtime says, asked once.
pub fn current_device() -> Device {
    match thread::device() {
        CurrentDevice::Known(device) => device,
        CurrentDevice::NotAsked => {
            // Set first: the runtime may come back here while it is being asked.
            thread::set_device(Device::Unknown);
            let device = ask_for_device();
            thread::set_device(device);
            device
        }
    }
}

/// The device this thread works on, if there is no other to choose.
pub fn only_device() -> Option<Device> {
    let device = current_device();
    let is_only = || match DEVICE_COUNT.load(Ordering::Relaxed) {
        0 => ask_for_device_count(),
        count => count == 1,
    };
    (matches!(device, Device::Npu(_)) && is_only()).then_some(device)
}

#[cold]
fn ask_for_device_count() -> bool {
    let Some(real) = GET_DEVICE_COUNT.function() else { return false };
    let mut count = 0;
    // SAFETY: the runtime's function of this name has this signature; the result outlives the call.
    let result = unsafe { real(&mut count) };
    if result == SUCCESS {
        DEVICE_COUNT.store(count, Ordering::Relaxed);
    }
    count == 1
}

#[cold]
fn ask_for_device() -> Device {
    let Some(real) = GET_DEVICE.function() else { return Device::Unknown };
    let mut device_id = -1;
    // SAFETY: the runtime's function of this name has this signature; the result outlives the call.
    let result = unsafe { real(&mut device_id) };
    if result == SUCCESS { Device::from_id(i64::from(device_id)) } else { Device::Unknown }
}
