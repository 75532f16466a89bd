//! What kind of memory a block is: its pool, place and driver attributes, packed into 32 bits.

use crate::Device;

/// Declares a `repr(u8)` enum that can be built from its code.
macro_rules! coded_enum {
    ($(#[$documentation:meta])* $name:ident { $($(#[$variant_documentation:meta])* $variant:ident = $code:literal,)+ } else $fallback:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_documentation])* $variant = $code,)+
        }

        impl $name {
            /// All values, in code order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The value with this code; codes of the future read as the fallback.
            #[inline]
            pub fn from_code(code: u64) -> Self {
                match code {
                    $($code => Self::$variant,)+
                    _ => Self::$fallback,
                }
            }
        }

        impl crate::Coded for $name {
            #[inline]
            fn code(self) -> u64 {
                self as u64
            }

            #[inline]
            fn from_code(code: u64) -> Self {
                $name::from_code(code)
            }
        }
    };
}
pub(crate) use coded_enum;

coded_enum! {
    /// Who manages a block.
    Pool {
        /// The driver (halMemAlloc, halMemCreate).
        Hal = 0,
        /// The caching allocator of torch_npu.
        PytorchCaching = 1,
        /// The operator workspace of torch_npu.
        PytorchWorkspace = 2,
        /// The MindSpore memory pool.
        Mindspore = 3,
        /// The Ascend Transformer Boost workspace.
        Atb = 4,
        /// Host memory registered with the device.
        HostPinned = 5,
        /// Host memory of CPU tensors.
        HostTensor = 6,
        /// A pool this version does not know.
        Unknown = 7,
    } else Unknown
}

impl Pool {
    /// The `Event Type` text of MALLOC and FREE rows.
    pub fn event_type(self) -> &'static str {
        match self {
            Pool::Hal => "HAL",
            Pool::PytorchCaching => "PTA",
            Pool::PytorchWorkspace => "PTA_WORKSPACE",
            Pool::Mindspore => "MINDSPORE",
            Pool::Atb => "ATB",
            Pool::HostPinned => "HOST_PINNED",
            Pool::HostTensor => "HOST",
            Pool::Unknown => "N/A",
        }
    }

    /// Name for people, as short as columns of tables need it.
    pub fn short_title(self) -> &'static str {
        match self {
            Pool::Hal => "driver",
            Pool::PytorchCaching => "PyTorch",
            Pool::PytorchWorkspace => "workspace",
            Pool::HostPinned => "pinned host",
            Pool::Unknown => "unknown",
            Pool::Mindspore | Pool::Atb | Pool::HostTensor => self.title(),
        }
    }

    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            Pool::Hal => "Driver (HAL)",
            Pool::PytorchCaching => "PyTorch caching",
            Pool::PytorchWorkspace => "PyTorch workspace",
            Pool::Mindspore => "MindSpore",
            Pool::Atb => "ATB",
            Pool::HostPinned => "Pinned host",
            Pool::HostTensor => "CPU tensors",
            Pool::Unknown => "Unknown",
        }
    }
}

coded_enum! {
    /// Virtual memory type of a driver allocation.
    MemoryType {
        /// Shared virtual memory.
        Svm = 0,
        /// Device memory.
        Device = 1,
        /// Host memory.
        Host = 2,
        /// Memory of the image and video preprocessor.
        Dvpp = 3,
        /// Anything else.
        Invalid = 4,
    } else Invalid
}

coded_enum! {
    /// Page size class of a driver allocation.
    PageType {
        /// 4 KiB pages.
        Normal = 0,
        /// 2 MiB pages.
        Huge = 1,
        /// 1 GiB pages.
        Giant = 2,
        /// A class this version does not know.
        Unknown = 3,
    } else Unknown
}

impl PageType {
    /// Text of the `page_type` attribute.
    pub fn name(self) -> &'static str {
        match self {
            PageType::Normal => "normal",
            PageType::Huge => "huge",
            PageType::Giant => "giant",
            PageType::Unknown => "unknown",
        }
    }
}

coded_enum! {
    /// The call that made a block.
    AllocationInterface {
        /// halMemAlloc.
        Alloc = 0,
        /// halMemCreate (physical memory, mapped later).
        Create = 1,
        /// aclrtHostRegister and its newer forms.
        HostRegister = 2,
        /// A message of a framework pool, or a framework tensor.
        Framework = 3,
    } else Framework
}

impl AllocationInterface {
    /// Text of the `alloc_type` attribute.
    pub fn name(self) -> &'static str {
        match self {
            AllocationInterface::Alloc => "alloc",
            AllocationInterface::Create => "create",
            AllocationInterface::HostRegister => "register",
            AllocationInterface::Framework => "framework",
        }
    }
}

/// Everything about a block that repeats from event to event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockProperties {
    /// Who manages it.
    pub pool: Pool,
    /// Where it lives.
    pub device: Device,
    /// Driver memory type.
    pub memory_type: MemoryType,
    /// Driver page class.
    pub page_type: PageType,
    /// The call that made it.
    pub interface: AllocationInterface,
    /// Driver module id (see [`crate::driver_module_name`]).
    pub module_id: u8,
}

impl BlockProperties {
    /// Properties of a framework pool block.
    #[inline]
    pub fn framework(pool: Pool, device: Device) -> Self {
        Self {
            pool,
            device,
            memory_type: MemoryType::Device,
            page_type: PageType::Normal,
            interface: AllocationInterface::Framework,
            module_id: 0,
        }
    }

    /// Decodes the flag word of halMemAlloc: device in bits 0-9, memory type in 10-13, huge page in
    /// 17, giant page in 31, module in 56-63. Host memory belongs to the host, not to the device.
    #[inline]
    pub fn from_driver_flag(flag: u64) -> Self {
        let memory_type = MemoryType::from_code((flag >> 10) & 0xf);
        let on_host = memory_type == MemoryType::Host;
        Self {
            pool: if on_host { Pool::HostPinned } else { Pool::Hal },
            device: if on_host { Device::Host } else { Device::Npu((flag & 0x3ff) as u16) },
            memory_type,
            page_type: if flag & (1 << 31) != 0 {
                PageType::Giant
            } else if flag & (1 << 17) != 0 {
                PageType::Huge
            } else {
                PageType::Normal
            },
            interface: AllocationInterface::Alloc,
            module_id: (flag >> 56) as u8,
        }
    }

    /// Packs the properties: device 12 bits, pool 4, memory type 3, page type 2, interface 2, module 8.
    #[inline]
    pub fn pack(self) -> u32 {
        self.device.code()
            | (self.pool as u32) << 12
            | (self.memory_type as u32) << 16
            | (self.page_type as u32) << 19
            | (self.interface as u32) << 21
            | u32::from(self.module_id) << 23
    }

    /// Inverse of [`BlockProperties::pack`].
    #[inline]
    pub fn unpack(packed: u32) -> Self {
        Self {
            device: Device::from_code(packed & 0xfff),
            pool: Pool::from_code(u64::from(packed >> 12 & 0xf)),
            memory_type: MemoryType::from_code(u64::from(packed >> 16 & 0x7)),
            page_type: PageType::from_code(u64::from(packed >> 19 & 0x3)),
            interface: AllocationInterface::from_code(u64::from(packed >> 21 & 0x3)),
            module_id: (packed >> 23) as u8,
        }
    }
}

/// Where an address means something: within a space and a device it names at most one live block. Driver memory on the
/// host and on a device share a space because a driver free does not say which of them it frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AddressSpace {
    /// Memory of the driver, by its first byte.
    DriverAlloc,
    /// Physical memory of the driver, by its handle.
    DriverCreate,
    /// Host memory made known to the driver.
    HostRegister,
    /// The caching allocator of torch_npu.
    PytorchCaching,
    /// The operator workspace of torch_npu.
    PytorchWorkspace,
    /// The MindSpore memory pool.
    Mindspore,
    /// The Ascend Transformer Boost workspace.
    Atb,
    /// Host memory of CPU tensors.
    HostTensor,
    /// That of a pool this version does not know.
    Unknown,
}

impl AddressSpace {
    /// The space of blocks of this kind.
    pub fn of(properties: &BlockProperties) -> Self {
        match (properties.pool, properties.interface) {
            (Pool::Hal | Pool::HostPinned, AllocationInterface::Create) => Self::DriverCreate,
            (Pool::HostPinned, AllocationInterface::HostRegister) => Self::HostRegister,
            (Pool::Hal | Pool::HostPinned, _) => Self::DriverAlloc,
            (Pool::PytorchCaching, _) => Self::PytorchCaching,
            (Pool::PytorchWorkspace, _) => Self::PytorchWorkspace,
            (Pool::Mindspore, _) => Self::Mindspore,
            (Pool::Atb, _) => Self::Atb,
            (Pool::HostTensor, _) => Self::HostTensor,
            (Pool::Unknown, _) => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_survives_packing() {
        for &pool in Pool::ALL {
            for device in [Device::Npu(0), Device::Npu(4093), Device::Host, Device::Unknown] {
                for &memory_type in MemoryType::ALL {
                    for &page_type in PageType::ALL {
                        for &interface in AllocationInterface::ALL {
                            for module_id in [0, 1, 75, 255] {
                                let properties =
                                    BlockProperties { pool, device, memory_type, page_type, interface, module_id };
                                assert_eq!(BlockProperties::unpack(properties.pack()), properties);
                                assert!(properties.pack() < u32::MAX);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn driver_flag_bits_are_decoded() {
        let flag = 3 | 1 << 10 | 1 << 17 | 7 << 56;
        let properties = BlockProperties::from_driver_flag(flag);
        assert_eq!(properties.device, Device::Npu(3));
        assert_eq!(properties.memory_type, MemoryType::Device);
        assert_eq!(properties.page_type, PageType::Huge);
        assert_eq!(properties.module_id, 7);
        assert_eq!(properties.pool, Pool::Hal);
        assert_eq!(BlockProperties::from_driver_flag(1 << 31).page_type, PageType::Giant);
        assert_eq!(BlockProperties::from_driver_flag(9 << 10).memory_type, MemoryType::Invalid);
        let host = BlockProperties::from_driver_flag(5 | 2 << 10);
        assert_eq!((host.pool, host.device), (Pool::HostPinned, Device::Host));
    }
}
