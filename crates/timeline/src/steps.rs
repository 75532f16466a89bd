//! Which step an event belongs to.
//!
//! Steps come from mstx ranges named exactly `step start` or from the API call `step()`, whichever
//! the job used first; the other one is counted and otherwise ignored. Ranges: a step lasts from such
//! a range to the end of that very range; other ranges and `step start` ranges nested inside an open
//! step of the same device never count. Steps are numbered over all devices of the process. API: the
//! call ends step n and begins step n + 1.

use msmemscope_event::{Device, Fact};

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
}

/// Looks for the first fact about steps. Reads only as far as needed.
pub fn detect_step_source<S: FactSource>(source: &S) -> Option<StepSource> {
    if !source.mentions_steps() {
        return None;
    }
    let mut facts = source.facts();
    while let Some(record) = facts.next() {
        match record.fact {
            Fact::Step { number, .. } => return Some(StepSource::Api { first_number: number }),
            Fact::RangeBegin { message: STEP_RANGE_MESSAGE, domain, .. }
                if is_default_domain(source.definitions().string_bytes(domain)) =>
            {
                return Some(StepSource::Ranges);
            }
            _ => {}
        }
    }
    None
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
        let current = match known_source {
            Some(StepSource::Api { first_number }) => first_number,
            _ => 0,
        };
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
        if *source == StepSource::Ranges {
            self.of_other_source += 1;
            return self.step_of(device);
        }
        self.ended += 1;
        self.current = number.saturating_add(1);
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

    #[test]
    fn the_api_counts_from_the_begin_of_the_recording_if_known() {
        let mut steps = StepTracker::new(Some(StepSource::Api { first_number: 1 }));
        assert_eq!((steps.step_of(FIRST), steps.latest()), (1, 0));
        steps.step_ended(FIRST, 1);
        assert_eq!((steps.step_of(Device::Unknown), steps.latest()), (2, 2));
    }
}
