//! The blocks that were alive at a moment of the past, with the records that tell about each.
//!
//! Found and replaced by the rules of the timeline: a free that names no device finds the block on any, and an
//! allocation where a block is already ends that one, whose free was lost or is yet to be written.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};

use msmemscope_event::{AddressSpace, BlockProperties, Device, Pool, StringId};

use crate::quick_hash::QuickMap;
use crate::read_chunk::Place;

/// Labels of a block that stay; no more of them can have an effect.
const MOST_LABELS: usize = 8;

/// What a block is found by. There are millions of them, so it is kept small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockKey {
    space: AddressSpace,
    device: Device,
    address: u64,
}

impl Hash for BlockKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.address ^ u64::from(self.device.code()) << 48 ^ (self.space as u64) << 60);
    }
}

impl BlockKey {
    #[inline]
    pub(crate) fn new(properties: &BlockProperties, address: u64) -> Self {
        Self { space: AddressSpace::of(properties), device: properties.device, address }
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }
}

/// A region that a block was allocated in, by its number.
pub(crate) type RegionNumber = u32;

/// Stands where a block was allocated in no region.
pub(crate) const NO_REGION: RegionNumber = RegionNumber::MAX;

/// What few blocks have.
#[derive(Debug, Default)]
struct Details {
    labels: Vec<(u32, StringId, Place)>,
    holder: Option<Place>,
    touch: Option<Place>,
    /// Name under which it will be freed.
    handle: Option<(Pool, u64)>,
    /// The allocation of the block that was where it is, and whose end was not seen.
    replaced: Option<Place>,
}

/// A block.
#[derive(Debug)]
pub(crate) struct PastBlock {
    size_bytes: u64,
    begin_ns: u64,
    place: Place,
    regions: [RegionNumber; 4],
    details: Option<Box<Details>>,
}

impl PastBlock {
    /// A block that is allocated by the record at a place.
    #[inline]
    pub(crate) fn new(size_bytes: u64, place: Place, begin_ns: u64, regions: [RegionNumber; 4]) -> Self {
        Self { size_bytes, begin_ns, place, regions, details: None }
    }

    /// Its allocation.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The allocation of the block that was where it is, and whose end was not seen.
    pub(crate) fn replaced(&self) -> Option<Place> {
        self.details.as_deref()?.replaced
    }

    #[inline]
    fn handle(&self) -> Option<(Pool, u64)> {
        self.details.as_deref()?.handle
    }

    /// When it was allocated.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// The innermost regions that it was allocated in.
    pub(crate) fn regions(&self) -> [RegionNumber; 4] {
        self.regions
    }

    /// Other records that are about it alone.
    pub(crate) fn attached(&self) -> impl Iterator<Item = Place> {
        self.details.as_deref().into_iter().flat_map(|details| {
            let labels = details.labels.iter().map(|(_, _, place)| *place);
            labels.chain(details.holder).chain(details.touch).chain(details.replaced)
        })
    }

    /// Notes a label. False if the block has it already, or has as many as can matter.
    pub(crate) fn attach_label(&mut self, level: u32, label: StringId, place: Place) -> bool {
        let labels = &mut self.details.get_or_insert_default().labels;
        let is_news = labels.len() < MOST_LABELS && !labels.iter().any(|(of, text, _)| (*of, *text) == (level, label));
        if is_news {
            labels.push((level, label, place));
        }
        is_news
    }

    /// Notes who holds it; gives what was known about that before.
    pub(crate) fn attach_holder(&mut self, place: Place) -> Option<Place> {
        self.details.get_or_insert_default().holder.replace(place)
    }

    /// Notes that an operator touches it. False if one has already.
    pub(crate) fn attach_touch(&mut self, place: Place) -> bool {
        let touch = &mut self.details.get_or_insert_default().touch;
        let is_first = touch.is_none();
        touch.get_or_insert(place);
        is_first
    }
}

/// The blocks that are alive.
#[derive(Debug)]
pub(crate) struct PastBlocks {
    live: QuickMap<BlockKey, PastBlock>,
    by_handle: QuickMap<(Pool, u64), BlockKey>,
    /// In the order of their addresses, if anybody looks for an address inside a block.
    sizes: Option<BTreeMap<BlockKey, u64>>,
    /// Where any block was.
    devices: Vec<Device>,
}

impl PastBlocks {
    pub(crate) fn new(finds_by_address: bool) -> Self {
        let sizes = finds_by_address.then(BTreeMap::new);
        Self { live: QuickMap::default(), by_handle: QuickMap::default(), sizes, devices: Vec::new() }
    }

    /// A block begins, with the name it will be freed by if it has one. Gives the records that nothing can refer to any
    /// more.
    ///
    /// The allocation of the block that was there before stays for now: its free may be on its way into the file.
    #[inline]
    pub(crate) fn begin(&mut self, key: BlockKey, handle: Option<(Pool, u64)>, block: PastBlock) -> Vec<Place> {
        if !self.devices.contains(&key.device) {
            self.devices.push(key.device);
        }
        let mut replaced = Vec::new();
        while let Some(elsewhere) = self.end_elsewhere(&key) {
            replaced.push(elsewhere);
        }
        if let Some(sizes) = &mut self.sizes {
            sizes.insert(key, block.size_bytes);
        }
        let block = match self.live.entry(key) {
            Entry::Vacant(entry) => entry.insert(block),
            Entry::Occupied(entry) => {
                let live = entry.into_mut();
                replaced.push(std::mem::replace(live, block));
                live
            }
        };
        let mut forgotten = Vec::new();
        for before in replaced {
            forgotten.extend(before.attached());
            forgotten.extend(block.details.get_or_insert_default().replaced.replace(before.place));
            if let Some(handle) = before.handle()
                && self.by_handle.get(&handle) == Some(&key)
            {
                self.by_handle.remove(&handle);
            }
        }
        if let Some(handle) = handle {
            block.details.get_or_insert_default().handle = Some(handle);
            self.by_handle.insert(handle, key);
        }
        forgotten
    }

    /// Ends a block that another one takes the place of under another key: the driver frees host memory and memory of
    /// cards by address alone, so both cannot be at the same one.
    #[inline]
    fn end_elsewhere(&mut self, key: &BlockKey) -> Option<PastBlock> {
        if key.space != AddressSpace::DriverAlloc {
            return None;
        }
        let is_host = key.device == Device::Host;
        (0..self.devices.len()).find_map(|position| {
            let device = self.devices[position];
            if (device == Device::Host) == is_host { None } else { self.remove(&BlockKey { device, ..*key }) }
        })
    }

    /// A block is freed by its address. A device that nobody named matches any, first the one that nobody named either.
    #[inline]
    pub(crate) fn end(&mut self, key: BlockKey) -> Option<PastBlock> {
        let own = if self.devices.contains(&key.device) { self.remove(&key) } else { None };
        if own.is_some() || key.device != Device::Unknown {
            return own;
        }
        (0..self.devices.len()).find_map(|position| {
            let device = self.devices[position];
            self.remove(&BlockKey { device, ..key })
        })
    }

    /// A block is freed by its handle.
    pub(crate) fn end_by_handle(&mut self, pool: Pool, handle: u64) -> Option<PastBlock> {
        let key = *self.by_handle.get(&(pool, handle))?;
        self.remove(&key)
    }

    #[inline]
    fn remove(&mut self, key: &BlockKey) -> Option<PastBlock> {
        let block = self.live.remove(key)?;
        if let Some(handle) = block.handle()
            && self.by_handle.get(&handle) == Some(key)
        {
            self.by_handle.remove(&handle);
        }
        if let Some(sizes) = &mut self.sizes {
            sizes.remove(key);
        }
        Some(block)
    }

    /// The block of a framework that an address lies in: labels and holders are of these.
    pub(crate) fn holding_framework(&mut self, address: u64) -> Option<&mut PastBlock> {
        self.find_holding(&[AddressSpace::PytorchCaching, AddressSpace::Mindspore], Device::Unknown, address)
    }

    /// The block of any kind that an address lies in, frameworks first.
    pub(crate) fn holding(&mut self, device: Device, address: u64) -> Option<&mut PastBlock> {
        let spaces = [
            AddressSpace::PytorchCaching,
            AddressSpace::PytorchWorkspace,
            AddressSpace::Mindspore,
            AddressSpace::Atb,
            AddressSpace::DriverAlloc,
            AddressSpace::HostTensor,
        ];
        self.find_holding(&spaces, device, address)
    }

    fn find_holding(&mut self, spaces: &[AddressSpace], device: Device, address: u64) -> Option<&mut PastBlock> {
        let sizes = self.sizes.as_ref()?;
        let named = [device];
        let devices = if device == Device::Unknown { self.devices.as_slice() } else { &named };
        let found = spaces.iter().flat_map(|&space| devices.iter().map(move |&device| (space, device))).find_map(
            |(space, device)| {
                let first = BlockKey { space, device, address: 0 };
                let (key, size_bytes) = sizes.range(first..=BlockKey { address, ..first }).next_back()?;
                (address - key.address < (*size_bytes).max(1)).then_some(*key)
            },
        )?;
        self.live.get_mut(&found)
    }

    /// The blocks that are left.
    pub(crate) fn take_live(&mut self) -> impl Iterator<Item = PastBlock> + use<> {
        std::mem::take(&mut self.live).into_values()
    }
}
