//! A job made up event by event.

use std::collections::HashMap;

use msmemscope_event::{AllocationInterface, BlockProperties, Device, Pool, StackId};
use msmemscope_replay::{AllocatorSettings, Collector, Requests};
use msmemscope_timeline::{BlockEvent, EventKind, EventSink, TimelineEvent};

pub const MIB: u64 = 1 << 20;
const DEVICE: Device = Device::Npu(0);

/// Its events.
pub struct Job {
    events: Vec<(u64, u64, EventKind)>,
    now_ns: u64,
    step: u64,
    live: HashMap<(Pool, u64), (u32, u64)>,
    used_bytes: u64,
    next_slot: u32,
}

impl Job {
    pub fn new(card_bytes: Option<u64>) -> Self {
        let card = card_bytes.map(|card_bytes| (card_bytes, card_bytes));
        Self {
            events: vec![(1, 0, EventKind::StartTrace { card })],
            now_ns: 1,
            step: 0,
            live: HashMap::new(),
            used_bytes: 0,
            next_slot: 0,
        }
    }

    /// What follows happens so long after the beginning, or later.
    pub fn at_second(&mut self, second: u64) {
        self.now_ns = self.now_ns.max(second * 1_000_000_000);
    }

    fn push(&mut self, kind: EventKind) {
        self.now_ns += 1;
        self.events.push((self.now_ns, self.step, kind));
    }

    /// What follows is in steps.
    pub fn begins_steps(&mut self) {
        self.step = 1;
    }

    /// A step ends, and the next one begins.
    pub fn step_ended(&mut self) {
        self.push(EventKind::StepEnd { number: self.step });
        self.step += 1;
    }

    /// The driver gives memory.
    pub fn segment(&mut self, address: u64, size_bytes: u64) {
        let slot = self.begin(Pool::Hal, address, size_bytes);
        self.push(EventKind::Malloc(block(Pool::Hal, slot, address, size_bytes, 0, 0)));
    }

    /// The driver gives so many pieces of memory without addresses.
    pub fn mapped(&mut self, size_bytes: u64, pieces: u64) {
        for _ in 0..pieces {
            let handle = u64::from(self.next_slot) << 40;
            let slot = self.begin(Pool::Hal, handle, size_bytes);
            let mut block = block(Pool::Hal, slot, handle, size_bytes, 0, 0);
            block.properties.interface = AllocationInterface::Create;
            self.push(EventKind::Malloc(block));
        }
    }

    /// The driver gets it back.
    pub fn segment_freed(&mut self, address: u64) {
        let (slot, size_bytes) = self.live.remove(&(Pool::Hal, address)).expect("a segment");
        self.push(EventKind::Free(block(Pool::Hal, slot, address, size_bytes, 0, 0)));
    }

    /// The pool hands out a block on the default stream, and holds so much.
    pub fn allocate(&mut self, address: u64, size_bytes: u64, reserved_bytes: u64) {
        self.allocate_on(0, address, size_bytes, reserved_bytes);
    }

    /// The pool hands out a block on a stream, and holds so much.
    pub fn allocate_on(&mut self, stream: u32, address: u64, size_bytes: u64, reserved_bytes: u64) {
        let slot = self.begin(Pool::PytorchCaching, address, size_bytes);
        self.used_bytes += size_bytes;
        let block = block(Pool::PytorchCaching, slot, address, size_bytes, self.used_bytes, reserved_bytes);
        self.push(EventKind::Malloc(BlockEvent { stream, ..block }));
    }

    /// The pool had handed out a block before the recording.
    pub fn there_before(&mut self, address: u64, size_bytes: u64, reserved_bytes: u64) {
        self.allocate(address, size_bytes, reserved_bytes);
        if let Some((_, _, EventKind::Malloc(block))) = self.events.last_mut() {
            block.shadow = true;
        }
    }

    /// The pool takes a block of the default stream back.
    pub fn free(&mut self, address: u64, reserved_bytes: u64) {
        self.free_on(0, address, reserved_bytes);
    }

    /// The pool takes a block of a stream back.
    pub fn free_on(&mut self, stream: u32, address: u64, reserved_bytes: u64) {
        let (slot, size_bytes) = self.live.remove(&(Pool::PytorchCaching, address)).expect("a block");
        self.used_bytes -= size_bytes;
        let block = block(Pool::PytorchCaching, slot, address, size_bytes, self.used_bytes, reserved_bytes);
        self.push(EventKind::Free(BlockEvent { stream, ..block }));
    }

    /// The driver has nothing left.
    pub fn refused(&mut self, size_bytes: u64) {
        let interface = AllocationInterface::Alloc;
        self.push(EventKind::AllocationFailed { interface, size_bytes, flag: 0, error: 6 });
    }

    /// Somebody looks at the card.
    pub fn card_sample(&mut self, total_bytes: u64) {
        self.push(EventKind::CardSample { used_bytes: MIB, process_bytes: MIB, total_bytes });
    }

    /// What it asked for, if its allocator had these settings.
    pub fn requests(&self, settings: &str) -> Vec<Requests> {
        self.requests_of(Collector::new(AllocatorSettings::parse(settings).expect("settings")))
    }

    /// What such a collector makes of it.
    pub fn requests_of(&self, mut collector: Collector) -> Vec<Requests> {
        for (timestamp_ns, step, kind) in &self.events {
            collector.take(TimelineEvent {
                timestamp_ns: *timestamp_ns,
                thread_id: 1,
                device: DEVICE,
                step: *step,
                native_stack: StackId::NONE,
                python_stack: StackId::NONE,
                kind: kind.clone(),
            });
        }
        collector.finish()
    }

    fn begin(&mut self, pool: Pool, address: u64, size_bytes: u64) -> u32 {
        let slot = self.next_slot;
        self.next_slot += 1;
        self.live.insert((pool, address), (slot, size_bytes));
        slot
    }
}

fn block(pool: Pool, slot: u32, address: u64, size_bytes: u64, used_bytes: u64, total_bytes: u64) -> BlockEvent {
    let properties = match pool {
        Pool::Hal => BlockProperties { device: DEVICE, ..BlockProperties::from_driver_flag(1 << 10) },
        pool => BlockProperties::framework(pool, DEVICE),
    };
    BlockEvent {
        allocation_id: u64::from(slot) + 1,
        slot,
        address,
        size_bytes,
        properties,
        used_bytes,
        total_bytes,
        card: None,
        shadow: false,
        alive_at_process_end: false,
        stream: 0,
    }
}
