//! From the events of a recording to rows of the tables, in one pass.
//!
//! Events are in the order of time. A block becomes a row when it ends, or at the end of the recording; rows of blocks
//! are sorted by the time of the allocation within each row group.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use msmemscope_analysis::names::Calls;
use msmemscope_analysis::owners::OwnerId;
use msmemscope_analysis::situation::{BlockChange, LiveBlock, Situation};
use msmemscope_analysis::step_use::{StepFollower, StepMemory};
use msmemscope_analysis::{Frame, Names, RecordingNames};
use msmemscope_config::SettingsChange;
use msmemscope_event::{Device, Pool, ProcessInfoKey, StringId};
use msmemscope_import::Recording;
use msmemscope_output::row::{name_of, words_of};
use msmemscope_results::scopes::Scopes;
use msmemscope_timeline::{EventKind, EventSink, FactSource, Summary, TimelineEvent, TimelineSettings, run};
use rustc_hash::FxHashMap;

use super::files::{Files, GROUP_ROWS, Partition};
use super::tables::Table;
use super::{SCHEMA_VERSION, Written, device_number};
use crate::{Progress, everything};

/// Rows handed over at once.
const BATCH_ROWS: usize = 1 << 16;
/// Different words that a column remembers; with more it starts anew.
const MOST_WORDS: usize = 1 << 16;

pub(super) fn write(
    recording: &Recording,
    dataset: &Path,
    partition: &Partition,
    progress: Progress<'_>,
) -> io::Result<Written> {
    let names = RecordingNames::new(recording);
    let settings = settings(recording);
    let mut rows = Rows {
        process_id: recording.process_id() as i32,
        names: &names,
        recording,
        situation: Situation::of(recording),
        steps: StepFollower::default(),
        stacks: Stacks::default(),
        owners: FxHashMap::default(),
        events: BTreeMap::new(),
        blocks: BTreeMap::new(),
        step_rows: BTreeMap::new(),
        files: Files::start(dataset, partition),
        block_count: 0,
        error: None,
    };
    if let Some(first_number) = settings.step_source.and_then(msmemscope_timeline::StepSource::first_number) {
        rows.situation.begin_with_step(first_number);
    }
    let summary = run(recording, &settings, &mut rows, progress);
    rows.finish(&summary)
}

/// What the files of a recording show: the devices and steps that its settings ask for, every kind of event.
fn settings(recording: &Recording) -> TimelineSettings {
    let all = everything(recording);
    match recording {
        Recording::Trace { trace, .. } => {
            let scopes = Scopes::of(trace.definitions(), &SettingsChange::default()).with_every_kind_of_event();
            TimelineSettings { step_source: all.step_source, ..scopes.timeline(false) }
        }
        Recording::Process(_) => all,
    }
}

/// A column of words that come again and again.
#[derive(Default)]
struct Words {
    numbers: FxHashMap<String, i32>,
    words: Vec<String>,
    rows: Vec<Option<i32>>,
    /// Numbers of texts that the recording knows by number.
    by_id: FxHashMap<StringId, i32>,
}

impl Words {
    fn number(&mut self, word: &str) -> i32 {
        if let Some(&number) = self.numbers.get(word) {
            return number;
        }
        let number = self.words.len() as i32;
        self.numbers.insert(word.to_owned(), number);
        self.words.push(word.to_owned());
        number
    }

    fn push(&mut self, word: Option<&str>) {
        let number = word.map(|word| self.number(word));
        self.rows.push(number);
    }

    fn push_text(&mut self, id: StringId, names: &dyn Names) {
        if !id.is_some() {
            return self.rows.push(None);
        }
        let number = match self.by_id.get(&id) {
            Some(&number) => number,
            None => {
                let number = self.number(&names.text(id));
                self.by_id.insert(id, number);
                number
            }
        };
        self.rows.push(Some(number));
    }

    fn take(&mut self) -> ArrayRef {
        let keys = Int32Array::from(std::mem::take(&mut self.rows));
        let words = StringArray::from_iter_values(&self.words);
        if self.words.len() > MOST_WORDS {
            *self = Self::default();
        }
        // Every key is the place of a word.
        let array: DictionaryArray<Int32Type> = DictionaryArray::new(keys, Arc::new(words));
        Arc::new(array)
    }
}

fn longs(rows: &mut Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(std::mem::take(rows)))
}

fn optional_longs(rows: &mut Vec<Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from(std::mem::take(rows)))
}

fn ints(rows: &mut Vec<i32>) -> ArrayRef {
    Arc::new(Int32Array::from(std::mem::take(rows)))
}

fn same_ints(value: i32, rows: usize) -> ArrayRef {
    Arc::new(Int32Array::from(vec![value; rows]))
}

fn batch(table: Table, columns: Vec<ArrayRef>) -> io::Result<RecordBatch> {
    RecordBatch::try_new(table.schema(), columns).map_err(io::Error::other)
}

/// Events of one device that wait to be handed over.
#[derive(Default)]
struct EventRows {
    time_ns: Vec<i64>,
    thread_id: Vec<i32>,
    step: Vec<i64>,
    event: Words,
    event_type: Words,
    name: Words,
    allocation_id: Vec<Option<i64>>,
    address: Vec<Option<i64>>,
    size_bytes: Vec<Option<i64>>,
    used_bytes: Vec<Option<i64>>,
    reserved_bytes: Vec<Option<i64>>,
    stack_id: Vec<Option<i64>>,
}

impl EventRows {
    fn take(&mut self, process_id: i32) -> io::Result<RecordBatch> {
        let columns = vec![
            same_ints(process_id, self.time_ns.len()),
            longs(&mut self.time_ns),
            ints(&mut self.thread_id),
            longs(&mut self.step),
            self.event.take(),
            self.event_type.take(),
            self.name.take(),
            optional_longs(&mut self.allocation_id),
            optional_longs(&mut self.address),
            optional_longs(&mut self.size_bytes),
            optional_longs(&mut self.used_bytes),
            optional_longs(&mut self.reserved_bytes),
            optional_longs(&mut self.stack_id),
        ];
        batch(Table::Events, columns)
    }
}

/// A block whose life is known.
struct BlockRow {
    live: LiveBlock,
    freed: Option<(i64, i64)>,
    stack_id: Option<i64>,
}

/// A step of a pool.
type StepRow = (Pool, StepMemory);

/// Stacks that rows refer to.
#[derive(Default)]
struct Stacks {
    numbers: FxHashMap<Calls, i64>,
    /// Stacks by number, with the time of an event.
    stacks: Vec<(Calls, u64)>,
}

impl Stacks {
    #[inline]
    fn number(&mut self, calls: Calls, timestamp_ns: u64) -> Option<i64> {
        if !calls.has_stack() {
            return None;
        }
        let next = self.stacks.len() as i64;
        let number = *self.numbers.entry(calls).or_insert(next);
        if number == next {
            self.stacks.push((calls, timestamp_ns));
        }
        Some(number)
    }
}

struct Rows<'a> {
    process_id: i32,
    names: &'a RecordingNames<'a>,
    recording: &'a Recording,
    situation: Situation,
    steps: StepFollower,
    stacks: Stacks,
    /// Owners in words.
    owners: FxHashMap<OwnerId, Option<String>>,
    events: BTreeMap<Device, EventRows>,
    blocks: BTreeMap<Device, Vec<BlockRow>>,
    step_rows: BTreeMap<Device, Vec<StepRow>>,
    files: Files,
    block_count: i64,
    /// What went wrong on the way.
    error: Option<io::Error>,
}

impl EventSink for Rows<'_> {
    fn take(&mut self, event: TimelineEvent) {
        let (ended, step) = self.situation.update(&event, self.names);
        match &event.kind {
            EventKind::Malloc(block) => {
                if let Some(live) = self.situation.block(block.slot) {
                    self.steps.block(&BlockChange::Begins(live, block), event.timestamp_ns);
                }
            }
            EventKind::Free(block) => {
                if let Some(live) = ended {
                    self.steps.block(&BlockChange::Ends(&live, block), event.timestamp_ns);
                    let step = self.situation.steps(live.properties.device).number;
                    self.block_ended(live, Some((event.timestamp_ns as i64, step as i64)));
                }
            }
            _ => {}
        }
        if let Some(change) = step {
            let rows = &mut self.step_rows;
            let mut add = |device, pool, memory| rows.entry(device).or_default().push((pool, memory));
            self.steps.step(&change, event.timestamp_ns, &mut add);
        }
        self.event(&event);
    }
}

impl Rows<'_> {
    fn event(&mut self, event: &TimelineEvent) {
        let Some((word, event_type)) = words_of(&event.kind) else { return };
        let stack_id = self.stacks.number(Calls::of_event(event, &self.situation), event.timestamp_ns);
        let rows = self.events.entry(event.device).or_default();
        rows.time_ns.push(event.timestamp_ns as i64);
        rows.thread_id.push(event.thread_id as i32);
        rows.step.push(event.step as i64);
        rows.event.push(Some(word));
        rows.event_type.push(Some(event_type));
        match &event.kind {
            EventKind::Malloc(_) | EventKind::Free(_) => rows.name.rows.push(None),
            EventKind::Access { operator: id, .. }
            | EventKind::Operator { name: id, .. }
            | EventKind::Kernel { name: id, .. } => rows.name.push_text(*id, self.names),
            kind => rows.name.push(Some(&name_of(kind, self.recording.definitions()))),
        }
        let (allocation, address, size, used, reserved) = match &event.kind {
            EventKind::Malloc(block) | EventKind::Free(block) => (
                Some(block.allocation_id),
                Some(block.address),
                Some(block.size_bytes),
                Some(block.used_bytes),
                Some(block.total_bytes),
            ),
            EventKind::Access { allocation_id, address, size_bytes, .. } => {
                (Some(*allocation_id).filter(|id| *id != 0), Some(*address), Some(*size_bytes), None, None)
            }
            EventKind::AllocationFailed { size_bytes, .. } => (None, None, Some(*size_bytes), None, None),
            _ => (None, None, None, None, None),
        };
        let long = |number: Option<u64>| number.map(|number| number as i64);
        rows.allocation_id.push(long(allocation));
        rows.address.push(long(address));
        rows.size_bytes.push(long(size));
        rows.used_bytes.push(long(used));
        rows.reserved_bytes.push(long(reserved));
        rows.stack_id.push(stack_id);
        if rows.time_ns.len() >= BATCH_ROWS {
            let batch = rows.take(self.process_id);
            self.hand_over(Table::Events, event.device, batch);
        }
    }

    fn block_ended(&mut self, live: LiveBlock, freed: Option<(i64, i64)>) {
        let device = live.properties.device;
        // Operators have a column of their own.
        let calls = Calls { operator: StringId::NONE, ..Calls::of(&live) };
        let stack_id = self.stacks.number(calls, live.timestamp_ns);
        self.block_count += 1;
        let rows = self.blocks.entry(device).or_default();
        rows.push(BlockRow { live, freed, stack_id });
        if rows.len() >= GROUP_ROWS {
            let rows = std::mem::take(rows);
            let batch = self.block_batch(rows);
            self.hand_over(Table::Blocks, device, batch);
        }
    }

    fn block_batch(&mut self, mut rows: Vec<BlockRow>) -> io::Result<RecordBatch> {
        rows.sort_unstable_by_key(|row| (row.live.timestamp_ns, row.live.allocation_id));
        let (mut pool, mut owner, mut operator) = (Words::default(), Words::default(), Words::default());
        for BlockRow { live, .. } in &rows {
            pool.push(Some(live.properties.pool.event_type()));
            operator.push_text(live.operator, self.names);
            let (situation, names) = (&self.situation, self.names);
            let text = self.owners.entry(live.owner).or_insert_with(|| situation.owner_text(live.owner, names));
            owner.push(text.as_deref());
        }
        let long = |of: &dyn Fn(&BlockRow) -> u64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| of(row) as i64)))
        };
        let columns = vec![
            same_ints(self.process_id, rows.len()),
            long(&|row| row.live.allocation_id),
            pool.take(),
            owner.take(),
            operator.take(),
            long(&|row| row.live.address),
            long(&|row| row.live.size_bytes),
            long(&|row| row.live.timestamp_ns),
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.freed.map(|(time_ns, _)| time_ns)))),
            long(&|row| row.live.step),
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.freed.map(|(_, step)| step)))),
            long(&|row| row.live.device_step),
            Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.live.thread_id as i32))),
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.stack_id))),
            Arc::new(BooleanArray::from_iter(rows.iter().map(|row| Some(row.live.shadow)))),
        ];
        batch(Table::Blocks, columns)
    }

    fn hand_over(&mut self, table: Table, device: Device, batch: io::Result<RecordBatch>) {
        match batch {
            Ok(batch) if batch.num_rows() > 0 => {
                // Who cannot write any more says why in the end.
                self.files.write(table, Some(device_number(device)), batch);
            }
            Ok(_) => {}
            Err(error) => self.error = Some(error),
        }
    }

    fn finish(mut self, summary: &Summary) -> io::Result<Written> {
        let alive: Vec<LiveBlock> = self.situation.live_blocks().copied().collect();
        for live in alive {
            self.block_ended(live, None);
        }
        for (device, mut rows) in std::mem::take(&mut self.events) {
            let batch = rows.take(self.process_id);
            self.hand_over(Table::Events, device, batch);
        }
        for (device, rows) in std::mem::take(&mut self.blocks) {
            let batch = self.block_batch(rows);
            self.hand_over(Table::Blocks, device, batch);
        }
        for (device, rows) in std::mem::take(&mut self.step_rows) {
            let batch = step_batch(self.process_id, &rows);
            self.hand_over(Table::Steps, device, batch);
        }
        let (stacks, frames) = stack_batches(self.process_id, &self.stacks, self.names)?;
        for (table, batch) in [(Table::Stacks, stacks), (Table::Frames, frames)] {
            if batch.num_rows() > 0 {
                self.files.write(table, None, batch);
            }
        }
        let batch = recording_batch(self.recording, summary, self.block_count)?;
        self.files.write(Table::Recordings, None, batch);
        let written = self.files.finish()?;
        self.error.map_or(Ok(written), Err)
    }
}

fn step_batch(process_id: i32, rows: &[StepRow]) -> io::Result<RecordBatch> {
    let mut pool = Words::default();
    rows.iter().for_each(|(of, _)| pool.push(Some(of.event_type())));
    let long = |of: fn(&StepMemory) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, step)| of(step) as i64)))
    };
    let columns = vec![
        same_ints(process_id, rows.len()),
        pool.take(),
        long(|step| step.step),
        long(|step| step.began_ns),
        long(|step| step.ended_ns),
        long(|step| step.peak_bytes),
        long(|step| step.end_bytes),
    ];
    batch(Table::Steps, columns)
}

/// All stacks, innermost frame first, and all frames.
fn stack_batches(
    process_id: i32,
    stacks: &Stacks,
    names: &RecordingNames<'_>,
) -> io::Result<(RecordBatch, RecordBatch)> {
    let (mut stack_id, mut position, mut frame_id) = (Vec::new(), Vec::new(), Vec::new());
    let mut call_site = Words::default();
    let mut frames: Vec<Frame> = Vec::new();
    let mut numbers: FxHashMap<Frame, i64> = FxHashMap::default();
    for (number, (calls, timestamp_ns)) in stacks.stacks.iter().enumerate() {
        let text = calls.named(*timestamp_ns, names);
        let whole = text.whole_stack();
        for (index, (frame, _)) in whole.iter().rev().enumerate() {
            let known = *numbers.entry((*frame).clone()).or_insert_with(|| {
                frames.push((*frame).clone());
                frames.len() as i64 - 1
            });
            stack_id.push(number as i64);
            position.push(index as i32);
            frame_id.push(Some(known));
            call_site.push(Some(&text.line));
        }
        if whole.is_empty() {
            stack_id.push(number as i64);
            position.push(0);
            frame_id.push(None);
            call_site.push(Some(&text.line));
        }
    }
    let columns = vec![
        same_ints(process_id, stack_id.len()),
        longs(&mut stack_id),
        ints(&mut position),
        optional_longs(&mut frame_id),
        call_site.take(),
    ];
    let stacks = batch(Table::Stacks, columns)?;
    let mut file = Words::default();
    frames.iter().for_each(|frame| file.push(Some(&frame.file)));
    let columns: Vec<ArrayRef> = vec![
        same_ints(process_id, frames.len()),
        Arc::new(Int64Array::from_iter_values(0..frames.len() as i64)),
        Arc::new(StringArray::from_iter_values(frames.iter().map(|frame| &frame.function))),
        file.take(),
        Arc::new(Int32Array::from_iter_values(frames.iter().map(|frame| frame.line as i32))),
    ];
    Ok((stacks, batch(Table::Frames, columns)?))
}

fn recording_batch(recording: &Recording, summary: &Summary, blocks: i64) -> io::Result<RecordBatch> {
    let definitions = recording.definitions();
    let place = definitions.place();
    let text = |key| {
        let text = definitions.process_information(key).unwrap_or_default();
        String::from_utf8_lossy(text).replace('\0', " ").trim().to_owned()
    };
    let (lost, is_complete) = match recording {
        Recording::Trace { trace, .. } => {
            let completeness = trace.completeness();
            let lost = completeness.losses.iter().filter(|(reason, _)| reason.loses_events());
            (lost.map(|(_, count)| *count).sum::<u64>(), completeness.is_complete())
        }
        Recording::Process(_) => (0, true),
    };
    let long = |number: u64| -> ArrayRef { Arc::new(Int64Array::from(vec![number as i64])) };
    let place_of =
        |number: Option<u32>| -> ArrayRef { Arc::new(Int32Array::from(vec![number.map(|number| number as i32)])) };
    let columns: Vec<ArrayRef> = vec![
        same_ints(recording.process_id() as i32, 1),
        same_ints(SCHEMA_VERSION as i32, 1),
        Arc::new(StringArray::from(vec![text(ProcessInfoKey::HostName)])),
        Arc::new(StringArray::from(vec![text(ProcessInfoKey::CommandLine)])),
        place_of(place.local_rank),
        place_of(place.world_size),
        long(summary.first_timestamp_ns),
        long(summary.last_timestamp_ns),
        long(summary.events_shown),
        long(blocks as u64),
        long(summary.steps),
        long(lost),
        Arc::new(BooleanArray::from(vec![is_complete])),
    ];
    batch(Table::Recordings, columns)
}
