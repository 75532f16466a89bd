//! Which blocks are alive, found by address, by handle, or by an address inside them.

use std::collections::BTreeMap;

use msmemscope_event::{AllocationInterface, BlockProperties, Device, Pool};
use rustc_hash::FxHashMap;

/// Within a space and a device an address names at most one live block. Driver memory on the host
/// and on a device share a space because a driver free does not say which of them it frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Space {
    DriverAlloc,
    DriverCreate,
    HostRegister,
    PytorchCaching,
    PytorchWorkspace,
    Mindspore,
    Atb,
    HostTensor,
    Unknown,
}

impl Space {
    pub(crate) fn of(properties: &BlockProperties) -> Self {
        match (properties.pool, properties.interface) {
            (Pool::Hal | Pool::HostPinned, AllocationInterface::Create) => Space::DriverCreate,
            (Pool::HostPinned, AllocationInterface::HostRegister) => Space::HostRegister,
            (Pool::Hal | Pool::HostPinned, _) => Space::DriverAlloc,
            (Pool::PytorchCaching, _) => Space::PytorchCaching,
            (Pool::PytorchWorkspace, _) => Space::PytorchWorkspace,
            (Pool::Mindspore, _) => Space::Mindspore,
            (Pool::Atb, _) => Space::Atb,
            (Pool::HostTensor, _) => Space::HostTensor,
            (Pool::Unknown, _) => Space::Unknown,
        }
    }
}

/// What a block is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockKey {
    realm: u32,
    address: u64,
}

impl BlockKey {
    pub(crate) fn new(space: Space, device: Device, address: u64) -> Self {
        Self { realm: realm(space, device), address }
    }

    pub(crate) fn address(self) -> u64 {
        self.address
    }
}

fn realm(space: Space, device: Device) -> u32 {
    (space as u32) << 12 | device.code()
}

/// A live block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) allocation_id: u64,
    pub(crate) size_bytes: u64,
    /// The device is the physical one.
    pub(crate) properties: BlockProperties,
    pub(crate) thread_id: u32,
    /// Time of its latest event, zero before the first.
    pub(crate) latest_ns: u64,
    /// Name under which it will be freed, zero if it has none.
    pub(crate) handle: u64,
    /// Allocated while recording was not on, and not promoted since.
    pub(crate) in_shadow: bool,
    /// Its MALLOC passed the filters, so its FREE must.
    pub(crate) shown: bool,
}

/// All live blocks.
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    blocks: FxHashMap<BlockKey, Block>,
    handles: FxHashMap<(Pool, u64), BlockKey>,
    /// Spaces and devices that ever held a block.
    realms: Vec<u32>,
    /// Blocks in address order; kept only once somebody has asked for an address inside a block.
    by_address: Option<BTreeMap<BlockKey, u64>>,
}

impl BlockTable {
    /// Adds a block; the place must be free.
    pub(crate) fn insert(&mut self, key: BlockKey, block: Block) {
        if !self.realms.contains(&key.realm) {
            self.realms.push(key.realm);
        }
        if block.handle != 0 {
            self.handles.insert((block.properties.pool, block.handle), key);
        }
        if let Some(by_address) = &mut self.by_address {
            by_address.insert(key, block.size_bytes);
        }
        self.blocks.insert(key, block);
    }

    /// Takes a block out.
    #[inline]
    pub(crate) fn remove(&mut self, key: BlockKey) -> Option<Block> {
        let block = self.blocks.remove(&key)?;
        let handle = (block.properties.pool, block.handle);
        if block.handle != 0 && self.handles.get(&handle) == Some(&key) {
            self.handles.remove(&handle);
        }
        if let Some(by_address) = &mut self.by_address {
            by_address.remove(&key);
        }
        Some(block)
    }

    pub(crate) fn get_mut(&mut self, key: BlockKey) -> Option<&mut Block> {
        self.blocks.get_mut(&key)
    }

    /// The block that begins at an address. A device that nobody named matches any.
    #[inline]
    pub(crate) fn find(&self, space: Space, device: Device, address: u64) -> Option<BlockKey> {
        let exact = BlockKey::new(space, device, address);
        if self.blocks.contains_key(&exact) {
            return Some(exact);
        }
        if device != Device::Unknown {
            return None;
        }
        self.realms_of(space).map(|realm| BlockKey { realm, address }).find(|key| self.blocks.contains_key(key))
    }

    /// The block that was given a handle.
    pub(crate) fn find_handle(&self, pool: Pool, handle: u64) -> Option<BlockKey> {
        self.handles.get(&(pool, handle)).copied()
    }

    /// The block that holds an address, at its begin or inside.
    pub(crate) fn find_holding(&mut self, space: Space, device: Device, address: u64) -> Option<BlockKey> {
        if let Some(key) = self.find(space, device, address) {
            return Some(key);
        }
        let by_address = self
            .by_address
            .get_or_insert_with(|| self.blocks.iter().map(|(key, block)| (*key, block.size_bytes)).collect());
        let holding = |realm: u32| {
            let (key, size_bytes) =
                by_address.range(BlockKey { realm, address: 0 }..=BlockKey { realm, address }).next_back()?;
            (address - key.address < *size_bytes).then_some(*key)
        };
        if device == Device::Unknown {
            let realms = self.realms.iter().copied().filter(|realm| realm >> 12 == space as u32);
            return realms.into_iter().find_map(holding);
        }
        holding(realm(space, device))
    }

    fn realms_of(&self, space: Space) -> impl Iterator<Item = u32> {
        self.realms.iter().copied().filter(move |realm| realm >> 12 == space as u32)
    }

    /// Keys of all blocks that `wanted` picks, in allocation order.
    pub(crate) fn keys_where(&self, wanted: impl Fn(&Block) -> bool) -> Vec<BlockKey> {
        let mut keys: Vec<(u64, BlockKey)> = self
            .blocks
            .iter()
            .filter(|(_, block)| wanted(block))
            .map(|(key, block)| (block.allocation_id, *key))
            .collect();
        keys.sort_unstable_by_key(|(allocation_id, _)| *allocation_id);
        keys.into_iter().map(|(_, key)| key).collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(allocation_id: u64, size_bytes: u64, handle: u64) -> Block {
        Block {
            allocation_id,
            size_bytes,
            properties: BlockProperties::framework(Pool::Atb, Device::Npu(0)),
            thread_id: 1,
            latest_ns: 0,
            handle,
            in_shadow: false,
            shown: true,
        }
    }

    #[test]
    fn addresses_inside_blocks_are_found_before_and_after_changes() {
        let mut table = BlockTable::default();
        let first = BlockKey::new(Space::Atb, Device::Npu(0), 1000);
        let second = BlockKey::new(Space::Atb, Device::Npu(1), 5000);
        table.insert(first, block(1, 100, 0));
        assert_eq!(table.find_holding(Space::Atb, Device::Npu(0), 1099), Some(first));
        assert_eq!(table.find_holding(Space::Atb, Device::Npu(0), 1100), None);
        assert_eq!(table.find_holding(Space::Atb, Device::Npu(0), 999), None);
        assert_eq!(table.find_holding(Space::Atb, Device::Npu(1), 1050), None);
        assert_eq!(table.find_holding(Space::Mindspore, Device::Npu(0), 1050), None);
        table.insert(second, block(2, 10, 0));
        assert_eq!(table.find_holding(Space::Atb, Device::Unknown, 5009), Some(second));
        table.remove(second);
        assert_eq!(table.find_holding(Space::Atb, Device::Unknown, 5009), None);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn handles_follow_the_block_that_got_them_last() {
        let mut table = BlockTable::default();
        let first = BlockKey::new(Space::Atb, Device::Npu(0), 1000);
        let second = BlockKey::new(Space::Atb, Device::Npu(0), 2000);
        table.insert(first, block(1, 10, 7));
        table.insert(second, block(2, 10, 7));
        assert_eq!(table.find_handle(Pool::Atb, 7), Some(second));
        table.remove(first);
        assert_eq!(table.find_handle(Pool::Atb, 7), Some(second));
        table.remove(second);
        assert_eq!(table.find_handle(Pool::Atb, 7), None);
    }

    #[test]
    fn driver_memory_on_host_and_device_share_a_space() {
        let device = BlockProperties::from_driver_flag(1 << 10);
        let host = BlockProperties::from_driver_flag(2 << 10);
        assert_eq!(Space::of(&device), Space::of(&host));
        let registered = BlockProperties { interface: AllocationInterface::HostRegister, ..host };
        assert_ne!(Space::of(&registered), Space::of(&host));
        let created = BlockProperties { interface: AllocationInterface::Create, ..device };
        assert_ne!(Space::of(&created), Space::of(&device));
    }
}
