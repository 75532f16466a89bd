//! What stands in memory and should not, though it is no leak, in words.

use msmemscope_analysis::Answers;
use msmemscope_analysis::causes::{LeakCause, cause};
use msmemscope_analysis::gaps::LARGEST_SMALL_BLOCK_BYTES;
use msmemscope_analysis::out_of_memory::OutOfMemoryReport;
use msmemscope_analysis::pieces::Pieces;
use msmemscope_analysis::standing::{DoubledStates, KeptGradients, Swelling};
use msmemscope_event::Pool;

use crate::causes::{Cause, CauseKind};
use crate::holders;
use crate::layout::near;
use crate::units::{bytes, counted};
use crate::verdict::joining_gaps;

/// What stands, one entry per cause. States that leak have been told as a leak; where memory ran out, pieces are told with
/// the reason.
pub(crate) fn causes(answers: &Answers) -> Vec<Cause> {
    let Some(report) = &answers.standing else { return Vec::new() };
    let decisive = answers.out_of_memory.as_ref().and_then(OutOfMemoryReport::decisive);
    let ran_out = decisive.is_some_and(|failure| !failure.recovered);
    let is_leak_of_states = answers.leaks.as_ref().and_then(cause) == Some(LeakCause::OptimizerStates);
    let swelling = report.swelling.split_first().map(|(first, others)| swelling(first, others));
    let states = report.doubled_states.as_ref().filter(|_| !is_leak_of_states).map(states);
    let gradients = report.kept_gradients.as_ref().map(gradients);
    let pieces = report.pieces.as_ref().filter(|_| !ran_out).map(pieces);
    [swelling, states, gradients, pieces].into_iter().flatten().collect()
}

fn swelling(found: &Swelling, others: &[Swelling]) -> Cause {
    let ((first_step, first_bytes), (last_step, last_bytes)) = (found.first, found.last);
    let what = match found.pool {
        Pool::PytorchWorkspace => "the workspace of operators (scratch memory) becomes larger and larger",
        _ => "a tensor becomes larger with every step",
    };
    let each = if found.pool == Pool::PytorchWorkspace { "per step" } else { "each time" };
    let more = match others {
        [] => String::new(),
        [other] => format!(" So does what is {}.", made(other)),
        [first, rest @ ..] => format!(" So do {} others, first of all what is {}.", rest.len() + 1, made(first)),
    };
    let sentence = format!(
        "Growth: {what}, {} {each}, from {} in step {first_step} to {} in step {last_step}, {}.{}{more}",
        bytes(found.bytes_per_step),
        bytes(first_bytes),
        bytes(last_bytes),
        made(found),
        holders::sentence(&found.held_by)
    );
    let advice = match found.pool {
        Pool::PytorchWorkspace => {
            "Operators ask for more workspace with every step: look for shapes that grow, and bring them to fixed sizes."
        }
        _ if !is_joining(&found.site.operator) => {
            "Shapes grow with every step: bring them to fixed sizes (padding), or limit what they are made from."
        }
        _ => {
            "Something is joined with its earlier self (torch.cat) with every step. Limit its length (a sliding window, a \
             cache of fixed size), or drop it when its sequence is done."
        }
    };
    Cause {
        device: Some(found.device),
        pool: Some(found.pool),
        advice: vec![advice.to_owned()],
        ..Cause::new(CauseKind::Growth, sentence, last_bytes).at(&found.site).held_by(&found.held_by)
    }
}

/// The line that has made something. Workspace is asked for on a thread of PyTorch's own, on which no line runs.
fn made(found: &Swelling) -> String {
    match found.site.is_known() {
        true => format!("allocated at {}", near(&found.site.line)),
        false => "allocated by lines that were not recorded".to_owned(),
    }
}

/// Whether an operator joins tensors; one that is not known may.
fn is_joining(operator: &str) -> bool {
    const WORDS: [&str; 4] = ["cat", "stack", "append", "pad"];
    operator.is_empty() || operator.split(['.', ':', '_']).any(|word| WORDS.contains(&word) || word.ends_with("stack"))
}

fn states(found: &DoubledStates) -> Cause {
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
    let sentence = format!(
        "Waste: optimizer states exist {times}, {} of {} too many, made at {}.{}",
        bytes(found.surplus_bytes),
        bytes(found.bytes),
        made.join(" and at "),
        holders::sentence(&found.held_by)
    );
    let advice = "Give every parameter to one optimizer only. Where a new optimizer takes over drop the old one, also from \
                  schedulers and lists.";
    Cause {
        device: Some(found.device),
        line: found.lines.first().cloned(),
        advice: vec![advice.to_owned()],
        ..Cause::new(CauseKind::DoubledStates, sentence, found.surplus_bytes).held_by(&found.held_by)
    }
}

fn gradients(found: &KeptGradients) -> Cause {
    let share = found.bytes as f64 * 100.0 / found.peak_bytes.max(1) as f64;
    let sentence = format!(
        "Waste: gradients of {} stay through every forward pass, which is {share:.0} % of the peak.{}",
        bytes(found.bytes),
        holders::sentence(&found.held_by)
    );
    let advice = "Call optimizer.zero_grad() right after optimizer.step(), and without set_to_none=False: gradients are then \
                  freed until the next backward pass makes them.";
    Cause {
        device: Some(found.device),
        advice: vec![advice.to_owned()],
        ..Cause::new(CauseKind::KeptGradients, sentence, found.bytes).held_by(&found.held_by)
    }
}

fn pieces(found: &Pieces) -> Cause {
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
    let sentence = format!(
        "Waste: fragmentation of {class}: {} of {} that the pool held lay in {} of at most {}, too small for the {asked}.{between}",
        bytes(found.bytes),
        bytes(found.reserved_bytes),
        counted(found.count, "gap"),
        bytes(found.largest_bytes)
    );
    let cause = Cause::new(CauseKind::Pieces, sentence, found.bytes).at(&found.requested_at);
    Cause {
        device: Some(found.device),
        pool: Some(found.pool),
        count: Some(found.count),
        is_of_one_line: false,
        held_by: found.kept_apart_by.as_ref().and_then(|kept| kept.held_by.first()).map(|held| held.path.clone()),
        advice: vec![joining_pieces(found)],
        ..cause
    }
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
