//! Where facts come from: a trace, or a foreign file that an importer presents in the same way.

use msmemscope_event::{Device, DeviceMap, Record};
use msmemscope_trace::{Definitions, RecordStream, Trace};

/// The facts of one process.
pub trait FactSource {
    /// One pass over the facts.
    type Stream: FactStream;

    /// Process that was recorded.
    fn process_id(&self) -> u32;

    /// What to add to a monotonic time to get wall clock nanoseconds.
    fn wall_offset_ns(&self) -> i64;

    /// Strings, stacks and facts about the process.
    fn definitions(&self) -> &Definitions;

    /// Every device some fact names; naming too many is harmless.
    fn devices(&self) -> Vec<Device>;

    /// Whether some fact may be about steps; saying so wrongly costs a pass over the facts.
    fn mentions_steps(&self) -> bool {
        true
    }

    /// Whether calls of modules would be among the facts. Operators tell of steps only where they are not those of a
    /// model, whose layers come again and again as well.
    fn shows_module_calls(&self) -> bool {
        false
    }

    /// When the process ended as far as anybody knows: its normal end, or its last fact.
    fn end_monotonic_ns(&self) -> u64;

    /// The facts in time order. Each call starts a new pass.
    fn facts(&self) -> Self::Stream;
}

/// Facts in time order, one after the other.
pub trait FactStream {
    /// The next fact. It borrows from the stream; copy what must be kept.
    fn next(&mut self) -> Option<Record<'_>>;

    /// Facts given so far, and all of them.
    fn progress(&self) -> (u64, u64);
}

/// Every physical device that events of a source may carry; some may turn out to have no event.
pub fn possible_devices<S: FactSource>(source: &S) -> Vec<Device> {
    let map = source.definitions().device_map().map(DeviceMap::parse).unwrap_or_default();
    let recorded = source.devices();
    let mut devices: Vec<Device> =
        recorded.iter().map(|&device| map.physical(device)).chain(recorded.clone()).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

impl FactSource for Trace {
    type Stream = RecordStream;

    fn process_id(&self) -> u32 {
        Trace::process_id(self)
    }

    fn wall_offset_ns(&self) -> i64 {
        Trace::wall_offset_ns(self)
    }

    fn definitions(&self) -> &Definitions {
        Trace::definitions(self)
    }

    fn devices(&self) -> Vec<Device> {
        Trace::devices(self)
    }

    fn mentions_steps(&self) -> bool {
        Trace::mentions_steps(self)
    }

    fn shows_module_calls(&self) -> bool {
        true
    }

    fn end_monotonic_ns(&self) -> u64 {
        let latest = self.monotonic_range_ns().1;
        self.closed_monotonic_ns().map_or(latest, |closed| closed.max(latest))
    }

    fn facts(&self) -> RecordStream {
        self.records()
    }
}

impl FactStream for RecordStream {
    #[inline]
    fn next(&mut self) -> Option<Record<'_>> {
        RecordStream::next(self)
    }

    fn progress(&self) -> (u64, u64) {
        RecordStream::progress(self)
    }
}
