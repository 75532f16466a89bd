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

/// This many lines of the forward pass that grow together are a graph, not that many leaks, even if nobody saw who holds
/// them.
const LINES_OF_A_GRAPH: usize = 3;
/// What the way to a tensor ends with that a graph has saved for its backward pass.
const SAVED_BY_GRAPH: &str = " autograd graph";

/// What caches are called: words in names of variables, attributes and keys.
const CACHE_WORDS: [&[&str]; 6] = [&["cache"], &["caches"], &["cached"], &["kv"], &["memo"], &["past", "key"]];
/// A cache of the language itself.
const FUNCTOOLS_CACHE: &str = "functools cache of ";
/// What an exception's traceback is called in a way.
const TRACEBACK: &str = " > traceback of ";
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
    /// Exceptions are kept, and with their tracebacks the variables of functions that have failed.
    Traceback,
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
    let path = first.held_by.first().map_or("", |held| &held.path);
    let is_held_by_hook = path.contains(" hook on ");
    // Hooks on many modules keep results of many lines; what a graph has saved is kept by whoever keeps the graph.
    if is_held_by_hook && !path.ends_with(SAVED_BY_GRAPH) {
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
            bytes_per_step: sum(same(), |group| group.bytes_per_step),
            bytes: sum(same(), |group| group.bytes),
            blocks: sum(same(), |group| group.count),
        });
    }
    let is_state = first.phase == Some("optimizer") && path.contains(".state > ");
    if is_state || first.site.owner.split('@').any(|level| level == "optimizer_state") {
        return Some(LeakCause::OptimizerStates);
    }
    if is_held_by_hook || is_made_in_hook(&first.site.python) {
        return Some(LeakCause::Hook);
    }
    if path.contains(TRACEBACK) {
        return Some(LeakCause::Traceback);
    }
    is_in_cache(path).then_some(LeakCause::Cache)
}

/// Whether a way leads through something that is called a cache. Files and functions are called so for other reasons.
fn is_in_cache(path: &str) -> bool {
    path.split(" > ").any(|segment| segment.starts_with(FUNCTOOLS_CACHE) || names_in(segment).any(is_name_of_cache))
}

/// The names in one part of a way: a variable, an attribute with its type, keys, what a closure has captured.
fn names_in(segment: &str) -> impl Iterator<Item = &str> {
    let variable = ["local '", "global '"].into_iter().find_map(|kind| segment.strip_prefix(kind)?.split('\'').next());
    let attribute = || segment.strip_prefix("class ").unwrap_or(segment).split([' ', '[', '(']).next();
    let keys = segment.split("['").skip(1).filter_map(|key| key.split('\'').next());
    let captured = segment.rsplit_once(", '").map(|(_, name)| name.trim_end_matches('\''));
    variable.or_else(attribute).into_iter().chain(keys).chain(captured)
}

fn is_name_of_cache(name: &str) -> bool {
    let words = words(name);
    CACHE_WORDS.iter().any(|cache| words.windows(cache.len()).any(|part| part == *cache))
}

/// The words of a name in small letters: `past_key_values`, `KVCache` and `cache2` have 3, 2 and 1.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut letters = name.chars().peekable();
    let mut before = ' ';
    while let Some(letter) = letters.next() {
        let ends_acronym = before.is_uppercase() && letters.peek().is_some_and(|next| next.is_lowercase());
        if !letter.is_alphabetic() || (letter.is_uppercase() && (before.is_lowercase() || ends_acronym)) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (letter.is_alphabetic(), words.last_mut()) {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
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

/// The cause of most of what leaks, if it is in graphs: somebody saw that graphs hold it, or many lines grow together.
pub fn kept_graphs(report: &LeakReport) -> Option<KeptGraphs> {
    let is_of_graph = |group: &&LeakGroup| is_of_forward(group) || is_saved_by_graph(group);
    let first = report.leaks.iter().find(is_of_graph)?;
    let together: Vec<&LeakGroup> = report
        .leaks
        .iter()
        .filter(|group| is_of_graph(group) && group.device == first.device && group.step_range == first.step_range)
        .collect();
    let all_bytes = sum(&report.leaks, |group| group.bytes);
    let bytes = sum(together.iter().copied(), |group| group.bytes);
    let saved = together.iter().copied().filter(|group| is_saved_by_graph(group));
    let saved_bytes = sum(saved, |group| group.bytes);
    let is_graph = together.len() >= LINES_OF_A_GRAPH || saved_bytes >= bytes.div_ceil(2);
    (is_graph && bytes >= all_bytes / 2).then(|| KeptGraphs {
        sites: together.len() as u64,
        bytes_per_step: sum(together.iter().copied(), |group| group.bytes_per_step),
        bytes,
        step_range: first.step_range,
        calling_line: calling_line(first),
        held_by: merged(together.iter().flat_map(|group| &group.held_by)),
    })
}

fn sum<'a>(groups: impl IntoIterator<Item = &'a LeakGroup>, number: impl Fn(&LeakGroup) -> u64) -> u64 {
    groups.into_iter().map(number).fold(0, u64::saturating_add)
}

/// The line that called the model: the innermost one of the program outside of what modules call forward.
fn calling_line(group: &LeakGroup) -> String {
    let frames = group.site.python.iter().filter(|frame| frame.origin == Origin::Program);
    frames.filter(|frame| !is_of_module(frame)).map(Frame::describe).next().unwrap_or_else(|| group.site.line.clone())
}

/// Whether most of the blocks whose holder was seen were saved by a graph for its backward pass.
fn is_saved_by_graph(group: &LeakGroup) -> bool {
    group.held_by.first().is_some_and(|held| held.path.ends_with(SAVED_BY_GRAPH))
}

/// Whether blocks were made by a forward pass, for its backward pass.
pub(crate) fn is_of_forward(group: &LeakGroup) -> bool {
    group.phase == Some("forward") || group.site.owner.split('@').any(|level| level == "activation")
}

#[cfg(test)]
mod tests {
    use msmemscope_event::{Device, Pool};

    use super::*;
    use crate::leaks::DriverVerdict;
    use crate::names::SiteText;

    /// Blocks of one line, held in one way or seen by nobody.
    fn group(line: u32, phase: &'static str, path: &str) -> LeakGroup {
        let function = if phase == "forward" { "Layer.forward" } else { "main" };
        let file = "train.py".to_owned();
        let frame = Frame { function: function.into(), file: file.clone(), line, origin: Origin::Program };
        let caller = Frame { function: "main".into(), file, line: 30, origin: Origin::Program };
        let held_by = (!path.is_empty()).then(|| HeldBy { path: path.into(), blocks: 1, bytes: 64 });
        LeakGroup {
            device: Device::Npu(0),
            pool: Pool::PytorchCaching,
            site: SiteText { line: frame.describe(), python: vec![frame, caller], ..SiteText::default() },
            phase: Some(phase),
            module: String::new(),
            count: 4,
            bytes: 64,
            steps: 4,
            step_range: (2, 5),
            bytes_per_step: 16,
            freed_at_the_end: 0,
            held_by: held_by.into_iter().collect(),
            blocks: Vec::new(),
        }
    }

    fn cause_of(leaks: Vec<LeakGroup>) -> Option<LeakCause> {
        cause(&LeakReport {
            steps: 6,
            few_steps: Vec::new(),
            leaks,
            possible_leaks: Vec::new(),
            retained_once: Vec::new(),
            after_finalize: Vec::new(),
            driver: DriverVerdict::ByStep,
            driver_bytes_of_pools: 0,
            saw_memory: true,
            saw_framework_pool: true,
            is_snapshot: false,
            growth: Vec::new(),
        })
    }

    #[test]
    fn what_a_graph_was_seen_to_hold_is_a_kept_graph_however_few_its_lines() {
        let held = "local 'total' of main (train.py:31) > autograd graph";
        let Some(LeakCause::KeptGraphs(graphs)) = cause_of(vec![group(7, "forward", held), group(8, "forward", "")])
        else {
            panic!("a kept graph");
        };
        assert_eq!((graphs.sites, graphs.bytes, graphs.bytes_per_step, graphs.step_range), (2, 128, 32, (2, 5)));
        assert_eq!((&graphs.calling_line[..], &graphs.held_by[0].path[..]), ("train.py:30 main", held));
        let one_line = cause_of(vec![group(7, "other", held)]);
        assert!(matches!(one_line, Some(LeakCause::KeptGraphs(_))), "functions have no modules: {one_line:?}");
    }

    #[test]
    fn results_that_a_variable_holds_are_no_graph() {
        let held = "local 'outputs' of main (train.py:31) > list of 4";
        assert_eq!(cause_of(vec![group(7, "forward", held)]), None);
        assert_eq!(cause_of(vec![group(7, "forward", held), group(8, "forward", "")]), None);
        let three = (7..10).map(|line| group(line, "forward", "")).collect();
        assert!(matches!(cause_of(three), Some(LeakCause::KeptGraphs(_))), "so many lines have nothing else in common");
    }

    #[test]
    fn what_hooks_and_caches_hold_is_said_to_be_theirs() {
        let hook = "local 'probe' of main (train.py:3) > Probe.outputs via forward hook on blocks.1";
        assert_eq!(cause_of(vec![group(7, "forward", hook)]), Some(LeakCause::Hook));
        let cache = "local 'kv_cache' of main (train.py:3) > list of 4";
        assert_eq!(cause_of(vec![group(7, "other", cache)]), Some(LeakCause::Cache));
    }

    #[test]
    fn exceptions_that_are_kept_keep_the_variables_of_what_has_failed() {
        let path =
            "local 'errors' of main (train.py:3) > list of 4 > traceback of ValueError > local 'kv' of f (a.py:9)";
        assert_eq!(cause_of(vec![group(7, "other", path)]), Some(LeakCause::Traceback));
    }

    #[test]
    fn caches_are_known_by_names_of_variables_and_attributes() {
        for path in [
            "global 'caches' (train.py:3) > dict of 20",
            "global 'srv' (serve.py:15) > Server.past_key_values > list of 4",
            "local 'self' of f (serve.py:15) > KVCache.blocks > list of 4",
            "local 'state' of main (serve.py:15)['memo'] > list of 4",
            "class Layer.keyCache2 > list of 4",
            "functools cache of encode (serve.py:3) > dict of 20",
            "global 'callbacks' (serve.py:3) > list of 4 > closure of f.<locals>.g (serve.py:9), 'kv_pairs'",
        ] {
            assert_eq!(cause_of(vec![group(7, "other", path)]), Some(LeakCause::Cache), "{path}");
        }
    }

    #[test]
    fn files_and_functions_that_are_called_after_caches_are_none() {
        for path in [
            "local 'history' of main (kv.py:3) > list of 4",
            "local 'history' of test_cache (memory_leak.py:3) > list of 4",
            "global 'history' of kv_cache (/home/me/cache/kv_cache.py) > list of 4",
            "local 'callbacks' of main (memo/cache.py:3) > list of 4 > closure of cache.<locals>.f (memo/cache.py:9)",
            "local 'memory' of main (train.py:3) > Replay.memory > deque of 4",
            "global 'cachexia' (kv.py:3) > dict of 4 > list of 4",
        ] {
            assert_eq!(cause_of(vec![group(7, "other", path)]), None, "{path}");
        }
    }
}
