//! A device of host memory, and everything that was recorded about it.

use std::path::PathBuf;

use msmemscope_event::{ByteRange, Device, WatchDetail};
use msmemscope_watch::{LiveBlocks, OperatorCall, Surroundings, WatchRecord};

pub const DEVICE: Device = Device::Npu(0);
/// Address of the first byte of the device's memory.
pub const BASE: u64 = 0x10_0000;

#[derive(Clone, Debug)]
pub struct Taken {
    pub name: String,
    pub operator: String,
    pub output_index: u32,
    pub after: bool,
    pub address: u64,
    pub hash: u64,
    pub detail: WatchDetail,
}

pub struct Lab {
    pub memory: Vec<u8>,
    pub taken: Vec<Taken>,
    pub said: Vec<String>,
    pub directory: Option<tempfile::TempDir>,
    pub blocks: LiveBlocks,
}

impl Lab {
    /// A device with blocks of these sizes, one behind the other, each in whole pieces.
    pub fn new(sizes: &[u64]) -> Self {
        let mut blocks = LiveBlocks::new();
        let mut address = BASE;
        for size in sizes {
            blocks.begin(DEVICE, address, *size, true);
            address += size.next_multiple_of(512);
        }
        let memory = vec![0; (address - BASE) as usize];
        Self { memory, taken: Vec::new(), said: Vec::new(), directory: None, blocks }
    }

    pub fn write(&mut self, address: u64, length: usize, value: u8) {
        let start = (address - BASE) as usize;
        self.memory[start..start + length].fill(value);
    }
}

impl Surroundings for Lab {
    fn read(&mut self, _: Device, address: u64, buffer: &mut [u8]) -> Result<(), String> {
        let start = address.checked_sub(BASE).ok_or("no such address")? as usize;
        let source = self.memory.get(start..start + buffer.len()).ok_or("no such address")?;
        buffer.copy_from_slice(source);
        Ok(())
    }

    fn record(&mut self, record: &WatchRecord<'_>) {
        self.taken.push(Taken {
            name: record.name.to_owned(),
            operator: record.operator.to_owned(),
            output_index: record.output_index,
            after: record.after,
            address: record.address,
            hash: record.content_hash,
            detail: record.detail.clone(),
        });
    }

    fn say(&mut self, text: String) {
        self.said.push(text);
    }

    fn physical(&self, device: Device) -> Device {
        device
    }

    fn dump_directory(&mut self, _: Device) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.path().join("watch_dump"))
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

pub fn call<'a>(name: &'a str, writes: &'a [ByteRange]) -> OperatorCall<'a> {
    OperatorCall { name, number: 1, device: DEVICE, thread_id: 7, writes, is_active: true, launch: None }
}
