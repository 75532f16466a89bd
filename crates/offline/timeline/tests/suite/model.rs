//! Random recordings against a model that does everything the slow and obvious way.

use std::collections::HashMap;

use msmemscope_event::{BlockProperties, Device, Fact, Pool, RecordingState};
use msmemscope_timeline::{BlockEvent, DeviceFilter, EventFilter, EventKind, TimelineEvent};
use proptest::prelude::*;

use crate::support::{Facts, allocation, driver, free, heap, pool, showing};

#[derive(Clone, Copy, Debug)]
enum Action {
    Allocate { kind: usize, address: u64, size: u64 },
    Free { kind: usize, address: u64 },
    Heap { kind: usize, address: u64, size: u64 },
    Record(bool),
    Wait(u64),
}

const KINDS: usize = 6;

fn properties(kind: usize) -> BlockProperties {
    match kind {
        0 => driver(Device::Npu(0)),
        1 => driver(Device::Host),
        2 => pool(Pool::PytorchCaching),
        3 => BlockProperties { device: Device::Npu(1), ..pool(Pool::PytorchCaching) },
        4 => pool(Pool::PytorchWorkspace),
        _ => pool(Pool::Mindspore),
    }
}

fn action() -> impl Strategy<Value = Action> {
    let kind = 0..KINDS;
    let address = (1u64..6).prop_map(|address| address * 0x100);
    prop_oneof![
        6 => (kind.clone(), address.clone(), 1u64..50).prop_map(|(kind, address, size)| Action::Allocate { kind, address, size }),
        5 => (kind.clone(), address.clone()).prop_map(|(kind, address)| Action::Free { kind, address }),
        2 => (kind, address, 0u64..500).prop_map(|(kind, address, size)| Action::Heap { kind, address, size }),
        1 => any::<bool>().prop_map(Action::Record),
        4 => (0u64..3).prop_map(Action::Wait),
    ]
}

#[derive(Clone, Copy)]
struct ModelBlock {
    id: u64,
    size: u64,
    hidden: bool,
}

/// A line of the model: id, whether it begins, size, shadow, used and total unless shadow.
type Line = (u64, bool, u64, bool, Option<(u64, u64)>);

/// A block begins to count. Gives what its pool has in use then.
fn begin(used: &mut HashMap<(Pool, Device), u64>, state: (Pool, Device), size: u64) -> u64 {
    let now = used.entry(state).or_default();
    *now = if state.0 == Pool::PytorchWorkspace { size } else { *now + size };
    *now
}

/// The obvious way: lists, no times.
fn model(actions: &[Action]) -> (Vec<Line>, u64) {
    let mut live: Vec<(usize, u64, ModelBlock)> = Vec::new();
    let mut used: HashMap<(Pool, Device), u64> = HashMap::new();
    let mut total: HashMap<(Pool, Device), u64> = HashMap::new();
    let mut lines = Vec::new();
    let (mut next_id, mut recording, mut unknown) = (1, true, 0);
    let place = |kind| (properties(kind).pool, properties(kind).device);
    for &action in actions {
        match action {
            Action::Allocate { kind, address, size } => {
                let state = place(kind);
                if let Some(at) = live.iter().position(|&(k, a, _)| k == kind && a == address) {
                    let (_, _, old) = live.remove(at);
                    if !old.hidden {
                        let now = used.entry(state).or_default();
                        *now = now.saturating_sub(old.size);
                        lines.push((old.id, false, old.size, true, None));
                    }
                }
                if recording {
                    let numbers = (begin(&mut used, state, size), total.get(&state).copied().unwrap_or(0));
                    lines.push((next_id, true, size, false, Some(numbers)));
                }
                live.push((kind, address, ModelBlock { id: next_id, size, hidden: !recording }));
                next_id += 1;
            }
            Action::Free { kind, address } => {
                // Frees do not know the device: both driver kinds, and both caching devices, are one.
                let same = |other: usize| match kind {
                    0 | 1 => other <= 1,
                    2 | 3 => other == 2 || other == 3,
                    kind => other == kind,
                };
                let candidates: Vec<usize> =
                    (0..live.len()).filter(|&at| same(live[at].0) && live[at].1 == address).collect();
                let Some(&at) = candidates.first() else {
                    unknown += 1;
                    continue;
                };
                let (kind, _, block) = live.remove(at);
                let state = place(kind);
                if !block.hidden {
                    let now = used.entry(state).or_default();
                    *now = now.saturating_sub(block.size);
                    let numbers = (*now, total.get(&state).copied().unwrap_or(0));
                    lines.push((block.id, false, block.size, !recording, recording.then_some(numbers)));
                }
            }
            Action::Heap { kind, size, .. } => {
                total.insert(place(kind), size);
            }
            Action::Record(on) => {
                if on && !recording {
                    live.sort_by_key(|(_, _, block)| block.id);
                    for (kind, _, block) in live.iter_mut().filter(|(_, _, block)| block.hidden) {
                        block.hidden = false;
                        begin(&mut used, place(*kind), block.size);
                        lines.push((block.id, true, block.size, true, None));
                    }
                }
                recording = on;
            }
            Action::Wait(_) => {}
        }
    }
    live.sort_by_key(|(_, _, block)| block.id);
    lines.extend(
        live.iter()
            .filter(|(_, _, block)| !block.hidden)
            .map(|(_, _, block)| (block.id, false, block.size, true, None)),
    );
    (lines, unknown)
}

/// Ambiguous frees (one address live on both of two devices) depend on nothing the recording says, so
/// such recordings are made unambiguous: kind decides the address range.
fn facts_of(actions: &[Action]) -> Facts {
    let mut facts = Facts::default();
    let mut time = 10;
    for &action in actions {
        let fact = match action {
            Action::Allocate { kind, address, size } => allocation(properties(kind), address, size),
            Action::Free { kind, address } => free(properties(kind), address),
            Action::Heap { kind, address, size } => heap(properties(kind), address, size),
            Action::Record(on) => {
                Fact::Recording { state: if on { RecordingState::On } else { RecordingState::Shadow } }
            }
            Action::Wait(pause) => {
                time += pause;
                continue;
            }
        };
        facts.at(time, fact);
    }
    facts.end_monotonic_ns = time;
    facts
}

fn separate(actions: Vec<Action>) -> Vec<Action> {
    let shift = |kind: usize, address: u64| address + 0x10_000 * kind as u64;
    let separate = |action| match action {
        Action::Allocate { kind, address, size } => Action::Allocate { kind, address: shift(kind, address), size },
        Action::Free { kind, address } => Action::Free { kind, address: shift(kind, address) },
        other => other,
    };
    actions.into_iter().map(separate).collect()
}

fn block_of(event: &TimelineEvent) -> Option<(bool, &BlockEvent)> {
    match &event.kind {
        EventKind::Malloc(block) => Some((true, block)),
        EventKind::Free(block) => Some((false, block)),
        _ => None,
    }
}

fn line_of(event: &TimelineEvent) -> Option<Line> {
    let (begins, block) = block_of(event)?;
    let numbers = (!block.shadow).then_some((block.used_bytes, block.total_bytes));
    Some((block.allocation_id, begins, block.size_bytes, block.shadow, numbers))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_are_those_of_the_model(actions in prop::collection::vec(action(), 0..120)) {
        let actions = separate(actions);
        let (events, summary) = facts_of(&actions).run();
        let (expected, unknown) = model(&actions);
        let lines: Vec<Line> = events.iter().filter_map(line_of).collect();
        prop_assert_eq!(lines, expected);
        prop_assert_eq!(summary.unknown_free_count(), unknown);
    }

    #[test]
    fn times_are_in_order_and_blocks_pair_up(actions in prop::collection::vec(action(), 0..120)) {
        let (events, summary) = facts_of(&actions).run();
        prop_assert!(events.windows(2).all(|pair| pair[0].timestamp_ns <= pair[1].timestamp_ns));
        let mut latest: HashMap<(Pool, Device, u64), (u64, bool)> = HashMap::new();
        let mut open: HashMap<u64, u64> = HashMap::new();
        for event in &events {
            let Some((begins, block)) = block_of(event) else { continue };
            let place = (block.properties.pool, block.properties.device, block.address);
            if let Some((time, was_begin)) = latest.insert(place, (event.timestamp_ns, begins)) {
                prop_assert!(time < event.timestamp_ns, "one place, strictly later");
                prop_assert_ne!(was_begin, begins, "begins and ends alternate");
            }
            match begins {
                true => prop_assert_eq!(open.insert(block.allocation_id, block.size_bytes), None),
                false => prop_assert_eq!(open.remove(&block.allocation_id), Some(block.size_bytes)),
            }
        }
        prop_assert!(open.is_empty(), "every block has its end");
        let live: u64 = summary.pools.iter().map(|pool| pool.live_blocks()).sum();
        prop_assert_eq!(live, summary.live_blocks);
    }

    #[test]
    fn filters_only_leave_events_out(actions in prop::collection::vec(action(), 0..120)) {
        let facts = facts_of(&actions);
        let (all, unfiltered) = facts.run();
        let devices = DeviceFilter { all_npus: false, npus: vec![1], host: true };
        let (some, filtered) = facts.run_with(&showing(EventFilter { devices: devices.clone(), ..EventFilter::ALL }));
        let expected: Vec<TimelineEvent> = all.into_iter().filter(|event| devices.includes(event.device)).collect();
        prop_assert_eq!(some, expected);
        prop_assert_eq!(filtered.pools, unfiltered.pools);
    }
}
