//! Why memory ran out and what to do about it, in sentences.

use msmemscope_analysis::gaps::{
    COMMON_SEGMENT_BYTES, LARGEST_COMMON_BLOCK_BYTES, LARGEST_SMALL_BLOCK_BYTES, Room, SegmentUse,
};
use msmemscope_analysis::out_of_memory::{Failure, PoolThen};
use msmemscope_analysis::remedy::Remedy;
use msmemscope_analysis::verdict::{AllocatorSettings, Unusable, Verdict};
use msmemscope_event::Pool;

use crate::findings::owner_words;
use crate::layout::near;
use crate::replay::how_to_set;
use crate::units::{bytes, seconds};

/// How memory in pieces is told to be the reason.
const GAPS_TOGETHER: &str = "So it is fragmentation: it would have fitted if the gaps were together.";

/// A verdict for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// Why, in sentences.
    pub explanation: Vec<String>,
    /// What to do about it.
    pub advice: Vec<String>,
}

/// The reason of a failure.
pub fn reason(failure: &Failure) -> Reason {
    let mut reason = Reason::default();
    let total = failure.card.map_or(0, |(_, total_bytes)| total_bytes);
    match failure.limit_bytes.filter(|_| failure.is_beyond_limit()) {
        Some(limit_bytes) => reason.limited(failure, limit_bytes),
        None if failure.verdict != Verdict::OwnLimit => reason.describe(failure),
        None => {}
    }
    match failure.verdict {
        Verdict::Leak => reason.leak(failure),
        Verdict::Growth => reason.growth(failure),
        Verdict::Fragmentation => reason.fragmentation(failure),
        Verdict::OtherProcesses => reason.other_processes(failure),
        Verdict::OwnLimit => reason.own_limit(failure),
        Verdict::Driver => reason.driver(failure),
        Verdict::Demand if failure.exceeds_card() => reason.larger_than_the_card(failure, total),
        Verdict::Demand => reason.demand(failure),
    }
    // A setting that helps is the first thing to try, unless something is kept that should not be.
    let remedy = failure.remedy.as_ref();
    let is_first = remedy.is_some_and(|remedy| remedy.settings.is_some())
        && !matches!(failure.verdict, Verdict::Leak | Verdict::Growth);
    let position = if is_first { 0 } else { reason.advice.len() };
    if let Some(remedy) = remedy {
        reason.advice.insert(position, computed(remedy, &failure.allocator));
    }
    reason
}

impl Reason {
    /// Says that PyTorch refused without asking the driver, which it does if the job has set a limit.
    fn own_limit(&mut self, failure: &Failure) {
        if failure.is_of_mindspore() {
            return self.own_limit_of_mindspore(failure);
        }
        let Some(numbers) = failure.own_limit else { return };
        if failure.limit_bytes.is_none() {
            self.explanation.extend([
                format!("PyTorch refused memory on device {} without asking the driver for it.", failure.device),
                format!(
                    "It held {} then; of the {} of the card {} were free.",
                    bytes(numbers.reserved_bytes),
                    bytes(numbers.total_bytes),
                    bytes(numbers.free_bytes)
                ),
                "So it was a limit that the job has set itself: torch.npu.set_per_process_memory_fraction, or a setting \
                 of the allocator. The error message of PyTorch names the request and the limit (\"allowed\")."
                    .to_owned(),
            ]);
        }
        self.advice.push(
            "Raise the fraction in set_per_process_memory_fraction, or look at what holds memory below.".to_owned(),
        );
    }

    /// What PyTorch was asked for, and what the job lets it have.
    fn limited(&mut self, failure: &Failure, limit_bytes: u64) {
        self.explanation.push(format!(
            "PyTorch was asked for {} on device {}, and holds {} there. The job lets it have {} \
             (torch.npu.set_per_process_memory_fraction), so it did not ask the driver.",
            bytes(failure.requested_bytes),
            failure.device,
            bytes(failure.reserved_bytes()),
            bytes(limit_bytes)
        ));
        if let (Some((_, total_bytes)), Some(free_bytes)) = (failure.card, failure.free_bytes) {
            self.explanation.push(format!(
                "Of the {} of the card {} were free.",
                bytes(total_bytes),
                bytes(free_bytes)
            ));
        }
    }

    /// Says that MindSpore refused although much of the card was free.
    fn own_limit_of_mindspore(&mut self, failure: &Failure) {
        self.explanation.extend([
            format!("MindSpore's pool refused memory on device {} without asking the driver for it.", failure.device),
            format!(
                "This process held {} from the driver then; of the {} of the card {} were free.",
                bytes(failure.process_bytes),
                bytes(failure.card.map_or(0, |(_, total_bytes)| total_bytes)),
                bytes(failure.free_bytes.unwrap_or(0))
            ),
            "So it was a limit that the job has set itself: mindspore.runtime.set_memory(max_size=...), or \
             max_device_memory of its context."
                .to_owned(),
        ]);
        self.advice.push("Raise max_size in set_memory, or look at what holds memory below.".to_owned());
    }

    fn describe(&mut self, failure: &Failure) {
        let is_of_pytorch = failure.pools.iter().any(|pool| pool.pool == Pool::PytorchCaching);
        let purpose = match failure.requested_bytes {
            _ if failure.is_for_small_blocks() => {
                format!(", a segment for blocks of up to {}", bytes(LARGEST_SMALL_BLOCK_BYTES))
            }
            COMMON_SEGMENT_BYTES if is_of_pytorch && failure.knows_classes() => {
                format!(", a segment for blocks of up to {}", bytes(LARGEST_COMMON_BLOCK_BYTES))
            }
            _ if failure.has_expandable_segments() => ", page by page".to_owned(),
            _ => String::new(),
        };
        let asked_of = match failure.function {
            _ if failure.is_of_mindspore() => format!("{}'s pool", failure.function),
            "PyTorch" => "PyTorch".to_owned(),
            function => format!("The driver ({function})"),
        };
        let asked = match failure.requested_bytes {
            0 => format!(
                "{}'s pool refused memory on device {} without asking the driver for it, and does not say how much was \
                 asked for.",
                failure.function, failure.device
            ),
            requested => {
                format!("{asked_of} was asked for {} on device {}{purpose}.", bytes(requested), failure.device)
            }
        };
        let held = format!("This process holds {} from the driver there.", bytes(failure.process_bytes));
        self.explanation.extend([asked, held]);
        if let Some((_, total_bytes)) = failure.card.filter(|(_, total_bytes)| *total_bytes > 0) {
            self.explanation.push(format!(
                "The card has {}: {} in use, {} of it by other processes or the system, and {} free.",
                bytes(total_bytes),
                bytes(failure.card_used_bytes.unwrap_or(0)),
                bytes(failure.others_bytes),
                bytes(failure.free_bytes.unwrap_or(0))
            ));
        }
    }

    fn leak(&mut self, failure: &Failure) {
        self.explanation.push(format!(
        "{} are held by call sites that keep more blocks with every step: a leak. Without them it would have fitted.",
        bytes(failure.leaked_bytes)
    ));
        self.advice.push("Free what the leak report lists; its first call site grows fastest.".to_owned());
    }

    fn growth(&mut self, failure: &Failure) {
        let Some(growing) = &failure.growing else { return };
        let since = failure.timestamp_ns.saturating_sub(growing.since_ns);
        let line = near(&growing.site.line);
        let what = format!(
            "{} blocks of {} come from one place, {line}, and are alive. They have become more and more since {} before \
         the failure.",
            growing.blocks,
            bytes(growing.block_bytes),
            seconds(since)
        );
        let share = format!(
            "Places that grow like this hold {} of the {} in use. Without them it would have fitted.",
            bytes(growing.bytes),
            bytes(failure.used_bytes())
        );
        let advice = format!(
            "Look at {line}: if its blocks are not all needed at once, something keeps them, such as a list or a graph. \
         Mark steps (msmemscope.step()) to be sure."
        );
        self.explanation.extend([what, share]);
        self.advice.push(advice);
        self.advice.push("If all of them are needed: use smaller batches, or recompute activations.".to_owned());
    }

    fn fragmentation(&mut self, failure: &Failure) {
        self.explanation.extend(unused_memory(failure));
        if failure.is_of_mindspore() {
            self.explanation.push(GAPS_TOGETHER.to_owned());
            self.advice.push("Call mindspore.runtime.empty_cache() after phases with other tensor sizes.".to_owned());
            return;
        }
        match failure.unusable() {
            Unusable::Reserved => self.advice.push(
                "Allocate it on the stream to which the unused memory belongs, or call torch.npu.empty_cache() as long as \
                 nothing else lies there."
                    .to_owned(),
            ),
            Unusable::OnOtherStream => {
                let blocks = blocks_of_no_use(failure);
                let is_whole = failure.segments(Room::OtherStream).largest_gap_bytes >= failure.requested_bytes;
                self.advice.push(match is_whole {
                    true => format!(
                        "Allocate it on the stream to which the unused memory belongs, or free {blocks} before: what holds \
                         nothing is given back."
                    ),
                    false => format!(
                        "Free {blocks} before: what holds nothing is given back. Or use one stream for both, so that each \
                         may have what the other no longer needs."
                    ),
                });
            }
            Unusable::InPrivatePool => self.advice.push(format!(
                "Make graphs and pools of your own (torch.npu.MemPool) smaller, or free {} before.",
                blocks_of_no_use(failure)
            )),
            Unusable::Unsplit => self.advice.push(
                "Raise max_split_size_mb, or call torch.npu.empty_cache() after phases with other tensor sizes.".to_owned(),
            ),
            Unusable::InOtherClass => self.advice.push(format!(
                "Free {} before, or move them together (tensor.clone() after torch.npu.empty_cache()): segments \
                 that hold nothing are given back.",
                blocks_of_no_use(failure)
            )),
            Unusable::InPieces => {
                self.explanation.push(GAPS_TOGETHER.to_owned());
                self.advice.extend(joining(failure));
                self.advice.push("Call torch.npu.empty_cache() after phases with other tensor sizes.".to_owned());
            }
        }
    }

    fn other_processes(&mut self, failure: &Failure) {
        self.explanation.push(format!(
            "Other processes hold {} of the card; without them it would have fitted.",
            bytes(failure.others_bytes)
        ));
        self.advice.push("Look for other jobs on this card (npu-smi info), or use another card.".to_owned());
    }

    fn driver(&mut self, failure: &Failure) {
        self.explanation.push(format!(
        "The {} that were free should have been enough: the driver refused for another reason, such as memory that is \
         in pieces or of another page size.",
        bytes(failure.free_bytes.unwrap_or(0))
    ));
        self.advice.push("Look at the log of the driver (plog) for the reason of the refusal.".to_owned());
    }

    /// Nothing the job holds matters if the request could not even have an empty card.
    fn larger_than_the_card(&mut self, failure: &Failure, total_bytes: u64) {
        let requested = bytes(failure.requested_bytes);
        self.explanation.push(format!(
            "The request alone, {requested}, is larger than the whole card: it can never fit, whatever is freed."
        ));
        let place = match failure.site.is_known() {
            true => format!(" at {}", near(&failure.site.line)),
            false => String::new(),
        };
        self.advice.push(format!(
            "Look at the size that is asked for{place}: {requested} at once are more than the {} of the card. Ask for \
         less, or in parts.",
            bytes(total_bytes)
        ));
    }

    fn demand(&mut self, failure: &Failure) {
        let free = match failure.free_bytes {
            Some(free) => format!(", with the {} that were free,", bytes(free)),
            None => String::new(),
        };
        let forward = failure.forward_bytes();
        match forward {
            None if failure.leaves_much_free() => self
                .explanation
                .push("The job has set no limit, so the request alone must have been larger than that.".to_owned()),
            None if failure.requested_bytes == 0 => self.explanation.push(format!(
                "Neither leaks ({}) nor unused memory of the framework ({}) nor other processes hold much of it.",
                bytes(failure.leaked_bytes),
                bytes(failure.idle_bytes())
            )),
            Some(made) => self.explanation.push(format!(
                "{} of the {} in use were made by this forward pass, which has not reached its backward pass: activations. {} more are held and \
                 not used.",
                bytes(made),
                bytes(failure.used_bytes()),
                bytes(failure.idle_bytes())
            )),
            None => self.explanation.push(format!(
                "Neither leaks ({}) nor unused memory of the framework ({}) would have been enough{free} for the {} that \
                 were asked for.",
                bytes(failure.leaked_bytes),
                bytes(failure.idle_bytes()),
                bytes(failure.requested_bytes)
            )),
        }
        let largest = failure.owners.iter().find(|owner| !owner.owner.starts_with("CANN")).or(failure.owners.first());
        if let Some(owner) = largest.filter(|_| forward.is_none()) {
            self.explanation.push(format!(
                "The largest owner is {} with {}.",
                owner_words(&owner.owner),
                bytes(owner.bytes)
            ));
        }
        let owner = largest.map_or("", |owner| owner.owner.as_str());
        let has_part = |part: &str| owner.split('@').any(|level| level == part);
        let advice = if failure.leaves_much_free() {
            "Look at the size that is asked for: ask for less, or in parts."
        } else if failure.is_of_mindspore() && (forward.is_some() || has_part("activation")) {
            "Use smaller batches or shorter sequences, or recompute activations (recompute() of a cell)."
        } else if forward.is_some() || has_part("activation") {
            "Use smaller batches or shorter sequences, or recompute activations (torch.utils.checkpoint)."
        } else if has_part("optimizer_state") || has_part("gradient") {
            "Shard gradients and optimizer state over cards (FSDP, ZeRO), or use an optimizer with less state."
        } else if has_part("weight") {
            "Shard the weights over cards, or use a smaller type for them."
        } else if owner.starts_with("PTA_WORKSPACE") {
            "Workspace is kept per stream while TASK_QUEUE_ENABLE=2; try TASK_QUEUE_ENABLE=1."
        } else if has_part("kv_cache") {
            "Give the key-value cache less memory (gpu_memory_utilization, max_model_len)."
        } else {
            "Use smaller batches, recompute activations, or shard weights and optimizer state."
        };
        self.advice.push(advice.to_owned());
        if failure.allocator.is_uncached() {
            self.advice.push(
            "The caching allocator is off (PYTORCH_NO_NPU_MEMORY_CACHING); every tensor is rounded up to whole pages."
                .to_owned(),
        );
        }
    }
}

/// What a replay says about other settings. Nobody has measured it.
fn computed(remedy: &Remedy, allocator: &AllocatorSettings) -> String {
    let card = bytes(remedy.card_bytes);
    match &remedy.settings {
        Some(settings) => {
            let now = allocator.options().map_or(String::new(), |(_, options)| format!(" (now {options})"));
            let peak = bytes(remedy.peak_reserved_bytes);
            format!(
                "Computed, not measured: with {}{now} this request would have fitted: peak reserved {peak} of {card}.",
                how_to_set(settings)
            )
        }
        None => format!(
            "Computed, not measured: no setting helps: with none of {} settings of the allocator would this request have \
             fitted into {card}.",
            remedy.tried
        ),
    }
}

/// What to do about the gaps that a request did not fit into, unless a setting has been found that helps. Where none
/// helps none is named.
fn joining(failure: &Failure) -> Option<String> {
    match &failure.remedy {
        None => Some(joining_gaps(&failure.allocator)),
        Some(remedy) if remedy.settings.is_some() => None,
        Some(_) => Some("Allocate what lives long first, so that it does not lie between what goes.".to_owned()),
    }
}

/// The line that holds most where a request cannot go because only blocks of another size do.
fn other_class_line(failure: &Failure) -> Option<&str> {
    failure.other_class_line.as_ref().filter(|line| line.site.is_known()).map(|line| near(&line.site.line))
}

/// The blocks that keep memory where the request cannot have it.
fn blocks_of_no_use(failure: &Failure) -> String {
    match other_class_line(failure) {
        Some(line) => format!("the blocks allocated at {line}"),
        None => "the blocks between these gaps".to_owned(),
    }
}

/// What to do about memory in pieces.
pub(crate) fn joining_gaps(allocator: &AllocatorSettings) -> String {
    match (allocator.is_expandable(), allocator.options()) {
        (true, _) => {
            "Expandable segments are in use already; look for long-lived blocks between short-lived ones, and allocate \
             what lives long first."
                .to_owned()
        }
        (false, Some((name, options))) => {
            format!("Add expandable_segments:True to {name} (now {options}), so that gaps can be joined.")
        }
        (false, None) => "Set PYTORCH_NPU_ALLOC_CONF=expandable_segments:True, so that gaps can be joined.".to_owned(),
    }
}

/// Chooses segments of one kind.
type KindOfSegment = fn(&PoolThen) -> SegmentUse;

/// What the framework holds but does not use, where PyTorch has told of all its segments, and why that was no room.
fn unused_memory_by_class(failure: &Failure) -> Vec<String> {
    let mut said = vec![format!("The framework holds {} that no tensor uses.", bytes(failure.idle_bytes()))];
    let usable = failure.segments(Room::Usable);
    let (blocks, others) = match failure.is_for_small_blocks() {
        true => ("small blocks", ("larger blocks", "small ones never go")),
        false => ("larger blocks", ("small blocks", "a larger one cannot go")),
    };
    if usable.gap_bytes > 0 {
        said.push(format!(
            "{} of it lie in segments for {blocks} of the stream that asked; the largest gap has {}.",
            bytes(usable.gap_bytes),
            bytes(usable.largest_gap_bytes)
        ));
    }
    if failure.unusable() == Unusable::Unsplit {
        said.push("That would be enough, but such a block may not be split (max_split_size_mb).".to_owned());
    }
    let held = |room| match other_class_line(failure).filter(|_| failure.fullest_of_no_use() == room) {
        Some(line) => format!(" (held by blocks allocated at {line})"),
        None => String::new(),
    };
    for room in [Room::OtherSize, Room::OtherStream, Room::Private] {
        let segments = failure.segments(room);
        let (gaps, held) = (bytes(segments.gap_bytes), held(room));
        let sentence = match room {
            _ if segments.gap_bytes == 0 => continue,
            Room::OtherSize => format!("{gaps} lie in gaps of segments for {}{held}, where {}.", others.0, others.1),
            Room::OtherStream => format!(
                "{gaps} belong to another stream{held}, the largest gap has {}: PyTorch gives memory only to the stream for \
                 which it was allocated.",
                bytes(segments.largest_gap_bytes)
            ),
            Room::Private | Room::Usable => format!("{gaps} are kept for graphs or for pools of the job's own{held}."),
        };
        said.push(sentence);
    }
    if failure.has_expandable_segments() && failure.unusable() != Unusable::Unsplit {
        said.push(
            "Segments can grow here (expandable_segments): only pages on which no block lies are given back."
                .to_owned(),
        );
    }
    said
}

/// What the framework holds but does not use, where, and why that was no room for the request.
fn unused_memory(failure: &Failure) -> Vec<String> {
    if failure.knows_classes() {
        return unused_memory_by_class(failure);
    }
    let mut said = vec![format!("The framework holds {} that no tensor uses.", bytes(failure.idle_bytes()))];
    let gaps = |of: KindOfSegment| failure.pools.iter().map(of).filter(|of| of.segments > 0);
    let largest = |of| gaps(of).map(|of| of.largest_gap_bytes).max();
    let sum = |of| gaps(of).map(|of| of.gap_bytes).fold(0, u64::saturating_add);
    let small: KindOfSegment = |pool| pool.gaps.small;
    let large: KindOfSegment = |pool| pool.gaps.large;
    if failure.is_for_small_blocks() {
        let (in_small, in_large) = (sum(small), sum(large));
        said.push(format!(
            "In segments for small blocks {} of it are unused, the largest gap has {}.",
            bytes(in_small),
            bytes(largest(small).unwrap_or(0))
        ));
        if in_large > 0 {
            said.push(format!(
                "{} are unused in segments for larger blocks, where small ones never go.",
                bytes(in_large)
            ));
        }
    } else if let Some(gap) = largest(large) {
        said.push(match gap >= failure.requested_bytes {
            true => format!(
                "Its largest gap has {}, which would be enough, but is unused on another stream (or may not be split, as \
                 max_split_size_mb says).",
                bytes(gap)
            ),
            false => format!("Its largest gap for blocks of this size has {}.", bytes(gap)),
        });
    }
    let in_small = sum(small);
    if in_small > 0 && !failure.is_for_small_blocks() && failure.unusable() == Unusable::InOtherClass {
        let held =
            other_class_line(failure).map_or(String::new(), |line| format!(" (held by blocks allocated at {line})"));
        said.push(format!(
            "{} lie in gaps of segments for small blocks{held}, where a larger one cannot go.",
            bytes(in_small)
        ));
    }
    let segments: u64 = failure.pools.iter().map(|pool| pool.gaps.free_segments).sum();
    if segments > 0 {
        let free: u64 = failure.pools.iter().map(|pool| pool.gaps.free_segment_bytes).fold(0, u64::saturating_add);
        let noun = if segments == 1 { "segment was" } else { "segments were" };
        said.push(format!("{segments} {noun} entirely free ({}) and could be given back.", bytes(free)));
    }
    said
}
