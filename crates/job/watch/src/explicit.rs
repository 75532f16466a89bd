//! Blocks that the user names: outputs of an operator, tensors, pieces of memory.
//!
//! Outputs are watched from the end of the first call of the start operator to the end of the end
//! operator. Tensors and pieces of memory are watched from the call that asks for it until they are
//! removed, freed, resized or dumped as often as asked for; an end operator ends them as well.

use std::path::PathBuf;

use msmemscope_event::{ByteRange, Device, WatchDetail, WatchNote, dump_name, ranges};

use crate::dump;
use crate::fingerprint::{Fingerprint, PIECE_BYTES};
use crate::live_blocks::LiveBlocks;
use crate::operator_name::OperatorPattern;
use crate::reading::{Reader, Wanted};
use crate::surroundings::{OperatorCall, Output, Surroundings, WatchRecord};

/// Which outputs to watch, and until when.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Operator whose outputs are watched.
    pub start: Option<OperatorPattern>,
    /// Only this one of its outputs, counted from zero.
    pub output_index: Option<u32>,
    /// Operator at whose end watching ends.
    pub end: Option<OperatorPattern>,
    /// Whether contents are written to files instead of their checksums.
    pub full_content: bool,
}

/// A block to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name in the results.
    pub name: String,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Where it is.
    pub device: Device,
    /// How often it is dumped; without limit if nothing is said.
    pub most_dumps: Option<u64>,
}

struct Seen {
    fingerprint: Fingerprint,
    operator: String,
    after: bool,
}

struct Watched {
    target: Target,
    /// Whether it is an output of the operator that the selection names.
    is_selected: bool,
    output_index: u32,
    /// The allocation that holds it, as far as known.
    generation: Option<u64>,
    dumps_left: Option<u64>,
    seen: Option<Seen>,
    /// What operators declared to write since then.
    declared: Vec<ByteRange>,
    operators_since: u64,
}

impl Watched {
    fn range(&self) -> ByteRange {
        ByteRange::sized(self.target.address, self.target.size_bytes)
    }

    fn declare(&mut self, writes: &[ByteRange]) {
        let range = self.range();
        let own = writes.iter().filter(|write| write.overlaps(range));
        self.declared.extend(own.map(|write| write.intersection(range).relative_to(range.start)));
        ranges::merge(&mut self.declared);
    }
}

/// All blocks that are watched because somebody named them.
#[derive(Default)]
pub struct Explicit {
    selection: Selection,
    has_started: bool,
    /// Whether the kernel ran that the selection starts with; the outputs of its operator are not known yet.
    has_started_inside: bool,
    has_ended: bool,
    watched: Vec<Watched>,
    reader: Reader,
    /// Dumps are given up after the first that cannot be written.
    dumps_fail: bool,
}

impl Explicit {
    /// Watching as selected.
    pub fn new(selection: Selection) -> Self {
        Self { selection, ..Self::default() }
    }

    /// Whether blocks are watched now.
    pub fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Whether operators matter: something is watched, or will be.
    pub fn is_waiting(&self) -> bool {
        self.is_watching() || (self.selection.start.is_some() && !self.has_started)
    }

    /// Whether the end of this operator is where watching begins.
    pub fn starts_with(&self, operator: &str) -> bool {
        !self.has_started && self.selection.start.as_ref().is_some_and(|start| start.matches(operator))
    }

    /// Whether any operator may turn out to be where watching begins, by a kernel that it launches.
    pub fn may_start_with_a_kernel(&self) -> bool {
        !self.has_started && self.selection.start.is_some()
    }

    /// Whether any operator may turn out to be where watching begins, by one of a library that it runs.
    pub fn may_start_with_a_path(&self) -> bool {
        !self.has_started && self.selection.start.as_ref().is_some_and(OperatorPattern::is_path)
    }

    /// Nothing is selected any more; blocks that somebody added are watched on.
    pub fn forget_operators(&mut self, surroundings: &mut dyn Surroundings) {
        self.selection = Selection { full_content: self.selection.full_content, ..Selection::default() };
        while let Some(index) = self.watched.iter().position(|watched| watched.is_selected) {
            self.finish(index, WatchNote::Removed, None, surroundings);
        }
    }

    /// What is watched.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.watched.iter().map(|watched| &watched.target)
    }

    /// Watches a block from now on; one at the same address is replaced.
    pub fn add(&mut self, target: Target, blocks: &LiveBlocks, surroundings: &mut dyn Surroundings) {
        self.watched.retain(|watched| watched.target.address != target.address);
        self.begin(target, None, blocks);
        let index = self.watched.len() - 1;
        let nothing = OperatorCall {
            name: "",
            number: 0,
            device: self.watched[index].target.device,
            thread_id: 0,
            writes: &[],
            is_active: false,
            launch: None,
        };
        if !self.look(index, &nothing, WatchNote::Begin, true, surroundings) {
            self.watched.pop();
        }
    }

    /// Ends watching of the block at an address; false if it is not watched.
    pub fn remove(&mut self, address: u64, surroundings: &mut dyn Surroundings) -> bool {
        let found = self.watched.iter().position(|watched| watched.target.address == address);
        if let Some(index) = found {
            self.finish(index, WatchNote::Removed, None, surroundings);
        }
        found.is_some()
    }

    /// The tensor of the block at an address has other memory by now.
    pub fn resized(&mut self, address: u64, surroundings: &mut dyn Surroundings) {
        if let Some(index) = self.watched.iter().position(|watched| watched.target.address == address) {
            self.finish(index, WatchNote::Resized, None, surroundings);
        }
    }

    /// Somebody declares to write this memory.
    pub fn declare(&mut self, writes: &[ByteRange]) {
        for watched in &mut self.watched {
            watched.declare(writes);
        }
    }

    /// An operator is about to run.
    pub fn before(&mut self, call: &OperatorCall<'_>, blocks: &LiveBlocks, surroundings: &mut dyn Surroundings) {
        self.look_at_all(call, false, blocks, surroundings);
        self.declare(call.writes);
    }

    /// An operator has run, with these outputs.
    pub fn after(
        &mut self,
        call: &OperatorCall<'_>,
        outputs: &[Output],
        blocks: &LiveBlocks,
        surroundings: &mut dyn Surroundings,
    ) {
        self.declare(call.writes);
        for watched in &mut self.watched {
            watched.operators_since += 1;
        }
        self.look_at_all(call, true, blocks, surroundings);
        self.start_or_end(call, outputs, blocks, surroundings);
    }

    /// An operator has run that only matters for where watching starts and ends: looks are taken around its kernels.
    pub fn pass(
        &mut self,
        call: &OperatorCall<'_>,
        outputs: &[Output],
        blocks: &LiveBlocks,
        surroundings: &mut dyn Surroundings,
    ) {
        self.declare(call.writes);
        self.start_or_end(call, outputs, blocks, surroundings);
    }

    fn start_or_end(
        &mut self,
        call: &OperatorCall<'_>,
        outputs: &[Output],
        blocks: &LiveBlocks,
        surroundings: &mut dyn Surroundings,
    ) {
        let starts_inside = std::mem::take(&mut self.has_started_inside);
        if starts_inside || self.starts_with(call.name) {
            self.start(call, outputs, blocks, surroundings);
        }
        self.end_if(self.selection.end.as_ref().is_some_and(|end| end.matches(call.name)), call, surroundings);
    }

    /// A kernel is about to be launched. Its name is only a stand-in for the one that [`Self::after_kernel`] is told.
    pub fn before_kernel(&mut self, call: &OperatorCall<'_>, blocks: &LiveBlocks, surroundings: &mut dyn Surroundings) {
        self.look_at_all(call, false, blocks, surroundings);
    }

    /// A kernel has run that was announced under another name.
    pub fn after_kernel(
        &mut self,
        announced: &str,
        call: &OperatorCall<'_>,
        blocks: &LiveBlocks,
        surroundings: &mut dyn Surroundings,
    ) {
        for watched in &mut self.watched {
            watched.operators_since += 1;
            if let Some(seen) = watched.seen.as_mut().filter(|seen| seen.operator == announced) {
                call.name.clone_into(&mut seen.operator);
            }
        }
        self.look_at_all(call, true, blocks, surroundings);
        let is_start = self.selection.start.as_ref().is_some_and(|start| start.matches_kernel(call.name));
        self.has_started_inside |= is_start && !self.has_started;
        self.end_if(self.selection.end.as_ref().is_some_and(|end| end.matches_kernel(call.name)), call, surroundings);
    }

    /// No operator is under way any more: what they declared counts no longer.
    pub fn settle(&mut self) {
        for watched in &mut self.watched {
            watched.declared.clear();
        }
    }

    fn end_if(&mut self, is_end: bool, call: &OperatorCall<'_>, surroundings: &mut dyn Surroundings) {
        if is_end && !self.has_ended && (self.has_started || self.selection.start.is_none()) {
            self.has_ended = true;
            while let Some(index) = self.watched.len().checked_sub(1) {
                self.finish(index, WatchNote::EndReached, Some(call), surroundings);
            }
        }
    }

    fn start(
        &mut self,
        call: &OperatorCall<'_>,
        outputs: &[Output],
        blocks: &LiveBlocks,
        surroundings: &mut dyn Surroundings,
    ) {
        self.has_started = true;
        let wanted = self.selection.output_index;
        let chosen: Vec<&Output> =
            outputs.iter().filter(|output| wanted.is_none_or(|index| index == output.index)).collect();
        if chosen.is_empty() {
            let which = wanted.map_or_else(String::new, |index| format!(" {index}"));
            surroundings.say(format!("{} has no output{which} on the device; nothing is watched", call.name));
        }
        for output in chosen {
            let target = Target {
                name: call.name.to_owned(),
                address: output.address,
                size_bytes: output.size_bytes,
                device: output.device,
                most_dumps: None,
            };
            self.begin(target, Some(output.index), blocks);
            let index = self.watched.len() - 1;
            if !self.look(index, call, WatchNote::Look, true, surroundings) {
                self.watched.pop();
            }
        }
    }

    fn begin(&mut self, target: Target, output_index: Option<u32>, blocks: &LiveBlocks) {
        let generation = blocks.holding(target.address).map(|block| block.generation);
        let dumps_left = target.most_dumps;
        self.watched.push(Watched {
            target,
            is_selected: output_index.is_some(),
            output_index: output_index.unwrap_or(0),
            generation,
            dumps_left,
            seen: None,
            declared: Vec::new(),
            operators_since: 0,
        });
    }

    fn look_at_all(
        &mut self,
        call: &OperatorCall<'_>,
        after: bool,
        blocks: &LiveBlocks,
        surroundings: &mut dyn Surroundings,
    ) {
        let mut index = 0;
        while index < self.watched.len() {
            let watched = &self.watched[index];
            let holder = blocks.holding(watched.target.address).map(|block| block.generation);
            if holder != watched.generation {
                self.finish(index, WatchNote::Freed, Some(call), surroundings);
            } else if !self.look(index, call, WatchNote::Look, after, surroundings) {
                self.watched.remove(index);
            } else if self.watched[index].dumps_left == Some(0) {
                self.finish(index, WatchNote::CountReached, Some(call), surroundings);
            } else {
                index += 1;
            }
        }
    }

    /// Looks at one block and takes down what it saw; false if its contents cannot be read.
    fn look(
        &mut self,
        index: usize,
        call: &OperatorCall<'_>,
        note: WatchNote,
        after: bool,
        surroundings: &mut dyn Surroundings,
    ) -> bool {
        let is_dump = note == WatchNote::Look;
        let wants_file = is_dump && self.selection.full_content && !self.dumps_fail;
        let (file, file_name) =
            if wants_file { self.dump_file(index, call, after, surroundings) } else { (None, None) };
        let watched = &mut self.watched[index];
        let Target { address, size_bytes, device, .. } = watched.target;
        let wanted = Wanted { checksum: is_dump && !self.selection.full_content, file };
        let mut detail = WatchDetail {
            note,
            device,
            call: call.number,
            writes: call.writes.to_vec(),
            is_blocking: surroundings.is_blocking(),
            operators_since: watched.operators_since,
            piece_bytes: PIECE_BYTES as u64,
            launched_by: call.launch.map(|launch| launch.operator.to_owned()),
            ..WatchDetail::default()
        };
        let contents = match self.reader.read(device, address, size_bytes, wanted, surroundings) {
            Ok(contents) => contents,
            Err(reason) => {
                let name = &watched.target.name;
                surroundings.say(format!("'{name}' is watched no longer: its contents cannot be read, {reason}"));
                detail.note = WatchNote::Unreadable;
                surroundings.record(&record(watched, call.name, after, 0, detail));
                return false;
            }
        };
        detail.checksum = contents.checksum;
        detail.file = file_name.filter(|_| contents.file_error.is_none());
        if let Some(seen) = &watched.seen {
            detail.since_operator.clone_from(&seen.operator);
            detail.since_after = seen.after;
            detail.changed = seen.fingerprint.changes(&contents.fingerprint);
        }
        // An operator may launch further kernels that write what it has declared.
        detail.declared = match call.launch {
            Some(_) => watched.declared.clone(),
            None => std::mem::take(&mut watched.declared),
        };
        let hash = contents.fingerprint.hash();
        surroundings.record(&record(watched, call.name, after, hash, detail));
        watched.seen = Some(Seen { fingerprint: contents.fingerprint, operator: call.name.to_owned(), after });
        watched.operators_since = 0;
        if is_dump && let Some(left) = &mut watched.dumps_left {
            *left -= 1;
        }
        if let Some(reason) = contents.file_error {
            self.give_up_dumps(&reason, surroundings);
        }
        true
    }

    fn dump_file(
        &mut self,
        index: usize,
        call: &OperatorCall<'_>,
        after: bool,
        surroundings: &mut dyn Surroundings,
    ) -> (Option<std::fs::File>, Option<String>) {
        let watched = &self.watched[index];
        let device = surroundings.physical(watched.target.device);
        let place = (&watched.target.name[..], watched.output_index);
        let file_name = dump::file_name(&dump_name(device, call.thread_id, (call.name, call.number), place, after));
        let directory: Option<PathBuf> = surroundings.dump_directory(watched.target.device);
        let Some(directory) = directory else { return (None, None) };
        match dump::create(&directory, &file_name) {
            Ok(file) => (Some(file), Some(file_name)),
            Err(error) => {
                self.give_up_dumps(&format!("{file_name}: {error}"), surroundings);
                (None, None)
            }
        }
    }

    fn give_up_dumps(&mut self, reason: &str, surroundings: &mut dyn Surroundings) {
        self.dumps_fail = true;
        surroundings.say(format!("contents are no longer dumped, only hashed: {reason}"));
    }

    fn finish(
        &mut self,
        index: usize,
        note: WatchNote,
        call: Option<&OperatorCall<'_>>,
        surroundings: &mut dyn Surroundings,
    ) {
        let watched = self.watched.remove(index);
        let reason = match note {
            WatchNote::Freed => Some("it was freed"),
            WatchNote::Resized => Some("its tensor is gone, or has other memory or another size"),
            _ => None,
        };
        if let Some(reason) = reason {
            surroundings.say(format!("'{}' is watched no longer: {reason}", watched.target.name));
        }
        let mut detail = WatchDetail { note, device: watched.target.device, ..WatchDetail::default() };
        if let Some(seen) = &watched.seen {
            detail.since_operator.clone_from(&seen.operator);
            detail.since_after = seen.after;
        }
        let operator = call.map_or("", |call| call.name);
        surroundings.record(&record(&watched, operator, true, 0, detail));
    }
}

fn record<'a>(
    watched: &'a Watched,
    operator: &'a str,
    after: bool,
    content_hash: u64,
    detail: WatchDetail,
) -> WatchRecord<'a> {
    WatchRecord {
        name: &watched.target.name,
        operator,
        output_index: watched.output_index,
        after,
        address: watched.target.address,
        size_bytes: watched.target.size_bytes,
        content_hash,
        detail,
    }
}
