//! Why memory ran out, in one word and in sentences, and what to do about it.
//!
//! The question is always the same: what, together with the memory that is free anyway, would have made this
//! very allocation fit? What leaks; what one line of code holds more and more of, if there are no steps to tell
//! a leak by; what the framework holds but cannot use (fragmentation); what other processes hold. If none of them
//! would have been enough, the job needs more than there is. The order matters: a leak explains everything behind
//! it, and what the job can do itself comes before what others would have to do.

use msmemscope_event::{Pool, SnapshotNumbers};
use serde::Serialize;

use crate::gaps::{LARGEST_SMALL_BLOCK_BYTES, SMALL_SEGMENT_BYTES, SegmentUse};
use crate::out_of_memory::{CardState, Failure, PoolThen};
use crate::text::bytes;

/// Others must hold at least this part of what the job holds to be called the reason: every card
/// keeps some memory for itself.
const SMALLEST_PART_OF_OTHERS: u64 = 10;
/// Lines that grow must hold at least this part of what frameworks use to be called the reason.
const SMALLEST_PART_OF_GROWTH: u64 = 2;

/// Why memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Memory that leaks would have been enough.
    Leak,
    /// There are too few steps to tell a leak, but one line of code has more and more blocks.
    Growth,
    /// Memory the framework holds unused would have been enough.
    Fragmentation,
    /// Without the other processes on the card it would have been enough.
    OtherProcesses,
    /// The job needs more than there is.
    Demand,
    /// The job has forbidden itself to use more of the card.
    OwnLimit,
    /// The driver refused although the card had enough memory free.
    Driver,
}

/// How the framework allocates, as far as known.
#[derive(Clone, Debug, Default)]
pub struct AllocatorSettings {
    /// Physical memory is mapped piecewise.
    pub has_expandable_segments: bool,
    /// Variables of the job, `NAME=value` each on a line.
    pub stated: String,
}

impl AllocatorSettings {
    fn value(&self, name: &str) -> Option<&str> {
        let value = self.stated.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    /// The options of the caching allocator.
    fn options(&self) -> Option<(&'static str, &str)> {
        const NAMES: [&str; 2] = ["PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
        NAMES.into_iter().find_map(|name| Some((name, self.value(name)?)))
    }

    fn is_uncached(&self) -> bool {
        self.value("PYTORCH_NO_NPU_MEMORY_CACHING").is_some_and(|value| value != "0")
    }
}

/// Says why memory ran out and what to do.
pub(crate) fn judge(failure: &mut Failure, card: Option<CardState>, settings: &AllocatorSettings) {
    let requested = failure.requested_bytes;
    let idle: u64 = failure.pools.iter().map(PoolThen::idle_bytes).fold(0, u64::saturating_add);
    let used: u64 = failure.pools.iter().map(|pool| pool.used_bytes).fold(0, u64::saturating_add);
    let others = card.map_or(0, |card| card.others_bytes);
    let total = card.map_or(0, |card| card.total_bytes);
    let free = failure.free_bytes.unwrap_or(0);
    let growing = failure.growing.as_ref().map_or(0, |growing| growing.bytes);
    describe(failure, card, others);
    let would_fit_with = |bytes: u64| bytes > 0 && bytes.saturating_add(free) >= requested;
    failure.verdict = if free >= requested {
        Verdict::Driver
    } else if would_fit_with(failure.leaked_bytes) {
        Verdict::Leak
    } else if would_fit_with(growing) && growing >= used / SMALLEST_PART_OF_GROWTH {
        Verdict::Growth
    } else if would_fit_with(idle) {
        Verdict::Fragmentation
    } else if would_fit_with(others) && others > failure.process_bytes / SMALLEST_PART_OF_OTHERS {
        Verdict::OtherProcesses
    } else {
        Verdict::Demand
    };
    match failure.verdict {
        Verdict::Leak => leak(failure),
        Verdict::Growth => growth(failure, used),
        Verdict::Fragmentation => fragmentation(failure, idle, settings),
        Verdict::OtherProcesses => other_processes(failure, others),
        Verdict::OwnLimit => {}
        Verdict::Driver => driver(failure, free),
        Verdict::Demand if total > 0 && requested > total => larger_than_the_card(failure, total),
        Verdict::Demand => demand(failure, idle, settings),
    }
}

/// Whether PyTorch asked for a segment for small blocks: it asks for this very size for nothing else.
fn is_for_small_blocks(failure: &Failure) -> bool {
    failure.requested_bytes == SMALL_SEGMENT_BYTES
        && failure.pools.iter().any(|pool| pool.pool == Pool::PytorchCaching && pool.gaps.small.segments > 0)
}

/// Says that PyTorch refused without asking the driver, which it does if the job has set a limit.
pub(crate) fn own_limit(failure: &mut Failure, numbers: &SnapshotNumbers) {
    failure.verdict = Verdict::OwnLimit;
    failure.explanation.extend([
        format!("PyTorch refused memory on device {} without asking the driver for it.", failure.device),
        format!(
            "It held {} then; of the {} of the card {} were free.",
            bytes(numbers.reserved_bytes),
            bytes(numbers.total_bytes),
            bytes(numbers.free_bytes)
        ),
        "So it was a limit that the job has set itself: torch.npu.set_per_process_memory_fraction, or a setting of \
         the allocator. The error message of PyTorch names the request and the limit (\"allowed\")."
            .to_owned(),
    ]);
    failure
        .advice
        .push("Raise the fraction in set_per_process_memory_fraction, or look at what holds memory below.".to_owned());
}

fn describe(failure: &mut Failure, card: Option<CardState>, others: u64) {
    let purpose = match is_for_small_blocks(failure) {
        true => format!(", a segment for blocks of up to {}", bytes(LARGEST_SMALL_BLOCK_BYTES)),
        false => String::new(),
    };
    let asked = format!(
        "{} was asked for {} on device {}{purpose}.",
        failure.function,
        bytes(failure.requested_bytes),
        failure.device
    );
    let held = format!("This process holds {} from the driver there.", bytes(failure.process_bytes));
    failure.explanation.extend([asked, held]);
    if let Some(card) = card.filter(|card| card.total_bytes > 0) {
        failure.explanation.push(format!(
            "The card has {}: {} in use, {} of it by other processes or the system, and {} free.",
            bytes(card.total_bytes),
            bytes(card.used_bytes_now(failure.process_bytes)),
            bytes(others),
            bytes(failure.free_bytes.unwrap_or(0))
        ));
    }
}

fn leak(failure: &mut Failure) {
    failure.explanation.push(format!(
        "{} are held by call sites that keep more blocks with every step: a leak. Without them it would have fitted.",
        bytes(failure.leaked_bytes)
    ));
    failure.advice.push("Free what the leak report lists; its first call site grows fastest.".to_owned());
}

fn growth(failure: &mut Failure, used: u64) {
    let Some(growing) = &failure.growing else { return };
    let since = failure.timestamp_ns.saturating_sub(growing.since_ns);
    let line = &growing.site.line;
    let what = format!(
        "{} blocks of {} come from one place, {line}, and are alive. They have become more and more since {} before \
         the failure.",
        growing.blocks,
        bytes(growing.block_bytes),
        duration(since)
    );
    let share = format!(
        "Places that grow like this hold {} of the {} in use. Without them it would have fitted.",
        bytes(growing.bytes),
        bytes(used)
    );
    let advice = format!(
        "Look at {line}: if its blocks are not all needed at once, something keeps them, such as a list or a graph. \
         Mark steps (msmemscope.step()) to be sure."
    );
    failure.explanation.extend([what, share]);
    failure.advice.push(advice);
    failure.advice.push("If all of them are needed: use smaller batches, or recompute activations.".to_owned());
}

/// A time span for people.
fn duration(nanoseconds: u64) -> String {
    match nanoseconds as f64 / 1e9 {
        seconds if seconds >= 120.0 => format!("{:.0} minutes", seconds / 60.0),
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.1} ms", seconds * 1e3),
    }
}

/// Chooses segments of one kind.
type KindOfSegment = fn(&PoolThen) -> SegmentUse;

/// What the framework holds but does not use, where, and why that was no room for the request.
fn unused_memory(failure: &Failure, idle: u64) -> Vec<String> {
    let mut said = vec![format!("The framework holds {} that no tensor uses.", bytes(idle))];
    let gaps = |of: KindOfSegment| failure.pools.iter().map(of).filter(|of| of.segments > 0);
    let largest = |of| gaps(of).map(|of| of.largest_gap_bytes).max();
    let sum = |of| gaps(of).map(|of| of.gap_bytes).fold(0, u64::saturating_add);
    let small: KindOfSegment = |pool| pool.gaps.small;
    let large: KindOfSegment = |pool| pool.gaps.large;
    if is_for_small_blocks(failure) {
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
                "Its largest gap has {}, which would be enough: it belongs to another stream, or may not be split.",
                bytes(gap)
            ),
            false => format!("Its largest gap for blocks of this size has {}.", bytes(gap)),
        });
    }
    let segments: u64 = failure.pools.iter().map(|pool| pool.gaps.free_segments).sum();
    if segments > 0 {
        let free: u64 = failure.pools.iter().map(|pool| pool.gaps.free_segment_bytes).fold(0, u64::saturating_add);
        let noun = if segments == 1 { "segment was" } else { "segments were" };
        said.push(format!("{segments} {noun} entirely free ({}) and could be given back.", bytes(free)));
    }
    said
}

fn fragmentation(failure: &mut Failure, idle: u64, settings: &AllocatorSettings) {
    let said = unused_memory(failure, idle);
    failure.explanation.extend(said);
    failure.explanation.push("So it is fragmentation: it would have fitted if the gaps were together.".to_owned());
    let options = settings.options();
    let is_expandable = settings.has_expandable_segments
        || options.is_some_and(|(_, options)| options.to_lowercase().contains("expandable_segments:true"));
    failure.advice.push(match (is_expandable, options) {
        (true, _) => {
            "Expandable segments are in use already; look for long-lived blocks between short-lived ones, and \
             allocate what lives long first."
                .to_owned()
        }
        (false, Some((name, options))) => {
            format!("Add expandable_segments:True to {name} (now {options}), so that gaps can be joined.")
        }
        (false, None) => "Set PYTORCH_NPU_ALLOC_CONF=expandable_segments:True, so that gaps can be joined.".to_owned(),
    });
    failure.advice.push("Call torch.npu.empty_cache() after phases with other tensor sizes.".to_owned());
}

fn other_processes(failure: &mut Failure, others: u64) {
    failure
        .explanation
        .push(format!("Other processes hold {} of the card; without them it would have fitted.", bytes(others)));
    failure.advice.push("Look for other jobs on this card (npu-smi info), or use another card.".to_owned());
}

fn driver(failure: &mut Failure, free: u64) {
    failure.explanation.push(format!(
        "The {} that were free should have been enough: the driver refused for another reason, such as memory that is \
         in pieces or of another page size.",
        bytes(free)
    ));
    failure.advice.push("Look at the log of the driver (plog) for the reason of the refusal.".to_owned());
}

/// Nothing the job holds matters if the request could not even have an empty card.
fn larger_than_the_card(failure: &mut Failure, total_bytes: u64) {
    let requested = bytes(failure.requested_bytes);
    failure.explanation.push(format!(
        "The request alone, {requested}, is larger than the whole card: it can never fit, whatever is freed."
    ));
    let place = match failure.site.is_known() {
        true => format!(" at {}", failure.site.line),
        false => String::new(),
    };
    failure.advice.push(format!(
        "Look at the size that is asked for{place}: {requested} at once are more than the {} of the card. Ask for \
         less, or in parts.",
        bytes(total_bytes)
    ));
}

fn demand(failure: &mut Failure, idle: u64, settings: &AllocatorSettings) {
    let free = match failure.free_bytes {
        Some(free) => format!(", with the {} that were free,", bytes(free)),
        None => String::new(),
    };
    failure.explanation.push(format!(
        "Neither leaks ({}) nor unused memory of the framework ({}) would have been enough{free} for the {} that \
         were asked for.",
        bytes(failure.leaked_bytes),
        bytes(idle),
        bytes(failure.requested_bytes)
    ));
    let largest = failure.owners.iter().find(|owner| !owner.owner.starts_with("CANN")).or(failure.owners.first());
    if let Some(owner) = largest {
        failure.explanation.push(format!("The largest owner is {} with {}.", owner.owner, bytes(owner.bytes)));
    }
    let owner = largest.map_or("", |owner| owner.owner.as_str());
    let has_part = |part: &str| owner.split('@').any(|level| level == part);
    let advice = if has_part("activation") {
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
    failure.advice.push(advice.to_owned());
    if settings.is_uncached() {
        failure.advice.push(
            "The caching allocator is off (PYTORCH_NO_NPU_MEMORY_CACHING); every tensor is rounded up to whole pages."
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_job_are_understood() {
        let settings = AllocatorSettings {
            has_expandable_segments: false,
            stated: "PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64\nPYTORCH_NO_NPU_MEMORY_CACHING=1\nEMPTY=\n".into(),
        };
        assert_eq!(settings.options(), Some(("PYTORCH_NPU_ALLOC_CONF", "max_split_size_mb:64")));
        assert!(settings.is_uncached());
        assert_eq!(settings.value("EMPTY"), None);
        assert_eq!(AllocatorSettings::default().options(), None);
    }
}
