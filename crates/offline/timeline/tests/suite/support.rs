//! Facts from memory, and short ways to write them down.

use msmemscope_event::{
    AllocationInterface, BlockProperties, Device, Fact, MemoryType, PageType, Pool, Record, StackId, StringId,
};
use msmemscope_timeline::{
    BlockEvent, EventFilter, EventKind, FactSource, FactStream, Summary, TimelineEvent, TimelineSettings, run,
};
use msmemscope_trace::Definitions;

/// Settings that let these events through.
pub fn showing(filter: EventFilter) -> TimelineSettings {
    TimelineSettings { filter, ..TimelineSettings::default() }
}

/// Facts of a made-up process.
#[derive(Default)]
pub struct Facts {
    records: Vec<Record<'static>>,
    definitions: Definitions,
    strings: u32,
    pub wall_offset_ns: i64,
    pub end_monotonic_ns: u64,
}

pub struct Stream {
    records: Vec<Record<'static>>,
    next: usize,
}

impl FactStream for Stream {
    fn next(&mut self) -> Option<Record<'_>> {
        self.next += 1;
        self.records.get(self.next - 1).copied()
    }

    fn progress(&self) -> (u64, u64) {
        (self.next as u64, self.records.len() as u64)
    }
}

impl FactSource for Facts {
    type Stream = Stream;

    fn process_id(&self) -> u32 {
        77
    }

    fn wall_offset_ns(&self) -> i64 {
        self.wall_offset_ns
    }

    fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    fn devices(&self) -> Vec<Device> {
        let mut devices: Vec<Device> = self.records.iter().filter_map(|record| record.fact.device()).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    fn shows_module_calls(&self) -> bool {
        true
    }

    fn end_monotonic_ns(&self) -> u64 {
        let last = self.records.iter().map(|record| record.monotonic_ns).max().unwrap_or(0);
        self.end_monotonic_ns.max(last)
    }

    fn facts(&self) -> Stream {
        Stream { records: self.records.clone(), next: 0 }
    }
}

impl Facts {
    /// No facts yet, of a process that ended at some time.
    pub fn ending_at(end_monotonic_ns: u64) -> Self {
        Self { end_monotonic_ns, ..Self::default() }
    }

    pub fn at(&mut self, monotonic_ns: u64, fact: Fact<'static>) -> &mut Self {
        self.on_thread(1, monotonic_ns, fact)
    }

    pub fn on_thread(&mut self, thread_id: u32, monotonic_ns: u64, fact: Fact<'static>) -> &mut Self {
        let record = Record { monotonic_ns, thread_id, native_stack: StackId(8), python_stack: StackId(9), fact };
        self.definitions.learn(&record);
        self.records.push(record);
        self
    }

    pub fn string(&mut self, text: &'static str) -> StringId {
        self.strings += 1;
        let id = StringId(self.strings);
        self.at(0, Fact::DefineString { id, text: text.as_bytes() });
        id
    }

    pub fn run(&self) -> (Vec<TimelineEvent>, Summary) {
        self.run_with(&TimelineSettings::default())
    }

    /// Events as these settings let them through.
    pub fn run_with(&self, settings: &TimelineSettings) -> (Vec<TimelineEvent>, Summary) {
        let mut events = Vec::new();
        let summary = run(self, settings, &mut |event: TimelineEvent| events.push(event), &mut |_, _| {});
        (events, summary)
    }

    /// Events in the short form of [`brief`].
    pub fn brief(&self) -> Vec<String> {
        self.run().0.iter().map(brief).collect()
    }
}

/// An event in a line: time, kind, allocation id, size, used/total, `~` for shadow.
pub fn brief(event: &TimelineEvent) -> String {
    let time = event.timestamp_ns;
    let block = |kind: &str, block: &BlockEvent| {
        let shadow = if block.shadow { "~" } else { "" };
        let BlockEvent { allocation_id, size_bytes, used_bytes, total_bytes, .. } = block;
        format!("{time} {kind}{shadow} #{allocation_id} {size_bytes} used {used_bytes}/{total_bytes}")
    };
    match &event.kind {
        EventKind::Malloc(event) => block("malloc", event),
        EventKind::Free(event) => block("free", event),
        EventKind::Access { allocation_id, .. } => format!("{time} access #{allocation_id}"),
        EventKind::StartTrace { .. } => format!("{time} start"),
        EventKind::StopTrace => format!("{time} stop"),
        EventKind::Mark { message, .. } => format!("{time} mark {message}"),
        EventKind::StepEnd { number } => format!("{time} step {number}"),
        EventKind::RangeBegin { message, .. } => format!("{time} begin {message}"),
        EventKind::RangeEnd { range_id, .. } => format!("{time} end {range_id}"),
        other => format!("{time} {other:?}"),
    }
}

pub const NPU: Device = Device::Npu(0);

pub fn pool(pool: Pool) -> BlockProperties {
    BlockProperties::framework(pool, NPU)
}

pub fn driver(device: Device) -> BlockProperties {
    BlockProperties {
        pool: if device == Device::Host { Pool::HostPinned } else { Pool::Hal },
        device,
        memory_type: MemoryType::Device,
        page_type: PageType::Normal,
        interface: AllocationInterface::Alloc,
        module_id: 3,
    }
}

pub fn allocation(properties: BlockProperties, address: u64, size_bytes: u64) -> Fact<'static> {
    Fact::Allocation { properties, address, size_bytes }
}

/// A free as recorded: nobody says the device.
pub fn free(properties: BlockProperties, address: u64) -> Fact<'static> {
    Fact::Free { properties: BlockProperties { device: Device::Unknown, ..properties }, address }
}

pub fn heap(properties: BlockProperties, address: u64, size_bytes: u64) -> Fact<'static> {
    Fact::HeapRegistered { properties, address, size_bytes }
}

pub fn step_begin(device: Device, range_id: u64) -> Fact<'static> {
    Fact::RangeBegin { domain: StringId::NONE, device, range_id, message: b"step start" }
}

pub fn range_end(device: Device, range_id: u64) -> Fact<'static> {
    Fact::RangeEnd { domain: StringId::NONE, device, range_id }
}

pub fn mark(device: Device, message: &'static [u8]) -> Fact<'static> {
    Fact::Mark { domain: StringId::NONE, device, message }
}
