//! What AscendCL calls in `libruntime.so` and `libacl_rt_impl.so`.

use std::ffi::{c_char, c_void};

/// `struct drv_mem_prop`, as the runtime takes it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MemoryProperties {
    /// 0 host, 1 device.
    pub side: u32,
    /// Logical device id.
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
    pub fn rtSetDevice(device: i32) -> i32;
    pub fn rtDeviceReset(device: i32) -> i32;
    pub fn rtGetDeviceCount(count: *mut i32) -> i32;
    pub fn rtGetSocVersion(version: *mut c_char, length: u32) -> i32;
    pub fn rtDeviceSynchronize() -> i32;
    pub fn rtDeviceSynchronizeWithTimeout(timeout_ms: i32) -> i32;
    pub fn rtMalloc(pointer: *mut *mut c_void, size: u64, memory_type: u32, module: u16) -> i32;
    pub fn rtFree(pointer: *mut c_void) -> i32;
    pub fn rtMallocHost(pointer: *mut *mut c_void, size: u64, module: u16) -> i32;
    pub fn rtFreeHost(pointer: *mut c_void) -> i32;
    pub fn rtMemGetInfo(free: *mut usize, total: *mut usize) -> i32;
    pub fn rtReserveMemAddress(
        pointer: *mut *mut c_void,
        size: usize,
        alignment: usize,
        hint: *mut c_void,
        flags: u64,
    ) -> i32;
    pub fn rtReleaseMemAddress(pointer: *mut c_void) -> i32;
    pub fn rtMallocPhysical(
        handle: *mut *mut c_void,
        size: usize,
        properties: *const MemoryProperties,
        flags: u64,
    ) -> i32;
    pub fn rtFreePhysical(handle: *mut c_void) -> i32;
    pub fn rtMapMem(pointer: *mut c_void, size: usize, offset: usize, handle: *mut c_void, flags: u64) -> i32;
    pub fn rtUnmapMem(pointer: *mut c_void) -> i32;
    pub fn rtMemcpy(target: *mut c_void, room: u64, source: *const c_void, count: u64, kind: i32) -> i32;
    pub fn rtMemcpyAsync(
        target: *mut c_void,
        room: u64,
        source: *const c_void,
        count: u64,
        kind: i32,
        stream: *mut c_void,
    ) -> i32;
    pub fn rtMemset(target: *mut c_void, room: u64, value: u32, count: u64) -> i32;
    pub fn rtMemsetAsync(target: *mut c_void, room: u64, value: u32, count: u64, stream: *mut c_void) -> i32;
    pub fn rtStreamCreate(stream: *mut *mut c_void, priority: i32) -> i32;
    pub fn rtStreamDestroy(stream: *mut c_void) -> i32;
    pub fn rtStreamSynchronize(stream: *mut c_void) -> i32;
    pub fn rtStreamSynchronizeWithTimeout(stream: *mut c_void, timeout_ms: i32) -> i32;
    pub fn rtStreamQuery(stream: *mut c_void) -> i32;
    pub fn rtStreamBeginCapture(stream: *mut c_void, mode: i32) -> i32;
    pub fn rtStreamEndCapture(stream: *mut c_void, model: *mut *mut c_void) -> i32;
    pub fn rtStreamGetCaptureInfo(stream: *mut c_void, status: *mut i32, model: *mut *mut c_void) -> i32;
    pub fn rtThreadExchangeCaptureMode(mode: *mut i32) -> i32;
    pub fn rtModelExecute(model: *mut c_void, stream: *mut c_void, flag: u32) -> i32;
    pub fn rtModelDestroy(model: *mut c_void) -> i32;
    pub fn rtStreamWaitEvent(stream: *mut c_void, event: *mut c_void) -> i32;
    pub fn rtEventCreate(event: *mut *mut c_void) -> i32;
    pub fn rtEventDestroy(event: *mut c_void) -> i32;
    pub fn rtEventRecord(event: *mut c_void, stream: *mut c_void) -> i32;
    pub fn rtEventReset(event: *mut c_void, stream: *mut c_void) -> i32;
    pub fn rtEventSynchronize(event: *mut c_void) -> i32;
    pub fn rtEventQuery(event: *mut c_void) -> i32;
    pub fn rtEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) -> i32;
    pub fn aclrtGetDeviceImpl(device: *mut i32) -> i32;
    pub fn aclrtStreamGetIdImpl(stream: *mut c_void, id: *mut i32) -> i32;
    pub fn standinSetDefaultDevice(device: i32) -> i32;
    pub fn standinFinishWork() -> i32;
}
