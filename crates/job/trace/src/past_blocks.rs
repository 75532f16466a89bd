//! The blocks that were alive at a moment of the past, with the records that tell about each.
//!
//! Found and replaced by the rules of the timeline: a free that names no device finds the block on any, and an
//! allocation where a block is already ends that one, whose free was lost or is yet to be written.

use std::collections::{BTreeMap, HashMap};

use msmemscope_event::{AddressSpace, BlockProperties, Device, Pool, StringId};

use crate::passing_blocks::Place;

/// Labels of a block that stay; no more of them can have an effect.
const MOST_LABELS: usize = 8;

/// What a block is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockKey {
    space: AddressSpace,
    device: Device,
    address: u64,
}

impl BlockKey {
    pub(crate) fn new(properties: &BlockProperties, address: u64) -> Self {
        Self { space: AddressSpace::of(properties), device: properties.device, address }
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }
}

/// Records about a block besides its allocation.
#[derive(Debug, Default)]
struct Attached {
    labels: Vec<(u32, StringId, Place)>,
    holder: Option<Place>,
    touch: Option<Place>,
}

/// A block.
#[derive(Debug)]
pub(crate) struct PastBlock {
    key: BlockKey,
    size_bytes: u64,
    /// Name under which it will be freed, zero if it has none.
    handle: (Pool, u64),
    place: Place,
    begin_ns: u64,
    regions: [Option<u32>; 4],
    attached: Option<Box<Attached>>,
    /// The allocation of the block that was where it is, and whose end was not seen.
    replaced: Option<Place>,
}

impl PastBlock {
    pub(crate) fn new(
        key: BlockKey,
        size_bytes: u64,
        handle: (Pool, u64),
        place: Place,
        begin_ns: u64,
        regions: [Option<u32>; 4],
    ) -> Self {
        Self { key, size_bytes, handle, place, begin_ns, regions, attached: None, replaced: None }
    }

    /// Its allocation.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The allocation of the block that was where it is, and whose end was not seen.
    pub(crate) fn replaced(&self) -> Option<Place> {
        self.replaced
    }

    /// When it was allocated.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// The innermost regions that it was allocated in.
    pub(crate) fn regions(&self) -> [Option<u32>; 4] {
        self.regions
    }

    /// Other records that are about it alone.
    pub(crate) fn attached(&self) -> impl Iterator<Item = Place> {
        let attached = self.attached.as_deref();
        let labels = attached.into_iter().flat_map(|attached| attached.labels.iter().map(|(_, _, place)| *place));
        let others = attached.into_iter().flat_map(|attached| [attached.holder, attached.touch]).flatten();
        labels.chain(others).chain(self.replaced)
    }

    /// Notes a label. False if the block has it already, or has as many as can matter.
    pub(crate) fn attach_label(&mut self, level: u32, label: StringId, place: Place) -> bool {
        let labels = &mut self.attached.get_or_insert_default().labels;
        let is_news = labels.len() < MOST_LABELS && !labels.iter().any(|(of, text, _)| (*of, *text) == (level, label));
        if is_news {
            labels.push((level, label, place));
        }
        is_news
    }

    /// Notes who holds it; gives what was known about that before.
    pub(crate) fn attach_holder(&mut self, place: Place) -> Option<Place> {
        self.attached.get_or_insert_default().holder.replace(place)
    }

    /// Notes that an operator touches it. False if one has already.
    pub(crate) fn attach_touch(&mut self, place: Place) -> bool {
        let touch = &mut self.attached.get_or_insert_default().touch;
        let is_first = touch.is_none();
        touch.get_or_insert(place);
        is_first
    }
}

/// The blocks that are alive.
#[derive(Debug)]
pub(crate) struct PastBlocks {
    live: HashMap<BlockKey, PastBlock>,
    by_handle: HashMap<(Pool, u64), BlockKey>,
    /// In the order of their addresses, if anybody looks for an address inside a block.
    sizes: Option<BTreeMap<BlockKey, u64>>,
    devices: Vec<Device>,
}

impl PastBlocks {
    pub(crate) fn new(finds_by_address: bool) -> Self {
        let sizes = finds_by_address.then(BTreeMap::new);
        Self { live: HashMap::new(), by_handle: HashMap::new(), sizes, devices: Vec::new() }
    }

    /// A block begins. Gives the records that nothing can refer to any more.
    ///
    /// The allocation of the block that was there before stays for now: its free may be on its way into the file.
    pub(crate) fn begin(&mut self, mut block: PastBlock) -> Vec<Place> {
        let mut forgotten = Vec::new();
        while let Some(before) = self.take_replaced(&block.key) {
            forgotten.extend(before.attached());
            forgotten.extend(block.replaced.replace(before.place));
        }
        if block.handle.1 != 0 {
            self.by_handle.insert(block.handle, block.key);
        }
        if let Some(sizes) = &mut self.sizes {
            sizes.insert(block.key, block.size_bytes);
        }
        if !self.devices.contains(&block.key.device) {
            self.devices.push(block.key.device);
        }
        self.live.insert(block.key, block);
        forgotten
    }

    /// The block that another one takes the place of. The driver frees host memory and memory of cards by address alone,
    /// so both cannot be at the same one.
    fn take_replaced(&mut self, key: &BlockKey) -> Option<PastBlock> {
        if let Some(block) = self.remove(key) {
            return Some(block);
        }
        if key.space != AddressSpace::DriverAlloc {
            return None;
        }
        let elsewhere = if key.device == Device::Host { Device::Unknown } else { Device::Host };
        self.end(BlockKey { device: elsewhere, ..*key })
    }

    /// A block is freed by its address. A device that nobody named matches any.
    pub(crate) fn end(&mut self, key: BlockKey) -> Option<PastBlock> {
        let mut found = self.live.contains_key(&key).then_some(key);
        if found.is_none() && key.device == Device::Unknown {
            let keys = self.devices.iter().map(|&device| BlockKey { device, ..key });
            found = keys.into_iter().find(|key| self.live.contains_key(key));
        }
        self.remove(&found?)
    }

    /// A block is freed by its handle.
    pub(crate) fn end_by_handle(&mut self, pool: Pool, handle: u64) -> Option<PastBlock> {
        let key = *self.by_handle.get(&(pool, handle))?;
        self.remove(&key)
    }

    fn remove(&mut self, key: &BlockKey) -> Option<PastBlock> {
        let block = self.live.remove(key)?;
        if block.handle.1 != 0 && self.by_handle.get(&block.handle) == Some(key) {
            self.by_handle.remove(&block.handle);
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
