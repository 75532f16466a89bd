//! Memory as a tree: levels are indented, the largest first.

use msmemscope_analysis::grouping::{Grouping, UseNode};

use crate::layout::near;
use crate::table::{Align, Table};
use crate::units::{bytes, counted};

/// Rows of a tree.
const LISTED_ROWS: usize = 30;

/// How a tree is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeStyle<'a> {
    /// What its levels are.
    pub name: &'a str,
    /// Bytes that are 100 %.
    pub whole_bytes: u64,
    /// Levels with a smaller part of the whole are left out, with everything below.
    pub smallest_share: f64,
}

/// A part of a whole in per cent; nothing if there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => String::new(),
        whole => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// Adds a tree. What is left out is counted.
pub(crate) fn push_tree(text: &mut String, style: TreeStyle<'_>, nodes: &[UseNode]) {
    // Names are indented, so they are set off from what their column is called.
    let name = format!("{} ", style.name);
    let has_kernels = [Grouping::Kernel, Grouping::Owner].iter().any(|by| by.word() == style.name);
    let align = if has_kernels { Align::Name } else { Align::Left };
    let columns = [(&*name, align), ("bytes", Align::Right), ("share", Align::Right), ("blocks", Align::Right)];
    let mut table = Table::new(&columns);
    let mut rows = Rows::default();
    rows.push(&mut table, style, nodes, 0);
    text.push_str(&table.render());
    if rows.hidden > 0 {
        text.push_str(&format!("  ... and {} more.\n", counted(rows.hidden, "smaller row")));
    }
}

#[derive(Debug, Default)]
struct Rows {
    shown: usize,
    hidden: u64,
}

impl Rows {
    fn push(&mut self, table: &mut Table, style: TreeStyle<'_>, nodes: &[UseNode], depth: usize) {
        for node in nodes {
            let is_small = (node.bytes as f64) < style.smallest_share * style.whole_bytes as f64;
            if is_small || self.shown >= LISTED_ROWS {
                self.hidden += 1 + levels_below(node);
                continue;
            }
            self.shown += 1;
            let name = format!("{}{}", "  ".repeat(depth), near(&node.name));
            table.row([name, bytes(node.bytes), percent(node.bytes, style.whole_bytes), node.blocks.to_string()]);
            self.push(table, style, &node.children, depth + 1);
        }
    }
}

fn levels_below(node: &UseNode) -> u64 {
    node.children.iter().map(|child| 1 + levels_below(child)).sum()
}
