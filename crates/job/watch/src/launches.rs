//! Looks taken before a kernel is launched, when its name is not known.
//!
//! The runtime tells the name of a kernel inside the launch, when the card may have started it already. So what is seen
//! before the launch is held until the kernel has its name; then it is taken down, and files get their proper names.

use std::path::PathBuf;

use msmemscope_event::{Device, WatchDetail, dump_name};

use crate::dump;
use crate::surroundings::{OperatorCall, Surroundings, WatchRecord};

/// What was seen before one launch.
#[derive(Debug, Default)]
pub struct HeldLooks {
    looks: Vec<HeldLook>,
}

#[derive(Debug)]
struct HeldLook {
    name: String,
    output_index: u32,
    after: bool,
    address: u64,
    size_bytes: u64,
    content_hash: u64,
    detail: WatchDetail,
}

impl HeldLooks {
    /// The same surroundings, but what is seen is held.
    pub fn around<'a>(&'a mut self, surroundings: &'a mut dyn Surroundings) -> impl Surroundings + 'a {
        Holding { held: self, surroundings }
    }

    /// Takes everything down as seen around this call of a kernel that was announced under another name.
    pub fn release(self, announced: &str, call: &OperatorCall<'_>, surroundings: &mut dyn Surroundings) {
        for mut look in self.looks {
            look.detail.call = call.number;
            if look.detail.since_operator == announced {
                call.name.clone_into(&mut look.detail.since_operator);
            }
            if let Some(file) = look.detail.file.take() {
                let device = surroundings.physical(look.detail.device);
                let place = (&look.name[..], look.output_index);
                let name =
                    dump::file_name(&dump_name(device, call.thread_id, (call.name, call.number), place, look.after));
                let directory = surroundings.dump_directory(look.detail.device);
                let is_renamed = directory
                    .is_some_and(|directory| std::fs::rename(directory.join(&file), directory.join(&name)).is_ok());
                look.detail.file = Some(if is_renamed { name } else { file });
            }
            surroundings.record(&WatchRecord {
                name: &look.name,
                operator: call.name,
                output_index: look.output_index,
                after: look.after,
                address: look.address,
                size_bytes: look.size_bytes,
                content_hash: look.content_hash,
                detail: look.detail,
            });
        }
    }
}

struct Holding<'a> {
    held: &'a mut HeldLooks,
    surroundings: &'a mut dyn Surroundings,
}

impl Surroundings for Holding<'_> {
    fn read(&mut self, device: Device, address: u64, buffer: &mut [u8]) -> Result<(), String> {
        self.surroundings.read(device, address, buffer)
    }

    fn record(&mut self, record: &WatchRecord<'_>) {
        self.held.looks.push(HeldLook {
            name: record.name.to_owned(),
            output_index: record.output_index,
            after: record.after,
            address: record.address,
            size_bytes: record.size_bytes,
            content_hash: record.content_hash,
            detail: record.detail.clone(),
        });
    }

    fn say(&mut self, text: String) {
        self.surroundings.say(text);
    }

    fn physical(&self, device: Device) -> Device {
        self.surroundings.physical(device)
    }

    fn dump_directory(&mut self, device: Device) -> Option<PathBuf> {
        self.surroundings.dump_directory(device)
    }

    fn is_blocking(&self) -> bool {
        self.surroundings.is_blocking()
    }
}
