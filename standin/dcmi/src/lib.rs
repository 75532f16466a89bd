//! Stand-in for `libdcmi.so`: device management. Every card has one device, and its memory is what the driver of the
//! stand-in counts for all processes that share the cards.

use std::ffi::c_int;

/// `DCMI_ERR_CODE_INVALID_PARAMETER`.
const INVALID_PARAMETER: c_int = -8001;
const BYTES_PER_MEGABYTE: u64 = 1 << 20;
/// Most processes reported for one device.
const PROCESS_LIMIT: usize = 64;

unsafe extern "C" {
    fn drvGetDevNum(count: *mut u32) -> i32;
    fn standinDeviceMemory(device: u32, total: *mut u64, used: *mut u64) -> i32;
    fn standinDeviceProcesses(device: u32, pids: *mut u32, bytes: *mut u64, count: *mut u32) -> i32;
}

/// `struct dcmi_hbm_info`.
#[repr(C)]
struct MemoryInformation {
    size_megabytes: u64,
    frequency_megahertz: u32,
    used_megabytes: u64,
    temperature_celsius: i32,
    bandwidth_percent: u32,
}

/// `struct dcmi_proc_mem_info`.
#[repr(C)]
struct ProcessMemory {
    process: i32,
    used_bytes: u64,
}

fn device_count() -> u32 {
    let mut count = 0;
    // SAFETY: writes one number.
    unsafe { drvGetDevNum(&raw mut count) };
    count
}

/// The device of a card; every card has only device 0.
fn device_of(card: c_int, device: c_int) -> Option<u32> {
    u32::try_from(card).ok().filter(|card| device == 0 && *card < device_count())
}

#[unsafe(no_mangle)]
extern "C" fn dcmi_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dcmi_get_card_list(count: *mut c_int, list: *mut c_int, room: c_int) -> c_int {
    if count.is_null() || list.is_null() || room < 0 {
        return INVALID_PARAMETER;
    }
    let cards = (device_count() as c_int).min(room);
    // SAFETY: checked above; `room` entries are writable by the contract of the C function.
    unsafe {
        for card in 0..cards {
            list.add(card as usize).write(card);
        }
        count.write(cards);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dcmi_get_device_num_in_card(card: c_int, count: *mut c_int) -> c_int {
    if count.is_null() || device_of(card, 0).is_none() {
        return INVALID_PARAMETER;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { count.write(1) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dcmi_get_device_logic_id(id: *mut c_int, card: c_int, device: c_int) -> c_int {
    let Some(device) = device_of(card, device).filter(|_| !id.is_null()) else { return INVALID_PARAMETER };
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { id.write(device as c_int) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dcmi_get_device_hbm_info(
    card: c_int,
    device: c_int,
    information: *mut MemoryInformation,
) -> c_int {
    let Some(device) = device_of(card, device).filter(|_| !information.is_null()) else { return INVALID_PARAMETER };
    let (mut total, mut used) = (0, 0);
    // SAFETY: two numbers of ours; the caller's structure was checked.
    unsafe {
        if standinDeviceMemory(device, &raw mut total, &raw mut used) != 0 {
            return INVALID_PARAMETER;
        }
        information.write(MemoryInformation {
            size_megabytes: total / BYTES_PER_MEGABYTE,
            frequency_megahertz: 1600,
            used_megabytes: used.div_ceil(BYTES_PER_MEGABYTE),
            temperature_celsius: 45,
            bandwidth_percent: 0,
        });
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dcmi_get_npu_proc_mem_info(
    card: c_int,
    device: c_int,
    processes: *mut ProcessMemory,
    count: *mut c_int,
) -> c_int {
    let usable = !processes.is_null() && !count.is_null();
    let Some(device) = device_of(card, device).filter(|_| usable) else { return INVALID_PARAMETER };
    let mut pids = [0; PROCESS_LIMIT];
    let mut bytes = [0; PROCESS_LIMIT];
    let mut found = PROCESS_LIMIT as u32;
    // SAFETY: arrays of ours; the caller's array has room for `PROCESS_LIMIT` entries by the contract of the C
    // function.
    unsafe {
        if standinDeviceProcesses(device, pids.as_mut_ptr(), bytes.as_mut_ptr(), &raw mut found) != 0 {
            return INVALID_PARAMETER;
        }
        for index in 0..found as usize {
            let entry = ProcessMemory { process: pids[index] as i32, used_bytes: bytes[index] };
            processes.add(index).write(entry);
        }
        count.write(found as c_int);
    }
    0
}
