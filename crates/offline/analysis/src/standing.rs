//! What stands in memory at ends of steps, and should not, though it is no leak.
//!
//! * A tensor that is joined with its earlier self in every step (a cache of keys and values): the old one is freed,
//!   the new one is larger. The same goes for the workspace of operators.
//! * States of optimizers that exist twice for the same weights.
//! * Gradients that stay through the forward pass of the next step.
//! * Memory that the pool holds in pieces too small for what is asked of it ([`crate::pieces`]).
//!
//! Live blocks are looked at when steps end: at the first ones, and then less and less often, so that a long run costs
//! little more than a short one.

use msmemscope_config::AnalysisSet;
use msmemscope_event::{AutogradPhase, Device, Pool, StackId};
use msmemscope_timeline::TimelineEvent;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::device_text::{device_text, pool_text};
use crate::fluctuation::is_framework_pool;
use crate::holders::{HeldBy, merged};
use crate::installation::Origin;
use crate::names::{Frame, Names, Site, SiteText};
use crate::pieces::{PieceFollower, Pieces};
use crate::question::{About, End, Question, Questions, View};
use crate::roles::{Role, Roles};
use crate::situation::{BlockChange, LiveBlock, Situation, StepChange};
use crate::small_map::SmallMap;

/// The first steps are all looked at.
const DENSE_STEPS: u64 = 16;
/// The first step that counts: memory settles in the one before.
const FIRST_STEP: u64 = 2;
/// Growth over fewer looks may be chance.
const FEWEST_LOOKS: usize = 5;
/// Gradients in fewer forward passes may be added up on purpose.
const FEWEST_FORWARD_LOOKS: u64 = 3;
/// What has grown by less than one part in this many of the pool is not worth a sentence.
const POOL_PER_GROWTH: u64 = 100;
/// The same for gradients that stay.
const POOL_PER_GRADIENTS: u64 = 20;

/// A place whose memory becomes larger and larger, though it does not become more blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swelling {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Where the latest block was allocated.
    pub site: SiteText,
    /// Step and bytes at the first look.
    pub first: (u64, u64),
    /// Step and bytes at the last look.
    pub last: (u64, u64),
    /// Growth per step between them.
    pub bytes_per_step: u64,
    /// Who held the latest block, when the job looked.
    pub held_by: Vec<HeldBy>,
}

/// States of optimizers that exist more than once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DoubledStates {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// Bytes of all states.
    pub bytes: u64,
    /// Bytes of those that there are too many.
    pub surplus_bytes: u64,
    /// How often there are states for one weight.
    pub times: u64,
    /// Lines that made the states, each once; the first made first.
    pub lines: Vec<String>,
    /// Steps in which they were made, in the same order.
    pub steps: Vec<u64>,
    /// Who held the surplus, when the job looked.
    pub held_by: Vec<HeldBy>,
}

/// Gradients that are there in the forward pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeptGradients {
    /// The device.
    #[serde(serialize_with = "device_text")]
    pub device: Device,
    /// Bytes of the gradients.
    pub bytes: u64,
    /// Most bytes in use of their pool.
    pub peak_bytes: u64,
    /// Who held them, when the job looked.
    pub held_by: Vec<HeldBy>,
    /// Forward passes looked at, in all of which they were there.
    pub looks: u64,
}

/// What stands and should not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StandingReport {
    /// Places that swell, those that grow fastest first.
    pub swelling: Vec<Swelling>,
    /// Optimizer states that exist more than once.
    pub doubled_states: Option<DoubledStates>,
    /// Gradients that are there in forward passes.
    pub kept_gradients: Option<KeptGradients>,
    /// Memory of a pool in pieces that are too small.
    pub pieces: Option<Pieces>,
}

/// One look at a place.
#[derive(Clone, Copy, Debug)]
struct Look {
    device_step: u64,
    step: u64,
    bytes: u64,
    blocks: u64,
    /// The latest block.
    example: LiveBlock,
}

/// States that one call of an optimizer's step made in one way.
#[derive(Clone, Debug)]
struct Burst {
    blocks: Vec<(u64, u64)>,
    bytes: u64,
    example: LiveBlock,
}

#[derive(Debug, Default)]
struct DeviceState {
    used_bytes: u64,
    peak_bytes: u64,
    /// The largest block of workspace since the last look. Where a queue of tasks hands it on it is in use for the time of
    /// an operator only, and the pool keeps what was once needed.
    workspace: Option<LiveBlock>,
    /// The latest step that was looked at.
    looked_at: u64,
    /// Blocks of weights at the last look.
    weights: u64,
    /// States at the last look, by stack and step.
    bursts: FxHashMap<(StackId, u64), Burst>,
    /// A step has ended, and no forward pass has begun since.
    awaits_forward: bool,
    /// Forward passes in a row, up to the latest one looked at, in which there were gradients.
    gradient_looks: u64,
    /// Whether a forward pass after one with gradients had none.
    frees_gradients: bool,
    gradient_bytes: u64,
    /// The latest of them, by number and size.
    gradients: Vec<(u64, u64)>,
}

type PlaceKey = (Device, Pool, Option<Site>);

/// Follows what stands.
#[derive(Debug, Default)]
pub struct Standing {
    places: FxHashMap<PlaceKey, Vec<Look>>,
    devices: SmallMap<Device, DeviceState>,
    roles: Roles,
    pieces: PieceFollower,
}

/// Whether a step is one of those that are looked at: all of the first, then 16, 24, 32, 48, 64, ...
fn is_looked_at(ended: u64) -> bool {
    ended <= DENSE_STEPS || ended.is_power_of_two() || (ended.is_multiple_of(3) && (ended / 3).is_power_of_two())
}

impl Standing {
    /// A block began or ended.
    #[inline]
    pub fn block(&mut self, change: &BlockChange<'_>, situation: &Situation, names: &dyn Names) {
        self.pieces.block(change, situation);
        let (BlockChange::Begins(block, said) | BlockChange::Ends(block, said)) = change;
        if block.properties.pool == Pool::PytorchWorkspace {
            let state = self.devices.entry(block.properties.device);
            state.workspace = larger(state.workspace, block);
        }
        if !is_framework_pool(block.properties.pool) {
            return;
        }
        let state = self.devices.entry(block.properties.device);
        state.used_bytes = said.used_bytes;
        state.peak_bytes = state.peak_bytes.max(said.used_bytes);
        let is_of_forward = block.phase == Some(AutogradPhase::Forward) && matches!(change, BlockChange::Begins(..));
        if is_of_forward && state.awaits_forward {
            state.awaits_forward = false;
            self.forward_begins(block.properties.device, situation, names);
        }
    }

    /// The first block of the first forward pass of a step.
    #[cold]
    fn forward_begins(&mut self, device: Device, situation: &Situation, names: &dyn Names) {
        let ended = situation.steps(device).ended;
        if ended < FIRST_STEP || !is_looked_at(ended) {
            return;
        }
        let mut gradients = Vec::new();
        for block in situation.live_blocks().filter(|block| block.properties.device == device) {
            let is_made_by_backward = block.phase == Some(AutogradPhase::Backward);
            if is_made_by_backward && self.roles.of(block, situation, names) == Role::Gradient {
                gradients.push((block.allocation_id, block.size_bytes));
            }
        }
        let state = self.devices.entry(device);
        state.gradient_bytes = gradients.iter().map(|(_, size_bytes)| *size_bytes).fold(0, u64::saturating_add);
        state.frees_gradients |= gradients.is_empty() && state.gradient_looks > 0;
        state.gradient_looks += u64::from(!gradients.is_empty());
        state.gradients = gradients;
    }

    /// A step began or ended.
    pub fn step(&mut self, change: &StepChange, situation: &Situation, names: &dyn Names) {
        if change.begins {
            return;
        }
        let mut devices: Vec<Device> = self.devices.iter().map(|(device, _)| *device).collect();
        devices.retain(|device| change.device == Device::Unknown || change.device == *device);
        for device in devices {
            let ended = situation.steps(device).ended;
            let state = self.devices.entry(device);
            state.awaits_forward = true;
            if ended >= FIRST_STEP && is_looked_at(ended) && state.looked_at < ended {
                state.looked_at = ended;
                self.look(device, ended, change.number, situation, names);
            }
        }
    }

    fn look(&mut self, device: Device, device_step: u64, step: u64, situation: &Situation, names: &dyn Names) {
        let mut places: FxHashMap<PlaceKey, Look> = FxHashMap::default();
        let mut weights = 0;
        let mut workspace = self.devices.entry(device).workspace.take();
        let mut bursts: FxHashMap<(StackId, u64), Burst> = FxHashMap::default();
        let is_of_interest = |block: &&LiveBlock| block.properties.device == device && !block.shadow;
        for block in situation.live_blocks().filter(is_of_interest) {
            let pool = block.properties.pool;
            let site = match pool {
                Pool::PytorchWorkspace => {
                    workspace = larger(workspace, block);
                    continue;
                }
                pool if is_framework_pool(pool) => Some(Site::of(block)),
                _ => continue,
            };
            let first = Look { device_step, step, bytes: 0, blocks: 0, example: *block };
            let look = places.entry((device, pool, site)).or_insert(first);
            look.bytes = look.bytes.saturating_add(block.size_bytes);
            look.blocks += 1;
            if block.birth > look.example.birth {
                look.example = *block;
            }
            match self.roles.of(block, situation, names) {
                Role::Weight => weights += 1,
                Role::State => {
                    let burst = bursts.entry((block.python_stack, block.device_step)).or_insert_with(|| Burst {
                        blocks: Vec::new(),
                        bytes: 0,
                        example: *block,
                    });
                    burst.blocks.push((block.allocation_id, block.size_bytes));
                    burst.bytes = burst.bytes.saturating_add(block.size_bytes);
                }
                _ => {}
            }
        }
        if let Some(example) = workspace {
            // Whoever needs more gets more; who that is may differ from time to time.
            let look = Look { device_step, step, bytes: example.size_bytes, blocks: 1, example };
            places.insert((device, Pool::PytorchWorkspace, None), look);
        }
        let state = self.devices.entry(device);
        (state.weights, state.bursts) = (weights, bursts);
        // A place that was empty at a look has begun anew.
        self.places.retain(|key, _| key.0 != device || places.contains_key(key));
        for (key, look) in places {
            self.places.entry(key).or_default().push(look);
        }
    }

    /// What was found. Places that are leaks are not told again.
    pub fn finish(mut self, situation: &Situation, names: &dyn Names) -> StandingReport {
        let places = std::mem::take(&mut self.places);
        let mut swelling: Vec<Swelling> = places
            .iter()
            .filter_map(|(key, looks)| {
                let used_bytes = self.devices.get(key.0).map_or(0, |state| state.used_bytes);
                let rising = match key.1 {
                    Pool::PytorchWorkspace => climbs(looks, used_bytes),
                    _ => swells(looks, used_bytes),
                };
                rising.map(|looks| swelling_of(key, looks, situation, names))
            })
            .collect();
        swelling.sort_by(|a, b| (b.bytes_per_step, &a.site.line).cmp(&(a.bytes_per_step, &b.site.line)));
        let mut devices: Vec<(Device, DeviceState)> = self.devices.into_entries().collect();
        devices.sort_unstable_by_key(|(device, _)| *device);
        let doubled_states = devices.iter().find_map(|(device, state)| doubled(*device, state, situation, names));
        let kept_gradients = devices.iter().find_map(|(device, state)| {
            let is_kept = state.gradient_looks >= FEWEST_FORWARD_LOOKS && !state.frees_gradients;
            let is_much = state.gradient_bytes.saturating_mul(POOL_PER_GRADIENTS) >= state.peak_bytes;
            (is_kept && is_much).then(|| KeptGradients {
                device: *device,
                bytes: state.gradient_bytes,
                peak_bytes: state.peak_bytes,
                held_by: situation.holders().of_blocks(state.gradients.iter().copied(), names),
                looks: state.gradient_looks,
            })
        });
        let pieces = self.pieces.finish(situation, names);
        StandingReport { swelling, doubled_states, kept_gradients, pieces }
    }
}

/// The larger of two blocks; of equal ones the later.
fn larger(known: Option<LiveBlock>, block: &LiveBlock) -> Option<LiveBlock> {
    known.filter(|known| known.size_bytes > block.size_bytes).or(Some(*block))
}

/// The looks over which a place has become larger every time, if it has done so up to the end, and by enough.
fn swells(looks: &[Look], used_bytes: u64) -> Option<&[Look]> {
    let rises =
        looks.windows(2).rev().take_while(|pair| pair[1].bytes > pair[0].bytes && pair[1].blocks <= pair[0].blocks);
    let rising = &looks[looks.len() - 1 - rises.count().min(looks.len().saturating_sub(1))..];
    let (first, last) = (rising.first()?, rising.last()?);
    let grown = last.bytes - first.bytes;
    // It must have risen most of the time, and not only since a short while.
    let is_lasting = rising.len() >= FEWEST_LOOKS && rising.len() * 2 > looks.len();
    let is_much = grown >= first.bytes && grown.saturating_mul(POOL_PER_GROWTH) >= used_bytes;
    (is_lasting && is_much).then_some(rising)
}

/// The same of workspace, which is taken from the driver in pieces of 2 MiB and never given back: it climbs by stairs. That
/// of operands of many sizes does so, too, but less and less: it must have climbed as much lately as it did at first.
fn climbs(looks: &[Look], used_bytes: u64) -> Option<&[Look]> {
    let (first, last) = (looks.first()?, looks.last()?);
    let never_falls = looks.windows(2).all(|pair| pair[1].bytes >= pair[0].bytes);
    let (_, lately) = looks.split_at(looks.len() / 2);
    let climbs_lately = lately.windows(2).filter(|pair| pair[1].bytes > pair[0].bytes).count();
    let grown = last.bytes.saturating_sub(first.bytes);
    let grown_lately = last.bytes.saturating_sub(lately[0].bytes);
    let is_lasting = looks.len() >= FEWEST_LOOKS && climbs_lately >= 2 && grown_lately.saturating_mul(3) >= grown;
    let is_much = grown >= first.bytes && grown.saturating_mul(POOL_PER_GROWTH) >= used_bytes;
    (never_falls && is_lasting && is_much).then_some(looks)
}

fn swelling_of(key: &PlaceKey, looks: &[Look], situation: &Situation, names: &dyn Names) -> Swelling {
    let (first, last) = (looks[0], looks[looks.len() - 1]);
    let block = &last.example;
    Swelling {
        device: key.0,
        pool: key.1,
        site: SiteText::of(block, situation, names),
        first: (first.step, first.bytes),
        last: (last.step, last.bytes),
        bytes_per_step: (last.bytes - first.bytes) / (last.device_step - first.device_step).max(1),
        held_by: held_at(looks, situation, names),
    }
}

/// Who held the blocks of the looks; the job looks less often than we do.
fn held_at(looks: &[Look], situation: &Situation, names: &dyn Names) -> Vec<HeldBy> {
    looks
        .iter()
        .rev()
        .map(|look| situation.holders().of_blocks(std::iter::once((look.example.allocation_id, look.bytes)), names))
        .find(|held| !held.is_empty())
        .unwrap_or_default()
}

/// The line of the optimizer that makes a state. What looks on as operators run lies further in, alike for all states.
fn maker(frames: &[Frame]) -> Option<&Frame> {
    let is_of_optimizer = |frame: &&Frame| frame.file.contains("/optim/");
    frames.iter().find(is_of_optimizer).or_else(|| frames.iter().find(|frame| frame.origin != Origin::Own))
}

/// States that several steps of optimizers have made in the same way, more of them than there are weights.
fn doubled(device: Device, state: &DeviceState, situation: &Situation, names: &dyn Names) -> Option<DoubledStates> {
    let mut by_way: FxHashMap<String, Vec<&Burst>> = FxHashMap::default();
    for burst in state.bursts.values() {
        let frames = names.python_frames(burst.example.python_stack);
        let way = maker(&frames).map_or_else(String::new, Frame::describe);
        by_way.entry(way).or_default().push(burst);
    }
    let (mut bytes, mut surplus, mut times) = (0u64, Vec::new(), 1);
    for bursts in by_way.values_mut() {
        bursts.sort_unstable_by_key(|burst| burst.example.birth);
        let count: usize = bursts.iter().map(|burst| burst.blocks.len()).sum();
        bytes = bursts.iter().map(|burst| burst.bytes).fold(bytes, u64::saturating_add);
        if bursts.len() > 1 && state.weights > 0 && count as u64 > state.weights {
            times = times.max((count as u64).div_ceil(state.weights));
            // The latest are those that are used, whoever else has some.
            surplus.extend(bursts[..bursts.len() - 1].iter().copied());
        }
    }
    if surplus.is_empty() {
        return None;
    }
    let mut all: Vec<&Burst> = state.bursts.values().collect();
    all.sort_unstable_by_key(|burst| burst.example.birth);
    let (mut lines, mut steps, mut seen) = (Vec::new(), Vec::new(), FxHashSet::default());
    for burst in all {
        let line = SiteText::of(&burst.example, situation, names).line;
        if seen.insert((line.clone(), burst.example.step)) {
            lines.push(line);
            steps.push(burst.example.step);
        }
    }
    let held: Vec<HeldBy> =
        surplus.iter().flat_map(|burst| situation.holders().of_blocks(burst.blocks.iter().copied(), names)).collect();
    Some(DoubledStates {
        device,
        bytes,
        surplus_bytes: surplus.iter().map(|burst| burst.bytes).fold(0, u64::saturating_add),
        times,
        lines,
        steps,
        held_by: merged(held.iter()),
    })
}

impl Question for Standing {
    type Finding = StandingReport;

    const ANALYSIS: AnalysisSet = AnalysisSet::LEAKS;

    fn ask(questions: &mut Questions) -> bool {
        questions.standing = true;
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.standing.then(Self::default)
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, _event: &TimelineEvent, view: View<'_>) {
        self.block(change, view.situation, view.names);
    }

    fn step(&mut self, change: &StepChange, view: View<'_>) {
        self.step(change, view.situation, view.names);
    }

    fn finish(self, view: View<'_>, _end: &mut End<'_>) -> Option<StandingReport> {
        Some(self.finish(view.situation, view.names))
    }
}
