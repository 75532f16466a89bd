//! Who owns a block: labels in level order, joined by `@` (`PTA@fsdp2@activation@ops`).
//!
//! Labels come from the regions the allocating thread was in, and from labels given to the address
//! later, so the owner of a block is known only at its end. [`OwnerBook`] follows them while blocks
//! live; [`collect_owners`] makes a pass of its own for writers, who look owners up by allocation id.
//!
//! Rules: the framework level is told by the allocator. Per system level a thread has a stack of
//! labels, the innermost counts; a fourth distinct label of a level is ignored. User labels are one
//! stack of at most three, in order. A system label of an address replaces that of the same level, a
//! user label comes behind those that the block has, as long as there are less than three. An ATen
//! operator that touches a block gives it `ops` at the last detail level if that is empty.
//!
//! Blocks from before the start show up when recording starts, with the labels that their thread had
//! when it allocated them.

use msmemscope_event::{BlockProperties, Framework, Pool, StringId, driver_module_name, is_steering};
use msmemscope_trace::Definitions;
use rustc_hash::FxHashMap;

use crate::event::{BlockEvent, EventKind, LabelChange, TimelineEvent};
use crate::pass::run;
use crate::settings::TimelineSettings;
use crate::source::FactSource;

/// Level told by the allocator.
pub const LEVEL_FRAMEWORK: u32 = 0;
/// Component, such as `fsdp2`.
pub const LEVEL_COMPONENT: u32 = 1;
/// Process or phase, such as `activation`.
pub const LEVEL_PROCESS: u32 = 2;
/// First detail, such as `weight`.
pub const LEVEL_DETAIL_1: u32 = 3;
/// Second detail, such as `ops`.
pub const LEVEL_DETAIL_2: u32 = 4;
/// First of three levels for user labels; a region label of this level or higher is a user label.
pub const LEVEL_USER_1: u32 = 5;

const LEVELS: usize = 8;
const USER_LEVELS: usize = 3;
const DISTINCT_LABELS_PER_LEVEL: usize = 3;
const OPERATOR_LABEL: &str = "ops";

/// A label of one level: a string of the recording, or the fixed operator label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Label {
    #[default]
    None,
    Text(StringId),
    Operator,
}

/// What the allocator says about the first level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Allocator {
    Driver { module_id: u8 },
    Pool(Pool),
}

impl Allocator {
    fn of(properties: &BlockProperties) -> Self {
        match properties.pool {
            Pool::Hal => Allocator::Driver { module_id: properties.module_id },
            pool => Allocator::Pool(pool),
        }
    }

    fn push_text(self, text: &mut String) {
        match self {
            Allocator::Driver { module_id } => {
                text.push_str("CANN@");
                text.push_str(driver_module_name(module_id));
            }
            Allocator::Pool(Pool::HostPinned | Pool::HostTensor | Pool::Unknown) => {}
            Allocator::Pool(pool) => text.push_str(pool.event_type()),
        }
    }
}

/// All labels of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LabelSet {
    allocator: Option<Allocator>,
    labels: [Label; LEVELS],
}

impl LabelSet {
    /// Gives a label. False if there is no room for it.
    fn add(&mut self, level: u32, label: StringId) -> bool {
        let label = Label::Text(label);
        if level < LEVEL_USER_1 {
            self.labels[level as usize] = label;
            return true;
        }
        let user = &mut self.labels[LEVEL_USER_1 as usize..];
        match user.iter_mut().find(|known| **known == Label::None || **known == label) {
            Some(place) => {
                *place = label;
                true
            }
            None => false,
        }
    }
}

/// Labels of the regions a thread is in.
#[derive(Debug, Default)]
struct ThreadLabels {
    system: [Vec<StringId>; LEVEL_USER_1 as usize],
    user: Vec<StringId>,
}

impl ThreadLabels {
    fn push(&mut self, level: u32, label: StringId) {
        let Some(stack) = self.system.get_mut(level as usize) else {
            if self.user.len() < USER_LEVELS {
                self.user.push(label);
            }
            return;
        };
        let is_new = !stack.contains(&label);
        let mut distinct = stack.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if !is_new || distinct.len() < DISTINCT_LABELS_PER_LEVEL {
            stack.push(label);
        }
    }

    fn pop(&mut self, level: u32, label: StringId) {
        let stack = self.system.get_mut(level as usize).unwrap_or(&mut self.user);
        if let Some(position) = stack.iter().rposition(|&known| known == label) {
            stack.remove(position);
        }
    }

    fn current(&self) -> [Label; LEVELS] {
        let mut labels = NO_LABELS;
        let system = self.system.iter().map(|stack| stack.last());
        let user = (0..USER_LEVELS).map(|position| self.user.get(position));
        for (slot, label) in labels.iter_mut().zip(system.chain(user)) {
            *slot = label.map_or(Label::None, |&label| Label::Text(label));
        }
        labels
    }
}

/// The labels of a live block, and whose they are: slots are used again.
#[derive(Clone, Copy, Debug, Default)]
struct SlotLabels {
    /// The low half of the allocation id, which is enough to tell apart the blocks of one slot.
    allocation: u32,
    /// Index into the sets plus one; zero without labels.
    set: u32,
}

/// Follows the owners of live blocks, as a consumer of events.
#[derive(Debug, Default)]
pub struct OwnerBook {
    threads: FxHashMap<u32, ThreadLabels>,
    by_slot: Vec<SlotLabels>,
    sets: Vec<LabelSet>,
    ids: FxHashMap<LabelSet, u32>,
    /// By index of a set: the number of the set that an operator's touch makes of it.
    touched_sets: Vec<u32>,
    /// Allocator of the latest block without labels, with the number of its set.
    latest_bare: Option<(Allocator, u32)>,
    unplaced: UnplacedLabels,
}

/// User labels of addresses that came to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnplacedLabels {
    /// Their block had three others.
    pub beyond_the_third: u64,
    /// No live block of a framework held the address.
    pub without_block: u64,
}

const NO_LABELS: [Label; LEVELS] = [Label::None; LEVELS];

impl OwnerBook {
    /// Number of the owner of a live block; the same for all blocks of one owner, zero without owner.
    #[inline]
    pub fn owner_id(&self, slot: u32, allocation_id: u64) -> u32 {
        match self.by_slot.get(slot as usize) {
            Some(labels) if labels.allocation == allocation_id as u32 => labels.set,
            _ => 0,
        }
    }

    /// The owner with a number, levels joined by `@`; empty without owner.
    pub fn owner_text(&self, owner_id: u32, definitions: &Definitions) -> String {
        let set = (owner_id as usize).checked_sub(1).and_then(|index| self.sets.get(index));
        set.map_or_else(String::new, |set| owner_text(definitions, set))
    }

    /// How many labels came to nothing.
    pub fn unplaced(&self) -> UnplacedLabels {
        self.unplaced
    }

    fn get(&self, slot: u32, allocation_id: u64) -> Option<LabelSet> {
        let id = self.owner_id(slot, allocation_id);
        (id != 0).then(|| self.sets[id as usize - 1])
    }

    /// The number of a set of labels.
    fn id_of(&mut self, set: LabelSet) -> u32 {
        let next = self.sets.len() as u32 + 1;
        let id = *self.ids.entry(set).or_insert(next);
        if id == next {
            self.sets.push(set);
            self.touched_sets.push(0);
        }
        id
    }

    #[inline]
    fn set(&mut self, slot: u32, allocation_id: u64, id: u32) {
        let index = slot as usize;
        if self.by_slot.len() <= index {
            self.by_slot.resize(index + 1, SlotLabels::default());
        }
        self.by_slot[index] = SlotLabels { allocation: allocation_id as u32, set: id };
    }

    /// Gives an allocation a label; it need not have shown up yet.
    fn label(&mut self, slot: u32, allocation_id: u64, level: u32, label: StringId) {
        let none = LabelSet { allocator: None, labels: NO_LABELS };
        let mut set = self.get(slot, allocation_id).unwrap_or(none);
        self.unplaced.beyond_the_third += u64::from(!set.add(level, label));
        let id = self.id_of(set);
        self.set(slot, allocation_id, id);
    }

    /// An operator touched a block. What that makes of a set of labels is worked out once.
    #[inline]
    fn touched(&mut self, slot: u32, allocation_id: u64) -> bool {
        let id = self.owner_id(slot, allocation_id);
        let touched = match (id as usize).checked_sub(1).map(|index| self.touched_sets[index]) {
            Some(known) if known != 0 => known,
            _ => self.touched_set(id),
        };
        if touched != id {
            self.set(slot, allocation_id, touched);
        }
        touched != id
    }

    #[cold]
    fn touched_set(&mut self, id: u32) -> u32 {
        let index = (id as usize).checked_sub(1);
        let mut set = index.map_or(LabelSet { allocator: None, labels: NO_LABELS }, |index| self.sets[index]);
        let label = &mut set.labels[LEVEL_DETAIL_2 as usize];
        if *label == Label::None {
            *label = Label::Operator;
        }
        let touched = self.id_of(set);
        if let Some(index) = index {
            self.touched_sets[index] = touched;
        }
        touched
    }

    /// A block came into being.
    #[inline]
    fn begin(&mut self, thread_id: u32, block: &BlockEvent) {
        let allocator = Allocator::of(&block.properties);
        let known = self.owner_id(block.slot, block.allocation_id);
        let id = if known == 0 && (block.shadow || self.threads.is_empty()) {
            match self.latest_bare {
                Some((latest, id)) if latest == allocator => id,
                _ => {
                    let id = self.id_of(LabelSet { allocator: Some(allocator), labels: NO_LABELS });
                    self.latest_bare = Some((allocator, id));
                    id
                }
            }
        } else {
            let labels = match known {
                0 => self.threads.get(&thread_id).map_or(NO_LABELS, ThreadLabels::current),
                id => self.sets[id as usize - 1].labels,
            };
            self.id_of(LabelSet { allocator: Some(allocator), labels })
        };
        self.set(block.slot, block.allocation_id, id);
    }

    /// Takes in an event. Gives slot and allocation of the block whose owner changed, if one's did.
    #[inline]
    pub fn event(&mut self, event: &TimelineEvent) -> Option<(u32, u64)> {
        match &event.kind {
            EventKind::Malloc(block) if block.properties.pool != Pool::HostTensor => {
                self.begin(event.thread_id, block);
                Some((block.slot, block.allocation_id))
            }
            EventKind::Access { allocation_id, slot, framework: Framework::Aten, .. } if *allocation_id != 0 => {
                self.touched(*slot, *allocation_id).then_some((*slot, *allocation_id))
            }
            EventKind::Label(change) => self.label_changed(event.thread_id, *change),
            _ => None,
        }
    }

    fn label_changed(&mut self, thread_id: u32, change: LabelChange) -> Option<(u32, u64)> {
        match change {
            LabelChange::Push { level, label } => self.threads.entry(thread_id).or_default().push(level, label),
            LabelChange::Pop { level, label } => self.threads.entry(thread_id).or_default().pop(level, label),
            LabelChange::ShadowBlock { allocation_id, slot } => {
                let labels = self.threads.get(&thread_id).map_or(NO_LABELS, ThreadLabels::current);
                if labels != NO_LABELS {
                    let id = self.id_of(LabelSet { allocator: None, labels });
                    self.set(slot, allocation_id, id);
                }
            }
            LabelChange::NoBlock { level } => self.unplaced.without_block += u64::from(level >= LEVEL_USER_1),
            LabelChange::Block { allocation_id, slot, level, label } => {
                self.label(slot, allocation_id, level, label);
                return Some((slot, allocation_id));
            }
        }
        None
    }
}

/// The owner of every allocation of a process.
#[derive(Debug, Default)]
pub struct OwnerTable {
    by_allocation: Vec<u32>,
    owners: Vec<String>,
    unplaced: UnplacedLabels,
}

impl OwnerTable {
    /// How many labels came to nothing.
    pub fn unplaced(&self) -> UnplacedLabels {
        self.unplaced
    }

    /// The owner of an allocation, if it has one.
    pub fn owner(&self, allocation_id: u64) -> Option<&str> {
        let id = *self.by_allocation.get(usize::try_from(allocation_id).ok()?)?;
        let owner = self.owners.get((id as usize).checked_sub(1)?)?;
        (!owner.is_empty()).then_some(owner)
    }
}

impl OwnerTable {
    /// A number that is the same for all allocations of one owner; zero without owner.
    pub fn owner_id(&self, allocation_id: u64) -> u32 {
        let index = usize::try_from(allocation_id).unwrap_or(usize::MAX);
        self.by_allocation.get(index).copied().unwrap_or(0)
    }
}

/// Makes a pass over all facts to learn the owners.
pub fn collect_owners<S: FactSource>(source: &S) -> OwnerTable {
    let mut book = OwnerBook::default();
    let mut by_allocation = Vec::new();
    let mut sink = |event: TimelineEvent| {
        let Some((slot, allocation_id)) = book.event(&event) else { return };
        let index = allocation_id as usize;
        if by_allocation.len() <= index {
            by_allocation.resize(index + 1, 0);
        }
        by_allocation[index] = book.owner_id(slot, allocation_id);
    };
    run(source, &TimelineSettings::default(), &mut sink, &mut |_, _| {});
    let owners = book.sets.iter().map(|set| owner_text(source.definitions(), set)).collect();
    OwnerTable { by_allocation, owners, unplaced: book.unplaced() }
}

fn owner_text(definitions: &Definitions, set: &LabelSet) -> String {
    let mut text = String::new();
    if set.labels[LEVEL_FRAMEWORK as usize] == Label::None
        && let Some(allocator) = set.allocator
    {
        allocator.push_text(&mut text);
    }
    for label in set.labels {
        let part = match label {
            Label::None => continue,
            Label::Operator => OPERATOR_LABEL.into(),
            Label::Text(id) => definitions.string(id),
        };
        if part.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('@');
        }
        // A line break inside an owner would tear rows apart in careless readers, a comma attributes.
        for character in part.chars() {
            match character {
                ',' => text.push(';'),
                _ if is_steering(character) => text.extend(character.escape_default()),
                _ => text.push(character),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(actions: &[(bool, u32, u32)]) -> [Label; LEVELS] {
        let mut labels = ThreadLabels::default();
        for &(is_push, level, label) in actions {
            match is_push {
                true => labels.push(level, StringId(label)),
                false => labels.pop(level, StringId(label)),
            }
        }
        labels.current()
    }

    #[test]
    fn the_innermost_label_of_a_level_counts() {
        let pushed = [(true, 1, 10), (true, 1, 11), (true, 1, 10)];
        assert_eq!(labels_of(&pushed)[1], Label::Text(StringId(10)));
        let popped = [&pushed[..], &[(false, 1, 10)]].concat();
        assert_eq!(labels_of(&popped)[1], Label::Text(StringId(11)));
        let outer_popped = [&pushed[..2], &[(false, 1, 10)]].concat();
        assert_eq!(labels_of(&outer_popped)[1], Label::Text(StringId(11)));
    }

    #[test]
    fn a_fourth_distinct_label_is_ignored_but_known_ones_nest() {
        let pushed = [(true, 2, 1), (true, 2, 2), (true, 2, 3), (true, 2, 4)];
        assert_eq!(labels_of(&pushed)[2], Label::Text(StringId(3)));
        let nested = [&pushed[..], &[(true, 2, 1)]].concat();
        assert_eq!(labels_of(&nested)[2], Label::Text(StringId(1)));
    }

    #[test]
    fn user_labels_fill_three_levels_in_order() {
        let labels = labels_of(&[(true, 5, 1), (true, 5, 1), (true, 5, 2), (true, 5, 3)]);
        let text = |id| Label::Text(StringId(id));
        assert_eq!(labels[5..], [text(1), text(1), text(2)]);
    }
}
