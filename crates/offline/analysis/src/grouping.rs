//! What memory at a moment is broken down by: lines of code, modules, calls, owners, operators, kernels or phases.
//!
//! Everything but lines is a tree: each place has a way through its levels, and every level sums up what is below it.

use std::collections::BTreeMap;

use msmemscope_event::AutogradPhase;
use serde::Serialize;

use crate::names::{Frame, NO_STACK, SiteText, telling_frames};

/// What a breakdown goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// The lines that allocated.
    #[default]
    Line,
    /// The modules that were being called, level by level.
    Module,
    /// The calls that led to the allocation, outermost first.
    CallTree,
    /// Owners, level by level.
    Owner,
    /// The operators that ran.
    Operator,
    /// The kernels launched last before.
    Kernel,
    /// The phases of training.
    Phase,
}

impl Grouping {
    /// All of them, in the words of the option.
    pub const WORDS: [(&'static str, Grouping); 7] = [
        ("line", Grouping::Line),
        ("module", Grouping::Module),
        ("call-tree", Grouping::CallTree),
        ("owner", Grouping::Owner),
        ("operator", Grouping::Operator),
        ("kernel", Grouping::Kernel),
        ("phase", Grouping::Phase),
    ];

    /// What a word of the option says, or what would have been understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::WORDS.iter().find(|(word, _)| *word == text);
        known.map(|(_, grouping)| *grouping).ok_or_else(|| Self::WORDS.map(|(word, _)| word).join(", "))
    }

    /// In the word of the option.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, grouping)| *grouping == self).map_or("line", |(word, _)| word)
    }
}

/// A level of a breakdown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UseNode {
    /// Its name.
    pub name: String,
    /// Bytes of it and everything below.
    pub bytes: u64,
    /// Blocks of it and everything below.
    pub blocks: u64,
    /// Levels below, the largest first.
    pub children: Vec<UseNode>,
}

/// What ways through the levels hold, in bytes and blocks.
pub(crate) type Ways = BTreeMap<Vec<String>, (u64, u64)>;

/// The way of blocks of one place. Owners of a place may differ, so theirs is not known here.
pub(crate) fn way(grouping: Grouping, site: &SiteText, module: &str, phase: &str) -> Vec<String> {
    let or_unknown = |text: &str, unknown: &str| vec![(if text.is_empty() { unknown } else { text }).to_owned()];
    match grouping {
        Grouping::Line | Grouping::Owner => or_unknown(&site.line, "line not known"),
        Grouping::Module if module.is_empty() => or_unknown("", "outside of modules"),
        Grouping::Module => module.split('.').map(str::to_owned).collect(),
        Grouping::Operator if site.operator_place.is_empty() => or_unknown(&site.operator, "no operator"),
        Grouping::Operator => placed_operator(site),
        Grouping::Kernel => or_unknown(&site.kernel, "before the first kernel, or none was recorded"),
        Grouping::Phase => or_unknown(phase, "phase not known"),
        Grouping::CallTree => {
            let frames = if site.python.is_empty() { &site.native } else { &site.python };
            let calls: Vec<String> = telling_frames(frames).into_iter().rev().map(Frame::describe).collect();
            if calls.is_empty() { or_unknown("", NO_STACK) } else { calls }
        }
    }
}

/// Levels of blocks that have no better owner than the pool, by the phase in which they were made.
pub const MADE_IN: [(AutogradPhase, &str); 3] = [
    (AutogradPhase::Forward, "made in forward passes"),
    (AutogradPhase::Backward, "made in backward passes"),
    (AutogradPhase::Optimizer, "made by optimizers"),
];

/// The level of blocks made in a phase, if it says anything.
pub(crate) fn made_in(phase: AutogradPhase) -> Option<&'static str> {
    MADE_IN.iter().find(|(known, _)| *known == phase).map(|(_, level)| *level)
}

/// The way through its graph to an operator, whose name comes last.
fn placed_operator(site: &SiteText) -> Vec<String> {
    let mut levels: Vec<String> = site.operator_place.split('/').map(str::to_owned).collect();
    if let Some(last) = levels.last_mut().filter(|last| !last.contains(&site.operator)) {
        *last = format!("{last} ({})", site.operator);
    }
    levels
}

/// Ways as a tree.
pub fn tree<'a, W, P>(ways: W) -> Vec<UseNode>
where
    W: IntoIterator<Item = (P, u64, u64)>,
    P: IntoIterator<Item = &'a str>,
{
    let mut root = UseNode::default();
    for (levels, bytes, blocks) in ways {
        let mut node = &mut root;
        for level in levels {
            let position = match node.children.iter().position(|child| child.name == level) {
                Some(position) => position,
                None => {
                    node.children.push(UseNode { name: level.to_owned(), ..UseNode::default() });
                    node.children.len() - 1
                }
            };
            node = &mut node.children[position];
            node.bytes = node.bytes.saturating_add(bytes);
            node.blocks += blocks;
        }
    }
    sort(&mut root.children);
    root.children
}

/// The same of ways that have been summed up.
pub(crate) fn tree_of(ways: &Ways) -> Vec<UseNode> {
    tree(ways.iter().map(|(way, (bytes, blocks))| (way.iter().map(String::as_str), *bytes, *blocks)))
}

/// By how much ways hold more than before; those that hold less are left out.
pub(crate) fn increase(before: &Ways, after: Ways) -> Ways {
    let grown = |(way, (bytes, blocks)): (Vec<String>, (u64, u64))| {
        let (old_bytes, old_blocks) = before.get(&way).copied().unwrap_or_default();
        (bytes > old_bytes).then(|| (way, (bytes - old_bytes, blocks.saturating_sub(old_blocks))))
    };
    after.into_iter().filter_map(grown).collect()
}

fn sort(nodes: &mut [UseNode]) {
    nodes.sort_by(|left, right| right.bytes.cmp(&left.bytes).then_with(|| left.name.cmp(&right.name)));
    nodes.iter_mut().for_each(|node| sort(&mut node.children));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groupings_are_words() {
        for (word, grouping) in Grouping::WORDS {
            assert_eq!(Grouping::parse(word), Ok(grouping));
            assert_eq!(grouping.word(), word);
        }
        assert_eq!(Grouping::parse("lines").unwrap_err(), "line, module, call-tree, owner, operator, kernel, phase");
    }
}
