//! Answers about random histories, checked against models that look at the whole history at once.

use std::collections::BTreeMap;

use msmemscope_analysis::marks::{MarkOutcome, MarkSettings};
use msmemscope_analysis::{Answers, OwnerQuestion, Questions};
use proptest::prelude::*;

use crate::support::Dump;

const OWNERS: [&str; 4] = ["", "PTA@model@weight", "PTA@ops@aten", "PTA@ops@aten@mine"];

#[derive(Clone, Debug)]
enum Action {
    Allocate { owner: usize, size: u64 },
    Free(prop::sample::Index),
    NextStep,
    Mark,
    Refuse,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (0..OWNERS.len(), 1u64..1000).prop_map(|(owner, size)| Action::Allocate { owner, size }),
        5 => any::<prop::sample::Index>().prop_map(Action::Free),
        1 => Just(Action::NextStep),
        1 => Just(Action::Mark),
        1 => Just(Action::Refuse),
    ]
}

/// A block and the actions (by position) at which it was born and ended.
#[derive(Clone, Debug)]
struct Block {
    address: u64,
    size: u64,
    owner: usize,
    born: usize,
    ended: usize,
}

struct History {
    dump: Dump,
    blocks: Vec<Block>,
    /// Positions of step ends, marks and failures.
    step_ends: Vec<usize>,
    marks: Vec<usize>,
    failures: Vec<usize>,
    length: usize,
}

/// Plays actions; steps follow each other without a pause, the last one stays open.
fn play(actions: &[Action]) -> History {
    let mut dump = Dump::new();
    let mut blocks: Vec<Block> = Vec::new();
    let (mut step_ends, mut marks, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let mut address = 0x1000_0000u64;
    dump.step_begin();
    for (now, action) in actions.iter().enumerate() {
        match action {
            Action::Allocate { owner, size } => {
                address += 0x1_0000;
                let attributes = match OWNERS[*owner] {
                    "" => String::new(),
                    owner => format!(",owner:{owner}"),
                };
                dump.malloc_with("PTA", 0, address, *size, &attributes, "");
                blocks.push(Block { address, size: *size, owner: *owner, born: now, ended: usize::MAX });
            }
            Action::Free(index) => {
                let alive: Vec<usize> = (0..blocks.len()).filter(|&at| blocks[at].ended == usize::MAX).collect();
                if !alive.is_empty() {
                    let chosen = alive[index.index(alive.len())];
                    blocks[chosen].ended = now;
                    dump.free("PTA", blocks[chosen].address);
                }
            }
            Action::NextStep => {
                dump.step_end().step_begin();
                step_ends.push(now);
            }
            Action::Mark => {
                dump.mark("here");
                marks.push(now);
            }
            Action::Refuse => {
                dump.refused(1 << 40);
                failures.push(now);
            }
        }
    }
    History { dump, blocks, step_ends, marks, failures, length: actions.len() }
}

impl History {
    /// Blocks alive right after an action.
    fn alive_after(&self, now: usize) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(move |block| block.born <= now && now < block.ended)
    }

    fn used_after(&self, now: usize) -> u64 {
        self.alive_after(now).map(|block| block.size).sum()
    }

    fn owners_after(&self, now: usize) -> BTreeMap<String, (u64, u64)> {
        let mut owners: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for block in self.alive_after(now) {
            let name = if block.owner == 0 { "unknown" } else { OWNERS[block.owner] };
            let (bytes, count) = owners.entry(name.to_owned()).or_default();
            (*bytes, *count) = (*bytes + block.size, *count + 1);
        }
        owners
    }

    fn ask(&self, questions: &Questions) -> Answers {
        self.dump.ask(questions)
    }
}

fn table(uses: &[msmemscope_analysis::decompose::OwnerUse]) -> BTreeMap<String, (u64, u64)> {
    uses.iter().map(|owner| (owner.owner.clone(), (owner.bytes, owner.blocks))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn owners_are_those_alive_at_the_moment(actions in prop::collection::vec(action(), 1..150), step in 1u64..4) {
        let history = play(&actions);
        let question = Some(OwnerQuestion { step: Some(step) });
        let report = history.ask(&Questions { owners: question, ..Questions::default() }).owners.unwrap();
        let Some(pool) = report.pools.first() else {
            prop_assert!(history.blocks.is_empty());
            return Ok(());
        };
        let peak = (0..history.length).map(|now| history.used_after(now)).max().unwrap();
        let peak_at = (0..history.length).find(|&now| history.used_after(now) == peak).unwrap();
        prop_assert_eq!(pool.peak_bytes, peak);
        prop_assert_eq!(table(&pool.at_peak), history.owners_after(peak_at));
        prop_assert_eq!(table(&pool.at_end), history.owners_after(history.length - 1));
        let at_step = history.step_ends.get(step as usize - 1).map(|&now| history.owners_after(now));
        // A pool that nobody has used until then is not there.
        let first = history.blocks.first().map_or(usize::MAX, |block| block.born);
        let at_step = at_step.filter(|_| history.step_ends[step as usize - 1] > first);
        prop_assert_eq!(pool.at_step.as_deref().map(table), at_step);
    }

    #[test]
    fn fluctuation_is_least_by_most_within_a_step(actions in prop::collection::vec(action(), 1..150)) {
        let history = play(&actions);
        let found = history.ask(&Questions { fluctuation: true, ..Questions::default() }).fluctuation.unwrap();
        let first = history.blocks.first().map_or(usize::MAX, |block| block.born);
        let mut ratios: Vec<f64> = Vec::new();
        for pair in history.step_ends.windows(2).filter(|pair| pair[1] > first) {
            // The use the step begins with counts from the first block on; so does every change.
            let begin = pair[0].max(first);
            let uses: Vec<u64> = (begin..pair[1]).map(|now| history.used_after(now)).collect();
            let (least, most) = (*uses.iter().min().unwrap(), *uses.iter().max().unwrap());
            if most > 0 {
                ratios.push(least as f64 / most as f64);
            }
        }
        let smallest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match found.first() {
            Some(pool) if pool.steps > 0 => {
                prop_assert_eq!(pool.steps as usize, ratios.len());
                prop_assert_eq!((pool.smallest.unwrap().ratio, pool.largest.unwrap().ratio), (smallest, largest));
            }
            _ => prop_assert!(ratios.is_empty()),
        }
    }

    #[test]
    fn leaks_between_marks_are_born_after_a_and_alive_at_c(
        actions in prop::collection::vec(action(), 1..150),
        start_index in 0u64..3,
    ) {
        let history = play(&actions);
        let marks = Some(MarkSettings { message: "here".into(), start_index });
        let report = history.ask(&Questions { marks, ..Questions::default() }).marks.unwrap();
        let Some(device) = report.devices.first() else {
            prop_assert!(history.blocks.is_empty() && history.marks.is_empty());
            return Ok(());
        };
        prop_assert_eq!(device.marks as usize, history.marks.len());
        let three = history.marks.get(start_index as usize..start_index as usize + 3);
        let Some(&[a, b, c]) = three else {
            prop_assert_ne!(device.outcome, MarkOutcome::Complete);
            return Ok(());
        };
        let expected: Vec<u64> = history
            .blocks
            .iter()
            .filter(|block| a < block.born && block.born < b && block.ended > c)
            .map(|block| block.address)
            .collect();
        prop_assert_eq!(device.leaks.iter().map(|leak| leak.address).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn failures_list_the_latest_and_the_largest(actions in prop::collection::vec(action(), 1..150)) {
        let history = play(&actions);
        let question = Questions { out_of_memory: Some(4), ..Questions::default() };
        let report = history.ask(&question).out_of_memory.unwrap();
        prop_assert_eq!(report.failures as usize, history.failures.len());
        // All of them are one story; the last one looked at tells it.
        let Some(&last) = history.failures.get(history.failures.len().min(8).wrapping_sub(1)) else {
            prop_assert!(report.details.is_empty());
            return Ok(());
        };
        let failure = &report.details[0];
        let mut alive: Vec<&Block> = history.alive_after(last).collect();
        alive.sort_by_key(|block| std::cmp::Reverse(block.born));
        let recent: Vec<u64> = alive.iter().take(4).map(|block| block.address).collect();
        prop_assert_eq!(failure.recent.iter().map(|block| block.address).collect::<Vec<_>>(), recent);
        let mut sizes: Vec<u64> = alive.iter().map(|block| block.size).collect();
        sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
        sizes.truncate(4);
        prop_assert_eq!(failure.largest.iter().map(|block| block.size_bytes).collect::<Vec<_>>(), sizes);
        let held: u64 = failure.owners.iter().map(|owner| owner.bytes).sum();
        prop_assert_eq!(held, history.used_after(last));
    }
}
