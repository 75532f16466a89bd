//! Makes two recordings that differ in some of a hundred operators, one if nothing is said:
//! `comparison_input <directory> <events> [<percent>]` writes `base` and `other` into the directory.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use msmemscope_event::{BlockProperties, Device, Fact, Framework, Pool, StackId, StringId};
use msmemscope_trace::TRACE_FILE_NAME;
use msmemscope_trace::writer::{Chunk, ProcessIdentity, TraceFile};

const DEVICE: Device = Device::Npu(0);
const NAMES: u64 = 200;
/// Blocks alive at once.
const LIVE: u64 = 1000;
/// Events of one operator: begin, free, allocation, end.
const EVENTS_PER_OPERATOR: u64 = 4;

struct Writer {
    file: TraceFile,
    chunk: Option<Chunk>,
    time: u64,
}

impl Writer {
    fn new(directory: &Path) -> Self {
        std::fs::create_dir_all(directory).expect("a directory");
        let path = directory.join(TRACE_FILE_NAME);
        let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
        let identity =
            ProcessIdentity { process_id: 7, parent_process_id: 1, run_id: 1, wall_offset_ns: 0, monotonic_ns: 0 };
        Self { file: TraceFile::create(path, &identity, 1 << 34).expect("a trace"), chunk: None, time: 0 }
    }

    fn record(&mut self, fact: &Fact<'_>) {
        self.time += 100;
        loop {
            if let Some(chunk) = &mut self.chunk
                && chunk.append(self.time, StackId::NONE, StackId::NONE, fact)
            {
                return;
            }
            if let Some(full) = self.chunk.take() {
                self.file.seal_chunk(full);
            }
            self.chunk = Some(self.file.allocate_chunk(7, self.time).expect("a chunk"));
        }
    }

    fn close(mut self) {
        if let Some(chunk) = self.chunk.take() {
            self.file.seal_chunk(chunk);
        }
        self.file.close(self.time + 1);
    }
}

fn operator(writer: &mut Writer, name: StringId, slot: u64, size_bytes: u64, is_alive: &mut [bool]) {
    let (framework, detail) = (Framework::Aten, StringId::NONE);
    let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    let address = 0x10_0000_0000 + slot * (1 << 20);
    writer.record(&Fact::OperatorBegin { framework, device: DEVICE, name, detail });
    if std::mem::replace(&mut is_alive[slot as usize], true) {
        writer.record(&Fact::Free { properties, address });
    }
    writer.record(&Fact::Allocation { properties, address, size_bytes });
    writer.record(&Fact::OperatorEnd { framework, device: DEVICE, name, detail });
}

/// Every operator at such a distance differs, in one of four ways.
fn make(directory: &Path, operators: u64, distance: Option<u64>) {
    let mut writer = Writer::new(directory);
    for id in 1..=NAMES {
        let text = format!("torch._ops.aten.operator{id}.default");
        writer.record(&Fact::DefineString { id: StringId(id as u32), text: text.as_bytes() });
    }
    let mut is_alive = vec![false; LIVE as usize];
    let mut random = 1u64;
    for index in 0..operators {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let name = StringId((1 + (random >> 33) % NAMES) as u32);
        let size_bytes = 512 * (1 + (random >> 20) % 1000);
        let slot = index % LIVE;
        let differs = distance.filter(|distance| index % distance == 7 % distance);
        match differs.map(|distance| index / distance % 4) {
            Some(0) => {}
            Some(1) => {
                operator(&mut writer, StringId(NAMES as u32), slot, size_bytes, &mut is_alive);
                operator(&mut writer, name, slot, size_bytes, &mut is_alive);
            }
            Some(2) => operator(&mut writer, name, slot, size_bytes + 512, &mut is_alive),
            Some(3) => operator(&mut writer, StringId(1), slot, size_bytes, &mut is_alive),
            _ => operator(&mut writer, name, slot, size_bytes, &mut is_alive),
        }
    }
    writer.close();
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let directory = arguments.next().expect("a directory");
    let events: u64 = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(1_000_000);
    let percent: u64 = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(1);
    let distance = (100 / percent.clamp(1, 100)).max(1);
    for (name, distance) in [("base", None), ("other", Some(distance))] {
        make(&Path::new(&directory).join(name), events / EVENTS_PER_OPERATOR, distance);
    }
}
