//! Which leaks have one cause, and so are told as one.
//!
//! What the cause of the largest leak explains belongs together. Of the rest, call sites whose blocks are held by the same
//! variable do: it is that variable that has to let go.

use std::mem::discriminant;

use crate::causes::{LeakCause, cause, is_of_forward};
use crate::holders::HeldBy;
use crate::leaks::{LeakGroup, LeakReport};

/// Call sites that grow for one reason.
#[derive(Clone, Debug)]
pub struct CausedLeaks<'r> {
    /// The reason, if it is known.
    pub cause: Option<LeakCause>,
    /// The call sites, in the order of the report; at least one.
    pub groups: Vec<&'r LeakGroup>,
}

/// The leaks of a report by what causes them, the largest cause first.
pub fn by_cause(report: &LeakReport) -> Vec<CausedLeaks<'_>> {
    let known = cause(report);
    let is_explained = |group: &&LeakGroup| known.as_ref().is_some_and(|cause| explains(cause, report, group));
    let (explained, rest): (Vec<&LeakGroup>, Vec<&LeakGroup>) = report.leaks.iter().partition(is_explained);
    let mut caused: Vec<CausedLeaks<'_>> = match explained.is_empty() {
        true => Vec::new(),
        false => vec![CausedLeaks { cause: known, groups: explained }],
    };
    caused.extend(by_holder(rest.into_iter()).into_iter().map(|groups| CausedLeaks { cause: None, groups }));
    caused.sort_by_key(|leaks| std::cmp::Reverse(sum(&leaks.groups, |group| group.bytes)));
    caused
}

/// Call sites whose blocks the same variable holds, together; the others one by one.
pub fn by_holder<'r>(groups: impl Iterator<Item = &'r LeakGroup>) -> Vec<Vec<&'r LeakGroup>> {
    let mut joined: Vec<Vec<&LeakGroup>> = Vec::new();
    for group in groups {
        let is_same = |others: &&mut Vec<&LeakGroup>| has_same_holder(&others[0].held_by, group);
        match joined.iter_mut().find(is_same) {
            Some(others) => others.push(group),
            None => joined.push(vec![group]),
        }
    }
    joined
}

/// A figure of several call sites together.
pub fn sum(groups: &[&LeakGroup], figure: impl Fn(&LeakGroup) -> u64) -> u64 {
    groups.iter().map(|group| figure(group)).fold(0, u64::saturating_add)
}

/// Whether the cause of the largest leak is that of this call site, too.
fn explains(known: &LeakCause, report: &LeakReport, group: &LeakGroup) -> bool {
    let first = &report.leaks[0];
    match known {
        LeakCause::KeptGraphs(graphs) => {
            let is_part = is_of_forward(group) && group.step_range == graphs.step_range;
            is_part || has_same_holder(&graphs.held_by, group)
        }
        LeakCause::Driver { .. } => group.site.owner == first.site.owner,
        LeakCause::Cache | LeakCause::Traceback => group == first || has_same_holder(&first.held_by, group),
        LeakCause::Hook | LeakCause::OptimizerStates => {
            let alone = LeakReport { leaks: vec![group.clone()], ..LeakReport::default() };
            cause(&alone).is_some_and(|own| discriminant(&own) == discriminant(known))
        }
    }
}

/// Whether whoever holds most of some blocks also holds most of a call site's: the same variable, in whatever way.
fn has_same_holder(holders: &[HeldBy], group: &LeakGroup) -> bool {
    let variable =
        |holders: &[HeldBy]| holders.first().and_then(|held| held.path.split(" > ").next().map(str::to_owned));
    variable(holders).is_some_and(|holder| variable(&group.held_by) == Some(holder))
}
