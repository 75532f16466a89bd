//! Memory snapshots of PyTorch and torch_npu, as `_dump_snapshot` writes them.
//!
//! A snapshot has the state at its end (segments and blocks) and, if history was recorded, the latest events before it.
//! Both are brought together: what is alive at the end and was not allocated in the history was there before it.
//!
//! In a pickle the same thing may stand in many places. PyTorch does so with frames; a hostile file can do so with
//! segments, blocks and events, and say in a few kilobytes what would take days to read. `Room` is the end of that.

use std::collections::BTreeMap;

use msmemscope_dump::row::Row;
use msmemscope_event::{BlockProperties, Device, Pool};
use rustc_hash::FxHashMap;

use crate::interpret::{BlockRow, Meaning};
use crate::pickle::{Pickle, Value};
use crate::process::ProcessBuilder;

/// PyTorch's allocator gives multiples of this; its history has the sizes that were asked for.
const GRANULE_BYTES: u64 = 512;
/// What torch_npu adds to every request on cards whose kernels read past the end of their memory.
const PADDING_BYTES: u64 = 32;
/// What torch_npu calls its settings where a snapshot does not.
const SETTINGS_VARIABLE: &str = "PYTORCH_NPU_ALLOC_CONF";
/// Between two events of a history that has no times.
const NANOSECONDS_PER_EVENT: u64 = 1_000;
/// More devices than any machine has: a snapshot with more is damaged.
const MOST_DEVICES: usize = 4096;

/// Whether bytes may be the beginning of a pickle: protocols from two on say so, older ones begin with a dictionary.
pub(crate) fn may_be_pickle(head: &[u8]) -> bool {
    matches!(head, [0x80, 2..=5, ..] | [b'(', b'd', ..] | [b'}', b'q' | b'(' | b'r', ..])
}

/// Reads a snapshot as the facts of a process.
pub(crate) fn read(file: &[u8]) -> Result<ProcessBuilder, String> {
    let pickle = Pickle::read(file)?;
    let list = |key: &[u8]| pickle.get(pickle.root, key).filter(|value| matches!(value, Value::List(_)));
    let (Some(segments), Some(traces)) = (list(b"segments"), list(b"device_traces").or(Some(Value::Nothing))) else {
        return Err("it is a pickle, but no memory snapshot: it has no list of segments".to_owned());
    };
    let room = Room::of(file);
    let mut snapshot = Snapshot {
        pickle: &pickle,
        builder: ProcessBuilder::of_snapshot(),
        stacks: FxHashMap::default(),
        rows: 0,
        room,
        sizes: Sizes::default(),
    };
    let mut is_expandable = false;
    let mut states: FxHashMap<u16, State> = FxHashMap::default();
    for &segment in pickle.elements(segments) {
        snapshot.room.take_entry(&pickle, segment)?;
        let number = |key: &[u8]| pickle.number(segment, key).ok_or_else(|| missing("segment", key));
        let device = u16::try_from(number(b"device")?).map_err(|_| "a device number is too large")?;
        let state = states.entry(device).or_default();
        state.reserved_bytes = state.reserved_bytes.saturating_add(number(b"total_size")?);
        state.segments.push((number(b"address")?, number(b"total_size")?));
        is_expandable |= matches!(pickle.get(segment, b"is_expandable"), Some(Value::Truth(true)));
        let stream = stream_of(&pickle, segment);
        let blocks = pickle.get(segment, b"blocks").unwrap_or(Value::Nothing);
        // Older snapshots have no addresses of blocks: they follow one another.
        let mut next_address = number(b"address")?;
        for &block in pickle.elements(blocks) {
            snapshot.room.take_entry(&pickle, block)?;
            let size_bytes = pickle.number(block, b"size").ok_or_else(|| missing("block", b"size"))?;
            let address = pickle.number(block, b"address").unwrap_or(next_address);
            next_address = address.saturating_add(size_bytes);
            let is_in_use =
                pickle.get(block, b"state").and_then(|state| pickle.text(state)) == Some(b"active_allocated");
            if is_in_use {
                let frames = pickle.get(block, b"frames").unwrap_or(Value::Nothing);
                state.in_use.insert(address, (size_bytes, frames, stream));
                if let Some(requested_bytes) = pickle.number(block, b"requested_size") {
                    snapshot.sizes.judge(requested_bytes, |padded_bytes| padded_bytes == size_bytes);
                }
            }
        }
    }
    let histories = pickle.elements(traces);
    if histories.len() > MOST_DEVICES {
        return Err(format!("it has histories of {} devices", histories.len()));
    }
    for (device, &history) in histories.iter().enumerate() {
        if !pickle.elements(history).is_empty() {
            states.entry(device as u16).or_default().history = history;
        }
    }
    let mut devices: Vec<(u16, State)> = states.into_iter().collect();
    devices.sort_unstable_by_key(|(device, _)| *device);
    let mut histories: Vec<Vec<Event>> = Vec::with_capacity(devices.len());
    for (_, state) in &devices {
        let events = snapshot.events(state.history)?;
        snapshot.sizes.look_at(&events);
        is_expandable |= events.iter().any(|event| matches!(event.action, Action::Mapped | Action::Unmapped));
        histories.push(events);
    }
    if let Some(settings) = settings_of(&pickle, is_expandable) {
        snapshot.builder.set_allocator_settings(settings);
    }
    let first_ns = histories.iter().flatten().map(|event| event.at_ns).min().unwrap_or(NANOSECONDS_PER_EVENT);
    snapshot.row(first_ns, Value::Nothing, Meaning::RecordingStarts { free_and_total_bytes: None });
    for ((device, state), events) in devices.iter().zip(&histories) {
        snapshot.take_device(Device::Npu(*device), state, events, first_ns);
        snapshot.room.check()?;
    }
    Ok(snapshot.builder)
}

/// The stream of a segment or event. Some are told as addresses, of which the lower half tells them apart.
fn stream_of(pickle: &Pickle<'_>, entry: Value) -> u32 {
    pickle.number(entry, b"stream").unwrap_or(0) as u32
}

/// The settings of the allocator as variables, if they are known: our own snapshots say them, others show whether segments
/// grow.
fn settings_of(pickle: &Pickle<'_>, is_expandable: bool) -> Option<String> {
    let stated = pickle.get(pickle.root, b"allocator_settings").unwrap_or(Value::Nothing);
    let variable = |name: &str| {
        let value = pickle.text(pickle.get(stated, name.as_bytes())?)?;
        Some(format!("{name}={}\n", String::from_utf8_lossy(value)))
    };
    let is_named = |settings: &String| settings.len() > SETTINGS_VARIABLE.len() + "=\n".len();
    let stated = [SETTINGS_VARIABLE, "PYTORCH_ALLOC_CONF"].into_iter().find_map(variable).filter(is_named);
    stated.or_else(|| is_expandable.then(|| format!("{SETTINGS_VARIABLE}=expandable_segments:True\n")))
}

/// How large blocks are for what was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    /// Blocks that can only be as large as they are, or lie where they lie, if the allocator pads requests, and those that
    /// cannot if it does.
    padded: u64,
    not_padded: u64,
}

impl Sizes {
    /// The size of the block that is given to who asks for a size.
    fn of_block(self, requested_bytes: u64) -> u64 {
        let is_padded = self.padded > 0 && self.not_padded == 0;
        in_granules(if is_padded { requested_bytes.saturating_add(PADDING_BYTES) } else { requested_bytes })
    }

    /// Learns from a request for which one of two sizes is right.
    fn judge(&mut self, requested_bytes: u64, is_right: impl Fn(u64) -> bool) {
        let (plain_bytes, padded_bytes) =
            (in_granules(requested_bytes), in_granules(requested_bytes.saturating_add(PADDING_BYTES)));
        if plain_bytes != padded_bytes {
            self.padded += u64::from(is_right(padded_bytes));
            self.not_padded += u64::from(is_right(plain_bytes));
        }
    }

    /// Learns from where blocks lie: most follow one another without a gap.
    fn look_at(&mut self, events: &[Event]) {
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        for event in events {
            match event.action {
                Action::Allocated => {
                    if let Some((&before, &size_bytes)) = live.range(..event.address).next_back() {
                        self.judge(size_bytes, |bytes| before.saturating_add(bytes) == event.address);
                    }
                    if let Some((&behind, _)) = live.range(event.address.saturating_add(1)..).next() {
                        self.judge(event.size_bytes, |bytes| event.address.saturating_add(bytes) == behind);
                    }
                    live.insert(event.address, event.size_bytes);
                }
                Action::FreeRequested | Action::FreeCompleted => _ = live.remove(&event.address),
                _ => {}
            }
        }
    }
}

/// A size as the allocator rounds it.
fn in_granules(size_bytes: u64) -> u64 {
    size_bytes.max(1).div_ceil(GRANULE_BYTES).saturating_mul(GRANULE_BYTES)
}

fn missing(what: &str, key: &[u8]) -> String {
    format!("a {what} has no {}", String::from_utf8_lossy(key))
}

/// What a snapshot says about one device.
struct State {
    reserved_bytes: u64,
    segments: Vec<(u64, u64)>,
    /// Blocks in use at the end: size, frames and stream by address.
    in_use: FxHashMap<u64, (u64, Value, u32)>,
    /// The events before the end.
    history: Value,
}

impl Default for State {
    fn default() -> Self {
        Self { reserved_bytes: 0, segments: Vec::new(), in_use: FxHashMap::default(), history: Value::Nothing }
    }
}

/// What may still be made of a file, so that a file with the same things again and again ends.
struct Room {
    /// Things in the dictionaries of segments, blocks and events: each takes at least a byte of the file.
    entries: usize,
    /// Bytes of different stacks. Their frames are shared, so these may be many times those of the file.
    stack_bytes: usize,
    /// Bytes of the stacks of all rows. Stacks are shared, too.
    row_bytes: usize,
    is_exceeded: bool,
}

/// Most bytes of different stacks, and of the stacks of all rows, per byte of a file.
const MOST_STACK_BYTES: usize = 256;
const MOST_ROW_BYTES: usize = 4096;

impl Room {
    fn of(file: &[u8]) -> Self {
        Self {
            entries: file.len(),
            stack_bytes: file.len().saturating_mul(MOST_STACK_BYTES),
            row_bytes: file.len().saturating_mul(MOST_ROW_BYTES),
            is_exceeded: false,
        }
    }

    /// A segment, block or event.
    fn take_entry(&mut self, pickle: &Pickle<'_>, entry: Value) -> Result<(), String> {
        self.is_exceeded |= !taken(&mut self.entries, 1 + pickle.pairs(entry));
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        match self.is_exceeded {
            true => Err("it repeats the same things more often than any job could".to_owned()),
            false => Ok(()),
        }
    }
}

/// Takes from what is left; false if that is not enough.
fn taken(left: &mut usize, wanted: usize) -> bool {
    let is_enough = *left >= wanted;
    *left = left.saturating_sub(wanted);
    is_enough
}

/// What PyTorch says an event is.
#[derive(Clone, Copy, PartialEq)]
enum Action {
    Allocated,
    /// The program gave the block back; it may be used again once the device has done so.
    FreeRequested,
    FreeCompleted,
    SegmentAllocated,
    SegmentFreed,
    /// Memory was mapped into an expandable segment, or taken out.
    Mapped,
    Unmapped,
    Refused,
}

impl Action {
    fn from_text(text: &[u8]) -> Option<Self> {
        Some(match text {
            b"alloc" => Self::Allocated,
            b"free_requested" => Self::FreeRequested,
            b"free_completed" => Self::FreeCompleted,
            b"segment_alloc" => Self::SegmentAllocated,
            b"segment_free" => Self::SegmentFreed,
            b"segment_map" => Self::Mapped,
            b"segment_unmap" => Self::Unmapped,
            b"oom" => Self::Refused,
            _ => return None,
        })
    }
}

/// An event of a history.
#[derive(Clone, Copy)]
struct Event {
    action: Action,
    address: u64,
    size_bytes: u64,
    at_ns: u64,
    frames: Value,
    stream: u32,
}

/// What is said about a block.
#[derive(Clone, Copy)]
struct Described {
    address: u64,
    size_bytes: u64,
    /// Bytes that its pool holds.
    total_bytes: Option<u64>,
    /// Whether it was there before the history.
    shadow: bool,
    stream: u32,
}

impl Described {
    fn at(address: u64, size_bytes: u64) -> Self {
        Self { address, size_bytes, total_bytes: None, shadow: false, stream: 0 }
    }
}

/// Builds the facts.
struct Snapshot<'p, 'f> {
    pickle: &'p Pickle<'f>,
    builder: ProcessBuilder,
    /// Texts of stacks by the list that has their frames.
    stacks: FxHashMap<u32, Vec<u8>>,
    rows: u64,
    room: Room,
    sizes: Sizes,
}

impl Snapshot<'_, '_> {
    fn events(&mut self, history: Value) -> Result<Vec<Event>, String> {
        let pickle = self.pickle;
        for &entry in pickle.elements(history) {
            self.room.take_entry(pickle, entry)?;
        }
        let event = |(index, &entry): (usize, &Value)| {
            let action = Action::from_text(pickle.get(entry, b"action").and_then(|text| pickle.text(text))?)?;
            let at_ns = match pickle.number(entry, b"time_us") {
                Some(microseconds) => microseconds.saturating_mul(1_000),
                None => (index as u64 + 1) * NANOSECONDS_PER_EVENT,
            };
            // Refusals have the free memory of the device in place of an address.
            let address = pickle.number(entry, b"addr").unwrap_or(0);
            let size_bytes = pickle.number(entry, b"size").unwrap_or(0);
            let frames = pickle.get(entry, b"frames").unwrap_or(Value::Nothing);
            Some(Event { action, address, size_bytes, at_ns, frames, stream: stream_of(pickle, entry) })
        };
        Ok(pickle.elements(history).iter().enumerate().filter_map(event).collect())
    }

    fn take_device(&mut self, device: Device, state: &State, events: &[Event], first_ns: u64) {
        let before = Before::of(events, state, self.sizes);
        let mut reserved_bytes = before.reserved_bytes;
        for &(address, size_bytes) in &before.segments {
            let block = Described { shadow: true, ..Described::at(address, size_bytes) };
            self.block(first_ns, Pool::Hal, device, block, Some(Value::Nothing));
        }
        for &(address, size_bytes, frames, stream) in &before.blocks {
            let total_bytes = Some(reserved_bytes);
            let block = Described { total_bytes, shadow: true, stream, ..Described::at(address, size_bytes) };
            self.block(first_ns, Pool::PytorchCaching, device, block, Some(frames));
        }
        self.reserved(first_ns, device, reserved_bytes);
        for (index, event) in events.iter().enumerate() {
            let place = Described::at(event.address, event.size_bytes);
            match event.action {
                Action::Allocated => {
                    // The sizes of blocks are known exactly for those that are in use at the end.
                    let size_bytes = match before.alive_at_end.get(&index) {
                        Some(&size_bytes) => size_bytes,
                        None => self.sizes.of_block(event.size_bytes),
                    };
                    let (total_bytes, stream) = (Some(reserved_bytes), event.stream);
                    let block = Described { total_bytes, stream, ..Described::at(event.address, size_bytes) };
                    self.block(event.at_ns, Pool::PytorchCaching, device, block, Some(event.frames));
                }
                Action::FreeRequested | Action::FreeCompleted if before.frees.contains(&index) => {
                    let block = Described { total_bytes: Some(reserved_bytes), ..place };
                    self.block(event.at_ns, Pool::PytorchCaching, device, block, None);
                }
                Action::FreeRequested | Action::FreeCompleted => {}
                Action::SegmentAllocated => {
                    reserved_bytes = reserved_bytes.saturating_add(event.size_bytes);
                    self.block(event.at_ns, Pool::Hal, device, place, Some(event.frames));
                    self.reserved(event.at_ns, device, reserved_bytes);
                }
                Action::SegmentFreed => {
                    reserved_bytes = reserved_bytes.saturating_sub(event.size_bytes);
                    self.block(event.at_ns, Pool::Hal, device, place, None);
                    self.reserved(event.at_ns, device, reserved_bytes);
                }
                Action::Mapped => {
                    reserved_bytes = reserved_bytes.saturating_add(event.size_bytes);
                    self.reserved(event.at_ns, device, reserved_bytes);
                }
                Action::Unmapped => {
                    reserved_bytes = reserved_bytes.saturating_sub(event.size_bytes);
                    self.reserved(event.at_ns, device, reserved_bytes);
                }
                Action::Refused => {
                    let properties = BlockProperties { device, ..BlockProperties::from_driver_flag(1 << 10) };
                    let meaning = Meaning::AllocationFailed { properties, size_bytes: event.size_bytes, flag: 0 };
                    self.row(event.at_ns, event.frames, meaning);
                }
            }
        }
    }

    /// A block begins if its frames are given, else it ends.
    fn block(&mut self, at_ns: u64, pool: Pool, device: Device, described: Described, frames: Option<Value>) {
        let properties = match pool {
            Pool::Hal => BlockProperties { device, ..BlockProperties::from_driver_flag(1 << 10) },
            pool => BlockProperties::framework(pool, device),
        };
        let block = BlockRow {
            properties,
            address: described.address,
            size_bytes: described.size_bytes,
            shadow: described.shadow,
            freed: frames.is_none(),
            total_bytes: described.total_bytes,
            process_used_bytes: None,
            device_used_bytes: None,
            owner: Vec::new(),
            stream: described.stream,
        };
        match frames {
            Some(frames) => self.row(at_ns, frames, Meaning::Allocation(block)),
            None => self.row(at_ns, Value::Nothing, Meaning::Free(block)),
        }
    }

    /// How much memory PyTorch holds from now on.
    fn reserved(&mut self, timestamp_ns: u64, device: Device, size_bytes: u64) {
        self.rows += 1;
        let row = Row { id: self.rows, timestamp_ns, ..Row::default() };
        self.builder.add_heap(&row, BlockProperties::framework(Pool::PytorchCaching, device), size_bytes);
    }

    fn row(&mut self, timestamp_ns: u64, frames: Value, meaning: Meaning<'_>) {
        if self.room.is_exceeded {
            return;
        }
        self.rows += 1;
        let (pickle, room) = (self.pickle, &mut self.room);
        let python_stack: &[u8] = match frames {
            Value::List(number) => self.stacks.entry(number).or_insert_with(|| stack_text(pickle, frames, room)),
            _ => b"",
        };
        room.is_exceeded |= !taken(&mut room.row_bytes, python_stack.len());
        let row = Row { id: self.rows, timestamp_ns, process_id: Some(0), python_stack, ..Row::default() };
        self.builder.add(&row, meaning);
    }
}

/// Frames as dump files write them, innermost first: `file(line): function`.
fn stack_text(pickle: &Pickle<'_>, frames: Value, room: &mut Room) -> Vec<u8> {
    let mut text = Vec::new();
    for &frame in pickle.elements(frames) {
        let before = text.len();
        let part = |key: &[u8]| pickle.get(frame, key).and_then(|value| pickle.text(value)).unwrap_or(b"");
        let line = pickle.number(frame, b"line").unwrap_or(0);
        text.extend_from_slice(part(b"filename"));
        text.extend_from_slice(format!("({line}): ").as_bytes());
        text.extend_from_slice(part(b"name"));
        text.push(b'\n');
        let cost = text.len() - before + pickle.pairs(frame);
        if !taken(&mut room.stack_bytes, cost) {
            room.is_exceeded = true;
            break;
        }
    }
    text
}

/// What the history and the end together say about what was before.
struct Before {
    reserved_bytes: u64,
    segments: Vec<(u64, u64)>,
    /// Address, size, frames and stream of blocks.
    blocks: Vec<(u64, u64, Value, u32)>,
    /// Sizes of blocks that are in use at the end, by the event that allocated them.
    alive_at_end: FxHashMap<usize, u64>,
    /// Events that end a block; of the two that a block has, one does.
    frees: rustc_hash::FxHashSet<usize>,
}

impl Before {
    fn of(events: &[Event], state: &State, sizes: Sizes) -> Self {
        let mut before = Self {
            reserved_bytes: state.reserved_bytes,
            segments: Vec::new(),
            blocks: Vec::new(),
            alive_at_end: FxHashMap::default(),
            frees: rustc_hash::FxHashSet::default(),
        };
        // The event that allocated what is at an address; nothing if it was freed in the history.
        let mut at_address: FxHashMap<u64, Option<usize>> = FxHashMap::default();
        let mut segment_at: FxHashMap<u64, bool> = FxHashMap::default();
        let mut change_bytes = 0i128;
        for (index, event) in events.iter().enumerate() {
            match event.action {
                Action::Allocated => {
                    at_address.insert(event.address, Some(index));
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    match at_address.get(&event.address) {
                        Some(None) if event.action == Action::FreeCompleted => continue,
                        Some(_) => {}
                        None => {
                            let size_bytes = sizes.of_block(event.size_bytes);
                            before.blocks.push((event.address, size_bytes, Value::Nothing, event.stream));
                        }
                    }
                    at_address.insert(event.address, None);
                    before.frees.insert(index);
                }
                Action::SegmentAllocated | Action::Mapped => change_bytes += i128::from(event.size_bytes),
                Action::SegmentFreed | Action::Unmapped => change_bytes -= i128::from(event.size_bytes),
                Action::Refused => {}
            }
            match event.action {
                Action::SegmentAllocated => {
                    segment_at.insert(event.address, true);
                }
                Action::SegmentFreed if segment_at.insert(event.address, false).is_none() => {
                    before.segments.push((event.address, event.size_bytes));
                }
                _ => {}
            }
        }
        before.reserved_bytes = u64::try_from(i128::from(state.reserved_bytes) - change_bytes).unwrap_or(0);
        for (&address, &(size_bytes, frames, stream)) in &state.in_use {
            match at_address.get(&address) {
                Some(Some(index)) => {
                    before.alive_at_end.insert(*index, size_bytes);
                }
                _ => before.blocks.push((address, size_bytes, frames, stream)),
            }
        }
        let maps = events.iter().any(|event| matches!(event.action, Action::Mapped | Action::Unmapped));
        if !maps {
            let unknown = state.segments.iter().filter(|(address, _)| !segment_at.contains_key(address));
            before.segments.extend(unknown);
        }
        before.blocks.sort_unstable_by_key(|(address, ..)| *address);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pickle whose root is a dictionary with these lists.
    fn snapshot(segments: &[u8], traces: &[u8]) -> Vec<u8> {
        let text = |text: &[u8]| [&[0x8c, text.len() as u8], text].concat();
        [b"\x80\x04}(", &text(b"segments")[..], segments, &text(b"device_traces"), traces, b"u."].concat()
    }

    /// A list with the same thing many times.
    fn many(thing: &[u8], times: usize) -> Vec<u8> {
        [b"](", thing, b"\x94", &b"h\x00".repeat(times - 1), b"e"].concat()
    }

    /// The same for things that have lists with the same thing in them.
    fn many_outer(thing: &[u8], times: usize) -> Vec<u8> {
        [b"](", thing, b"\x94", &b"h\x01".repeat(times - 1), b"e"].concat()
    }

    fn refusal(file: &[u8]) -> Option<String> {
        read(file).err()
    }

    #[test]
    fn the_same_things_again_and_again_are_refused() {
        let block = b"}(\x8c\x04sizeK\x08\x8c\x05state\x8c\x10active_allocatedu";
        let segment = |blocks: &[u8]| {
            [b"}(\x8c\x06deviceK\x00\x8c\x0atotal_sizeK\x09\x8c\x07addressK\x01\x8c\x06blocks", blocks, b"u"].concat()
        };
        let honest = snapshot(&many_outer(&segment(&many(block, 1)), 1), b"]");
        assert_eq!(refusal(&honest), None);
        let said = "it repeats the same things more often than any job could";
        let blocks = snapshot(&many_outer(&segment(&many(block, 30_000)), 30_000), b"]");
        assert_eq!(refusal(&blocks).as_deref(), Some(said), "a billion blocks in {} bytes", blocks.len());

        let frame = b"}(\x8c\x08filename\x8c\x04a.py\x8c\x04lineK\x07\x8c\x04name\x8c\x01fu";
        let event = |frames: &[u8]| {
            [b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01\x8c\x06frames", frames, b"u"].concat()
        };
        let history = |events: &[u8]| snapshot(b"]", &[b"](", events, b"e"].concat());
        assert_eq!(refusal(&history(&many_outer(&event(&many(frame, 1)), 1))), None);
        let events = history(&many_outer(&event(&many(frame, 30_000)), 30_000));
        assert_eq!(refusal(&events).as_deref(), Some(said), "a billion frames in {} bytes", events.len());
        let large = [b"}(\x8c\x08filename", &b"X\x00\x00\x04\x00"[..], &[b'a'; 0x40000], b"u"].concat();
        let long_names = history(&many_outer(&event(&many(&large, 100_000)), 1));
        assert_eq!(refusal(&long_names).as_deref(), Some(said), "26 GB of names in {} bytes", long_names.len());
    }
}
