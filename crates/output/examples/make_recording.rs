//! Makes a large recording through the real trace writer, for measurements:
//! `make_recording <directory> <events> [threads] [devices]`.
//!
//! Every thread plays a training loop: steps, blocks of mixed sizes and lifetimes from the caching
//! pool, and now and then driver memory.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use msmemscope_event::{BlockProperties, Device, Fact, Pool, RecordingState, StackId, StringId};
use msmemscope_trace::TRACE_FILE_NAME;
use msmemscope_trace::writer::{Chunk, ProcessIdentity, TraceFile};

const LIVE_BLOCKS_PER_THREAD: usize = 20_000;

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

struct Thread<'a> {
    file: &'a TraceFile,
    id: u32,
    chunk: Option<Chunk>,
    time: u64,
    events: u64,
}

impl Thread<'_> {
    fn record(&mut self, fact: &Fact<'_>) {
        self.time += 90;
        self.events += 1;
        let mut chunk = self.chunk.take().expect("a chunk");
        if !chunk.append(self.time, StackId::NONE, StackId::NONE, fact) {
            self.file.seal_chunk(chunk);
            chunk = self.file.allocate_chunk(self.id, self.time).expect("disk space");
            assert!(chunk.append(self.time, StackId::NONE, StackId::NONE, fact));
        }
        self.chunk = Some(chunk);
    }

    fn run(&mut self, events: u64, device: Device) {
        let caching = BlockProperties::framework(Pool::PytorchCaching, device);
        let driver = BlockProperties { pool: Pool::Hal, ..BlockProperties::from_driver_flag(1 << 10) };
        let mut numbers = Numbers(u64::from(self.id) | 1 << 40);
        let mut live = Vec::new();
        let base = u64::from(self.id) << 40;
        let mut next_address = 0;
        let mut free_addresses: Vec<u64> = Vec::new();
        let mut range_id = u64::from(self.id) << 32;
        self.record(&Fact::HeapRegistered { properties: caching, address: base, size_bytes: 1 << 36 });
        while self.events < events {
            if self.events % 50_000 < 2 {
                self.record(&Fact::RangeEnd { domain: StringId::NONE, device, range_id });
                range_id += 1;
                let message = b"step start";
                self.record(&Fact::RangeBegin { domain: StringId::NONE, device, range_id, message });
            }
            let choice = numbers.next();
            if live.len() >= LIVE_BLOCKS_PER_THREAD || (choice & 1 == 0 && !live.is_empty()) {
                let index = (choice >> 8) as usize % live.len();
                let (properties, address): (BlockProperties, u64) = live.swap_remove(index);
                free_addresses.push(address);
                self.record(&Fact::Free {
                    properties: BlockProperties { device: Device::Unknown, ..properties },
                    address,
                });
            } else {
                let address = free_addresses.pop().unwrap_or_else(|| {
                    next_address += 0x20_0000;
                    base + next_address
                });
                let properties = if choice % 16 == 1 { driver } else { caching };
                let size_bytes = 512 * (1 + (choice >> 20) % 4096);
                live.push((properties, address));
                self.record(&Fact::Allocation { properties, address, size_bytes });
            }
        }
        let chunk = self.chunk.take().expect("a chunk");
        self.file.seal_chunk(chunk);
    }
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().expect("a directory"));
    let mut number =
        |default: u64| arguments.next().map_or(default, |text| text.to_string_lossy().parse().expect("a number"));
    let (events, threads, devices) = (number(10_000_000), number(4), number(1));
    std::fs::create_dir_all(&directory).expect("directory");
    let path = CString::new(directory.join(TRACE_FILE_NAME).as_os_str().as_bytes()).expect("path without NUL");
    let wall_offset_ns = 1_700_000_000_000_000_000;
    let identity =
        ProcessIdentity { process_id: 4711, parent_process_id: 1, run_id: 1, wall_offset_ns, monotonic_ns: 1 };
    let file = TraceFile::create(path, &identity, u64::MAX).expect("a new trace");
    let mut first = file.allocate_chunk(1, 1).expect("disk space");
    assert!(first.append(1, StackId::NONE, StackId::NONE, &Fact::Recording { state: RecordingState::On }));
    file.seal_chunk(first);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let file = &file;
            scope.spawn(move || {
                let id = number as u32 + 1;
                let chunk = file.allocate_chunk(id, 10).expect("disk space");
                let mut thread = Thread { file, id, chunk: Some(chunk), time: 10 + number, events: 0 };
                thread.run(events / threads, Device::Npu((number % devices) as u16));
            });
        }
    });
    file.close(10 + events * 100);
    println!("{} events in {}", events, directory.display());
}
