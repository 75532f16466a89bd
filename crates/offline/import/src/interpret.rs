//! From one row to one fact.

use msmemscope_dump::attributes::AttributeText;
use msmemscope_dump::keys::read as keys;
use msmemscope_dump::row::{Row, address, decimal, magnitude};
use msmemscope_dump::words::{self, Event, MessageType, OutOfMemoryType, SystemType};
use msmemscope_event::{
    AccessKind, AllocationInterface, BlockProperties, Device, Framework, KernelPhase, PageType, Pool, SnapshotNumbers,
    SystemEvent, driver_module_name,
};

use crate::report::SkipReason;

/// A text that will be interned.
pub(crate) type Text<'a> = &'a [u8];

/// What a row says, before texts are interned.
#[derive(Debug, PartialEq)]
pub(crate) enum Meaning<'a> {
    Allocation(BlockRow),
    Free(BlockRow),
    Access {
        kind: AccessKind,
        framework: Framework,
        device: Device,
        operator: Text<'a>,
        address: u64,
        size_bytes: u64,
        details: AccessDetails,
    },
    Operator {
        framework: Framework,
        begins: bool,
        device: Device,
        name: Text<'a>,
        detail: Vec<u8>,
    },
    Kernel {
        phase: KernelPhase,
        device: Device,
        name: Text<'a>,
        stream_id: u32,
        task_id: u32,
        detail: Vec<u8>,
    },
    Mark {
        device: Device,
        message: Text<'a>,
    },
    RangeBegin {
        device: Device,
        message: Text<'a>,
    },
    RangeEnd {
        device: Device,
        message: Text<'a>,
    },
    System {
        event: SystemEvent,
    },
    RecordingStarts {
        free_and_total_bytes: Option<(u64, u64)>,
    },
    RecordingStops,
    Step {
        device: Device,
        number: u64,
    },
    Snapshot {
        device: Device,
        name: Text<'a>,
        numbers: Box<SnapshotNumbers>,
    },
    AllocationFailed {
        properties: BlockProperties,
        size_bytes: u64,
        flag: u64,
    },
    /// Says nothing that other rows do not say.
    Derived,
}

/// What a MALLOC or FREE row says.
#[derive(Debug, PartialEq)]
pub(crate) struct BlockRow {
    pub(crate) properties: BlockProperties,
    pub(crate) address: u64,
    pub(crate) size_bytes: u64,
    pub(crate) shadow: bool,
    /// Whether a FREE that was not recorded did happen, instead of closing a block at the process end.
    pub(crate) freed: bool,
    pub(crate) total_bytes: Option<u64>,
    pub(crate) process_used_bytes: Option<u64>,
    pub(crate) device_used_bytes: Option<u64>,
    pub(crate) owner: Vec<u8>,
    /// Stream that it was allocated for, zero if nobody says.
    pub(crate) stream: u32,
}

/// Texts of an access.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct AccessDetails {
    pub(crate) element_type: Vec<u8>,
    pub(crate) shape: Vec<u8>,
    pub(crate) format: Vec<u8>,
}

/// The device a cell names.
pub(crate) fn device(cell: &[u8]) -> Device {
    match cell {
        b"cpu" | b"host" => Device::Host,
        digits => decimal(digits).and_then(|id| i64::try_from(id).ok()).map_or(Device::Unknown, Device::from_id),
    }
}

/// Older writers put quotes into the text itself.
fn unquoted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")).unwrap_or(text)
}

/// What a row says.
#[inline]
pub(crate) fn interpret<'a>(row: &Row<'a>) -> Result<Meaning<'a>, SkipReason> {
    match Event::from_word(row.event).ok_or(SkipReason::UnknownEvent)? {
        Event::Malloc => block_row(row, true).map(Meaning::Allocation),
        Event::Free => block_row(row, false).map(Meaning::Free),
        Event::Access => access(row),
        Event::OperatorLaunch => operator(row),
        Event::KernelLaunch => kernel(row),
        Event::Message => {
            let (device, message) = (device(row.device), unquoted(row.name));
            match MessageType::from_word(row.event_type).ok_or(SkipReason::UnknownEventType)? {
                MessageType::Mark => Ok(Meaning::Mark { device, message }),
                MessageType::RangeStart => Ok(Meaning::RangeBegin { device, message }),
                MessageType::RangeEnd => Ok(Meaning::RangeEnd { device, message }),
            }
        }
        Event::System => system(row),
        Event::Snapshot => Ok(snapshot(row)),
        Event::OutOfMemory => Ok(out_of_memory(row)),
        Event::CleanUp => Ok(Meaning::Derived),
    }
}

fn block_row(row: &Row<'_>, is_allocation: bool) -> Result<BlockRow, SkipReason> {
    // Closing rows of blocks that were only ever touched have no type.
    let is_known = |pool: &Pool| *pool != Pool::Unknown || !is_allocation;
    let mut pool = words::pool_from_word(row.event_type).filter(is_known).ok_or(SkipReason::UnknownEventType)?;
    let mut block_device = device(row.device);
    let mut properties = BlockProperties::framework(pool, block_device);
    let (mut size_bytes, mut shadow, mut freed, mut pinned) = (None, false, false, false);
    let (mut total_bytes, mut process_used_bytes, mut device_used_bytes) = (None, None, None);
    let mut owner = Vec::new();
    let mut stream = 0;
    let mut address_in_attributes = None;
    AttributeText::new(row.attributes).for_each(|key, value| match key {
        keys::SIZE => size_bytes = magnitude(value),
        keys::ADDRESS => address_in_attributes = address(value),
        keys::TOTAL => total_bytes = decimal(value),
        keys::PROCESS_USED => process_used_bytes = decimal(value),
        keys::DEVICE_USED => device_used_bytes = decimal(value),
        keys::SHADOW => shadow = value == b"true",
        keys::FREED => freed = value == b"true",
        keys::PINNED => pinned = value == b"true",
        keys::OWNER => owner.extend_from_slice(value),
        keys::BLOCK_STREAM => stream = number(value),
        keys::MODULE_ID => properties.module_id = decimal(value).and_then(|id| u8::try_from(id).ok()).unwrap_or(0),
        keys::PAGE_TYPE => properties.page_type = words::page_type_from_word(value).unwrap_or(PageType::Normal),
        keys::ALLOCATION_TYPE if value == b"create" => properties.interface = AllocationInterface::Create,
        _ => {}
    });
    let address = address(row.pointer).or(address_in_attributes).ok_or(SkipReason::BadAddress)?;
    if pool == Pool::HostTensor && pinned || pool == Pool::Hal && block_device == Device::Host {
        pool = Pool::HostPinned;
    }
    if pool == Pool::PytorchCaching && owner.starts_with(b"PTA_WORKSPACE") {
        pool = Pool::PytorchWorkspace;
    }
    if matches!(pool, Pool::HostPinned | Pool::HostTensor) {
        block_device = Device::Host;
    }
    if matches!(pool, Pool::Hal | Pool::HostPinned) {
        if properties.interface != AllocationInterface::Create {
            properties.interface = AllocationInterface::Alloc;
        }
        if let Some(module) = owner.strip_prefix(b"CANN@") {
            properties.module_id = module_id(module).unwrap_or(properties.module_id);
        }
    }
    properties.pool = pool;
    properties.device = block_device;
    let size_bytes = match size_bytes {
        Some(size_bytes) => size_bytes,
        None if is_allocation => return Err(SkipReason::MissingSize),
        None => 0,
    };
    Ok(BlockRow {
        properties,
        address,
        size_bytes,
        shadow,
        freed,
        total_bytes,
        process_used_bytes,
        device_used_bytes,
        owner,
        stream,
    })
}

/// The number of a stream or task, zero if it is none.
fn number(value: &[u8]) -> u32 {
    decimal(value).and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
}

fn module_id(name: &[u8]) -> Option<u8> {
    let end = memchr::memchr(b'@', name).unwrap_or(name.len());
    (0..=u8::MAX).find(|&id| driver_module_name(id).as_bytes() == &name[..end])
}

fn access<'a>(row: &Row<'a>) -> Result<Meaning<'a>, SkipReason> {
    let kind = words::access_from_word(row.event_type).unwrap_or(AccessKind::Unknown);
    let mut framework = Framework::Aten;
    let mut size_bytes = 0;
    let mut details = AccessDetails::default();
    AttributeText::new(row.attributes).for_each(|key, value| match key {
        keys::SIZE => size_bytes = magnitude(value).unwrap_or(0),
        keys::FRAMEWORK => framework = words::framework_from_word(value).unwrap_or(Framework::Aten),
        keys::ELEMENT_TYPE => details.element_type = value.to_vec(),
        keys::SHAPE => details.shape = value.to_vec(),
        keys::FORMAT => details.format = value.to_vec(),
        _ => {}
    });
    let address = address(row.pointer).ok_or(SkipReason::BadAddress)?;
    Ok(Meaning::Access {
        kind,
        framework,
        device: device(row.device),
        operator: row.name,
        address,
        size_bytes,
        details,
    })
}

fn operator<'a>(row: &Row<'a>) -> Result<Meaning<'a>, SkipReason> {
    let (framework, begins) = words::operator_from_word(row.event_type).ok_or(SkipReason::UnknownEventType)?;
    let detail = AttributeText::new(row.attributes).to_plain().into_owned();
    Ok(Meaning::Operator { framework, begins, device: device(row.device), name: row.name, detail })
}

fn kernel<'a>(row: &Row<'a>) -> Result<Meaning<'a>, SkipReason> {
    let phase = words::kernel_from_word(row.event_type).ok_or(SkipReason::UnknownEventType)?;
    let (mut stream_id, mut task_id) = (0, 0);
    let attributes = AttributeText::new(row.attributes);
    let mut detail = Vec::new();
    attributes.for_each(|key, value| match key {
        keys::STREAM_ID => stream_id = number(value),
        keys::TASK_ID => task_id = number(value),
        _ => {
            if !detail.is_empty() {
                detail.push(b',');
            }
            detail.extend_from_slice(key);
            detail.push(b':');
            detail.extend_from_slice(value);
        }
    });
    Ok(Meaning::Kernel { phase, device: device(row.device), name: row.name, stream_id, task_id, detail })
}

fn system<'a>(row: &Row<'a>) -> Result<Meaning<'a>, SkipReason> {
    match SystemType::from_word(row.event_type).ok_or(SkipReason::UnknownEventType)? {
        SystemType::AclInit => Ok(Meaning::System { event: SystemEvent::AclInit }),
        SystemType::AclFinalize => Ok(Meaning::System { event: SystemEvent::AclFinalize }),
        SystemType::StartTrace => {
            let (mut free, mut total) = (None, None);
            AttributeText::new(row.attributes).for_each(|key, value| match key {
                keys::FREE => free = decimal(value),
                keys::TOTAL => total = decimal(value),
                _ => {}
            });
            Ok(Meaning::RecordingStarts { free_and_total_bytes: free.zip(total) })
        }
        SystemType::StopTrace => Ok(Meaning::RecordingStops),
        SystemType::Step => {
            let number = decimal(unquoted(row.name)).ok_or(SkipReason::BadNumber)?;
            Ok(Meaning::Step { device: device(row.device), number })
        }
        SystemType::AllocationFailed | SystemType::FreeFailed => Err(SkipReason::UnknownEventType),
    }
}

fn snapshot<'a>(row: &Row<'a>) -> Meaning<'a> {
    let mut numbers = SnapshotNumbers::default();
    AttributeText::new(row.attributes).for_each(|key, value| {
        let slot = match key {
            keys::RESERVED | b"memory_reserved" => &mut numbers.reserved_bytes,
            keys::MAXIMUM_RESERVED | b"max_memory_reserved" => &mut numbers.maximum_reserved_bytes,
            keys::ALLOCATED | b"memory_allocated" => &mut numbers.allocated_bytes,
            keys::MAXIMUM_ALLOCATED | b"max_memory_allocated" => &mut numbers.maximum_allocated_bytes,
            keys::TOTAL | b"total_memory" => &mut numbers.total_bytes,
            keys::FREE | b"free_memory" => &mut numbers.free_bytes,
            _ => return,
        };
        *slot = decimal(value).unwrap_or(0);
    });
    Meaning::Snapshot { device: device(row.device), name: row.name, numbers: Box::new(numbers) }
}

fn out_of_memory<'a>(row: &Row<'a>) -> Meaning<'a> {
    if OutOfMemoryType::from_word(row.event_type) != Some(OutOfMemoryType::Trigger) {
        return Meaning::Derived;
    }
    let mut properties = BlockProperties::framework(Pool::Hal, device(row.device));
    properties.interface = AllocationInterface::Alloc;
    let (mut size_bytes, mut flag) = (0, 0);
    AttributeText::new(row.attributes).for_each(|key, value| match key {
        keys::FUNCTION => match words::allocating_interface(value) {
            Some(AllocationInterface::Framework) => {
                properties = BlockProperties::framework(Pool::Mindspore, properties.device);
            }
            Some(AllocationInterface::Create) => properties.interface = AllocationInterface::Create,
            _ => {}
        },
        keys::REQUESTED_SIZE | keys::SIZE => size_bytes = decimal(value).unwrap_or(0),
        keys::FLAG => flag = address(value).unwrap_or(0),
        _ => {}
    });
    Meaning::AllocationFailed { properties, size_bytes, flag }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(event: &'a str, event_type: &'a str, device: &'a str, attributes: &'a str) -> Row<'a> {
        Row {
            event: event.as_bytes(),
            event_type: event_type.as_bytes(),
            name: b"N/A",
            device: device.as_bytes(),
            pointer: b"0x0000000000003039",
            attributes: attributes.as_bytes(),
            ..Row::default()
        }
    }

    fn block(event: &str, event_type: &str, device: &str, attributes: &str) -> BlockProperties {
        match interpret(&row(event, event_type, device, attributes)) {
            Ok(Meaning::Allocation(block) | Meaning::Free(block)) => block.properties,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pools_are_told_by_type_and_attributes() {
        assert_eq!(block("MALLOC", "PTA", "0", "{size:1}").pool, Pool::PytorchCaching);
        assert_eq!(block("MALLOC", "PTA", "0", "{size:1,owner:PTA_WORKSPACE}").pool, Pool::PytorchWorkspace);
        assert_eq!(block("MALLOC", "HOST", "cpu", "{size:1,pinned:true}").pool, Pool::HostPinned);
        assert_eq!(block("MALLOC", "HOST", "cpu", "{size:1,total:1}").pool, Pool::HostTensor);
        let old_host = block("MALLOC", "HAL", "host", "{addr:5,size:1,owner:,MID:7}");
        assert_eq!((old_host.pool, old_host.device, old_host.module_id), (Pool::HostPinned, Device::Host, 7));
        let created = block("MALLOC", "HAL", "1", "{size:1,owner:CANN@HCCL,page_type:huge,alloc_type:create}");
        assert_eq!(created.interface, AllocationInterface::Create);
        assert_eq!((created.page_type, created.module_id), (PageType::Huge, 3));
        assert_eq!(block("FREE", "HAL", "N/A", "{addr:5,size:-1}").device, Device::Unknown);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let skip = |row: &Row<'_>| interpret(row).unwrap_err();
        assert_eq!(skip(&row("MALLOC", "HAL", "0", "{}")), SkipReason::MissingSize);
        assert_eq!(skip(&row("MALLOC", "XYZ", "0", "{size:1}")), SkipReason::UnknownEventType);
        assert_eq!(skip(&row("NOISE", "HAL", "0", "{size:1}")), SkipReason::UnknownEvent);
        let no_address = Row { pointer: b"N/A", ..row("FREE", "HAL", "0", "{size:1}") };
        assert_eq!(skip(&no_address), SkipReason::BadAddress);
        assert_eq!(skip(&row("SYSTEM", "STEP", "0", "")), SkipReason::BadNumber);
    }

    #[test]
    fn devices_of_all_ages_are_known() {
        assert_eq!(device(b"3"), Device::Npu(3));
        assert_eq!((device(b"cpu"), device(b"host")), (Device::Host, Device::Host));
        assert_eq!(
            (device(b"N/A"), device(b"99999"), device(b"")),
            (Device::Unknown, Device::Unknown, Device::Unknown)
        );
    }
}
