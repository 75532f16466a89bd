//! A flame graph: stacks merged into a tree, with what two moments hold in each node.

use rustc_hash::FxHashMap;

use crate::model::stacks::FrameText;

use super::holds::Held;

/// Nodes that are shown.
const MOST_NODES: usize = 5000;

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    parent: u32,
    frame: u32,
    /// What is held with this frame on the stack: before, and after (or now).
    held: [Held; 2],
    /// The part of it that has no further frame.
    own: [Held; 2],
}

/// A tree of frames.
#[derive(Debug, Default)]
pub(super) struct FlameTree {
    pub(super) frames: Vec<FrameText>,
    numbers: FxHashMap<FrameText, u32>,
    nodes: Vec<Node>,
    children: FxHashMap<(u32, u32), u32>,
}

/// Before, for differences.
pub(super) const BEFORE: usize = 0;
/// Now.
pub(super) const NOW: usize = 1;

/// A node that is shown; parents come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownNode {
    pub(super) parent: i64,
    pub(super) frame: u32,
    pub(super) held: [Held; 2],
    pub(super) own: [Held; 2],
}

impl FlameTree {
    /// A tree with its root only.
    pub(super) fn new() -> Self {
        let mut tree = Self::default();
        let root = FrameText { function: "all".into(), ..FrameText::default() };
        let frame = tree.frame(&root);
        tree.nodes.push(Node { frame, ..Node::default() });
        tree
    }

    fn frame(&mut self, frame: &FrameText) -> u32 {
        if let Some(&number) = self.numbers.get(frame) {
            return number;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.numbers.insert(frame.clone(), number);
        number
    }

    /// Adds what is held by a stack, given from the root of the tree on.
    pub(super) fn add<'f>(&mut self, stack: impl Iterator<Item = &'f FrameText>, moment: usize, held: Held) {
        let mut node = 0u32;
        self.hold(node, moment, held);
        for frame in stack {
            let frame = self.frame(frame);
            let next = self.nodes.len() as u32;
            let child = *self.children.entry((node, frame)).or_insert(next);
            if child == next {
                self.nodes.push(Node { parent: node, frame, ..Node::default() });
            }
            node = child;
            self.hold(node, moment, held);
        }
        let own = &mut self.nodes[node as usize].own[moment];
        (own.bytes, own.blocks) = (own.bytes.saturating_add(held.bytes), own.blocks + held.blocks);
    }

    fn hold(&mut self, node: u32, moment: usize, held: Held) {
        let sum = &mut self.nodes[node as usize].held[moment];
        (sum.bytes, sum.blocks) = (sum.bytes.saturating_add(held.bytes), sum.blocks + held.blocks);
    }

    pub(super) fn total(&self, moment: usize) -> Held {
        self.nodes[0].held[moment]
    }

    /// The largest nodes, parents before children and these by size; nothing below a part of the whole.
    pub(super) fn shown(&self, smallest_share: f64) -> Vec<ShownNode> {
        // No child is larger than its parent, so that parents of large nodes are large.
        let size = |node: u32| {
            let held = &self.nodes[node as usize].held;
            held[BEFORE].bytes.max(held[NOW].bytes)
        };
        let smallest = (size(0) as f64 * smallest_share) as u64;
        let mut order: Vec<u32> =
            (0..self.nodes.len() as u32).filter(|&node| node == 0 || size(node) >= smallest).collect();
        // Equal nodes in the order in which they were made, which has parents first.
        order.sort_by_key(|&node| (u64::MAX - size(node), node));
        order.truncate(MOST_NODES);
        let mut places: FxHashMap<u32, i64> = FxHashMap::default();
        let mut shown = Vec::with_capacity(order.len());
        for node in order {
            let Node { parent, frame, held, own } = self.nodes[node as usize];
            let parent = if node == 0 { -1 } else { places.get(&parent).copied().unwrap_or(0) };
            places.insert(node, shown.len() as i64);
            shown.push(ShownNode { parent, frame, held, own });
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str) -> FrameText {
        FrameText { function: name.into(), ..FrameText::default() }
    }

    #[test]
    fn stacks_share_their_outer_frames() {
        let mut tree = FlameTree::new();
        let (main, f, g) = (frame("main"), frame("f"), frame("g"));
        tree.add([&main, &f].into_iter(), NOW, Held { bytes: 10, blocks: 1 });
        tree.add([&main, &g].into_iter(), NOW, Held { bytes: 30, blocks: 2 });
        tree.add([&main].into_iter(), NOW, Held { bytes: 1, blocks: 1 });
        tree.add([&main, &g].into_iter(), BEFORE, Held { bytes: 5, blocks: 1 });
        let shown = tree.shown(0.0);
        let text: Vec<_> = shown
            .iter()
            .map(|node| {
                (node.parent, &*tree.frames[node.frame as usize].function, node.held[NOW].bytes, node.own[NOW].bytes)
            })
            .collect();
        assert_eq!(text, [(-1, "all", 41, 0), (0, "main", 41, 1), (1, "g", 30, 30), (1, "f", 10, 10)]);
        assert_eq!(tree.total(BEFORE), Held { bytes: 5, blocks: 1 });
        assert_eq!(tree.shown(0.5).len(), 3);
    }
}
