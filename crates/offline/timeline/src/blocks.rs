//! Which blocks are alive, found by address, by handle, or by an address inside them.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use msmemscope_event::{AddressSpace, BlockProperties, Device, Pool};
use rustc_hash::{FxBuildHasher, FxHashMap};

/// What a block is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockKey {
    realm: u32,
    address: u64,
}

impl BlockKey {
    pub(crate) fn new(space: AddressSpace, device: Device, address: u64) -> Self {
        Self { realm: realm(space, device), address }
    }

    pub(crate) fn address(self) -> u64 {
        self.address
    }

    #[inline]
    fn hash(self) -> u64 {
        FxBuildHasher.hash_one(self)
    }
}

fn realm(space: AddressSpace, device: Device) -> u32 {
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
    /// The stream that it was allocated for, zero if nobody said.
    pub(crate) stream: u32,
    /// Allocated while recording was not on, and not promoted since.
    pub(crate) in_shadow: bool,
    /// The filters at its MALLOC want to see its FREE.
    pub(crate) free_is_wanted: bool,
    /// Where it lies; given when it is inserted.
    pub(crate) slot: u32,
}

/// All live blocks.
///
/// Blocks lie in slots that are reused; addresses lead to slots. What is searched holds slot numbers
/// only, so that it stays in the processor's caches, and everybody who follows blocks gets a dense
/// number for each.
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    /// Blocks with their keys; those of free slots are old.
    slots: Vec<(BlockKey, Block)>,
    free_slots: Vec<u32>,
    by_key: HashTable<u32>,
    handles: FxHashMap<(Pool, u64), BlockKey>,
    /// Spaces and devices that ever held a block.
    realms: Vec<u32>,
    /// Blocks in address order; kept only once somebody has asked for an address inside a block.
    by_address: Option<BTreeMap<BlockKey, u64>>,
}

impl BlockTable {
    /// Adds a block; the place must be free. The block is told its slot.
    #[inline]
    pub(crate) fn insert(&mut self, key: BlockKey, mut block: Block) {
        if !self.realms.contains(&key.realm) {
            self.realms.push(key.realm);
        }
        if block.handle != 0 {
            self.handles.insert((block.properties.pool, block.handle), key);
        }
        if let Some(by_address) = &mut self.by_address {
            by_address.insert(key, block.size_bytes);
        }
        block.slot = self.next_slot();
        match self.free_slots.pop() {
            Some(slot) => self.slots[slot as usize] = (key, block),
            None => self.slots.push((key, block)),
        }
        let slots = &self.slots;
        self.by_key.insert_unique(key.hash(), block.slot, |&slot| slots[slot as usize].0.hash());
    }

    /// The slot that the next block will get.
    #[inline]
    pub(crate) fn next_slot(&self) -> u32 {
        self.free_slots.last().copied().unwrap_or(self.slots.len() as u32)
    }

    /// Takes a block out.
    #[inline]
    pub(crate) fn remove(&mut self, key: BlockKey) -> Option<Block> {
        let slots = &self.slots;
        let entry = self.by_key.find_entry(key.hash(), |&slot| slots[slot as usize].0 == key).ok()?;
        let (slot, _) = entry.remove();
        self.free_slots.push(slot);
        let block = self.slots[slot as usize].1;
        let handle = (block.properties.pool, block.handle);
        if block.handle != 0 && self.handles.get(&handle) == Some(&key) {
            self.handles.remove(&handle);
        }
        if let Some(by_address) = &mut self.by_address {
            by_address.remove(&key);
        }
        Some(block)
    }

    /// Takes out the block that begins at an address. A device that nobody named matches any.
    #[inline]
    pub(crate) fn take(&mut self, space: AddressSpace, device: Device, address: u64) -> Option<(BlockKey, Block)> {
        let exact = BlockKey::new(space, device, address);
        if let Some(block) = self.remove(exact) {
            return Some((exact, block));
        }
        let key = self.find_on_any_device(space, device, address)?;
        self.remove(key).map(|block| (key, block))
    }

    /// Takes out a block whose end was not seen, since another one begins where it was. The driver frees host memory and
    /// memory of cards by address alone, so both cannot be at the same one.
    #[inline]
    pub(crate) fn take_replaced(&mut self, key: BlockKey, by: &BlockProperties) -> Option<(BlockKey, Block)> {
        if let Some(block) = self.remove(key) {
            return Some((key, block));
        }
        let space = AddressSpace::of(by);
        if space != AddressSpace::DriverAlloc {
            return None;
        }
        let elsewhere = if by.device == Device::Host { Device::Unknown } else { Device::Host };
        self.take(space, elsewhere, key.address)
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Block {
        &self.slots[slot as usize].1
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Block {
        &mut self.slots[slot as usize].1
    }

    /// Slot of the block with this key.
    #[inline]
    pub(crate) fn slot(&self, key: BlockKey) -> Option<u32> {
        self.by_key.find(key.hash(), |&slot| self.slots[slot as usize].0 == key).copied()
    }

    /// The block that begins at an address. A device that nobody named matches any.
    #[inline]
    pub(crate) fn find(&self, space: AddressSpace, device: Device, address: u64) -> Option<(BlockKey, u32)> {
        let exact = BlockKey::new(space, device, address);
        if let Some(slot) = self.slot(exact) {
            return Some((exact, slot));
        }
        let key = self.find_on_any_device(space, device, address)?;
        Some((key, self.slot(key)?))
    }

    fn find_on_any_device(&self, space: AddressSpace, device: Device, address: u64) -> Option<BlockKey> {
        if device != Device::Unknown {
            return None;
        }
        self.realms_of(space).map(|realm| BlockKey { realm, address }).find(|&key| self.slot(key).is_some())
    }

    /// The block that was given a handle.
    pub(crate) fn find_handle(&self, pool: Pool, handle: u64) -> Option<BlockKey> {
        self.handles.get(&(pool, handle)).copied()
    }

    /// The block that holds an address, at its start or inside.
    #[inline]
    pub(crate) fn find_holding(
        &mut self,
        space: AddressSpace,
        device: Device,
        address: u64,
    ) -> Option<(BlockKey, u32)> {
        if let Some(found) = self.find(space, device, address) {
            return Some(found);
        }
        self.find_around(space, device, address)
    }

    fn find_around(&mut self, space: AddressSpace, device: Device, address: u64) -> Option<(BlockKey, u32)> {
        let (by_key, slots) = (&self.by_key, &self.slots);
        let by_address = self.by_address.get_or_insert_with(|| {
            by_key.iter().map(|&slot| &slots[slot as usize]).map(|(key, block)| (*key, block.size_bytes)).collect()
        });
        let holding = |realm: u32| {
            let (key, size_bytes) =
                by_address.range(BlockKey { realm, address: 0 }..=BlockKey { realm, address }).next_back()?;
            (address - key.address < *size_bytes).then_some(*key)
        };
        let key = match device {
            Device::Unknown => {
                self.realms.iter().copied().filter(|realm| realm >> 12 == space as u32).find_map(holding)
            }
            device => holding(realm(space, device)),
        }?;
        Some((key, self.slot(key)?))
    }

    fn realms_of(&self, space: AddressSpace) -> impl Iterator<Item = u32> {
        self.realms.iter().copied().filter(move |realm| realm >> 12 == space as u32)
    }

    /// Keys of all blocks that `wanted` picks, in allocation order.
    pub(crate) fn keys_where(&self, wanted: impl Fn(&Block) -> bool) -> Vec<BlockKey> {
        let mut keys: Vec<(u64, BlockKey)> = self
            .by_key
            .iter()
            .map(|&slot| &self.slots[slot as usize])
            .filter(|(_, block)| wanted(block))
            .map(|(key, block)| (block.allocation_id, *key))
            .collect();
        keys.sort_unstable_by_key(|(allocation_id, _)| *allocation_id);
        keys.into_iter().map(|(_, key)| key).collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use msmemscope_event::AllocationInterface;

    fn block(allocation_id: u64, size_bytes: u64, handle: u64) -> Block {
        Block {
            allocation_id,
            size_bytes,
            properties: BlockProperties::framework(Pool::Atb, Device::Npu(0)),
            thread_id: 1,
            latest_ns: 0,
            handle,
            stream: 0,
            in_shadow: false,
            free_is_wanted: true,
            slot: 0,
        }
    }

    #[test]
    fn addresses_inside_blocks_are_found_before_and_after_changes() {
        let mut table = BlockTable::default();
        let first = BlockKey::new(AddressSpace::Atb, Device::Npu(0), 1000);
        let second = BlockKey::new(AddressSpace::Atb, Device::Npu(1), 5000);
        table.insert(first, block(1, 100, 0));
        assert_eq!(table.find_holding(AddressSpace::Atb, Device::Npu(0), 1099).map(|(key, _)| key), Some(first));
        assert_eq!(table.find_holding(AddressSpace::Atb, Device::Npu(0), 1100), None);
        assert_eq!(table.find_holding(AddressSpace::Atb, Device::Npu(0), 999), None);
        assert_eq!(table.find_holding(AddressSpace::Atb, Device::Npu(1), 1050), None);
        assert_eq!(table.find_holding(AddressSpace::Mindspore, Device::Npu(0), 1050), None);
        table.insert(second, block(2, 10, 0));
        assert_eq!(table.find_holding(AddressSpace::Atb, Device::Unknown, 5009).map(|(key, _)| key), Some(second));
        table.remove(second);
        assert_eq!(table.find_holding(AddressSpace::Atb, Device::Unknown, 5009), None);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn handles_follow_the_block_that_got_them_last() {
        let mut table = BlockTable::default();
        let first = BlockKey::new(AddressSpace::Atb, Device::Npu(0), 1000);
        let second = BlockKey::new(AddressSpace::Atb, Device::Npu(0), 2000);
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
        assert_eq!(AddressSpace::of(&device), AddressSpace::of(&host));
        let registered = BlockProperties { interface: AllocationInterface::HostRegister, ..host };
        assert_ne!(AddressSpace::of(&registered), AddressSpace::of(&host));
        let created = BlockProperties { interface: AllocationInterface::Create, ..device };
        assert_ne!(AddressSpace::of(&created), AddressSpace::of(&device));
    }
}
