//! A dataset of columns for SQL engines: Parquet files below `<dataset>/<table>/job=.../rank=.../device=.../`.
//!
//! * [`tables`]: the tables and their columns; documented for users in `docs/fleet.md`.
//! * [`rows`]: from events to rows, in one pass; memory is bounded by live blocks and one row group per file.
//! * [`files`]: the files, written behind the pass by a thread of its own.
//!
//! All numbers are signed integers of 32 or 64 bits, which every engine knows. Partitions are numbers, too: a process
//! without rank has rank -1, host memory is device -1, no device is device -2. A recording that is exported again
//! replaces its own files and nobody else's, but a copy that was made while the process ran never replaces what came later.

mod files;
mod rows;
mod tables;

use std::io;
use std::path::Path;

use msmemscope_event::{Device, ProcessInfoKey};
use msmemscope_import::Recording;
use msmemscope_timeline::{FactSource, FactStream};

use self::files::Partition;
use crate::Progress;

/// Version of the tables, part of every file's name: what another version wrote is told apart without opening it.
pub const SCHEMA_VERSION: u32 = 1;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rows of the table of events.
    pub events: u64,
    /// Rows of the table of blocks.
    pub blocks: u64,
    /// Recordings that were not written, because the dataset has one of the same process that goes on for longer.
    pub outdated: u64,
}

impl Written {
    /// Both together.
    pub fn with(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
            events: self.events + other.events,
            blocks: self.blocks + other.blocks,
            outdated: self.outdated + other.outdated,
        }
    }
}

/// Writes one recording into a dataset, unless a longer one of the same process is there.
pub fn write(recording: &Recording, dataset: &Path, progress: Progress<'_>) -> io::Result<Written> {
    let definitions = recording.definitions();
    let host = definitions.process_information(ProcessInfoKey::HostName).unwrap_or_default();
    let start_ns = start_ns(recording);
    let partition = Partition {
        job: job(recording),
        rank: definitions.place().rank.map_or(-1, i64::from),
        part: part(recording, host, start_ns),
        world_size: definitions.place().world_size,
        process_id: recording.process_id(),
        host: String::from_utf8_lossy(host).into_owned(),
        start_ns,
        end_ns: recording.end_monotonic_ns().wrapping_add_signed(recording.wall_offset_ns()),
    };
    if files::end_ns_of(dataset, &partition.part).is_some_and(|end_ns| end_ns > partition.end_ns) {
        return Ok(Written { outdated: 1, ..Written::default() });
    }
    rows::write(recording, dataset, &partition, progress)
}

/// The number of a device in the dataset.
fn device_number(device: Device) -> i32 {
    match device {
        Device::Npu(id) => i32::from(id),
        Device::Host => -1,
        Device::Unknown => -2,
    }
}

/// The id of the job, or else a name for all jobs of its size.
fn job(recording: &Recording) -> String {
    let definitions = recording.definitions();
    let id = definitions.process_information(ProcessInfoKey::Job).filter(|id| !id.is_empty());
    match (id, definitions.place().world_size) {
        (Some(id), _) => String::from_utf8_lossy(id).into_owned(),
        (None, Some(size)) => format!("world-{size}"),
        (None, None) => "single".to_owned(),
    }
}

/// When a process began, nanoseconds since 1970.
fn start_ns(recording: &Recording) -> u64 {
    let monotonic_ns = match recording {
        Recording::Trace { trace, .. } => trace.start_monotonic_ns(),
        Recording::Process(_) => recording.facts().next().map_or(0, |record| record.monotonic_ns),
    };
    monotonic_ns.wrapping_add_signed(recording.wall_offset_ns())
}

/// Tells the files of one recording from those of others.
fn part(recording: &Recording, host: &[u8], start_ns: u64) -> String {
    // Not the same as another host's, as far as anybody cares; the same in every run.
    let host = host
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("part-v{SCHEMA_VERSION}-{}-{:08x}-{start_ns:x}", recording.process_id(), host as u32)
}
