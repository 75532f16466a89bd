//! Stand-in for CANN's `libmsprofiler.so`: the profiler that torch_npu starts.
//!
//! It asks for reports of tasks, reads the channel of every card it was started for, and writes what it has seen to
//! `standin_profile.csv` in the directory it was given: reports first (card, stream, task, name), then how many records
//! each card had. Whoever else listens in the process must not change any of it.

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SUCCESS: i32 = 0;
const INVALID_PARAMETER: i32 = 100_000;
const COMMAND_BYTES: usize = 5424;
const SWITCH_TASKS: u64 = 0x400_0000;
const START: u32 = 1;
const STOP: u32 = 2;
const TASK_CHANNEL: u32 = 50;
const RECORD_BYTES: i32 = 64;
const MOST_DEVICES: usize = 64;

unsafe extern "C" {
    fn profSetProfCommand(command: *mut c_void, length: u32) -> i32;
    fn standinProfilerBegins();
    fn standinProfilerEnds(visit: unsafe extern "C" fn(*mut c_void, *const u8, *const c_char), context: *mut c_void);
    fn prof_drv_start(device: u32, channel: u32, parameters: *const StartParameters) -> i32;
    fn prof_channel_read(device: u32, channel: u32, buffer: *mut c_char, size: u32) -> i32;
    fn prof_stop(device: u32, channel: u32) -> i32;
}

/// `struct prof_start_para`.
#[repr(C)]
struct StartParameters {
    channel_type: i32,
    sample_period: u32,
    is_real_time: u32,
    user_data: *const u32,
    user_data_bytes: u32,
}

/// `aclprofConfig`: the cards.
struct Configuration {
    devices: Vec<u32>,
}

static DIRECTORY: Mutex<Option<PathBuf>> = Mutex::new(None);

fn directory() -> MutexGuard<'static, Option<PathBuf>> {
    DIRECTORY.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclprofInit(path: *const c_char, _length: usize) -> i32 {
    if path.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; a terminated string by the contract of the C function.
    let path = unsafe { CStr::from_ptr(path) };
    *directory() = Some(PathBuf::from(path.to_string_lossy().into_owned()));
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn aclprofFinalize() -> i32 {
    *directory() = None;
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclprofCreateConfig(
    devices: *const u32,
    device_count: u32,
    _metrics: i32,
    _events: *const c_void,
    _types: u64,
) -> *mut c_void {
    let devices = match devices.is_null() || device_count as usize > MOST_DEVICES {
        true => Vec::new(),
        // SAFETY: checked above; as long as it says by the contract of the C function.
        false => unsafe { std::slice::from_raw_parts(devices, device_count as usize) }.to_vec(),
    };
    Box::into_raw(Box::new(Configuration { devices })).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclprofDestroyConfig(configuration: *const c_void) -> i32 {
    if !configuration.is_null() {
        // SAFETY: made by `aclprofCreateConfig` and given back once, by the contract of the C function.
        drop(unsafe { Box::from_raw(configuration.cast_mut().cast::<Configuration>()) });
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn aclprofSetConfig(_kind: i32, _text: *const c_char, _length: usize) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn aclprofWarmup(_configuration: *const c_void) -> i32 {
    SUCCESS
}

fn send(kind: u32, devices: &[u32]) {
    let mut command = vec![0u32; COMMAND_BYTES / 4];
    (command[0], command[1]) = (SWITCH_TASKS as u32, (SWITCH_TASKS >> 32) as u32);
    command[4] = devices.len() as u32;
    command[5..5 + devices.len()].copy_from_slice(devices);
    command[69] = u32::MAX;
    command[70] = kind;
    // SAFETY: as long as it says.
    unsafe { profSetProfCommand(command.as_mut_ptr().cast(), COMMAND_BYTES as u32) };
}

/// Reads all records that wait in a card's channel, and gives their number.
fn empty(device: u32) -> i64 {
    let mut buffer = vec![0u8; 1 << 20];
    let mut records = 0;
    loop {
        // SAFETY: as long as it says.
        let count = unsafe { prof_channel_read(device, TASK_CHANNEL, buffer.as_mut_ptr().cast(), buffer.len() as u32) };
        if count <= 0 {
            return records;
        }
        records += i64::from(count / RECORD_BYTES);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclprofStart(configuration: *const c_void) -> i32 {
    // SAFETY: null or made by `aclprofCreateConfig`.
    let Some(configuration) = (unsafe { configuration.cast::<Configuration>().as_ref() }) else {
        return INVALID_PARAMETER;
    };
    let wanted = [1u32, 0, 0, 0, 0, 0, 0, 0, 0];
    let parameters = StartParameters {
        channel_type: 0,
        sample_period: 20,
        is_real_time: 1,
        user_data: wanted.as_ptr(),
        user_data_bytes: size_of_val(&wanted) as u32,
    };
    // SAFETY: no arguments; parameters outlive the calls.
    unsafe {
        standinProfilerBegins();
        for device in &configuration.devices {
            prof_drv_start(*device, TASK_CHANNEL, &raw const parameters);
        }
    }
    send(START, &configuration.devices);
    SUCCESS
}

/// Adds a report to the text.
unsafe extern "C" fn add(text: *mut c_void, report: *const u8, name: *const c_char) {
    // SAFETY: given by `aclprofStop`, which gets whole reports and terminated names.
    let (text, report, name) =
        unsafe { (&mut *text.cast::<String>(), &*report.cast::<[u8; 64]>(), CStr::from_ptr(name)) };
    let u16_at = |at: usize| u16::from_le_bytes([report[at], report[at + 1]]);
    let kind = u16_at(4);
    let _ = writeln!(text, "{kind},{},{},{},{}", u16_at(24), u16_at(26), u16_at(28), name.to_string_lossy());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aclprofStop(configuration: *const c_void) -> i32 {
    // SAFETY: null or made by `aclprofCreateConfig`.
    let Some(configuration) = (unsafe { configuration.cast::<Configuration>().as_ref() }) else {
        return INVALID_PARAMETER;
    };
    send(STOP, &configuration.devices);
    let mut text = String::new();
    // SAFETY: the text outlives the call.
    unsafe { standinProfilerEnds(add, (&raw mut text).cast()) };
    for device in &configuration.devices {
        let _ = writeln!(text, "records,{device},{}", empty(*device));
        // SAFETY: plain numbers.
        unsafe { prof_stop(*device, TASK_CHANNEL) };
    }
    if let Some(directory) = &*directory() {
        // A profile that cannot be written is missing, as everybody sees.
        let _ = std::fs::create_dir_all(directory);
        let _ = std::fs::write(directory.join("standin_profile.csv"), text);
    }
    SUCCESS
}
