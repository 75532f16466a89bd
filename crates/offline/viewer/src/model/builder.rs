//! One pass over a recording that fills a model.

use msmemscope_analysis::Names;
use msmemscope_analysis::decompose::UNKNOWN_OWNER;
use msmemscope_analysis::names::Calls;
use msmemscope_analysis::owners::OwnerId;
use msmemscope_analysis::situation::{LiveBlock, Situation, StepChange};
use msmemscope_event::{AccessKind, AllocationInterface, AutogradPhase, Device, KernelPhase, StringId};
use msmemscope_timeline::{BlockEvent, EventKind, EventSink, StepSource, TimelineEvent};
use msmemscope_trace::Definitions;
use rustc_hash::FxHashMap;

use super::blocks::{self, NewBlock};
use super::coarse::Coarse;
use super::events::{Detail, EventCode, NOTHING};
use super::regions::RegionCollector;
use super::series::{CardSeries, StepSeries};
use super::spans::{EndedCalls, Instants, OpenSpans};
use super::stacks::{Namer, SiteKey};
use super::texts::{TextId, of_code, of_string};
use super::{Group, Model, Peak, Step};

/// Events between two reports of the rough curve.
const REPORT_INTERVAL: u32 = 1 << 16;

/// Tracks of moments.
const INSTANT_TRACKS: [&str; 5] = ["marks", "out_of_memory", "snapshots", "kernels", "recording"];
const MARKS: usize = 0;
const OUT_OF_MEMORY: usize = 1;
const SNAPSHOTS: usize = 2;
const KERNELS: usize = 3;
const RECORDING: usize = 4;

/// Takes what is known so far: the rough curve, and the time of the latest event.
pub(crate) type Report<'a> = dyn FnMut(&Coarse, u64) + 'a;

/// Fills a model from events.
pub(crate) struct Builder<'a> {
    names: &'a dyn Names,
    situation: Situation,
    model: Model,
    report: &'a mut Report<'a>,
    until_report: u32,
    coarse: Coarse,
    /// Blocks by slot.
    slots: Vec<u32>,
    levels: Vec<u64>,
    collectors: Vec<RegionCollector>,
    sites: FxHashMap<Calls, u32>,
    site_keys: Vec<SiteKey>,
    owners: FxHashMap<OwnerId, u32>,
    owner_ids: Vec<OwnerId>,
    threads: FxHashMap<u32, u16>,
    latest_thread: (u32, u16),
    operators: OpenSpans,
    ranges: OpenSpans,
    kernels: OpenSpans,
    calls: EndedCalls,
    range_names: FxHashMap<u64, (u32, TextId)>,
    open_steps: Vec<Step>,
    steps_by_api: bool,
}

impl<'a> Builder<'a> {
    /// A builder for a recording of this many facts, which covers the time of `coarse`.
    pub(crate) fn new(
        names: &'a dyn Names,
        mut situation: Situation,
        step_source: Option<StepSource>,
        facts: u64,
        coarse: Coarse,
        report: &'a mut Report<'a>,
    ) -> Self {
        let mut model = Model::default();
        model.events.reserve(usize::try_from(facts).unwrap_or(0));
        model.instants = INSTANT_TRACKS.map(Instants::none).into();
        let mut open_steps = Vec::new();
        let mut steps_by_api = false;
        if let Some(StepSource::Api { first_number }) = step_source {
            situation.begin_with_step(first_number);
            steps_by_api = true;
            open_steps.push(Step { device: Device::Unknown, number: first_number, start: 0, end: 0 });
        }
        Self {
            names,
            situation,
            model,
            report,
            until_report: REPORT_INTERVAL,
            coarse,
            slots: Vec::new(),
            levels: Vec::new(),
            collectors: Vec::new(),
            sites: FxHashMap::default(),
            site_keys: Vec::new(),
            owners: FxHashMap::default(),
            owner_ids: Vec::new(),
            threads: FxHashMap::default(),
            latest_thread: (0, u16::MAX),
            operators: OpenSpans::default(),
            ranges: OpenSpans::default(),
            kernels: OpenSpans::default(),
            calls: EndedCalls::default(),
            range_names: FxHashMap::default(),
            open_steps,
            steps_by_api,
        }
    }

    #[inline]
    fn thread(&mut self, thread_id: u32) -> u16 {
        if self.latest_thread.0 == thread_id && self.latest_thread.1 != u16::MAX {
            return self.latest_thread.1;
        }
        let next = self.model.threads.len().min(usize::from(u16::MAX) - 1) as u16;
        let index = *self.threads.entry(thread_id).or_insert_with(|| {
            self.model.threads.push(thread_id);
            next
        });
        self.latest_thread = (thread_id, index);
        index
    }

    #[inline]
    fn group(&mut self, event: &BlockEvent) -> u16 {
        let wanted = Group { device: event.properties.device, pool: event.properties.pool };
        if let Some(position) = self.model.groups.iter().position(|group| *group == wanted) {
            return position as u16;
        }
        self.model.groups.push(wanted);
        self.model.peaks.push(Peak::default());
        self.model.reserved.push(StepSeries::default());
        self.levels.push(0);
        self.collectors.push(RegionCollector::default());
        self.model.groups.len() as u16 - 1
    }

    #[inline]
    fn owner(&mut self, owner: OwnerId) -> u32 {
        let next = self.owner_ids.len() as u32;
        *self.owners.entry(owner).or_insert_with(|| {
            self.owner_ids.push(owner);
            next
        })
    }

    #[inline]
    fn site(&mut self, live: &LiveBlock) -> u32 {
        let next = self.site_keys.len() as u32;
        *self.sites.entry(Calls::of(live)).or_insert_with_key(|calls| {
            self.site_keys.push(SiteKey { calls: *calls, first_seen_ns: live.timestamp_ns });
            next
        })
    }

    fn malloc(&mut self, event: &TimelineEvent, block: &BlockEvent) {
        let Some(live) = self.situation.block(block.slot).copied() else { return };
        let time = event.timestamp_ns;
        let (group, thread) = (self.group(block), self.thread(event.thread_id));
        let mut flags = if block.shadow { blocks::BEFORE_RECORDING } else { 0 };
        if block.properties.interface == AllocationInterface::Alloc {
            flags |= blocks::IS_SEGMENT;
        }
        let new = NewBlock {
            address: block.address,
            bytes: block.size_bytes,
            start: time,
            allocation: block.allocation_id as u32,
            site: self.site(&live),
            owner: self.owner(live.owner),
            step: live.step as u32,
            group,
            thread,
            flags,
        };
        let number = self.model.blocks.push(new);
        let slot = block.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, NOTHING);
        }
        self.slots[slot] = number;
        self.model.events.push(EventCode::Malloc, time, thread, event.device, number, of_string(live.operator));
        let index = group as usize;
        self.collectors[index].add(block.address, block.size_bytes);
        let level = self.levels[index].saturating_add(block.size_bytes);
        self.levels[index] = level;
        if level > self.model.peaks[index].bytes {
            self.model.peaks[index] = Peak { bytes: level, at: time };
        }
        self.used(group, time, block);
    }

    fn free(&mut self, event: &TimelineEvent, block: &BlockEvent, ended: Option<LiveBlock>) {
        let Some(&number) = self.slots.get(block.slot as usize) else { return };
        let Some(ended) = ended.filter(|_| number != NOTHING) else { return };
        let time = event.timestamp_ns;
        let index = number as usize;
        let owner = self.owner(ended.owner);
        let thread = self.thread(event.thread_id);
        let columns = &mut self.model.blocks;
        columns.end[index] = time;
        columns.owner[index] = owner;
        if block.shadow {
            columns.flags[index] |= blocks::END_NOT_SEEN;
        }
        let group = columns.group[index];
        self.slots[block.slot as usize] = NOTHING;
        self.model.events.push(EventCode::Free, time, thread, event.device, number, 0);
        let level = &mut self.levels[group as usize];
        *level = level.saturating_sub(block.size_bytes);
        self.used(group, time, block);
    }

    #[inline]
    fn used(&mut self, group: u16, time: u64, block: &BlockEvent) {
        let index = group as usize;
        self.model.reserved[index].set(time, block.total_bytes);
        self.coarse.set(group, self.model.groups[index], time, self.levels[index]);
    }

    fn access(&mut self, event: &TimelineEvent) {
        let EventKind::Access { kind, allocation_id, slot, operator, .. } = &event.kind else { return };
        let is_known = *allocation_id != 0;
        let block = self.slots.get(*slot as usize).copied().filter(|_| is_known).unwrap_or(NOTHING);
        if block != NOTHING {
            self.model.blocks.touch(block, event.timestamp_ns);
        }
        let code = match kind {
            AccessKind::Read => EventCode::Read,
            AccessKind::Write => EventCode::Write,
            AccessKind::Unknown => EventCode::Access,
        };
        self.push(code, event, block, of_string(*operator));
    }

    #[inline]
    fn push(&mut self, code: EventCode, event: &TimelineEvent, reference: u32, name: TextId) {
        let thread = self.thread(event.thread_id);
        self.model.events.push(code, event.timestamp_ns, thread, event.device, reference, name);
    }

    /// An event with a detail.
    fn push_detailed(&mut self, code: EventCode, event: &TimelineEvent, name: TextId, detail: Detail) {
        let place = self.model.events.detail(detail);
        self.push(code, event, place, name);
    }

    fn instant(&mut self, track: usize, time: u64, name: TextId) {
        self.model.instants[track].at.push(time);
        self.model.instants[track].name.push(name);
    }

    fn operator(&mut self, event: &TimelineEvent, begins: bool, name: StringId, framework: u8) {
        let (time, name) = (event.timestamp_ns, of_string(name));
        let key = u64::from(framework) << 32 | u64::from(name);
        if begins {
            self.operators.begin(event.thread_id, key, time, name);
            self.push(EventCode::OperatorBegin, event, NOTHING, name);
        } else {
            self.operators.end(event.thread_id, key, time, true, &mut self.model.operators);
            self.push(EventCode::OperatorEnd, event, NOTHING, name);
        }
    }

    fn kernel(&mut self, event: &TimelineEvent) {
        let EventKind::Kernel { phase, at_ns, name, stream_id: stream, task_id: task, .. } = event.kind else { return };
        let (time, name) = (at_ns.max(self.model.first_ns), of_string(name));
        let key = u64::from(task) << 32 | u64::from(name);
        let code = match phase {
            KernelPhase::ExecuteStart | KernelPhase::Start => {
                self.kernels.begin(stream, key, time, name);
                EventCode::KernelStart
            }
            KernelPhase::ExecuteEnd | KernelPhase::End => {
                self.kernels.end(stream, key, time, false, &mut self.model.kernels);
                EventCode::KernelEnd
            }
            KernelPhase::Launch | KernelPhase::Other => {
                self.instant(KERNELS, time, name);
                EventCode::KernelLaunch
            }
        };
        self.push(code, event, NOTHING, name);
    }

    fn card(&mut self, event: &TimelineEvent, used_bytes: u64, process_bytes: u64, total_bytes: u64) {
        let position = self.model.cards.iter().position(|card| card.device == event.device);
        let position = position.unwrap_or_else(|| {
            let (used, process) = (StepSeries::default(), StepSeries::default());
            self.model.cards.push(CardSeries { device: event.device, total_bytes, used, process });
            self.model.cards.len() - 1
        });
        let card = &mut self.model.cards[position];
        card.total_bytes = card.total_bytes.max(total_bytes);
        card.used.set(event.timestamp_ns, used_bytes);
        card.process.set(event.timestamp_ns, process_bytes);
        let detail = Detail { bytes: used_bytes, ..Detail::default() };
        self.push_detailed(EventCode::Card, event, 0, detail);
    }

    fn system(&mut self, event: &TimelineEvent, text: &str) {
        let name = self.model.texts.own(text);
        self.instant(RECORDING, event.timestamp_ns, name);
        self.push(EventCode::System, event, NOTHING, name);
    }

    /// Everything that comes seldom.
    fn other(&mut self, event: &TimelineEvent) {
        let time = event.timestamp_ns;
        match &event.kind {
            EventKind::Mark { message, .. } => {
                let name = self.model.texts.own(message);
                self.instant(MARKS, time, name);
                self.push(EventCode::Mark, event, NOTHING, name);
            }
            EventKind::RangeBegin { range_id, message, .. } => {
                let name = self.model.texts.own(message);
                self.range_names.insert(*range_id, (event.thread_id, name));
                self.ranges.begin(event.thread_id, *range_id, time, name);
                self.push(EventCode::RangeBegin, event, NOTHING, name);
            }
            EventKind::RangeEnd { range_id, .. } => {
                let (thread, name) = self.range_names.remove(range_id).unwrap_or((event.thread_id, 0));
                self.ranges.end(thread, *range_id, time, false, &mut self.model.ranges);
                self.push(EventCode::RangeEnd, event, NOTHING, name);
            }
            EventKind::StepEnd { number } => {
                let name = self.model.texts.own(&format!("step {number}"));
                self.push(EventCode::Step, event, NOTHING, name);
            }
            EventKind::Autograd { phase } => {
                let code = match phase {
                    AutogradPhase::Forward => EventCode::Forward,
                    AutogradPhase::Backward => EventCode::Backward,
                    AutogradPhase::Optimizer | AutogradPhase::Other => return,
                };
                self.push(code, event, NOTHING, 0);
            }
            EventKind::Snapshot { name, numbers, .. } => {
                self.instant(SNAPSHOTS, time, of_string(*name));
                let detail = Detail { bytes: numbers.allocated_bytes, ..Detail::default() };
                self.push_detailed(EventCode::Snapshot, event, of_string(*name), detail);
            }
            EventKind::CardSample { used_bytes, process_bytes, total_bytes } => {
                self.card(event, *used_bytes, *process_bytes, *total_bytes);
            }
            EventKind::AllocationFailed { size_bytes, error, .. } => {
                let name = self.model.texts.own(&format!("the driver refused {size_bytes} bytes (error {error})"));
                self.instant(OUT_OF_MEMORY, time, name);
                let detail = Detail { bytes: *size_bytes, ..Detail::default() };
                self.push_detailed(EventCode::OutOfMemory, event, name, detail);
            }
            EventKind::FreeFailed { address, error, .. } => {
                let text = self.model.texts.own(&format!("error {error}"));
                self.push_detailed(EventCode::FreeFailed, event, 0, Detail { address: *address, bytes: 0, text });
            }
            EventKind::Watch(look) => {
                let text = self.model.texts.own(if look.after { "after" } else { "before" });
                let detail = Detail { address: look.address, bytes: look.size_bytes, text };
                self.push_detailed(EventCode::Watch, event, of_string(look.operator), detail);
            }
            EventKind::PythonCall(span) => {
                let name = if span.code == Default::default() { of_string(span.name) } else { of_code(span.code) };
                self.calls.push(event.thread_id, span.start_ns, span.end_ns, name);
            }
            EventKind::Message { text, .. } => {
                let text = self.model.texts.own(text);
                self.push_detailed(EventCode::Message, event, 0, Detail { text, ..Detail::default() });
            }
            EventKind::AclInit { .. } => self.system(event, "aclInit"),
            EventKind::AclFinalize { .. } => self.system(event, "aclFinalize"),
            EventKind::StartTrace { .. } => self.system(event, "recording starts"),
            EventKind::StopTrace => self.system(event, "recording stops"),
            _ => {}
        }
    }

    fn step(&mut self, time: u64, change: &StepChange) {
        let StepChange { device, number, begins } = *change;
        if begins {
            return self.open_steps.push(Step { device, number, start: time, end: 0 });
        }
        let is_it = |step: &Step| step.device == device && step.number == number;
        let start = match self.open_steps.iter().position(is_it) {
            Some(position) => self.open_steps.remove(position).start,
            // The end of a step of the API is the start of the next one.
            None => self.model.steps.last().map_or(self.model.first_ns, |step| step.end),
        };
        self.model.steps.push(Step { device, number, start: start.max(self.model.first_ns), end: time });
        if self.steps_by_api {
            self.open_steps.push(Step { device, number: number + 1, start: time, end: 0 });
        }
    }

    /// The model. Call after the last event.
    pub(crate) fn finish(mut self, definitions: &Definitions) -> Model {
        let live: Vec<LiveBlock> = self.situation.live_blocks().copied().collect();
        for block in live {
            let Some(&number) = self.slots.get(block.slot as usize).filter(|number| **number != NOTHING) else {
                continue;
            };
            let owner = self.owner(block.owner);
            self.model.blocks.owner[number as usize] = owner;
        }
        let last_ns = self.model.last_ns;
        self.operators.end_all(last_ns, &mut self.model.operators);
        self.ranges.end_all(last_ns, &mut self.model.ranges);
        self.kernels.end_all(last_ns, &mut self.model.kernels);
        // A range that was opened is a step that lasts; behind the last step of the API there is none.
        if !self.steps_by_api {
            let open = std::mem::take(&mut self.open_steps);
            self.model.steps.extend(open.into_iter().map(|step| Step { end: last_ns.saturating_add(1), ..step }));
        }
        self.model.steps.sort_by_key(|step| (step.start, step.number));
        self.model.end_bytes = self.levels;
        let mut model = self.model;
        model.calls = self.calls.into_lanes();
        model.regions = self.collectors.into_iter().map(RegionCollector::finish).collect();
        let blocks = &mut model.blocks;
        blocks.y = blocks
            .address
            .iter()
            .zip(&blocks.group)
            .map(|(&address, &group)| model.regions[group as usize].y(address))
            .collect();
        blocks.finish();
        name_owners(&mut model, &self.owner_ids, &self.situation, self.names);
        learn_texts(&mut model, definitions);
        model.stacks = Namer::new(self.names).name(&self.site_keys);
        let of_sites: Vec<TextId> = model.stacks.sites.iter().map(|site| site.operator).collect();
        model.texts.learn(of_sites, definitions);
        model
    }
}

/// Owners in words. Different numbers may have the same words.
fn name_owners(model: &mut Model, ids: &[OwnerId], situation: &Situation, names: &dyn Names) {
    let mut by_text: FxHashMap<String, u32> = FxHashMap::default();
    let mut numbers = Vec::with_capacity(ids.len());
    for &id in ids {
        let text = situation.owner_text(id, names).unwrap_or_else(|| UNKNOWN_OWNER.to_owned());
        let next = model.owners.len() as u32;
        let number = *by_text.entry(text).or_insert_with_key(|text| {
            model.owners.push(super::texts::shortened(text).into_owned());
            next
        });
        numbers.push(number);
    }
    model.blocks.owner.iter_mut().for_each(|owner| *owner = numbers[*owner as usize]);
}

/// Looks up all names that events and tracks use.
fn learn_texts(model: &mut Model, definitions: &Definitions) {
    let mut used: Vec<TextId> = Vec::new();
    for lanes in [&model.operators, &model.ranges, &model.kernels, &model.calls] {
        used.extend(lanes.names());
    }
    used.extend(model.instants.iter().flat_map(|instants| instants.name.iter().copied()));
    for names in model.events.name.chunks(1 << 16) {
        let mut some = names.to_vec();
        some.sort_unstable();
        some.dedup();
        used.extend(some);
        used.sort_unstable();
        used.dedup();
    }
    model.texts.learn(used, definitions);
}

impl EventSink for Builder<'_> {
    #[inline]
    fn take(&mut self, event: TimelineEvent) {
        if self.model.first_ns == 0 {
            self.model.first_ns = event.timestamp_ns;
        }
        self.model.last_ns = event.timestamp_ns;
        let (ended, step) = self.situation.update(&event, self.names);
        match &event.kind {
            EventKind::Malloc(block) => self.malloc(&event, block),
            EventKind::Free(block) => self.free(&event, block, ended),
            EventKind::Access { .. } => self.access(&event),
            EventKind::Operator { framework, begins, name, .. } => {
                self.operator(&event, *begins, *name, *framework as u8);
            }
            EventKind::Kernel { .. } => self.kernel(&event),
            _ => self.other(&event),
        }
        if let Some(change) = step {
            self.step(event.timestamp_ns, &change);
        }
        self.until_report -= 1;
        if self.until_report == 0 {
            self.until_report = REPORT_INTERVAL;
            (self.report)(&self.coarse, event.timestamp_ns);
        }
    }
}
