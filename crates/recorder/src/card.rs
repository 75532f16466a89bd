//! How full a card is when the driver refuses an allocation.
//!
//! Only device management (DCMI) knows what other processes hold. It is asked once per refusal, just
//! before the refusal is written down, so that the two can be read together. The answer is a fact like
//! any other; a job without device management goes on without it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use msmemscope_event::{Device, Fact};

use crate::real::RealFunction;
use crate::{errno, thread};

const LIBRARY: &str = "libdcmi.so";
const BYTES_PER_MEGABYTE: u64 = 1 << 20;
const MOST_CARDS: usize = 32;
const MOST_PROCESSES: usize = 64;
/// A job that fails in a loop must not spend its time here.
const SMALLEST_INTERVAL_NS: u64 = 10_000_000;

static INIT: RealFunction = RealFunction::new(LIBRARY, &[c"dcmi_init"]);
static CARD_LIST: RealFunction = RealFunction::new(LIBRARY, &[c"dcmi_get_card_list"]);
static DEVICES_IN_CARD: RealFunction = RealFunction::new(LIBRARY, &[c"dcmi_get_device_num_in_card"]);
static LOGIC_ID: RealFunction = RealFunction::new(LIBRARY, &[c"dcmi_get_device_logic_id"]);
static MEMORY: RealFunction = RealFunction::new(LIBRARY, &[c"dcmi_get_device_hbm_info"]);
static PROCESSES: RealFunction = RealFunction::new(LIBRARY, &[c"dcmi_get_npu_proc_mem_info"]);

type Init = unsafe extern "C" fn() -> c_int;
type CardList = unsafe extern "C" fn(*mut c_int, *mut c_int, c_int) -> c_int;
type DevicesInCard = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
type LogicId = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type Memory = unsafe extern "C" fn(c_int, c_int, *mut MemoryInformation) -> c_int;
type Processes = unsafe extern "C" fn(c_int, c_int, *mut ProcessMemory, *mut c_int) -> c_int;

/// `struct dcmi_hbm_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MemoryInformation {
    size_megabytes: u64,
    frequency_megahertz: u32,
    used_megabytes: u64,
    temperature_celsius: i32,
    bandwidth_percent: u32,
}

/// `struct dcmi_proc_mem_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessMemory {
    process_id: i32,
    used_bytes: u64,
}

static IS_ASKING: AtomicBool = AtomicBool::new(false);
static WAS_LOADED: AtomicBool = AtomicBool::new(false);
static LATEST_NS: AtomicU64 = AtomicU64::new(0);

/// Writes down how full the card of a device is, if somebody can tell.
#[cold]
pub fn sample(device: Device) {
    let Device::Npu(wanted) = device else { return };
    let now = thread::stamp();
    if now.saturating_sub(LATEST_NS.load(Ordering::Relaxed)) < SMALLEST_INTERVAL_NS {
        return;
    }
    // One at a time, and never from within itself.
    if IS_ASKING.swap(true, Ordering::Acquire) {
        return;
    }
    LATEST_NS.store(now, Ordering::Relaxed);
    if let Some((used_bytes, process_bytes, total_bytes)) = errno::preserved(|| ask(i64::from(wanted))) {
        thread::record_now(&Fact::CardSample { device, used_bytes, process_bytes, total_bytes });
    }
    IS_ASKING.store(false, Ordering::Release);
}

fn load() {
    if INIT.address().is_none() && !WAS_LOADED.swap(true, Ordering::Relaxed) {
        // SAFETY: a valid name; the library stays loaded.
        unsafe { libc::dlopen(c"libdcmi.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    }
}

/// Bytes in use on a card, those of this process, and all of the card's.
fn ask(wanted: i64) -> Option<(u64, u64, u64)> {
    load();
    let [init, card_list, devices_in_card, logic_id, memory, processes] =
        [&INIT, &CARD_LIST, &DEVICES_IN_CARD, &LOGIC_ID, &MEMORY, &PROCESSES].map(|function| function.address());
    // SAFETY: functions of these names have these signatures.
    let (init, card_list, devices_in_card, logic_id, memory) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Init>(init?),
            std::mem::transmute::<*mut c_void, CardList>(card_list?),
            std::mem::transmute::<*mut c_void, DevicesInCard>(devices_in_card?),
            std::mem::transmute::<*mut c_void, LogicId>(logic_id?),
            std::mem::transmute::<*mut c_void, Memory>(memory?),
        )
    };
    let mut cards = [0; MOST_CARDS];
    let mut card_count = 0;
    // SAFETY: as many entries as are said; repeated initialisation is harmless.
    if unsafe { init() != 0 || card_list(&raw mut card_count, cards.as_mut_ptr(), MOST_CARDS as c_int) != 0 } {
        return None;
    }
    for &card in cards.iter().take(usize::try_from(card_count).unwrap_or(0)) {
        let mut devices = 0;
        // SAFETY: writes one number.
        if unsafe { devices_in_card(card, &raw mut devices) } != 0 {
            continue;
        }
        for device in 0..devices {
            let mut id = -1;
            // SAFETY: writes one number.
            if unsafe { logic_id(&raw mut id, card, device) } != 0 || i64::from(id) != wanted {
                continue;
            }
            let mut information = MemoryInformation::default();
            // SAFETY: fills one structure of this layout.
            if unsafe { memory(card, device, &raw mut information) } != 0 {
                return None;
            }
            return Some((
                information.used_megabytes.saturating_mul(BYTES_PER_MEGABYTE),
                processes.map_or(0, |processes| own_bytes(processes, card, device)),
                information.size_megabytes.saturating_mul(BYTES_PER_MEGABYTE),
            ));
        }
    }
    None
}

/// Bytes of this process on a card; zero if nobody says.
fn own_bytes(processes: *mut c_void, card: c_int, device: c_int) -> u64 {
    // SAFETY: the function of this name has this signature.
    let processes = unsafe { std::mem::transmute::<*mut c_void, Processes>(processes) };
    let mut list = [ProcessMemory::default(); MOST_PROCESSES];
    let mut count = MOST_PROCESSES as c_int;
    // SAFETY: room for as many entries as the interface ever fills.
    if unsafe { processes(card, device, list.as_mut_ptr(), &raw mut count) } != 0 {
        return 0;
    }
    let own = std::process::id();
    let listed = list.iter().take(usize::try_from(count).unwrap_or(0));
    listed.filter(|entry| u32::try_from(entry.process_id) == Ok(own)).map(|entry| entry.used_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_layout_of_device_management() {
        assert_eq!(size_of::<MemoryInformation>(), 32);
        assert_eq!(std::mem::offset_of!(MemoryInformation, used_megabytes), 16);
        assert_eq!(size_of::<ProcessMemory>(), 16);
        assert_eq!(std::mem::offset_of!(ProcessMemory, used_bytes), 8);
    }
}
