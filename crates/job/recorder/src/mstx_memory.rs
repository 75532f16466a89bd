//! The pool protocol over the tools interface: frameworks tell about heaps and regions.
//!
//! PyTorch and MindSpore leave fields of their messages uninitialised: the heap, the types and the
//! array for region handles. None of these is read here, except the array for `atb`, the only one
//! that passes a real one and frees by handle.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use msmemscope_control::SOURCE_POOL;
use msmemscope_event::{BlockProperties, Device, Fact, LossReason, Pool};

use crate::domains::Domain;
use crate::torch_streams::{self, DEFAULT_STREAM};
use crate::{acl, block_observer, losses, sources, state, thread, told_totals};

/// `mstxMemVirtualRangeDesc_t`.
#[repr(C)]
pub struct Range {
    device_id: u32,
    address: *const c_void,
    size_bytes: i64,
}

/// `mstxMemHeapDesc_t`.
#[repr(C)]
pub struct HeapDescription {
    _usage: i32,
    _type: i32,
    range: *const Range,
}

/// `mstxMemRegionsRegisterBatch_t`.
#[repr(C)]
pub struct RegisterBatch {
    _heap: *mut c_void,
    _type: i32,
    count: usize,
    ranges: *const Range,
    handles: *mut *mut c_void,
}

/// `mstxMemRegionRef_t`.
#[repr(C)]
pub struct RegionReference {
    kind: i32,
    value: u64,
}

/// `mstxMemRegionsUnregisterBatch_t`.
#[repr(C)]
pub struct UnregisterBatch {
    count: usize,
    references: *const RegionReference,
}

const REFERENCE_BY_HANDLE: i32 = 1;

static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);

impl Range {
    fn properties(&self, pool: Pool) -> BlockProperties {
        let said = Device::from_id(i64::from(self.device_id));
        let device = if pool == Pool::Mindspore && self.device_id == 0 { device_of_mindspore(said) } else { said };
        BlockProperties::framework(pool, device)
    }

    fn size_bytes(&self) -> u64 {
        u64::try_from(self.size_bytes).unwrap_or_else(|_| {
            losses::count(LossReason::BadMessage, 1);
            0
        })
    }
}

/// MindSpore says device 0 whatever device it uses. The thread that allocates has chosen the right one.
fn device_of_mindspore(said: Device) -> Device {
    match acl::current_device() {
        device @ Device::Npu(_) => device,
        _ => said,
    }
}

/// The pool that reports over a domain; anything else is counted.
#[inline(always)]
fn pool_of(domain: *mut c_void) -> Option<Pool> {
    match Domain::of(domain) {
        Domain::Pool(pool) => {
            sources::note(SOURCE_POOL);
            Some(pool)
        }
        Domain::Named(_) | Domain::None => {
            bad_message();
            None
        }
    }
}

#[cold]
fn bad_message() {
    if state::records_blocks() {
        losses::count(LossReason::BadMessage, 1);
    }
}

/// Properties of a block whose device the message does not name.
fn properties_without_device(pool: Pool) -> BlockProperties {
    BlockProperties::framework(pool, Device::Unknown)
}

/// A pool tells about a heap. `atb` stops reporting unless it gets a handle; the others ignore it.
pub unsafe extern "C-unwind" fn heap_register(domain: *mut c_void, description: *const HeapDescription) -> *mut c_void {
    let Some(pool) = pool_of(domain) else { return std::ptr::null_mut() };
    // SAFETY: null or a message whose range is null or valid.
    let range = unsafe { description.as_ref().and_then(|description| description.range.as_ref()) };
    let Some(range) = range else {
        bad_message();
        return std::ptr::null_mut();
    };
    if state::records_blocks() {
        record_heap(pool, range);
    }
    if pool == Pool::Atb { range.address.cast_mut() } else { std::ptr::null_mut() }
}

/// Writes down what a pool tells about a heap, unless the trace knows it. Without a stack: the block that made the pool
/// grow has one, and frameworks send this with every block.
fn record_heap(pool: Pool, range: &Range) {
    let (properties, address, size_bytes) = (range.properties(pool), range.address as u64, range.size_bytes());
    let record = || thread::record_now(&Fact::HeapRegistered { properties, address, size_bytes });
    if pool != Pool::PytorchCaching {
        record();
    } else if !told_totals::is_known(range.device_id, size_bytes) {
        told_totals::note(range.device_id, size_bytes, record());
    }
}

/// A pool withdraws a heap.
pub unsafe extern "C-unwind" fn heap_unregister(domain: *mut c_void, heap: *mut c_void) {
    let Some(pool) = pool_of(domain) else { return };
    if pool == Pool::PytorchCaching {
        told_totals::withdrawn();
    }
    if state::records_blocks() {
        let properties = properties_without_device(pool);
        thread::record_now(&Fact::HeapUnregistered { properties, address: heap as u64 });
    }
}

/// A pool hands out blocks.
pub unsafe extern "C-unwind" fn regions_register(domain: *mut c_void, batch: *const RegisterBatch) {
    let Some(pool) = pool_of(domain) else { return };
    let recording = state::records_blocks();
    let mut monotonic_ns = if recording { thread::stamp() } else { 0 };
    // SAFETY: null or a message of the caller.
    let Some(batch) = (unsafe { batch.as_ref() }) else { return bad_message() };
    if batch.count > 0 && batch.ranges.is_null() {
        return bad_message();
    }
    for index in 0..batch.count {
        // SAFETY: the batch has `count` ranges.
        let range = unsafe { &*batch.ranges.add(index) };
        let handle = if pool == Pool::Atb { hand_out_handle(batch, index) } else { 0 };
        if !recording {
            continue;
        }
        let (properties, address) = (range.properties(pool), range.address as u64);
        let size_bytes = range.size_bytes();
        if pool == Pool::Atb {
            thread::record_event(monotonic_ns, &Fact::AllocationWithHandle { properties, address, size_bytes, handle });
        } else if let stream = stream_of(pool, range)
            && stream != DEFAULT_STREAM
        {
            thread::record_event(monotonic_ns, &Fact::AllocationOnStream { properties, address, size_bytes, stream });
        } else {
            thread::record_event(monotonic_ns, &Fact::Allocation { properties, address, size_bytes });
        }
        block_observer::begins(&properties, address, size_bytes);
        monotonic_ns = thread::following_stamp();
    }
}

/// The stream that a block is for, as far as its pool has streams.
#[inline(always)]
fn stream_of(pool: Pool, range: &Range) -> u32 {
    if pool == Pool::PytorchCaching { torch_streams::of_this_thread(range.device_id) } else { DEFAULT_STREAM }
}

/// Makes a handle and stores it where the caller of `atb` wants it.
fn hand_out_handle(batch: &RegisterBatch, index: usize) -> u64 {
    let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
    if !batch.handles.is_null() {
        // SAFETY: `atb` passes an array of `count` handles.
        unsafe { *batch.handles.add(index) = handle as *mut c_void };
    }
    handle
}

/// A pool takes blocks back.
pub unsafe extern "C-unwind" fn regions_unregister(domain: *mut c_void, batch: *const UnregisterBatch) {
    let Some(pool) = pool_of(domain) else { return };
    if !state::records_blocks() {
        return;
    }
    let mut monotonic_ns = thread::stamp();
    // SAFETY: null or a message of the caller.
    let Some(batch) = (unsafe { batch.as_ref() }) else { return bad_message() };
    if batch.count > 0 && batch.references.is_null() {
        return bad_message();
    }
    let properties = properties_without_device(pool);
    for index in 0..batch.count {
        // SAFETY: the batch has `count` references.
        let reference = unsafe { batch.references.add(index) };
        // SAFETY: as above.
        let value = unsafe { (*reference).value };
        // SAFETY: as above; only `atb` is known to set the kind.
        let by_handle = pool == Pool::Atb && unsafe { (*reference).kind } == REFERENCE_BY_HANDLE;
        if by_handle {
            thread::record_event(monotonic_ns, &Fact::FreeByHandle { properties, handle: value });
        } else {
            thread::record_event(monotonic_ns, &Fact::Free { properties, address: value });
            block_observer::ends(&properties, value);
        }
        monotonic_ns = thread::following_stamp();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn messages_have_the_documented_layout() {
        assert_eq!((size_of::<Range>(), offset_of!(Range, address), offset_of!(Range, size_bytes)), (24, 8, 16));
        assert_eq!((size_of::<HeapDescription>(), offset_of!(HeapDescription, range)), (16, 8));
        assert_eq!((size_of::<RegisterBatch>(), offset_of!(RegisterBatch, count)), (40, 16));
        assert_eq!((offset_of!(RegisterBatch, ranges), offset_of!(RegisterBatch, handles)), (24, 32));
        assert_eq!((size_of::<RegionReference>(), offset_of!(RegionReference, value)), (16, 8));
        assert_eq!((size_of::<UnregisterBatch>(), offset_of!(UnregisterBatch, references)), (16, 8));
    }
}
