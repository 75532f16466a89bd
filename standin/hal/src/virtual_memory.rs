//! Physical memory without an address (`halMemCreate`), addresses without memory (`halMemAddressReserve`) and the
//! mappings between them: what expandable segments are made of. Physical memory of a device is a sparse memory
//! file, so one piece can be mapped several times.

use crate::address::AddressSpace;
use crate::allocation::logged_device;
use crate::error::{DriverError, code};
use crate::flags::{HUGE_PAGE_BYTES, MemoryProperties, NORMAL_PAGE_BYTES, Place, place_of_flags};
use crate::state::{Call, lock, state};
use standin_truth::Kind;
use standin_truth::format::HOST_DEVICE;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// Where reserved addresses start.
const RESERVED_BASE: u64 = 0x1000_0000_0000;
const RESERVED_END: u64 = 0x11ff_0000_0000;
/// Largest memory file.
const FILE_BYTES: u64 = 1 << 46;

/// A piece of physical memory.
#[derive(Clone, Copy, Debug)]
struct Physical {
    size_bytes: u64,
    flags: u64,
    place: Place,
    offset: u64,
    mappings: u32,
    released: bool,
}

/// A mapping of physical memory at a reserved address.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    size_bytes: u64,
    handle: u64,
}

/// The memory file of one device.
struct MemoryFile {
    descriptor: i32,
    offsets: AddressSpace,
}

/// All physical memory, reservations and mappings of this process.
pub struct VirtualMemory {
    physical: HashMap<u64, Physical>,
    next_handle: u64,
    free_handles: Vec<u64>,
    reserved: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    files: HashMap<Place, MemoryFile>,
    addresses: AddressSpace,
}

impl Default for VirtualMemory {
    fn default() -> Self {
        Self {
            physical: HashMap::new(),
            next_handle: 0x5a00_0000_1000,
            free_handles: Vec::new(),
            reserved: BTreeMap::new(),
            mappings: BTreeMap::new(),
            files: HashMap::new(),
            addresses: AddressSpace::new(RESERVED_BASE, RESERVED_END),
        }
    }
}

impl VirtualMemory {
    fn file(&mut self, place: Place) -> Result<&mut MemoryFile, DriverError> {
        match self.files.entry(place) {
            Entry::Occupied(file) => Ok(file.into_mut()),
            Entry::Vacant(place) => {
                let descriptor = open_memory_file()?;
                Ok(place.insert(MemoryFile { descriptor, offsets: AddressSpace::new(0, FILE_BYTES) }))
            }
        }
    }

    /// A handle that looks like the driver's (a pointer) and is reused like one.
    fn new_handle(&mut self) -> u64 {
        self.free_handles.pop().unwrap_or_else(|| {
            self.next_handle += 64;
            self.next_handle
        })
    }

    /// Returns memory to the card once it is neither owned nor mapped.
    fn drop_if_unused(&mut self, handle: u64) {
        let Some(physical) = self.physical.get(&handle).copied() else { return };
        if !physical.released || physical.mappings > 0 {
            return;
        }
        self.physical.remove(&handle);
        self.free_handles.push(handle);
        if let Place::Device(device) = physical.place {
            state().cards.give_back(device, physical.size_bytes);
        }
        if let Some(file) = self.files.get_mut(&physical.place) {
            // SAFETY: frees pages of our own memory file that nothing maps any more.
            unsafe {
                libc::fallocate(
                    file.descriptor,
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    physical.offset as libc::off_t,
                    physical.size_bytes as libc::off_t,
                );
            }
            file.offsets.give_back(physical.offset, physical.size_bytes, HUGE_PAGE_BYTES);
        }
    }

    /// Whether a reservation contains all of `address..address + size_bytes`.
    fn is_reserved(&self, address: u64, size_bytes: u64) -> bool {
        self.reserved
            .range(..=address)
            .next_back()
            .is_some_and(|(start, length)| address.checked_add(size_bytes).is_some_and(|end| end <= start + length))
    }

    fn is_mapped(&self, address: u64, size_bytes: u64) -> bool {
        let before = self.mappings.range(..address + size_bytes).next_back();
        before.is_some_and(|(start, mapping)| start + mapping.size_bytes > address)
    }
}

fn open_memory_file() -> Result<i32, DriverError> {
    // SAFETY: creates an anonymous file and makes it long; both results are checked.
    unsafe {
        // glibc has a function for it from 2.27 on.
        let name = c"standin-device-memory".as_ptr();
        let descriptor = libc::syscall(libc::SYS_memfd_create, name, libc::MFD_CLOEXEC) as i32;
        if descriptor < 0 || libc::ftruncate(descriptor, FILE_BYTES as libc::off_t) != 0 {
            return Err(DriverError::Inner);
        }
        Ok(descriptor)
    }
}

/// `halMemCreate`: takes physical memory and returns its handle.
pub fn create(size_bytes: u64, properties: &MemoryProperties) -> Result<u64, DriverError> {
    let state = state();
    let flags = properties.as_flags();
    let mut memory = lock(&state.virtual_memory);
    let result = place_of_flags(flags).and_then(|place| {
        if size_bytes == 0 {
            return Err(DriverError::InvalidValue);
        }
        if let Place::Device(device) = place {
            if device >= state.cards.device_count() {
                return Err(DriverError::InvalidDevice);
            }
            if !state.cards.take(device, size_bytes) {
                return Err(DriverError::OutOfMemory);
            }
        }
        let offset = memory
            .file(place)
            .and_then(|file| file.offsets.take(size_bytes, HUGE_PAGE_BYTES).ok_or(DriverError::OutOfMemory));
        let offset = offset.inspect_err(|_| {
            if let Place::Device(device) = place {
                state.cards.give_back(device, size_bytes);
            }
        })?;
        let handle = memory.new_handle();
        let physical = Physical { size_bytes, flags, place, offset, mappings: 0, released: false };
        memory.physical.insert(handle, physical);
        Ok(handle)
    });
    let stamp = state.stamp();
    drop(memory);
    state.log(&Call {
        kind: Kind::HalCreate,
        stamp,
        address: result.unwrap_or(0),
        size_bytes,
        flags,
        device: place_of_flags(flags).map_or(HOST_DEVICE, logged_device),
        result: result.map_or_else(|error| error as i32, |_| 0),
    });
    result
}

/// `halMemRelease`: gives up a handle; memory that is still mapped stays until it is unmapped.
pub fn release(handle: u64) -> Result<(), DriverError> {
    let state = state();
    let mut memory = lock(&state.virtual_memory);
    let physical = memory.physical.get_mut(&handle).filter(|physical| !physical.released).map(|physical| {
        physical.released = true;
        *physical
    });
    memory.drop_if_unused(handle);
    let stamp = state.stamp();
    drop(memory);
    let result = physical.map(drop).ok_or(DriverError::InvalidHandle);
    state.log(&Call {
        kind: Kind::HalRelease,
        stamp,
        address: handle,
        size_bytes: physical.map_or(0, |physical| physical.size_bytes),
        flags: physical.map_or(0, |physical| physical.flags),
        device: physical.map_or(HOST_DEVICE, |physical| logged_device(physical.place)),
        result: code(result),
    });
    result
}

/// `halMemAddressReserve`: addresses without memory; `hint` is used when it is free.
pub fn reserve(size_bytes: u64, alignment: u64, hint: u64) -> Result<u64, DriverError> {
    let state = state();
    let mut memory = lock(&state.virtual_memory);
    let alignment = alignment.max(HUGE_PAGE_BYTES);
    let result = if size_bytes == 0 || !alignment.is_power_of_two() {
        Err(DriverError::InvalidValue)
    } else {
        reserve_range(&mut memory, size_bytes, alignment, hint)
    };
    let stamp = state.stamp();
    drop(memory);
    log_address(Kind::HalReserve, stamp, result.unwrap_or(0), size_bytes, 0, result.map(drop));
    result
}

fn reserve_range(memory: &mut VirtualMemory, size_bytes: u64, alignment: u64, hint: u64) -> Result<u64, DriverError> {
    let address = memory.addresses.take(size_bytes, alignment).ok_or(DriverError::OutOfMemory)?;
    let usable_hint = Some(hint).filter(|hint| *hint != 0 && hint.is_multiple_of(NORMAL_PAGE_BYTES));
    for wanted in usable_hint.into_iter().chain([address]) {
        // SAFETY: reserves addresses only where nothing is mapped; the result is checked.
        let mapped = unsafe {
            libc::mmap(
                wanted as *mut _,
                size_bytes as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if mapped != libc::MAP_FAILED {
            memory.reserved.insert(mapped as u64, size_bytes);
            return Ok(mapped as u64);
        }
    }
    Err(DriverError::OutOfMemory)
}

/// `halMemAddressFree`: gives up a reservation without mappings in it.
pub fn free_address(address: u64) -> Result<(), DriverError> {
    let state = state();
    let mut memory = lock(&state.virtual_memory);
    let size_bytes = memory.reserved.get(&address).copied();
    let result = match size_bytes {
        Some(size_bytes) if !memory.is_mapped(address, size_bytes) => {
            memory.reserved.remove(&address);
            // SAFETY: the range was mapped by `reserve_range` and nothing is mapped into it.
            unsafe { libc::munmap(address as *mut _, size_bytes as usize) };
            if (RESERVED_BASE..RESERVED_END).contains(&address) {
                memory.addresses.give_back(address, size_bytes, HUGE_PAGE_BYTES);
            }
            Ok(())
        }
        _ => Err(DriverError::InvalidValue),
    };
    let stamp = state.stamp();
    drop(memory);
    log_address(Kind::HalAddressFree, stamp, address, size_bytes.unwrap_or(0), 0, result);
    result
}

/// `halMemMap`: puts physical memory at a reserved address.
pub fn map(address: u64, size_bytes: u64, offset: u64, handle: u64) -> Result<(), DriverError> {
    let state = state();
    let mut memory = lock(&state.virtual_memory);
    let result = map_physical(&mut memory, address, size_bytes, offset, handle);
    let stamp = state.stamp();
    drop(memory);
    log_address(Kind::HalMap, stamp, address, size_bytes, handle, result);
    result
}

fn map_physical(
    memory: &mut VirtualMemory,
    address: u64,
    size_bytes: u64,
    offset: u64,
    handle: u64,
) -> Result<(), DriverError> {
    let physical = memory.physical.get(&handle).copied().ok_or(DriverError::InvalidHandle)?;
    let inside = offset.checked_add(size_bytes).is_some_and(|end| end <= physical.size_bytes);
    let aligned = address.is_multiple_of(NORMAL_PAGE_BYTES) && offset.is_multiple_of(NORMAL_PAGE_BYTES);
    if size_bytes == 0 || !inside || !aligned || physical.released {
        return Err(DriverError::InvalidValue);
    }
    if !memory.is_reserved(address, size_bytes) || memory.is_mapped(address, size_bytes) {
        return Err(DriverError::InvalidValue);
    }
    let descriptor = memory.file(physical.place)?.descriptor;
    // SAFETY: replaces part of a reservation of ours, which nothing else is mapped into, by our memory file.
    let mapped = unsafe {
        libc::mmap(
            address as *mut _,
            size_bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
            descriptor,
            (physical.offset + offset) as libc::off_t,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(DriverError::Inner);
    }
    memory.mappings.insert(address, Mapping { size_bytes, handle });
    if let Some(physical) = memory.physical.get_mut(&handle) {
        physical.mappings += 1;
    }
    Ok(())
}

/// `halMemUnmap`: takes a whole mapping away from its address.
pub fn unmap(address: u64) -> Result<(), DriverError> {
    let state = state();
    let mut memory = lock(&state.virtual_memory);
    let mapping = memory.mappings.remove(&address);
    if let Some(mapping) = mapping {
        // SAFETY: turns the mapping back into reserved addresses without memory.
        unsafe {
            libc::mmap(
                address as *mut _,
                mapping.size_bytes as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            );
        }
        if let Some(physical) = memory.physical.get_mut(&mapping.handle) {
            physical.mappings -= 1;
        }
        memory.drop_if_unused(mapping.handle);
    }
    let stamp = state.stamp();
    drop(memory);
    let result = mapping.map(drop).ok_or(DriverError::InvalidValue);
    let (size_bytes, handle) = mapping.map_or((0, 0), |mapping| (mapping.size_bytes, mapping.handle));
    log_address(Kind::HalUnmap, stamp, address, size_bytes, handle, result);
    result
}

fn log_address(
    kind: Kind,
    stamp: standin_truth::Stamp,
    address: u64,
    size_bytes: u64,
    handle: u64,
    result: Result<(), DriverError>,
) {
    let call = Call { kind, stamp, address, size_bytes, flags: handle, device: HOST_DEVICE, result: code(result) };
    state().log(&call);
}
