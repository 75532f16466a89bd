//! The one row type that every table format prints, so that all of them say the same.
//!
//! | Event | Event Type | Name | Attr |
//! |---|---|---|---|
//! | MALLOC, FREE | pool | N/A | `allocation_id`, `addr`, `size`, `shadow:true` with `freed:true` for a FREE before the process end, or else `pinned`, `used`, `total`, `process_used`, `device_used`; MALLOC: `owner`, `inefficient_type`; MALLOC of HAL: `page_type`, `alloc_type` |
//! | ACCESS | READ, WRITE, UNKNOWN | operator | `allocation_id`, `addr`, `size`, `type`, `dtype`, `format`, `shape` |
//! | OP_LAUNCH | ATEN_START, ATEN_END, ATB_START, ATB_END | operator | ATB: `path`, `workspace_ptr`, `workspace_size`; others as recorded |
//! | KERNEL_LAUNCH | KERNEL_LAUNCH, KERNEL_EXECUTE_START, KERNEL_EXECUTE_END, KERNEL_START, KERNEL_END | kernel | `streamId`, `taskId`, or of ATB `path` |
//! | MSTX | Mark, Range_start, Range_end | message | `domain` if it has one |
//! | SYSTEM | ACL_INIT, ACL_FINI, START_TRACE, STOP_TRACE, STEP | N/A or step | |
//! | SYSTEM | ALLOCATION_FAILED, FREE_FAILED | driver function | `func`, `req_size`, `flag` or `addr`, `error` |
//! | SNAPSHOT | SNAPSHOT | name | counters |
//! | OOM_DETAIL | OOM_TRIGGER | OOM_Trigger | `func`, `req_size`, `flag` |
//! | OOM_DETAIL | OOM_RECENT_ALLOC, OOM_TOP_ALLOC | OOM_RecentAlloc, OOM_TopAlloc | `pool`, `ptr`, `size`, `timestamp` |
//!
//! The `Ptr` of an ACCESS is the start of the block, which is how viewers find the block; `addr` is
//! the address that was touched.

use std::borrow::Cow;

use msmemscope_dump::cells::{Cells, Prepared, Value, WrittenRow};
use msmemscope_dump::columns::NOT_AVAILABLE;
use msmemscope_dump::words::{Event, MessageType, OutOfMemoryType, SystemType};
use msmemscope_dump::{keys, words};
use msmemscope_event::{KernelPhase, Pool};
use msmemscope_timeline::event::{BlockEvent, FailureList, OperatorPlace};
use msmemscope_timeline::refusals::OUT_OF_MEMORY_SNAPSHOT;
use msmemscope_timeline::{EventKind, TimelineEvent};
use msmemscope_trace::Definitions;

/// What the driver returns when memory is exhausted.
const OUT_OF_MEMORY: i64 = 6;

/// What is known about blocks only after a whole pass.
pub trait BlockNotes: Sync {
    /// The owner of an allocation.
    fn owner(&self, allocation_id: u64) -> Option<&str>;

    /// In which ways its use is inefficient, joined by commas.
    fn inefficiency(&self, allocation_id: u64) -> Option<&str>;

    /// Events to be told right behind this one: what was alive when memory ran out.
    fn behind(&self, _: &TimelineEvent) -> &[TimelineEvent] {
        &[]
    }

    /// A word for each thing that rows say besides the owner. They name questions, not answers: those change while a
    /// process goes on.
    fn fingerprint(&self) -> String {
        String::new()
    }
}

/// Nothing is known.
pub struct NoNotes;

impl BlockNotes for NoNotes {
    fn owner(&self, _: u64) -> Option<&str> {
        None
    }

    fn inefficiency(&self, _: u64) -> Option<&str> {
        None
    }
}

/// The owner table of the timeline, alone.
impl BlockNotes for msmemscope_timeline::OwnerTable {
    fn owner(&self, allocation_id: u64) -> Option<&str> {
        msmemscope_timeline::OwnerTable::owner(self, allocation_id)
    }

    fn inefficiency(&self, _: u64) -> Option<&str> {
        None
    }
}

/// What all rows of a process share.
#[derive(Clone, Copy)]
pub struct RowContext<'a> {
    /// Process that was recorded.
    pub process_id: u32,
    /// Its strings.
    pub definitions: &'a Definitions,
    /// What is known about its blocks.
    pub notes: &'a dyn BlockNotes,
}

/// One row.
pub struct Row<'a> {
    /// Its cells.
    pub cells: Cells<'a>,
    kind: &'a EventKind,
    context: RowContext<'a>,
}

/// Whether an event appears in the tables at all.
pub fn has_row(event: &TimelineEvent) -> bool {
    !matches!(
        event.kind,
        EventKind::Autograd { .. }
            | EventKind::Module { .. }
            | EventKind::Work { .. }
            | EventKind::Label(_)
            | EventKind::Holder { .. }
            | EventKind::CardSample { .. }
            | EventKind::PoolGaveUp(_)
            | EventKind::Watch(_)
            | EventKind::PythonCall(_)
            | EventKind::Message { .. }
            | EventKind::Snapshot { is_repeated: true, .. }
    )
}

impl<'a> Row<'a> {
    /// The row of an event, without call stacks; nothing for events that have none.
    #[inline]
    pub fn new(id: u64, event: &'a TimelineEvent, context: RowContext<'a>) -> Option<Self> {
        if !has_row(event) {
            return None;
        }
        let (row_event, event_type) = event_and_type(&event.kind)?;
        let pointer = match &event.kind {
            EventKind::Malloc(block) | EventKind::Free(block) => Some(block.address),
            EventKind::Access { block_address, .. } => Some(*block_address),
            _ => None,
        };
        let on_device_side =
            matches!(event.kind, EventKind::Kernel { phase: KernelPhase::ExecuteStart | KernelPhase::ExecuteEnd, .. });
        let cells = Cells {
            id,
            event: row_event,
            event_type,
            name: name(&event.kind, context.definitions),
            timestamp_ns: event.timestamp_ns,
            process_and_thread: (!on_device_side).then_some((context.process_id, event.thread_id)),
            device: event.device,
            pointer,
            python_stack: Prepared::default(),
            native_stack: Prepared::default(),
        };
        Some(Row { cells, kind: &event.kind, context })
    }
}

impl WrittenRow for Row<'_> {
    #[inline]
    fn cells(&self) -> &Cells<'_> {
        &self.cells
    }

    #[inline]
    fn attributes(&self, visit: &mut impl FnMut(&str, Value<'_>)) {
        let text = |id| self.context.definitions.string(id);
        match self.kind {
            EventKind::Malloc(block) => self.block_attributes(block, true, visit),
            EventKind::Free(block) => self.block_attributes(block, false, visit),
            EventKind::Access {
                framework, allocation_id, address, size_bytes, element_type, shape, format, ..
            } => {
                if *allocation_id != 0 {
                    visit(keys::ALLOCATION_ID, Value::Number(*allocation_id));
                }
                visit(keys::ADDRESS, Value::Address(*address));
                visit(keys::SIZE, Value::Number(*size_bytes));
                visit(keys::FRAMEWORK, Value::Text(words::framework_word(*framework)));
                visit(keys::ELEMENT_TYPE, Value::Text(&text(*element_type)));
                if format.is_some() {
                    visit(keys::FORMAT, Value::Text(&text(*format)));
                }
                visit(keys::SHAPE, Value::Text(&text(*shape)));
            }
            EventKind::Operator { detail, place, .. } => {
                place_attributes(place.as_deref(), visit);
                detail_attributes(&text(*detail), visit);
            }
            EventKind::Kernel { phase, stream_id, task_id, detail, place, .. } => {
                place_attributes(place.as_deref(), visit);
                if !matches!(phase, KernelPhase::Start | KernelPhase::End) {
                    visit(keys::STREAM_ID, Value::Number(u64::from(*stream_id)));
                    visit(keys::TASK_ID, Value::Number(u64::from(*task_id)));
                }
                detail_attributes(&text(*detail), visit);
            }
            EventKind::Mark { domain, .. }
            | EventKind::RangeBegin { domain, .. }
            | EventKind::RangeEnd { domain, .. }
                if domain.is_some() =>
            {
                visit(keys::DOMAIN, Value::Text(&text(*domain)));
            }
            EventKind::AclInit { result } | EventKind::AclFinalize { result } if *result != 0 => {
                visit(keys::RESULT, Value::Signed(*result));
            }
            EventKind::StartTrace { card: Some((free_bytes, total_bytes)) } => {
                visit(keys::FREE, Value::Number(*free_bytes));
                visit(keys::TOTAL, Value::Number(*total_bytes));
            }
            EventKind::Snapshot { numbers, .. } | EventKind::SnapshotAtRefusal { numbers } => {
                visit(keys::RESERVED, Value::Number(numbers.reserved_bytes));
                visit(keys::MAXIMUM_RESERVED, Value::Number(numbers.maximum_reserved_bytes));
                visit(keys::ALLOCATED, Value::Number(numbers.allocated_bytes));
                visit(keys::MAXIMUM_ALLOCATED, Value::Number(numbers.maximum_allocated_bytes));
                visit(keys::TOTAL, Value::Number(numbers.total_bytes));
                visit(keys::FREE, Value::Number(numbers.free_bytes));
                let used_bytes = numbers.total_bytes.saturating_sub(numbers.free_bytes);
                visit(keys::DEVICE_RATE, percent(used_bytes, numbers.total_bytes));
                visit(keys::RESERVED_RATE, percent(numbers.allocated_bytes, numbers.reserved_bytes));
            }
            EventKind::AllocationFailed { interface, size_bytes, flag, error } => {
                visit(keys::FUNCTION, Value::Text(words::allocating_function(*interface)));
                visit(keys::REQUESTED_SIZE, Value::Number(*size_bytes));
                visit(keys::FLAG, Value::Number(*flag));
                if *error != OUT_OF_MEMORY {
                    visit(keys::ERROR, Value::Signed(*error));
                }
            }
            EventKind::FreeFailed { interface, address, error } => {
                visit(keys::FUNCTION, Value::Text(words::freeing_function(*interface)));
                visit(keys::ADDRESS, Value::Address(*address));
                visit(keys::ERROR, Value::Signed(*error));
            }
            EventKind::AliveAtFailure { pool, address, size_bytes, allocated_ns, .. } => {
                visit(keys::POOL, Value::Text(pool.event_type()));
                visit(keys::LISTED_POINTER, Value::Address(*address));
                visit(keys::SIZE, Value::Number(*size_bytes));
                visit(keys::LISTED_TIMESTAMP, Value::Number(*allocated_ns));
            }
            _ => {}
        }
    }
}

impl Row<'_> {
    #[inline]
    fn block_attributes(&self, block: &BlockEvent, is_malloc: bool, visit: &mut impl FnMut(&str, Value<'_>)) {
        let pool = block.properties.pool;
        visit(keys::ALLOCATION_ID, Value::Number(block.allocation_id));
        visit(keys::ADDRESS, Value::Address(block.address));
        visit(keys::SIZE, Value::Number(block.size_bytes));
        if pool == Pool::HostPinned && !block.shadow {
            visit(keys::PINNED, Value::Text("true"));
        }
        if block.shadow {
            visit(keys::SHADOW, Value::Text("true"));
            if !is_malloc && !block.alive_at_process_end {
                visit(keys::FREED, Value::Text("true"));
            }
        } else if pool == Pool::HostTensor {
            visit(keys::TOTAL, Value::Number(block.used_bytes));
        } else {
            visit(keys::USED, Value::Number(block.used_bytes));
            if !matches!(pool, Pool::Hal | Pool::HostPinned) {
                visit(keys::TOTAL, Value::Number(block.total_bytes));
            }
            if let Some(card) = block.card {
                visit(keys::PROCESS_USED, Value::Number(card.process_bytes));
                visit(keys::DEVICE_USED, Value::Number(card.device_bytes));
            }
        }
        if !is_malloc {
            return;
        }
        if block.stream != 0 {
            visit(keys::BLOCK_STREAM, Value::Number(u64::from(block.stream)));
        }
        if let Some(owner) = self.context.notes.owner(block.allocation_id) {
            visit(keys::OWNER, Value::Text(owner));
        }
        if let Some(inefficiency) = self.context.notes.inefficiency(block.allocation_id) {
            visit(keys::INEFFICIENT_TYPE, Value::Text(inefficiency));
        }
        if pool == Pool::Hal {
            visit(keys::PAGE_TYPE, Value::Text(block.properties.page_type.name()));
            visit(keys::ALLOCATION_TYPE, Value::Text(block.properties.interface.name()));
        }
    }
}

/// The words of an event as its row says them; nothing for events without a row.
pub fn words_of(kind: &EventKind) -> Option<(&'static str, &'static str)> {
    event_and_type(kind).map(|(event, event_type)| (event.word(), event_type))
}

/// The name of an event as its row says it.
pub fn name_of<'a>(kind: &'a EventKind, definitions: &'a Definitions) -> Cow<'a, str> {
    name(kind, definitions)
}

/// The words of an event; nothing for those without a row.
fn event_and_type(kind: &EventKind) -> Option<(Event, &'static str)> {
    Some(match kind {
        EventKind::Malloc(block) => (Event::Malloc, block.properties.pool.event_type()),
        EventKind::Free(block) => (Event::Free, block.properties.pool.event_type()),
        EventKind::Access { kind, .. } => (Event::Access, words::access_word(*kind)),
        EventKind::Operator { framework, begins, .. } => {
            (Event::OperatorLaunch, words::operator_word((*framework, *begins)))
        }
        EventKind::Kernel { phase, .. } => (Event::KernelLaunch, words::kernel_word(*phase)),
        EventKind::Mark { .. } => (Event::Message, MessageType::Mark.word()),
        EventKind::RangeBegin { .. } => (Event::Message, MessageType::RangeStart.word()),
        EventKind::RangeEnd { .. } => (Event::Message, MessageType::RangeEnd.word()),
        EventKind::AclInit { .. } => (Event::System, SystemType::AclInit.word()),
        EventKind::AclFinalize { .. } => (Event::System, SystemType::AclFinalize.word()),
        EventKind::StartTrace { .. } => (Event::System, SystemType::StartTrace.word()),
        EventKind::StopTrace => (Event::System, SystemType::StopTrace.word()),
        EventKind::StepEnd { .. } => (Event::System, SystemType::Step.word()),
        EventKind::Snapshot { .. } | EventKind::SnapshotAtRefusal { .. } => (Event::Snapshot, words::SNAPSHOT_TYPE),
        EventKind::AllocationFailed { error: OUT_OF_MEMORY, .. } => {
            (Event::OutOfMemory, OutOfMemoryType::Trigger.word())
        }
        EventKind::AllocationFailed { .. } => (Event::System, SystemType::AllocationFailed.word()),
        EventKind::AliveAtFailure { list: FailureList::Recent, .. } => {
            (Event::OutOfMemory, OutOfMemoryType::RecentAllocation.word())
        }
        EventKind::AliveAtFailure { list: FailureList::Largest, .. } => {
            (Event::OutOfMemory, OutOfMemoryType::LargestAllocation.word())
        }
        EventKind::FreeFailed { .. } => (Event::System, SystemType::FreeFailed.word()),
        EventKind::Autograd { .. }
        | EventKind::Module { .. }
        | EventKind::Work { .. }
        | EventKind::Label(_)
        | EventKind::Holder { .. }
        | EventKind::CardSample { .. }
        | EventKind::PoolGaveUp(_)
        | EventKind::Watch(_)
        | EventKind::PythonCall(_)
        | EventKind::Message { .. } => return None,
    })
}

fn name<'a>(kind: &'a EventKind, definitions: &'a Definitions) -> Cow<'a, str> {
    match kind {
        EventKind::Access { operator: id, .. }
        | EventKind::Operator { name: id, .. }
        | EventKind::Kernel { name: id, .. }
        | EventKind::Snapshot { name: id, .. } => definitions.string(*id),
        EventKind::Mark { message, .. } | EventKind::RangeBegin { message, .. } => Cow::Borrowed(message),
        EventKind::RangeEnd { range_id, .. } => Cow::Owned(format!("Range end from id {range_id}")),
        EventKind::StepEnd { number } => Cow::Owned(number.to_string()),
        EventKind::SnapshotAtRefusal { .. } => Cow::Borrowed(OUT_OF_MEMORY_SNAPSHOT),
        EventKind::AllocationFailed { error: OUT_OF_MEMORY, .. } => Cow::Borrowed("OOM_Trigger"),
        EventKind::AllocationFailed { interface, .. } => Cow::Borrowed(words::allocating_function(*interface)),
        EventKind::AliveAtFailure { list: FailureList::Recent, .. } => Cow::Borrowed("OOM_RecentAlloc"),
        EventKind::AliveAtFailure { list: FailureList::Largest, .. } => Cow::Borrowed("OOM_TopAlloc"),
        EventKind::FreeFailed { interface, .. } => Cow::Borrowed(words::freeing_function(*interface)),
        _ => Cow::Borrowed(NOT_AVAILABLE),
    }
}

fn percent(part: u64, whole: u64) -> Value<'static> {
    Value::Percent(if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 })
}

/// Where an operator or kernel of a graph is.
fn place_attributes(place: Option<&OperatorPlace>, visit: &mut impl FnMut(&str, Value<'_>)) {
    let Some(place) = place else { return };
    visit(keys::PATH, Value::Text(&place.path));
    if let Some((address, size_bytes)) = place.workspace {
        visit(keys::WORKSPACE_ADDRESS, Value::Text(&format!("{address:#x}")));
        visit(keys::WORKSPACE_SIZE, Value::Number(size_bytes));
    }
}

/// Splits recorded attributes `key:value,...`. A piece without colon belongs to the value before it.
fn detail_attributes(detail: &str, visit: &mut impl FnMut(&str, Value<'_>)) {
    let mut rest = detail;
    while let Some((key, after_key)) = rest.split_once(':') {
        let mut value_end = after_key.len();
        for (comma, _) in after_key.match_indices(',') {
            let next = &after_key[comma + 1..];
            let key_length = next.find([',', ':']).unwrap_or(next.len());
            if next[key_length..].starts_with(':') {
                value_end = comma;
                break;
            }
        }
        visit(key, Value::Text(&after_key[..value_end]));
        rest = after_key.get(value_end + 1..).unwrap_or("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(detail: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        detail_attributes(detail, &mut |key, value| match value {
            Value::Text(text) => pairs.push((key.to_owned(), text.to_owned())),
            other => panic!("{other:?}"),
        });
        pairs
    }

    #[test]
    fn recorded_attributes_are_split_at_keys_only() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(split("path:0/0_1/op,workspace_ptr:0x1"), [pair("path", "0/0_1/op"), pair("workspace_ptr", "0x1")]);
        assert_eq!(split("shape:[1,5,],format:ND"), [pair("shape", "[1,5,]"), pair("format", "ND")]);
        assert_eq!(split(""), []);
        assert_eq!(split("no colon"), []);
        assert_eq!(split("key:"), [pair("key", "")]);
    }
}
