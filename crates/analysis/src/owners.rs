//! The owner of every allocation, in the words that viewers know.
//!
//! Labels give `PTA@weight` or `PTA@ops`; the owner tree of MindStudio Insight knows `PTA@model@weight`
//! and `PTA@ops@aten`. Where a component (such as `fsdp2`) is named the levels stay as they are. A block
//! of the caching allocator that a forward operator made, that is no weight, gradient or optimizer
//! state, and that is alive when the backward pass of its step begins is an activation.

use msmemscope_event::{AutogradPhase, Device, Pool};
use msmemscope_timeline::{
    EventKind, FactSource, OwnerTable, TimelineEvent, TimelineSettings, collect_owners, detect_step_source, run,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::situation::{Situation, StepChange};

const MODEL_PARTS: [&str; 4] = ["weight", "gradient", "optimizer_state", "activation"];
const ACTIVATION: &str = "activation";

/// Owners of all allocations of a process.
#[derive(Debug, Default)]
pub struct Owners {
    /// Index into `texts` plus one, by allocation id.
    by_allocation: Vec<u32>,
    texts: Vec<String>,
}

impl Owners {
    /// The owner of an allocation, if it has one.
    pub fn owner(&self, allocation_id: u64) -> Option<&str> {
        let id = self.owner_id(allocation_id) as usize;
        self.texts.get(id.checked_sub(1)?).map(String::as_str)
    }

    /// A number that is the same for all allocations of one owner; zero without owner.
    #[inline]
    pub fn owner_id(&self, allocation_id: u64) -> u32 {
        let index = usize::try_from(allocation_id).unwrap_or(usize::MAX);
        self.by_allocation.get(index).copied().unwrap_or(0)
    }

    /// Learns the owners of a process: two passes over its facts.
    pub fn collect<S: FactSource>(source: &S) -> Self {
        let labels = collect_owners(source);
        let (activations, allocations) = find_activations(source);
        Self::from_labels(&labels, &activations, allocations)
    }

    fn from_labels(labels: &OwnerTable, activations: &FxHashSet<u64>, allocations: u64) -> Self {
        let mut owners = Self { by_allocation: vec![0; allocations as usize + 1], texts: Vec::new() };
        let mut ids: FxHashMap<(u32, bool), u32> = FxHashMap::default();
        let mut known: FxHashMap<String, u32> = FxHashMap::default();
        for allocation_id in 1..=allocations {
            let Some(label) = labels.owner(allocation_id) else { continue };
            let is_activation = activations.contains(&allocation_id);
            let id = *ids.entry((labels.owner_id(allocation_id), is_activation)).or_insert_with(|| {
                let text = owner_text(label, is_activation);
                let next = known.len() as u32 + 1;
                *known.entry(text).or_insert_with_key(|text| {
                    owners.texts.push(text.clone());
                    next
                })
            });
            owners.by_allocation[allocation_id as usize] = id;
        }
        owners
    }
}

/// An owner in the words viewers know.
fn owner_text(label: &str, is_activation: bool) -> String {
    let mut parts: Vec<&str> = label.split('@').collect();
    if parts[0] != Pool::PytorchCaching.event_type() {
        return label.to_owned();
    }
    let is_operator = |part: &&str| *part == "ops" || *part == "aten";
    let has_model_part = parts.iter().any(|part| MODEL_PARTS.contains(part));
    let has_component = parts.get(1).is_some_and(|part| {
        !is_operator(part) && !MODEL_PARTS.contains(part) && *part != "model" && parts.iter().any(is_operator)
    });
    if is_activation && !has_model_part {
        match has_component {
            true => parts.insert(2, ACTIVATION),
            false => {
                parts.retain(|part| !is_operator(part));
                parts.insert(1, ACTIVATION);
            }
        }
    }
    match parts.get(1).copied() {
        Some(part) if MODEL_PARTS.contains(&part) => {
            // What the block is says more than that operators touch it.
            parts.retain(|part| !is_operator(part));
            parts.insert(1, "model");
        }
        Some("ops") if parts.get(2) != Some(&"aten") => parts.insert(2, "aten"),
        _ => {}
    }
    parts.join("@")
}

/// Allocations that are activations, and how many allocations there are.
fn find_activations<S: FactSource>(source: &S) -> (FxHashSet<u64>, u64) {
    let settings = TimelineSettings {
        process_ended: false,
        step_source: detect_step_source(source),
        ..TimelineSettings::default()
    };
    let mut finder = ActivationFinder::default();
    let summary = run(source, &settings, &mut |event: TimelineEvent| finder.event(&event), &mut |_, _| {});
    (finder.activations, summary.allocation_ids)
}

#[derive(Default)]
struct ActivationFinder {
    situation: Situation,
    /// Devices whose step has seen its backward pass.
    in_backward: FxHashSet<Device>,
    activations: FxHashSet<u64>,
}

impl ActivationFinder {
    fn event(&mut self, event: &TimelineEvent) {
        let (_, step) = self.situation.update(event);
        if let Some(StepChange { device, .. }) = step {
            match device {
                Device::Unknown => self.in_backward.clear(),
                device => drop(self.in_backward.remove(&device)),
            }
        }
        match event.kind {
            EventKind::Autograd { phase: AutogradPhase::Backward } if self.in_backward.insert(event.device) => {
                let step = self.situation.steps(event.device).begun;
                let of_this_step = self.situation.live_blocks().filter(|block| {
                    block.properties.pool == Pool::PytorchCaching
                        && block.properties.device == event.device
                        && block.operator.is_some()
                        && block.device_step == step
                });
                self.activations.extend(of_this_step.map(|block| block.allocation_id));
            }
            EventKind::Autograd { phase: AutogradPhase::Forward } => {
                self.in_backward.remove(&event.device);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::owner_text;

    #[test]
    fn owners_are_spelled_as_viewers_know_them() {
        for (label, is_activation, expected) in [
            ("PTA", false, "PTA"),
            ("PTA@ops", false, "PTA@ops@aten"),
            ("PTA@ops@mine", false, "PTA@ops@aten@mine"),
            ("PTA@weight", false, "PTA@model@weight"),
            ("PTA@weight@ops@mine", false, "PTA@model@weight@mine"),
            ("PTA@weight@ops", true, "PTA@model@weight"),
            ("PTA@model@gradient", false, "PTA@model@gradient"),
            ("PTA@ops", true, "PTA@model@activation"),
            ("PTA@ops@mine", true, "PTA@model@activation@mine"),
            ("PTA@fsdp2@ops", true, "PTA@fsdp2@activation@ops"),
            ("PTA@fsdp2@activation@ops", false, "PTA@fsdp2@activation@ops"),
            ("PTA@mine", false, "PTA@mine"),
            ("CANN@HCCL", false, "CANN@HCCL"),
            ("PTA_WORKSPACE", true, "PTA_WORKSPACE"),
        ] {
            assert_eq!(owner_text(label, is_activation), expected, "{label}");
        }
    }
}
