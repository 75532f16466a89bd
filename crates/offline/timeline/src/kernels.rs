//! Which kernel a card has started or finished.
//!
//! The host knows the name of a kernel when it launches it; the card only says that it starts or has finished a task of a
//! stream. Both have the number of the task, which is used again after 65,536 tasks of the stream, long after the task
//! that had it before has ended. So a start belongs to the latest launch of that number.
//!
//! A card may start a task before the host has written down that it was launched, long before on a busy machine. Starts
//! without a launch are therefore kept. Most of them are copies and events, which have no launch, and whose numbers come
//! again as well; how many tasks of the stream have come since tells a late launch from one of the next round.

use msmemscope_event::{Device, StringId};
use rustc_hash::FxHashMap;

/// What a start says of the stream on cards that number tasks for all streams together.
const UNKNOWN_STREAM: u32 = u32::MAX;
/// What was this many tasks of its stream ago belongs to an earlier round of their numbers.
const HALF_A_ROUND: u64 = 1 << 15;
/// Starts without a launch are forgotten when there are more.
const MOST_EARLY: usize = 1 << 14;
/// Launches whose end never comes are forgotten when there are more.
const MOST_LAUNCHED: usize = 1 << 20;

/// A task that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Task {
    device: Device,
    stream_id: u32,
    task_id: u32,
}

impl Task {
    fn stream(self) -> (Device, u32) {
        (self.device, self.stream_id)
    }
}

/// Tasks of a stream so far.
#[derive(Clone, Copy, Default)]
struct Counts {
    launched: u64,
    started: u64,
}

#[derive(Clone, Copy)]
struct Launched {
    kernel: Kernel,
    time: u64,
    has_started: bool,
    /// Its place among the launches of its stream.
    place: u64,
}

/// A kernel of a graph.
#[derive(Clone, Copy)]
struct Captured {
    kernel: Kernel,
    /// How many launches its stream had by then.
    place: u64,
}

/// A kernel as its launch describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name.
    pub name: StringId,
    /// Stream.
    pub stream_id: u32,
    /// Number of the task, with the times it has wrapped around.
    pub task_number: u32,
    /// Whether it was captured, so that it runs whenever its graph does.
    pub is_of_graph: bool,
}

impl Kernel {
    /// Number of the task as everybody prints it.
    pub fn task_id(&self) -> u32 {
        self.task_number & 0xffff
    }
}

/// When a task started and ended on its card, and which thread has read that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// When it started.
    pub start: u64,
    /// When it ended, if that is known.
    pub end: Option<u64>,
    /// The thread that wrote it down.
    pub thread_id: u32,
}

#[derive(Clone, Copy)]
struct EarlyStart {
    early: Early,
    /// Its place among the starts of its stream.
    place: u64,
}

/// Launches whose start or end is to come, and starts whose launch is.
#[derive(Default)]
pub struct KernelTracker {
    launched: FxHashMap<Task, Launched>,
    early: FxHashMap<Task, EarlyStart>,
    /// Kernels of graphs, which start and end whenever their graph is run, without a launch.
    captured: FxHashMap<Task, Captured>,
    counts: FxHashMap<(Device, u32), Counts>,
    /// Whether cards number tasks for all their streams together.
    numbers_by_card: bool,
}

/// The median; there is at least one.
fn median(mut times: Vec<u64>) -> u64 {
    let middle = times.len() / 2;
    *times.select_nth_unstable(middle).1
}

impl KernelTracker {
    fn task(&self, device: Device, stream_id: u32, task_number: u32) -> Task {
        match self.numbers_by_card {
            true => Task { device, stream_id: UNKNOWN_STREAM, task_id: task_number },
            false => Task { device, stream_id, task_id: task_number & 0xffff },
        }
    }

    /// Whether a task at a place is of the same round of numbers as the latest. Cards that number all tasks together do
    /// not begin again.
    fn is_of_this_round(&self, place: u64, latest: u64) -> bool {
        self.numbers_by_card || latest - place < HALF_A_ROUND
    }

    /// The first record of a card that does not say the stream shows how tasks are numbered.
    fn note_stream(&mut self, stream_id: u32) {
        if stream_id != UNKNOWN_STREAM || self.numbers_by_card {
            return;
        }
        self.numbers_by_card = true;
        let anew = |task: Task, kernel: &Kernel| self.task(task.device, kernel.stream_id, kernel.task_number);
        let launched = self.launched.iter().map(|(task, launch)| (anew(*task, &launch.kernel), *launch)).collect();
        let captured = self.captured.iter().map(|(task, known)| (anew(*task, &known.kernel), *known)).collect();
        (self.launched, self.captured) = (launched, captured);
    }

    /// A kernel that was launched is part of a graph.
    pub fn captured(&mut self, device: Device, kernel: Kernel) {
        let task = self.task(device, kernel.stream_id, kernel.task_number);
        let kernel = Kernel { is_of_graph: true, ..kernel };
        // That its card starts it is not what follows its launch.
        self.launched.remove(&task);
        if self.captured.len() >= MOST_LAUNCHED {
            self.captured.clear();
        }
        let place = self.counts.entry(task.stream()).or_default().launched;
        self.captured.insert(task, Captured { kernel, place });
    }

    /// The kernel of a graph that has a number, unless that has come around since.
    fn of_graph(&self, task: Task) -> Option<Kernel> {
        let launch = self.captured.get(&task)?;
        let launched = self.counts.get(&task.stream()).map_or(0, |counts| counts.launched);
        (self.numbers_by_card || launched - launch.place < HALF_A_ROUND).then_some(launch.kernel)
    }

    /// A kernel is launched. Returns what is known already of its time on the card.
    pub fn launch(&mut self, time: u64, device: Device, kernel: Kernel) -> Option<Early> {
        let task = self.task(device, kernel.stream_id, kernel.task_number);
        if self.launched.len() >= MOST_LAUNCHED {
            let median = median(self.launched.values().map(|launch| launch.time).collect());
            self.launched.retain(|_, launch| launch.time > median);
        }
        let counts = self.counts.entry(task.stream()).or_default();
        counts.launched += 1;
        let Counts { launched: place, started } = *counts;
        self.captured.remove(&task);
        let early = self.early.remove(&task).filter(|early| self.is_of_this_round(early.place, started));
        let early = early.map(|early| early.early);
        if early.is_some_and(|early| early.end.is_some()) {
            self.launched.remove(&task);
        } else {
            self.launched.insert(task, Launched { kernel, time, has_started: early.is_some(), place });
        }
        early
    }

    /// A card starts a task. Nothing if that is no kernel, or one whose launch is written down behind this.
    pub fn start(&mut self, time: u64, device: Device, stream_id: u32, task_id: u32, thread_id: u32) -> Option<Kernel> {
        self.note_stream(stream_id);
        let task = self.task(device, stream_id, task_id);
        let counts = self.counts.entry(task.stream()).or_default();
        counts.started += 1;
        let Counts { launched, started: place } = *counts;
        let is_of_this_round = |launch: &Launched| self.numbers_by_card || launched - launch.place < HALF_A_ROUND;
        if let Some(launch) = self.launched.get_mut(&task)
            && !launch.has_started
            && is_of_this_round(launch)
        {
            launch.has_started = true;
            return Some(launch.kernel);
        }
        if let Some(kernel) = self.of_graph(task) {
            return Some(kernel);
        }
        if self.early.len() >= MOST_EARLY {
            let median = median(self.early.values().map(|early| early.early.start).collect());
            self.early.retain(|_, early| early.early.start > median);
        }
        self.early.insert(task, EarlyStart { early: Early { start: time, end: None, thread_id }, place });
        None
    }

    /// A card has finished a task.
    pub fn end(&mut self, time: u64, device: Device, stream_id: u32, task_id: u32) -> Option<Kernel> {
        self.note_stream(stream_id);
        let task = self.task(device, stream_id, task_id);
        let started = self.counts.get(&task.stream()).map_or(0, |counts| counts.started);
        // Of a task and one of an earlier round that has never ended, it is the one that started last.
        let of_this_round = self.early.get(&task).is_some_and(|early| self.is_of_this_round(early.place, started));
        if let Some(early) = self.early.get_mut(&task).filter(|early| of_this_round && early.early.end.is_none()) {
            early.early.end = Some(time);
            return None;
        }
        self.launched.remove(&task).map(|launch| launch.kernel).or_else(|| self.of_graph(task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device::Npu(1);

    fn kernel(name: u32, stream_id: u32, task_number: u32) -> Kernel {
        Kernel { name: StringId(name), stream_id, task_number, is_of_graph: false }
    }

    #[test]
    fn equal_numbers_in_other_streams_and_cards_and_rounds_are_other_kernels() {
        let mut tracker = KernelTracker::default();
        assert_eq!(tracker.launch(10, DEVICE, kernel(1, 0, 7)), None);
        tracker.launch(11, DEVICE, kernel(2, 5, 7));
        tracker.launch(12, Device::Npu(2), kernel(3, 0, 7));
        let mut named = |device, stream_id, task_id| {
            let started = tracker.start(20, device, stream_id, task_id, 9).map(|kernel| kernel.name.0);
            (started, tracker.end(30, device, stream_id, task_id).map(|kernel| kernel.name.0))
        };
        assert_eq!(named(Device::Npu(2), 0, 7), (Some(3), Some(3)));
        assert_eq!(named(DEVICE, 5, 7), (Some(2), Some(2)));
        assert_eq!(named(DEVICE, 0, 7), (Some(1), Some(1)));
        assert_eq!(named(DEVICE, 1, 7), (None, None));
        tracker.launch(40, DEVICE, kernel(4, 0, 7 + 65_536));
        assert_eq!(tracker.start(41, DEVICE, 0, 7, 9).map(|kernel| kernel.task_id()), Some(7));
    }

    #[test]
    fn a_card_may_be_quicker_than_the_host() {
        let mut tracker = KernelTracker::default();
        assert_eq!(tracker.start(100, DEVICE, 0, 1, 9), None);
        assert_eq!(tracker.end(110, DEVICE, 0, 1), None);
        assert_eq!(
            tracker.launch(120, DEVICE, kernel(1, 0, 1)),
            Some(Early { start: 100, end: Some(110), thread_id: 9 })
        );
        assert_eq!(tracker.start(130, DEVICE, 0, 2, 9), None);
        assert_eq!(tracker.launch(140, DEVICE, kernel(2, 0, 2)).map(|early| early.end), Some(None));
        assert_eq!(tracker.end(150, DEVICE, 0, 2).map(|kernel| kernel.name.0), Some(2));
        // However late the launch is written down.
        tracker.start(200, DEVICE, 0, 3, 9);
        tracker.end(210, DEVICE, 0, 3);
        let late = tracker.launch(60_000_000_000, DEVICE, kernel(3, 0, 3));
        assert_eq!(late.map(|early| early.start), Some(200));
    }

    #[test]
    fn copies_and_kernels_whose_records_are_lost_do_not_take_those_of_a_later_round() {
        let mut tracker = KernelTracker::default();
        // A copy whose end was lost, and a kernel of which the card has told nothing.
        tracker.start(1, DEVICE, 0, 3, 9);
        tracker.launch(2, DEVICE, kernel(1, 0, 4));
        for number in 5..65_536u32 + 3 {
            tracker.launch(u64::from(number), DEVICE, kernel(2, 0, number));
            tracker.start(u64::from(number), DEVICE, 0, number & 0xffff, 9);
            tracker.end(u64::from(number), DEVICE, 0, number & 0xffff);
        }
        assert_eq!(tracker.launch(70_000, DEVICE, kernel(3, 0, 65_536 + 3)), None);
        assert_eq!(tracker.start(70_001, DEVICE, 0, 3, 9).map(|kernel| kernel.name.0), Some(3));
        assert_eq!(tracker.end(70_002, DEVICE, 0, 3).map(|kernel| kernel.name.0), Some(3));
        // The card is quicker than the host, and the number had another kernel before.
        assert_eq!(tracker.start(70_003, DEVICE, 0, 4, 9), None);
        assert_eq!(tracker.end(70_004, DEVICE, 0, 4), None);
        let early = tracker.launch(70_005, DEVICE, kernel(4, 0, 65_536 + 4));
        assert_eq!(early.map(|early| (early.start, early.end)), Some((70_003, Some(70_004))));
    }

    #[test]
    fn tasks_that_are_numbered_by_card_need_no_stream() {
        let mut tracker = KernelTracker::default();
        tracker.launch(10, DEVICE, kernel(1, 3, 0x1_0007));
        tracker.launch(11, DEVICE, kernel(2, 4, 0x2_0007));
        assert_eq!(tracker.start(20, DEVICE, u32::MAX, 0x2_0007, 9).map(|kernel| kernel.stream_id), Some(4));
        assert_eq!(tracker.end(20, DEVICE, u32::MAX, 0x1_0007).map(|kernel| kernel.stream_id), Some(3));
    }

    #[test]
    fn kernels_of_graphs_start_and_end_again_and_again() {
        let mut tracker = KernelTracker::default();
        tracker.launch(10, DEVICE, kernel(1, 3, 7));
        tracker.captured(DEVICE, kernel(1, 3, 7));
        tracker.launch(11, DEVICE, kernel(2, 3, 9));
        for run in 0..3 {
            let told = |kernel: Option<Kernel>| kernel.map(|kernel| (kernel.name.0, kernel.is_of_graph));
            assert_eq!(told(tracker.start(20 + run, DEVICE, 3, 7, 9)), Some((1, true)));
            assert_eq!(told(tracker.end(21 + run, DEVICE, 3, 7)), Some((1, true)));
            assert_eq!(told(tracker.start(22 + run, DEVICE, 3, 8, 9)), None, "a copy, which was never launched");
            assert_eq!(told(tracker.end(23 + run, DEVICE, 3, 8)), None);
        }
        assert_eq!(tracker.start(30, DEVICE, 3, 9, 9), Some(kernel(2, 3, 9)));
        // The number is given out again.
        tracker.launch(40, DEVICE, kernel(4, 3, 7 + 65_536));
        assert_eq!(tracker.start(41, DEVICE, 3, 7, 9).map(|kernel| kernel.name.0), Some(4));
        assert_eq!(tracker.end(42, DEVICE, 3, 7).map(|kernel| kernel.name.0), Some(4));
    }

    #[test]
    fn kernels_that_never_end_and_copies_do_not_pile_up() {
        let mut tracker = KernelTracker { numbers_by_card: true, ..KernelTracker::default() };
        for number in 0..1_200_000u32 {
            tracker.launch(u64::from(number), DEVICE, kernel(1, 0, number));
            tracker.start(u64::from(number) * 1_000_000, DEVICE, u32::MAX, number | 1 << 31, 9);
        }
        assert!(tracker.launched.len() <= MOST_LAUNCHED && tracker.early.len() <= MOST_EARLY);
    }
}
