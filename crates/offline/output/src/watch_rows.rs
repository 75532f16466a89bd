//! Checksums of watched blocks: one csv file per device.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use msmemscope_dump::csv_writer::push_cell;
use msmemscope_event::{Device, WatchDetail, dump_name};
use msmemscope_timeline::{TimelineEvent, WatchObservation};
use msmemscope_trace::Definitions;

use crate::directory::Directory;
use crate::files::PendingFile;

/// First line of every file.
const HEADER: &[u8] = b"Tensor info,Check data sum\n";

/// Where files about watched blocks of a device go, below the directory of the process.
pub(crate) fn watch_directory(device: Device) -> PathBuf {
    PathBuf::from(format!("device_{device}")).join("watch_dump")
}

/// The rows of one device.
struct DeviceFile {
    pending: PendingFile,
    output: BufWriter<File>,
    rows: u64,
}

/// A file that is complete but has no name yet.
pub(crate) struct PendingWatch {
    pub(crate) device: Device,
    pub(crate) pending: PendingFile,
    pub(crate) rows: u64,
}

/// The files of all devices. An error shows at the end.
pub(crate) struct WatchFiles<'a> {
    directory: &'a Arc<Directory>,
    definitions: &'a Definitions,
    devices: BTreeMap<Device, DeviceFile>,
    error: Option<io::Error>,
}

impl<'a> WatchFiles<'a> {
    /// No files yet; pending ones will be in `directory`.
    pub(crate) fn new(directory: &'a Arc<Directory>, definitions: &'a Definitions) -> Self {
        Self { directory, definitions, devices: BTreeMap::new(), error: None }
    }

    /// Adds the row of a look, if it has a checksum.
    pub(crate) fn push(&mut self, event: &TimelineEvent, look: &WatchObservation) {
        let detail = WatchDetail::from_text(&look.detail);
        if let (Some(checksum), None) = (detail.checksum, &self.error) {
            self.error = self.write(event, look, &detail, checksum).err();
        }
    }

    fn write(
        &mut self,
        event: &TimelineEvent,
        look: &WatchObservation,
        detail: &WatchDetail,
        checksum: u64,
    ) -> io::Result<()> {
        let device = event.device;
        if !self.devices.contains_key(&device) {
            let (pending, file) = PendingFile::create(self.directory, &format!("watch_{device}.csv"))?;
            let mut output = BufWriter::new(file);
            output.write_all(HEADER)?;
            self.devices.insert(device, DeviceFile { pending, output, rows: 0 });
        }
        let Some(file) = self.devices.get_mut(&device) else { return Ok(()) };
        let operator = self.definitions.string(look.operator);
        let watched = self.definitions.string(look.name);
        let place = (&watched[..], look.output_position);
        let name = dump_name(device, event.thread_id, (&operator, detail.call), place, look.after);
        let mut line = Vec::new();
        push_cell(&mut line, &name);
        line.extend_from_slice(format!(",{checksum:016x}\n").as_bytes());
        file.rows += 1;
        file.output.write_all(&line)
    }

    /// All files, complete.
    pub(crate) fn close(self) -> io::Result<Vec<PendingWatch>> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let close = |(device, file): (Device, DeviceFile)| {
            file.output.into_inner().map_err(io::IntoInnerError::into_error)?;
            Ok(PendingWatch { device, pending: file.pending, rows: file.rows })
        };
        self.devices.into_iter().map(close).collect()
    }
}
