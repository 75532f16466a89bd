//! Findings that belong together: one cause may make many lines grow.
//!
//! A graph of autograd that is kept holds everything that its forward pass saved for backward. Every line of the model
//! then grows by the same steps, and none of them is to blame. What else the blocks of a leak have in common says what
//! kind of mistake it is: a hook that keeps what it sees, a cache, optimizers that are made again and again, or a part of
//! the driver.

use serde::Serialize;

use crate::holders::{HeldBy, merged};
use crate::installation::Origin;
use crate::leaks::{LeakGroup, LeakReport};
use crate::names::Frame;

/// This many lines of the forward pass that grow together are a graph, not that many leaks.
const LINES_OF_A_GRAPH: usize = 3;

/// Parts of names that caches have.
const CACHE_WORDS: [&str; 4] = ["cache", "past_key", "kv", "memo"];
/// What modules call, and hooks with it.
const MODULE_FILE: &str = "torch/nn/modules/module.py";

/// What kind of mistake a leak is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "cause")]
pub enum LeakCause {
    /// Graphs of steps are kept whole.
    KeptGraphs(KeptGraphs),
    /// A hook on a module keeps what it sees.
    Hook,
    /// A cache is never emptied.
    Cache,
    /// States of optimizers that were made anew, while the old ones are kept.
    OptimizerStates,
    /// A module of the driver takes more and more, outside of all pools.
    Driver {
        /// The module, such as `HCCL`.
        module: String,
        /// Growth of all its call sites together.
        bytes_per_step: u64,
        /// What they hold by now.
        bytes: u64,
        /// Blocks of all of them.
        blocks: u64,
    },
}

/// The cause of the largest leak, if what is known of it says one.
pub fn cause(report: &LeakReport) -> Option<LeakCause> {
    let first = report.leaks.first()?;
    let path = first.held_by.first().map_or(String::new(), |held| held.path.to_lowercase());
    let is_held_by_hook = path.contains(" hook on ");
    // Hooks on many modules keep results of many lines; what a graph has saved is kept by whoever keeps the graph.
    if is_held_by_hook && !path.ends_with(" autograd graph") {
        return Some(LeakCause::Hook);
    }
    if let Some(graphs) = kept_graphs(report) {
        return Some(LeakCause::KeptGraphs(graphs));
    }
    if let Some(module) = first.site.owner.strip_prefix("CANN@") {
        let module = module.split('@').next().unwrap_or(module).to_owned();
        let same = || report.leaks.iter().filter(|group| group.site.owner == first.site.owner);
        return Some(LeakCause::Driver {
            module,
            bytes_per_step: same().map(|group| group.bytes_per_step).fold(0, u64::saturating_add),
            bytes: same().map(|group| group.bytes).fold(0, u64::saturating_add),
            blocks: same().map(|group| group.count).sum(),
        });
    }
    let is_held_as_state = first.held_by.first().is_some_and(|held| held.path.contains(".state > "));
    let is_state = first.phase == Some("optimizer") && is_held_as_state;
    if is_state || first.site.owner.split('@').any(|level| level == "optimizer_state") {
        return Some(LeakCause::OptimizerStates);
    }
    if is_held_by_hook || is_made_in_hook(&first.site.python) {
        return Some(LeakCause::Hook);
    }
    CACHE_WORDS.iter().any(|word| path.contains(word)).then_some(LeakCause::Cache)
}

/// Whether the program's innermost function was called by a module, but is not its forward pass.
fn is_made_in_hook(frames: &[Frame]) -> bool {
    let innermost = frames.iter().position(|frame| frame.origin == Origin::Program);
    let called = innermost.and_then(|index| Some((&frames[index], frames.get(index + 1)?)));
    called.is_some_and(|(frame, caller)| !is_of_module(frame) && caller.file.ends_with(MODULE_FILE))
}

fn is_of_module(frame: &Frame) -> bool {
    matches!(frame.function.rsplit('.').next(), Some("forward" | "__call__"))
}

/// Graphs of steps that are kept whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptGraphs {
    /// Call sites of the forward pass that grow.
    pub sites: u64,
    /// Growth of all of them together.
    pub bytes_per_step: u64,
    /// What they hold by now.
    pub bytes: u64,
    /// First and last of the steps whose graphs are kept.
    pub step_range: (u64, u64),
    /// The line that called the model, and so made the results that somebody keeps.
    pub calling_line: String,
    /// Who holds the graphs, the one that holds most first.
    pub held_by: Vec<HeldBy>,
}

/// The cause of most of what leaks, if many lines have one.
pub fn kept_graphs(report: &LeakReport) -> Option<KeptGraphs> {
    let first = report.leaks.iter().find(|group| is_of_forward(group))?;
    let together: Vec<&LeakGroup> = report
        .leaks
        .iter()
        .filter(|group| is_of_forward(group) && group.device == first.device && group.step_range == first.step_range)
        .collect();
    let all_bytes: u64 = report.leaks.iter().map(|group| group.bytes).fold(0, u64::saturating_add);
    let bytes: u64 = together.iter().map(|group| group.bytes).fold(0, u64::saturating_add);
    (together.len() >= LINES_OF_A_GRAPH && bytes >= all_bytes / 2).then(|| KeptGraphs {
        sites: together.len() as u64,
        bytes_per_step: together.iter().map(|group| group.bytes_per_step).fold(0, u64::saturating_add),
        bytes,
        step_range: first.step_range,
        calling_line: calling_line(first),
        held_by: merged(together.iter().flat_map(|group| &group.held_by)),
    })
}

/// The line that called the model: the innermost one of the program outside of what modules call forward.
fn calling_line(group: &LeakGroup) -> String {
    let frames = group.site.python.iter().filter(|frame| frame.origin == Origin::Program);
    frames.filter(|frame| !is_of_module(frame)).map(Frame::describe).next().unwrap_or_else(|| group.site.line.clone())
}

/// Whether blocks were made by a forward pass, for its backward pass.
fn is_of_forward(group: &LeakGroup) -> bool {
    group.phase == Some("forward") || group.site.owner.split('@').any(|level| level == "activation")
}
