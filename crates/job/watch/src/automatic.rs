//! The hunt: looks through all live blocks, or those of an owner, for changes that no operator declared.
//!
//! Every look has a budget of bytes and time. Memory beside what an operator writes is looked at
//! first, since that is where an operator that writes too far does its damage; the rest takes turns.
//! What was not looked at is counted, and a block that is looked at rarely is reported with all the
//! operators that ran since the look before.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use msmemscope_event::{ByteRange, Device, WatchCoverage, WatchDetail, WatchNote, ranges};

use crate::fingerprint::{Fingerprint, PIECE_BYTES};
use crate::live_blocks::{LiveBlock, LiveBlocks};
use crate::reading::{Reader, Wanted};
use crate::surroundings::{OperatorCall, Surroundings, WatchRecord};

/// Blocks in the records of a hunt have no name; that tells them from those that somebody named.
const HUNTED: &str = "";
/// Findings after which a hunt ends: whatever happens later is a consequence.
const MOST_FINDINGS: u64 = 100;
/// Operators between two records of the coverage.
const COVERAGE_INTERVAL: u64 = 256;

/// What one look may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HuntBudget {
    /// Bytes per look.
    pub size_bytes: u64,
    /// Time per look.
    pub time: Duration,
}

impl HuntBudget {
    /// Bytes per look if the user says nothing.
    pub const DEFAULT_BYTES: u64 = 64 << 20;
    /// Time per look.
    pub const TIME: Duration = Duration::from_millis(100);

    /// A budget with a limit of bytes.
    pub fn new(size_limit_bytes: Option<u64>) -> Self {
        Self { size_bytes: size_limit_bytes.unwrap_or(Self::DEFAULT_BYTES), time: Self::TIME }
    }
}

struct Tracked {
    generation: u64,
    fingerprint: Fingerprint,
    operator: String,
    after: bool,
    /// Number of operators that had ended at the last look.
    operators_then: u64,
    declared: Vec<ByteRange>,
}

/// A hunt through all live blocks that are to be hunted.
pub struct Hunt {
    budget: HuntBudget,
    /// The label that they have in common, for reports.
    owner: Option<String>,
    tracked: HashMap<u64, Tracked>,
    /// Where the blocks that take turns go on.
    cursor: HashMap<Device, u64>,
    coverage: WatchCoverage,
    findings: u64,
    reader: Reader,
    told_limit: bool,
    /// Addresses that cannot be read.
    unreadable: HashSet<u64>,
}

impl Hunt {
    /// A hunt at its start, through the blocks with a label or through all.
    pub fn new(budget: HuntBudget, owner: Option<String>) -> Self {
        Self {
            budget,
            owner,
            tracked: HashMap::new(),
            cursor: HashMap::new(),
            coverage: WatchCoverage::default(),
            findings: 0,
            reader: Reader::default(),
            told_limit: false,
            unreadable: HashSet::new(),
        }
    }

    /// Whether it still goes on.
    pub fn is_on(&self) -> bool {
        self.findings < MOST_FINDINGS
    }

    /// How much was covered so far.
    pub fn coverage(&self) -> WatchCoverage {
        self.coverage
    }

    /// An operator is about to run.
    pub fn before(&mut self, call: &OperatorCall<'_>, blocks: &LiveBlocks, surroundings: &mut dyn Surroundings) {
        self.look(call, false, blocks, surroundings);
        self.declare(call.writes, blocks);
    }

    /// An operator has run.
    pub fn after(&mut self, call: &OperatorCall<'_>, blocks: &LiveBlocks, surroundings: &mut dyn Surroundings) {
        self.coverage.operators += 1;
        self.declare(call.writes, blocks);
        self.look(call, true, blocks, surroundings);
        if self.coverage.operators.is_multiple_of(COVERAGE_INTERVAL) {
            self.record_coverage(surroundings);
        }
    }

    /// A kernel is about to be launched. Its name is only a stand-in for the one that [`Self::after_kernel`] is told.
    pub fn before_kernel(&mut self, call: &OperatorCall<'_>, blocks: &LiveBlocks, surroundings: &mut dyn Surroundings) {
        self.look(call, false, blocks, surroundings);
    }

    /// A kernel has run that was announced under another name.
    pub fn after_kernel(
        &mut self,
        announced: &str,
        call: &OperatorCall<'_>,
        blocks: &LiveBlocks,
        surroundings: &mut dyn Surroundings,
    ) {
        for tracked in self.tracked.values_mut().filter(|tracked| tracked.operator == announced) {
            call.name.clone_into(&mut tracked.operator);
        }
        self.coverage.kernels += 1;
        self.look(call, true, blocks, surroundings);
        if self.coverage.kernels.is_multiple_of(COVERAGE_INTERVAL) {
            self.record_coverage(surroundings);
        }
    }

    /// An operator ran around whose kernels looks were taken.
    pub fn pass(&mut self, writes: &[ByteRange], blocks: &LiveBlocks) {
        self.coverage.operators += 1;
        self.declare(writes, blocks);
    }

    /// No operator is under way any more: what they declared counts no longer.
    pub fn settle(&mut self) {
        for tracked in self.tracked.values_mut() {
            tracked.declared.clear();
        }
    }

    /// An operator ran around which nothing was looked at, although it gave work to the device or not.
    pub fn blind(&mut self, is_active: bool, writes: &[ByteRange], blocks: &LiveBlocks) {
        self.coverage.operators += 1;
        self.coverage.blind_operators += u64::from(is_active);
        self.declare(writes, blocks);
    }

    /// Takes down how much was covered.
    pub fn record_coverage(&self, surroundings: &mut dyn Surroundings) {
        let detail = WatchDetail {
            note: WatchNote::Coverage,
            coverage: Some(self.coverage),
            owner: self.owner.clone(),
            is_blocking: surroundings.is_blocking(),
            ..WatchDetail::default()
        };
        surroundings.record(&WatchRecord {
            name: HUNTED,
            operator: "",
            output_index: 0,
            after: true,
            address: 0,
            size_bytes: 0,
            content_hash: 0,
            detail,
        });
    }

    /// Somebody declares to write this memory.
    pub fn declare(&mut self, writes: &[ByteRange], blocks: &LiveBlocks) {
        for write in writes {
            for block in blocks.overlapping(*write) {
                if let Some(tracked) = self.tracked.get_mut(&block.address) {
                    tracked.declared.push(write.intersection(block.range()).relative_to(block.address));
                    ranges::merge(&mut tracked.declared);
                }
            }
        }
    }

    fn look(&mut self, call: &OperatorCall<'_>, after: bool, blocks: &LiveBlocks, surroundings: &mut dyn Surroundings) {
        if !call.is_active || !self.is_on() {
            return;
        }
        self.forget_dead(blocks);
        let start = self.cursor.get(&call.device).copied().unwrap_or(0);
        let newest = call.launch.map_or(u64::MAX, |launch| launch.newest_generation);
        let is_due = |block: &LiveBlock| block.generation <= newest;
        let alive = blocks.hunted_behind(start, call.device).filter(is_due).count() as u64;
        self.coverage.looks_due += alive;
        let begin = Instant::now();
        let mut left = self.budget.size_bytes;
        let mut seen = HashSet::new();
        let near = call.writes.iter().flat_map(|write| blocks.around(*write));
        for block in near.filter(|near| near.is_hunted && near.device == call.device && is_due(near)) {
            if seen.insert(block.address) && block.size_bytes <= left {
                left -= block.size_bytes;
                self.look_at(&block, call, after, surroundings);
            }
        }
        for block in blocks.hunted_behind(start, call.device).filter(is_due) {
            if left == 0 || begin.elapsed() > self.budget.time {
                break;
            }
            if !seen.insert(block.address) {
                continue;
            }
            if block.size_bytes > left {
                if block.size_bytes > self.budget.size_bytes {
                    continue; // Never fits; counted as not covered.
                }
                break;
            }
            left -= block.size_bytes;
            self.cursor.insert(call.device, block.address);
            self.look_at(&block, call, after, surroundings);
        }
        let missed = alive > seen.len() as u64;
        if missed && !self.told_limit {
            self.told_limit = true;
            surroundings.say(format!(
                "the hunt cannot look at all of {alive} live blocks each time; they take turns, and the report says how \
                 much was covered (--watch=auto:SIZE sets the bytes per look, now {})",
                self.budget.size_bytes
            ));
        }
    }

    /// Operators and kernels that have ended.
    fn calls(&self) -> u64 {
        self.coverage.operators + self.coverage.kernels
    }

    fn forget_dead(&mut self, blocks: &LiveBlocks) {
        self.tracked
            .retain(|address, tracked| blocks.at(*address).is_some_and(|block| block.generation == tracked.generation));
    }

    fn look_at(
        &mut self,
        block: &LiveBlock,
        call: &OperatorCall<'_>,
        after: bool,
        surroundings: &mut dyn Surroundings,
    ) {
        if self.unreadable.contains(&block.address) {
            return;
        }
        let wanted = Wanted { checksum: false, file: None };
        let read = self.reader.read(block.device, block.address, block.size_bytes, wanted, surroundings);
        let contents = match read {
            Ok(contents) => contents,
            Err(reason) => {
                if self.unreadable.is_empty() {
                    surroundings.say(format!("a block at {:#x} cannot be looked at: {reason}", block.address));
                }
                self.unreadable.insert(block.address);
                return;
            }
        };
        self.coverage.looks_taken += 1;
        self.coverage.hashed_bytes += block.size_bytes;
        let fresh = Tracked {
            generation: block.generation,
            fingerprint: contents.fingerprint,
            operator: call.name.to_owned(),
            after,
            operators_then: self.calls(),
            // What a kernel's operator declares was told before this block was known.
            declared: if call.launch.is_some() { declared_within(block, call.writes) } else { Vec::new() },
        };
        let hash = fresh.fingerprint.hash();
        let Some(earlier) = self.tracked.insert(block.address, fresh) else { return };
        let operators_since = self.calls() - earlier.operators_then;
        let Some(now) = self.tracked.get_mut(&block.address) else { return };
        if call.launch.is_some() && earlier.generation == now.generation {
            // The operator may launch further kernels that write what it has declared.
            now.declared.extend_from_slice(&earlier.declared);
            ranges::merge(&mut now.declared);
        }
        self.coverage.longest_gap = self.coverage.longest_gap.max(operators_since);
        let changed = earlier.fingerprint.changes(&now.fingerprint);
        if ranges::undeclared(&changed, &earlier.declared, PIECE_BYTES as u64).is_empty() {
            return;
        }
        self.findings += 1;
        if self.findings == 1 {
            let moment = if after { "after" } else { "before" };
            let what = if call.launch.is_some() && !after { "a kernel" } else { call.name };
            surroundings.say(format!(
                "the block at {:#x} ({} bytes) has changed without any operator declaring to write it; seen {moment} \
                 {what} (the report at the end says more)",
                block.address, block.size_bytes
            ));
        }
        let detail = WatchDetail {
            note: WatchNote::Look,
            device: block.device,
            call: call.number,
            operators_since,
            since_operator: earlier.operator,
            since_after: earlier.after,
            piece_bytes: PIECE_BYTES as u64,
            changed,
            declared: earlier.declared,
            writes: call.writes.to_vec(),
            is_blocking: surroundings.is_blocking(),
            launched_by: call.launch.map(|launch| launch.operator.to_owned()),
            ..WatchDetail::default()
        };
        surroundings.record(&WatchRecord {
            name: HUNTED,
            operator: call.name,
            output_index: 0,
            after,
            address: block.address,
            size_bytes: block.size_bytes,
            content_hash: hash,
            detail,
        });
        if !self.is_on() {
            surroundings.say(format!("the hunt ends after {MOST_FINDINGS} undeclared changes"));
        }
    }
}

/// The parts of a block that are declared to be written, seen from its start.
fn declared_within(block: &LiveBlock, writes: &[ByteRange]) -> Vec<ByteRange> {
    let range = block.range();
    let own = writes.iter().filter(|write| write.overlaps(range));
    let mut declared: Vec<ByteRange> = own.map(|write| write.intersection(range).relative_to(range.start)).collect();
    ranges::merge(&mut declared);
    declared
}
