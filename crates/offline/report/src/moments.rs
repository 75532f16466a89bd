//! What holds memory at the peak or at another moment, and what grew between two, by line of code or as a tree.

use msmemscope_analysis::grouping::{Grouping, MADE_IN, UseNode};
use msmemscope_analysis::moment::{LinePart, LineUse, MomentReport, PoolIncrease, PoolMoment};
use msmemscope_event::{Device, Pool};

use crate::holders::push_holders;
use crate::layout::{near, push_wrapped};
use crate::table::{Align, Table};
use crate::tree::{TreeStyle, percent, push_tree};
use crate::units::{bytes, seconds, signed_bytes};

/// Rows of a table.
pub(crate) const LISTED_LINES: usize = 10;

/// Levels of a tree with a smaller part of the whole than this are left out.
const SMALLEST_SHARE: f64 = 0.01;

/// A table or tree per pool and moment. Driver memory below a framework's pool is the same memory once more, so it is
/// left out where the device has such a pool.
pub fn moments(report: &MomentReport) -> String {
    let grown = report.grown.as_ref().map(|pools| grown(pools));
    shown(report).map(pool_moment).chain(grown).collect::<Vec<_>>().join("\n")
}

/// The moments that are worth a table.
pub(crate) fn shown(report: &MomentReport) -> impl Iterator<Item = &PoolMoment> {
    let pools: Vec<(Device, Pool)> = report.pools.iter().map(|moment| (moment.device, moment.pool)).collect();
    let is_shown = move |moment: &&PoolMoment| is_worth_a_table(moment.device, moment.pool, &pools);
    report.pools.iter().filter(is_shown).filter(|moment| moment.used_bytes > 0)
}

pub(crate) fn is_worth_a_table(device: Device, pool: Pool, all: &[(Device, Pool)]) -> bool {
    pool != Pool::Hal || !all.iter().any(|(other, pool)| *other == device && is_pool_of_framework(*pool))
}

fn is_pool_of_framework(pool: Pool) -> bool {
    matches!(pool, Pool::PytorchCaching | Pool::Mindspore | Pool::Atb)
}

fn pool_moment(moment: &PoolMoment) -> String {
    let listed = &moment.lines[..moment.lines.len().min(LISTED_LINES)];
    let mut text = String::new();
    push_wrapped(&mut text, &heading(moment), "");
    match moment.by {
        Some(by) => {
            push_tree(&mut text, tree_style(by, moment.used_bytes), &moment.tree);
            let is_of_owners = by == Grouping::Owner.word() && moment.pool == Pool::PytorchCaching;
            if let Some(note) = owner_note(&moment.tree).filter(|_| is_of_owners) {
                push_wrapped(&mut text, note, "  ");
            }
        }
        None => {
            text.push_str(&line_table(listed, moment.used_bytes).render());
            text.push_str(&rest(&moment.lines, moment.other_lines, moment.other_bytes, ("holds", "hold")));
            push_holders(&mut text, listed.iter().flat_map(|line| &line.held_by));
            if moment.pool == Pool::Mindspore && listed.first().is_some_and(|line| !line.site.is_known()) {
                push_wrapped(&mut text, LINES_OF_MINDSPORE, "  ");
            }
        }
    }
    text
}

/// Why blocks of MindSpore have no lines.
pub(crate) const LINES_OF_MINDSPORE: &str = "MindSpore allocates on a thread without Python: call \
    mindspore.runtime.launch_blocking() at the beginning of the script to see lines.";

/// Why some or all of PyTorch's memory has no owner of its own; nothing where it has.
fn owner_note(tree: &[UseNode]) -> Option<&'static str> {
    let has = |wanted: &dyn Fn(&str) -> bool| has_level(tree, wanted);
    match () {
        () if has(&|name| MADE_IN.iter().any(|(_, level)| *level == name)) => Some(
            "Told by who was seen to hold the blocks, and else by when they were made; of every block it is known in \
                 jobs recorded with --analysis=decompose.",
        ),
        () if !has(&|name| name == "weight") => {
            Some("Weights, gradients and optimizer states are told apart in jobs recorded with --analysis=decompose.")
        }
        () => None,
    }
}

fn has_level(tree: &[UseNode], wanted: &dyn Fn(&str) -> bool) -> bool {
    tree.iter().any(|node| wanted(&node.name) || has_level(&node.children, wanted))
}

/// What grew between two moments, pool by pool.
fn grown(pools: &[PoolIncrease]) -> String {
    let all: Vec<(Device, Pool)> = pools.iter().map(|pool| (pool.device, pool.pool)).collect();
    let shown: Vec<String> = pools
        .iter()
        .filter(|pool| is_worth_a_table(pool.device, pool.pool, &all) && pool.from_bytes.max(pool.to_bytes) > 0)
        .map(pool_increase)
        .collect();
    if shown.is_empty() { "Nothing was in use at either moment.\n".to_owned() } else { shown.join("\n") }
}

fn pool_increase(pool: &PoolIncrease) -> String {
    let mut text = String::new();
    let change = pool.to_bytes as i64 - pool.from_bytes as i64;
    let heading = format!(
        "From {} to {} {} on device {} went from {} to {} ({}).",
        moment_words(&pool.from),
        moment_words(&pool.to),
        pool.pool.title(),
        pool.device,
        bytes(pool.from_bytes),
        bytes(pool.to_bytes),
        signed_bytes(change)
    );
    push_wrapped(&mut text, &heading, "");
    let shrunk = match pool.shrunk_lines {
        0 => String::new(),
        1 => format!(" one line holds {} less", bytes(pool.shrunk_bytes)),
        lines => format!(" {lines} lines hold {} less", bytes(pool.shrunk_bytes)),
    };
    if pool.lines.is_empty() {
        let aside = if shrunk.is_empty() { shrunk } else { format!(";{shrunk}") };
        push_wrapped(&mut text, &format!("No line holds more than before{aside}."), "");
        return text;
    }
    let aside = if shrunk.is_empty() { shrunk } else { format!(", while{shrunk}") };
    push_wrapped(&mut text, &format!("What grew, {} in all{aside}:", bytes(pool.grown_bytes)), "");
    match pool.by {
        Some(by) => push_tree(&mut text, tree_style(by, pool.grown_bytes), &pool.tree),
        None => {
            let listed = &pool.lines[..pool.lines.len().min(LISTED_LINES)];
            text.push_str(&line_table(listed, pool.grown_bytes).render());
            text.push_str(&rest(&pool.lines, pool.other_lines, pool.other_bytes, ("grew by", "grew by")));
            push_holders(&mut text, listed.iter().flat_map(|line| &line.held_by));
        }
    }
    text
}

fn tree_style(name: &str, whole_bytes: u64) -> TreeStyle<'_> {
    TreeStyle { name, whole_bytes, smallest_share: SMALLEST_SHARE }
}

/// A moment of the option in words that follow "from" or "to".
fn moment_words(word: &str) -> String {
    match (word, word.strip_prefix("step:")) {
        ("peak", _) => "the peak".to_owned(),
        (_, Some(number)) => format!("the end of step {number}"),
        _ => word.to_owned(),
    }
}

/// Lines of code and what each of them holds of a whole.
pub(crate) fn line_table(lines: &[LineUse], whole_bytes: u64) -> Table {
    let mut columns =
        vec![("bytes", Align::Right), ("share", Align::Right), ("blocks", Align::Right), ("allocated at", Align::Left)];
    let has_operators = lines.iter().any(|line| !line.operators.is_empty());
    let has_modules = lines.iter().any(|line| !line.modules.is_empty());
    let has_phases = lines.iter().any(|line| !line.phases.is_empty());
    // Where there is no room for both the module says more: what runs in it can be seen at the line.
    columns.extend(has_modules.then_some(("module", Align::Minor)));
    columns.extend(has_operators.then_some(("operator", Align::Minor)));
    columns.extend(has_phases.then_some(("phase", Align::Left)));
    let mut table = Table::new(&columns);
    for line in lines {
        let mut cells = vec![
            bytes(line.bytes),
            percent(line.bytes, whole_bytes),
            line.blocks.to_string(),
            near(&line.site.line).to_owned(),
        ];
        if has_modules {
            cells.push(several(&line.modules.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        if has_operators {
            cells.push(several(&line.operators.iter().map(|name| short_operator(name)).collect::<Vec<_>>()));
        }
        if has_phases {
            cells.push(several(&line.phases));
        }
        table.row(cells);
        for part in telling_parts(line, whole_bytes) {
            table.row([
                bytes(part.bytes),
                percent(part.bytes, whole_bytes),
                part.blocks.to_string(),
                format!("  {}", part_words(part)),
            ]);
        }
    }
    table
}

/// A line with this part of the whole or more is taken apart.
const SHARE_TAKEN_APART: f64 = 0.3;
/// Into this many parts.
const LISTED_PARTS: usize = 3;

/// The largest parts of a line that holds much, if it has several.
fn telling_parts(line: &LineUse, whole_bytes: u64) -> &[LinePart] {
    let holds_much = line.bytes as f64 >= whole_bytes as f64 * SHARE_TAKEN_APART;
    match holds_much && line.parts.len() > 1 {
        true => &line.parts[..line.parts.len().min(LISTED_PARTS)],
        false => &[],
    }
}

/// What tells a part of a line from the others, whatever there is room for beside it.
fn part_words(part: &LinePart) -> String {
    match (short_operator(&part.operator), part.module.as_str()) {
        (operator, "") => operator.to_owned(),
        ("", module) => format!("in {module}"),
        (operator, module) => format!("{operator} in {module}"),
    }
}

/// In which step a moment is; nothing without steps.
pub(crate) fn step_words(moment: &PoolMoment) -> Option<String> {
    match (moment.step, moment.is_after_last_step) {
        (0, _) => None,
        (step, false) => Some(format!("step {step}")),
        (step, true) => Some(format!("after step {}", step - 1)),
    }
}

fn heading(moment: &PoolMoment) -> String {
    let when = match (moment.moment.as_str(), step_words(moment)) {
        ("peak", None) => "At the peak".to_owned(),
        ("peak", Some(step)) if moment.is_after_last_step => format!("At the peak {step}"),
        ("peak", Some(step)) => format!("At the peak in {step}"),
        (word, _) => match word.strip_prefix("step:") {
            Some(number) => format!("At the end of step {number}"),
            None => format!("After {word}"),
        },
    };
    format!(
        "{when} ({} of {} on device {}, at {}):",
        bytes(moment.used_bytes),
        moment.pool.title(),
        moment.device,
        seconds(moment.since_start_ns)
    )
}

/// What there is besides the rows of a table; `does` says what one line and several lines do.
fn rest(lines: &[LineUse], other_lines: u64, other_bytes: u64, does: (&str, &str)) -> String {
    let unlisted = lines.get(LISTED_LINES..).unwrap_or_default();
    let more = unlisted.len() as u64 + other_lines;
    let held = bytes(unlisted.iter().map(|line| line.bytes).sum::<u64>() + other_bytes);
    match more {
        0 => String::new(),
        1 => format!("  One more line {} {held}.\n", does.0),
        more => format!("  {more} more lines {} {held}.\n", does.1),
    }
}

/// The first of several, and how many there are besides.
fn several(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    }
}

/// `torch._ops.aten.sum.dim_IntList` is `sum` to people.
pub fn short_operator(name: &str) -> &str {
    match name.strip_prefix("torch._ops.aten.") {
        Some(name) => name.split('.').next().unwrap_or(name),
        None => name.strip_prefix("torch._ops.").unwrap_or(name),
    }
}
