//! The driver's device management library (DCMI), which `npu-smi` asks too: memory of whole cards and of the
//! processes on them. The launcher samples it while a job runs, the recorder asks when memory is refused.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

/// Where the library may be: wherever the loader looks, or where the driver installs it.
const LIBRARIES: [&CStr; 2] = [c"libdcmi.so", c"/usr/local/dcmi/libdcmi.so"];
const MOST_CARDS: usize = 32;
const MOST_PROCESSES: usize = 64;
const BYTES_PER_MEGABYTE: u64 = 1 << 20;

/// `struct dcmi_hbm_info`.
#[repr(C)]
struct HbmInformation {
    size_megabytes: u64,
    frequency_megahertz: u32,
    used_megabytes: u64,
    temperature_celsius: i32,
    bandwidth_percent: u32,
}

/// `struct dcmi_proc_mem_info`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProcessMemory {
    process_id: i32,
    used_bytes: u64,
}

type Initialize = unsafe extern "C" fn() -> c_int;
type ListCards = unsafe extern "C" fn(*mut c_int, *mut c_int, c_int) -> c_int;
type CountDevices = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
type LogicId = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type HbmMemory = unsafe extern "C" fn(c_int, c_int, *mut HbmInformation) -> c_int;
type ProcessesMemory = unsafe extern "C" fn(c_int, c_int, *mut ProcessMemory, *mut c_int) -> c_int;

/// Memory of one device at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Number of the device, as programs count them.
    pub device: u16,
    /// Bytes of the device.
    pub total_bytes: u64,
    /// Bytes in use by anybody.
    pub used_bytes: u64,
    /// Process ids and the bytes each holds.
    pub processes: Vec<(u32, u64)>,
}

impl DeviceMemory {
    /// Bytes that a process holds; zero if nobody says.
    pub fn bytes_of(&self, process_id: u32) -> u64 {
        self.processes.iter().filter(|(process, _)| *process == process_id).map(|(_, bytes)| bytes).sum()
    }
}

/// The library, ready to be asked.
pub struct DeviceManagement {
    hbm_memory: HbmMemory,
    processes_memory: ProcessesMemory,
    /// Card, device on the card, number of the device.
    devices: Vec<(c_int, c_int, u16)>,
}

impl DeviceManagement {
    /// Loads the library and finds all devices; nothing where there is no driver.
    pub fn load() -> Option<Self> {
        let library = LIBRARIES.iter().find_map(|name| {
            // SAFETY: plain library loading; the library stays loaded.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            (!library.is_null()).then_some(library)
        })?;
        // SAFETY: the types are those of the library's C interface.
        unsafe {
            let initialize: Initialize = symbol(library, c"dcmi_init")?;
            let list_cards: ListCards = symbol(library, c"dcmi_get_card_list")?;
            let count_devices: CountDevices = symbol(library, c"dcmi_get_device_num_in_card")?;
            let logic_id: LogicId = symbol(library, c"dcmi_get_device_logic_id")?;
            let hbm_memory: HbmMemory = symbol(library, c"dcmi_get_device_hbm_info")?;
            let processes_memory: ProcessesMemory = symbol(library, c"dcmi_get_npu_proc_mem_info")?;
            if initialize() != 0 {
                return None;
            }
            let devices = find_devices(list_cards, count_devices, logic_id)?;
            Some(Self { hbm_memory, processes_memory, devices })
        }
    }

    /// Asks all devices; those that do not answer are left out.
    pub fn memory(&self) -> Vec<DeviceMemory> {
        self.devices.iter().filter_map(|&place| self.ask(place)).collect()
    }

    /// Asks one device.
    pub fn memory_of(&self, device: u16) -> Option<DeviceMemory> {
        self.devices.iter().find(|(_, _, number)| *number == device).and_then(|&place| self.ask(place))
    }

    fn ask(&self, (card, device, number): (c_int, c_int, u16)) -> Option<DeviceMemory> {
        let mut information = MaybeUninit::<HbmInformation>::zeroed();
        let mut processes = [ProcessMemory { process_id: 0, used_bytes: 0 }; MOST_PROCESSES];
        let mut count: c_int = 0;
        // SAFETY: structures of the sizes that the C interface wants, all zero before and valid when all zero.
        let information = unsafe {
            if (self.hbm_memory)(card, device, information.as_mut_ptr()) != 0 {
                return None;
            }
            if (self.processes_memory)(card, device, processes.as_mut_ptr(), &raw mut count) != 0 {
                count = 0;
            }
            information.assume_init()
        };
        let listed = &processes[..usize::try_from(count).unwrap_or(0).min(MOST_PROCESSES)];
        Some(DeviceMemory {
            device: number,
            total_bytes: information.size_megabytes.saturating_mul(BYTES_PER_MEGABYTE),
            used_bytes: information.used_megabytes.saturating_mul(BYTES_PER_MEGABYTE),
            processes: listed.iter().map(|entry| (entry.process_id as u32, entry.used_bytes)).collect(),
        })
    }
}

/// A function of the library.
///
/// # Safety
/// `Function` must be the type of a C function pointer that fits the symbol.
unsafe fn symbol<Function>(library: *mut c_void, name: &CStr) -> Option<Function> {
    // SAFETY: plain lookup; the caller vouches for the type, and a function pointer has the size of an address.
    unsafe {
        let address = libc::dlsym(library, name.as_ptr());
        (!address.is_null()).then(|| std::mem::transmute_copy(&address))
    }
}

/// # Safety
/// The functions must be those of the library.
unsafe fn find_devices(
    list_cards: ListCards,
    count_devices: CountDevices,
    logic_id: LogicId,
) -> Option<Vec<(c_int, c_int, u16)>> {
    let mut cards: [c_int; MOST_CARDS] = [0; MOST_CARDS];
    let mut card_count: c_int = 0;
    // SAFETY: arrays and numbers that the library may write to.
    unsafe {
        if list_cards(&raw mut card_count, cards.as_mut_ptr(), MOST_CARDS as c_int) != 0 {
            return None;
        }
        let mut devices = Vec::new();
        for &card in &cards[..usize::try_from(card_count).unwrap_or(0).min(MOST_CARDS)] {
            let mut device_count: c_int = 0;
            if count_devices(card, &raw mut device_count) != 0 {
                continue;
            }
            for device in 0..device_count {
                let mut number: c_int = -1;
                if logic_id(&raw mut number, card, device) == 0
                    && let Ok(number) = u16::try_from(number)
                {
                    devices.push((card, device, number));
                }
            }
        }
        Some(devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_layout_of_device_management() {
        assert_eq!(size_of::<HbmInformation>(), 32);
        assert_eq!(std::mem::offset_of!(HbmInformation, used_megabytes), 16);
        assert_eq!(size_of::<ProcessMemory>(), 16);
        assert_eq!(std::mem::offset_of!(ProcessMemory, used_bytes), 8);
    }
}
