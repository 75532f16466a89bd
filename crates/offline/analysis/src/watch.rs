//! Who corrupts memory? Watched blocks whose contents changed without an operator declaring it.
//!
//! Every look at a block says what changed since the look before and what operators declared to write
//! since then. What remains is corruption: done by the operator between whose start and end it was
//! seen, or between two operators by something that is none.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use msmemscope_config::EventSet;
use msmemscope_event::{ByteRange, Device, StringId, WatchDetail, WatchNote, ranges};
use msmemscope_timeline::{EventKind, TimelineEvent, WatchObservation};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::device_text::device_text;
use crate::names::{Frame, Names, SiteText, user_frame};
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, LiveBlock, Situation};

/// Changes told one by one; further ones are counted.
const MOST_CORRUPTIONS: usize = 100;
/// Ranges told per change.
const MOST_RANGES: usize = 32;
/// Equal bytes between two changed ones that do not part a range: numbers keep some of their bytes.
const NEARBY_BYTES: u64 = 8;
/// Blocks whose end is remembered, to tell whose memory a corrupted block had been.
const MOST_ENDED: usize = 1024;
/// Bytes of two files held against each other at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Some bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// First byte, seen from the start of the block.
    pub start: u64,
    /// First byte behind it.
    pub end: u64,
}

/// A block beside a corrupted one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbour {
    /// True if it lies below.
    pub is_below: bool,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes between it and the corrupted block.
    pub distance_bytes: u64,
    /// Whether the operator declared to write it.
    pub is_written: bool,
    /// Where it comes from.
    pub site: SiteText,
}

/// The block that had the corrupted memory before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EarlierBlock {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Time between its end and the start of the corrupted block.
    pub freed_before_ns: u64,
    /// Where it came from.
    pub site: SiteText,
}

/// A change nobody declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Corruption {
    /// First byte of the block.
    pub address: u64,
    /// Bytes of the block.
    pub size_bytes: u64,
    /// The operator beside which the change was seen.
    pub operator: String,
    /// Which call of it.
    pub call: u64,
    /// If it is a kernel: the operator that launched it, empty if none is known.
    pub launched_by: Option<String>,
    /// Whether the operator itself did it: unchanged before, changed after it.
    pub is_by_operator: bool,
    /// The operator beside which the block was last seen unchanged.
    pub since_operator: String,
    /// Whether that was after it.
    pub since_after: bool,
    /// Operators that ended in between, the current one included if the change was seen after it.
    pub operators_since: u64,
    /// What changed.
    pub spans: Vec<Span>,
    /// Bytes in these spans.
    pub changed_bytes: u64,
    /// Whether the spans are exact; else they are whole pieces in which something changed.
    pub is_exact: bool,
    /// Whether more spans changed than are told.
    pub spans_cut: bool,
    /// When it was seen.
    pub timestamp_ns: u64,
    /// Step it was seen in.
    pub step: u64,
    /// Thread that ran the operator.
    pub thread_id: u32,
    /// The user's line that called the operator.
    pub line: String,
    /// Python frames, innermost first.
    pub python: Vec<Frame>,
    /// Native frames, innermost first.
    pub native: Vec<Frame>,
    /// Where the corrupted block comes from.
    pub origin: Option<SiteText>,
    /// Whose memory it had been, if that was not long ago.
    pub earlier: Option<EarlierBlock>,
    /// What lies beside it.
    pub neighbours: Vec<Neighbour>,
    /// Whether launches waited for their work.
    pub is_blocking: bool,
}

/// How watching of a block ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WatchEnd {
    /// Why: `freed`, `resized`, `removed`, `end reached`, `count reached` or `unreadable`.
    pub reason: &'static str,
    /// The operator beside which it was noticed; empty if there was none.
    pub operator: String,
}

/// What was seen of one watched block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WatchedBlock {
    /// Its name.
    pub name: String,
    /// Which output of the operator it is.
    pub output_index: u32,
    /// Where it is.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Looks taken around operators.
    pub looks: u64,
    /// Changes that were declared.
    pub declared_changes: u64,
    /// Hash of its contents at the last look.
    pub content_hash: String,
    /// How watching ended, if it did.
    pub end: Option<WatchEnd>,
    /// Changes that were not.
    pub corruptions: Vec<Corruption>,
}

/// What an automatic hunt covered and found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HuntReport {
    /// The label whose blocks were looked at; all blocks if nothing.
    pub owner: Option<String>,
    /// Operators seen.
    pub operators: u64,
    /// Kernels around which looks were taken.
    pub kernels: u64,
    /// Looks that full coverage would have taken.
    pub looks_due: u64,
    /// Looks taken.
    pub looks_taken: u64,
    /// Bytes hashed.
    pub hashed_bytes: u64,
    /// Operators around which nothing could be looked at.
    pub blind_operators: u64,
    /// Most operators between two looks at one block.
    pub longest_gap: u64,
    /// Undeclared changes in the order in which they were seen.
    pub corruptions: Vec<Corruption>,
}

/// Everything about watched blocks of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatchReport {
    /// Blocks that somebody named, in the order in which watching began.
    pub blocks: Vec<WatchedBlock>,
    /// The automatic hunt, if there was one.
    pub hunt: Option<HuntReport>,
    /// Whether launches waited for their work all the time.
    pub is_blocking: bool,
    /// Whether looks were taken around single kernels.
    pub has_kernels: bool,
    /// Undeclared changes beyond those that are told.
    pub further_corruptions: u64,
}

impl WatchReport {
    /// Whether nothing was watched.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.hunt.is_none()
    }

    /// All undeclared changes.
    pub fn corruptions(&self) -> impl Iterator<Item = &Corruption> {
        let hunted = self.hunt.iter().flat_map(|hunt| &hunt.corruptions);
        self.blocks.iter().flat_map(|block| &block.corruptions).chain(hunted)
    }
}

/// Takes looks in.
#[derive(Debug)]
pub struct Watches {
    /// Directory of the process, where dumped contents are.
    directory: Option<PathBuf>,
    blocks: Vec<WatchedBlock>,
    /// Blocks that are watched now, by name, output and address, with the file of the last look.
    open: FxHashMap<(StringId, u32, u64), (usize, Option<PathBuf>)>,
    hunt: Option<HuntReport>,
    ended: EndedBlocks,
    is_blocking: bool,
    has_kernels: bool,
    corruptions: usize,
}

/// Blocks that ended recently, with the time of their end.
#[derive(Debug, Default)]
struct EndedBlocks {
    blocks: VecDeque<(LiveBlock, u64)>,
}

impl EndedBlocks {
    fn add(&mut self, block: &LiveBlock, timestamp_ns: u64) {
        if self.blocks.len() == MOST_ENDED {
            self.blocks.pop_front();
        }
        self.blocks.push_back((*block, timestamp_ns));
    }

    /// The last block that had some of this memory and ended before another began.
    fn before(&self, later: &LiveBlock, range: ByteRange) -> Option<(&LiveBlock, u64)> {
        let had_it = |(block, ended): &&(LiveBlock, u64)| {
            block.properties == later.properties && *ended <= later.timestamp_ns && address_range(block).overlaps(range)
        };
        self.blocks.iter().rev().find(had_it).map(|(block, ended)| (block, later.timestamp_ns - ended))
    }
}

impl Watches {
    /// Nothing was seen yet. The directory is where dumped contents are, if anywhere.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self {
            directory,
            blocks: Vec::new(),
            open: FxHashMap::default(),
            hunt: None,
            ended: EndedBlocks::default(),
            is_blocking: true,
            has_kernels: false,
            corruptions: 0,
        }
    }

    /// A block ended.
    #[inline]
    pub fn ended(&mut self, block: &LiveBlock, timestamp_ns: u64) {
        if crate::fluctuation::is_framework_pool(block.properties.pool) {
            self.ended.add(block, timestamp_ns);
        }
    }

    /// A block was looked at.
    pub fn look(&mut self, event: &TimelineEvent, look: &WatchObservation, situation: &Situation, names: &dyn Names) {
        let detail = WatchDetail::from_text(&look.detail);
        self.is_blocking &= detail.is_blocking;
        self.has_kernels |= detail.launched_by.is_some() || detail.coverage.is_some_and(|covered| covered.kernels > 0);
        if !look.name.is_some() {
            self.hunted(event, look, &detail, situation, names);
            return;
        }
        let key = (look.name, look.output_position, look.address);
        let previous_file = match self.open.get(&key) {
            Some((_, file)) => file.clone(),
            None => {
                self.open.insert(key, (self.blocks.len(), None));
                self.blocks.push(new_block(event.device, look, names));
                None
            }
        };
        let Some(&(index, _)) = self.open.get(&key) else { return };
        let end = match detail.note {
            WatchNote::Look | WatchNote::Begin => None,
            WatchNote::Freed => Some("freed"),
            WatchNote::Resized => Some("resized"),
            WatchNote::Removed => Some("removed"),
            WatchNote::EndReached => Some("end reached"),
            WatchNote::CountReached => Some("count reached"),
            WatchNote::Unreadable => Some("unreadable"),
            WatchNote::Coverage | WatchNote::Other => return,
        };
        if let Some(reason) = end {
            self.open.remove(&key);
            self.blocks[index].end = Some(WatchEnd { reason, operator: optional_text(names, look.operator) });
            return;
        }
        let file = detail.file.as_deref().and_then(|file| self.dump_path(event.device, file));
        let exact = previous_file.as_deref().zip(file.as_deref()).and_then(|(old, new)| changed_bytes(old, new));
        let corrupted = corrupted_ranges(&detail, exact.as_deref());
        let block = &mut self.blocks[index];
        block.looks += u64::from(detail.note == WatchNote::Look);
        block.content_hash = format!("{:016x}", look.content_hash);
        block.size_bytes = look.size_bytes;
        if !detail.changed.is_empty() && corrupted.is_empty() {
            block.declared_changes += 1;
        }
        if !corrupted.is_empty() {
            self.corruptions += 1;
            if self.corruptions <= MOST_CORRUPTIONS {
                let corrupted = (&corrupted[..], exact.is_some());
                block.corruptions.push(corruption(event, look, &detail, corrupted, &self.ended, situation, names));
            }
        }
        if let Some(entry) = self.open.get_mut(&key) {
            entry.1 = file;
        }
    }

    fn hunted(
        &mut self,
        event: &TimelineEvent,
        look: &WatchObservation,
        detail: &WatchDetail,
        situation: &Situation,
        names: &dyn Names,
    ) {
        let hunt = self.hunt.get_or_insert_default();
        if let Some(coverage) = detail.coverage {
            hunt.owner.clone_from(&detail.owner);
            hunt.operators = coverage.operators;
            hunt.kernels = coverage.kernels;
            hunt.looks_due = coverage.looks_due;
            hunt.looks_taken = coverage.looks_taken;
            hunt.hashed_bytes = coverage.hashed_bytes;
            hunt.blind_operators = coverage.blind_operators;
            hunt.longest_gap = coverage.longest_gap;
            return;
        }
        let corrupted = corrupted_ranges(detail, None);
        if !corrupted.is_empty() {
            self.corruptions += 1;
            if self.corruptions <= MOST_CORRUPTIONS {
                let corrupted = (&corrupted[..], false);
                hunt.corruptions.push(corruption(event, look, detail, corrupted, &self.ended, situation, names));
            }
        }
    }

    fn dump_path(&self, device: Device, file: &str) -> Option<PathBuf> {
        let directory = self.directory.as_ref()?.join(format!("device_{device}")).join("watch_dump");
        let name = Path::new(file).file_name()?;
        Some(directory.join(name))
    }

    /// Everything that was seen.
    pub fn finish(self) -> WatchReport {
        WatchReport {
            blocks: self.blocks,
            hunt: self.hunt,
            is_blocking: self.is_blocking,
            has_kernels: self.has_kernels,
            further_corruptions: self.corruptions.saturating_sub(MOST_CORRUPTIONS) as u64,
        }
    }
}

fn optional_text(names: &dyn Names, id: StringId) -> String {
    if id.is_some() { names.text(id) } else { String::new() }
}

fn new_block(device: Device, look: &WatchObservation, names: &dyn Names) -> WatchedBlock {
    WatchedBlock {
        name: names.text(look.name),
        output_index: look.output_position,
        device,
        address: look.address,
        size_bytes: look.size_bytes,
        looks: 0,
        declared_changes: 0,
        content_hash: String::new(),
        end: None,
        corruptions: Vec::new(),
    }
}

/// What changed without being declared: exactly if both contents are there, else in whole pieces.
fn corrupted_ranges(detail: &WatchDetail, exact: Option<&[ByteRange]>) -> Vec<ByteRange> {
    if detail.ranges_cut && exact.is_none() && !detail.declared.is_empty() {
        return Vec::new(); // What is not told cannot be held against anybody.
    }
    match exact {
        Some(exact) => ranges::subtract(exact, &detail.declared),
        None => ranges::undeclared(&detail.changed, &detail.declared, detail.piece_bytes),
    }
}

/// Where two files differ; none if one of them cannot be read or is of another length.
fn changed_bytes(old: &Path, new: &Path) -> Option<Vec<ByteRange>> {
    let (mut old, mut new) = (File::open(old).ok()?, File::open(new).ok()?);
    if old.metadata().ok()?.len() != new.metadata().ok()?.len() {
        return None;
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut offset = 0;
    let mut found: Vec<ByteRange> = Vec::new();
    loop {
        left.clear();
        right.clear();
        old.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut left).ok()?;
        new.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut right).ok()?;
        if left.is_empty() || left.len() != right.len() {
            return left.is_empty().then_some(found);
        }
        for (index, _) in left.iter().zip(&right).enumerate().filter(|(_, (one, two))| one != two) {
            let at = offset + index as u64;
            match found.last_mut() {
                Some(last) if at <= last.end + NEARBY_BYTES => last.end = at + 1,
                _ => found.push(ByteRange { start: at, end: at + 1 }),
            }
        }
        offset += left.len() as u64;
    }
}

fn corruption(
    event: &TimelineEvent,
    look: &WatchObservation,
    detail: &WatchDetail,
    (corrupted, is_exact): (&[ByteRange], bool),
    ended: &EndedBlocks,
    situation: &Situation,
    names: &dyn Names,
) -> Corruption {
    let python = if event.python_stack.is_some() { names.python_frames(event.python_stack) } else { Vec::new() };
    let python: Vec<Frame> = python.into_iter().filter(|frame| !frame.file.contains("/msmemscope/")).collect();
    let native = match event.native_stack.is_some() {
        true => names.native_frames(event.native_stack, event.timestamp_ns),
        false => Vec::new(),
    };
    let operator = optional_text(names, look.operator);
    let range = ByteRange::sized(look.address, look.size_bytes);
    let on_device = |block: &&LiveBlock| {
        block.properties.device == event.device && crate::fluctuation::is_framework_pool(block.properties.pool)
    };
    let holder = situation.live_blocks().filter(on_device).find(|block| address_range(block).overlaps(range));
    Corruption {
        address: look.address,
        size_bytes: look.size_bytes,
        call: detail.call,
        launched_by: detail.launched_by.clone(),
        is_by_operator: look.after && !detail.since_after && detail.since_operator == operator,
        operator,
        since_operator: detail.since_operator.clone(),
        since_after: detail.since_after,
        operators_since: detail.operators_since,
        spans: corrupted.iter().take(MOST_RANGES).map(|range| Span { start: range.start, end: range.end }).collect(),
        changed_bytes: corrupted.iter().map(|range| range.size_bytes()).sum(),
        is_exact,
        spans_cut: corrupted.len() > MOST_RANGES || (detail.ranges_cut && !is_exact),
        timestamp_ns: event.timestamp_ns,
        step: event.step,
        thread_id: event.thread_id,
        line: user_frame(&python).map(Frame::describe).unwrap_or_default(),
        python,
        native,
        earlier: holder.and_then(|holder| {
            let damage = corrupted.first().map_or(range, |first| ByteRange::sized(range.start + first.start, 1));
            let (block, freed_before_ns) = ended.before(holder, damage)?;
            let site = SiteText::of(block, situation, names);
            Some(EarlierBlock { address: block.address, size_bytes: block.size_bytes, freed_before_ns, site })
        }),
        origin: holder.map(|block| SiteText::of(block, situation, names)),
        neighbours: neighbours(holder.map_or(range, address_range), detail, situation, names, &on_device),
        is_blocking: detail.is_blocking,
    }
}

fn address_range(block: &LiveBlock) -> ByteRange {
    ByteRange::sized(block.address, block.size_bytes)
}

/// The nearest live blocks below and above.
fn neighbours(
    range: ByteRange,
    detail: &WatchDetail,
    situation: &Situation,
    names: &dyn Names,
    on_device: &dyn Fn(&&LiveBlock) -> bool,
) -> Vec<Neighbour> {
    let candidates = || situation.live_blocks().filter(on_device);
    let below = candidates()
        .filter(|block| address_range(block).end <= range.start)
        .max_by_key(|block| block.address)
        .map(|block| (true, range.start - address_range(block).end, block));
    let above = candidates()
        .filter(|block| block.address >= range.end)
        .min_by_key(|block| block.address)
        .map(|block| (false, block.address - range.end, block));
    let neighbour = |(is_below, distance_bytes, block): (bool, u64, &LiveBlock)| Neighbour {
        is_below,
        address: block.address,
        size_bytes: block.size_bytes,
        distance_bytes,
        is_written: detail.writes.iter().any(|write| write.overlaps(address_range(block))),
        site: SiteText::of(block, situation, names),
    };
    below.into_iter().chain(above).map(neighbour).collect()
}

impl Question for Watches {
    type Finding = WatchReport;

    const NEEDS: EventSet = EventSet::NONE;

    fn ask(questions: &mut Questions) -> bool {
        questions.watch = true;
        true
    }

    fn start(questions: &Questions, about: &About<'_>) -> Option<Self> {
        questions.watch.then(|| Self::new(about.directory.map(Path::to_owned)))
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, event: &TimelineEvent, _view: View<'_>) {
        if let BlockChange::Ends(block, _) = change {
            self.ended(block, event.timestamp_ns);
        }
    }

    #[inline]
    fn event(&mut self, event: &TimelineEvent, view: View<'_>) {
        if let EventKind::Watch(look) = &event.kind {
            self.look(event, look, view.situation, view.names);
        }
    }

    fn finish(self, _view: View<'_>, _end: &mut End<'_>) -> Option<WatchReport> {
        Some(self.finish()).filter(|report| !report.is_empty())
    }
}
