//! What kernels do with memory: how much came into use and went since the launch before, which operator launched them,
//! how long they waited in their stream and how long they ran.
//!
//! Memory of a kernel is allocated before it is launched, so the change that belongs to a launch is what happened on its
//! card since the launch before it. Blocks of frameworks count; where there are none, those of the driver.

use std::collections::VecDeque;

use msmemscope_event::{Device, Framework, KernelPhase, Pool, StringId};
use msmemscope_timeline::{EventKind, TimelineEvent};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::device_text::device_text;
use crate::fluctuation::is_framework_pool;
use crate::names::Names;
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, Situation};

/// Launches whose end is waited for; older ones are given up.
const MOST_WAITING: usize = 1 << 16;
/// Operators told per kernel.
const TOLD_OPERATORS: usize = 3;

/// What is told of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A launch, and when its card started it and had finished it.
    Whole,
    /// Only the launch: it was captured, and runs with its graph.
    Capture,
    /// A run of its graph, long after the launch.
    GraphRun,
}

/// A kernel that was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchedKernel {
    /// What this tells of it.
    pub part: Part,
    /// Its card.
    pub device: Device,
    /// Its name.
    pub name: StringId,
    /// The operator that was running on the launching thread.
    pub operator: StringId,
    /// Who launched it.
    pub thread_id: u32,
    /// Stream.
    pub stream_id: u32,
    /// Number of the task.
    pub task_id: u32,
    /// When it was launched.
    pub launched_ns: u64,
    /// When its card started it, if that is known.
    pub started_ns: Option<u64>,
    /// When its card had finished it, if that is known.
    pub ended_ns: Option<u64>,
    /// Change of memory in use on its card since the launch before.
    pub change_bytes: i64,
    /// Memory in use on its card when it was launched.
    pub used_bytes: u64,
}

impl LaunchedKernel {
    /// How long it waited in its stream, if that is known. Kernels of graphs wait for somebody to run the graph.
    pub fn waited_ns(&self) -> Option<u64> {
        let started_ns = self.started_ns.filter(|_| self.part == Part::Whole)?;
        Some(started_ns.saturating_sub(self.launched_ns))
    }

    /// How long it ran, if that is known.
    pub fn ran_ns(&self) -> Option<u64> {
        Some(self.ended_ns?.saturating_sub(self.started_ns?))
    }

    /// Whether nothing more will be known of this.
    fn is_told(&self) -> bool {
        self.ended_ns.is_some() || self.part == Part::Capture
    }
}

/// Follows kernels from their launch to their end.
#[derive(Debug, Default)]
pub struct KernelFollower {
    cards: FxHashMap<Device, Card>,
    /// In the order of launches; some behind the first may have ended.
    waiting: VecDeque<LaunchedKernel>,
    /// How many were taken from the front.
    taken: u64,
    /// Places among all launches, by card, stream and task.
    places: FxHashMap<(Device, u32, u32), u64>,
    /// Kernels of graphs that have run, by the same.
    graphs: FxHashMap<(Device, u32, u32), LaunchedKernel>,
    saw_framework: bool,
}

/// Memory of a card.
#[derive(Debug, Default)]
struct Card {
    used_bytes: u64,
    since_launch_bytes: i64,
}

impl KernelFollower {
    /// A block came into being or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>) {
        let (block, begins) = match change {
            BlockChange::Begins(block, _) => (block, true),
            BlockChange::Ends(block, _) => (block, false),
        };
        let pool = block.properties.pool;
        if is_framework_pool(pool) {
            if !self.saw_framework {
                // Until now the driver's blocks had to do.
                (self.saw_framework, self.cards) = (true, FxHashMap::default());
            }
        } else if self.saw_framework || pool != Pool::Hal {
            return;
        }
        let card = self.cards.entry(block.properties.device).or_default();
        let size_bytes = block.size_bytes;
        if begins {
            card.used_bytes = card.used_bytes.saturating_add(size_bytes);
            card.since_launch_bytes = card.since_launch_bytes.saturating_add_unsigned(size_bytes);
        } else {
            card.used_bytes = card.used_bytes.saturating_sub(size_bytes);
            card.since_launch_bytes = card.since_launch_bytes.saturating_sub_unsigned(size_bytes);
        }
    }

    /// A kernel is launched, starts or ends; kernels of which no more will be known are given to `take`, in the order of
    /// their launches.
    pub fn event(&mut self, event: &TimelineEvent, situation: &Situation, take: &mut dyn FnMut(LaunchedKernel)) {
        let EventKind::Kernel { phase, at_ns, name, stream_id, task_id, is_of_graph, .. } = event.kind else { return };
        let key = (event.device, stream_id, task_id);
        match phase {
            KernelPhase::ExecuteStart if is_of_graph => self.graph_starts(key, name, at_ns),
            KernelPhase::ExecuteEnd if is_of_graph => {
                if let Some(run) = self.graphs.get_mut(&key) {
                    take(LaunchedKernel { ended_ns: Some(at_ns), ..*run });
                    run.started_ns = None;
                }
            }
            KernelPhase::Launch => {
                let card = self.cards.entry(event.device).or_default();
                let change_bytes = std::mem::take(&mut card.since_launch_bytes);
                let operator = situation.operators(event.thread_id).last();
                self.places.insert(key, self.taken + self.waiting.len() as u64);
                self.graphs.remove(&key);
                self.waiting.push_back(LaunchedKernel {
                    part: Part::Whole,
                    device: event.device,
                    name,
                    operator: operator.map_or(StringId::NONE, |operator| operator.name),
                    thread_id: event.thread_id,
                    stream_id,
                    task_id,
                    launched_ns: at_ns,
                    started_ns: None,
                    ended_ns: None,
                    change_bytes,
                    used_bytes: card.used_bytes,
                });
            }
            KernelPhase::ExecuteStart => {
                if let Some(kernel) = self.kernel(&key) {
                    kernel.started_ns = Some(at_ns);
                }
            }
            KernelPhase::ExecuteEnd => {
                if let Some(kernel) = self.kernel(&key) {
                    kernel.ended_ns = Some(at_ns);
                }
                self.places.remove(&key);
            }
            _ => return,
        }
        while self.waiting.len() > MOST_WAITING || self.waiting.front().is_some_and(LaunchedKernel::is_told) {
            self.take_first(take);
        }
    }

    /// A card starts a kernel of a graph. What its launch said of it is kept for the next runs.
    fn graph_starts(&mut self, key: (Device, u32, u32), name: StringId, at_ns: u64) {
        if let Some(launch) = self.kernel(&key) {
            launch.part = Part::Capture;
            let run = LaunchedKernel { part: Part::GraphRun, change_bytes: 0, ..*launch };
            self.places.remove(&key);
            self.graphs.insert(key, run);
        }
        let (device, stream_id, task_id) = key;
        let unknown = LaunchedKernel {
            part: Part::GraphRun,
            device,
            name,
            operator: StringId::NONE,
            thread_id: 0,
            stream_id,
            task_id,
            launched_ns: 0,
            started_ns: None,
            ended_ns: None,
            change_bytes: 0,
            used_bytes: 0,
        };
        self.graphs.entry(key).or_insert(unknown).started_ns = Some(at_ns);
    }

    fn kernel(&mut self, key: &(Device, u32, u32)) -> Option<&mut LaunchedKernel> {
        let place = self.places.get(key)?.checked_sub(self.taken)?;
        self.waiting.get_mut(usize::try_from(place).ok()?)
    }

    fn take_first(&mut self, take: &mut dyn FnMut(LaunchedKernel)) {
        let Some(first) = self.waiting.pop_front() else { return };
        let key = (first.device, first.stream_id, first.task_id);
        if self.places.get(&key) == Some(&self.taken) {
            self.places.remove(&key);
        }
        self.taken += 1;
        take(first);
    }

    /// Gives the rest away.
    pub fn finish(mut self, take: &mut dyn FnMut(LaunchedKernel)) {
        while !self.waiting.is_empty() {
            self.take_first(take);
        }
    }
}

/// All launches of one kernel on one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelUse {
    /// Its name.
    pub name: String,
    /// The card.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// How often it was launched.
    pub launches: u64,
    /// Change of memory in use that belongs to its launches.
    pub change_bytes: i64,
    /// The largest increase of one launch.
    pub largest_increase_bytes: u64,
    /// Launches of which start and end are known.
    pub measured: u64,
    /// How long the launches that are measured waited in their stream.
    pub waiting_ns: u64,
    /// Launches that were captured into graphs.
    pub captured: u64,
    /// How often graphs ran it.
    pub graph_runs: u64,
    /// How long it ran in the launches that are measured and in graphs.
    pub running_ns: u64,
    /// Operators that launched it and how often, the most frequent first.
    pub operators: Vec<LaunchingOperator>,
}

/// An operator that launches a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaunchingOperator {
    /// Its name.
    pub name: String,
    /// How often.
    pub launches: u64,
}

/// What kernels did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelReport {
    /// Kernels, those that changed most memory first.
    pub kernels: Vec<KernelUse>,
    /// Whether operators were recorded, but none on a thread that launches kernels.
    pub operators_launch_nothing: bool,
}

#[derive(Debug, Default)]
struct Sum {
    launches: u64,
    change_bytes: i64,
    largest_increase_bytes: u64,
    measured: u64,
    waiting_ns: u64,
    captured: u64,
    graph_runs: u64,
    running_ns: u64,
    operators: FxHashMap<StringId, u64>,
}

/// Sums kernels up.
#[derive(Debug, Default)]
pub struct Kernels {
    follower: KernelFollower,
    sums: FxHashMap<(Device, StringId), Sum>,
    saw_operators: bool,
}

impl Question for Kernels {
    type Finding = KernelReport;

    fn ask(questions: &mut Questions) -> bool {
        questions.kernels = true;
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.kernels.then(Self::default)
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, _event: &TimelineEvent, _view: View<'_>) {
        self.follower.block(change);
    }

    #[inline]
    fn event(&mut self, event: &TimelineEvent, view: View<'_>) {
        match event.kind {
            EventKind::Kernel { .. } => {
                let sums = &mut self.sums;
                self.follower.event(event, view.situation, &mut |kernel| add(sums, &kernel));
            }
            EventKind::Operator { framework: Framework::Aten, .. } => self.saw_operators = true,
            _ => {}
        }
    }

    fn finish(self, view: View<'_>, _end: &mut End<'_>) -> Option<KernelReport> {
        let report = self.report(view.names);
        (!report.kernels.is_empty()).then_some(report)
    }
}

impl Kernels {
    /// What there is to say.
    fn report(self, names: &dyn Names) -> KernelReport {
        let mut sums = self.sums;
        self.follower.finish(&mut |kernel| add(&mut sums, &kernel));
        let mut kernels: Vec<KernelUse> = sums
            .into_iter()
            .map(|((device, name), sum)| {
                let mut operators: Vec<LaunchingOperator> = sum
                    .operators
                    .into_iter()
                    .map(|(operator, launches)| LaunchingOperator { name: names.text(operator), launches })
                    .collect();
                operators.sort_by(|one, two| two.launches.cmp(&one.launches).then_with(|| one.name.cmp(&two.name)));
                operators.truncate(TOLD_OPERATORS);
                KernelUse {
                    name: names.text(name),
                    device,
                    launches: sum.launches,
                    change_bytes: sum.change_bytes,
                    largest_increase_bytes: sum.largest_increase_bytes,
                    measured: sum.measured,
                    waiting_ns: sum.waiting_ns,
                    captured: sum.captured,
                    graph_runs: sum.graph_runs,
                    running_ns: sum.running_ns,
                    operators,
                }
            })
            .collect();
        kernels.sort_by(|one, two| {
            let size = |kernel: &KernelUse| (kernel.change_bytes.unsigned_abs(), kernel.running_ns);
            size(two).cmp(&size(one)).then_with(|| (one.device, &one.name).cmp(&(two.device, &two.name)))
        });
        let operators_launch_nothing = self.saw_operators && kernels.iter().all(|kernel| kernel.operators.is_empty());
        KernelReport { kernels, operators_launch_nothing }
    }
}

fn add(sums: &mut FxHashMap<(Device, StringId), Sum>, kernel: &LaunchedKernel) {
    let sum = sums.entry((kernel.device, kernel.name)).or_default();
    if let Some(ran_ns) = kernel.ran_ns() {
        sum.running_ns += ran_ns;
        sum.measured += u64::from(kernel.part == Part::Whole);
        sum.waiting_ns += kernel.waited_ns().unwrap_or(0);
    }
    if kernel.part == Part::GraphRun {
        sum.graph_runs += 1;
        return;
    }
    sum.launches += 1;
    sum.captured += u64::from(kernel.part == Part::Capture);
    sum.change_bytes = sum.change_bytes.saturating_add(kernel.change_bytes);
    sum.largest_increase_bytes = sum.largest_increase_bytes.max(u64::try_from(kernel.change_bytes).unwrap_or(0));
    if kernel.operator.is_some() {
        *sum.operators.entry(kernel.operator).or_default() += 1;
    }
}
