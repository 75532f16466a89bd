//! Which blocks of a framework's pool are alive, by address.

use std::collections::BTreeMap;

use msmemscope_event::{ByteRange, Device};

/// A block that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Device, as the framework counts.
    pub device: Device,
    /// Differs for every allocation, so that reuse of an address shows.
    pub generation: u64,
    /// Whether it is among those that a hunt is about.
    pub is_hunted: bool,
}

impl LiveBlock {
    /// Its addresses.
    pub fn range(&self) -> ByteRange {
        ByteRange::sized(self.address, self.size_bytes)
    }
}

/// All live blocks that were told about.
#[derive(Clone, Debug, Default)]
pub struct LiveBlocks {
    blocks: BTreeMap<u64, LiveBlock>,
    generations: u64,
}

impl LiveBlocks {
    /// Nothing is alive.
    pub const fn new() -> Self {
        Self { blocks: BTreeMap::new(), generations: 0 }
    }

    /// A block came into being, one that a hunt is about or another.
    pub fn begin(&mut self, device: Device, address: u64, size_bytes: u64, is_hunted: bool) {
        self.generations += 1;
        let block = LiveBlock { address, size_bytes, device, generation: self.generations, is_hunted };
        self.blocks.insert(address, block);
    }

    /// A block that exists, told by somebody who does not know since when; told blocks stay.
    pub fn note(&mut self, device: Device, address: u64, size_bytes: u64, is_hunted: bool) {
        if !self.blocks.contains_key(&address) {
            self.begin(device, address, size_bytes, is_hunted);
        }
    }

    /// A hunt is about the block that holds this address, as it turns out.
    pub fn join_hunt(&mut self, address: u64) {
        if let Some((_, block)) = self.blocks.range_mut(..=address).next_back()
            && address < block.range().end
        {
            block.is_hunted = true;
        }
    }

    /// The block at this address ended.
    pub fn end(&mut self, address: u64) {
        self.blocks.remove(&address);
    }

    /// The generation of the newest block so far.
    pub fn newest_generation(&self) -> u64 {
        self.generations
    }

    /// The block that holds an address.
    pub fn holding(&self, address: u64) -> Option<LiveBlock> {
        let (_, block) = self.blocks.range(..=address).next_back()?;
        (address < block.range().end).then_some(*block)
    }

    /// The block at an address.
    pub fn at(&self, address: u64) -> Option<LiveBlock> {
        self.blocks.get(&address).copied()
    }

    /// Blocks that share bytes with a range.
    pub fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = LiveBlock> {
        let first = self.holding(range.start).map_or(range.start, |block| block.address);
        self.blocks.range(first..range.end).map(|(_, block)| *block)
    }

    /// The nearest blocks below and above a range, and those that share bytes with it.
    pub fn around(&self, range: ByteRange) -> impl Iterator<Item = LiveBlock> {
        let below = self.blocks.range(..range.start).next_back().map(|(_, block)| *block);
        let above = self.blocks.range(range.end..).next().map(|(_, block)| *block);
        let within = self.blocks.range(range.start..range.end).map(|(_, block)| *block);
        below.into_iter().chain(within).chain(above)
    }

    /// All hunted blocks of a device in the order of their addresses, beginning behind an address and
    /// going on from the start at the end.
    pub fn hunted_behind(&self, address: u64, device: Device) -> impl Iterator<Item = LiveBlock> {
        let behind = self.blocks.range(address.saturating_add(1)..);
        let front = self.blocks.range(..=address);
        behind.chain(front).map(|(_, block)| *block).filter(move |block| block.is_hunted && block.device == device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device::Npu(0);

    fn addresses(blocks: impl Iterator<Item = LiveBlock>) -> Vec<u64> {
        blocks.map(|block| block.address).collect()
    }

    #[test]
    fn blocks_are_found_by_address() {
        let mut blocks = LiveBlocks::new();
        for address in [1000, 1512, 2048] {
            blocks.begin(DEVICE, address, 512, true);
        }
        blocks.begin(Device::Npu(1), 9000, 10, true);
        assert_eq!(blocks.holding(1511).map(|block| block.address), Some(1000));
        assert_eq!(blocks.holding(2024), None);
        assert_eq!(addresses(blocks.overlapping(ByteRange { start: 1500, end: 2048 })), [1000, 1512]);
        assert_eq!(addresses(blocks.around(ByteRange { start: 1512, end: 2024 })), [1000, 1512, 2048]);
        assert_eq!(addresses(blocks.hunted_behind(1000, DEVICE)), [1512, 2048, 1000]);
    }

    #[test]
    fn blocks_join_a_hunt() {
        let mut blocks = LiveBlocks::new();
        blocks.begin(DEVICE, 1000, 512, false);
        blocks.begin(DEVICE, 2000, 512, true);
        blocks.note(DEVICE, 3000, 512, false);
        assert_eq!(addresses(blocks.hunted_behind(0, DEVICE)), [2000]);
        blocks.join_hunt(3511);
        blocks.join_hunt(1512); // between two blocks
        blocks.join_hunt(10);
        assert_eq!(addresses(blocks.hunted_behind(0, DEVICE)), [2000, 3000]);
    }

    #[test]
    fn reuse_of_an_address_shows() {
        let mut blocks = LiveBlocks::new();
        blocks.begin(DEVICE, 1000, 512, true);
        let first = blocks.at(1000).expect("there");
        blocks.note(DEVICE, 1000, 512, true);
        assert_eq!(blocks.at(1000), Some(first));
        blocks.end(1000);
        assert_eq!(blocks.at(1000), None);
        blocks.begin(DEVICE, 1000, 512, true);
        assert_ne!(blocks.at(1000).expect("again").generation, first.generation);
    }
}
