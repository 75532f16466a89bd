//! The tools interface of the runtime: marks, ranges and domains of users.
//!
//! Every library that embeds the interface connects itself by calling [`init_injection`] with its own
//! table of function slots, so that happens any number of times.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use msmemscope_control::SOURCE_MSTX;
use msmemscope_event::{Device, Fact, LossReason, SystemEvent};
use msmemscope_trace::codec::LARGEST_TEXT_BYTES;

use crate::domains::{self, Domain};
use crate::{acl, losses, mstx_memory, process, sources, state, thread};

const SUCCESS: c_int = 0;
const FAILURE: c_int = 1;

const MODULE_CORE: c_int = 1;
const MODULE_DOMAIN: c_int = 2;
const MODULE_MEMORY: c_int = 3;

/// A place where a library keeps the function it calls.
type Slot = *mut *const ();
type FunctionTable = unsafe extern "C-unwind" fn(c_int, *mut *mut Slot, *mut c_uint) -> c_int;

/// The functions of each module with their positions.
static MODULES: [(c_int, &[Entry]); 3] = [
    (
        MODULE_CORE,
        &[
            Entry(1, mark as *const ()),
            Entry(2, range_start as *const ()),
            Entry(3, range_end as *const ()),
            Entry(4, tool_id as *const ()),
        ],
    ),
    (
        MODULE_DOMAIN,
        &[
            Entry(1, domain_create as *const ()),
            Entry(2, domain_destroy as *const ()),
            Entry(3, domain_mark as *const ()),
            Entry(4, domain_range_start as *const ()),
            Entry(5, domain_range_end as *const ()),
        ],
    ),
    (
        MODULE_MEMORY,
        &[
            Entry(1, mstx_memory::heap_register as *const ()),
            Entry(2, mstx_memory::heap_unregister as *const ()),
            Entry(3, mstx_memory::regions_register as *const ()),
            Entry(4, mstx_memory::regions_unregister as *const ()),
        ],
    ),
];

/// Position in a table and the function for it.
struct Entry(usize, *const ());

// SAFETY: addresses of code.
unsafe impl Sync for Entry {}

/// The number under which the interface knows this tool.
const TOOL_ID: u64 = 0x1003;

static NEXT_RANGE_ID: AtomicU64 = AtomicU64::new(1);

/// Connects a library: fills the slots that it has. Fails, which disconnects the library for good,
/// only if it offers nothing.
pub unsafe extern "C-unwind" fn init_injection(get_table: Option<FunctionTable>) -> c_int {
    let Some(get_table) = get_table else { return FAILURE };
    let mut connected = false;
    for (module, entries) in &MODULES {
        let mut table: *mut Slot = std::ptr::null_mut();
        let mut slot_count: c_uint = 0;
        // SAFETY: the function comes from the caller for this purpose; both results outlive the call.
        let result = unsafe { get_table(*module, &mut table, &mut slot_count) };
        if result != SUCCESS || table.is_null() {
            continue;
        }
        connected = true;
        for Entry(position, function) in entries.iter().filter(|entry| entry.0 < slot_count as usize) {
            // SAFETY: the table has `slot_count` entries, each null or the address of a slot.
            unsafe {
                let slot = *table.add(*position);
                if !slot.is_null() {
                    *slot = *function;
                }
            }
        }
    }
    sources::note(SOURCE_MSTX);
    if state::records_everything() && process::existing().is_some() {
        let event = SystemEvent::MstxInjection;
        thread::record_now(&Fact::System { event, device: Device::Unknown, result: i64::from(!connected) });
    }
    if connected { SUCCESS } else { FAILURE }
}

/// The bytes of a message, cut if it is longer than a record may be.
///
/// # Safety
/// Null or a C string that outlives the result.
unsafe fn message_bytes<'a>(message: *const c_char) -> Option<&'a [u8]> {
    if message.is_null() {
        return None;
    }
    // SAFETY: promised by the caller.
    let bytes = unsafe { CStr::from_ptr(message) }.to_bytes();
    if bytes.len() > LARGEST_TEXT_BYTES {
        losses::count(LossReason::TextCut, 1);
    }
    Some(&bytes[..bytes.len().min(LARGEST_TEXT_BYTES)])
}

unsafe extern "C-unwind" fn mark(message: *const c_char, stream: *mut c_void) {
    // SAFETY: arguments of the caller.
    unsafe { domain_mark(std::ptr::null_mut(), message, stream) };
}

unsafe extern "C-unwind" fn range_start(message: *const c_char, stream: *mut c_void) -> u64 {
    // SAFETY: arguments of the caller.
    unsafe { domain_range_start(std::ptr::null_mut(), message, stream) }
}

unsafe extern "C-unwind" fn range_end(range_id: u64) {
    // SAFETY: arguments of the caller.
    unsafe { domain_range_end(std::ptr::null_mut(), range_id) };
}

unsafe extern "C-unwind" fn domain_create(name: *const c_char) -> *mut c_void {
    // SAFETY: the interface is passed C strings.
    let name = unsafe { message_bytes(name) };
    name.map_or(std::ptr::null_mut(), domains::create)
}

/// Handles stay valid: another library may still use the domain of the same name.
unsafe extern "C-unwind" fn domain_destroy(_: *mut c_void) {}

unsafe extern "C-unwind" fn domain_mark(domain: *mut c_void, message: *const c_char, _: *mut c_void) {
    count_message();
    if state::records_everything() {
        // SAFETY: the interface is passed C strings.
        if let Some(message) = unsafe { message_bytes(message) } {
            record_mark(Domain::of(domain), message);
        }
    }
}

/// Returns the id of the range; zero, which no range has, if it is not recorded.
unsafe extern "C-unwind" fn domain_range_start(domain: *mut c_void, message: *const c_char, _: *mut c_void) -> u64 {
    count_message();
    if !state::records_everything() {
        return 0;
    }
    // SAFETY: the interface is passed C strings.
    let message = unsafe { message_bytes(message) };
    message.map_or(0, |message| record_range_start(Domain::of(domain), message))
}

unsafe extern "C-unwind" fn domain_range_end(domain: *mut c_void, range_id: u64) {
    count_message();
    if range_id != 0 && state::records_everything() {
        record_range_end(Domain::of(domain), range_id);
    }
}

fn record_mark(domain: Domain, message: &[u8]) {
    let monotonic_ns = thread::stamp();
    let (domain, device) = (domain.name(), acl::current_device());
    thread::record(monotonic_ns, &Fact::Mark { domain, device, message });
}

fn record_range_start(domain: Domain, message: &[u8]) -> u64 {
    let monotonic_ns = thread::stamp();
    let (domain, device) = (domain.name(), acl::current_device());
    let range_id = NEXT_RANGE_ID.fetch_add(1, Ordering::Relaxed);
    thread::record(monotonic_ns, &Fact::RangeBegin { domain, device, range_id, message });
    range_id
}

fn record_range_end(domain: Domain, range_id: u64) {
    let monotonic_ns = thread::stamp();
    let (domain, device) = (domain.name(), acl::current_device());
    thread::record(monotonic_ns, &Fact::RangeEnd { domain, device, range_id });
}

thread_local! {
    static MESSAGES: Cell<u64> = const { Cell::new(0) };
}

fn count_message() {
    MESSAGES.set(MESSAGES.get() + 1);
}

/// How many marks, begins and ends of ranges this thread has sent.
pub fn message_count() -> u64 {
    MESSAGES.get()
}

/// A mark that did not come through the interface, because a framework keeps it to itself.
pub fn relay_mark(domain: &[u8], message: &[u8]) {
    if state::records_everything() {
        record_mark(Domain::of(domains::create(domain)), message);
    }
}

/// As [`relay_mark`], the start of a range.
pub fn relay_range_start(domain: &[u8], message: &[u8]) -> u64 {
    if !state::records_everything() {
        return 0;
    }
    record_range_start(Domain::of(domains::create(domain)), message)
}

/// As [`relay_mark`], the end of a range.
pub fn relay_range_end(domain: &[u8], range_id: u64) {
    if range_id != 0 && state::records_everything() {
        record_range_end(Domain::of(domains::create(domain)), range_id);
    }
}

unsafe extern "C-unwind" fn tool_id(id: *mut u64) {
    if !id.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *id = TOOL_ID };
    }
}
