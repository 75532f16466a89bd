//! Rounds of a job's loop, seen by the operators that come again and again.
//!
//! Code that neither trains with an optimizer nor calls modules shows its loop only by what it computes. One operator is
//! the *anchor*: it comes once in every round, and what comes between two of its calls is the same nearly every time.
//! Operators that come more often belong to a loop inside the round, such as the one over layers: what comes between
//! two of their calls is another thing where the round ends, so that they explain less of the job than the anchor does.
//!
//! The anchor may be anywhere in a round. Where the round starts follows from the first one: its beginning is as far
//! before the first anchor as the job already does there what it does before the next.

use std::cmp::Reverse;
use std::hash::Hasher;

use msmemscope_event::StringId;
use rustc_hash::{FxHashMap, FxHasher};

/// A round is seen this often before it is called one.
const LEAST_ROUNDS: usize = 4;

/// Operators in a round that compute something; fewer are no step but tensors being made.
const LEAST_COMPUTING: usize = 2;

/// Operators that are looked at; a pattern shows long before.
pub(crate) const OPERATORS_LIMIT: usize = 1 << 22;

/// Operators that make, fill, move or look at tensors: what a job does with nothing else is preparing, as when it makes
/// its weights. Names without framework, overload and trailing underscore.
const PREPARING: [&[u8]; 31] = [
    b"_copy_from",
    b"_local_scalar_dense",
    b"_npu_storage_resize",
    b"_pin_memory",
    b"_to_copy",
    b"alias",
    b"arange",
    b"clone",
    b"copy",
    b"detach",
    b"empty",
    b"empty_like",
    b"empty_strided",
    b"empty_with_format",
    b"expand",
    b"fill",
    b"full",
    b"new_empty",
    b"normal",
    b"ones",
    b"rand",
    b"randint",
    b"randn",
    b"requires_grad",
    b"set",
    b"slice",
    b"t",
    b"uniform",
    b"view",
    b"zero",
    b"zeros",
];

/// Where rounds start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorPattern {
    /// The thread that goes around.
    pub thread_id: u32,
    /// The operator that comes once in every round.
    pub anchor: StringId,
    /// The operator that a round starts with.
    pub first: StringId,
    /// Calls of `first` between the anchor and the start of the next round. The anchor itself is none of them.
    pub first_before_start: u32,
}

/// Follows a thread's operators and tells where rounds start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTracker {
    pattern: OperatorPattern,
    /// Calls of the first operator that may still come in this round; none until the anchor has come.
    until_start: Option<u32>,
}

impl RoundTracker {
    pub(crate) fn new(pattern: OperatorPattern) -> Self {
        Self { pattern, until_start: None }
    }

    /// An operator begins. True if it starts a round and another one has been before.
    #[inline]
    pub(crate) fn starts_round(&mut self, thread_id: u32, name: StringId) -> bool {
        let OperatorPattern { anchor, first, first_before_start, .. } = self.pattern;
        if thread_id != self.pattern.thread_id || (name != anchor && name != first) {
            return false;
        }
        let mut starts = false;
        if name == first {
            starts = self.until_start == Some(0);
            self.until_start = self.until_start.and_then(|calls| calls.checked_sub(1));
        }
        if name == anchor {
            self.until_start = Some(first_before_start);
        }
        starts
    }
}

/// Operators of all threads, in their order. Where a module is called they do not count: its calls show its rounds.
#[derive(Debug, Default)]
pub(crate) struct OperatorSequences {
    threads: FxHashMap<u32, OperatorSequence>,
    operators: usize,
}

#[derive(Debug, Default)]
struct OperatorSequence {
    names: Vec<u32>,
    open_modules: u32,
}

impl OperatorSequences {
    pub(crate) fn module_begins(&mut self, thread_id: u32) {
        self.threads.entry(thread_id).or_default().open_modules += 1;
    }

    pub(crate) fn module_ends(&mut self, thread_id: u32) {
        let sequence = self.threads.entry(thread_id).or_default();
        sequence.open_modules = sequence.open_modules.saturating_sub(1);
    }

    pub(crate) fn operator(&mut self, thread_id: u32, name: StringId) {
        let sequence = self.threads.entry(thread_id).or_default();
        if sequence.open_modules == 0 && self.operators < OPERATORS_LIMIT {
            sequence.names.push(name.0);
            self.operators += 1;
        }
    }

    /// The pattern of the busiest thread, if it has one that comes no more often than this. `name` gives the names of
    /// operators.
    pub(crate) fn pattern<'n>(
        &self,
        most_rounds: u64,
        name: impl Fn(StringId) -> Option<&'n [u8]>,
    ) -> Option<OperatorPattern> {
        let (&thread_id, sequence) =
            self.threads.iter().max_by_key(|(thread_id, sequence)| (sequence.names.len(), **thread_id))?;
        let names = &sequence.names;
        let mut computes: FxHashMap<u32, bool> = FxHashMap::default();
        let computing: Vec<bool> = names
            .iter()
            .map(|&id| *computes.entry(id).or_insert_with(|| name(StringId(id)).is_none_or(is_computing)))
            .collect();
        let rounds = find_rounds(names, &computing)?;
        if rounds.count as u64 > most_rounds {
            return None;
        }
        let before_start = &names[rounds.first_anchor + 1..rounds.start + rounds.length];
        let first = names[rounds.start];
        Some(OperatorPattern {
            thread_id,
            anchor: StringId(names[rounds.first_anchor]),
            first: StringId(first),
            first_before_start: before_start.iter().filter(|&&name| name == first).count() as u32,
        })
    }
}

/// Whether an operator does more than prepare tensors.
fn is_computing(name: &[u8]) -> bool {
    let name = name.strip_prefix(b"torch._ops.").unwrap_or(name);
    let name = name.strip_prefix(b"aten.").or_else(|| name.strip_prefix(b"aten::")).unwrap_or(name);
    let name = name.split(|&byte| byte == b'.').next().unwrap_or(name);
    let name = if name.len() > 1 { name.strip_suffix(b"_").unwrap_or(name) } else { name };
    PREPARING.binary_search(&name).is_err()
}

/// Rounds of a sequence of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rounds {
    /// Where the first one starts.
    start: usize,
    /// Where its anchor is.
    first_anchor: usize,
    /// Operators of a usual round.
    length: usize,
    /// How many usual rounds there are.
    count: usize,
}

/// What an operator would explain as the anchor of rounds.
#[derive(Clone, Copy, Debug)]
struct Explanation {
    first_anchor: usize,
    length: usize,
    count: usize,
    /// Calls of the anchor, wherever.
    calls: usize,
    /// Operators that lie in rounds like the usual one.
    explained: usize,
}

fn find_rounds(names: &[u32], computing: &[bool]) -> Option<Rounds> {
    let hashes = SequenceHashes::new(names);
    let computing_before = running_count(computing);
    let mut positions: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (position, &name) in names.iter().enumerate() {
        positions.entry(name).or_default().push(position as u32);
    }
    let candidates: Vec<Explanation> = positions
        .values()
        .filter(|positions| positions.len() >= LEAST_ROUNDS)
        .filter_map(|positions| explain(positions, names.len(), &hashes))
        .filter(|found| {
            let end = found.first_anchor + found.length;
            computing_before[end] - computing_before[found.first_anchor] >= LEAST_COMPUTING
        })
        .collect();
    let most = candidates.iter().map(|found| found.explained).max()?;
    // All operators that come once in a round explain the same but for the first and the last round.
    let explains_most = |found: &&Explanation| found.explained + found.length > most.max(1) - most / 64;
    let unexplained = |found: &Explanation| (names.len() - found.first_anchor).saturating_sub(found.explained);
    let least_unexplained = candidates.iter().filter(explains_most).map(unexplained).min()?;
    // More rounds are better than few, which may be those of a log; an operator that comes nowhere else is better than
    // one that does; and the earliest is nearest to where rounds start.
    let best = candidates
        .iter()
        .filter(explains_most)
        .filter(|found| unexplained(found) <= least_unexplained + names.len() / 64)
        .min_by_key(|found| (Reverse(found.count), found.calls, found.first_anchor))?;
    let span = names.len() - best.first_anchor;
    if best.explained * 2 < span || best.explained * 4 < names.len() {
        return None;
    }
    let mut start = best.first_anchor;
    let earliest = best.first_anchor.saturating_sub(best.length - 1);
    while start > earliest && names[start - 1] == names[start - 1 + best.length] {
        start -= 1;
    }
    Some(Rounds { start, first_anchor: best.first_anchor, length: best.length, count: best.count })
}

/// What the operator at these positions explains, if anything.
fn explain(positions: &[u32], operators: usize, hashes: &SequenceHashes) -> Option<Explanation> {
    let mut kinds: FxHashMap<(u64, usize), (usize, usize)> = FxHashMap::default();
    for pair in positions.windows(2) {
        let (from, to) = (pair[0] as usize, pair[1] as usize);
        let (count, _) = kinds.entry((hashes.of(from, to), to - from)).or_insert((0, from));
        *count += 1;
    }
    let (&(_, length), &(count, first_anchor)) =
        kinds.iter().max_by_key(|((_, length), (count, first))| (count * length, Reverse(*first)))?;
    let tail = operators - positions[positions.len() - 1] as usize;
    let has_tail = tail <= length + length / 8;
    if count + usize::from(has_tail) < LEAST_ROUNDS {
        return None;
    }
    // Some rounds do a little more than usual, such as writing a log.
    let alike: usize = kinds
        .iter()
        .filter(|((_, other), _)| other.abs_diff(length) <= length / 8)
        .map(|((_, other), (count, _))| (other, count))
        .fold((0, count / 4), |(explained, left), (other, &more)| {
            if more == count && *other == length {
                return (explained, left);
            }
            let more = more.min(left);
            (explained + more * other, left - more)
        })
        .0;
    let explained = count * length + alike + if has_tail { tail } else { 0 };
    Some(Explanation { first_anchor, length, count, calls: positions.len(), explained })
}

/// Hashes of all parts of a sequence, each in no time.
struct SequenceHashes {
    /// Hash of everything before a position.
    before: Vec<u64>,
    /// Powers of the base.
    powers: Vec<u64>,
}

impl SequenceHashes {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new(names: &[u32]) -> Self {
        let (mut before, mut powers) = (vec![0], vec![1_u64]);
        for &name in names {
            let mut hasher = FxHasher::default();
            hasher.write_u32(name);
            let hash: u64 = before[before.len() - 1];
            before.push(hash.wrapping_mul(Self::BASE).wrapping_add(hasher.finish() | 1));
            powers.push(powers[powers.len() - 1].wrapping_mul(Self::BASE));
        }
        Self { before, powers }
    }

    fn of(&self, from: usize, to: usize) -> u64 {
        self.before[to].wrapping_sub(self.before[from].wrapping_mul(self.powers[to - from]))
    }
}

/// How many are true before each position.
fn running_count(values: &[bool]) -> Vec<usize> {
    let mut count = 0;
    std::iter::once(0)
        .chain(values.iter().map(|&value| {
            count += usize::from(value);
            count
        }))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Operators as letters: capital ones compute, small ones prepare.
    fn sequences(letters: &str) -> OperatorSequences {
        let mut sequences = OperatorSequences::default();
        for letter in letters.bytes() {
            sequences.operator(7, StringId(u32::from(letter)));
        }
        sequences
    }

    fn name(id: StringId) -> Option<&'static [u8]> {
        if (id.0 as u8).is_ascii_uppercase() { Some(b"torch._ops.aten.mm.default") } else { Some(b"aten.randn.out") }
    }

    /// Where rounds start, without the first, which nobody saw starting.
    fn starts(letters: &str) -> Option<Vec<usize>> {
        let mut tracker = RoundTracker::new(sequences(letters).pattern(u64::MAX, name)?);
        let starts = letters.bytes().map(|letter| tracker.starts_round(7, StringId(u32::from(letter))));
        Some(starts.enumerate().filter(|(_, starts)| *starts).map(|(position, _)| position).collect())
    }

    fn turns(setup: &str, round: &str, count: usize) -> (String, Vec<usize>) {
        let expected = (1..count).map(|turn| setup.len() + turn * round.len()).collect();
        (format!("{setup}{}", round.repeat(count)), expected)
    }

    #[test]
    fn rounds_start_where_the_loop_does() {
        for (setup, round) in [
            ("", "ABC"),
            ("rrrr", "rAB"),
            ("rrrr", "AABC"),
            ("XrYrA", "rABBBBC"),
            ("rrr", "rABCABCABCABCD"),
            ("rrrr", "ABACAD"),
        ] {
            let (letters, expected) = turns(setup, round, 6);
            assert_eq!(starts(&letters), Some(expected), "{setup} ({round})");
        }
    }

    #[test]
    fn a_round_that_does_a_little_more_is_a_round() {
        let letters = format!("rr{}", format!("{}L", "rABCDEFGHIJK".repeat(5)).repeat(6));
        let found = starts(&letters).unwrap();
        assert_eq!(found.len(), 29, "{found:?}");
        assert_eq!(&found[..6], [14, 26, 38, 50, 63, 75]);
    }

    #[test]
    fn what_never_repeats_or_only_prepares_is_no_loop() {
        assert_eq!(starts(""), None);
        assert_eq!(starts("ABCDEFGHIJ"), None);
        assert_eq!(starts("ABCABCABC"), None, "three times may be chance");
        assert_eq!(starts(&"rzn".repeat(50)), None, "weights are made");
        assert_eq!(starts(&"rznA".repeat(50)), None, "and scaled");
        assert_eq!(starts(&format!("{}ABCDEFGH", "rzn".repeat(50))), None);
    }

    #[test]
    fn weights_made_before_do_not_hide_the_loop() {
        let (letters, expected) = turns(&"rMn".repeat(40), "cABABABS", 5);
        assert_eq!(starts(&letters), Some(expected));
    }

    #[test]
    fn operators_inside_modules_and_of_other_threads_do_not_count() {
        let mut sequences = OperatorSequences::default();
        sequences.module_begins(7);
        for letter in "ABC".repeat(9).bytes() {
            sequences.operator(7, StringId(u32::from(letter)));
        }
        sequences.module_ends(7);
        assert_eq!(sequences.pattern(u64::MAX, name), None);
        for letter in "ABC".repeat(9).bytes() {
            sequences.operator(8, StringId(u32::from(letter)));
        }
        let pattern = sequences.pattern(u64::MAX, name).unwrap();
        assert_eq!(pattern.thread_id, 8);
        assert_eq!(sequences.pattern(3, name), None, "a job with three backward passes has no nine steps");
        assert!(!RoundTracker::new(pattern).starts_round(7, pattern.first));
    }

    #[test]
    fn names_are_known_in_all_their_forms() {
        assert!(!is_computing(b"torch._ops.aten.zero_.default"));
        assert!(!is_computing(b"aten::_to_copy"));
        assert!(!is_computing(b"aten.t.default"));
        assert!(is_computing(b"torch._ops.aten.add_.Tensor") && is_computing(b"SelfAttentionOperation"));
        assert!(PREPARING.is_sorted());
    }

    proptest! {
        #[test]
        fn any_round_of_its_own_operators_is_found(
            setup in "[a-z]{0,30}",
            round in "[A-Z][a-z]{0,3}([A-Z]{1,8}[a-z]{0,2}){1,3}",
            count in 4_usize..20,
        ) {
            let (letters, _) = turns(&setup, &round, count);
            let found = starts(&letters);
            prop_assert!(found.is_some(), "{letters}");
            let found = found.unwrap();
            // A round may consist of rounds.
            prop_assert!(found.len() + 1 >= count - 1, "{letters}: {found:?}");
            let gaps: Vec<usize> = found.windows(2).map(|pair| pair[1] - pair[0]).collect();
            prop_assert!(gaps.iter().filter(|gap| round.len() % **gap == 0).count() * 2 >= gaps.len(), "{letters}: {found:?}");
        }

        #[test]
        fn any_sequence_is_taken(names in prop::collection::vec(0_u32..6, 0..300), seed: u64) {
            let computing: Vec<bool> = names.iter().map(|name| seed >> name & 1 == 1).collect();
            if let Some(rounds) = find_rounds(&names, &computing) {
                prop_assert!(rounds.start <= rounds.first_anchor && rounds.first_anchor < rounds.start + rounds.length);
                prop_assert!(rounds.start + rounds.length <= names.len());
            }
        }
    }
}
