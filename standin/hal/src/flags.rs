//! Decodes allocation flags and physical-memory properties.

use crate::error::DriverError;

/// Where memory lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// On the card with this physical id.
    Device(u32),
    /// Pinned memory of the host.
    Host,
}

/// Size of the pages behind a block; decides the alignment of its address.
pub const NORMAL_PAGE_BYTES: u64 = 4 << 10;
/// See [`NORMAL_PAGE_BYTES`].
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// See [`NORMAL_PAGE_BYTES`].
pub const GIANT_PAGE_BYTES: u64 = 1 << 30;

const HUGE_PAGE_BIT: u64 = 1 << 17;
const GIANT_PAGE_BIT: u64 = 1 << 31;
const TYPE_SHIFT: u32 = 10;
const DEVICE_TYPE: u64 = 1;
const HOST_TYPE: u64 = 2;
const MODULE_SHIFT: u32 = 56;

/// Flags of `halMemAlloc`: device in bits 0 to 9, memory type in 10 to 13, huge page 17, giant page 31, module
/// 56 to 63.
pub fn place_of_flags(flags: u64) -> Result<Place, DriverError> {
    match flags >> TYPE_SHIFT & 0xF {
        0 | 1 | 3 => Ok(Place::Device((flags & 0x3FF) as u32)),
        HOST_TYPE => Ok(Place::Host),
        _ => Err(DriverError::InvalidMallocType),
    }
}

/// Page size that the flags ask for.
pub fn page_bytes_of_flags(flags: u64) -> u64 {
    if flags & GIANT_PAGE_BIT != 0 {
        GIANT_PAGE_BYTES
    } else if flags & HUGE_PAGE_BIT != 0 {
        HUGE_PAGE_BYTES
    } else {
        NORMAL_PAGE_BYTES
    }
}

/// `struct drv_mem_prop`: what `halMemCreate` is asked for.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MemoryProperties {
    /// 0 host, 1 device.
    pub side: u32,
    /// Physical device id.
    pub device: u32,
    /// Module id.
    pub module: u32,
    /// 0 normal, 1 huge, 2 giant.
    pub page_type: u32,
    /// Kind of memory (HBM, DDR, ...).
    pub memory_type: u32,
    /// Unused.
    pub reserve: u64,
}

impl MemoryProperties {
    /// The flags with which `halMemAlloc` would be asked for the same memory.
    pub fn as_flags(&self) -> u64 {
        let memory_type = if self.side == 0 { HOST_TYPE } else { DEVICE_TYPE };
        let page = match self.page_type {
            1 => HUGE_PAGE_BIT,
            2 => GIANT_PAGE_BIT,
            _ => 0,
        };
        u64::from(self.device & 0x3FF)
            | memory_type << TYPE_SHIFT
            | page
            | u64::from(self.module & 0xFF) << MODULE_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::{GIANT_PAGE_BYTES, HUGE_PAGE_BYTES, MemoryProperties, NORMAL_PAGE_BYTES, Place};
    use super::{page_bytes_of_flags, place_of_flags};
    use crate::error::DriverError;

    #[test]
    fn flags_name_device_kind_and_page() {
        assert_eq!(place_of_flags(5), Ok(Place::Device(5)));
        assert_eq!(place_of_flags(1 << 10 | 1023), Ok(Place::Device(1023)));
        assert_eq!(place_of_flags(2 << 10 | 7), Ok(Place::Host));
        assert_eq!(place_of_flags(3 << 10), Ok(Place::Device(0)));
        assert_eq!(place_of_flags(4 << 10), Err(DriverError::InvalidMallocType));
        assert_eq!(page_bytes_of_flags(0), NORMAL_PAGE_BYTES);
        assert_eq!(page_bytes_of_flags(1 << 17), HUGE_PAGE_BYTES);
        assert_eq!(page_bytes_of_flags(1 << 31), GIANT_PAGE_BYTES);
    }

    #[test]
    fn properties_become_the_flags_of_an_allocation() {
        let properties = MemoryProperties { side: 1, device: 3, module: 33, page_type: 1, ..Default::default() };
        let flags = properties.as_flags();
        assert_eq!(place_of_flags(flags), Ok(Place::Device(3)));
        assert_eq!(page_bytes_of_flags(flags), HUGE_PAGE_BYTES);
        assert_eq!(flags >> 56, 33);
        assert_eq!(place_of_flags(MemoryProperties::default().as_flags()), Ok(Place::Host));
        assert_eq!(std::mem::size_of::<MemoryProperties>(), 32);
    }
}
