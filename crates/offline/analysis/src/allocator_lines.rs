//! Lines of a program through which everything in it allocates.
//!
//! A program without Python often has a function that takes blocks from its pool and is called from everywhere. Its
//! line is on every stack and tells nothing apart; the lines that call it do. So a line counts as one of an allocator if
//! it is the innermost of the program on half of the stacks, and was called from at least three other lines. What is then
//! innermost is looked at in the same way: allocators call allocators.

use std::hash::Hash;

use msmemscope_event::{Fact, StackId};
use msmemscope_timeline::{FactSource, FactStream};
use rustc_hash::{FxHashMap, FxHashSet};

/// Different callers that make a line one of an allocator.
const CALLERS: usize = 3;
/// Stacks that are looked at, and the records among which they are looked for: the start of a job shows how it allocates.
const STACKS: usize = 512;
const RECORDS: usize = 1 << 18;

/// Native stacks of allocations, each once, from the start of a recording.
pub(crate) fn stacks_of_allocations(recording: &impl FactSource) -> Vec<StackId> {
    let mut seen = FxHashSet::default();
    let mut stacks = Vec::new();
    let mut facts = recording.facts();
    for _ in 0..RECORDS {
        let Some(record) = facts.next() else { break };
        let is_new = record.native_stack.is_some()
            && matches!(record.fact, Fact::Allocation { .. } | Fact::AllocationOnStream { .. })
            && seen.insert(record.native_stack);
        if is_new {
            stacks.push(record.native_stack);
        }
        if stacks.len() == STACKS {
            break;
        }
    }
    stacks
}

/// The lines of allocators among those of the program, which are given for each stack, innermost first.
pub(crate) fn allocator_lines<L: Clone + Eq + Hash>(stacks: &[Vec<L>]) -> FxHashSet<L> {
    let mut found = FxHashSet::default();
    let total = stacks.iter().filter(|lines| !lines.is_empty()).count();
    loop {
        // How many stacks a line is the innermost of, and who called it there.
        let mut innermost: FxHashMap<&L, (usize, FxHashSet<&L>)> = FxHashMap::default();
        for lines in stacks {
            let mut outwards = lines.iter().skip_while(|line| found.contains(*line));
            if let Some(line) = outwards.next() {
                let (count, callers) = innermost.entry(line).or_default();
                *count += 1;
                callers.extend(outwards.next());
            }
        }
        let is_allocator = |(count, callers): &(usize, FxHashSet<&L>)| count * 2 >= total && callers.len() >= CALLERS;
        let more: Vec<L> =
            innermost.iter().filter(|(_, calls)| is_allocator(calls)).map(|(line, _)| (*line).clone()).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(stacks: &[&[&'static str]]) -> Vec<&'static str> {
        let stacks: Vec<Vec<&str>> = stacks.iter().map(|stack| stack.to_vec()).collect();
        let mut found: Vec<&str> = allocator_lines(&stacks).into_iter().collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_line_that_is_called_from_everywhere_is_one_of_an_allocator() {
        let stacks: [&[&str]; 4] =
            [&["pool", "load", "main:1"], &["pool", "forward", "main:2"], &["pool", "backward", "main:3"], &["main:4"]];
        assert_eq!(found(&stacks), ["pool"]);
    }

    #[test]
    fn allocators_that_call_allocators_are_found_too() {
        let stacks: [&[&str]; 4] = [
            &["system", "pool:1", "load", "main:1"],
            &["system", "pool:1", "forward", "main:2"],
            &["system", "pool:1", "backward", "main:3"],
            &["system", "pool:2", "main:4"],
        ];
        // Only two lines call the inner one, so it is what there is to tell.
        assert_eq!(found(&stacks), [""; 0]);
        let stacks: [&[&str]; 5] = [stacks[0], stacks[1], stacks[2], stacks[3], &["system", "scratch", "main:5"]];
        assert_eq!(found(&stacks), ["pool:1", "system"]);
    }

    #[test]
    fn lines_with_few_callers_or_on_few_stacks_are_what_people_look_for() {
        let stacks: [&[&str]; 4] = [&["layer", "forward:1"], &["layer", "forward:2"], &["load", "main"], &["main"]];
        assert_eq!(found(&stacks), [""; 0]);
        let stacks: [&[&str]; 7] =
            [&["copy", "a"], &["copy", "b"], &["copy", "c"], &["load"], &["forward"], &["backward"], &["save"]];
        assert_eq!(found(&stacks), [""; 0]);
        assert_eq!(found(&[&["f", "f", "f"], &[]]), [""; 0], "recursion is no set of callers");
        assert_eq!(found(&[]), [""; 0]);
    }
}
