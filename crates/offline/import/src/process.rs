//! The facts of one process, brought into time order.
//!
//! Writers of dump files write the rows of a block when it ends, so rows come in any order; they are
//! kept in compact form and sorted. What a file only hints at is restored here: range ids, the pool of
//! frees whose rows name it less exactly than the allocation's, heaps, and the difference between a
//! block that was freed and one that was closed because the process ended.

use msmemscope_dump::row::{Row, decimal};
use msmemscope_event::{
    AccessKind, AllocationInterface, BlockProperties, CodeId, Device, Fact, Framework, KernelPhase, Pool,
    ProcessInfoKey, Record, RecordingState, SnapshotNumbers, StackId, StringId, SystemEvent,
};
use msmemscope_timeline::{FactSource, FactStream};
use msmemscope_trace::Definitions;
use rustc_hash::FxHashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::interpret::{BlockRow, Meaning};

/// What the driver returns when memory has run out.
const OUT_OF_MEMORY: i64 = 6;
/// Address under which the heap of a pool is registered again and again.
const IMPORTED_HEAP: u64 = 1;

/// One stored fact; ids refer to the definitions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stored {
    Allocation { properties: u32, owner: u32, stream: u32, address: u64, size_bytes: u64 },
    Free { properties: u32, address: u64 },
    Heap { properties: u32, size_bytes: u64 },
    Card { device: Device, process_bytes: u64, used_bytes: u64, total_bytes: u64 },
    Access { access: u32 },
    Operator { framework: Framework, begins: bool, device: Device, name: StringId, detail: StringId },
    Kernel { phase: KernelPhase, device: Device, name: StringId, stream_id: u32, task_id: u32, detail: StringId },
    Mark { device: Device, message: StringId },
    RangeBegin { device: Device, range_id: u32, message: StringId },
    RangeEnd { device: Device, range_id: u32, message: StringId },
    System { event: SystemEvent },
    Recording { state: RecordingState },
    Step { device: Device, number: u64 },
    Snapshot { device: Device, snapshot: u32 },
    AllocationFailed { properties: u32, size_bytes: u64, flag: u64 },
}

/// An access; kept apart because it is larger than everything else.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StoredAccess {
    kind: AccessKind,
    framework: Framework,
    device: Device,
    operator: StringId,
    element_type: StringId,
    shape: StringId,
    format: StringId,
    address: u64,
    size_bytes: u64,
}

/// A fact with when and where.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StoredRecord {
    timestamp_ns: u64,
    row_id: u64,
    thread_id: u32,
    /// String ids of the stack texts.
    python_stack: u32,
    native_stack: u32,
    /// Orders facts of one row and of one moment.
    rank: Rank,
    shadow: bool,
    fact: Stored,
}

/// Order of facts that have the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Blocks alive before recording began are told at the start.
    Before,
    Row,
}

/// Facts of one process in time order.
#[derive(Debug)]
struct Facts {
    records: Vec<StoredRecord>,
    accesses: Vec<StoredAccess>,
    snapshots: Vec<(StringId, SnapshotNumbers)>,
    strings: Strings,
}

/// Interned texts.
#[derive(Debug, Default)]
struct Strings {
    ids: FxHashMap<Box<[u8]>, u32>,
    texts: Vec<Box<[u8]>>,
}

impl Strings {
    /// The id of a text; nothing and `N/A` have none.
    fn intern(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        self.texts.push(text.into());
        let id = self.texts.len() as u32;
        self.ids.insert(text.into(), id);
        id
    }

    fn get(&self, id: u32) -> &[u8] {
        (id as usize).checked_sub(1).and_then(|index| self.texts.get(index)).map_or(b"", |text| text)
    }
}

/// Collects the rows of one process.
#[derive(Debug)]
pub(crate) struct ProcessBuilder {
    process_id: u32,
    is_snapshot: bool,
    /// What tells the framework how to allocate, if the file says it.
    allocator_settings: Option<String>,
    facts: Facts,
    devices: Vec<Device>,
}

impl ProcessBuilder {
    pub(crate) fn new(process_id: u32) -> Self {
        let facts =
            Facts { records: Vec::new(), accesses: Vec::new(), snapshots: Vec::new(), strings: Strings::default() };
        Self { process_id, is_snapshot: false, allocator_settings: None, facts, devices: Vec::new() }
    }

    /// Of what another tool saw at one moment, of a process that it does not name.
    pub(crate) fn of_snapshot() -> Self {
        Self { is_snapshot: true, ..Self::new(0) }
    }

    /// The variables that tell the framework how to allocate, `NAME=value` each on a line.
    pub(crate) fn set_allocator_settings(&mut self, settings: String) {
        self.allocator_settings = Some(settings);
    }

    /// Takes in a row. Returns false if it says nothing new.
    pub(crate) fn add(&mut self, row: &Row<'_>, meaning: Meaning<'_>) -> bool {
        let strings = &mut self.facts.strings;
        let mut shadow = false;
        let mut rank = Rank::Row;
        let mut extra = [None, None];
        let mut named_device = Device::Unknown;
        let fact = match meaning {
            Meaning::Allocation(block) => {
                shadow = block.shadow;
                rank = if shadow { Rank::Before } else { Rank::Row };
                named_device = block.properties.device;
                extra = Self::around(&block);
                Stored::Allocation {
                    properties: block.properties.pack(),
                    owner: strings.intern(&block.owner),
                    stream: block.stream,
                    address: block.address,
                    size_bytes: block.size_bytes,
                }
            }
            Meaning::Free(block) => {
                shadow = block.shadow && !block.freed;
                named_device = block.properties.device;
                extra = Self::around(&block);
                Stored::Free { properties: block.properties.pack(), address: block.address }
            }
            Meaning::Access { kind, framework, device, operator, address, size_bytes, details } => {
                named_device = device;
                self.facts.accesses.push(StoredAccess {
                    kind,
                    framework,
                    device,
                    operator: StringId(strings.intern(operator)),
                    element_type: StringId(strings.intern(&details.element_type)),
                    shape: StringId(strings.intern(&details.shape)),
                    format: StringId(strings.intern(&details.format)),
                    address,
                    size_bytes,
                });
                Stored::Access { access: self.facts.accesses.len() as u32 - 1 }
            }
            Meaning::Operator { framework, begins, device, name, detail } => {
                named_device = device;
                let (name, detail) = (StringId(strings.intern(name)), StringId(strings.intern(&detail)));
                Stored::Operator { framework, begins, device, name, detail }
            }
            Meaning::Kernel { phase, device, name, stream_id, task_id, detail } => {
                named_device = device;
                let (name, detail) = (StringId(strings.intern(name)), StringId(strings.intern(&detail)));
                Stored::Kernel { phase, device, name, stream_id, task_id, detail }
            }
            Meaning::Mark { device, message } => {
                named_device = device;
                Stored::Mark { device, message: StringId(strings.intern(message)) }
            }
            Meaning::RangeBegin { device, message } => {
                named_device = device;
                Stored::RangeBegin { device, range_id: 0, message: StringId(strings.intern(message)) }
            }
            Meaning::RangeEnd { device, message } => {
                Stored::RangeEnd { device, range_id: 0, message: StringId(strings.intern(message)) }
            }
            Meaning::System { event } => Stored::System { event },
            Meaning::RecordingStarts { free_and_total_bytes } => {
                extra[0] = free_and_total_bytes.map(|(free_bytes, total_bytes)| Stored::Card {
                    device: Device::Npu(0),
                    process_bytes: 0,
                    used_bytes: total_bytes.saturating_sub(free_bytes),
                    total_bytes,
                });
                Stored::Recording { state: RecordingState::On }
            }
            Meaning::RecordingStops => Stored::Recording { state: RecordingState::Shadow },
            Meaning::Step { device, number } => Stored::Step { device, number },
            Meaning::Snapshot { device, name, numbers } => {
                self.facts.snapshots.push((StringId(strings.intern(name)), *numbers));
                Stored::Snapshot { device, snapshot: self.facts.snapshots.len() as u32 - 1 }
            }
            Meaning::AllocationFailed { properties, size_bytes, flag } => {
                Stored::AllocationFailed { properties: properties.pack(), size_bytes, flag }
            }
            Meaning::Derived => return false,
        };
        if named_device != Device::Unknown && !self.devices.contains(&named_device) {
            self.devices.push(named_device);
        }
        let record = StoredRecord {
            timestamp_ns: row.timestamp_ns,
            row_id: row.id,
            thread_id: row.thread_id.unwrap_or(0),
            python_stack: strings.intern(stack_text(row.python_stack)),
            native_stack: strings.intern(stack_text(row.native_stack)),
            rank,
            shadow,
            fact,
        };
        for fact in extra.into_iter().flatten() {
            self.facts.records.push(StoredRecord { fact, python_stack: 0, native_stack: 0, ..record });
        }
        self.facts.records.push(record);
        true
    }

    /// Takes in how much memory a pool holds from a moment on, where that is said apart from blocks.
    pub(crate) fn add_heap(&mut self, row: &Row<'_>, properties: BlockProperties, size_bytes: u64) {
        self.facts.records.push(StoredRecord {
            timestamp_ns: row.timestamp_ns,
            row_id: row.id,
            thread_id: row.thread_id.unwrap_or(0),
            python_stack: 0,
            native_stack: 0,
            rank: Rank::Row,
            shadow: false,
            fact: Stored::Heap { properties: properties.pack(), size_bytes },
        });
    }

    /// Facts a block row implies besides the block itself.
    fn around(block: &BlockRow) -> [Option<Stored>; 2] {
        let BlockProperties { pool, device, .. } = block.properties;
        let heap = match (pool, block.total_bytes) {
            (Pool::PytorchCaching | Pool::PytorchWorkspace | Pool::Mindspore | Pool::Atb, Some(size_bytes)) => {
                Some(Stored::Heap { properties: block.properties.pack(), size_bytes })
            }
            _ => None,
        };
        let card = match (block.process_used_bytes, block.device_used_bytes) {
            (Some(process_bytes), Some(used_bytes)) if device != Device::Host => {
                Some(Stored::Card { device, process_bytes, used_bytes, total_bytes: 0 })
            }
            _ => None,
        };
        [heap, card]
    }

    /// Brings the facts into order and restores what the rows leave out. Returns the process and how
    /// many rows turned out to repeat others.
    pub(crate) fn finish(mut self, path: PathBuf) -> (ImportedProcess, u64) {
        self.facts.records.sort_by_key(|record| (record.timestamp_ns, record.rank, record.row_id));
        let before = self.facts.records.len();
        // Rows without a device are copied into the file of every device.
        self.facts.records.dedup();
        let mut rows_derived = (before - self.facts.records.len()) as u64;
        rows_derived += self.drop_closing_frees();
        self.restore();
        let (mut allocation_rows, mut allocation_owners) = (Vec::new(), Vec::new());
        for record in &self.facts.records {
            if let Stored::Allocation { owner, .. } = record.fact {
                allocation_rows.push(record.row_id);
                allocation_owners.push(owner);
            }
        }
        let definitions = define(&self.facts, self.allocator_settings.as_deref());
        let process = ImportedProcess {
            path,
            process_id: self.process_id,
            is_snapshot: self.is_snapshot,
            facts: Arc::new(self.facts),
            definitions,
            devices: self.devices,
            allocation_rows,
            allocation_owners,
        };
        (process, rows_derived)
    }

    /// Blocks alive at the end of a process get closing rows there. They are not frees.
    fn drop_closing_frees(&mut self) -> u64 {
        let records = &mut self.facts.records;
        let is_closing = |record: &StoredRecord| record.shadow && matches!(record.fact, Stored::Free { .. });
        let says_nothing = |record: &StoredRecord| {
            matches!(record.fact, Stored::Heap { .. } | Stored::Card { .. } | Stored::System { .. })
        };
        let tail =
            records.iter().rposition(|record| !is_closing(record) && !says_nothing(record)).map_or(0, |at| at + 1);
        let before = records.len();
        let mut position = 0;
        records.retain(|record| {
            position += 1;
            position <= tail || !is_closing(record)
        });
        (before - records.len()) as u64
    }

    fn restore(&mut self) {
        let mut open_ranges: Vec<OpenRange> = Vec::new();
        let mut ranges = 0;
        let mut special: FxHashMap<(Device, u64, SpaceText), BlockProperties> = FxHashMap::default();
        let mut totals: FxHashMap<(Pool, Device), u64> = FxHashMap::default();
        let mut cards: FxHashMap<Device, (u64, u64)> = FxHashMap::default();
        let mut atb_devices: Vec<Device> = Vec::new();
        let mut missing_heaps = Vec::new();
        let mut needs_shadow_begin = false;
        let mut recording_seen = false;
        for (index, record) in self.facts.records.iter_mut().enumerate() {
            match &mut record.fact {
                Stored::Allocation { properties, address, .. } => {
                    needs_shadow_begin |= record.shadow && !recording_seen;
                    let properties = BlockProperties::unpack(*properties);
                    let key = (properties.device, *address, SpaceText::of(&properties));
                    if is_special(&properties) {
                        special.insert(key, properties);
                    } else if !special.is_empty() {
                        special.remove(&key);
                    }
                    if properties.pool == Pool::Atb && !atb_devices.contains(&properties.device) {
                        atb_devices.push(properties.device);
                        missing_heaps.push((index, properties));
                    }
                }
                Stored::Free { properties: packed, address } if !special.is_empty() => {
                    let properties = BlockProperties::unpack(*packed);
                    let key = (properties.device, *address, SpaceText::of(&properties));
                    if let Some(allocated) = special.remove(&key) {
                        *packed = allocated.pack();
                    }
                }
                Stored::Heap { properties, size_bytes } => {
                    let properties = BlockProperties::unpack(*properties);
                    let known = totals.insert((properties.pool, properties.device), *size_bytes);
                    if properties.pool == Pool::Atb && !atb_devices.contains(&properties.device) {
                        atb_devices.push(properties.device);
                    }
                    if known == Some(*size_bytes) {
                        record.row_id = DROPPED;
                    }
                }
                Stored::Card { device, process_bytes, used_bytes, .. } => {
                    let sample = (*process_bytes, *used_bytes);
                    let repeats = cards.insert(*device, sample) == Some(sample);
                    record.row_id = if repeats { DROPPED } else { record.row_id };
                }
                Stored::RangeBegin { device, range_id, message } => {
                    ranges += 1;
                    *range_id = ranges;
                    let open =
                        OpenRange { thread_id: record.thread_id, device: *device, range_id: ranges, message: *message };
                    open_ranges.push(open);
                }
                Stored::RangeEnd { device, range_id, message } => {
                    *range_id = take_range(&mut open_ranges, record.thread_id, *device, *message);
                }
                Stored::Recording { .. } => recording_seen = true,
                _ => {}
            }
        }
        for (index, properties) in missing_heaps.into_iter().rev() {
            let at = self.facts.records[index];
            let heap = Stored::Heap { properties: properties.pack(), size_bytes: 0 };
            self.facts.records.insert(index, StoredRecord { fact: heap, python_stack: 0, native_stack: 0, ..at });
        }
        self.facts.records.retain(|record| {
            record.row_id != DROPPED || !matches!(record.fact, Stored::Heap { .. } | Stored::Card { .. })
        });
        if needs_shadow_begin && let Some(&first) = self.facts.records.first() {
            let state = Stored::Recording { state: RecordingState::Shadow };
            self.facts.records.insert(0, StoredRecord { fact: state, python_stack: 0, native_stack: 0, ..first });
        }
    }
}

/// Marks facts that repeat the former state.
const DROPPED: u64 = u64::MAX;

/// Types whose rows share a spelling, so that a free row may mean any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SpaceText {
    Driver,
    Pytorch,
    Other,
}

impl SpaceText {
    fn of(properties: &BlockProperties) -> Self {
        match properties.pool {
            Pool::Hal | Pool::HostPinned => SpaceText::Driver,
            Pool::PytorchCaching | Pool::PytorchWorkspace => SpaceText::Pytorch,
            _ => SpaceText::Other,
        }
    }
}

/// Whether the rows of its frees say less than the row of the allocation.
fn is_special(properties: &BlockProperties) -> bool {
    properties.pool == Pool::PytorchWorkspace
        || (matches!(properties.pool, Pool::Hal | Pool::HostPinned)
            && properties.interface == AllocationInterface::Create)
}

struct OpenRange {
    thread_id: u32,
    device: Device,
    range_id: u32,
    message: StringId,
}

/// Rows of range ends carry no id. The text decides if it names an open range, then the thread, then
/// the device; the innermost fitting range ends.
fn take_range(open: &mut Vec<OpenRange>, thread_id: u32, device: Device, message: StringId) -> u32 {
    let found = open
        .iter()
        .rposition(|range| message.is_some() && range.message == message && range.thread_id == thread_id)
        .or_else(|| open.iter().rposition(|range| message.is_some() && range.message == message))
        .or_else(|| open.iter().rposition(|range| range.thread_id == thread_id))
        .or_else(|| open.iter().rposition(|range| range.device == device));
    found.map_or(0, |position| open.remove(position).range_id)
}

/// A stack cell without decoration; texts that mean "none" are none.
fn stack_text(cell: &[u8]) -> &[u8] {
    let text = cell.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")).unwrap_or(cell).trim_ascii_end();
    match text {
        b"NA" | b"N/A" => b"",
        text => text,
    }
}

/// Definitions of all texts; Python stacks also as frames.
fn define(facts: &Facts, allocator_settings: Option<&str>) -> Definitions {
    let mut definitions = Definitions::default();
    let mut learn = |fact: Fact<'_>| {
        definitions.learn(&Record {
            monotonic_ns: 0,
            thread_id: 0,
            native_stack: StackId::NONE,
            python_stack: StackId::NONE,
            fact,
        });
    };
    if let Some(settings) = allocator_settings {
        learn(Fact::ProcessInfo { key: ProcessInfoKey::AllocatorSettings, text: settings.as_bytes() });
    }
    for (index, text) in facts.strings.texts.iter().enumerate() {
        learn(Fact::DefineString { id: StringId(index as u32 + 1), text });
    }
    let mut next_string = facts.strings.texts.len() as u32;
    let mut codes: FxHashMap<&[u8], u32> = FxHashMap::default();
    let mut defined = rustc_hash::FxHashSet::default();
    for record in &facts.records {
        if record.python_stack == 0 || !defined.insert(record.python_stack) {
            continue;
        }
        let mut frames = Vec::new();
        for line in facts.strings.get(record.python_stack).split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
        {
            let next_code = codes.len() as u32 + 1;
            let code = *codes.entry(line).or_insert(next_code);
            if code == next_code {
                let frame = parse_python_frame(line);
                let mut string = |text: &[u8]| {
                    next_string += 1;
                    learn(Fact::DefineString { id: StringId(next_string), text });
                    StringId(next_string)
                };
                let (name, file) = (string(frame.name), string(frame.file));
                let first_line = frame.line;
                let id = CodeId(code);
                learn(Fact::DefineCode { id, name, file, first_line, python_version: 0, line_table: &[] });
            }
            frames.extend_from_slice(&code.to_le_bytes());
            frames.extend_from_slice(&0u32.to_le_bytes());
        }
        learn(Fact::DefinePythonStack { id: StackId(record.python_stack), frames: &frames });
    }
    definitions
}

struct FrameText<'a> {
    file: &'a [u8],
    line: u32,
    name: &'a [u8],
}

/// Reads `file(line): function`; a line that looks different is all name.
fn parse_python_frame(text: &[u8]) -> FrameText<'_> {
    let parse = || {
        let separator = memchr::memmem::rfind(text, b"): ")?;
        let open = memchr::memrchr(b'(', &text[..separator])?;
        let line = decimal(&text[open + 1..separator])?;
        Some(FrameText { file: &text[..open], line: u32::try_from(line).ok()?, name: &text[separator + 3..] })
    };
    parse().unwrap_or(FrameText { file: b"", line: 0, name: text })
}

/// What a dump says about one process.
#[derive(Debug)]
pub struct ImportedProcess {
    path: PathBuf,
    process_id: u32,
    is_snapshot: bool,
    facts: Arc<Facts>,
    definitions: Definitions,
    devices: Vec<Device>,
    allocation_rows: Vec<u64>,
    allocation_owners: Vec<u32>,
}

impl ImportedProcess {
    /// Whether it is what another tool saw at one moment.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.is_snapshot
    }

    /// The file that it comes from; of several, the first.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The owner a file gives to an allocation (numbered as the timeline numbers them).
    pub fn owner(&self, allocation_id: u64) -> Option<&str> {
        let index = usize::try_from(allocation_id).ok()?.checked_sub(1)?;
        let text = self.facts.strings.get(*self.allocation_owners.get(index)?);
        std::str::from_utf8(text).ok().filter(|text| !text.is_empty())
    }

    /// The owner with a number.
    pub fn owner_text(&self, owner_id: u32) -> Option<&str> {
        std::str::from_utf8(self.facts.strings.get(owner_id)).ok().filter(|text| !text.is_empty())
    }

    /// A number that is the same for all allocations of one owner; zero without owner.
    pub fn owner_id(&self, allocation_id: u64) -> u32 {
        let index = usize::try_from(allocation_id).ok().and_then(|id| id.checked_sub(1));
        index.and_then(|index| self.allocation_owners.get(index)).copied().unwrap_or(0)
    }

    /// Whether the file names owners at all.
    pub fn has_owners(&self) -> bool {
        self.allocation_owners.iter().any(|&owner| owner != 0)
    }

    /// The `ID` cell of the row of an allocation (numbered as the timeline numbers them).
    pub fn row_id(&self, allocation_id: u64) -> Option<u64> {
        self.allocation_rows.get(usize::try_from(allocation_id).ok()?.checked_sub(1)?).copied()
    }

    /// The text of a stack as the file has it, frames innermost first, one per line.
    pub fn stack_text(&self, stack: StackId) -> Option<&str> {
        std::str::from_utf8(self.facts.strings.get(stack.0)).ok().filter(|text| !text.is_empty())
    }

    /// How many facts there are.
    pub fn fact_count(&self) -> usize {
        self.facts.records.len()
    }
}

impl FactSource for ImportedProcess {
    type Stream = ImportedStream;

    fn process_id(&self) -> u32 {
        self.process_id
    }

    fn wall_offset_ns(&self) -> i64 {
        0
    }

    fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    fn devices(&self) -> Vec<Device> {
        self.devices.clone()
    }

    fn end_monotonic_ns(&self) -> u64 {
        self.facts.records.last().map_or(0, |record| record.timestamp_ns)
    }

    fn facts(&self) -> ImportedStream {
        ImportedStream { facts: Arc::clone(&self.facts), position: 0 }
    }
}

/// One pass over the facts of an imported process.
#[derive(Debug)]
pub struct ImportedStream {
    facts: Arc<Facts>,
    position: usize,
}

impl FactStream for ImportedStream {
    #[inline]
    fn next(&mut self) -> Option<Record<'_>> {
        let facts = &*self.facts;
        let record = facts.records.get(self.position)?;
        self.position += 1;
        let text = |id: StringId| facts.strings.get(id.0);
        let fact = match record.fact {
            Stored::Allocation { properties, address, size_bytes, stream, .. } => {
                let properties = BlockProperties::unpack(properties);
                match stream {
                    0 => Fact::Allocation { properties, address, size_bytes },
                    stream => Fact::AllocationOnStream { properties, address, size_bytes, stream },
                }
            }
            Stored::Free { properties, address } => {
                Fact::Free { properties: BlockProperties::unpack(properties), address }
            }
            Stored::Heap { properties, size_bytes } => {
                let properties = BlockProperties::unpack(properties);
                let device = u64::from(properties.device.code());
                Fact::HeapRegistered { properties, address: IMPORTED_HEAP + device, size_bytes }
            }
            Stored::Card { device, process_bytes, used_bytes, total_bytes } => {
                Fact::CardSample { device, used_bytes, process_bytes, total_bytes }
            }
            Stored::Access { access } => {
                let access = facts.accesses[access as usize];
                Fact::Access {
                    kind: access.kind,
                    framework: access.framework,
                    device: access.device,
                    operator: access.operator,
                    address: access.address,
                    size_bytes: access.size_bytes,
                    element_type: access.element_type,
                    shape: access.shape,
                    format: access.format,
                    output_position: 0,
                }
            }
            Stored::Operator { framework, begins: true, device, name, detail } => {
                Fact::OperatorBegin { framework, device, name, detail }
            }
            Stored::Operator { framework, begins: false, device, name, detail } => {
                Fact::OperatorEnd { framework, device, name, detail }
            }
            Stored::Kernel { phase, device, name, stream_id, task_id, detail } => {
                Fact::Kernel { phase, device, name, stream_id, task_id, detail }
            }
            Stored::Mark { device, message } => Fact::Mark { domain: StringId::NONE, device, message: text(message) },
            Stored::RangeBegin { device, range_id, message } => Fact::RangeBegin {
                domain: StringId::NONE,
                device,
                range_id: u64::from(range_id),
                message: text(message),
            },
            Stored::RangeEnd { device, range_id, .. } => {
                Fact::RangeEnd { domain: StringId::NONE, device, range_id: u64::from(range_id) }
            }
            Stored::System { event } => Fact::System { event, device: Device::Unknown, result: 0 },
            Stored::Recording { state } => Fact::Recording { state },
            Stored::Step { device, number } => Fact::Step { device, number },
            Stored::Snapshot { device, snapshot } => {
                let (name, numbers) = facts.snapshots[snapshot as usize];
                Fact::Snapshot { device, name, numbers }
            }
            Stored::AllocationFailed { properties, size_bytes, flag } => Fact::AllocationFailed {
                properties: BlockProperties::unpack(properties),
                size_bytes,
                flag,
                error: OUT_OF_MEMORY,
            },
        };
        Some(Record {
            monotonic_ns: record.timestamp_ns,
            thread_id: record.thread_id,
            native_stack: StackId(record.native_stack),
            python_stack: StackId(record.python_stack),
            fact,
        })
    }

    fn progress(&self) -> (u64, u64) {
        (self.position as u64, self.facts.records.len() as u64)
    }
}
