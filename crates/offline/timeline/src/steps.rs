//! Which step an event belongs to.
//!
//! Steps come from mstx ranges named exactly `step start` or from the API call `step()`, whichever
//! the job used first; the other one is counted and otherwise ignored. Ranges: a step lasts from such
//! a range to the end of that very range; other ranges and `step start` ranges nested inside an open
//! step of the same device never count. Steps are numbered over all devices of the process. API: the
//! call ends step n and begins step n + 1.
//!
//! Where nobody marks steps they come from what the job shows by itself: a loop that goes around, such as the steps of
//! an optimizer. Each turn ends a step, as a call of the API does. Where no loop shows itself either, operators that come
//! again and again tell of one (see [`crate::operator_pattern`]).

use msmemscope_event::{AutogradPhase, Device, Fact, LoopKind, STEP_RANGE_MESSAGE, StringId};

use crate::operator_pattern::{OperatorPattern, OperatorSequences, RoundTracker};
use crate::source::{FactSource, FactStream};

/// Who tells where steps begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepSource {
    /// mstx ranges.
    Ranges,
    /// The API.
    Api {
        /// Number of the step that ended first, which is the one in which the recording began.
        first_number: u64,
    },
    /// A loop of the job, because nobody marked steps.
    Loop {
        /// What turns.
        kind: LoopKind,
        /// Which of its kind: several where one follows the other, as optimizers that are made anew do.
        loops: LoopSet,
    },
    /// Operators that come again and again, because nothing else shows a loop.
    Operators(OperatorPattern),
}

impl StepSource {
    /// Number of the step in which the recording began, if that is a step at all.
    pub fn first_number(self) -> Option<u64> {
        match self {
            StepSource::Ranges => None,
            StepSource::Api { first_number } => Some(first_number),
            StepSource::Loop { .. } | StepSource::Operators(_) => Some(1),
        }
    }
}

/// Loops that are told apart; few jobs have nearly as many.
const LOOPS_LIMIT: usize = 256;

/// Loops of one kind, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopSet {
    members: [u64; LOOPS_LIMIT / 64],
    /// All loops from this number on belong to it as well: each of them follows another one.
    later_from: Option<u64>,
}

impl LoopSet {
    /// One loop.
    pub fn of(loop_id: u64) -> Self {
        let mut loops = Self::default();
        loops.add(loop_id);
        loops
    }

    fn add(&mut self, loop_id: u64) {
        match self.members.get_mut((loop_id / 64) as usize) {
            Some(word) => *word |= 1 << (loop_id % 64),
            None => self.later_from = Some(self.later_from.unwrap_or(loop_id).min(loop_id)),
        }
    }

    fn contains(&self, loop_id: u64) -> bool {
        let word = self.members.get((loop_id / 64) as usize).copied().unwrap_or(0);
        word & (1 << (loop_id % 64)) != 0 || self.later_from.is_some_and(|from| loop_id >= from)
    }
}

/// How often a loop turned.
#[derive(Clone, Copy, Debug)]
struct LoopTurns {
    kind: LoopKind,
    loop_id: u64,
    turns: u64,
    /// When it turned for the first and for the last time, counted in turns of all loops.
    first_turn: u64,
    last_turn: u64,
}

/// A loop that turned this much more often than another one of its kind is a loop inside it, and something that
/// turned more rarely yet is no loop at all.
const INNER_TURNS_LIMIT: u64 = 32;

/// The loop whose turns are steps; `loops` in the order in which they were first seen, and whether there are more of them.
fn step_loop(loops: &[LoopTurns], are_more: bool) -> Option<StepSource> {
    let of_kind = |kind: LoopKind| loops.iter().filter(move |turned| turned.kind == kind);
    let outer = |kind: LoopKind| {
        let of_kind: Vec<LoopTurns> = of_kind(kind).copied().collect();
        // Each time has a loop of its own, such as the optimizer that was made for it.
        let chosen: Vec<LoopTurns> = times_apart(&of_kind).filter_map(outermost).collect();
        let mut loops = LoopSet::default();
        chosen.iter().for_each(|turned| loops.add(turned.loop_id));
        if let Some(last) = chosen.last().filter(|_| are_more && chosen.len() == of_kind.len()) {
            loops.later_from = Some(last.loop_id + 1);
        }
        let turns: u64 = chosen.iter().map(|turned| turned.turns).sum();
        (turns >= 2).then_some(StepSource::Loop { kind, loops })
    };
    let by_whom = [LoopKind::ProfilerStep, LoopKind::FrameworkStep, LoopKind::OptimizerStep];
    by_whom.into_iter().find_map(outer).or_else(|| {
        let calls = of_kind(LoopKind::ModuleCall).filter(|turned| turned.turns >= 3);
        let chosen = calls.rev().max_by_key(|turned| turned.turns)?;
        Some(StepSource::Loop { kind: chosen.kind, loops: LoopSet::of(chosen.loop_id) })
    })
}

/// Loops that turned in the same time, time after time.
fn times_apart(loops: &[LoopTurns]) -> impl Iterator<Item = &[LoopTurns]> {
    let mut latest_turn = 0;
    let mut starts: Vec<usize> = Vec::new();
    for (index, turned) in loops.iter().enumerate() {
        if turned.first_turn > latest_turn || index == 0 {
            starts.push(index);
        }
        latest_turn = latest_turn.max(turned.last_turn);
    }
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([loops.len()]).collect();
    starts.into_iter().zip(ends).map(move |(start, end)| &loops[start..end])
}

/// With several optimizers a round ends with the one that steps least often, and of equals with the last.
fn outermost(loops: &[LoopTurns]) -> Option<LoopTurns> {
    let most = loops.iter().map(|turned| turned.turns).max()?;
    let fewest = most.div_ceil(INNER_TURNS_LIMIT).max(most.min(2));
    loops.iter().filter(|turned| turned.turns >= fewest).rev().min_by_key(|turned| turned.turns).copied()
}

/// Looks for the first fact about steps, and only where there is none, for a loop. Reads only as far as needed.
pub fn detect_step_source<S: FactSource>(source: &S) -> Option<StepSource> {
    if !source.mentions_steps() {
        return None;
    }
    let mut facts = source.facts();
    let (mut loops, mut are_more, mut all_turns): (Vec<LoopTurns>, bool, u64) = (Vec::new(), false, 0);
    let (mut operators, mut backward_passes) = (OperatorSequences::default(), 0);
    while let Some(record) = facts.next() {
        match record.fact {
            Fact::Step { number, .. } => return Some(StepSource::Api { first_number: number }),
            Fact::RangeBegin { message: STEP_RANGE_MESSAGE, domain, .. }
                if is_default_domain(source.definitions().string_bytes(domain)) =>
            {
                return Some(StepSource::Ranges);
            }
            Fact::LoopTurn { kind, loop_id, .. } => {
                all_turns += 1;
                match loops.iter().position(|turned| turned.kind == kind && turned.loop_id == loop_id) {
                    Some(known) => {
                        loops[known].turns += 1;
                        loops[known].last_turn = all_turns;
                    }
                    None if loops.len() < LOOPS_LIMIT => {
                        loops.push(LoopTurns { kind, loop_id, turns: 1, first_turn: all_turns, last_turn: all_turns });
                    }
                    None => are_more = true,
                }
            }
            Fact::OperatorBegin { name, device: Device::Npu(_), .. } => operators.operator(record.thread_id, name),
            Fact::ModuleBegin { .. } => operators.module_begins(record.thread_id),
            Fact::ModuleEnd { .. } => operators.module_ends(record.thread_id),
            Fact::Autograd { phase: AutogradPhase::Backward, .. } => backward_passes += 1,
            _ => {}
        }
    }
    step_loop(&loops, are_more).or_else(|| {
        if !source.shows_module_calls() {
            return None;
        }
        // What turns more often than the job trains is a loop inside the step, such as the one over layers.
        let most_rounds = if backward_passes > 0 { backward_passes } else { u64::MAX };
        operators.pattern(most_rounds, |name| source.definitions().string_bytes(name)).map(StepSource::Operators)
    })
}

/// Ranges of a named domain belong to some library, not to the user's training loop.
pub(crate) fn is_default_domain(name: Option<&[u8]>) -> bool {
    matches!(name, None | Some(b"") | Some(b"default"))
}

#[derive(Clone, Copy, Debug)]
struct OpenStep {
    device: Device,
    range_id: u64,
    number: u64,
}

/// Follows the steps of a process.
#[derive(Debug, Default)]
pub(crate) struct StepTracker {
    source: Option<StepSource>,
    /// Where rounds start, if operators tell.
    rounds: Option<RoundTracker>,
    /// Steps begun by ranges so far.
    begun: u64,
    /// Open steps of ranges, oldest first.
    open: Vec<OpenStep>,
    /// Devices that ever had a step of their own.
    devices: Vec<Device>,
    /// Current step of the API.
    current: u64,
    /// Steps the API ended.
    ended: u64,
    nested: u64,
    of_other_source: u64,
}

impl StepTracker {
    pub(crate) fn new(known_source: Option<StepSource>) -> Self {
        let current = known_source.and_then(StepSource::first_number).unwrap_or(0);
        let rounds = match known_source {
            Some(StepSource::Operators(pattern)) => Some(RoundTracker::new(pattern)),
            _ => None,
        };
        Self { source: known_source, rounds, current, ..Self::default() }
    }

    /// A range named `step start` begins.
    pub(crate) fn range_begins(&mut self, device: Device, range_id: u64) {
        if *self.source.get_or_insert(StepSource::Ranges) != StepSource::Ranges {
            self.of_other_source += 1;
            return;
        }
        if self.open.iter().any(|step| step.device == device) {
            self.nested += 1;
            return;
        }
        self.begun += 1;
        self.open.push(OpenStep { device, range_id, number: self.begun });
        if !self.devices.contains(&device) {
            self.devices.push(device);
        }
    }

    /// Some range ends.
    #[inline]
    pub(crate) fn range_ends(&mut self, range_id: u64) {
        self.open.retain(|step| step.range_id != range_id);
    }

    /// The step that a range is, if it is an open one.
    pub(crate) fn step_of_range(&self, range_id: u64) -> Option<u64> {
        self.open.iter().find(|step| step.range_id == range_id).map(|step| step.number)
    }

    /// The API ended a step. Returns the step in which the call was made.
    pub(crate) fn step_ended(&mut self, device: Device, number: u64) -> u64 {
        let source = self.source.get_or_insert(StepSource::Api { first_number: number });
        if !matches!(source, StepSource::Api { .. }) {
            self.of_other_source += 1;
            return self.step_of(device);
        }
        self.ended += 1;
        self.current = number.saturating_add(1);
        number
    }

    /// A loop turned. Gives the step that ended by it, if its turns are steps.
    pub(crate) fn loop_turned(&mut self, kind: LoopKind, loop_id: u64) -> Option<u64> {
        match self.source {
            Some(StepSource::Loop { kind: of, loops }) if of == kind && loops.contains(loop_id) => Some(self.turned()),
            _ => None,
        }
    }

    /// An operator begins. Gives the step that ended by it, if a round of the job's operators starts with it.
    #[inline]
    pub(crate) fn operator_begins(&mut self, thread_id: u32, name: StringId) -> Option<u64> {
        let starts_round = self.rounds.as_mut()?.starts_round(thread_id, name);
        starts_round.then(|| self.turned())
    }

    fn turned(&mut self) -> u64 {
        let number = self.current;
        self.ended += 1;
        self.current += 1;
        number
    }

    /// The step of an event on a device: the device's own, or the latest one of the process if the
    /// device never had any.
    #[inline]
    pub(crate) fn step_of(&self, device: Device) -> u64 {
        if self.open.is_empty() {
            return self.current;
        }
        let step = match self.devices.contains(&device) {
            true => self.open.iter().find(|step| step.device == device),
            false => self.open.last(),
        };
        step.map_or(0, |step| step.number)
    }

    /// The highest number of a step so far; zero without steps.
    pub(crate) fn latest(&self) -> u64 {
        if self.ended > 0 { self.current } else { self.begun }
    }

    /// Steps, nested ones, and those of the other source.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.begun + self.ended, self.nested, self.of_other_source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Device = Device::Npu(0);
    const SECOND: Device = Device::Npu(1);

    #[test]
    fn only_the_end_of_the_very_range_ends_a_step() {
        let mut steps = StepTracker::new(None);
        assert_eq!(steps.step_of(FIRST), 0);
        steps.range_begins(FIRST, 10);
        steps.range_ends(11);
        assert_eq!(steps.step_of(FIRST), 1);
        steps.range_ends(10);
        assert_eq!(steps.step_of(FIRST), 0);
        steps.range_begins(FIRST, 12);
        assert_eq!((steps.step_of(FIRST), steps.latest()), (2, 2));
    }

    #[test]
    fn nested_steps_do_not_count() {
        let mut steps = StepTracker::new(None);
        steps.range_begins(FIRST, 1);
        steps.range_begins(FIRST, 2);
        steps.range_ends(2);
        assert_eq!(steps.step_of(FIRST), 1);
        steps.range_ends(1);
        assert_eq!(steps.step_of(FIRST), 0);
        assert_eq!(steps.counts(), (1, 1, 0));
    }

    #[test]
    fn devices_have_their_own_steps_numbered_together() {
        let mut steps = StepTracker::new(None);
        steps.range_begins(FIRST, 1);
        steps.range_begins(SECOND, 2);
        assert_eq!((steps.step_of(FIRST), steps.step_of(SECOND)), (1, 2));
        assert_eq!(steps.step_of(Device::Host), 2, "a device without steps follows the latest one");
        steps.range_ends(2);
        assert_eq!((steps.step_of(FIRST), steps.step_of(SECOND)), (1, 0));
        assert_eq!(steps.step_of(Device::Host), 1);
    }

    #[test]
    fn the_first_source_wins() {
        let mut steps = StepTracker::new(None);
        steps.step_ended(FIRST, 1);
        steps.range_begins(FIRST, 1);
        assert_eq!(steps.step_of(FIRST), 2);
        assert_eq!(steps.counts(), (1, 0, 1));

        let mut steps = StepTracker::new(None);
        steps.range_begins(FIRST, 1);
        steps.step_ended(FIRST, 1);
        assert_eq!(steps.step_of(FIRST), 1);
        assert_eq!(steps.counts(), (1, 0, 1));
    }

    /// Loops of which each turned in a time: first and last turn.
    fn turns(kind: LoopKind, loop_id: u64, turns: u64, (first_turn, last_turn): (u64, u64)) -> LoopTurns {
        LoopTurns { kind, loop_id, turns, first_turn, last_turn }
    }

    #[test]
    fn a_loop_gives_the_steps_that_nobody_marked() {
        use LoopKind::{ModuleCall, OptimizerStep, ProfilerStep};
        let (early, late, always) = ((1, 49), (50, 2000), (1, 2000));
        let chosen = |loops: &[LoopTurns]| -> Option<(LoopKind, Vec<u64>)> {
            match step_loop(loops, false) {
                Some(StepSource::Loop { kind, loops }) => {
                    Some((kind, (0..9).filter(|id| loops.contains(*id)).collect()))
                }
                _ => None,
            }
        };
        let only = |kind, loop_id| Some((kind, vec![loop_id]));
        assert_eq!(chosen(&[]), None);
        let once = [turns(OptimizerStep, 1, 1, always), turns(ModuleCall, 1, 2, always)];
        assert_eq!(chosen(&once), None, "once is no loop");
        let trains = [turns(ModuleCall, 1, 9, always), turns(OptimizerStep, 1, 3, always)];
        assert_eq!(chosen(&trains), only(OptimizerStep, 1));
        let profiled = [turns(OptimizerStep, 1, 9, always), turns(ProfilerStep, 1, 3, always)];
        assert_eq!(chosen(&profiled), only(ProfilerStep, 1));
        // Five steps of a discriminator per step of a generator, and as many of each.
        for often in [50, 10] {
            let both = [turns(OptimizerStep, 1, often, always), turns(OptimizerStep, 2, 10, always)];
            assert_eq!(chosen(&both), only(OptimizerStep, 2));
        }
        // A few steps of something else in between are no loop around the training.
        let rare = [turns(OptimizerStep, 1, 2, always), turns(OptimizerStep, 2, 1000, always)];
        assert_eq!(chosen(&rare), only(OptimizerStep, 2));
        let calls = [turns(ModuleCall, 1, 3, early), turns(ModuleCall, 2, 40, late)];
        assert_eq!(chosen(&calls), only(ModuleCall, 2));
    }

    #[test]
    fn optimizers_that_follow_each_other_are_one_loop() {
        use LoopKind::OptimizerStep;
        let chosen = |loops: &[LoopTurns]| -> Vec<u64> {
            match step_loop(loops, loops.len() > 100) {
                Some(StepSource::Loop { loops, .. }) => (0..600).filter(|id| loops.contains(*id)).collect(),
                _ => Vec::new(),
            }
        };
        let restarted = [turns(OptimizerStep, 1, 4, (1, 4)), turns(OptimizerStep, 2, 10, (5, 14))];
        assert_eq!(chosen(&restarted), [1, 2]);
        // Pairs that take turns, twice.
        let pairs: Vec<LoopTurns> = (1..=4)
            .map(|id| turns(OptimizerStep, id, 10, ((id - 1) / 2 * 20 + id, (id - 1) / 2 * 20 + 16 + id)))
            .collect();
        assert_eq!(chosen(&pairs), [2, 4]);
        // One per step, more of them than are told apart.
        let many: Vec<LoopTurns> = (1..=200).map(|id| turns(OptimizerStep, id, 1, (id, id))).collect();
        assert_eq!(chosen(&many), (1..600).collect::<Vec<_>>());
    }

    #[test]
    fn only_turns_of_the_chosen_loop_end_steps() {
        let source = StepSource::Loop { kind: LoopKind::OptimizerStep, loops: LoopSet::of(2) };
        let mut steps = StepTracker::new(Some(source));
        assert_eq!(steps.step_of(FIRST), 1);
        assert_eq!(steps.loop_turned(LoopKind::OptimizerStep, 1), None);
        assert_eq!(steps.loop_turned(LoopKind::OptimizerStep, 2), Some(1));
        assert_eq!((steps.step_of(FIRST), steps.latest(), steps.counts()), (2, 2, (1, 0, 0)));
        assert_eq!(StepTracker::new(None).loop_turned(LoopKind::OptimizerStep, 2), None);
    }

    #[test]
    fn the_api_counts_from_the_begin_of_the_recording_if_known() {
        let mut steps = StepTracker::new(Some(StepSource::Api { first_number: 1 }));
        assert_eq!((steps.step_of(FIRST), steps.latest()), (1, 0));
        steps.step_ended(FIRST, 1);
        assert_eq!((steps.step_of(Device::Unknown), steps.latest()), (2, 2));
    }
}
