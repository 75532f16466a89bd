//! Why memory ran out, in one word and in sentences, and what to do about it.
//!
//! The question is always the same: what would have made this very allocation fit? A leak that is as
//! large as the request; memory the framework holds but cannot use (fragmentation); what other
//! processes hold. If none of them would have been enough, the job needs more than there is. The order
//! matters: a leak explains everything behind it, and what the job can do itself comes before what
//! others would have to do.

use msmemscope_event::SnapshotNumbers;
use serde::Serialize;

use crate::out_of_memory::{CardState, Failure, PoolThen};
use crate::text::bytes;

/// Others must hold at least this part of what the job holds to be called the reason: every card
/// keeps some memory for itself.
const SMALLEST_PART_OF_OTHERS: u64 = 10;

/// Why memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Memory that leaks would have been enough.
    Leak,
    /// Memory the framework holds unused would have been enough.
    Fragmentation,
    /// Without the other processes on the card it would have been enough.
    OtherProcesses,
    /// The job needs more than there is.
    Demand,
    /// The job has forbidden itself to use more of the card.
    OwnLimit,
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
    let others = card.map_or(0, |card| card.others_bytes);
    let leaked = failure.leaked_bytes;
    describe(failure, card, others);
    failure.verdict = if leaked >= requested && leaked > 0 {
        Verdict::Leak
    } else if idle >= requested && idle > 0 {
        Verdict::Fragmentation
    } else if others >= requested && others > failure.process_bytes / SMALLEST_PART_OF_OTHERS {
        Verdict::OtherProcesses
    } else {
        Verdict::Demand
    };
    match failure.verdict {
        Verdict::Leak => leak(failure),
        Verdict::Fragmentation => fragmentation(failure, idle, settings),
        Verdict::OtherProcesses => other_processes(failure, others),
        Verdict::OwnLimit => {}
        Verdict::Demand => match card.map_or(0, |card| card.total_bytes) {
            total_bytes if total_bytes > 0 && requested > total_bytes => larger_than_the_card(failure, total_bytes),
            _ => demand(failure, idle, settings),
        },
    }
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
    let asked = format!(
        "{} asked for {} on device {} (flag {:#x}).",
        failure.function,
        bytes(failure.requested_bytes),
        failure.device,
        failure.flag
    );
    let held = format!("This process holds {} from the driver there.", bytes(failure.process_bytes));
    failure.explanation.extend([asked, held]);
    if let Some(card) = card.filter(|card| card.total_bytes > 0) {
        failure.explanation.push(format!(
            "The card has {}, {} of it in use, {} by other processes or the system.",
            bytes(card.total_bytes),
            bytes(card.used_bytes_now(failure.process_bytes)),
            bytes(others)
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

fn fragmentation(failure: &mut Failure, idle: u64, settings: &AllocatorSettings) {
    let largest_gap = failure.pools.iter().map(|pool| pool.gaps.largest_gap_bytes).max().unwrap_or(0);
    let gap = match largest_gap {
        0 => String::new(),
        gap => format!(", but its largest gap is {}", bytes(gap)),
    };
    failure.explanation.push(format!(
        "The framework holds {} that no tensor uses{gap}: fragmentation. It would fit if the gaps were together.",
        bytes(idle)
    ));
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
    failure.explanation.push(format!(
        "Neither leaks ({}) nor unused memory of the framework ({}) would have been enough: the job needs more \
         than there is.",
        bytes(failure.leaked_bytes),
        bytes(idle)
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
