//! Files of MindSpore's own memory tracker: `memory_block.csv`, one row per block of its pool.
//!
//! MindSpore writes it with `MS_ALLOC_CONF=memory_tracker:True`, one per rank (`rank_3/memory_block.csv`). A row has the whole
//! life of a block. Times are no times but the tracker's count of what happened, so reports of such a file have the order of
//! events and no durations. Cells are never quoted; a row ends with a comma. Releases differ in their columns, so columns are
//! found by name.

use std::io::{self, BufRead, Read};
use std::path::Path;

use msmemscope_dump::row::{Row, address, decimal};
use msmemscope_event::{BlockProperties, Device, Pool};

use crate::interpret::{BlockRow, Meaning};
use crate::process::ProcessBuilder;
use crate::report::{ImportReport, SkipReason};

/// The name that MindSpore gives to these files.
pub(crate) const FILE_NAME: &str = "memory_block.csv";
/// Between two counts of the tracker.
const NANOSECONDS_PER_COUNT: u64 = 1_000;
/// No row is longer; deep stacks take a few tens of kilobytes.
const LONGEST_ROW_BYTES: u64 = 16 << 20;
/// Columns without which a row says nothing about a block.
const NEEDED: [&str; 4] = ["start_time_stamp", "end_time_stamp", "device_addr", "size"];

/// Whether a file starts like one of these.
pub(crate) fn is_block_file(head: &[u8]) -> bool {
    let first_line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
    let has = |name: &str| first_line.split(|&byte| byte == b',').any(|cell| cell.trim_ascii() == name.as_bytes());
    NEEDED.iter().all(|name| has(name))
}

/// The card of a file: MindSpore names the rank in the directory, and a rank uses one card.
pub(crate) fn device_of(path: &Path) -> Device {
    let directory = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let rank = directory.and_then(|name| name.strip_prefix("rank_")?.parse().ok());
    Device::Npu(rank.unwrap_or(0))
}

/// Reads a file as the facts of a process.
pub(crate) fn read(
    input: &mut impl BufRead,
    device: Device,
    report: &mut ImportReport,
) -> io::Result<Option<ProcessBuilder>> {
    let mut line = Vec::new();
    next_line(input, &mut line)?;
    let columns = Columns::of(&line);
    let mut blocks = Blocks { builder: ProcessBuilder::new(0), device, rows: 0 };
    let first_ns = NANOSECONDS_PER_COUNT;
    blocks.add(first_ns, &Texts::default(), Meaning::RecordingStarts { free_and_total_bytes: None });
    let mut row_number = 0;
    while next_line(input, &mut line)? {
        row_number += 1;
        if line.len() as u64 == LONGEST_ROW_BYTES {
            report.skip(SkipReason::TooLong, row_number);
            skip_line(input)?;
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let cells: Vec<&[u8]> = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
        match blocks.take(&cells, &columns) {
            Ok(true) => report.rows_used += 1,
            Ok(false) => report.rows_derived += 1,
            Err(reason) => report.skip(reason, row_number),
        }
    }
    Ok((report.rows_used > 0).then_some(blocks.builder))
}

/// Reads a line, or as much of it as a row can have. False at the end.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    input.by_ref().take(LONGEST_ROW_BYTES).read_until(b'\n', line)?;
    Ok(!line.is_empty())
}

/// Leaves out the rest of a line.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (used, is_over) = match buffer.iter().position(|&byte| byte == b'\n') {
            Some(position) => (position + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        if is_over {
            return Ok(());
        }
    }
}

/// Where a row has what.
struct Columns {
    starts: Option<usize>,
    ends: Option<usize>,
    address: Option<usize>,
    size: Option<usize>,
    pool: Option<usize>,
    kind: Option<usize>,
    task: Option<usize>,
    node: Option<usize>,
    python_stack: Option<usize>,
}

impl Columns {
    fn of(header: &[u8]) -> Self {
        let names: Vec<&[u8]> = header.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
        let at = |name: &str| names.iter().position(|cell| *cell == name.as_bytes());
        Self {
            starts: at("start_time_stamp"),
            ends: at("end_time_stamp"),
            address: at("device_addr"),
            size: at("size"),
            pool: at("pool_type"),
            kind: at("type"),
            task: at("task_name"),
            node: at("node_name"),
            python_stack: at("python_stack"),
        }
    }
}

/// What a row says about where its block came from.
#[derive(Default)]
struct Texts {
    python_stack: Vec<u8>,
    native_stack: Vec<u8>,
}

/// Builds the facts.
struct Blocks {
    builder: ProcessBuilder,
    device: Device,
    rows: u64,
}

impl Blocks {
    /// Takes in the life of a block. False if the row is about memory inside of another block, or of the host.
    fn take(&mut self, cells: &[&[u8]], columns: &Columns) -> Result<bool, SkipReason> {
        let cell = |column: Option<usize>| column.and_then(|column| cells.get(column)).copied();
        let needed = |column| cell(column).ok_or(SkipReason::TooFewCells);
        // Blocks inside of one that was planned ahead were never asked for.
        if cell(columns.starts).is_some_and(|cell| cell.starts_with(b"-")) || cell(columns.pool) == Some(b"CPU") {
            return Ok(false);
        }
        let starts = decimal(needed(columns.starts)?).ok_or(SkipReason::BadNumber)?;
        let address = address(needed(columns.address)?).ok_or(SkipReason::BadAddress)?;
        let size_bytes = decimal(needed(columns.size)?).ok_or(SkipReason::MissingSize)?;
        // A block that is never freed has the largest number, or none.
        let ends = decimal(needed(columns.ends)?).filter(|&ends| ends > starts && ends < i64::MAX as u64);
        let kind = cell(columns.kind).unwrap_or_default();
        let block = |freed| BlockRow {
            properties: BlockProperties::framework(Pool::Mindspore, self.device),
            address,
            size_bytes,
            shadow: false,
            freed,
            total_bytes: None,
            process_used_bytes: None,
            device_used_bytes: None,
            owner: owner(kind),
            stream: 0,
        };
        let (allocated, freed) = (block(false), block(true));
        let node = [columns.node, columns.task].into_iter().filter_map(cell).find(|name| !name.is_empty());
        let texts = Texts {
            python_stack: stack_text(cell(columns.python_stack).unwrap_or_default()),
            native_stack: node.unwrap_or_default().to_vec(),
        };
        self.add(at_ns(starts), &texts, Meaning::Allocation(allocated));
        if let Some(ends) = ends {
            self.add(at_ns(ends), &Texts::default(), Meaning::Free(freed));
        }
        Ok(true)
    }

    fn add(&mut self, timestamp_ns: u64, texts: &Texts, meaning: Meaning<'_>) {
        self.rows += 1;
        let row = Row {
            id: self.rows,
            timestamp_ns,
            process_id: Some(0),
            python_stack: &texts.python_stack,
            native_stack: &texts.native_stack,
            ..Row::default()
        };
        self.builder.add(&row, meaning);
    }
}

fn at_ns(count: u64) -> u64 {
    count.saturating_mul(NANOSECONDS_PER_COUNT)
}

/// What MindSpore says a block is for, as owners are spelled.
fn owner(kind: &[u8]) -> Vec<u8> {
    match kind {
        b"" => Vec::new(),
        kind => [Pool::Mindspore.event_type().as_bytes(), b"@", kind].concat(),
    }
}

/// Frames as dump files write them, innermost first: `file(line): function`. MindSpore writes the outermost first, as
/// `File:train.py;Line:3;Function:step|`.
fn stack_text(cell: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(cell);
    let frame = |frame: &str| {
        let (file, rest) = frame.strip_prefix("File:")?.split_once(";Line:")?;
        let (line, function) = rest.split_once(";Function:")?;
        Some(format!("{file}({line}): {function}\n"))
    };
    text.rsplit('|').filter_map(frame).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_known_by_its_columns() {
        assert!(is_block_file(b"start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,\n1,2,"));
        assert!(!is_block_file(b"time_stamp,task_name,node_name,graph_name,file_name,line_num,\n"));
        assert!(!is_block_file(b"ID,Event,Event Type,Name,Timestamp(ns)\n"));
        assert_eq!(device_of(Path::new("trace/rank_3/memory_block.csv")), Device::Npu(3));
        assert_eq!(device_of(Path::new("memory_block.csv")), Device::Npu(0));
    }

    #[test]
    fn stacks_are_turned_around() {
        let cell = b"File:/data/train.py;Line:12;Function:<module>|File:/data/net.py;Line:7;Function:construct|";
        assert_eq!(stack_text(cell), b"/data/net.py(7): construct\n/data/train.py(12): <module>\n");
        assert_eq!((stack_text(b""), stack_text(b"File:a;Line")), (Vec::new(), Vec::new()));
    }
}
