//! Layout of a log file. Little endian, in lines of 64 bytes.
//!
//! Line 0 is the header: magic `STANDIN1` at 0, process id (u32) at 8, size of a line (u32, 64) at 12, number of
//! lines reserved so far including the header (u64, atomic) at 16, records that found no room (u64) at 24, name of
//! the library (24 bytes, zero padded) at 32.
//!
//! Every further line is a record, the continuation of a record's text, or was reserved by a call that never
//! completed (all zero, or without a kind). A text takes as many continuation lines as it needs: the marker
//! `0xFFFFFFFF` at 0 and 60 bytes of text at 4. The kind of a record is stored last, with release order.

/// Size of a line.
pub const LINE_BYTES: usize = 64;
/// First eight bytes of a file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"STANDIN1");
/// First four bytes of a continuation line.
pub const CONTINUATION: u32 = u32::MAX;
/// Bytes of text in a continuation line.
pub const CONTINUATION_BYTES: usize = LINE_BYTES - 4;
/// Value of [`Record::text_bytes`] for a call whose message was a null pointer.
pub const NO_TEXT: u32 = u32::MAX;
/// Value of [`Record::device`] for memory of the host.
pub const HOST_DEVICE: i32 = -1;

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Kind {
    /// `halMemAlloc`: address, size, flags as given.
    HalAlloc = 1,
    /// `halMemFree`: address; size and device of the block.
    HalFree = 2,
    /// `halMemCreate`: address is the handle; flags are normalised to those of `halMemAlloc`.
    HalCreate = 3,
    /// `halMemRelease`: address is the handle; size and device of the block.
    HalRelease = 4,
    /// `halMemMap`: address, size, flags is the handle.
    HalMap = 5,
    /// `halMemUnmap`: address, size, flags is the handle.
    HalUnmap = 6,
    /// `halMemAddressReserve`: address, size.
    HalReserve = 7,
    /// `halMemAddressFree`: address, size.
    HalAddressFree = 8,
    /// `aclrtHostRegister` (flags 0) or `aclrtHostRegisterV2` (flags as given): address, size.
    HostRegister = 9,
    /// `aclrtHostUnregister`: address.
    HostUnregister = 10,
    /// `mstxMarkA`: text; flags is the stream.
    Mark = 16,
    /// `mstxRangeStartA`: text; address is the returned id; flags is the stream.
    RangeStart = 17,
    /// `mstxRangeEnd`: address is the id.
    RangeEnd = 18,
    /// `mstxDomainCreateA`: text is the name; address is the returned handle.
    DomainCreate = 19,
    /// `mstxDomainDestroy`: flags is the domain.
    DomainDestroy = 20,
    /// `mstxDomainMarkA`: text; flags is the domain.
    DomainMark = 21,
    /// `mstxDomainRangeStartA`: text; address is the returned id; flags is the domain.
    DomainRangeStart = 22,
    /// `mstxDomainRangeEnd`: address is the id; flags is the domain.
    DomainRangeEnd = 23,
    /// `mstxMemHeapRegister`: address, size, device; flags is the domain.
    HeapRegister = 24,
    /// `mstxMemHeapUnregister`: address is the heap handle; flags is the domain.
    HeapUnregister = 25,
    /// One region of `mstxMemRegionsRegister`: address, size, device; flags is the domain.
    RegionRegister = 26,
    /// One reference of `mstxMemRegionsUnregister`: address is the pointer (result 0) or handle (result 1); flags
    /// is the domain.
    RegionUnregister = 27,
    /// `aclInit`.
    AclInit = 32,
    /// `aclFinalize`.
    AclFinalize = 33,
    /// `aclrtSetDevice`: device.
    SetDevice = 34,
    /// An operator was queued: text is its name; address is the stream.
    Operator = 40,
    /// A kernel was launched: text is its name; address is the stream id in the high half, the task number in the low
    /// one; size is the counter of the card; flags is the type of the task.
    KernelLaunch = 48,
    /// A kernel started on its card: as above; result says what became of the record in the channel of the card (0 it
    /// is in the ring, 1 the ring was full, 2 nobody had started the channel).
    KernelStart = 49,
    /// A kernel was done: as above.
    KernelEnd = 50,
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        const ALL: [Kind; 29] = [
            Kind::HalAlloc,
            Kind::HalFree,
            Kind::HalCreate,
            Kind::HalRelease,
            Kind::HalMap,
            Kind::HalUnmap,
            Kind::HalReserve,
            Kind::HalAddressFree,
            Kind::HostRegister,
            Kind::HostUnregister,
            Kind::Mark,
            Kind::RangeStart,
            Kind::RangeEnd,
            Kind::DomainCreate,
            Kind::DomainDestroy,
            Kind::DomainMark,
            Kind::DomainRangeStart,
            Kind::DomainRangeEnd,
            Kind::HeapRegister,
            Kind::HeapUnregister,
            Kind::RegionRegister,
            Kind::RegionUnregister,
            Kind::AclInit,
            Kind::AclFinalize,
            Kind::SetDevice,
            Kind::Operator,
            Kind::KernelLaunch,
            Kind::KernelStart,
            Kind::KernelEnd,
        ];
        ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// A call as the device saw it. On disk: kind at 0, `text_bytes` at 4, sequence at 8, `time_ns` at 16, address at
/// 24, size at 32, flags at 40, device at 48, result at 52, thread at 56, zero at 60.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What was called.
    pub kind: Kind,
    /// Length of the message in bytes, or [`NO_TEXT`].
    pub text_bytes: u32,
    /// Position among all calls of all processes and libraries that log into the same directory.
    pub sequence: u64,
    /// `CLOCK_MONOTONIC` inside the call.
    pub time_ns: u64,
    /// Address, handle or range id, see [`Kind`].
    pub address: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Flags, domain or stream, see [`Kind`].
    pub flags: u64,
    /// Physical device, or [`HOST_DEVICE`].
    pub device: i32,
    /// What the call returned (0: success).
    pub result: i32,
    /// Kernel thread id of the caller.
    pub thread: u32,
}

impl Record {
    /// Module id from the allocation flags.
    #[must_use]
    pub fn module(&self) -> u8 {
        (self.flags >> 56) as u8
    }

    /// Page type from the allocation flags: 0 normal, 1 huge, 2 giant.
    #[must_use]
    pub fn page_type(&self) -> u8 {
        if self.flags >> 31 & 1 == 1 { 2 } else { (self.flags >> 17 & 1) as u8 }
    }

    /// The line as stored, with the kind left out.
    pub(crate) fn to_line(self) -> [u8; LINE_BYTES] {
        let mut line = [0; LINE_BYTES];
        line[4..8].copy_from_slice(&self.text_bytes.to_le_bytes());
        for (at, value) in
            [(8, self.sequence), (16, self.time_ns), (24, self.address), (32, self.size_bytes), (40, self.flags)]
        {
            line[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        line[48..52].copy_from_slice(&self.device.to_le_bytes());
        line[52..56].copy_from_slice(&self.result.to_le_bytes());
        line[56..60].copy_from_slice(&self.thread.to_le_bytes());
        line
    }

    /// The record in a line, unless it is a continuation or was never completed.
    pub(crate) fn from_line(line: &[u8; LINE_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        Some(Self {
            kind: Kind::from_number(u32_at(0))?,
            text_bytes: u32_at(4),
            sequence: u64_at(8),
            time_ns: u64_at(16),
            address: u64_at(24),
            size_bytes: u64_at(32),
            flags: u64_at(40),
            device: u32_at(48).cast_signed(),
            result: u32_at(52).cast_signed(),
            thread: u32_at(56),
        })
    }
}
