//! Decides what stays of the past in a file that keeps everything only of the newest time (a flight recorder).
//!
//! Of all that came before a moment, what stays is what the state at that moment consists of and what tells where it
//! came from: definitions; blocks that are alive, with their labels, holders, first touch, and the regions, operators,
//! modules and steps in which they were allocated; heaps of pools; whatever was begun and has not ended; and the newest
//! few of what is rare and worth remembering, such as refusals.
//!
//! Blocks are followed as the timeline follows them (see [`crate::past_blocks`]), so that whoever reads what is left
//! finds the same state as whoever reads everything.

use msmemscope_event::{
    BlockProperties, Device, Fact, LoopKind, Pool, PythonCallPhase, Record, STEP_RANGE_MESSAGE, StringId,
};

use crate::past_blocks::{BlockKey, NO_REGION, PastBlock, PastBlocks, RegionNumber};
use crate::quick_hash::QuickMap;
use crate::read_chunk::{Place, ReadChunk, RecordSet};

/// Of facts that are rare and worth remembering, so many of each kind stay.
const NEWEST_KEPT: usize = 256;
/// Steps that stay, besides those in which blocks that are alive were allocated.
const NEWEST_STEPS_KEPT: usize = 4096;

/// Something of the past that may be left out. There are hundreds of thousands of them, so it is kept small.
struct Moment {
    monotonic_ns: u64,
    place: Place,
    thread_id: u32,
    what: What,
}

impl Moment {
    /// What comes first in the order of all records: at the same time, what frees a block.
    #[inline]
    fn rank(&self) -> u64 {
        self.monotonic_ns << 1 | u64::from(!matches!(self.what, What::Free { .. } | What::FreeByHandle { .. }))
    }
}

/// What a fact means for what stays.
enum What {
    Allocation { key: BlockKey, size_bytes: u64, pool: Pool, handle: u64 },
    Free { key: BlockKey },
    FreeByHandle { pool: Pool, handle: u64 },
    Label { address: u64, level: u32, label: StringId },
    Holder { address: u64 },
    Touch { device: Device, address: u64 },
    HeapRegistered { pool: Pool, device: Device, address: u64 },
    HeapUnregistered { pool: Pool, address: u64 },
    RegionStart(RegionName),
    RegionEnd(RegionName),
    RangeStart { range_id: u64, device: Device, is_step: bool },
    RangeEnd { range_id: u64 },
    Milestone(Series),
    Rare(RareKind),
    Passing,
}

/// What a region of a thread is called; it ends under the same name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RegionName {
    Label(u32, StringId),
    Operator(StringId),
    Module(StringId),
    PythonCall,
}

impl RegionName {
    /// Regions of one layer lie in each other; those of different layers need not.
    fn layer(self) -> usize {
        match self {
            RegionName::Label(..) => 0,
            RegionName::Operator(_) => 1,
            RegionName::Module(_) => 2,
            RegionName::PythonCall => 3,
        }
    }
}

const LAYERS: usize = 4;
/// Layers of regions that tell something about a block: the first ones.
const TELLING_LAYERS: usize = 3;

/// Facts that hold until the next one of the same series.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Series {
    Step,
    Loop(LoopKind, u64),
    Recording,
    Autograd,
}

impl Series {
    /// What is counted together, and how many of it stay in any case.
    fn class(self) -> (usize, usize) {
        match self {
            Series::Step => (0, NEWEST_STEPS_KEPT),
            Series::Loop(..) => (1, NEWEST_STEPS_KEPT),
            Series::Recording => (2, NEWEST_KEPT),
            Series::Autograd => (3, 1),
        }
    }
}

const SERIES_CLASSES: usize = 4;

#[derive(Clone, Copy)]
enum RareKind {
    AllocationFailed,
    FreeFailed,
    Snapshot,
    PoolRefusal,
    Message,
    System,
    ClockAnchor,
    Mark,
    Loss,
    CardSample,
}

const RARE_KINDS: usize = RareKind::CardSample as usize + 1;

impl What {
    /// None if the fact stays whatever happens.
    #[inline]
    fn of(fact: &Fact<'_>) -> Option<Self> {
        let key = |properties: &BlockProperties, address| BlockKey::new(properties, address);
        Some(match *fact {
            Fact::Allocation { properties, address, size_bytes }
            | Fact::AllocationOnStream { properties, address, size_bytes, .. } => {
                let pool = properties.pool;
                What::Allocation { key: key(&properties, address), size_bytes, pool, handle: 0 }
            }
            Fact::AllocationWithHandle { properties, address, size_bytes, handle } => {
                let pool = properties.pool;
                What::Allocation { key: key(&properties, address), size_bytes, pool, handle }
            }
            Fact::Free { properties, address } => What::Free { key: key(&properties, address) },
            Fact::FreeByHandle { properties, handle } => What::FreeByHandle { pool: properties.pool, handle },
            Fact::LabelAddress { address, level, label } => What::Label { address, level, label },
            Fact::Holder { address, .. } => What::Holder { address },
            Fact::Access { device, address, .. } => What::Touch { device, address },
            Fact::HeapRegistered { properties, address, .. } => {
                What::HeapRegistered { pool: properties.pool, device: properties.device, address }
            }
            Fact::HeapUnregistered { properties, address } => What::HeapUnregistered { pool: properties.pool, address },
            Fact::LabelPush { level, label } => What::RegionStart(RegionName::Label(level, label)),
            Fact::LabelPop { level, label } => What::RegionEnd(RegionName::Label(level, label)),
            Fact::OperatorBegin { name, .. } | Fact::PlacedOperatorBegin { name, .. } => {
                What::RegionStart(RegionName::Operator(name))
            }
            Fact::OperatorEnd { name, .. } => What::RegionEnd(RegionName::Operator(name)),
            Fact::ModuleBegin { name } => What::RegionStart(RegionName::Module(name)),
            Fact::ModuleEnd { name } => What::RegionEnd(RegionName::Module(name)),
            Fact::PythonCall { phase: PythonCallPhase::End, .. } => What::RegionEnd(RegionName::PythonCall),
            Fact::PythonCall { .. } => What::RegionStart(RegionName::PythonCall),
            Fact::RangeBegin { range_id, device, message, .. } => {
                What::RangeStart { range_id, device, is_step: message == STEP_RANGE_MESSAGE }
            }
            Fact::RangeEnd { range_id, .. } => What::RangeEnd { range_id },
            Fact::Step { .. } => What::Milestone(Series::Step),
            Fact::LoopTurn { kind, loop_id, .. } => What::Milestone(Series::Loop(kind, loop_id)),
            Fact::Recording { .. } => What::Milestone(Series::Recording),
            Fact::Autograd { .. } => What::Milestone(Series::Autograd),
            Fact::AllocationFailed { .. } => What::Rare(RareKind::AllocationFailed),
            Fact::FreeFailed { .. } => What::Rare(RareKind::FreeFailed),
            Fact::Snapshot { .. } => What::Rare(RareKind::Snapshot),
            Fact::PoolRefusal { .. } => What::Rare(RareKind::PoolRefusal),
            Fact::Message { .. } => What::Rare(RareKind::Message),
            Fact::System { .. } => What::Rare(RareKind::System),
            Fact::ClockAnchor { .. } => What::Rare(RareKind::ClockAnchor),
            Fact::Mark { .. } => What::Rare(RareKind::Mark),
            Fact::Loss { .. } => What::Rare(RareKind::Loss),
            Fact::CardSample { .. } => What::Rare(RareKind::CardSample),
            // Readers do without the segments of a refusal if some of them are missing.
            Fact::PoolSegment { .. }
            | Fact::Kernel { .. }
            | Fact::PlacedKernel { .. }
            | Fact::PreparedWork { .. }
            | Fact::Watch { .. } => What::Passing,
            _ => return None,
        })
    }
}

/// Of every chunk, the records that can be left out; says which of the first `candidates` chunks are replaced. Everything
/// before the moment counts, and all of it must be seen here. Nothing if memory is short.
pub(crate) fn records_of_the_past(
    chunks: &mut [ReadChunk],
    candidates: usize,
    until_ns: u64,
) -> Option<Vec<RecordSet>> {
    let mut records = vec![RecordSet::default(); chunks.len()];
    let moments = moments_before(chunks, candidates, until_ns, &mut records)?;
    let mut past = Past::new(LeftOut { chunks, records }, &moments);
    if moments.is_sorted_by_key(Moment::rank) {
        moments.iter().for_each(|moment| past.take(moment));
    } else {
        let mut order: Vec<(u64, u32)> = Vec::new();
        order.try_reserve_exact(moments.len()).ok()?;
        order.extend(moments.iter().map(Moment::rank).zip(0..));
        order.sort(); // Made for runs that are in order, of which there is one for each thread.
        order.iter().for_each(|&(_, position)| past.take(&moments[position as usize]));
    }
    Some(past.end())
}

/// What happened before a moment, one thread after the other. What passes without a trace is left out at once.
fn moments_before(
    chunks: &mut [ReadChunk],
    candidates: usize,
    until_ns: u64,
    left_out: &mut [RecordSet],
) -> Option<Vec<Moment>> {
    let mut order: Vec<usize> = (0..chunks.len()).collect();
    order.sort_by_key(|&position| chunks[position].first_thread_id());
    let mut moments = Vec::new();
    let mut has_memory = true;
    for position in order {
        let (chunk, left_out) = (&mut chunks[position], &mut left_out[position]);
        let survey = chunk.survey(|number, record: &Record<'_>| {
            if record.monotonic_ns >= until_ns {
                return;
            }
            match What::of(&record.fact) {
                None => {}
                Some(What::Passing) => left_out.insert(number),
                Some(what) => {
                    has_memory = has_memory && (moments.len() < moments.capacity() || moments.try_reserve(1).is_ok());
                    if has_memory {
                        let place = Place { chunk: position as u32, record: number };
                        let Record { monotonic_ns, thread_id, .. } = *record;
                        moments.push(Moment { monotonic_ns, place, thread_id, what });
                    }
                }
            }
        });
        chunk.is_replaced = position < candidates && survey.is_sound && survey.latest_ns < until_ns;
    }
    has_memory.then_some(moments)
}

/// What is left out so far.
struct LeftOut<'c> {
    chunks: &'c [ReadChunk],
    records: Vec<RecordSet>,
}

impl LeftOut<'_> {
    #[inline]
    fn can_go(&self, place: Place) -> bool {
        self.chunks[place.chunk as usize].is_replaced
    }

    /// Leaves out a record that nothing else depends on. One that is only looked at stays where it is.
    #[inline]
    fn add(&mut self, place: Place) {
        if self.can_go(place) {
            self.records[place.chunk as usize].insert(place.record);
        }
    }

    /// Leaves out a start and its end, or none of them.
    fn add_both(&mut self, start: Place, end: Place) {
        if self.can_go(start) && self.can_go(end) {
            self.add(start);
            self.add(end);
        }
    }
}

/// A region of a thread, or a range.
struct Region {
    start: Place,
    end: Option<Place>,
    /// The region around it.
    parent: RegionNumber,
    is_used: bool,
    is_step: bool,
}

/// The regions that a thread is in, by layer, the innermost last.
#[derive(Default)]
struct OpenRegions([Vec<(RegionName, RegionNumber)>; LAYERS]);

impl OpenRegions {
    fn innermost(&self, layer: usize) -> RegionNumber {
        self.0[layer].last().map_or(NO_REGION, |(_, region)| *region)
    }
}

/// A heap that a pool has registered.
struct Heap {
    device: Device,
    place: Place,
}

struct Past<'c> {
    left_out: LeftOut<'c>,
    blocks: PastBlocks,
    /// When blocks were allocated that stay.
    kept_ns: Vec<u64>,
    regions: Vec<Region>,
    /// By thread.
    open_regions: QuickMap<u32, OpenRegions>,
    open_ranges: QuickMap<u64, RegionNumber>,
    /// Open ranges that are steps, with their devices.
    open_steps: Vec<(Device, RegionNumber)>,
    heaps: QuickMap<(Pool, u64), Heap>,
    /// Heaps withdrawn since their pool last told its total.
    withdrawn_heaps: QuickMap<(Pool, Device), Vec<(Place, Place)>>,
    milestones: Vec<(u64, Place, Series)>,
    rare: [Vec<Place>; RARE_KINDS],
}

impl<'c> Past<'c> {
    fn new(left_out: LeftOut<'c>, moments: &[Moment]) -> Self {
        let finds_by_address =
            |moment: &Moment| matches!(moment.what, What::Label { .. } | What::Holder { .. } | What::Touch { .. });
        Self {
            left_out,
            blocks: PastBlocks::new(moments.iter().any(finds_by_address)),
            kept_ns: Vec::new(),
            regions: Vec::new(),
            open_regions: QuickMap::default(),
            open_ranges: QuickMap::default(),
            open_steps: Vec::new(),
            heaps: QuickMap::default(),
            withdrawn_heaps: QuickMap::default(),
            milestones: Vec::new(),
            rare: Default::default(),
        }
    }

    #[inline]
    fn take(&mut self, moment: &Moment) {
        let place = moment.place;
        match moment.what {
            What::Allocation { key, size_bytes, pool, handle } => {
                let regions = self.regions_around(moment.thread_id, key.device());
                let block = PastBlock::new(size_bytes, place, moment.monotonic_ns, regions);
                let handle = (handle != 0).then_some((pool, handle));
                for forgotten in self.blocks.begin(key, handle, block) {
                    self.left_out.add(forgotten);
                }
            }
            What::Free { key } => {
                let ended = self.blocks.end(key);
                self.block_ends(ended, place);
            }
            What::FreeByHandle { pool, handle } => {
                let ended = self.blocks.end_by_handle(pool, handle);
                self.block_ends(ended, place);
            }
            What::Label { address, level, label } => {
                let is_news =
                    self.blocks.holding_framework(address).is_some_and(|block| block.attach_label(level, label, place));
                if !is_news {
                    self.left_out.add(place);
                }
            }
            What::Holder { address } => {
                let superseded = match self.blocks.holding_framework(address) {
                    Some(block) => block.attach_holder(place),
                    None => Some(place),
                };
                if let Some(superseded) = superseded {
                    self.left_out.add(superseded);
                }
            }
            What::Touch { device, address } => {
                let is_first = self.blocks.holding(device, address).is_some_and(|block| block.attach_touch(place));
                if !is_first {
                    self.left_out.add(place);
                }
            }
            What::HeapRegistered { pool, device, address } => self.heap_registered(pool, device, address, place),
            What::HeapUnregistered { pool, address } => self.heap_unregistered(pool, address, place),
            What::RegionStart(name) => self.region_starts(moment.thread_id, name, place),
            What::RegionEnd(name) => self.region_ends(moment.thread_id, name, place),
            What::RangeStart { range_id, device, is_step } => {
                let region = self.new_region(place, NO_REGION, is_step);
                self.open_ranges.insert(range_id, region);
                if is_step {
                    self.open_steps.push((device, region));
                }
            }
            What::RangeEnd { range_id } => match self.open_ranges.remove(&range_id) {
                Some(region) => {
                    self.regions[region as usize].end = Some(place);
                    self.open_steps.retain(|(_, open)| *open != region);
                }
                None => self.left_out.add(place),
            },
            What::Milestone(series) => self.milestones.push((moment.monotonic_ns, place, series)),
            What::Rare(kind) => self.rare[kind as usize].push(place),
            What::Passing => self.left_out.add(place),
        }
    }

    /// The innermost regions that tell something about a block that a thread allocates now, and its step.
    #[inline]
    fn regions_around(&self, thread_id: u32, device: Device) -> [RegionNumber; TELLING_LAYERS + 1] {
        let mut around = [NO_REGION; TELLING_LAYERS + 1];
        if let Some(open) = self.open_regions.get(&thread_id) {
            (0..TELLING_LAYERS).for_each(|layer| around[layer] = open.innermost(layer));
        }
        let own = self.open_steps.iter().find(|(of, _)| *of == device);
        around[TELLING_LAYERS] = own.or(self.open_steps.last()).map_or(NO_REGION, |(_, region)| *region);
        around
    }

    #[inline]
    fn block_ends(&mut self, ended: Option<PastBlock>, place: Place) {
        let Some(block) = ended else {
            // Its allocation was not seen, or its address has had another block since.
            return self.left_out.add(place);
        };
        let mut allocations = [block.place()].into_iter().chain(block.replaced());
        if allocations.all(|allocation| self.left_out.can_go(allocation)) && self.left_out.can_go(place) {
            [block.place(), place].into_iter().chain(block.attached()).for_each(|place| self.left_out.add(place));
        } else {
            self.keep(&block);
        }
    }

    /// A block stays, and with it what it lies in.
    fn keep(&mut self, block: &PastBlock) {
        self.kept_ns.push(block.begin_ns());
        for innermost in block.regions() {
            let mut next = innermost;
            while let Some(region) = self.regions.get_mut(next as usize).filter(|region| !region.is_used) {
                region.is_used = true;
                next = region.parent;
            }
        }
    }

    fn new_region(&mut self, start: Place, parent: RegionNumber, is_step: bool) -> RegionNumber {
        self.regions.push(Region { start, end: None, parent, is_used: false, is_step });
        self.regions.len() as RegionNumber - 1
    }

    fn region_starts(&mut self, thread_id: u32, name: RegionName, place: Place) {
        let region = self.regions.len() as RegionNumber;
        let open = self.open_regions.entry(thread_id).or_default();
        let parent = open.innermost(name.layer());
        open.0[name.layer()].push((name, region));
        self.new_region(place, parent, false);
    }

    /// Regions need not lie in each other: the innermost one of the name ends. An end without a start says nothing.
    fn region_ends(&mut self, thread_id: u32, name: RegionName, place: Place) {
        let ended = self.open_regions.get_mut(&thread_id).and_then(|open| {
            let open = &mut open.0[name.layer()];
            let position = open.iter().rposition(|(of, _)| *of == name)?;
            Some(open.remove(position).1)
        });
        match ended {
            Some(region) => self.regions[region as usize].end = Some(place),
            None => self.left_out.add(place),
        }
    }

    /// Pools of frameworks tell their new total, that of ATB one more heap.
    fn heap_registered(&mut self, pool: Pool, device: Device, address: u64, place: Place) {
        if let Some(before) = self.heaps.insert((pool, address), Heap { device, place }) {
            self.left_out.add(before.place);
        }
        if self.withdrawn_heaps.is_empty() {
            return;
        }
        for (registered, withdrawn) in self.withdrawn_heaps.remove(&(pool, device)).unwrap_or_default() {
            self.left_out.add_both(registered, withdrawn);
        }
    }

    fn heap_unregistered(&mut self, pool: Pool, address: u64, place: Place) {
        match self.heaps.remove(&(pool, address)) {
            Some(heap) if pool == Pool::Atb => self.left_out.add_both(heap.place, place),
            Some(heap) => self.withdrawn_heaps.entry((pool, heap.device)).or_default().push((heap.place, place)),
            None => self.left_out.add(place),
        }
    }

    fn end(mut self) -> Vec<RecordSet> {
        for block in self.blocks.take_live() {
            self.keep(&block);
        }
        let mut steps = 0;
        for region in self.regions.iter().rev() {
            let Some(end) = region.end.filter(|_| !region.is_used) else { continue };
            steps += usize::from(region.is_step);
            if !region.is_step || steps > NEWEST_STEPS_KEPT {
                self.left_out.add_both(region.start, end);
            }
        }
        self.leave_out_milestones();
        for places in &self.rare {
            for &place in places.iter().rev().skip(NEWEST_KEPT) {
                self.left_out.add(place);
            }
        }
        self.left_out.records
    }

    /// Milestones stay that hold for a block that stays, and the newest ones.
    fn leave_out_milestones(&mut self) {
        self.kept_ns.sort_unstable();
        let mut next_ns: QuickMap<Series, u64> = QuickMap::default();
        let mut counts = [0; SERIES_CLASSES];
        for &(monotonic_ns, place, series) in self.milestones.iter().rev() {
            let until_ns = next_ns.insert(series, monotonic_ns).unwrap_or(u64::MAX);
            let first_after = self.kept_ns.partition_point(|kept_ns| *kept_ns < monotonic_ns);
            let holds_for_block = self.kept_ns.get(first_after).is_some_and(|kept_ns| *kept_ns < until_ns);
            let (class, newest_kept) = series.class();
            counts[class] += 1;
            if !holds_for_block && counts[class] > newest_kept {
                self.left_out.add(place);
            }
        }
    }
}
