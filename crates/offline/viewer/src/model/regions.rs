//! The address space of a pool without the parts that it never used, so that all of it fits on a screen.

use std::collections::BTreeMap;

/// A range of addresses that was in use at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Bytes of all regions before it.
    pub(crate) y: u64,
}

/// The used ranges of a pool, in order.
#[derive(Debug, Default)]
pub(crate) struct Regions(pub(crate) Vec<Region>);

impl Regions {
    /// Bytes of all regions.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.0.last().map_or(0, |last| last.y.saturating_add(last.bytes))
    }

    /// Where an address lies.
    pub(crate) fn y(&self, address: u64) -> u64 {
        let index = self.0.partition_point(|region| region.address <= address);
        let Some(region) = index.checked_sub(1).map(|index| self.0[index]) else { return 0 };
        region.y + (address - region.address).min(region.bytes)
    }
}

/// Collects ranges.
#[derive(Debug, Default)]
pub(crate) struct RegionCollector {
    ends: BTreeMap<u64, u64>,
    /// The range found last: blocks use the same memory again and again.
    latest: (u64, u64),
}

impl RegionCollector {
    #[inline]
    pub(crate) fn add(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        if self.latest.0 <= address && end <= self.latest.1 {
            return;
        }
        let (mut first, mut last) = (address, end);
        if let Some((&start, &known)) = self.ends.range(..=address).next_back()
            && known >= address
        {
            if known >= end {
                self.latest = (start, known);
                return;
            }
            first = start;
        }
        while let Some((&start, &known)) = self.ends.range(first..=last).next() {
            last = last.max(known);
            self.ends.remove(&start);
        }
        self.ends.insert(first, last);
        self.latest = (first, last);
    }

    pub(crate) fn finish(self) -> Regions {
        let mut y = 0u64;
        let place = |(address, end): (u64, u64)| {
            let region = Region { address, bytes: end - address, y };
            y = y.saturating_add(region.bytes);
            region
        };
        Regions(self.ends.into_iter().map(place).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut collector = RegionCollector::default();
        [(100, 10), (200, 10), (110, 20), (105, 2), (195, 50), (0, 1), (300, 0)]
            .into_iter()
            .for_each(|(address, bytes)| collector.add(address, bytes));
        let regions = collector.finish();
        let shown: Vec<_> = regions.0.iter().map(|region| (region.address, region.bytes, region.y)).collect();
        assert_eq!(shown, [(0, 1, 0), (100, 30, 1), (195, 50, 31), (300, 0, 81)]);
        assert_eq!((regions.y(100), regions.y(120), regions.y(195), regions.total_bytes()), (1, 21, 31, 81));
    }
}
