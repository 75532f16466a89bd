//! The mstx functions. Each logs the call and passes it to the tool, if there is one that wants it.

use crate::injection::{SLOTS, Slot};
use crate::log::Call;
use crate::types::{HeapDescription, RangeDescription, RegionReference, RegisterBatch, UnregisterBatch};
use standin_truth::Kind;
use std::ffi::{c_char, c_void};

/// The tool's function in a slot; `F` is the function type that the mstx convention fixes for that slot.
fn tool<F: Copy>(slot: &Slot) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: a tool fills the slot only with a function of this type, and the sizes agree.
    slot.function().map(|function| unsafe { std::mem::transmute_copy(&function) })
}

type MarkFunction = unsafe extern "C" fn(*const c_char, *mut c_void);
type RangeStartFunction = unsafe extern "C" fn(*const c_char, *mut c_void) -> u64;
type RangeEndFunction = unsafe extern "C" fn(u64);
type ToolIdFunction = unsafe extern "C" fn(*mut u64);
type DomainCreateFunction = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type DomainDestroyFunction = unsafe extern "C" fn(*mut c_void);
type DomainMarkFunction = unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void);
type DomainRangeStartFunction = unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void) -> u64;
type DomainRangeEndFunction = unsafe extern "C" fn(*mut c_void, u64);
type HeapRegisterFunction = unsafe extern "C" fn(*mut c_void, *const HeapDescription) -> *mut c_void;
type HeapUnregisterFunction = unsafe extern "C" fn(*mut c_void, *mut c_void);
type RegionsRegisterFunction = unsafe extern "C" fn(*mut c_void, *const RegisterBatch);
type RegionsUnregisterFunction = unsafe extern "C" fn(*mut c_void, *const UnregisterBatch);

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxMarkA(message: *const c_char, stream: *mut c_void) {
    let call = Call::enter(Kind::Mark).flags(stream as u64);
    // SAFETY: the arguments are passed on as they came; the message is null or terminated.
    unsafe {
        if let Some(mark) = tool::<MarkFunction>(&SLOTS.core[1]) {
            mark(message, stream);
        }
        call.write_message(message);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxRangeStartA(message: *const c_char, stream: *mut c_void) -> u64 {
    let call = Call::enter(Kind::RangeStart).flags(stream as u64);
    // SAFETY: the arguments are passed on as they came; the message is null or terminated.
    unsafe {
        let id = tool::<RangeStartFunction>(&SLOTS.core[2]).map_or(0, |start| start(message, stream));
        call.address(id).write_message(message);
        id
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxRangeEnd(id: u64) {
    let call = Call::enter(Kind::RangeEnd).address(id);
    if let Some(end) = tool::<RangeEndFunction>(&SLOTS.core[3]) {
        // SAFETY: takes a plain number.
        unsafe { end(id) };
    }
    call.write();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxGetToolId(id: *mut u64) {
    // SAFETY: null, or writable by the contract of the C function.
    unsafe {
        match tool::<ToolIdFunction>(&SLOTS.core[4]) {
            Some(get) => get(id),
            None if id.is_null() => {}
            None => id.write(0),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxDomainCreateA(name: *const c_char) -> *mut c_void {
    let call = Call::enter(Kind::DomainCreate);
    // SAFETY: the name is passed on as it came; it is null or terminated.
    unsafe {
        let domain = tool::<DomainCreateFunction>(&SLOTS.domain[1]).map_or(std::ptr::null_mut(), |create| create(name));
        call.address(domain as u64).write_message(name);
        domain
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxDomainDestroy(domain: *mut c_void) {
    let call = Call::enter(Kind::DomainDestroy).flags(domain as u64);
    if let Some(destroy) = tool::<DomainDestroyFunction>(&SLOTS.domain[2]) {
        // SAFETY: the handle is passed on as it came.
        unsafe { destroy(domain) };
    }
    call.write();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxDomainMarkA(domain: *mut c_void, message: *const c_char, stream: *mut c_void) {
    let call = Call::enter(Kind::DomainMark).flags(domain as u64);
    // SAFETY: the arguments are passed on as they came; the message is null or terminated.
    unsafe {
        if let Some(mark) = tool::<DomainMarkFunction>(&SLOTS.domain[3]) {
            mark(domain, message, stream);
        }
        call.write_message(message);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxDomainRangeStartA(domain: *mut c_void, message: *const c_char, stream: *mut c_void) -> u64 {
    let call = Call::enter(Kind::DomainRangeStart).flags(domain as u64);
    // SAFETY: the arguments are passed on as they came; the message is null or terminated.
    unsafe {
        let start = tool::<DomainRangeStartFunction>(&SLOTS.domain[4]);
        let id = start.map_or(0, |start| start(domain, message, stream));
        call.address(id).write_message(message);
        id
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxDomainRangeEnd(domain: *mut c_void, id: u64) {
    let call = Call::enter(Kind::DomainRangeEnd).flags(domain as u64).address(id);
    if let Some(end) = tool::<DomainRangeEndFunction>(&SLOTS.domain[5]) {
        // SAFETY: the arguments are passed on as they came.
        unsafe { end(domain, id) };
    }
    call.write();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxMemHeapRegister(domain: *mut c_void, heap: *const HeapDescription) -> *mut c_void {
    // SAFETY: null, or a heap whose range is null or readable, by the contract of the C function.
    let range = unsafe { heap.as_ref().and_then(|heap| heap.range.as_ref()).copied() };
    let call = memory_call(Kind::HeapRegister, domain, range);
    let register = tool::<HeapRegisterFunction>(&SLOTS.memory[1]);
    // SAFETY: the arguments are passed on as they came.
    let handle = register.map_or(std::ptr::null_mut(), |register| unsafe { register(domain, heap) });
    call.write();
    handle
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxMemHeapUnregister(domain: *mut c_void, heap: *mut c_void) {
    let call = Call::enter(Kind::HeapUnregister).flags(domain as u64).address(heap as u64);
    if let Some(unregister) = tool::<HeapUnregisterFunction>(&SLOTS.memory[2]) {
        // SAFETY: the arguments are passed on as they came.
        unsafe { unregister(domain, heap) };
    }
    call.write();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxMemRegionsRegister(domain: *mut c_void, batch: *const RegisterBatch) {
    // SAFETY: null, or a batch with `count` readable regions, by the contract of the C function.
    let regions: &[RangeDescription] = unsafe {
        match batch.as_ref() {
            Some(batch) if !batch.regions.is_null() => std::slice::from_raw_parts(batch.regions, batch.count),
            _ => &[],
        }
    };
    let calls: Vec<Call> =
        regions.iter().map(|region| memory_call(Kind::RegionRegister, domain, Some(*region))).collect();
    if let Some(register) = tool::<RegionsRegisterFunction>(&SLOTS.memory[3]) {
        // SAFETY: the arguments are passed on as they came.
        unsafe { register(domain, batch) };
    }
    calls.into_iter().for_each(Call::write);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mstxMemRegionsUnregister(domain: *mut c_void, batch: *const UnregisterBatch) {
    // SAFETY: null, or a batch with `count` readable references, by the contract of the C function.
    let references: &[RegionReference] = unsafe {
        match batch.as_ref() {
            Some(batch) if !batch.references.is_null() => std::slice::from_raw_parts(batch.references, batch.count),
            _ => &[],
        }
    };
    let call = |reference: &RegionReference| {
        let call = Call::enter(Kind::RegionUnregister).flags(domain as u64);
        call.address(reference.value as u64).result(reference.kind)
    };
    let calls: Vec<Call> = references.iter().map(call).collect();
    if let Some(unregister) = tool::<RegionsUnregisterFunction>(&SLOTS.memory[4]) {
        // SAFETY: the arguments are passed on as they came.
        unsafe { unregister(domain, batch) };
    }
    calls.into_iter().for_each(Call::write);
}

fn memory_call(kind: Kind, domain: *mut c_void, range: Option<RangeDescription>) -> Call {
    let call = Call::enter(kind).flags(domain as u64);
    match range {
        Some(range) => call.memory(range.device as i32, range.pointer as u64, range.size),
        None => call,
    }
}

/// Our own: the header's inline functions report through this, so that their calls are in the log as well.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinMstxObserve(
    kind: u32,
    address: u64,
    size: u64,
    flags: u64,
    device: i32,
    result: i32,
    message: *const c_char,
) {
    if let Some(kind) = Kind::from_number(kind) {
        let call = Call::enter(kind).memory(device, address, size).flags(flags).result(result);
        // SAFETY: the header passes null or the terminated message of the program.
        unsafe { call.write_message(message) };
    }
}
