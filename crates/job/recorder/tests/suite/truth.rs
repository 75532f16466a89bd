//! Turns both the device's log and a trace into comparable lines, thread by thread.

use std::collections::{BTreeMap, HashMap};

use msmemscope_event::{AllocationInterface, BlockProperties, Device, Fact, PageType, Pool, SystemEvent};
use msmemscope_trace::Trace;
use standin_truth::{Entry, Kind};

/// Lines of one thread, in the order in which things happened to it.
pub type ByThread = BTreeMap<u32, Vec<String>>;

const PINNED: u64 = 0x1000_0000;

/// One line for a block that came into being.
fn allocation(properties: BlockProperties, address: u64, size_bytes: u64) -> String {
    let BlockProperties { pool, device, memory_type, page_type, interface, module_id } = properties;
    format!(
        "allocation {pool:?} {device} {memory_type:?} {page_type:?} {interface:?} {module_id} {address:#x} {size_bytes}"
    )
}

/// What the trace says. Facts about the process itself and definitions are left out.
pub fn recorded(trace: &Trace) -> ByThread {
    let mut threads = ByThread::new();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        let text = |id| trace.definitions().string(id).into_owned();
        let line = match record.fact {
            Fact::Allocation { properties, address, size_bytes } => allocation(properties, address, size_bytes),
            // The log does not say which handle the tool gave; the frees do.
            Fact::AllocationWithHandle { properties, address, size_bytes, .. } => {
                allocation(properties, address, size_bytes)
            }
            Fact::Free { properties, address } => {
                format!("free {:?} {:?} {address:#x}", properties.pool, properties.interface)
            }
            Fact::FreeByHandle { properties, handle } => format!("free {:?} handle {handle}", properties.pool),
            Fact::HeapRegistered { properties, address, size_bytes } => {
                format!("heap {:?} {} {address:#x} {size_bytes}", properties.pool, properties.device)
            }
            Fact::HeapUnregistered { properties, address } => format!("heap end {:?} {address:#x}", properties.pool),
            Fact::AllocationFailed { size_bytes, flag, error, .. } => format!("failed {size_bytes} {flag:#x} {error}"),
            Fact::FreeFailed { address, error, .. } => format!("free failed {address:#x} {error}"),
            Fact::Mark { domain, device, message } => {
                format!("mark {:?} {device} {:?}", text(domain), String::from_utf8_lossy(message))
            }
            Fact::RangeBegin { domain, device, range_id, message } => {
                format!("range {:?} {device} {range_id} {:?}", text(domain), String::from_utf8_lossy(message))
            }
            Fact::RangeEnd { domain, device, range_id } => {
                format!("range end {:?} {device} {range_id}", text(domain))
            }
            Fact::System { event, device, result }
                if !matches!(event, SystemEvent::ProcessExit | SystemEvent::MstxInjection) =>
            {
                format!("system {event:?} {device} {result}")
            }
            _ => continue,
        };
        threads.entry(record.thread_id).or_default().push(line);
    }
    threads
}

/// What the device's log says that the trace should say.
pub fn expected(entries: &[Entry], process: u32) -> ByThread {
    let mut threads = ByThread::new();
    let mut domains: HashMap<u64, (String, Option<Pool>)> = HashMap::new();
    let mut devices: HashMap<u32, i32> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.process == process) {
        let record = &entry.record;
        if record.kind == Kind::DomainCreate {
            let name = entry.text.clone().unwrap_or_default();
            let pool = pool_named(&name);
            // The older name of a pool shares the handle of the current one.
            let name = if name == "msleaks" { "ptaCaching".to_owned() } else { name };
            domains.insert(record.address, (name, pool));
        }
        if record.kind == Kind::SetDevice {
            devices.insert(record.thread, record.device);
        }
        let (domain, pool) = domains.get(&record.flags).cloned().unwrap_or_default();
        let device = devices.get(&record.thread).map_or(Device::Unknown, |&device| Device::from_id(i64::from(device)));
        if let Some(line) = expected_line(entry, &domain, pool, device) {
            threads.entry(record.thread).or_default().push(line);
        }
    }
    threads
}

fn pool_named(name: &str) -> Option<Pool> {
    match name {
        "ptaCaching" | "msleaks" => Some(Pool::PytorchCaching),
        "ptaWorkspace" => Some(Pool::PytorchWorkspace),
        "mindsporeMemPool" => Some(Pool::Mindspore),
        "atb" => Some(Pool::Atb),
        _ => None,
    }
}

/// The device of a pool's message. MindSpore says 0 whatever device its thread uses.
fn device_of_pool(pool: Pool, said: i32, of_thread: Device) -> Device {
    match (pool, said, of_thread) {
        (Pool::Mindspore, 0, Device::Npu(_)) => of_thread,
        _ => Device::from_id(i64::from(said)),
    }
}

fn expected_line(entry: &Entry, domain: &str, pool: Option<Pool>, device: Device) -> Option<String> {
    let record = &entry.record;
    let (address, size_bytes, flags, result) = (record.address, record.size_bytes, record.flags, record.result);
    let failed = || format!("failed {size_bytes} {flags:#x} {result}");
    let free = |pool: Pool, interface: AllocationInterface| match result {
        0 => format!("free {pool:?} {interface:?} {address:#x}"),
        error => format!("free failed {address:#x} {error}"),
    };
    Some(match record.kind {
        Kind::HalAlloc if result != 0 => failed(),
        Kind::HalAlloc => allocation(BlockProperties::from_driver_flag(flags), address, size_bytes),
        Kind::HalCreate if result != 0 => failed(),
        Kind::HalCreate => {
            let mut properties = BlockProperties::from_driver_flag(flags);
            properties.interface = AllocationInterface::Create;
            properties.page_type = PageType::from_code(u64::from(record.page_type()));
            allocation(properties, address, size_bytes)
        }
        Kind::HalFree => free(Pool::Hal, AllocationInterface::Alloc),
        Kind::HalRelease => free(Pool::Hal, AllocationInterface::Create),
        Kind::HostRegister if flags & PINNED == 0 => return None,
        Kind::HostRegister if result != 0 => failed(),
        Kind::HostRegister => {
            let mut properties = BlockProperties::from_driver_flag(2 << 10);
            properties.interface = AllocationInterface::HostRegister;
            allocation(properties, address, size_bytes)
        }
        Kind::HostUnregister => free(Pool::HostPinned, AllocationInterface::HostRegister),
        Kind::Mark => format!("mark \"\" {device} {:?}", entry.text.as_ref()?),
        Kind::DomainMark => format!("mark {domain:?} {device} {:?}", entry.text.as_ref()?),
        Kind::RangeStart => format!("range \"\" {device} {address} {:?}", entry.text.as_ref()?),
        Kind::DomainRangeStart => format!("range {domain:?} {device} {address} {:?}", entry.text.as_ref()?),
        Kind::RangeEnd | Kind::DomainRangeEnd if address == 0 => return None,
        Kind::RangeEnd => format!("range end \"\" {device} {address}"),
        Kind::DomainRangeEnd => format!("range end {domain:?} {device} {address}"),
        Kind::HeapRegister => {
            let device = device_of_pool(pool?, record.device, device);
            format!("heap {:?} {device} {address:#x} {size_bytes}", pool?)
        }
        Kind::HeapUnregister => format!("heap end {:?} {address:#x}", pool?),
        Kind::RegionRegister => {
            let device = device_of_pool(pool?, record.device, device);
            allocation(BlockProperties::framework(pool?, device), address, size_bytes)
        }
        Kind::RegionUnregister if result == 1 => format!("free {:?} handle {address}", pool?),
        Kind::RegionUnregister => format!("free {:?} Framework {address:#x}", pool?),
        Kind::AclInit => format!("system AclInit N/A {result}"),
        Kind::AclFinalize => format!("system AclFinalize N/A {result}"),
        Kind::SetDevice => format!("system SetDevice {} {result}", record.device),
        _ => return None,
    })
}
