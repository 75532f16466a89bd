//! The C functions.

use crate::Failure;
use crate::collective::{Collective, Memory, Reduction, receive, send};
use crate::communicator::{
    Communicator, Configuration, NAME_BYTES, ROOT_INFO_BYTES, error_text, new_root_info, write_text,
};
use crate::group;
use crate::reduction::{ElementType, Operation};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// A communicator, as callers hold it.
type Handle = *const Communicator;

/// `HcclSendRecvItem`.
#[repr(C)]
struct BatchItem {
    /// 0 sends, 1 receives.
    direction: i32,
    buffer: *mut c_void,
    count: u64,
    element_type: i32,
    peer: u32,
}

/// Configurations that communicators take: the size of buffers, determinism and the name.
const CAPABILITIES: u32 = 3;

fn code(result: Result<(), Failure>) -> i32 {
    result.map_or_else(|failure| failure as i32, |()| 0)
}

/// The communicator behind a handle, which stays the caller's.
///
/// # Safety
/// The handle comes from `HcclCommInitRootInfo` and was not destroyed.
unsafe fn borrowed(handle: Handle) -> Result<Arc<Communicator>, Failure> {
    if handle.is_null() {
        return Err(Failure::Pointer);
    }
    // SAFETY: by the contract of this function the handle is a live `Arc`, whose count is raised for the one made here.
    unsafe {
        Arc::increment_strong_count(handle);
        Ok(Arc::from_raw(handle))
    }
}

/// Gives an operation to a stream, or to the group that the calling thread has open.
fn submit(
    communicator: Arc<Communicator>,
    stream: *mut c_void,
    operation: impl FnOnce(&Collective<'_>) -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    group::collective(communicator, stream, Box::new(operation))
}

fn element_type(number: i32) -> Result<ElementType, Failure> {
    ElementType::from_number(number).ok_or(Failure::NotSupported)
}

fn reduction(type_number: i32, operation: i32) -> Result<Reduction, Failure> {
    let operation = Operation::from_number(operation).ok_or(Failure::NotSupported)?;
    Ok(Reduction { element_type: element_type(type_number)?, operation })
}

/// Memory of a number of elements.
fn memory(address: *const c_void, count: u64, type_number: i32) -> Result<Memory, Failure> {
    if address.is_null() && count > 0 {
        return Err(Failure::Pointer);
    }
    let bytes =
        usize::try_from(count).ok().and_then(|count| count.checked_mul(element_type(type_number).ok()?.bytes()));
    Ok(Memory { address: address as usize, bytes: bytes.ok_or(Failure::Parameter)? })
}

/// Equal parts for all ranks, one behind the other.
fn equal_parts(address: *const c_void, count: u64, type_number: i32, ranks: u32) -> Result<Vec<Memory>, Failure> {
    let first = memory(address, count, type_number)?;
    Ok((0..ranks as usize).map(|rank| first.part(rank * first.bytes, first.bytes)).collect())
}

/// Parts of different sizes: their counts and where they start, in elements.
///
/// # Safety
/// Both lists have an entry for each rank.
unsafe fn listed_parts(
    address: *const c_void,
    counts: *const u64,
    places: *const u64,
    type_number: i32,
    ranks: u32,
) -> Result<Vec<Memory>, Failure> {
    if counts.is_null() || places.is_null() {
        return Err(Failure::Pointer);
    }
    let element_bytes = element_type(type_number)?.bytes();
    let part = |rank: usize| {
        // SAFETY: within the lists, by the contract of this function.
        let (count, place) = unsafe { (*counts.add(rank), *places.add(rank)) };
        Memory { address: address as usize + place as usize * element_bytes, bytes: count as usize * element_bytes }
    };
    Ok((0..ranks as usize).map(part).collect())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclGetRootInfo(info: *mut c_char) -> i32 {
    if info.is_null() {
        return Failure::Pointer as i32;
    }
    // SAFETY: the caller's structure has this size.
    unsafe { write_text(info, &new_root_info(), ROOT_INFO_BYTES) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclCommInitRootInfo(ranks: u32, info: *const u8, rank: u32, handle: *mut Handle) -> i32 {
    // SAFETY: as for the function called.
    unsafe { HcclCommInitRootInfoConfig(ranks, info, rank, std::ptr::null(), handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclCommInitRootInfoConfig(
    ranks: u32,
    info: *const u8,
    rank: u32,
    configuration: *const Configuration,
    handle: *mut Handle,
) -> i32 {
    if info.is_null() || handle.is_null() {
        return Failure::Pointer as i32;
    }
    // SAFETY: the caller's structures have these sizes; a configuration is at least as long as the part read of it.
    let joined = unsafe {
        let info = std::slice::from_raw_parts(info, ROOT_INFO_BYTES);
        Communicator::join(ranks, info, rank, configuration.as_ref())
    };
    code(joined.map(|communicator| {
        // SAFETY: checked above; writable by the contract of the C function.
        unsafe { handle.write(Arc::into_raw(Arc::new(communicator))) };
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclCommDestroy(handle: Handle) -> i32 {
    if handle.is_null() {
        return Failure::Pointer as i32;
    }
    // SAFETY: the caller gives up the handle it was given; work that is under way has its own share.
    drop(unsafe { Arc::from_raw(handle) });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclGetCommName(handle: Handle, name: *mut c_char) -> i32 {
    if name.is_null() {
        return Failure::Pointer as i32;
    }
    // SAFETY: a live handle, and room for a name by the contract of the C function.
    code(unsafe { borrowed(handle).map(|communicator| write_text(name, communicator.name(), NAME_BYTES)) })
}

#[unsafe(no_mangle)]
extern "C" fn HcclGetCommConfigCapability() -> u32 {
    CAPABILITIES
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclGetCommAsyncError(handle: Handle, error: *mut i32) -> i32 {
    if error.is_null() {
        return Failure::Pointer as i32;
    }
    // SAFETY: a live handle, and a number to write to.
    code(unsafe { borrowed(handle).map(|communicator| error.write(communicator.failure())) })
}

#[unsafe(no_mangle)]
extern "C" fn HcclGetErrorString(number: i32) -> *const c_char {
    error_text(number)
}

/// Settings of HCCL change nothing here.
#[unsafe(no_mangle)]
extern "C" fn HcclSetConfig(_setting: i32, _value: i32) -> i32 {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclGetRankSize(handle: Handle, ranks: *mut u32) -> i32 {
    if ranks.is_null() {
        return Failure::Pointer as i32;
    }
    // SAFETY: a live handle, and a number to write to.
    code(unsafe { borrowed(handle).map(|communicator| ranks.write(communicator.ranks())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclGetRankId(handle: Handle, rank: *mut u32) -> i32 {
    if rank.is_null() {
        return Failure::Pointer as i32;
    }
    // SAFETY: a live handle, and a number to write to.
    code(unsafe { borrowed(handle).map(|communicator| rank.write(communicator.own_rank())) })
}

/// What the calling thread asks for from here on is kept until the group ends.
#[unsafe(no_mangle)]
extern "C" fn HcclGroupStart() -> i32 {
    group::start();
    0
}

#[unsafe(no_mangle)]
extern "C" fn HcclGroupEnd() -> i32 {
    code(group::end())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclBarrier(handle: Handle, stream: *mut c_void) -> i32 {
    // SAFETY: a live handle.
    code(unsafe { borrowed(handle) }.and_then(|communicator| submit(communicator, stream, |group| group.barrier())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclAllReduce(
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    data_type: i32,
    operation: i32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let all_reduce = || {
        let (given, own) = (memory(sent, count, data_type)?, memory(received, count, data_type)?);
        let how = reduction(data_type, operation)?;
        // SAFETY: a live handle.
        submit(unsafe { borrowed(handle) }?, stream, move |group| group.all_reduce(given, own, how))
    };
    code(all_reduce())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclReduce(
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    data_type: i32,
    operation: i32,
    root: u32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let reduce = || {
        let given = memory(sent, count, data_type)?;
        let own = Memory { address: received as usize, bytes: given.bytes };
        let how = reduction(data_type, operation)?;
        // SAFETY: a live handle.
        submit(unsafe { borrowed(handle) }?, stream, move |group| group.reduce(given, own, root, how))
    };
    code(reduce())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclBroadcast(
    buffer: *mut c_void,
    count: u64,
    data_type: i32,
    root: u32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let broadcast = || {
        let memory = memory(buffer, count, data_type)?;
        // SAFETY: a live handle.
        submit(unsafe { borrowed(handle) }?, stream, move |group| group.broadcast(memory, root))
    };
    code(broadcast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclAllGather(
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    data_type: i32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let all_gather = || {
        // SAFETY: a live handle.
        let communicator = unsafe { borrowed(handle) }?;
        let own = memory(sent, count, data_type)?;
        let parts = equal_parts(received, count, data_type, communicator.ranks())?;
        submit(communicator, stream, move |group| group.all_gather(own, &parts))
    };
    code(all_gather())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclAllGatherV(
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    counts: *const u64,
    places: *const u64,
    data_type: i32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let all_gather = || {
        // SAFETY: a live handle, and lists for all ranks.
        let communicator = unsafe { borrowed(handle) }?;
        let own = memory(sent, count, data_type)?;
        // SAFETY: as above.
        let parts = unsafe { listed_parts(received, counts, places, data_type, communicator.ranks()) }?;
        submit(communicator, stream, move |group| group.all_gather(own, &parts))
    };
    code(all_gather())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclReduceScatter(
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    data_type: i32,
    operation: i32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let reduce_scatter = || {
        // SAFETY: a live handle.
        let communicator = unsafe { borrowed(handle) }?;
        let (own, how) = (memory(received, count, data_type)?, reduction(data_type, operation)?);
        let parts = equal_parts(sent, count, data_type, communicator.ranks())?;
        submit(communicator, stream, move |group| group.reduce_scatter(&parts, Some(own), how))
    };
    code(reduce_scatter())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclReduceScatterV(
    sent: *const c_void,
    counts: *const u64,
    places: *const u64,
    received: *mut c_void,
    count: u64,
    data_type: i32,
    operation: i32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let reduce_scatter = || {
        // SAFETY: a live handle.
        let communicator = unsafe { borrowed(handle) }?;
        let (own, how) = (memory(received, count, data_type)?, reduction(data_type, operation)?);
        // SAFETY: lists for all ranks, by the contract of the C function.
        let parts = unsafe { listed_parts(sent, counts, places, data_type, communicator.ranks()) }?;
        submit(communicator, stream, move |group| group.reduce_scatter(&parts, Some(own), how))
    };
    code(reduce_scatter())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclScatter(
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    data_type: i32,
    root: u32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let scatter = || {
        // SAFETY: a live handle.
        let communicator = unsafe { borrowed(handle) }?;
        let own = memory(received, count, data_type)?;
        let is_root = communicator.own_rank() == root;
        let parts = equal_parts(sent, if is_root { count } else { 0 }, data_type, communicator.ranks())?;
        submit(communicator, stream, move |group| group.scatter(&parts, own, root))
    };
    code(scatter())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclAlltoAll(
    sent: *const c_void,
    sent_count: u64,
    sent_type: i32,
    received: *const c_void,
    received_count: u64,
    received_type: i32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let all_to_all = || {
        // SAFETY: a live handle.
        let communicator = unsafe { borrowed(handle) }?;
        let sent = equal_parts(sent, sent_count, sent_type, communicator.ranks())?;
        let received = equal_parts(received, received_count, received_type, communicator.ranks())?;
        submit(communicator, stream, move |group| group.all_to_all(&sent, &received))
    };
    code(all_to_all())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclAlltoAllV(
    sent: *const c_void,
    sent_counts: *const u64,
    sent_places: *const u64,
    sent_type: i32,
    received: *const c_void,
    received_counts: *const u64,
    received_places: *const u64,
    received_type: i32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let all_to_all = || {
        // SAFETY: a live handle, and lists for all ranks.
        let (communicator, sent, received) = unsafe {
            let communicator = borrowed(handle)?;
            let ranks = communicator.ranks();
            let sent = listed_parts(sent, sent_counts, sent_places, sent_type, ranks)?;
            let received = listed_parts(received, received_counts, received_places, received_type, ranks)?;
            (communicator, sent, received)
        };
        submit(communicator, stream, move |group| group.all_to_all(&sent, &received))
    };
    code(all_to_all())
}

/// `matrix` has the count from each rank to each rank.
#[unsafe(no_mangle)]
unsafe extern "C" fn HcclAlltoAllVC(
    sent: *const c_void,
    matrix: *const u64,
    sent_type: i32,
    received: *const c_void,
    received_type: i32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let all_to_all = || {
        // SAFETY: a live handle.
        let communicator = unsafe { borrowed(handle) }?;
        if matrix.is_null() {
            return Err(Failure::Pointer);
        }
        let (ranks, own) = (communicator.ranks() as usize, communicator.own_rank() as usize);
        // SAFETY: a count for each pair of ranks, by the contract of the C function.
        let count = |from: usize, to: usize| unsafe { *matrix.add(from * ranks + to) } as usize;
        let row = |address: *const c_void, bytes: usize, count: &dyn Fn(usize) -> usize| -> Vec<Memory> {
            let mut place = address as usize;
            let mut part = |rank: usize| {
                let part = Memory { address: place, bytes: count(rank) * bytes };
                place += part.bytes;
                part
            };
            (0..ranks).map(&mut part).collect()
        };
        let sent = row(sent, element_type(sent_type)?.bytes(), &|rank| count(own, rank));
        let received = row(received, element_type(received_type)?.bytes(), &|rank| count(rank, own));
        submit(communicator, stream, move |group| group.all_to_all(&sent, &received))
    };
    code(all_to_all())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclSend(
    buffer: *mut c_void,
    count: u64,
    data_type: i32,
    peer: u32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let item = BatchItem { direction: 0, buffer, count, element_type: data_type, peer };
    // SAFETY: as for the function called.
    unsafe { HcclBatchSendRecv(&raw const item, 1, handle, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclRecv(
    buffer: *mut c_void,
    count: u64,
    data_type: i32,
    peer: u32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let item = BatchItem { direction: 1, buffer, count, element_type: data_type, peer };
    // SAFETY: as for the function called.
    unsafe { HcclBatchSendRecv(&raw const item, 1, handle, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HcclBatchSendRecv(
    items: *const BatchItem,
    item_count: u32,
    handle: Handle,
    stream: *mut c_void,
) -> i32 {
    let batch = || {
        if items.is_null() {
            return Err(Failure::Pointer);
        }
        // SAFETY: a live handle, and as many items as the caller says.
        let (communicator, items) =
            unsafe { (borrowed(handle)?, std::slice::from_raw_parts(items, item_count as usize)) };
        let transfer = |item: &BatchItem| {
            let memory = memory(item.buffer, item.count, item.element_type)?;
            match (item.direction, item.peer < communicator.ranks()) {
                (0, true) => Ok(send(item.peer, memory)),
                (1, true) => Ok(receive(item.peer, memory)),
                _ => Err(Failure::Parameter),
            }
        };
        let transfers: Vec<_> = items.iter().map(transfer).collect::<Result<_, _>>()?;
        group::transfers(communicator, stream, transfers)
    };
    code(batch())
}
