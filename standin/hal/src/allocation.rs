//! `halMemAlloc` and `halMemFree`: blocks in large mappings that look like the address ranges of a card.

use crate::address::AddressSpace;
use crate::error::DriverError;
use crate::flags::{Place, page_bytes_of_flags, place_of_flags};
use crate::state::{Call, lock, state};
use standin_support::size_from_environment;
use standin_truth::Kind;
use standin_truth::format::HOST_DEVICE;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Where the addresses of device 0 start; every further device follows at `RANGE_BYTES`, however much of that is mapped.
const DEVICE_BASE: u64 = 0x12c0_4120_0000;
/// Where pinned host memory starts.
const HOST_BASE: u64 = 0x1200_0000_0000;
/// Address space of one device.
const RANGE_BYTES: u64 = 1 << 40;

/// A block handed out.
#[derive(Clone, Copy, Debug)]
struct Block {
    size_bytes: u64,
    flags: u64,
    place: Place,
}

/// All blocks of this process.
#[derive(Default)]
pub struct Allocations {
    blocks: HashMap<u64, Block>,
    spaces: HashMap<u32, AddressSpace>,
}

/// Key of the host's address range among those of the devices.
const HOST_KEY: u32 = u32::MAX;

impl Allocations {
    fn space(&mut self, place: Place) -> Option<&mut AddressSpace> {
        let (key, base) = match place {
            Place::Device(device) => (device, DEVICE_BASE + u64::from(device) * RANGE_BYTES),
            Place::Host => (HOST_KEY, HOST_BASE),
        };
        match self.spaces.entry(key) {
            Entry::Occupied(space) => Some(space.into_mut()),
            Entry::Vacant(place) => {
                // Emulators of processors take seconds to map as much as there is by default.
                let length = size_from_environment("STANDIN_ADDRESS_BYTES", RANGE_BYTES).min(RANGE_BYTES);
                let start = map_range(base, length as usize)?;
                Some(place.insert(AddressSpace::new(start, start + length)))
            }
        }
    }
}

/// Maps the address range of a device: backed page by page when touched.
fn map_range(base: u64, length: usize) -> Option<u64> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the fixed address is only used where nothing is mapped; results are checked.
    unsafe {
        let mut mapped = libc::mmap(base as *mut _, length, access, kind | libc::MAP_FIXED_NOREPLACE, -1, 0);
        if mapped == libc::MAP_FAILED {
            mapped = libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0);
        }
        if mapped == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(mapped, length, libc::MADV_DONTDUMP);
        Some(mapped as u64)
    }
}

/// The device number the log shows for a place.
pub fn logged_device(place: Place) -> i32 {
    match place {
        Place::Device(device) => device as i32,
        Place::Host => HOST_DEVICE,
    }
}

/// Allocates `size_bytes` as the flags say and logs the call.
pub fn allocate(size_bytes: u64, flags: u64) -> Result<u64, DriverError> {
    let state = state();
    let mut allocations = lock(&state.allocations);
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
        let space = allocations.space(place);
        let Some(address) = space.and_then(|space| space.take(size_bytes, page_bytes_of_flags(flags))) else {
            if let Place::Device(device) = place {
                state.cards.give_back(device, size_bytes);
            }
            return Err(DriverError::OutOfMemory);
        };
        allocations.blocks.insert(address, Block { size_bytes, flags, place });
        Ok(address)
    });
    let stamp = state.stamp();
    drop(allocations);
    state.log(&Call {
        kind: Kind::HalAlloc,
        stamp,
        address: result.unwrap_or(0),
        size_bytes,
        flags,
        device: place_of_flags(flags).map_or((flags & 0x3FF) as i32, logged_device),
        result: result.map_or_else(|error| error as i32, |_| 0),
    });
    result
}

/// Frees the block at `address` and logs the call.
pub fn free(address: u64) -> Result<(), DriverError> {
    let state = state();
    let mut allocations = lock(&state.allocations);
    let block = allocations.blocks.remove(&address);
    if let Some(Block { size_bytes, place: Place::Device(device), .. }) = block {
        state.cards.give_back(device, size_bytes);
    }
    let stamp = state.stamp();
    drop(allocations);
    let result = block.map(drop).ok_or(DriverError::InvalidValue);
    state.log(&Call {
        kind: Kind::HalFree,
        stamp,
        address,
        size_bytes: block.map_or(0, |block| block.size_bytes),
        flags: block.map_or(0, |block| block.flags),
        device: block.map_or(HOST_DEVICE, |block| logged_device(block.place)),
        result: crate::error::code(result),
    });
    if let Some(block) = block {
        // SAFETY: the block is ours and no longer in use; its range lies inside a mapping that is never unmapped.
        unsafe { libc::madvise(address as *mut _, block.size_bytes as usize, libc::MADV_DONTNEED) };
        let mut allocations = lock(&state.allocations);
        if let Some(space) = allocations.space(block.place) {
            space.give_back(address, block.size_bytes, page_bytes_of_flags(block.flags));
        }
    }
    result
}

/// Size of the block at `address`, and its place.
pub fn block_at(address: u64) -> Option<(u64, Place)> {
    lock(&state().allocations).blocks.get(&address).map(|block| (block.size_bytes, block.place))
}
