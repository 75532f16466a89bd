//! Which driver memory belongs to a framework pool: it grows because the pool does, and the pool's own
//! blocks say why.
//!
//! A driver block inside which a pool block has lived is the pool's. Physical memory that is mapped
//! piecewise has no address of its own; where there is a framework pool it is the pool's.

use std::collections::BTreeMap;

use msmemscope_event::{AllocationInterface, Device, Pool};
use rustc_hash::FxHashSet;

use crate::fluctuation::is_framework_pool;
use crate::situation::{BlockChange, LiveBlock};

/// Follows driver blocks.
#[derive(Debug, Default)]
pub(crate) struct Backing {
    /// Driver blocks by device and address that hold no pool block as far as seen.
    plain: BTreeMap<(Device, u64), (u64, u64)>,
    /// Driver blocks that back a pool.
    backing: FxHashSet<u64>,
    /// Devices on which a framework pool was seen.
    pool_devices: FxHashSet<Device>,
    latest_pool_device: Option<Device>,
}

impl Backing {
    /// A block began or ended.
    #[inline]
    pub(crate) fn block(&mut self, change: &BlockChange<'_>) {
        let is_plain = |block: &LiveBlock| {
            block.properties.pool == Pool::Hal && block.properties.interface == AllocationInterface::Alloc
        };
        match change {
            BlockChange::Begins(block, _) if is_plain(block) => {
                let key = (block.properties.device, block.address);
                self.plain.insert(key, (block.size_bytes, block.allocation_id));
            }
            BlockChange::Ends(block, _) if block.properties.pool == Pool::Hal => {
                self.plain.remove(&(block.properties.device, block.address));
                self.backing.remove(&block.allocation_id);
            }
            BlockChange::Begins(block, _) if is_framework_pool(block.properties.pool) => {
                self.pool_block(block.properties.device, block.address);
            }
            _ => {}
        }
    }

    #[inline]
    fn pool_block(&mut self, device: Device, address: u64) {
        if self.latest_pool_device != Some(device) {
            self.latest_pool_device = Some(device);
            self.pool_devices.insert(device);
        }
        if self.plain.is_empty() {
            return;
        }
        let before = self.plain.range((device, 0)..=(device, address)).next_back();
        if let Some((&(_, start), &(size_bytes, allocation_id))) = before
            && address - start < size_bytes
        {
            self.backing.insert(allocation_id);
            self.plain.remove(&(device, start));
        }
    }

    /// Whether a driver block belongs to a pool, as far as seen.
    pub(crate) fn backs_pool(&self, block: &LiveBlock) -> bool {
        self.backing.contains(&block.allocation_id)
            || block.properties.interface == AllocationInterface::Create
                && self.pool_devices.contains(&block.properties.device)
    }
}
