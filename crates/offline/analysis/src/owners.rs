//! The owner of every allocation, in the words that viewers know.
//!
//! Labels give `PTA@weight` or `PTA@ops`; the owner tree of MindStudio Insight knows `PTA@model@weight`
//! and `PTA@ops@aten`. Where a component (such as `fsdp2`) is named the levels stay as they are. A block
//! of the caching allocator that an operator made since the forward pass began, that is no weight,
//! gradient or optimizer state, and that is alive when the backward pass of its step begins is an
//! activation. Where nobody tells that a forward pass begins, it is the step.

use msmemscope_event::{AutogradPhase, Device, Pool};
use msmemscope_timeline::{BlockEvent, OwnerBook, TimelineEvent, UnplacedLabels};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::names::Names;
use crate::question::{About, End, Question, Questions, View};
use crate::situation::{BlockChange, LiveBlock};

const MODEL_PARTS: [&str; 4] = ["weight", "gradient", "optimizer_state", "activation"];
const ACTIVATION: &str = "activation";

/// Who owns a block, as a number that only [`crate::situation::Situation::owner_text`] can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(u32);

impl OwnerId {
    const ACTIVATION_BIT: u32 = 1 << 31;

    /// The same owner of an activation.
    pub(crate) fn of_activation(self) -> Self {
        Self(self.0 | Self::ACTIVATION_BIT)
    }

    /// The owner with other labels; what is an activation stays one.
    pub(crate) fn with_labels_of(self, other: Self) -> Self {
        Self(self.0 & Self::ACTIVATION_BIT | other.0 & !Self::ACTIVATION_BIT)
    }

    fn labels(self) -> u32 {
        self.0 & !Self::ACTIVATION_BIT
    }

    fn is_activation(self) -> bool {
        self.0 & Self::ACTIVATION_BIT != 0
    }
}

/// Follows owners over a recording.
#[derive(Debug)]
pub(crate) struct OwnerFollower {
    /// Labels of blocks; absent if the file states owners itself.
    book: Option<OwnerBook>,
    /// Devices whose step has seen its backward pass.
    in_backward: FxHashSet<Device>,
    /// Blocks born on any device when the forward pass of a device began, until its backward pass.
    forward_births: FxHashMap<Device, u64>,
}

impl Default for OwnerFollower {
    fn default() -> Self {
        Self {
            book: Some(OwnerBook::default()),
            in_backward: FxHashSet::default(),
            forward_births: FxHashMap::default(),
        }
    }
}

impl OwnerFollower {
    /// Owners as the file states them.
    pub(crate) fn of_stated() -> Self {
        Self { book: None, ..Self::default() }
    }

    /// The owner of a block that comes into being.
    #[inline]
    pub(crate) fn begin(&mut self, event: &TimelineEvent, block: &BlockEvent, names: &dyn Names) -> OwnerId {
        match &mut self.book {
            Some(book) => {
                book.event(event);
                OwnerId(book.owner_id(block.slot, block.allocation_id))
            }
            None => OwnerId(names.stated_owner_id(block.allocation_id)),
        }
    }

    /// The block whose owner an event changes, and its owner from now on.
    #[inline]
    pub(crate) fn change(&mut self, event: &TimelineEvent) -> Option<(u32, OwnerId)> {
        let book = self.book.as_mut()?;
        let (slot, allocation_id) = book.event(event)?;
        Some((slot, OwnerId(book.owner_id(slot, allocation_id))))
    }

    /// How many labels came to nothing.
    pub(crate) fn unplaced_labels(&self) -> UnplacedLabels {
        self.book.as_ref().map_or_else(UnplacedLabels::default, OwnerBook::unplaced)
    }

    /// A step of a device, or of all, began or ended.
    pub(crate) fn step_changes(&mut self, device: Device) {
        match device {
            Device::Unknown => self.in_backward.clear(),
            device => drop(self.in_backward.remove(&device)),
        }
    }

    /// At the first backward pass of a step: how many blocks had been born when its forward pass began, zero if nobody
    /// told. `births` are the blocks born so far.
    pub(crate) fn begins_backward(&mut self, device: Device, phase: AutogradPhase, births: u64) -> Option<u64> {
        match phase {
            AutogradPhase::Backward => {
                let forward_births = self.forward_births.remove(&device).unwrap_or(0);
                self.in_backward.insert(device).then_some(forward_births)
            }
            AutogradPhase::Forward => {
                self.in_backward.remove(&device);
                self.forward_births.entry(device).or_insert(births);
                None
            }
            AutogradPhase::Optimizer | AutogradPhase::Other => None,
        }
    }

    /// The owner in words.
    pub(crate) fn text(&self, owner: OwnerId, names: &dyn Names) -> Option<String> {
        let text = match &self.book {
            Some(book) => {
                let label = book.owner_text(owner.labels(), names.definitions()?);
                if label.is_empty() { label } else { owner_text(&label, owner.is_activation()) }
            }
            None => names.stated_owner(owner.labels())?,
        };
        (!text.is_empty()).then_some(text)
    }
}

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
        let index = *self.by_allocation.get(usize::try_from(allocation_id).ok()?)?;
        self.texts.get((index as usize).checked_sub(1)?).map(String::as_str)
    }
}

/// Remembers the owner of every allocation.
#[derive(Debug, Default)]
pub(crate) struct OwnersOfAll {
    by_allocation: Vec<OwnerId>,
}

impl OwnersOfAll {
    /// The owner of a block is known for good.
    pub(crate) fn add(&mut self, block: &LiveBlock) {
        let index = block.allocation_id as usize;
        if self.by_allocation.len() <= index {
            self.by_allocation.resize(index + 1, OwnerId::default());
        }
        self.by_allocation[index] = block.owner;
    }

    /// The table, with owners in words.
    pub(crate) fn finish(self, text: impl Fn(OwnerId) -> Option<String>) -> Owners {
        let mut texts = Vec::new();
        let mut known: FxHashMap<OwnerId, u32> = FxHashMap::default();
        let by_allocation = self
            .by_allocation
            .into_iter()
            .map(|owner| {
                *known.entry(owner).or_insert_with(|| {
                    text(owner).map_or(0, |text| {
                        texts.push(text);
                        texts.len() as u32
                    })
                })
            })
            .collect();
        Owners { by_allocation, texts }
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

impl Question for OwnersOfAll {
    type Finding = Owners;

    const IS_USUAL: bool = false;
    const IS_FOR_PEOPLE: bool = false;

    fn ask(questions: &mut Questions) -> bool {
        questions.owners_of_all = true;
        true
    }

    fn start(questions: &Questions, _about: &About<'_>) -> Option<Self> {
        questions.owners_of_all.then(Self::default)
    }

    #[inline]
    fn block(&mut self, change: &BlockChange<'_>, _event: &TimelineEvent, _view: View<'_>) {
        if let BlockChange::Ends(block, _) = change {
            self.add(block);
        }
    }

    fn finish(mut self, view: View<'_>, _end: &mut End<'_>) -> Option<Owners> {
        view.situation.live_blocks().for_each(|block| self.add(block));
        Some(self.finish(|owner| view.situation.owner_text(owner, view.names)))
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
