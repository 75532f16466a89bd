//! Stand-in for CANN's `libprofapi.so`: through it the runtime reports what it does, and a profiler listens.
//!
//! One callback of each kind can be registered; a new one replaces the one before. Reports without a callback go to the
//! profiler's own buffer. Commands of a profiler reach every module
//! that has registered a handler.

mod buffer;
mod callbacks;
mod hashes;

use callbacks::{Callback, Kind, callback};
use standin_support::host_kilohertz;
use std::ffi::{c_char, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Size of a command.
const COMMAND_BYTES: u32 = 5424;
/// What modules are told a command is about: that switches changed.
const SWITCH: u32 = 1;
const FAILED: i32 = -1;

/// Handles commands in a module.
type Handler = unsafe extern "C" fn(u32, *mut c_void, u32) -> i32;

static HANDLERS: Mutex<Vec<(u32, Handler)>> = Mutex::new(Vec::new());

fn handlers() -> Vec<(u32, Handler)> {
    HANDLERS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[unsafe(no_mangle)]
extern "C" fn MsprofRegisterCallback(module: u32, handler: Option<Handler>) -> i32 {
    let Some(handler) = handler else { return FAILED };
    HANDLERS.lock().unwrap_or_else(PoisonError::into_inner).push((module, handler));
    0
}

#[unsafe(no_mangle)]
extern "C" fn MsprofRegisterProfileCallback(kind: i32, function: *mut c_void, _length: u32) -> i32 {
    callbacks::register(kind, function)
}

/// A command of a profiler: type 1 starts, 2 stops what its switches name. Needs the profiler's library.
#[unsafe(no_mangle)]
unsafe extern "C" fn profSetProfCommand(command: *mut c_void, length: u32) -> i32 {
    unsafe extern "C" {
        fn dlopen(name: *const c_char, flags: i32) -> *mut c_void;
    }
    const LAZY: i32 = 1;
    if command.is_null() || length != COMMAND_BYTES {
        return FAILED;
    }
    // SAFETY: a terminated name; the library has no code.
    if unsafe { dlopen(c"libmsprofiler.so".as_ptr(), LAZY) }.is_null() {
        return FAILED;
    }
    for (_, handler) in handlers() {
        // SAFETY: handlers take commands of this size.
        unsafe { handler(SWITCH, command, length) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn MsprofReportCompactInfo(aging: u32, data: *const c_void, length: u32) -> i32 {
    // SAFETY: the report is the caller's.
    unsafe { report(Kind::Compact, aging, data, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn MsprofReportAdditionalInfo(aging: u32, data: *const c_void, length: u32) -> i32 {
    // SAFETY: the report is the caller's.
    unsafe { report(Kind::Additional, aging, data, length) }
}

unsafe fn report(kind: Kind, aging: u32, data: *const c_void, length: u32) -> i32 {
    match callback(kind) {
        // SAFETY: registered as a callback of this kind, which has this form.
        Some(Callback(function)) => unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32, *const c_void, u32) -> i32>(function)(
                aging, data, length,
            )
        },
        None => {
            // SAFETY: the report is the caller's.
            unsafe { buffer::add(data, length) };
            0
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn MsprofReportApi(aging: u32, api: *const c_void) -> i32 {
    match callback(Kind::Api) {
        // SAFETY: registered as a callback of this kind, which has this form.
        Some(Callback(function)) => unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32, *const c_void) -> i32>(function)(aging, api)
        },
        None => 0,
    }
}

/// The number that names a text in reports, or zero when neither a callback nor the profiler has one.
#[unsafe(no_mangle)]
unsafe extern "C" fn MsprofGetHashId(text: *const c_char, length: usize) -> u64 {
    // SAFETY: `length` bytes are readable by the contract of the C function.
    unsafe { hashes::hash_of(text, length) }
}

/// The newer name of the same function.
#[unsafe(no_mangle)]
unsafe extern "C" fn MsprofStr2Id(text: *const c_char, length: usize) -> u64 {
    // SAFETY: as above.
    unsafe { hashes::hash_of(text, length) }
}

/// A device is opened or closed.
#[unsafe(no_mangle)]
unsafe extern "C" fn MsprofNotifySetDevice(chip: u32, device: u32, is_open: bool) -> i32 {
    callbacks::notify_device(chip, device, is_open)
}

/// A counter of the host: with the frequency that the driver gives, and raw monotonic nanoseconds if it gives none.
#[unsafe(no_mangle)]
extern "C" fn MsprofSysCycleTime() -> u64 {
    static HOST_KILOHERTZ: LazyLock<u64> = LazyLock::new(host_kilohertz);
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure given; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    let raw_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    match *HOST_KILOHERTZ {
        0 => raw_ns,
        kilohertz => (u128::from(raw_ns) * u128::from(kilohertz) / 1_000_000) as u64,
    }
}
