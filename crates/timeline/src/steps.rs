//! Which step an event belongs to.
//!
//! Steps come from mstx ranges named exactly `step start` or from the API call `step()`, whichever
//! the job used first; the other one is counted and otherwise ignored. Ranges: a step lasts from such
//! a range to the end of that very range; other ranges and `step start` ranges nested inside an open
//! step of the same device never count. Steps are numbered over all devices of the process. API: the
//! call ends step n and begins step n + 1.
//!
//! Where nobody marks steps they come from what the job shows by itself: a loop that goes around, such as the steps of
//! an optimizer. Each turn ends a step, as a call of the API does.

use msmemscope_event::{Device, Fact, LoopKind};

use crate::source::{FactSource, FactStream};

/// Message of a range that is a step.
pub const STEP_RANGE_MESSAGE: &[u8] = b"step start";

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
        /// Which of its kind.
        loop_id: u64,
    },
}

impl StepSource {
    /// Number of the step in which the recording began, if that is a step at all.
    pub fn first_number(self) -> Option<u64> {
        match self {
            StepSource::Ranges => None,
            StepSource::Api { first_number } => Some(first_number),
            StepSource::Loop { .. } => Some(1),
        }
    }
}

/// How often a loop turned.
#[derive(Clone, Copy, Debug)]
struct LoopTurns {
    kind: LoopKind,
    loop_id: u64,
    turns: u64,
}

/// A loop that turned this much more often than another one of its kind is a loop inside it, and something that
/// turned more rarely yet is no loop at all.
const INNER_TURNS_LIMIT: u64 = 32;

/// Loops that are told apart; no job has nearly as many.
const LOOPS_LIMIT: usize = 256;

/// The loop whose turns are steps; `loops` in the order in which they were first seen.
fn step_loop(loops: &[LoopTurns]) -> Option<StepSource> {
    let of_kind = |kind: LoopKind, least_turns: u64| {
        loops.iter().filter(move |turned| turned.kind == kind && turned.turns >= least_turns)
    };
    // With several optimizers a round ends with the one that steps least often, and of equals with the last.
    let outer = |kind: LoopKind| {
        let most = of_kind(kind, 2).map(|turned| turned.turns).max()?;
        of_kind(kind, most.div_ceil(INNER_TURNS_LIMIT).max(2)).rev().min_by_key(|turned| turned.turns)
    };
    let chosen = outer(LoopKind::ProfilerStep)
        .or_else(|| outer(LoopKind::OptimizerStep))
        .or_else(|| of_kind(LoopKind::ModuleCall, 3).rev().max_by_key(|turned| turned.turns))?;
    Some(StepSource::Loop { kind: chosen.kind, loop_id: chosen.loop_id })
}

/// Looks for the first fact about steps, and only where there is none, for a loop. Reads only as far as needed.
pub fn detect_step_source<S: FactSource>(source: &S) -> Option<StepSource> {
    if !source.mentions_steps() {
        return None;
    }
    let mut facts = source.facts();
    let mut loops: Vec<LoopTurns> = Vec::new();
    while let Some(record) = facts.next() {
        match record.fact {
            Fact::Step { number, .. } => return Some(StepSource::Api { first_number: number }),
            Fact::RangeBegin { message: STEP_RANGE_MESSAGE, domain, .. }
                if is_default_domain(source.definitions().string_bytes(domain)) =>
            {
                return Some(StepSource::Ranges);
            }
            Fact::LoopTurn { kind, loop_id, .. } => {
                match loops.iter().position(|turned| turned.kind == kind && turned.loop_id == loop_id) {
                    Some(known) => loops[known].turns += 1,
                    None if loops.len() < LOOPS_LIMIT => loops.push(LoopTurns { kind, loop_id, turns: 1 }),
                    None => {}
                }
            }
            _ => {}
        }
    }
    step_loop(&loops)
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
        Self { source: known_source, current, ..Self::default() }
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
        if self.source != Some(StepSource::Loop { kind, loop_id }) {
            return None;
        }
        let number = self.current;
        self.ended += 1;
        self.current += 1;
        Some(number)
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

    fn turns(kind: LoopKind, loop_id: u64, turns: u64) -> LoopTurns {
        LoopTurns { kind, loop_id, turns }
    }

    #[test]
    fn a_loop_gives_the_steps_that_nobody_marked() {
        use LoopKind::{ModuleCall, OptimizerStep, ProfilerStep};
        let chosen = |loops: &[LoopTurns]| match step_loop(loops) {
            Some(StepSource::Loop { kind, loop_id }) => Some((kind, loop_id)),
            _ => None,
        };
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[turns(OptimizerStep, 1, 1), turns(ModuleCall, 1, 2)]), None, "once is no loop");
        assert_eq!(chosen(&[turns(ModuleCall, 1, 9), turns(OptimizerStep, 1, 3)]), Some((OptimizerStep, 1)));
        assert_eq!(chosen(&[turns(OptimizerStep, 1, 9), turns(ProfilerStep, 1, 3)]), Some((ProfilerStep, 1)));
        // Five steps of a discriminator per step of a generator, and as many of each.
        assert_eq!(chosen(&[turns(OptimizerStep, 1, 50), turns(OptimizerStep, 2, 10)]), Some((OptimizerStep, 2)));
        assert_eq!(chosen(&[turns(OptimizerStep, 1, 10), turns(OptimizerStep, 2, 10)]), Some((OptimizerStep, 2)));
        // A warm-up is no loop around the training.
        assert_eq!(chosen(&[turns(OptimizerStep, 1, 2), turns(OptimizerStep, 2, 1000)]), Some((OptimizerStep, 2)));
        assert_eq!(chosen(&[turns(ModuleCall, 1, 3), turns(ModuleCall, 2, 40)]), Some((ModuleCall, 2)));
    }

    #[test]
    fn only_turns_of_the_chosen_loop_end_steps() {
        let source = StepSource::Loop { kind: LoopKind::OptimizerStep, loop_id: 2 };
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
