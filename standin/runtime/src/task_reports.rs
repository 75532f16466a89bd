//! What the runtime tells profilers about tasks, when one has asked for it.
//!
//! A report is made on the thread that launches, inside the call, once the task is in its stream's queue. If calls of
//! the runtime are reported too, up to five reports are held back until the call ends.

use crate::driver::{MsprofGetHashId, MsprofRegisterCallback, MsprofReportCompactInfo, MsprofSysCycleTime};
use crate::stream::TaskType;
use standin_support::is_older_cann;
use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// The runtime's number among modules.
const MODULE: u32 = 7;
const SWITCH_TASKS: u64 = 0x400_0000;
const SWITCH_API: u64 = 0x100;
const COMMAND_START: u32 = 1;
const COMMAND_STOP: u32 = 2;
const DEVICE_ROOM: usize = 64;
const MOST_HELD_BACK: usize = 5;

const REPORT_BYTES: usize = 64;
const LEVEL_RUNTIME: u16 = 5000;
const TYPE_TASK: u32 = 802;
const TYPE_STREAM_EXPANSION: u32 = 804;
const TYPE_TASK_V2: u32 = 808;
const TYPE_MEMORY: u32 = 812;
const KIND_DEVICE_MEMORY: u32 = 2;

/// Devices whose tasks are reported, a bit each.
static REPORTED_DEVICES: AtomicU64 = AtomicU64::new(0);
static SWITCHES: AtomicU64 = AtomicU64::new(0);

type Report = [u8; REPORT_BYTES];

thread_local! {
    static HELD_BACK: RefCell<Vec<Report>> = const { RefCell::new(Vec::new()) };
}

/// A call of the runtime; reports that were held back are made when it ends.
pub struct ApiCall;

impl ApiCall {
    /// The call begins.
    pub fn begin() -> Self {
        Self
    }
}

impl Drop for ApiCall {
    fn drop(&mut self) {
        flush();
    }
}

fn flush() {
    HELD_BACK.with_borrow_mut(|held_back| held_back.drain(..).for_each(|report| send(&report)));
}

fn send(report: &Report) {
    // SAFETY: the report is as long as it says.
    unsafe { MsprofReportCompactInfo(1, report.as_ptr().cast(), REPORT_BYTES as u32) };
}

/// Whether ids of streams have more bits in records of the card: where a current CANN runs, unless
/// `STANDIN_STREAM_EXPANSION=0`.
pub fn has_expanded_ids() -> bool {
    static EXPANDED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *EXPANDED.get_or_init(|| {
        !is_older_cann() && !std::env::var("STANDIN_STREAM_EXPANSION").is_ok_and(|value| value.trim() == "0")
    })
}

/// The number that names a text in reports.
pub fn name_hash(name: &CStr) -> u64 {
    // SAFETY: a text of this length.
    unsafe { MsprofGetHashId(name.as_ptr(), name.count_bytes()) }
}

/// Whether tasks of a device are reported.
pub fn are_wanted(device: u32) -> bool {
    REPORTED_DEVICES.load(Ordering::Acquire) >> device & 1 == 1
}

/// A task of a stream.
#[derive(Clone, Copy)]
pub struct TaskIdentity {
    /// Physical device.
    pub device: u32,
    /// Stream.
    pub stream: u32,
    /// Number of the task: its id in the low half, how often that wrapped around in the high one.
    pub task: u32,
}

fn header(kind: u32, data_bytes: u32) -> Report {
    let mut report = [0; REPORT_BYTES];
    report[0..2].copy_from_slice(&0x5a5au16.to_le_bytes());
    report[2..4].copy_from_slice(&LEVEL_RUNTIME.to_le_bytes());
    report[4..8].copy_from_slice(&kind.to_le_bytes());
    // SAFETY: no arguments.
    let (thread, time) = unsafe { (libc::syscall(libc::SYS_gettid) as u32, MsprofSysCycleTime()) };
    report[8..12].copy_from_slice(&thread.to_le_bytes());
    report[12..16].copy_from_slice(&data_bytes.to_le_bytes());
    report[16..24].copy_from_slice(&time.to_le_bytes());
    report
}

/// Reports a task; the hash is that of the kernel's name, zero for everything else.
pub fn report(identity: TaskIdentity, task_type: TaskType, hash: u64) {
    let mut report = header(TYPE_TASK, 40);
    report[24..26].copy_from_slice(&(identity.device as u16).to_le_bytes());
    report[26..28].copy_from_slice(&(identity.stream as u16).to_le_bytes());
    report[28..32].copy_from_slice(&identity.task.to_le_bytes());
    report[32..40].copy_from_slice(&u64::from(task_type.0).to_le_bytes());
    report[40..48].copy_from_slice(&hash.to_le_bytes());
    report[48..50].copy_from_slice(&1u16.to_le_bytes());
    deliver(report);
}

/// Makes a report at once, or when the call ends if calls are reported, too: in the order in which they came up.
fn deliver(report: Report) {
    if SWITCHES.load(Ordering::Acquire) & SWITCH_API == 0 {
        return send(&report);
    }
    let is_full = HELD_BACK.with_borrow_mut(|held_back| {
        held_back.push(report);
        held_back.len() >= MOST_HELD_BACK
    });
    if is_full {
        flush();
    }
}

/// Reports the last kernel of a stream that goes away once more, in the newer form.
pub fn report_again(identity: TaskIdentity, task_type: TaskType, hash: u64) {
    if is_older_cann() {
        return;
    }
    let mut report = header(TYPE_TASK_V2, 24);
    report[24..26].copy_from_slice(&(identity.device as u16).to_le_bytes());
    report[28..32].copy_from_slice(&identity.stream.to_le_bytes());
    report[32..36].copy_from_slice(&identity.task.to_le_bytes());
    report[36..40].copy_from_slice(&task_type.0.to_le_bytes());
    report[40..48].copy_from_slice(&hash.to_le_bytes());
    deliver(report);
}

/// Reports device memory that the runtime allocates, or frees, when its size is not told; only where calls of the runtime
/// are reported, too.
pub fn report_memory(device: u32, address: u64, allocated_bytes: Option<u64>) {
    if SWITCHES.load(Ordering::Acquire) & SWITCH_API == 0 || is_older_cann() {
        return;
    }
    let mut report = header(TYPE_MEMORY, 28);
    report[24..32].copy_from_slice(&address.to_le_bytes());
    report[32..40].copy_from_slice(&allocated_bytes.unwrap_or(0).to_le_bytes());
    report[40..44].copy_from_slice(&KIND_DEVICE_MEMORY.to_le_bytes());
    report[44..46].copy_from_slice(&u16::from(allocated_bytes.is_none()).to_le_bytes());
    report[46..48].copy_from_slice(&(device as u16).to_le_bytes());
    send(&report);
}

/// Takes commands of profilers.
unsafe extern "C" fn handle(kind: u32, command: *mut c_void, _length: u32) -> i32 {
    const SWITCH: u32 = 1;
    if kind != SWITCH || command.is_null() {
        return 0;
    }
    // SAFETY: commands have this layout: switches at 0, number of devices at 16, devices from 20 on, type at 280.
    let (switches, devices, command_type) = unsafe {
        let at = |offset: usize| command.cast::<u8>().add(offset).cast::<u32>().read_unaligned();
        let count = (at(16) as usize).min(DEVICE_ROOM);
        let devices = (0..count).map(|index| at(20 + 4 * index)).filter(|device| *device < 64);
        let devices = devices.fold(0u64, |bits, device| bits | 1 << device);
        (u64::from(at(0)) | u64::from(at(4)) << 32, devices, at(280))
    };
    match command_type {
        COMMAND_START => {
            SWITCHES.fetch_or(switches, Ordering::AcqRel);
            if switches & SWITCH_TASKS != 0 {
                REPORTED_DEVICES.fetch_or(devices, Ordering::AcqRel);
            }
            if has_expanded_ids() {
                let mut report = header(TYPE_STREAM_EXPANSION, 1);
                report[24] = 1;
                // SAFETY: the report is as long as it says.
                unsafe { MsprofReportCompactInfo(0, report.as_ptr().cast(), REPORT_BYTES as u32) };
            }
        }
        COMMAND_STOP => {
            SWITCHES.fetch_and(!switches, Ordering::AcqRel);
            if switches & SWITCH_TASKS != 0 {
                REPORTED_DEVICES.fetch_and(!devices, Ordering::AcqRel);
            }
        }
        _ => {}
    }
    0
}

/// The runtime registers when it is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = register;

extern "C" fn register() {
    // SAFETY: the handler has the form that is expected of it.
    unsafe { MsprofRegisterCallback(MODULE, handle) };
}
