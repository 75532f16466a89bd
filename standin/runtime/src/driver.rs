//! What the runtime calls in `libascend_hal.so` and `libprofapi.so`.

use std::ffi::{c_char, c_void};

/// `struct drv_mem_prop`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MemoryProperties {
    /// 0 host, 1 device.
    pub side: u32,
    /// Physical device id.
    pub device: u32,
    /// Module id.
    pub module: u32,
    /// 0 normal, 1 huge, 2 giant.
    pub page_type: u32,
    /// Kind of memory.
    pub memory_type: u32,
    /// Unused.
    pub reserve: u64,
}

unsafe extern "C" {
    pub fn halMemAlloc(pointer: *mut *mut c_void, size: u64, flags: u64) -> i32;
    pub fn halMemFree(pointer: *mut c_void) -> i32;
    pub fn halMemCreate(handle: *mut *mut c_void, size: usize, properties: *const MemoryProperties, flags: u64) -> i32;
    pub fn halMemRelease(handle: *mut c_void) -> i32;
    pub fn halMemAddressReserve(
        pointer: *mut *mut c_void,
        size: usize,
        alignment: usize,
        hint: *mut c_void,
        flags: u64,
    ) -> i32;
    pub fn halMemAddressFree(pointer: *mut c_void) -> i32;
    pub fn halMemMap(pointer: *mut c_void, size: usize, offset: usize, handle: *mut c_void, flags: u64) -> i32;
    pub fn halMemUnmap(pointer: *mut c_void) -> i32;
    pub fn drvGetDevNum(count: *mut u32) -> i32;
    pub fn standinDeviceMemory(device: u32, total: *mut u64, used: *mut u64) -> i32;
}

unsafe extern "C" {
    pub fn MsprofRegisterCallback(module: u32, handler: unsafe extern "C" fn(u32, *mut c_void, u32) -> i32) -> i32;
    pub fn MsprofReportCompactInfo(aging: u32, data: *const c_void, length: u32) -> i32;
    pub fn MsprofGetHashId(text: *const c_char, length: usize) -> u64;
    pub fn MsprofSysCycleTime() -> u64;
    pub fn MsprofNotifySetDevice(chip: u32, device: u32, is_open: bool) -> i32;
    pub fn standinTaskRecord(
        device: u32,
        function: u32,
        queue_entry_type: u32,
        stream: u32,
        task: u32,
        has_expanded_ids: u32,
        ticks: *mut u64,
        host_ns: *mut u64,
    ) -> i32;
    pub fn halGetDeviceInfo(device: u32, module: i32, information: i32, value: *mut i64) -> i32;
}
