//! The one row type that every table format prints, so that all of them say the same.
//!
//! | Event | Event Type | Name | Attr |
//! |---|---|---|---|
//! | MALLOC, FREE | pool | N/A | `allocation_id`, `addr`, `size`, `shadow:true` with `freed:true` for a FREE before the process end, or else `pinned`, `used`, `total`, `process_used`, `device_used`; MALLOC: `owner`, `inefficient_type`; MALLOC of HAL: `page_type`, `alloc_type` |
//! | ACCESS | READ, WRITE, UNKNOWN | operator | `allocation_id`, `addr`, `size`, `type`, `dtype`, `format`, `shape` |
//! | OP_LAUNCH | ATEN_START, ATEN_END, ATB_START, ATB_END | operator | as recorded |
//! | KERNEL_LAUNCH | KERNEL_LAUNCH, KERNEL_EXECUTE_START, KERNEL_EXECUTE_END, KERNEL_START, KERNEL_END | kernel | `streamId`, `taskId` or as recorded |
//! | MSTX | Mark, Range_start, Range_end | message | `domain` if it has one |
//! | SYSTEM | ACL_INIT, ACL_FINI, START_TRACE, STOP_TRACE, STEP | N/A or step | |
//! | SYSTEM | ALLOCATION_FAILED, FREE_FAILED | driver function | `func`, `req_size`, `flag` or `addr`, `error` |
//! | SNAPSHOT | SNAPSHOT | name | counters |
//! | OOM_DETAIL | OOM_TRIGGER | OOM_Trigger | `func`, `req_size`, `flag` |
//! | OOM_DETAIL | OOM_RECENT_ALLOC, OOM_TOP_ALLOC | OOM_RecentAlloc, OOM_TopAlloc | `pool`, `ptr`, `size`, `timestamp` |
//!
//! The `Ptr` of an ACCESS is the begin of the block, which is how viewers find the block; `addr` is
//! the address that was touched.

use std::borrow::Cow;

use msmemscope_event::{AccessKind, AllocationInterface, Device, Framework, KernelPhase, Pool};
use msmemscope_timeline::event::{BlockEvent, FailureList};
use msmemscope_timeline::refusals::OUT_OF_MEMORY_SNAPSHOT;
use msmemscope_timeline::{EventKind, TimelineEvent};
use msmemscope_trace::Definitions;

use crate::text::{push_address, push_number, push_signed};

/// What the driver returns when memory is exhausted.
const OUT_OF_MEMORY: i64 = 6;

const NOT_AVAILABLE: &str = "N/A";

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

/// One value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// An address with sixteen digits.
    Address(u64),
    /// A share in percent with six decimals.
    Percent(f64),
    /// Text.
    Text(&'a str),
}

impl Value<'_> {
    /// Appends the text of the value; `escape` turns text into what the format can hold.
    #[inline]
    pub(crate) fn push(&self, out: &mut Vec<u8>, escape: fn(&mut Vec<u8>, &str)) {
        match *self {
            Value::Number(number) => push_number(out, number),
            Value::Signed(number) => push_signed(out, number),
            Value::Address(address) => push_address(out, address),
            Value::Percent(percent) => out.extend_from_slice(format!("{percent:.6}").as_bytes()),
            Value::Text(text) => escape(out, text),
        }
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
    /// Running number over all files of the process, from zero.
    pub id: u64,
    /// `Event`.
    pub event: &'static str,
    /// `Event Type`.
    pub event_type: &'static str,
    /// `Name`.
    pub name: Cow<'a, str>,
    /// `Timestamp(ns)`.
    pub timestamp_ns: u64,
    /// `Process Id` and `Thread Id`; device-side events belong to none.
    pub process_and_thread: Option<(u32, u32)>,
    /// `Device Id`.
    pub device: Device,
    /// `Ptr`.
    pub pointer: Option<u64>,
    /// `Call Stack(Python)`.
    pub python_stack: &'a str,
    /// `Call Stack(C)`.
    pub native_stack: &'a str,
    kind: &'a EventKind,
    context: RowContext<'a>,
}

/// Whether an event appears in the tables at all.
pub fn has_row(event: &TimelineEvent) -> bool {
    !matches!(
        event.kind,
        EventKind::Autograd { .. }
            | EventKind::Module { .. }
            | EventKind::Label(_)
            | EventKind::CardSample { .. }
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
        let (row_event, event_type) = event_and_type(&event.kind);
        let pointer = match &event.kind {
            EventKind::Malloc(block) | EventKind::Free(block) => Some(block.address),
            EventKind::Access { block_address, .. } => Some(*block_address),
            _ => None,
        };
        let on_device_side =
            matches!(event.kind, EventKind::Kernel { phase: KernelPhase::ExecuteStart | KernelPhase::ExecuteEnd, .. });
        Some(Row {
            id,
            event: row_event,
            event_type,
            name: name(&event.kind, context.definitions),
            timestamp_ns: event.timestamp_ns,
            process_and_thread: (!on_device_side).then_some((context.process_id, event.thread_id)),
            device: event.device,
            pointer,
            python_stack: "",
            native_stack: "",
            kind: &event.kind,
            context,
        })
    }

    /// Calls `visit` for every attribute in order.
    #[inline]
    pub fn attributes(&self, visit: &mut impl FnMut(&str, Value<'_>)) {
        let text = |id| self.context.definitions.string(id);
        match self.kind {
            EventKind::Malloc(block) => self.block_attributes(block, true, visit),
            EventKind::Free(block) => self.block_attributes(block, false, visit),
            EventKind::Access {
                framework, allocation_id, address, size_bytes, element_type, shape, format, ..
            } => {
                if *allocation_id != 0 {
                    visit("allocation_id", Value::Number(*allocation_id));
                }
                visit("addr", Value::Address(*address));
                visit("size", Value::Number(*size_bytes));
                visit("type", Value::Text(framework_pool(*framework)));
                visit("dtype", Value::Text(&text(*element_type)));
                if format.is_some() {
                    visit("format", Value::Text(&text(*format)));
                }
                visit("shape", Value::Text(&text(*shape)));
            }
            EventKind::Operator { detail, .. } => detail_attributes(&text(*detail), visit),
            EventKind::Kernel { phase, stream_id, task_id, detail, .. } => {
                if !matches!(phase, KernelPhase::Start | KernelPhase::End) {
                    visit("streamId", Value::Number(u64::from(*stream_id)));
                    visit("taskId", Value::Number(u64::from(*task_id)));
                }
                detail_attributes(&text(*detail), visit);
            }
            EventKind::Mark { domain, .. }
            | EventKind::RangeBegin { domain, .. }
            | EventKind::RangeEnd { domain, .. }
                if domain.is_some() =>
            {
                visit("domain", Value::Text(&text(*domain)));
            }
            EventKind::AclInit { result } | EventKind::AclFinalize { result } if *result != 0 => {
                visit("result", Value::Signed(*result));
            }
            EventKind::StartTrace { card: Some((free_bytes, total_bytes)) } => {
                visit("free", Value::Number(*free_bytes));
                visit("total", Value::Number(*total_bytes));
            }
            EventKind::Snapshot { numbers, .. } | EventKind::SnapshotAtRefusal { numbers } => {
                visit("reserved", Value::Number(numbers.reserved_bytes));
                visit("max_reserved", Value::Number(numbers.maximum_reserved_bytes));
                visit("allocated", Value::Number(numbers.allocated_bytes));
                visit("max_allocated", Value::Number(numbers.maximum_allocated_bytes));
                visit("total", Value::Number(numbers.total_bytes));
                visit("free", Value::Number(numbers.free_bytes));
                let used_bytes = numbers.total_bytes.saturating_sub(numbers.free_bytes);
                visit("device_rate", percent(used_bytes, numbers.total_bytes));
                visit("reserved_rate", percent(numbers.allocated_bytes, numbers.reserved_bytes));
            }
            EventKind::AllocationFailed { interface, size_bytes, flag, error } => {
                visit("func", Value::Text(driver_function(*interface, true)));
                visit("req_size", Value::Number(*size_bytes));
                visit("flag", Value::Number(*flag));
                if *error != OUT_OF_MEMORY {
                    visit("error", Value::Signed(*error));
                }
            }
            EventKind::FreeFailed { interface, address, error } => {
                visit("func", Value::Text(driver_function(*interface, false)));
                visit("addr", Value::Address(*address));
                visit("error", Value::Signed(*error));
            }
            EventKind::AliveAtFailure { pool, address, size_bytes, allocated_ns, .. } => {
                visit("pool", Value::Text(pool.event_type()));
                visit("ptr", Value::Address(*address));
                visit("size", Value::Number(*size_bytes));
                visit("timestamp", Value::Number(*allocated_ns));
            }
            _ => {}
        }
    }

    #[inline]
    fn block_attributes(&self, block: &BlockEvent, is_malloc: bool, visit: &mut impl FnMut(&str, Value<'_>)) {
        let pool = block.properties.pool;
        visit("allocation_id", Value::Number(block.allocation_id));
        visit("addr", Value::Address(block.address));
        visit("size", Value::Number(block.size_bytes));
        if pool == Pool::HostPinned && !block.shadow {
            visit("pinned", Value::Text("true"));
        }
        if block.shadow {
            visit("shadow", Value::Text("true"));
            if !is_malloc && !block.alive_at_process_end {
                visit("freed", Value::Text("true"));
            }
        } else if pool == Pool::HostTensor {
            visit("total", Value::Number(block.used_bytes));
        } else {
            visit("used", Value::Number(block.used_bytes));
            if !matches!(pool, Pool::Hal | Pool::HostPinned) {
                visit("total", Value::Number(block.total_bytes));
            }
            if let Some(card) = block.card {
                visit("process_used", Value::Number(card.process_bytes));
                visit("device_used", Value::Number(card.device_bytes));
            }
        }
        if !is_malloc {
            return;
        }
        if let Some(owner) = self.context.notes.owner(block.allocation_id) {
            visit("owner", Value::Text(owner));
        }
        if let Some(inefficiency) = self.context.notes.inefficiency(block.allocation_id) {
            visit("inefficient_type", Value::Text(inefficiency));
        }
        if pool == Pool::Hal {
            visit("page_type", Value::Text(block.properties.page_type.name()));
            visit("alloc_type", Value::Text(block.properties.interface.name()));
        }
    }
}

fn event_and_type(kind: &EventKind) -> (&'static str, &'static str) {
    match kind {
        EventKind::Malloc(block) => ("MALLOC", block.properties.pool.event_type()),
        EventKind::Free(block) => ("FREE", block.properties.pool.event_type()),
        EventKind::Access { kind, .. } => {
            let event_type = match kind {
                AccessKind::Unknown => "UNKNOWN",
                AccessKind::Read => "READ",
                AccessKind::Write => "WRITE",
            };
            ("ACCESS", event_type)
        }
        EventKind::Operator { framework, begins, .. } => {
            let event_type = match (framework, begins) {
                (Framework::Aten, true) => "ATEN_START",
                (Framework::Aten, false) => "ATEN_END",
                (Framework::Atb, true) => "ATB_START",
                (Framework::Atb, false) => "ATB_END",
                (Framework::Other, true) => "OP_START",
                (Framework::Other, false) => "OP_END",
            };
            ("OP_LAUNCH", event_type)
        }
        EventKind::Kernel { phase, .. } => {
            let event_type = match phase {
                KernelPhase::Launch | KernelPhase::Other => "KERNEL_LAUNCH",
                KernelPhase::ExecuteStart => "KERNEL_EXECUTE_START",
                KernelPhase::ExecuteEnd => "KERNEL_EXECUTE_END",
                KernelPhase::Start => "KERNEL_START",
                KernelPhase::End => "KERNEL_END",
            };
            ("KERNEL_LAUNCH", event_type)
        }
        EventKind::Mark { .. } => ("MSTX", "Mark"),
        EventKind::RangeBegin { .. } => ("MSTX", "Range_start"),
        EventKind::RangeEnd { .. } => ("MSTX", "Range_end"),
        EventKind::AclInit { .. } => ("SYSTEM", "ACL_INIT"),
        EventKind::AclFinalize { .. } => ("SYSTEM", "ACL_FINI"),
        EventKind::StartTrace { .. } => ("SYSTEM", "START_TRACE"),
        EventKind::StopTrace => ("SYSTEM", "STOP_TRACE"),
        EventKind::StepEnd { .. } => ("SYSTEM", "STEP"),
        EventKind::Snapshot { .. } | EventKind::SnapshotAtRefusal { .. } => ("SNAPSHOT", "SNAPSHOT"),
        EventKind::AllocationFailed { error: OUT_OF_MEMORY, .. } => ("OOM_DETAIL", "OOM_TRIGGER"),
        EventKind::AllocationFailed { .. } => ("SYSTEM", "ALLOCATION_FAILED"),
        EventKind::AliveAtFailure { list: FailureList::Recent, .. } => ("OOM_DETAIL", "OOM_RECENT_ALLOC"),
        EventKind::AliveAtFailure { list: FailureList::Largest, .. } => ("OOM_DETAIL", "OOM_TOP_ALLOC"),
        EventKind::FreeFailed { .. } => ("SYSTEM", "FREE_FAILED"),
        EventKind::Autograd { .. }
        | EventKind::Module { .. }
        | EventKind::Label(_)
        | EventKind::CardSample { .. }
        | EventKind::Watch(_)
        | EventKind::PythonCall(_)
        | EventKind::Message { .. } => (NOT_AVAILABLE, NOT_AVAILABLE),
    }
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
        EventKind::AllocationFailed { interface, .. } => Cow::Borrowed(driver_function(*interface, true)),
        EventKind::AliveAtFailure { list: FailureList::Recent, .. } => Cow::Borrowed("OOM_RecentAlloc"),
        EventKind::AliveAtFailure { list: FailureList::Largest, .. } => Cow::Borrowed("OOM_TopAlloc"),
        EventKind::FreeFailed { interface, .. } => Cow::Borrowed(driver_function(*interface, false)),
        _ => Cow::Borrowed(NOT_AVAILABLE),
    }
}

fn framework_pool(framework: Framework) -> &'static str {
    match framework {
        Framework::Aten => "PTA",
        Framework::Atb => "ATB",
        Framework::Other => NOT_AVAILABLE,
    }
}

fn driver_function(interface: AllocationInterface, allocates: bool) -> &'static str {
    match (interface, allocates) {
        (AllocationInterface::Alloc, true) => "halMemAlloc",
        (AllocationInterface::Alloc, false) => "halMemFree",
        (AllocationInterface::Create, true) => "halMemCreate",
        (AllocationInterface::Create, false) => "halMemRelease",
        (AllocationInterface::HostRegister, true) => "aclrtHostRegister",
        (AllocationInterface::HostRegister, false) => "aclrtHostUnregister",
        (AllocationInterface::Framework, _) => NOT_AVAILABLE,
    }
}

fn percent(part: u64, whole: u64) -> Value<'static> {
    Value::Percent(if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 })
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
