//! Finds the records of blocks that came and went while nothing but what is alive mattered.
//!
//! An allocation and its free can be left out together if both lie in one pause, of which every allocation is seen
//! here, and if both lie in chunks that are about to be replaced. Where anything is out of the ordinary - an address
//! that is allocated twice, a free that names another device - everything is kept.
//!
//! A free may be missing: it is stamped before the driver is called and written afterwards. An allocation is not: it is
//! written before the program knows the address, so whoever sees its free in a sealed chunk also sees the allocation.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use msmemscope_event::{AddressSpace, BlockProperties, Device, Fact, Pool, Record};

use crate::read_chunk::{Place, ReadChunk, RecordSet};

/// What a block is found by when it ends: where the number means something, and the number.
type BlockName = (Naming, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Naming {
    Address(AddressSpace),
    Handle(Pool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Begin,
    End,
    Label,
}

/// One step of a block's life. There are hundreds of thousands of them, so it is kept small.
#[derive(Clone, Copy, Debug)]
struct Step {
    monotonic_ns: u64,
    /// Address or handle.
    number: u64,
    size_bytes: u64,
    place: Place,
    device: Device,
    naming: Naming,
    change: Change,
}

impl Step {
    fn of(record: &Record<'_>, place: Place) -> Option<Self> {
        let at = |properties: &BlockProperties| Naming::Address(AddressSpace::of(properties));
        let (change, naming, device, number, size_bytes) = match record.fact {
            Fact::Allocation { properties, address, size_bytes }
            | Fact::AllocationOnStream { properties, address, size_bytes, .. } => {
                (Change::Begin, at(&properties), properties.device, address, size_bytes)
            }
            Fact::AllocationWithHandle { properties, size_bytes, handle, .. } => {
                (Change::Begin, Naming::Handle(properties.pool), properties.device, handle, size_bytes)
            }
            Fact::Free { properties, address } => (Change::End, at(&properties), properties.device, address, 0),
            Fact::FreeByHandle { properties, handle } => {
                (Change::End, Naming::Handle(properties.pool), properties.device, handle, 0)
            }
            // Labels and holders are of blocks of pools, wherever in the block the address is.
            Fact::LabelAddress { address, .. } | Fact::Holder { address, .. } => {
                (Change::Label, Naming::Address(AddressSpace::Unknown), Device::Unknown, address, 0)
            }
            _ => return None,
        };
        Some(Self { monotonic_ns: record.monotonic_ns, number, size_bytes, place, device, naming, change })
    }

    fn name(&self) -> BlockName {
        (self.naming, self.number)
    }

    /// Whether this is the block that an address lies in.
    fn holds(&self, address: u64) -> bool {
        matches!(self.naming, Naming::Address(_))
            && (self.number..self.number.saturating_add(self.size_bytes)).contains(&address)
    }
}

/// The pause, of several in order, that a moment lies in.
pub(crate) fn pause_at(pauses: &[Range<u64>], monotonic_ns: u64) -> Option<&Range<u64>> {
    let next = pauses.partition_point(|pause| pause.end <= monotonic_ns);
    pauses.get(next).filter(|pause| pause.contains(&monotonic_ns))
}

/// Of every chunk, the records that can be left out. Nothing if memory is short.
pub(crate) fn records_of_passing_blocks(chunks: &[ReadChunk], pauses: &[Range<u64>]) -> Option<Vec<RecordSet>> {
    let mut superfluous = vec![RecordSet::default(); chunks.len()];
    let mut live: HashMap<BlockName, Step> = HashMap::new();
    let mut ambiguous: HashSet<BlockName> = HashSet::new();
    let mut pause_end_ns = 0;
    for step in steps_in(chunks, pauses)? {
        if step.monotonic_ns >= pause_end_ns {
            // What is alive at the end of a pause matters.
            pause_end_ns = pause_at(pauses, step.monotonic_ns).map_or(u64::MAX, |pause| pause.end);
            live.clear();
            ambiguous.clear();
        }
        match step.change {
            Change::Begin => match live.entry(step.name()) {
                Entry::Vacant(entry) => {
                    entry.insert(step);
                }
                Entry::Occupied(entry) => {
                    entry.remove();
                    ambiguous.insert(step.name());
                }
            },
            Change::End => {
                let Some(begin) = live.remove(&step.name()) else { continue };
                let places = [begin.place, step.place];
                if step.device != begin.device && step.device != Device::Unknown {
                    ambiguous.insert(step.name());
                } else if !ambiguous.contains(&step.name())
                    && places.iter().all(|place| chunks[place.chunk as usize].is_replaced)
                {
                    for place in places {
                        superfluous[place.chunk as usize].insert(place.record);
                    }
                }
            }
            // Without the block the label would be for nothing.
            Change::Label => live.retain(|_, block| !block.holds(step.number)),
        }
    }
    Some(superfluous)
}

/// What happened to blocks in those times, in the order of all records.
fn steps_in(chunks: &[ReadChunk], pauses: &[Range<u64>]) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut has_memory = true;
    for (chunk, position) in chunks.iter().zip(0..) {
        chunk.for_each_record(|number, record| {
            if pause_at(pauses, record.monotonic_ns).is_some()
                && let Some(step) = Step::of(record, Place { chunk: position, record: number })
            {
                has_memory = has_memory && steps.try_reserve(1).is_ok();
                if has_memory {
                    steps.push(step);
                }
            }
        });
    }
    steps.sort_by_key(|step| (step.monotonic_ns, step.change != Change::End));
    has_memory.then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_small() {
        assert!(size_of::<Step>() <= 40, "{}", size_of::<Step>());
    }
}
