//! What stands in memory and should not, though it is no leak, in words.

use msmemscope_analysis::causes::LeakCause;
use msmemscope_analysis::gaps::LARGEST_SMALL_BLOCK_BYTES;
use msmemscope_analysis::pieces::Pieces;
use msmemscope_analysis::standing::{DoubledStates, KeptGradients, StandingReport, Swelling};
use msmemscope_event::Pool;

use crate::holders;
use crate::layout::{near, push_wrapped};
use crate::units::{bytes, counted};
use crate::verdict::joining_gaps;

/// A sentence per cause. States that leak have been told as a leak; `ran_out` if memory ran out, where pieces are told
/// with the reason.
pub(crate) fn sentences(report: &StandingReport, leak: &Option<LeakCause>, ran_out: bool) -> Vec<String> {
    let swelling = report.swelling.first().map(|first| swelling(first, report.swelling.len() - 1));
    let states = doubled_states(report, leak).map(states);
    let gradients = report.kept_gradients.as_ref().map(gradients);
    let pieces = report.pieces.as_ref().filter(|_| !ran_out).map(pieces);
    [swelling, states, gradients, pieces].into_iter().flatten().collect()
}

/// What to do about each of them.
pub(crate) fn advice(report: &StandingReport, leak: &Option<LeakCause>, ran_out: bool) -> String {
    let swelling = report.swelling.first().map(|first| match first.pool {
        Pool::PytorchWorkspace => {
            "Operators ask for more workspace with every step: look for shapes that grow, and bring them to fixed sizes."
        }
        _ => {
            "Something is joined with its earlier self (torch.cat) with every step. Limit its length (a sliding window, a \
             cache of fixed size), or drop it when its sequence is done."
        }
    });
    let states = doubled_states(report, leak).map(|_| {
        "Give every parameter to one optimizer only. Where a new optimizer takes over drop the old one, also from \
         schedulers and lists."
    });
    let gradients = report.kept_gradients.as_ref().map(|_| {
        "Call optimizer.zero_grad() right after optimizer.step(), and without set_to_none=False: gradients are then freed \
         until the next backward pass makes them."
    });
    let fixed = [swelling, states, gradients].into_iter().flatten().map(str::to_owned);
    let pieces = report.pieces.as_ref().filter(|_| !ran_out).map(joining_pieces);
    let mut text = String::new();
    for line in fixed.chain(pieces) {
        if text.is_empty() {
            text.push_str("What to do:\n");
        }
        push_wrapped(&mut text, &line, "  ");
    }
    text
}

fn doubled_states<'a>(report: &'a StandingReport, leak: &Option<LeakCause>) -> Option<&'a DoubledStates> {
    report.doubled_states.as_ref().filter(|_| *leak != Some(LeakCause::OptimizerStates))
}

fn swelling(found: &Swelling, others: usize) -> String {
    let ((first_step, first_bytes), (last_step, last_bytes)) = (found.first, found.last);
    let what = match found.pool {
        Pool::PytorchWorkspace => "the workspace of operators becomes larger with every step".to_owned(),
        _ => "a tensor becomes larger with every step".to_owned(),
    };
    let more = match others {
        0 => String::new(),
        1 => " So does another one.".to_owned(),
        others => format!(" So do {others} others."),
    };
    format!(
        "Growth: {what}, {} each time, from {} in step {first_step} to {} in step {last_step}, allocated at {}.{}{more}",
        bytes(found.bytes_per_step),
        bytes(first_bytes),
        bytes(last_bytes),
        near(&found.site.line),
        holders::sentence(&found.held_by)
    )
}

fn states(found: &DoubledStates) -> String {
    let times = if found.times == 2 { "twice".to_owned() } else { format!("{} times", found.times) };
    let made: Vec<String> = found
        .lines
        .iter()
        .zip(&found.steps)
        .take(3)
        .map(|(line, step)| match step {
            0 => near(line).to_owned(),
            step => format!("{} in step {step}", near(line)),
        })
        .collect();
    format!(
        "Waste: optimizer states exist {times}, {} of {} too many, made at {}.{}",
        bytes(found.surplus_bytes),
        bytes(found.bytes),
        made.join(" and at "),
        holders::sentence(&found.held_by)
    )
}

fn gradients(found: &KeptGradients) -> String {
    let share = found.bytes as f64 * 100.0 / found.peak_bytes.max(1) as f64;
    format!(
        "Waste: gradients of {} stay through every forward pass, which is {share:.0} % of the peak.{}",
        bytes(found.bytes),
        holders::sentence(&found.held_by)
    )
}

fn pieces(found: &Pieces) -> String {
    let largest_small = bytes(LARGEST_SMALL_BLOCK_BYTES);
    let class = match found.is_of_small_blocks {
        true => format!("blocks of up to {largest_small}"),
        false => format!("blocks over {largest_small}"),
    };
    let step = if found.step > 0 { format!(" in step {}", found.step) } else { String::new() };
    let asked = match found.requested_at.is_known() {
        true => format!("{} asked for at {}{step}", bytes(found.requested_bytes), near(&found.requested_at.line)),
        false => format!("{} asked for{step}", bytes(found.requested_bytes)),
    };
    let between = match &found.kept_apart_by {
        Some(kept) if kept.site.is_known() => format!(
            " They lie between {} allocated at {}.{}",
            counted(kept.blocks, "block"),
            near(&kept.site.line),
            holders::sentence(&kept.held_by)
        ),
        _ => String::new(),
    };
    format!(
        "Waste: fragmentation of {class}: {} of {} that the pool held lay in {} of at most {}, too small for the {asked}.{between}",
        bytes(found.bytes),
        bytes(found.reserved_bytes),
        counted(found.count, "gap"),
        bytes(found.largest_bytes)
    )
}

fn joining_pieces(found: &Pieces) -> String {
    let sizes = match &found.kept_apart_by {
        Some(kept) if kept.site.is_known() => format!(
            "Or allocate what lives long ({}) before what comes and goes, and bring shapes that vary to a few fixed sizes.",
            near(&kept.site.line)
        ),
        _ => "Or bring shapes that vary to a few fixed sizes, so that gaps can be used again.".to_owned(),
    };
    format!("{} {sizes}", joining_gaps(&found.allocator))
}
