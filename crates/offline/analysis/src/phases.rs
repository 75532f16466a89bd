//! Phases: how much memory there was before and after parts of a job, where snapshots were taken at both.
//!
//! Pairs are known by their names: `load Start` and `load End` of the user's own, `module@class@function@Start` and `@End`
//! of hooks of frameworks. Parts that come again are one phase, from the first time to the last.

use msmemscope_config::AnalysisSet;
use msmemscope_event::{Device, SnapshotNumbers};
use msmemscope_timeline::{EventKind, TimelineEvent};
use serde::Serialize;

use crate::device_text::device_text;
use crate::question::{About, End, Question, Questions, View};

/// How names of snapshots end.
const ENDINGS: [(&str, &str); 2] = [(" Start", " End"), ("@Start", "@End")];
/// Phases that are told apart; nobody reads more.
const MOST_PHASES: usize = 1000;

/// Memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseMemory {
    /// Bytes that the framework's allocator has given out.
    pub allocated_bytes: u64,
    /// Bytes that it holds.
    pub reserved_bytes: u64,
    /// Bytes of the card that are in use, by anybody.
    pub card_bytes: u64,
}

impl PhaseMemory {
    fn of(numbers: &SnapshotNumbers) -> Self {
        Self {
            allocated_bytes: numbers.allocated_bytes,
            reserved_bytes: numbers.reserved_bytes,
            card_bytes: numbers.total_bytes.saturating_sub(numbers.free_bytes),
        }
    }
}

/// A part of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// Its name, as given.
    pub name: String,
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// How often it came.
    pub times: u64,
    /// Before it came first.
    pub before: PhaseMemory,
    /// After it came last.
    pub after: PhaseMemory,
    /// How much more was allocated after it than before it, all times together.
    pub change_bytes: i64,
    /// The largest amount that was allocated by the end of it, as the framework tells it since its start.
    pub peak_allocated_bytes: u64,
    /// How long it took in all.
    pub took_ns: u64,
    /// Whether the last one has not ended.
    pub is_open: bool,
}

#[derive(Debug)]
struct OpenPhase {
    name: String,
    device: Device,
    before: PhaseMemory,
    started_ns: u64,
}

/// Follows snapshots.
#[derive(Debug, Default)]
pub struct Phases {
    open: Vec<OpenPhase>,
    phases: Vec<Phase>,
}

impl Phases {
    fn snapshot(&mut self, name: &str, device: Device, numbers: &SnapshotNumbers, time_ns: u64) {
        for (start, end) in ENDINGS {
            if let Some(name) = name.strip_suffix(start) {
                self.starts(name, device, numbers, time_ns);
            } else if let Some(name) = name.strip_suffix(end) {
                self.ends(name, device, numbers, time_ns);
            }
        }
    }

    fn starts(&mut self, name: &str, device: Device, numbers: &SnapshotNumbers, started_ns: u64) {
        if self.open.len() < MOST_PHASES {
            let before = PhaseMemory::of(numbers);
            self.open.push(OpenPhase { name: name.to_owned(), device, before, started_ns });
        }
        let is_known = self.phases.iter().any(|phase| phase.name == name && phase.device == device);
        if !is_known && self.phases.len() < MOST_PHASES {
            let before = PhaseMemory::of(numbers);
            self.phases.push(Phase {
                name: name.to_owned(),
                device,
                times: 0,
                before,
                after: before,
                change_bytes: 0,
                peak_allocated_bytes: 0,
                took_ns: 0,
                is_open: false,
            });
        }
    }

    fn ends(&mut self, name: &str, device: Device, numbers: &SnapshotNumbers, time_ns: u64) {
        let Some(position) = self.open.iter().rposition(|open| open.name == name && open.device == device) else {
            return;
        };
        let open = self.open.remove(position);
        if let Some(phase) = self.phases.iter_mut().find(|phase| phase.name == name && phase.device == device) {
            phase.times += 1;
            phase.after = PhaseMemory::of(numbers);
            phase.change_bytes += phase.after.allocated_bytes as i64 - open.before.allocated_bytes as i64;
            phase.peak_allocated_bytes = phase.peak_allocated_bytes.max(numbers.maximum_allocated_bytes);
            phase.took_ns += time_ns.saturating_sub(open.started_ns);
        }
    }
}

impl Question for Phases {
    type Finding = Vec<Phase>;

    const ANALYSIS: AnalysisSet = AnalysisSet::LEAKS;

    fn ask(questions: &mut Questions) -> bool {
        questions.phases = true;
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.phases.then(Self::default)
    }

    fn event(&mut self, event: &TimelineEvent, view: View<'_>) {
        if let EventKind::Snapshot { name, numbers, .. } = &event.kind {
            self.snapshot(&view.names.text(*name), event.device, numbers, event.timestamp_ns);
        }
    }

    fn finish(mut self, _view: View<'_>, _end: &mut End<'_>) -> Option<Vec<Phase>> {
        for open in &self.open {
            let of_it = |phase: &&mut Phase| phase.name == open.name && phase.device == open.device;
            if let Some(phase) = self.phases.iter_mut().find(of_it) {
                phase.is_open = true;
            }
        }
        (!self.phases.is_empty()).then_some(self.phases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(allocated_bytes: u64) -> SnapshotNumbers {
        SnapshotNumbers {
            reserved_bytes: allocated_bytes + 100,
            maximum_reserved_bytes: allocated_bytes + 100,
            allocated_bytes,
            maximum_allocated_bytes: allocated_bytes + 50,
            total_bytes: 10_000,
            free_bytes: 4_000,
        }
    }

    #[test]
    fn pairs_are_found_whatever_lies_inside_them() {
        let (npu, other) = (Device::Npu(0), Device::Npu(1));
        let mut phases = Phases::default();
        let mut snapshot =
            |name: &str, device, allocated, time| phases.snapshot(name, device, &numbers(allocated), time);
        snapshot("m@Runner@load@Start", npu, 0, 10);
        snapshot("weights Start", npu, 5, 20);
        snapshot("weights Start", other, 7, 20);
        snapshot("Memory Snapshot", npu, 6, 25);
        snapshot("weights End", npu, 905, 30);
        snapshot("m@Runner@load@End", npu, 1_000, 50);
        snapshot("weights Start", npu, 1_000, 60);
        snapshot("weights End", npu, 1_900, 65);
        snapshot("never begun End", npu, 1, 70);
        let phases: Vec<_> = phases
            .phases
            .iter()
            .map(|phase| (&phase.name[..], phase.device, phase.times, phase.before, phase.after, phase.took_ns))
            .map(|(name, device, times, before, after, took_ns)| {
                (name, device, times, before.allocated_bytes, after.allocated_bytes, took_ns)
            })
            .collect();
        let expected = [
            ("m@Runner@load", npu, 1, 0, 1_000, 40),
            ("weights", npu, 2, 5, 1_900, 15),
            ("weights", other, 0, 7, 7, 0),
        ];
        assert_eq!(phases, expected);
    }
}
