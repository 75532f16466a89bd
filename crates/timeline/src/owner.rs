//! Who owns a block: labels in level order, joined by `@` (`PTA@fsdp2@activation@ops`).
//!
//! Labels come from the regions the allocating thread was in, and from labels given to the address
//! later, so the owner of a block is known only at its end. [`collect_owners`] therefore makes a pass
//! of its own; writers look owners up by allocation id.
//!
//! Rules: the framework level is told by the allocator. Per system level a thread has a stack of
//! labels, the innermost counts; a fourth distinct label of a level is ignored. User labels are one
//! stack of at most three, in order. Labels of an address replace those of the same level. An ATen
//! operator that touches a block gives it `ops` at the last detail level if that is empty.

use msmemscope_event::{BlockProperties, Fact, Framework, Pool, StringId, driver_module_name};
use rustc_hash::FxHashMap;

use crate::event::{EventKind, TimelineEvent};
use crate::pass::Timeline;
use crate::settings::TimelineSettings;
use crate::source::{FactSource, FactStream};

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
        let mut labels = [Label::None; LEVELS];
        let system = self.system.iter().map(|stack| stack.last());
        let user = (0..USER_LEVELS).map(|position| self.user.get(position));
        for (slot, label) in labels.iter_mut().zip(system.chain(user)) {
            *slot = label.map_or(Label::None, |&label| Label::Text(label));
        }
        labels
    }
}

/// Label sets of all allocations so far.
#[derive(Debug, Default)]
struct OwnerBook {
    threads: FxHashMap<u32, ThreadLabels>,
    /// Index into `sets` plus one by allocation id; zero for blocks without owner.
    by_allocation: Vec<u32>,
    sets: Vec<LabelSet>,
    ids: FxHashMap<LabelSet, u32>,
}

impl OwnerBook {
    fn get(&self, allocation_id: u64) -> Option<LabelSet> {
        let id = *self.by_allocation.get(allocation_id as usize)?;
        (id != 0).then(|| self.sets[id as usize - 1])
    }

    fn set(&mut self, allocation_id: u64, set: LabelSet) {
        let next = self.sets.len() as u32 + 1;
        let id = *self.ids.entry(set).or_insert(next);
        if id == next {
            self.sets.push(set);
        }
        let index = allocation_id as usize;
        if self.by_allocation.len() <= index {
            self.by_allocation.resize(index + 1, 0);
        }
        self.by_allocation[index] = id;
    }

    /// Changes one label of an allocation, which need not have shown up yet.
    fn label(&mut self, allocation_id: u64, level: u32, label: Label, only_if_empty: bool) {
        let mut set = self.get(allocation_id).unwrap_or(LabelSet { allocator: None, labels: [Label::None; LEVELS] });
        let slot = &mut set.labels[(level as usize).min(LEVELS - 1)];
        if !only_if_empty || *slot == Label::None {
            *slot = label;
            self.set(allocation_id, set);
        }
    }

    fn event(&mut self, event: &TimelineEvent) {
        match &event.kind {
            EventKind::Malloc(block) if block.properties.pool != Pool::HostTensor => {
                let allocator = Some(Allocator::of(&block.properties));
                let mut set = self.get(block.allocation_id).unwrap_or(LabelSet {
                    allocator,
                    labels: match self.threads.get(&event.thread_id) {
                        Some(labels) if !block.shadow => labels.current(),
                        _ => [Label::None; LEVELS],
                    },
                });
                set.allocator = allocator;
                self.set(block.allocation_id, set);
            }
            EventKind::Access { allocation_id, framework: Framework::Aten, .. } if *allocation_id != 0 => {
                self.label(*allocation_id, LEVEL_DETAIL_2, Label::Operator, true);
            }
            _ => {}
        }
    }

    fn fact(&mut self, thread_id: u32, fact: &Fact<'_>, timeline: &mut Timeline<'_>) {
        match *fact {
            Fact::LabelPush { level, label } => self.threads.entry(thread_id).or_default().push(level, label),
            Fact::LabelPop { level, label } => self.threads.entry(thread_id).or_default().pop(level, label),
            Fact::LabelAddress { address, level, label } => {
                if let Some(allocation_id) = timeline.live_allocation(Pool::PytorchCaching, address) {
                    self.label(allocation_id, level, Label::Text(label), false);
                }
            }
            _ => {}
        }
    }
}

/// The owner of every allocation of a process.
#[derive(Debug, Default)]
pub struct OwnerTable {
    by_allocation: Vec<u32>,
    owners: Vec<String>,
}

impl OwnerTable {
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
    let settings = TimelineSettings::default();
    let mut timeline = Timeline::new(source, &settings);
    let mut book = OwnerBook::default();
    let mut facts = source.facts();
    while let Some(record) = facts.next() {
        timeline.record(&record, &mut |event: TimelineEvent| book.event(&event));
        book.fact(record.thread_id, &record.fact, &mut timeline);
    }
    let owners = book.sets.iter().map(|set| owner_text(source, set)).collect();
    OwnerTable { by_allocation: book.by_allocation, owners }
}

fn owner_text<S: FactSource>(source: &S, set: &LabelSet) -> String {
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
            Label::Text(id) => source.definitions().string(id),
        };
        if part.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('@');
        }
        // A line break inside an owner would tear rows apart in careless readers.
        for character in part.chars() {
            match character.is_control() {
                true => text.extend(character.escape_default()),
                false => text.push(character),
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
