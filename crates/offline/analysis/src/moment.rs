//! What holds memory at a moment: at the peak of a pool, at a time or at the end of a step, by line of code or as a
//! tree; and what holds more at one moment than at another.
//!
//! Blocks are summed up by where they come from while the events go by, so that a moment costs time in proportion to
//! the places, not to the blocks. The peak is known only afterwards: the sums remember what they were at the latest
//! maximum ([`PeakSums`]).

use msmemscope_config::AnalysisSet;
use msmemscope_event::{AutogradPhase, Device, Pool, StackId, StringId};
use msmemscope_timeline::TimelineEvent;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::decompose::UNKNOWN_OWNER;
use crate::device_text::{device_text, pool_text};
use crate::fluctuation::is_framework_pool;
use crate::grouping::{Grouping, UseNode, Ways, increase, made_in, tree_of, way};
use crate::holders::HeldBy;
use crate::names::{Names, SiteText};
use crate::operator_places::PlaceId;
use crate::owners::OwnerId;
use crate::peak_sums::{Held, PeakSums};
use crate::question::{About, End, Question, Questions, View};
use crate::roles::Role;
use crate::situation::{BlockChange, LiveBlock, Situation, StepChange};
use crate::small_map::SmallMap;

/// Which moment is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// When the pool held most.
    Peak,
    /// This long after the first event.
    Time {
        /// Nanoseconds.
        since_start_ns: u64,
    },
    /// At the end of a step.
    Step {
        /// Its number.
        number: u64,
    },
}

/// Where blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    native_stack: StackId,
    python_stack: StackId,
    caller_stack: StackId,
    operator: StringId,
    operator_place: PlaceId,
    kernel: StringId,
    module: StringId,
    phase: Option<AutogradPhase>,
}

pub(crate) type Places = FxHashMap<Place, Held<LiveBlock>>;

/// The sums of a pool at one moment.
#[derive(Clone, Debug)]
struct Picture {
    moment: Moment,
    timestamp_ns: u64,
    step: u64,
    used_bytes: u64,
    /// Blocks born until then.
    births: u64,
    places: Places,
    /// Bytes and blocks by owner, which is known for good only when a block ends.
    owners: FxHashMap<Belonging, (u64, u64)>,
}

/// Whom a block belongs to: its owner, and where that says no more than the pool how it is held and when it was made, or
/// else the kernel before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Belonging {
    owner: OwnerId,
    path: Option<StringId>,
    phase: Option<AutogradPhase>,
    kernel: StringId,
}

impl Picture {
    /// That of the peak, which began with this block. What places held then is known at the end.
    fn of_peak(used_bytes: u64, block: &LiveBlock) -> Self {
        Self {
            moment: Moment::Peak,
            timestamp_ns: block.timestamp_ns,
            step: block.step,
            used_bytes,
            births: block.birth,
            places: Places::default(),
            owners: FxHashMap::default(),
        }
    }

    fn count_owner(&mut self, block: &LiveBlock, situation: &Situation) {
        if block.birth <= self.births {
            let path = situation.holders().path_of(block.allocation_id);
            let kernel = if block.phase.is_some() { StringId::NONE } else { block.kernel };
            let belonging = Belonging { owner: block.owner, path, phase: block.phase, kernel };
            let (bytes, blocks) = self.owners.entry(belonging).or_default();
            *bytes = bytes.saturating_add(block.size_bytes);
            *blocks += 1;
        }
    }
}

/// Sums of one pool, and what they were at the moments asked about.
#[derive(Debug, Default)]
struct PoolState {
    places: PeakSums<Place, LiveBlock>,
    used_bytes: u64,
    /// When the pool held more than ever before, without what it held then until the end.
    at_peak: Option<Picture>,
    others: Vec<Picture>,
}

impl PoolState {
    fn keep(&mut self, moment: Moment, timestamp_ns: u64, step: u64, births: u64) {
        let (used_bytes, places, owners) = (self.used_bytes, self.places.now(), FxHashMap::default());
        self.others.push(Picture { moment, timestamp_ns, step, used_bytes, births, places, owners });
    }

    /// A block that was alive at some of the moments has its owner for good.
    fn count_owner(&mut self, block: &LiveBlock, situation: &Situation) {
        let pictures = self.at_peak.iter_mut().chain(&mut self.others);
        pictures.for_each(|picture| picture.count_owner(block, situation));
    }

    fn begins(&mut self, block: &LiveBlock) {
        self.used_bytes = self.used_bytes.saturating_add(block.size_bytes);
        let is_peak = self.used_bytes > self.at_peak.as_ref().map_or(0, |peak| peak.used_bytes);
        self.places.begins(Place::of(block), block.size_bytes, *block, is_peak);
        if is_peak {
            self.at_peak = Some(Picture::of_peak(self.used_bytes, block));
        }
    }

    fn ends(&mut self, block: &LiveBlock) {
        self.used_bytes = self.used_bytes.saturating_sub(block.size_bytes);
        self.places.ends(Place::of(block), block.size_bytes);
    }

    /// All pictures, with what places held at the peak.
    fn pictures(&mut self) -> Vec<Picture> {
        let mut at_peak = self.at_peak.take();
        if let Some(peak) = &mut at_peak {
            peak.places = self.places.at_peak();
        }
        at_peak.into_iter().chain(self.others.drain(..)).collect()
    }
}

impl Place {
    pub(crate) fn of(block: &LiveBlock) -> Self {
        Self {
            native_stack: block.native_stack,
            python_stack: block.python_stack,
            caller_stack: block.caller_stack,
            operator: block.operator,
            operator_place: block.operator_place,
            kernel: block.kernel,
            module: block.module,
            phase: block.phase,
        }
    }
}

/// What one operator in modules of one kind holds of what a line holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinePart {
    /// Bytes of its blocks.
    pub bytes: u64,
    /// How many blocks.
    pub blocks: u64,
    /// The operator; empty if not known.
    pub operator: String,
    /// The module, as `blocks.*.mlp` where several differ by numbers only; empty if not known.
    pub module: String,
}

impl LinePart {
    /// Adds what a place holds, which may be in another module of the same kind.
    fn add(parts: &mut Vec<Self>, operator: &str, module: String, bytes: u64, blocks: u64) {
        let is_same = |part: &&mut Self| part.operator == operator && kind_of(&part.module) == kind_of(&module);
        match parts.iter_mut().find(is_same) {
            Some(part) => {
                part.bytes = part.bytes.saturating_add(bytes);
                part.blocks += blocks;
                if part.module != module {
                    part.module = kind_of(&module);
                }
            }
            None => parts.push(Self { bytes, blocks, operator: operator.to_owned(), module }),
        }
    }
}

/// The path of a module without the numbers in it.
fn kind_of(module: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = module.split('.').map(|part| if is_number(part) { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

/// What one line of code holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineUse {
    /// Bytes of all blocks that it allocated.
    pub bytes: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Where, with the stack of one of them.
    pub site: SiteText,
    /// Operators that asked for the blocks, the one with most bytes first.
    pub operators: Vec<String>,
    /// Modules that were being called, likewise.
    pub modules: Vec<String>,
    /// Phases of training, likewise.
    pub phases: Vec<&'static str>,
    /// The same memory by operator and module, largest first; only the first few.
    pub parts: Vec<LinePart>,
    /// Who holds blocks of the line, whenever the job looked: those that hold most first.
    pub held_by: Vec<HeldBy>,
    /// Where its blocks come from, as far as variables can hold them.
    #[serde(skip)]
    places: Vec<Place>,
}

impl LineUse {
    /// Names who holds the blocks, as far as that is known by now.
    pub(crate) fn learn_holders(&mut self, situation: &Situation, names: &dyn Names) {
        self.held_by = situation.holders().of_places(self.places.iter(), names);
        // The same line may have had other blocks whenever the job looked: no more are held than there are.
        let (mut blocks, mut bytes) = (self.blocks, self.bytes);
        for held in &mut self.held_by {
            (held.blocks, held.bytes) = (held.blocks.min(blocks), held.bytes.min(bytes));
            (blocks, bytes) = (blocks - held.blocks, bytes - held.bytes);
        }
        self.held_by.retain(|held| held.blocks > 0);
    }
}

/// A pool at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolMoment {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Which moment, in the words of the option: `peak`, `step:7`, `12.3s`.
    pub moment: String,
    /// When, wall clock.
    pub timestamp_ns: u64,
    /// When, since the first event.
    pub since_start_ns: u64,
    /// In which step, zero if none.
    pub step: u64,
    /// Whether that step never ended: what comes behind the last step is none.
    pub is_after_last_step: bool,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Lines that hold most, largest first.
    pub lines: Vec<LineUse>,
    /// Lines beyond those.
    pub other_lines: u64,
    /// Bytes of those.
    pub other_bytes: u64,
    /// What the tree goes by, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
    /// The same memory as a tree, largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tree: Vec<UseNode>,
}

/// By how much a pool's lines hold more at one moment than at another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolIncrease {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// The first moment, in the words of the option.
    pub from: String,
    /// The second one.
    pub to: String,
    /// Bytes in use at the first.
    pub from_bytes: u64,
    /// Bytes in use at the second.
    pub to_bytes: u64,
    /// Bytes of all lines that hold more.
    pub grown_bytes: u64,
    /// Lines that hold more, with the bytes and blocks that they hold more; largest first.
    pub lines: Vec<LineUse>,
    /// Lines beyond those.
    pub other_lines: u64,
    /// Bytes that those hold more.
    pub other_bytes: u64,
    /// Lines that hold less.
    pub shrunk_lines: u64,
    /// Bytes that those hold less.
    pub shrunk_bytes: u64,
    /// What the tree goes by, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
    /// What grew as a tree, largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tree: Vec<UseNode>,
}

/// What held memory at the moments asked about.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MomentReport {
    /// By device and pool.
    pub pools: Vec<PoolMoment>,
    /// What grew between two moments, by device and pool, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grown: Option<Vec<PoolIncrease>>,
    /// Moments that never came, in the words of the option.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Which moments are asked about, and what about them.
#[derive(Clone, Debug, Default)]
pub struct MomentQuestion {
    /// Moments to look at.
    pub at: Vec<Moment>,
    /// What grew from one moment to another.
    pub grown: Option<(Moment, Moment)>,
    /// What memory is broken down by.
    pub by: Grouping,
}

impl MomentQuestion {
    /// What holds memory at the peak, by line.
    pub fn at_peak() -> Self {
        Self { at: vec![Moment::Peak], ..Self::default() }
    }

    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty() && self.grown.is_none()
    }

    /// All moments that matter, each once.
    fn all(&self) -> Vec<Moment> {
        let mut all = Vec::new();
        for moment in self.at.iter().copied().chain(self.grown.into_iter().flat_map(|(from, to)| [from, to])) {
            if !all.contains(&moment) {
                all.push(moment);
            }
        }
        all
    }
}

/// Parts kept of a line.
const KEPT_PARTS: usize = 10;

/// Lines kept of a pool; the rest are summed up.
const KEPT_LINES: usize = 100;

/// Follows what places hold.
#[derive(Debug)]
pub struct Moments {
    question: MomentQuestion,
    /// All moments of the question.
    wanted: Vec<Moment>,
    /// Moments given by time that have not come yet, earliest last.
    times_ns: Vec<u64>,
    first_ns: Option<u64>,
    pools: SmallMap<(Device, Pool), PoolState>,
}

impl Moments {
    /// Looks at the moments of a question.
    pub fn new(question: MomentQuestion) -> Self {
        let wanted = question.all();
        let mut times_ns: Vec<u64> = wanted
            .iter()
            .filter_map(|moment| match moment {
                Moment::Time { since_start_ns } => Some(*since_start_ns),
                _ => None,
            })
            .collect();
        times_ns.sort_unstable_by(|a, b| b.cmp(a));
        Self { question, wanted, times_ns, first_ns: None, pools: SmallMap::default() }
    }

    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, situation: &Situation) {
        self.time_passes(situation);
        let (BlockChange::Begins(block, _) | BlockChange::Ends(block, _)) = change;
        let state = self.pools.entry((block.properties.device, block.properties.pool));
        match change {
            BlockChange::Begins(block, _) => state.begins(block),
            BlockChange::Ends(block, _) => {
                state.ends(block);
                if self.question.by == Grouping::Owner {
                    state.count_owner(block, situation);
                }
            }
        }
    }

    /// Takes the pictures of moments that lie before the current event.
    #[inline]
    fn time_passes(&mut self, situation: &Situation) {
        let now_ns = situation.latest_ns();
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        while let Some(&since_start_ns) = self.times_ns.last()
            && now_ns.saturating_sub(first_ns) > since_start_ns
        {
            self.times_ns.pop();
            self.keep(Moment::Time { since_start_ns }, first_ns.saturating_add(since_start_ns), None, situation);
        }
    }

    fn keep(&mut self, moment: Moment, timestamp_ns: u64, device: Option<Device>, situation: &Situation) {
        for (key, state) in self.pools.iter_mut() {
            if device.is_none_or(|device| device == key.0) {
                state.keep(moment, timestamp_ns, situation.steps(key.0).number, situation.births());
            }
        }
    }

    /// A step began or ended.
    pub fn step(&mut self, change: &StepChange, situation: &Situation) {
        let moment = Moment::Step { number: change.number };
        if !change.begins && self.wanted.contains(&moment) {
            let device = Some(change.device).filter(|device| *device != Device::Unknown);
            self.keep(moment, situation.latest_ns(), device, situation);
        }
    }

    /// The report. Call after the last event.
    pub fn finish(mut self, situation: &Situation, names: &dyn Names) -> MomentReport {
        // What was asked for beyond the end is what held at the end.
        let times_ns = std::mem::take(&mut self.times_ns);
        for since_start_ns in times_ns.into_iter().rev() {
            self.keep(Moment::Time { since_start_ns }, situation.latest_ns(), None, situation);
        }
        if self.question.by == Grouping::Owner {
            for block in situation.live_blocks() {
                let state = self.pools.entry((block.properties.device, block.properties.pool));
                state.count_owner(block, situation);
            }
        }
        let words = Words { by: self.question.by, situation, names };
        let first_ns = self.first_ns.unwrap_or(0);
        let (mut pools, mut grown) = (Vec::new(), Vec::new());
        let mut missing = self.wanted.clone();
        for (&(device, pool), state) in self.pools.iter_mut() {
            let pictures = state.pictures();
            missing.retain(|moment| !pictures.iter().any(|picture| picture.moment == *moment));
            let find = |moment: Moment| pictures.iter().find(|picture| picture.moment == moment);
            if let Some((from, to)) = self.question.grown
                && let Some(after) = find(to)
            {
                grown.push(words.increase(device, pool, (from, find(from)), after));
            }
            for picture in pictures.iter().filter(|picture| self.question.at.contains(&picture.moment)) {
                pools.push(words.pool_moment(device, pool, picture, first_ns));
            }
        }
        pools.sort_by_key(|moment| (moment.device, moment.pool, moment.timestamp_ns));
        grown.sort_by_key(|increase: &PoolIncrease| (increase.device, increase.pool));
        MomentReport {
            pools,
            grown: self.question.grown.map(|_| grown),
            missing: missing.into_iter().map(Moment::word).collect(),
        }
    }
}

/// A phase of training in one word.
pub(crate) fn phase_word(phase: AutogradPhase) -> &'static str {
    match phase {
        AutogradPhase::Forward => "forward",
        AutogradPhase::Backward => "backward",
        AutogradPhase::Optimizer => "optimizer",
        AutogradPhase::Other => "other",
    }
}

/// What live blocks hold by line, the largest first; at most this many lines.
pub(crate) fn lines_of<'a>(
    blocks: impl Iterator<Item = &'a LiveBlock>,
    most: usize,
    situation: &Situation,
    names: &dyn Names,
) -> Vec<LineUse> {
    let mut lines = merged_lines(places_of(blocks), situation, names);
    lines.truncate(most);
    lines
}

/// What live blocks hold by where they come from.
pub(crate) fn places_of<'a>(blocks: impl Iterator<Item = &'a LiveBlock>) -> Places {
    let mut places = Places::default();
    for block in blocks {
        let held = places.entry(Place::of(block)).or_insert(Held::nothing(*block));
        held.add(block.size_bytes);
    }
    places
}

/// Places that hold more at a picture than at an earlier one, with what they hold more.
fn grown_places(before: Option<&Picture>, after: &Picture) -> Places {
    let grown = after.places.iter().filter_map(|(place, held)| {
        let old = before.and_then(|before| before.places.get(place));
        let (old_bytes, old_blocks) = old.map_or((0, 0), |old| (old.bytes, old.blocks));
        let mut more = *held;
        more.bytes = held.bytes.checked_sub(old_bytes).filter(|bytes| *bytes > 0)?;
        more.blocks = held.blocks.saturating_sub(old_blocks);
        Some((*place, more))
    });
    grown.collect()
}

/// Puts the places of one line together, the largest first.
pub(crate) fn merged_lines(places: Places, situation: &Situation, names: &dyn Names) -> Vec<LineUse> {
    let mut places: Vec<(Place, Held<LiveBlock>)> = places.into_iter().collect();
    // Largest first, and always the same order among equals.
    places.sort_by_key(|(place, held)| (std::cmp::Reverse(held.bytes), held.example.birth, place.operator.0));
    let mut lines: Vec<LineUse> = Vec::new();
    let mut by_line: FxHashMap<String, usize> = FxHashMap::default();
    for (place, held) in places {
        let site = SiteText::of(&held.example, situation, names);
        let index = *by_line.entry(site.line.clone()).or_insert_with(|| {
            lines.push(LineUse {
                bytes: 0,
                blocks: 0,
                operators: Vec::new(),
                modules: Vec::new(),
                phases: Vec::new(),
                parts: Vec::new(),
                held_by: Vec::new(),
                places: Vec::new(),
                site: site.clone(),
            });
            lines.len() - 1
        });
        let line = &mut lines[index];
        line.places.extend(is_framework_pool(held.example.properties.pool).then_some(place));
        line.bytes = line.bytes.saturating_add(held.bytes);
        line.blocks += held.blocks;
        let module = names.text(place.module);
        LinePart::add(&mut line.parts, &site.operator, module.clone(), held.bytes, held.blocks);
        add_new(&mut line.operators, site.operator);
        add_new(&mut line.modules, module);
        if let Some(word) = place.phase.map(phase_word).filter(|word| !line.phases.contains(word)) {
            line.phases.push(word);
        }
    }
    for line in &mut lines {
        line.parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        line.parts.truncate(KEPT_PARTS);
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.bytes));
    lines
}

/// Gives pictures their names.
struct Words<'a> {
    by: Grouping,
    situation: &'a Situation,
    names: &'a dyn Names,
}

impl Words<'_> {
    fn pool_moment(&self, device: Device, pool: Pool, picture: &Picture, first_ns: u64) -> PoolMoment {
        let lines = merged_lines(picture.places.clone(), self.situation, self.names);
        let (lines, other_lines, other_bytes) = self.kept(lines);
        let steps = self.situation.steps(device);
        PoolMoment {
            device,
            pool,
            moment: picture.moment.word(),
            timestamp_ns: picture.timestamp_ns,
            since_start_ns: picture.timestamp_ns.saturating_sub(first_ns),
            step: picture.step,
            is_after_last_step: steps.is_after_last(picture.step),
            used_bytes: picture.used_bytes,
            lines,
            other_lines,
            other_bytes,
            by: self.tree_word(),
            tree: self.ways(picture).map_or(Vec::new(), |ways| tree_of(&ways)),
        }
    }

    /// What a pool has more at a picture than it had at an earlier moment, at which it may not have been there yet.
    fn increase(&self, device: Device, pool: Pool, from: (Moment, Option<&Picture>), after: &Picture) -> PoolIncrease {
        let (first, before) = from;
        let lines_at = |picture: &Picture| merged_lines(picture.places.clone(), self.situation, self.names);
        let old = before.map_or(Vec::new(), lines_at);
        let old: FxHashMap<&str, &LineUse> = old.iter().map(|line| (line.site.line.as_str(), line)).collect();
        let mut lines = lines_at(after);
        // Of a line that grows, the operators that grow: the others have nothing to do with it.
        let grown = merged_lines(grown_places(before, after), self.situation, self.names);
        let mut grown: FxHashMap<String, LineUse> =
            grown.into_iter().map(|line| (line.site.line.clone(), line)).collect();
        let (mut shrunk_lines, mut shrunk_bytes) = (0, 0u64);
        let mut shrinks = |bytes: u64| {
            shrunk_lines += 1;
            shrunk_bytes = shrunk_bytes.saturating_add(bytes);
        };
        let gone = old.iter().filter(|(name, _)| lines.iter().all(|line| line.site.line != **name));
        gone.for_each(|(_, line)| shrinks(line.bytes));
        lines.retain_mut(|line| {
            let (old_bytes, old_blocks) =
                old.get(line.site.line.as_str()).map_or((0, 0), |old| (old.bytes, old.blocks));
            if line.bytes < old_bytes {
                shrinks(old_bytes - line.bytes);
            }
            let (bytes, blocks) = (line.bytes.saturating_sub(old_bytes), line.blocks.saturating_sub(old_blocks));
            if let Some(grown) = grown.remove(&line.site.line) {
                *line = grown;
            }
            // Where others of the line shrink, its parts are more than the whole.
            if line.bytes != bytes {
                line.parts.clear();
            }
            (line.bytes, line.blocks) = (bytes, blocks);
            line.bytes > 0
        });
        lines.sort_by_key(|line| std::cmp::Reverse(line.bytes));
        let grown_bytes = lines.iter().map(|line| line.bytes).fold(0, u64::saturating_add);
        let (lines, other_lines, other_bytes) = self.kept(lines);
        let ways_before = before.and_then(|before| self.ways(before)).unwrap_or_default();
        PoolIncrease {
            device,
            pool,
            from: first.word(),
            to: after.moment.word(),
            from_bytes: before.map_or(0, |before| before.used_bytes),
            to_bytes: after.used_bytes,
            grown_bytes,
            lines,
            other_lines,
            other_bytes,
            shrunk_lines,
            shrunk_bytes,
            by: self.tree_word(),
            tree: self.ways(after).map_or(Vec::new(), |ways| tree_of(&increase(&ways_before, ways))),
        }
    }

    /// The lines that are kept, with their holders, and the number and bytes of the others.
    fn kept(&self, mut lines: Vec<LineUse>) -> (Vec<LineUse>, u64, u64) {
        let others = lines.split_off(lines.len().min(KEPT_LINES));
        lines.iter_mut().for_each(|line| line.learn_holders(self.situation, self.names));
        (lines, others.len() as u64, others.iter().map(|line| line.bytes).sum())
    }

    /// The owner of blocks, level by level. An owner that says no more than the pool is told apart as far as it is known
    /// how the blocks are held, and else by when they were made, or by the kernel before them.
    fn levels_of_owner(&self, belonging: &Belonging) -> Vec<String> {
        let text = self.situation.owner_text(belonging.owner, self.names);
        let text = text.unwrap_or_else(|| UNKNOWN_OWNER.to_owned());
        let mut levels: Vec<String> = text.split('@').map(str::to_owned).collect();
        if levels.len() == 1 && text == Pool::PytorchCaching.event_type() {
            let role = belonging.path.map(|path| Role::of_path(&self.names.text(path), belonging.phase));
            match (role.and_then(Role::word), belonging.phase.and_then(made_in)) {
                (Some(word), _) => levels.extend(["model".to_owned(), word.to_owned()]),
                (None, Some(made_in)) => levels.push(made_in.to_owned()),
                (None, None) if belonging.kernel.is_some() => {
                    levels.push(format!("after kernel {}", self.names.text(belonging.kernel)));
                }
                (None, None) => {}
            }
        }
        levels
    }

    fn tree_word(&self) -> Option<&'static str> {
        (self.by != Grouping::Line).then(|| self.by.word())
    }

    /// Ways through the levels of the tree that was asked for, and what they hold.
    fn ways(&self, picture: &Picture) -> Option<Ways> {
        let mut ways = Ways::new();
        let mut add = |way: Vec<String>, bytes: u64, blocks: u64| {
            let sums = ways.entry(way).or_default();
            *sums = (sums.0.saturating_add(bytes), sums.1 + blocks);
        };
        match self.by {
            Grouping::Line => return None,
            Grouping::Owner => {
                for (belonging, (bytes, blocks)) in &picture.owners {
                    add(self.levels_of_owner(belonging), *bytes, *blocks);
                }
            }
            by => {
                for (place, held) in &picture.places {
                    let site = SiteText::of(&held.example, self.situation, self.names);
                    let phase = place.phase.map_or("", phase_word);
                    add(way(by, &site, &self.names.text(place.module), phase), held.bytes, held.blocks);
                }
            }
        }
        Some(ways)
    }
}

fn add_new(words: &mut Vec<String>, word: String) {
    if !word.is_empty() && !words.contains(&word) {
        words.push(word);
    }
}

impl Moment {
    /// In the words of the option.
    pub fn word(self) -> String {
        match self {
            Moment::Peak => "peak".to_owned(),
            Moment::Time { since_start_ns } => format!("{}s", since_start_ns as f64 / 1e9),
            Moment::Step { number } => format!("step:{number}"),
        }
    }

    /// Two moments with dots between: `step:3..step:9`.
    pub fn parse_two(text: &str) -> Option<(Self, Self)> {
        let (from, to) = text.split_once("..")?;
        Some((Self::parse(from.trim())?, Self::parse(to.trim())?))
    }

    /// What the words of the option say: `peak`, `step:7`, or a time such as `12.3s` or `250ms`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "peak" {
            return Some(Moment::Peak);
        }
        if let Some(number) = text.strip_prefix("step:") {
            return number.parse().ok().filter(|number| *number > 0).map(|number| Moment::Step { number });
        }
        let (number, unit_ns) = match text.strip_suffix("ms") {
            Some(number) => (number, 1e6),
            None => (text.strip_suffix('s')?, 1e9),
        };
        let nanoseconds = number.parse::<f64>().ok()? * unit_ns;
        (nanoseconds >= 0.0 && nanoseconds < u64::MAX as f64)
            .then_some(Moment::Time { since_start_ns: nanoseconds as u64 })
    }
}

impl Question for Moments {
    type Finding = MomentReport;

    const ANALYSIS: AnalysisSet = AnalysisSet::LEAKS;

    fn ask(questions: &mut Questions) -> bool {
        questions.moments = MomentQuestion::at_peak();
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        (!questions.moments.is_empty()).then(|| Self::new(questions.moments.clone()))
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, _event: &TimelineEvent, view: View<'_>) {
        self.block(change, view.situation);
    }

    fn step(&mut self, change: &StepChange, view: View<'_>) {
        self.step(change, view.situation);
    }

    fn finish(self, view: View<'_>, _end: &mut End<'_>) -> Option<MomentReport> {
        Some(self.finish(view.situation, view.names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_words() {
        for (text, moment) in [
            ("peak", Some(Moment::Peak)),
            ("step:7", Some(Moment::Step { number: 7 })),
            ("12.3s", Some(Moment::Time { since_start_ns: 12_300_000_000 })),
            ("250ms", Some(Moment::Time { since_start_ns: 250_000_000 })),
            ("step:0", None),
            ("-1s", None),
            ("nans", None),
            ("later", None),
            ("", None),
        ] {
            assert_eq!(Moment::parse(text), moment, "{text}");
        }
        assert_eq!(Moment::parse("12.3s").map(Moment::word).as_deref(), Some("12.3s"));
        assert_eq!(Moment::parse("step:7").map(Moment::word).as_deref(), Some("step:7"));
    }
}
