//! The files of a dataset, written by a thread of its own: encoding takes as long as reading, so both cores work.
//!
//! A file gets its name when it is complete, so that an interrupted export leaves nothing that looks like data. The
//! last thing written is the manifest of the recording, which names its files: whoever asks the dataset knows from it
//! what is missing, damaged, left over or there twice.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use flate2::Crc;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

use super::tables::Table;
use super::{SCHEMA_VERSION, Written};

/// Rows of a group.
pub(super) const GROUP_ROWS: usize = 1 << 18;
/// Batches that wait to be written.
const WAITING: usize = 4;

/// Directory of the manifests. Engines leave out names that begin with an underscore.
const MANIFESTS: &str = "_manifests";

/// Where the files of a recording go, and what its manifest says of it.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    pub(super) job: String,
    pub(super) rank: i64,
    pub(super) part: String,
    pub(super) world_size: Option<u32>,
    pub(super) process_id: u32,
    pub(super) host: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

impl Partition {
    fn directory(&self, dataset: &Path, table: Table, device: Option<i32>) -> PathBuf {
        let mut path = dataset.join(table.name());
        path.push(format!("job={}", partition_value(&self.job)));
        path.push(format!("rank={}", self.rank));
        if let Some(device) = device {
            path.push(format!("device={device}"));
        }
        path
    }
}

/// A text as part of a path, the way engines read it back.
fn partition_value(text: &str) -> String {
    let mut value = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => value.push(char::from(byte)),
            other => value.push_str(&format!("%{other:02X}")),
        }
    }
    // Empty names, and those of directories, are none.
    if value.trim_matches('.').is_empty() { format!("job{value}") } else { value }
}

type Batch = (Table, Option<i32>, RecordBatch);

/// Takes batches and writes them behind whoever made them.
pub(super) struct Files {
    send: Option<SyncSender<Batch>>,
    thread: Option<JoinHandle<io::Result<Written>>>,
}

impl Files {
    pub(super) fn start(dataset: &Path, partition: &Partition) -> Self {
        let (send, receive) = sync_channel(WAITING);
        let (dataset, partition) = (dataset.to_owned(), partition.clone());
        let thread = std::thread::spawn(move || write_all(&dataset, &partition, &receive));
        Self { send: Some(send), thread: Some(thread) }
    }

    /// Hands over a batch; false if nobody can write it any more.
    pub(super) fn write(&mut self, table: Table, device: Option<i32>, batch: RecordBatch) -> bool {
        self.send.as_ref().is_some_and(|send| send.send((table, device, batch)).is_ok())
    }

    /// Waits until everything is written.
    pub(super) fn finish(mut self) -> io::Result<Written> {
        drop(self.send.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(written)) => written,
            _ => Err(io::Error::other("the writer of the dataset gave up")),
        }
    }
}

/// A file that knows its length and checksum.
struct Counted {
    file: File,
    sum: Crc,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A file without its name.
struct Pending {
    writer: ArrowWriter<Counted>,
    partial: PathBuf,
    path: PathBuf,
    rows: u64,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.partial);
    }
}

fn write_all(dataset: &Path, partition: &Partition, receive: &Receiver<Batch>) -> io::Result<Written> {
    let mut open: BTreeMap<(Table, Option<i32>), Pending> = BTreeMap::new();
    let mut written = Written::default();
    for (table, device, batch) in receive {
        let rows = batch.num_rows() as u64;
        written.events += if table == Table::Events { rows } else { 0 };
        written.blocks += if table == Table::Blocks { rows } else { 0 };
        let pending = match open.entry((table, device)) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(create(&partition.directory(dataset, table, device), &partition.part, table)?)
            }
        };
        pending.writer.write(&batch)?;
        pending.rows += rows;
    }
    let mut files = Vec::new();
    for mut pending in open.into_values() {
        pending.writer.finish()?;
        let Counted { sum, bytes, .. } = pending.writer.inner();
        written.files += 1;
        written.bytes += bytes;
        let path = pending.path.strip_prefix(dataset).unwrap_or(&pending.path);
        files.push(json!({ "path": path, "rows": pending.rows, "bytes": bytes, "crc32": sum.sum() }));
        fs::rename(&pending.partial, &pending.path)?;
    }
    write_manifest(dataset, partition, &files)?;
    Ok(written)
}

/// When the recording ended that a dataset has under a name, if a manifest says so.
pub(super) fn end_ns_of(dataset: &Path, part: &str) -> Option<u64> {
    let text = fs::read(dataset.join(MANIFESTS).join(format!("{part}.json"))).ok()?;
    serde_json::from_slice::<Value>(&text).ok()?["end_ns"].as_u64()
}

/// Says what belongs to the recording. Until it is there, or if it does not fit, the recording does not count.
fn write_manifest(dataset: &Path, partition: &Partition, files: &[Value]) -> io::Result<()> {
    let Partition { job, rank, part, world_size, process_id, host, start_ns, end_ns } = partition;
    let manifest = json!({
        "format": "msmemscope-dataset-part",
        "version": SCHEMA_VERSION,
        "program_version": env!("CARGO_PKG_VERSION"),
        "job": job,
        "rank": rank,
        "world_size": world_size,
        "process_id": process_id,
        "host": host,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "files": files,
    });
    let directory = dataset.join(MANIFESTS);
    fs::create_dir_all(&directory)?;
    let partial = directory.join(format!(".{part}.partial"));
    fs::write(&partial, format!("{manifest}\n"))?;
    fs::rename(&partial, directory.join(format!("{part}.json")))
}

fn create(directory: &Path, part: &str, table: Table) -> io::Result<Pending> {
    fs::create_dir_all(directory)?;
    // Engines leave out names that begin with a dot.
    let partial = directory.join(format!(".{part}.partial"));
    let path = directory.join(format!("{part}.parquet"));
    let version = KeyValue::new("msmemscope.schema_version".to_owned(), SCHEMA_VERSION.to_string());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_key_value_metadata(Some(vec![version]))
        .set_created_by(concat!("msmemscope ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let file = Counted { file: File::create(&partial)?, sum: Crc::new(), bytes: 0 };
    let writer = ArrowWriter::try_new(file, table.schema(), Some(properties))?;
    Ok(Pending { writer, partial, path, rows: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_job_is_one_directory() {
        assert_eq!(partition_value("run-17.b_2"), "run-17.b_2");
        assert_eq!(partition_value("../a b"), "..%2Fa%20b");
        assert_eq!(partition_value(""), "job");
        assert_eq!(partition_value(".."), "job..");
    }
}
