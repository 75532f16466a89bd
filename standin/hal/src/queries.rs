//! Questions about the cards. `drvGetDevNum` is the driver's; the `standin` functions are our own door for the
//! libraries above, which on a card would ask the driver in ways nobody else sees.

use crate::allocation::block_at;
use crate::error::DriverError;
use crate::flags::Place;
use crate::state::state;

#[unsafe(no_mangle)]
unsafe extern "C" fn drvGetDevNum(count: *mut u32) -> i32 {
    if count.is_null() {
        return DriverError::InvalidValue as i32;
    }
    // SAFETY: checked above; writable by the contract of the C function.
    unsafe { count.write(state().cards.device_count()) };
    0
}

/// Size of a card and bytes in use on it by all processes.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinDeviceMemory(device: u32, total: *mut u64, used: *mut u64) -> i32 {
    let cards = &state().cards;
    if device >= cards.device_count() {
        return DriverError::InvalidDevice as i32;
    }
    if total.is_null() || used.is_null() {
        return DriverError::InvalidValue as i32;
    }
    // SAFETY: checked above; the callers are our own libraries.
    unsafe {
        total.write(cards.memory_bytes());
        used.write(cards.used_bytes(device));
    }
    0
}

/// Processes that hold memory of a card: fills up to `*count` entries and sets `*count` to their number.
#[unsafe(no_mangle)]
unsafe extern "C" fn standinDeviceProcesses(device: u32, pids: *mut u32, bytes: *mut u64, count: *mut u32) -> i32 {
    let cards = &state().cards;
    if device >= cards.device_count() {
        return DriverError::InvalidDevice as i32;
    }
    if pids.is_null() || bytes.is_null() || count.is_null() {
        return DriverError::InvalidValue as i32;
    }
    let processes = cards.processes(device);
    // SAFETY: checked above; the callers are our own libraries, whose arrays hold `*count` entries.
    unsafe {
        let room = count.read() as usize;
        for (index, (process, used)) in processes.iter().take(room).enumerate() {
            pids.add(index).write(*process);
            bytes.add(index).write(*used);
        }
        count.write(processes.len().min(room) as u32);
    }
    0
}

/// Device of the block that starts at `address`: its physical id, -1 for pinned host memory, -2 when unknown.
#[unsafe(no_mangle)]
extern "C" fn standinBlockDevice(address: u64) -> i32 {
    match block_at(address) {
        Some((_, Place::Device(device))) => device as i32,
        Some((_, Place::Host)) => -1,
        None => -2,
    }
}
