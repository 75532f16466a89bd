//! The traced process as watching sees it: contents are read through its runtime, and what was seen goes to the recorder.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use msmemscope_control::{Recorder, Region, WatchFact};
use msmemscope_event::{Device, DeviceMap};

use crate::device::Runtime;
use crate::dump::DUMP_DIRECTORY;
use crate::surroundings::{Surroundings, WatchRecord};

/// The traced process, as watching sees it.
pub struct Process {
    runtime: Option<Runtime>,
    recorder: Option<Recorder>,
    map: DeviceMap,
    is_blocking: bool,
    /// What people are to be told.
    said: Vec<String>,
    /// Devices whose files have their link.
    linked: Vec<Device>,
}

impl Process {
    /// The process of this recorder, or without one: then nothing is taken down.
    pub fn new(recorder: Option<Recorder>) -> Self {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        Self {
            runtime: None,
            recorder,
            map: DeviceMap::parse(variable("ASCEND_RT_VISIBLE_DEVICES").as_bytes()),
            is_blocking: variable("ASCEND_LAUNCH_BLOCKING") == "1",
            said: Vec::new(),
            linked: Vec::new(),
        }
    }

    /// Its runtime, if that is loaded.
    pub fn runtime(&mut self) -> Option<Runtime> {
        self.runtime = self.runtime.or_else(Runtime::find);
        self.runtime
    }

    /// What people are to be told since the last time.
    pub fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    /// The device that this thread works on.
    pub fn current_device(&self) -> Device {
        self.recorder.map_or(Device::Npu(0), Recorder::current_device)
    }

    /// Where files about watched blocks of a device are, below the directory of the process.
    fn dump_place(&self, device: Device) -> PathBuf {
        PathBuf::from(format!("device_{}", self.physical(device))).join(DUMP_DIRECTORY)
    }

    /// Makes the files about a device's blocks appear where the user manual says, beside the directories of processes:
    /// in `watch_dump`, with a link for each process and device.
    fn link_dumps(&mut self, device: Device) {
        if self.linked.contains(&device) {
            return;
        }
        let Some(directory) = self.recorder.and_then(|recorder| recorder.process_directory()) else { return };
        self.linked.push(device);
        let (Some(results), Some(name)) = (directory.parent(), directory.file_name()) else { return };
        let (links, place) = (results.join(DUMP_DIRECTORY), self.dump_place(device));
        let link = links.join(format!("{}_device_{}", name.to_string_lossy(), self.physical(device)));
        // Another process may have made the directory; a link that cannot be made is no loss.
        let _ = std::fs::DirBuilder::new().mode(0o750).create(&links);
        let _ = std::os::unix::fs::symlink(Path::new("..").join(name).join(place), link);
    }
}

impl Surroundings for Process {
    fn read(&mut self, device: Device, address: u64, buffer: &mut [u8]) -> Result<(), String> {
        self.runtime().ok_or("no runtime is loaded")?.read(device, address, buffer)
    }

    fn record(&mut self, record: &WatchRecord<'_>) {
        if record.detail.checksum.is_some() || record.detail.file.is_some() {
            self.link_dumps(record.detail.device);
        }
        let Some(recorder) = self.recorder else { return };
        let text_id = |text: &str| if text.is_empty() { 0 } else { recorder.intern(text.as_bytes()) };
        let detail = record.detail.to_text();
        let fact = WatchFact {
            name: text_id(record.name),
            operator: text_id(record.operator),
            output_position: record.output_index,
            after: u32::from(record.after),
            address: record.address,
            size_bytes: record.size_bytes,
            content_hash: record.content_hash,
            detail: Region::of(&[]),
        };
        recorder.watch(fact, detail.as_bytes());
    }

    fn say(&mut self, text: String) {
        self.said.push(text);
    }

    fn physical(&self, device: Device) -> Device {
        self.map.physical(device)
    }

    fn dump_directory(&mut self, device: Device) -> Option<PathBuf> {
        let directory = self.recorder?.process_directory()?;
        Some(directory.join(self.dump_place(device)))
    }

    fn is_blocking(&self) -> bool {
        self.is_blocking
    }
}
