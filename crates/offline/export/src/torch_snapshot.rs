//! A memory snapshot as PyTorch pickles it: segments and blocks at the end, and the events that led there.
//!
//! Blocks are those of PyTorch's caching allocator, segments the driver's blocks that they lie in. A process without that
//! allocator has its driver's blocks instead, each a segment of its own.

use std::collections::BTreeMap;
use std::io::{self, Write};

use msmemscope_analysis::names::Calls;
use msmemscope_analysis::situation::{LiveBlock, Situation};
use msmemscope_analysis::{Names, RecordingNames};
use msmemscope_event::{Device, Pool};
use msmemscope_import::Recording;
use msmemscope_timeline::{BlockEvent, EventKind, EventSink, TimelineEvent, run};
use rustc_hash::FxHashMap;

use crate::pickle::{Pickle, Remembered};
use crate::sites::named_frames;
use crate::{Progress, everything};

/// Segments whose driver memory is not known by address (expandable segments) are made of pages of this size.
const PAGE_BYTES: u64 = 2 << 20;
/// Blocks up to this size are in segments for small ones.
const SMALL_BYTES: u64 = 1 << 20;

/// Returns whether there is memory of a device.
pub(crate) fn write(recordings: &[Recording], out: &mut dyn Write, progress: Progress<'_>) -> io::Result<bool> {
    let [recording] = recordings else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a snapshot is of one process"));
    };
    let names = RecordingNames::new(recording);
    let settings = everything(recording);
    let mut ending = Ending::new(&names, Situation::of(recording));
    run(recording, &settings, &mut ending, progress);
    let pool = ending.pool();
    let devices = ending.devices();
    let mut stacks = Stacks { names: &names, known: FxHashMap::default() };
    let mut pickle = Pickle::new(out)?;
    pickle.dictionary(|pickle| {
        pickle.text("segments")?;
        pickle.list(|pickle| {
            ending.segments(pool).into_iter().try_for_each(|segment| segment.write(pickle, &mut stacks))
        })?;
        pickle.next_pair()?;
        pickle.text("device_traces")?;
        pickle.list(|pickle| {
            for device in 0..devices {
                pickle.list(|pickle| {
                    let mut trace = DeviceTrace {
                        device: Device::Npu(device),
                        pool,
                        situation: Situation::of(recording),
                        pickle,
                        stacks: &mut stacks,
                        result: Ok(()),
                    };
                    run(recording, &settings, &mut trace, progress);
                    trace.result
                })?;
                pickle.next()?;
            }
            Ok(())
        })?;
        pickle.next_pair()?;
        pickle.text("allocator_settings")?;
        pickle.dictionary(|pickle| {
            let settings = names.allocator_settings().unwrap_or_default();
            settings
                .lines()
                .filter_map(|line| line.split_once('='))
                .try_for_each(|(key, value)| pickle.text_pair(key, value))
        })?;
        pickle.next_pair()
    })?;
    pickle.finish()?;
    Ok(devices > 0)
}

/// Writes the frames of each stack once.
struct Stacks<'a> {
    names: &'a dyn Names,
    known: FxHashMap<Calls, Remembered>,
}

impl Stacks<'_> {
    fn write(&mut self, pickle: &mut Pickle<'_>, calls: Calls, at_ns: u64) -> io::Result<()> {
        if let Some(&known) = self.known.get(&calls) {
            return pickle.recall(known);
        }
        let text = calls.named(at_ns, self.names);
        pickle.list(|pickle| {
            let frames = if text.is_known() { named_frames(&text) } else { Vec::new() };
            for frame in frames.iter().rev() {
                pickle.dictionary(|pickle| {
                    pickle.text_pair("filename", &frame.file)?;
                    pickle.number_pair("line", u64::from(frame.line))?;
                    pickle.text_pair("name", &frame.function)
                })?;
                pickle.next()?;
            }
            Ok(())
        })?;
        let known = pickle.remember()?;
        self.known.insert(calls, known);
        Ok(())
    }
}

/// Finds the state at the end.
struct Ending<'a> {
    names: &'a dyn Names,
    situation: Situation,
    has_caching_pool: bool,
    /// Blocks of the driver by address: where they end, and whether PyTorch ever had a block in them.
    driver_blocks: BTreeMap<(Device, u64), (u64, bool)>,
    highest_device: Option<u16>,
}

impl<'a> Ending<'a> {
    fn new(names: &'a dyn Names, situation: Situation) -> Self {
        Self { names, situation, has_caching_pool: false, driver_blocks: BTreeMap::new(), highest_device: None }
    }

    /// The pool whose blocks are shown.
    fn pool(&self) -> Pool {
        if self.has_caching_pool { Pool::PytorchCaching } else { Pool::Hal }
    }

    fn devices(&self) -> u16 {
        self.highest_device.map_or(0, |device| device.saturating_add(1))
    }

    fn segment_around(&mut self, device: Device, address: u64) -> Option<(u64, &mut (u64, bool))> {
        let (&(of_device, start), entry) = self.driver_blocks.range_mut(..=(device, address)).next_back()?;
        (of_device == device && address < entry.0).then_some((start, entry))
    }

    /// Segments with their blocks, by device and address.
    fn segments(&mut self, pool: Pool) -> Vec<Segment> {
        let mut segments: BTreeMap<(Device, u64), Segment> = BTreeMap::new();
        for (&(device, start), &(end, is_of_pool)) in &self.driver_blocks {
            if is_of_pool || pool == Pool::Hal {
                segments.insert((device, start), Segment::new(device, start, end, false));
            }
        }
        let mut blocks: Vec<LiveBlock> = self.situation.live_blocks().copied().collect();
        blocks.retain(|block| block.properties.pool == pool && matches!(block.properties.device, Device::Npu(_)));
        blocks.sort_by_key(|block| (block.properties.device, block.address));
        for block in blocks {
            let (device, end) = (block.properties.device, block.address + block.size_bytes);
            let place = segments.range_mut(..=(device, block.address)).next_back();
            match place {
                Some(((of_device, _), segment)) if *of_device == device && block.address < segment.end => {
                    segment.end = segment.end.max(end);
                    segment.blocks.push(block);
                }
                // Pages of an expandable segment: it goes on where the one before ends.
                Some(((of_device, _), segment))
                    if *of_device == device && segment.is_expandable && block.address == segment.end =>
                {
                    segment.end = end.next_multiple_of(PAGE_BYTES);
                    segment.blocks.push(block);
                }
                _ => {
                    let start = block.address / PAGE_BYTES * PAGE_BYTES;
                    let mut segment = Segment::new(device, start, end.next_multiple_of(PAGE_BYTES), true);
                    segment.blocks.push(block);
                    segments.insert((device, start), segment);
                }
            }
        }
        segments.into_values().collect()
    }
}

impl EventSink for Ending<'_> {
    fn take(&mut self, event: TimelineEvent) {
        self.situation.update(&event, self.names);
        let (block, begins) = match &event.kind {
            EventKind::Malloc(block) => (block, true),
            EventKind::Free(block) => (block, false),
            _ => return,
        };
        let Device::Npu(number) = block.properties.device else { return };
        let (device, address) = (block.properties.device, block.address);
        match block.properties.pool {
            Pool::Hal if begins => {
                self.driver_blocks.insert((device, address), (address + block.size_bytes, false));
            }
            Pool::Hal => {
                self.driver_blocks.remove(&(device, address));
            }
            Pool::PytorchCaching => {
                self.has_caching_pool = true;
                if let Some((_, entry)) = self.segment_around(device, address) {
                    entry.1 = true;
                }
            }
            _ => return,
        }
        self.highest_device = self.highest_device.max(Some(number));
    }
}

/// Memory that PyTorch has from the driver.
struct Segment {
    device: Device,
    start: u64,
    end: u64,
    is_expandable: bool,
    /// In order of address.
    blocks: Vec<LiveBlock>,
}

impl Segment {
    fn new(device: Device, start: u64, end: u64, is_expandable: bool) -> Self {
        Self { device, start, end, is_expandable, blocks: Vec::new() }
    }

    fn write(&self, pickle: &mut Pickle<'_>, stacks: &mut Stacks<'_>) -> io::Result<()> {
        let in_use = self.blocks.iter().map(|block| block.size_bytes).sum();
        let total = self.end - self.start;
        pickle.dictionary(|pickle| {
            pickle.number_pair("device", device_number(self.device))?;
            pickle.number_pair("address", self.start)?;
            pickle.number_pair("total_size", total)?;
            for key in ["allocated_size", "active_size", "requested_size"] {
                pickle.number_pair(key, in_use)?;
            }
            pickle.number_pair("stream", 0)?;
            let segment_type = if total <= 2 * SMALL_BYTES { "small" } else { "large" };
            pickle.text_pair("segment_type", segment_type)?;
            pickle.text("is_expandable")?;
            pickle.truth(self.is_expandable)?;
            pickle.next_pair()?;
            pickle.text("frames")?;
            pickle.list(|_| Ok(()))?;
            pickle.next_pair()?;
            pickle.text("blocks")?;
            pickle.list(|pickle| self.write_blocks(pickle, stacks))?;
            pickle.next_pair()
        })?;
        pickle.next()
    }

    /// Blocks in use, and the room between them.
    fn write_blocks(&self, pickle: &mut Pickle<'_>, stacks: &mut Stacks<'_>) -> io::Result<()> {
        let mut free_from = self.start;
        for block in &self.blocks {
            write_room(pickle, free_from, block.address)?;
            free_from = free_from.max(block.address + block.size_bytes);
            pickle.dictionary(|pickle| {
                pickle.number_pair("address", block.address)?;
                pickle.number_pair("size", block.size_bytes)?;
                pickle.number_pair("requested_size", block.size_bytes)?;
                pickle.text_pair("state", "active_allocated")?;
                pickle.text("frames")?;
                stacks.write(pickle, Calls::of(block), block.timestamp_ns)?;
                pickle.next_pair()
            })?;
            pickle.next()?;
        }
        write_room(pickle, free_from, self.end)
    }
}

fn write_room(pickle: &mut Pickle<'_>, from: u64, to: u64) -> io::Result<()> {
    if to <= from {
        return Ok(());
    }
    pickle.dictionary(|pickle| {
        pickle.number_pair("address", from)?;
        pickle.number_pair("size", to - from)?;
        pickle.number_pair("requested_size", 0)?;
        pickle.text_pair("state", "inactive")?;
        pickle.text("frames")?;
        pickle.list(|_| Ok(()))?;
        pickle.next_pair()
    })?;
    pickle.next()
}

fn device_number(device: Device) -> u64 {
    match device {
        Device::Npu(number) => u64::from(number),
        Device::Host | Device::Unknown => 0,
    }
}

/// Writes what happened on one device.
struct DeviceTrace<'a, 'w, 'n> {
    device: Device,
    pool: Pool,
    situation: Situation,
    pickle: &'a mut Pickle<'w>,
    stacks: &'a mut Stacks<'n>,
    result: io::Result<()>,
}

impl DeviceTrace<'_, '_, '_> {
    /// What PyTorch calls the event, if it is one of those that are shown.
    fn actions(&self, block: &BlockEvent, begins: bool) -> &'static [&'static str] {
        let is_shown_pool = block.properties.pool == self.pool;
        match (block.properties.pool, begins) {
            (pool, true) if pool == self.pool => &["alloc"],
            (_, false) if is_shown_pool => &["free_requested", "free_completed"],
            (Pool::Hal, true) => &["segment_alloc"],
            (Pool::Hal, false) => &["segment_free"],
            _ => &[],
        }
    }

    fn entry(
        &mut self,
        action: &str,
        event: &TimelineEvent,
        (address, size_bytes): (u64, u64),
        calls: Calls,
    ) -> io::Result<()> {
        self.pickle.dictionary(|pickle| {
            pickle.text_pair("action", action)?;
            pickle.number_pair("addr", address)?;
            pickle.number_pair("size", size_bytes)?;
            pickle.number_pair("stream", 0)?;
            pickle.number_pair("time_us", event.timestamp_ns / 1_000)?;
            pickle.text("frames")?;
            self.stacks.write(pickle, calls, event.timestamp_ns)?;
            pickle.next_pair()
        })?;
        self.pickle.next()
    }

    fn write(&mut self, event: &TimelineEvent) -> io::Result<()> {
        let (ended, _) = self.situation.update(event, self.stacks.names);
        if event.device != self.device {
            return Ok(());
        }
        let calls = Calls::of_event(event, &self.situation);
        match &event.kind {
            EventKind::Malloc(block) => {
                let calls = self.situation.block(block.slot).map_or(calls, Calls::of);
                let place = (block.address, block.size_bytes);
                self.actions(block, true).iter().try_for_each(|action| self.entry(action, event, place, calls))
            }
            EventKind::Free(block) if ended.is_some() => {
                let place = (block.address, block.size_bytes);
                let actions = self.actions(block, false);
                actions.iter().try_for_each(|action| self.entry(action, event, place, calls))
            }
            EventKind::AllocationFailed { size_bytes, .. } => self.entry("oom", event, (0, *size_bytes), calls),
            _ => Ok(()),
        }
    }
}

impl EventSink for DeviceTrace<'_, '_, '_> {
    fn take(&mut self, event: TimelineEvent) {
        if self.result.is_ok() {
            self.result = self.write(&event);
        }
    }
}
