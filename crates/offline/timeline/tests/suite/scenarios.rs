//! One test per rule.

use msmemscope_event::{
    AccessKind, AllocationInterface, AutogradPhase, BlockProperties, Device, Fact, Framework, KernelPhase, LoopKind,
    Pool, PoolRefusal, PoolSegment, ProcessInfoKey, RecordingState, SnapshotNumbers, StackId, StringId,
};
use msmemscope_timeline::{
    DeviceFilter, EventFilter, EventKind, EventKinds, LoopSet, StepSource, TimelineEvent, TimelineSettings,
    detect_step_source, possible_devices, run_ahead,
};

use crate::support::{Facts, NPU, allocation, brief, driver, free, heap, mark, pool, range_end, showing, step_begin};

fn access(address: u64, device: Device, framework: Framework) -> Fact<'static> {
    Fact::Access {
        kind: AccessKind::Read,
        framework,
        device,
        operator: StringId::NONE,
        address,
        size_bytes: 1,
        element_type: StringId::NONE,
        shape: StringId::NONE,
        format: StringId::NONE,
        output_position: 0,
    }
}

const ON: Fact<'static> = Fact::Recording { state: RecordingState::On };
const SHADOW: Fact<'static> = Fact::Recording { state: RecordingState::Shadow };

#[test]
fn caching_pool_follows_its_messages() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::ending_at(90);
    facts.at(1, heap(caching, 0x10, 1000)).at(2, allocation(caching, 0x10, 100));
    facts.at(3, heap(caching, 0x20, 2000)).at(4, allocation(caching, 0x20, 50));
    facts.at(5, heap(caching, 0x10, 1500)).at(6, free(caching, 0x10));
    assert_eq!(
        facts.brief(),
        [
            "2 malloc #1 100 used 100/1000",
            "4 malloc #2 50 used 150/2000",
            "6 free #1 100 used 50/1500",
            "90 free~ #2 50 used 50/1500",
        ]
    );
    let summary = facts.run().1;
    assert_eq!((summary.live_blocks, summary.pools.len()), (1, 1));
    let usage = &summary.pools[0];
    assert_eq!((usage.peak_used_bytes, usage.peak_timestamp_ns, usage.end_used_bytes), (150, 4, 50));
    assert_eq!((usage.peak_total_bytes, usage.end_total_bytes), (2000, 1500));
    assert_eq!((usage.allocations, usage.frees, usage.live_blocks()), (2, 1, 1));
}

#[test]
fn workspace_use_is_the_latest_block() {
    let workspace = pool(Pool::PytorchWorkspace);
    let mut facts = Facts::default();
    facts.at(1, heap(workspace, 0x10, 1000)).at(2, allocation(workspace, 0x10, 100));
    facts.at(3, allocation(workspace, 0x20, 30)).at(4, free(workspace, 0x20)).at(5, free(workspace, 0x10));
    assert_eq!(
        facts.brief(),
        [
            "2 malloc #1 100 used 100/1000",
            "3 malloc #2 30 used 30/1000",
            "4 free #2 30 used 0/1000",
            "5 free #1 100 used 0/1000",
        ]
    );
    assert_eq!(facts.run().1.pools[0].clamped_frees, 1);
}

#[test]
fn mindspore_tells_its_total_one_event_late() {
    let mindspore = pool(Pool::Mindspore);
    let mut facts = Facts::default();
    facts.at(1, allocation(mindspore, 0x10, 100)).at(2, heap(mindspore, 0x10, 800));
    facts.at(3, free(mindspore, 0x10)).at(4, heap(mindspore, 0x10, 600));
    assert_eq!(facts.brief(), ["1 malloc #1 100 used 100/0", "3 free #1 100 used 0/800"]);
}

#[test]
fn atb_frees_by_handle_and_needs_a_heap() {
    let atb = pool(Pool::Atb);
    let second_device = BlockProperties { device: Device::Npu(1), ..atb };
    let region =
        |properties, address, handle| Fact::AllocationWithHandle { properties, address, size_bytes: 40, handle };
    let release =
        |handle| Fact::FreeByHandle { properties: BlockProperties { device: Device::Unknown, ..atb }, handle };
    let mut facts = Facts::default();
    facts.at(1, region(atb, 0x90, 1)); // No heap yet.
    facts.at(2, heap(atb, 0x10, 500)).at(3, heap(atb, 0x20, 300));
    facts.at(4, region(atb, 0x11, 2)).at(4, region(atb, 0x12, 3)).at(5, region(second_device, 0x13, 4));
    facts.at(6, release(2)).at(7, release(2)).at(8, release(1));
    facts.at(9, Fact::HeapUnregistered { properties: atb, address: 0x10 });
    facts.at(9, Fact::HeapUnregistered { properties: atb, address: 0x10 });
    facts.at(10, release(3));
    assert_eq!(
        facts.brief(),
        [
            "4 malloc #1 40 used 40/800",
            "4 malloc #2 40 used 80/800",
            "6 free #1 40 used 40/800",
            "10 free #2 40 used 0/300",
        ]
    );
    let summary = facts.run().1;
    assert_eq!((summary.regions_without_heap, summary.unknown_heaps), (2, 1));
    assert_eq!(summary.unknown_frees, [(Pool::Atb, 2)]);
}

#[test]
fn unknown_and_repeated_frees_are_only_counted() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::default();
    facts.at(1, free(caching, 0x10)).at(2, allocation(caching, 0x10, 5)).at(3, free(caching, 0x10));
    facts.at(4, free(caching, 0x10)).at(5, free(driver(NPU), 0x10));
    assert_eq!(facts.brief(), ["2 malloc #1 5 used 5/0", "3 free #1 5 used 0/0"]);
    let summary = facts.run().1;
    assert_eq!(summary.unknown_frees, [(Pool::Hal, 1), (Pool::PytorchCaching, 2)]);
    assert_eq!(summary.unknown_free_count(), 3);
}

#[test]
fn a_block_replaced_without_free_is_closed_and_use_corrected() {
    let mut facts = Facts::default();
    facts.at(10, allocation(driver(NPU), 0x10, 10)).at(20, allocation(driver(NPU), 0x10, 10));
    facts.at(30, free(driver(NPU), 0x10));
    assert_eq!(
        facts.brief(),
        ["10 malloc #1 10 used 10/0", "20 free~ #1 10 used 0/0", "21 malloc #2 10 used 10/0", "30 free #2 10 used 0/0"]
    );
    let usage = &facts.run().1.pools[0];
    assert_eq!((usage.allocations, usage.frees, usage.residual_blocks, usage.peak_used_bytes), (2, 1, 1, 10));
}

/// The free was under way when its thread was killed; the others went on for a moment.
#[test]
fn host_memory_and_memory_of_a_card_replace_each_other() {
    let mut facts = Facts::default();
    facts.at(10, allocation(driver(NPU), 0x10, 10)).at(20, allocation(driver(Device::Host), 0x10, 7));
    facts.at(30, allocation(driver(NPU), 0x10, 10)).at(40, free(driver(Device::Unknown), 0x10));
    assert_eq!(
        facts.brief(),
        [
            "10 malloc #1 10 used 10/0",
            "20 free~ #1 10 used 0/0",
            "20 malloc #2 7 used 7/0",
            "30 free~ #2 7 used 0/0",
            "30 malloc #3 10 used 10/0",
            "40 free #3 10 used 0/0"
        ]
    );
}

#[test]
fn one_address_may_live_in_several_places() {
    let second = Device::Npu(1);
    let created = BlockProperties { interface: AllocationInterface::Create, ..driver(NPU) };
    let mut facts = Facts::default();
    facts.at(1, allocation(driver(NPU), 0x10, 1));
    facts.at(2, allocation(driver(second), 0x10, 2));
    facts.at(3, allocation(created, 0x10, 4));
    facts.at(4, allocation(pool(Pool::PytorchCaching), 0x10, 8));
    facts.at(5, Fact::Free { properties: driver(second), address: 0x10 });
    facts.at(6, free(created, 0x10));
    facts.at(7, free(driver(NPU), 0x10));
    assert_eq!(facts.brief()[4..7], ["5 free #2 2 used 0/0", "6 free #3 4 used 1/0", "7 free #1 1 used 0/0"]);
    assert_eq!(facts.run().1.live_blocks, 1);
}

#[test]
fn a_driver_free_finds_host_memory_too() {
    let host = driver(Device::Host);
    let registered = BlockProperties { interface: AllocationInterface::HostRegister, ..host };
    let mut facts = Facts::default();
    facts.at(1, allocation(host, 0x10, 5)).at(2, allocation(registered, 0x10, 7));
    facts.at(3, free(driver(NPU), 0x10)).at(4, free(registered, 0x10));
    assert_eq!(
        facts.brief(),
        ["1 malloc #1 5 used 5/0", "2 malloc #2 7 used 12/0", "3 free #1 5 used 7/0", "4 free #2 7 used 0/0",]
    );
    assert!(facts.run().0.iter().all(|event| event.device == Device::Host));
}

#[test]
fn times_never_go_back_and_blocks_strictly_advance() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::default();
    facts.wall_offset_ns = 1000;
    facts.at(5, allocation(caching, 0x10, 1)).at(5, access(0x10, NPU, Framework::Aten));
    facts.at(5, access(0x10, NPU, Framework::Aten)).at(5, free(caching, 0x10));
    facts.at(5, allocation(caching, 0x10, 2)).at(5, mark(NPU, b"x")).at(6, mark(NPU, b"y"));
    facts.at(100, free(caching, 0x10));
    assert_eq!(
        facts.brief(),
        [
            "1005 malloc #1 1 used 1/0",
            "1006 access #1",
            "1007 access #1",
            "1008 free #1 1 used 0/0",
            "1009 malloc #2 2 used 2/0",
            "1009 mark x",
            "1009 mark y",
            "1100 free #2 2 used 0/0",
        ]
    );
}

#[test]
fn blocks_alive_at_the_end_are_closed_there_and_not_at_stop() {
    let mut facts = Facts::ending_at(500);
    facts.at(1, ON).at(10, allocation(driver(NPU), 0x20, 2)).at(10, allocation(driver(NPU), 0x10, 1)).at(50, SHADOW);
    assert_eq!(
        facts.brief(),
        [
            "1 start",
            "10 malloc #1 2 used 2/0",
            "10 malloc #2 1 used 3/0",
            "50 stop",
            "500 free~ #1 2 used 3/0",
            "500 free~ #2 1 used 3/0",
        ]
    );
    let (events, _) = facts.run();
    assert_eq!(events[4].native_stack, StackId::NONE, "nobody called free");
    let running = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
    let (events, summary) = facts.run_with(&running);
    assert_eq!(events.len(), 4);
    assert_eq!(summary.live_blocks, 2);
}

#[test]
fn what_is_alive_before_the_start_is_promoted() {
    let mut facts = Facts::ending_at(90);
    facts.at(1, SHADOW);
    facts.at(10, allocation(driver(NPU), 0x10, 1)).at(11, allocation(driver(NPU), 0x20, 2));
    facts.at(12, free(driver(NPU), 0x10)).at(13, allocation(driver(NPU), 0x30, 4));
    facts.at(20, ON).at(20, ON);
    facts.at(20, free(driver(NPU), 0x20)).at(30, allocation(driver(NPU), 0x10, 8));
    assert_eq!(
        facts.brief(),
        [
            "20 start",
            "20 malloc~ #2 2 used 6/0",
            "20 malloc~ #3 4 used 6/0",
            "21 free #2 2 used 4/0",
            "30 malloc #4 8 used 12/0",
            "90 free~ #3 4 used 12/0",
            "90 free~ #4 8 used 12/0",
        ]
    );
    let summary = facts.run().1;
    assert_eq!(summary.shadow_only_blocks, 1);
    assert_eq!(summary.pools[0].peak_used_bytes, 12);
}

#[test]
fn frees_and_blocks_while_stopped() {
    let mut facts = Facts::ending_at(90);
    facts.at(1, ON).at(2, allocation(driver(NPU), 0x10, 1)).at(3, allocation(driver(NPU), 0x20, 2));
    facts.at(10, SHADOW);
    facts.at(11, free(driver(NPU), 0x10)); // Recorded block, freed while stopped.
    facts.at(12, allocation(driver(NPU), 0x30, 4)).at(13, free(driver(NPU), 0x30)); // Never seen.
    facts.at(14, allocation(driver(NPU), 0x40, 8)); // Alive at the next start.
    facts.at(15, allocation(driver(NPU), 0x20, 16)); // Replaces a recorded block.
    facts.at(20, ON).at(30, SHADOW);
    facts.at(31, allocation(driver(NPU), 0x50, 32)); // Never shown: recording does not start again.
    assert_eq!(
        facts.brief(),
        [
            "1 start",
            "2 malloc #1 1 used 1/0",
            "3 malloc #2 2 used 3/0",
            "10 stop",
            "11 free~ #1 1 used 2/0",
            "15 free~ #2 2 used 0/0",
            "20 start",
            "20 malloc~ #4 8 used 24/0",
            "20 malloc~ #5 16 used 24/0",
            "30 stop",
            "90 free~ #4 8 used 24/0",
            "90 free~ #5 16 used 24/0",
        ]
    );
    let summary = facts.run().1;
    let pool = &summary.pools[0];
    assert_eq!((pool.peak_used_bytes, pool.end_used_bytes), (24, 24), "what was never shown does not count");
    assert_eq!((pool.allocations, pool.frees, pool.residual_blocks, summary.live_blocks), (4, 1, 1, 2));
    let told_alive = |event: &TimelineEvent| match &event.kind {
        EventKind::Free(block) if block.shadow => Some(block.alive_at_process_end),
        _ => None,
    };
    let told_alive: Vec<bool> = facts.run().0.iter().filter_map(told_alive).collect();
    assert_eq!(told_alive, [false, false, true, true]);
}

#[test]
fn pools_hold_what_they_hold_while_recorded() {
    let heap = |size_bytes| Fact::HeapRegistered { properties: pool(Pool::PytorchCaching), address: 0x1, size_bytes };
    let mut facts = Facts::ending_at(90);
    facts.at(1, SHADOW).at(2, heap(500)).at(3, heap(200));
    facts.at(10, ON).at(11, allocation(pool(Pool::PytorchCaching), 0x10, 1)).at(12, heap(300)).at(20, SHADOW);
    facts.at(21, heap(700));
    assert_eq!(facts.run().1.pools[0].peak_total_bytes, 300);
    facts.at(30, ON);
    assert_eq!(facts.run().1.pools[0].peak_total_bytes, 700, "held at the second start");
}

#[test]
fn accesses_find_blocks_by_any_address_inside() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::default();
    facts.at(1, allocation(driver(NPU), 0x1000, 0x1000));
    facts.at(2, allocation(caching, 0x1100, 0x100)).at(3, heap(pool(Pool::Atb), 1, 1));
    let handle =
        Fact::AllocationWithHandle { properties: pool(Pool::Atb), address: 0x1120, size_bytes: 0x10, handle: 1 };
    facts.at(4, handle);
    facts.at(10, access(0x1100, NPU, Framework::Aten)).at(11, access(0x11ff, NPU, Framework::Aten));
    facts.at(12, access(0x1125, NPU, Framework::Atb)).at(13, access(0x1125, NPU, Framework::Aten));
    facts.at(14, access(0x1200, Device::Unknown, Framework::Aten));
    facts.at(15, access(0x9999, NPU, Framework::Aten)).at(16, access(0x1100, Device::Npu(1), Framework::Aten));
    let (events, summary) = facts.run();
    let found: Vec<u64> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Access { allocation_id, .. } => Some(allocation_id),
            _ => None,
        })
        .collect();
    assert_eq!(found, [2, 2, 3, 2, 1, 0, 0]);
    assert_eq!(summary.unknown_accesses, 2);
    let EventKind::Access { block_address, address, .. } = events[4].kind else { panic!("{:?}", events[4]) };
    assert_eq!((block_address, address), (0x1100, 0x11ff));
}

#[test]
fn framework_devices_go_through_the_device_map() {
    let mut facts = Facts::default();
    facts.at(0, Fact::DeviceMap { text: b"6,7" });
    facts.at(1, allocation(driver(Device::Npu(6)), 0x10, 1));
    facts.at(2, allocation(pool(Pool::PytorchCaching), 0x10, 1));
    facts.at(3, mark(Device::Npu(1), b"x")).at(4, step_begin(NPU, 9));
    facts.at(5, allocation(BlockProperties { device: Device::Npu(3), ..pool(Pool::Mindspore) }, 0x10, 1));
    let (events, _) = facts.run();
    let devices: Vec<Device> = events[..5].iter().map(|event| event.device).collect();
    assert_eq!(devices, [6, 6, 7, 6, 3].map(Device::Npu));
    assert!(events.iter().filter(|event| event.device == Device::Npu(6)).any(|event| event.step == 1));
    assert_eq!(possible_devices(&facts), [0, 1, 3, 6, 7].map(Device::Npu));
}

#[test]
fn steps_come_from_ranges_named_exactly_so() {
    let mut facts = Facts::default();
    let library = facts.string("some library");
    let default = facts.string("default");
    let range = |domain, range_id, message| Fact::RangeBegin { domain, device: NPU, range_id, message };
    facts.at(1, mark(NPU, b"a"));
    facts.at(2, range(StringId::NONE, 1, b"step start ")).at(3, mark(NPU, b"b"));
    facts.at(4, range(library, 2, b"step start")).at(5, mark(NPU, b"c"));
    facts.at(6, range(default, 3, b"step start")).at(7, mark(NPU, b"d"));
    facts.at(8, range(StringId::NONE, 4, b"forward")).at(9, range_end(NPU, 4)).at(10, mark(NPU, b"e"));
    facts.at(11, range_end(NPU, 3)).at(12, mark(NPU, b"f"));
    facts.at(13, step_begin(NPU, 5)).at(14, mark(NPU, b"g"));
    let (events, summary) = facts.run();
    let steps: Vec<(String, u64)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Mark { message, .. } => Some((message.to_string(), event.step)),
            EventKind::RangeEnd { range_id: 3, .. } => Some(("end".into(), event.step)),
            _ => None,
        })
        .collect();
    let expected = [("a", 0), ("b", 0), ("c", 0), ("d", 1), ("e", 1), ("end", 1), ("f", 0), ("g", 2)]
        .map(|(name, step)| (name.to_owned(), step));
    assert_eq!(steps, expected);
    let step_ranges: Vec<u64> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::RangeBegin { range_id, is_step: true, .. } => Some(range_id),
            _ => None,
        })
        .collect();
    assert_eq!(step_ranges, [3, 5]);
    assert_eq!(summary.steps, 2);
    assert_eq!(detect_step_source(&facts), Some(StepSource::Ranges));
}

#[test]
fn chosen_steps_keep_totals_and_the_frees_of_their_blocks() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::ending_at(90);
    facts.at(1, allocation(caching, 0x10, 1));
    facts.at(2, step_begin(NPU, 1)).at(3, allocation(caching, 0x20, 2)).at(4, range_end(NPU, 1));
    facts.at(5, step_begin(NPU, 2)).at(6, allocation(caching, 0x30, 4)).at(7, allocation(caching, 0x40, 8));
    facts.at(8, free(caching, 0x10)).at(9, range_end(NPU, 2));
    facts.at(10, free(caching, 0x30)).at(11, free(caching, 0x20));
    let settings = TimelineSettings { steps: vec![2], ..TimelineSettings::default() };
    let (events, summary) = facts.run_with(&settings);
    let briefs: Vec<String> = events.iter().map(brief).collect();
    assert_eq!(
        briefs,
        [
            "5 begin step start",
            "6 malloc #3 4 used 7/0",
            "7 malloc #4 8 used 15/0",
            "8 free #1 1 used 14/0",
            "9 end 2",
            "10 free #3 4 used 10/0",
            "90 free~ #4 8 used 8/0",
        ]
    );
    assert_eq!(
        (summary.events_shown, summary.events_hidden),
        (6, 5),
        "the end of a block with its process is no event"
    );
    assert_eq!(summary.pools[0].allocations, 4);
}

#[test]
fn steps_of_the_api_count_from_the_first_call_back() {
    let mut facts = Facts::default();
    facts.at(1, mark(NPU, b"a")).at(2, Fact::Step { device: NPU, number: 1 });
    facts.at(3, mark(NPU, b"b")).at(4, Fact::Step { device: NPU, number: 2 }).at(5, mark(Device::Host, b"c"));
    facts.at(6, step_begin(NPU, 1)).at(7, mark(NPU, b"d"));
    let source = detect_step_source(&facts);
    assert_eq!(source, Some(StepSource::Api { first_number: 1 }));
    let settings = TimelineSettings { step_source: source, ..TimelineSettings::default() };
    let (events, summary) = facts.run_with(&settings);
    let steps: Vec<u64> = events.iter().map(|event| event.step).collect();
    assert_eq!(steps, [1, 1, 2, 2, 3, 3, 3]);
    assert_eq!((summary.steps, summary.steps_of_other_source), (2, 1));
}

#[test]
fn turns_of_an_optimizer_are_steps_unless_somebody_marks_them() {
    let turn = |loop_id| Fact::LoopTurn { kind: LoopKind::OptimizerStep, device: NPU, loop_id };
    let mut facts = Facts::default();
    facts.at(1, mark(NPU, b"a")).at(2, turn(1)).at(3, turn(2)).at(4, mark(NPU, b"b")).at(5, turn(1)).at(6, turn(2));
    let source = detect_step_source(&facts);
    assert_eq!(source, Some(StepSource::Loop { kind: LoopKind::OptimizerStep, loops: LoopSet::of(2) }));
    let settings = TimelineSettings { step_source: source, ..TimelineSettings::default() };
    let (events, summary) = facts.run_with(&settings);
    assert_eq!(events.iter().map(brief).collect::<Vec<_>>(), ["1 mark a", "3 step 1", "4 mark b", "6 step 2"]);
    assert_eq!(events.iter().map(|event| event.step).collect::<Vec<_>>(), [1, 1, 2, 2]);
    assert_eq!((summary.steps, summary.latest_step), (2, 3));

    facts.at(7, Fact::Step { device: NPU, number: 1 });
    assert_eq!(detect_step_source(&facts), Some(StepSource::Api { first_number: 1 }), "a call of the API wins");
}

#[test]
fn operators_that_come_again_and_again_are_steps_where_no_loop_shows() {
    let mut facts = Facts::default();
    let names = ["aten.randn.default", "aten.mm.default", "aten.relu.default"].map(|name| facts.string(name));
    let operator = |name| Fact::OperatorBegin { framework: Framework::Aten, device: NPU, name, detail: StringId::NONE };
    facts.at(1, operator(names[0])).at(2, operator(names[0]));
    for round in 1..6 {
        for (place, name) in names.into_iter().enumerate() {
            facts.at(10 * round + place as u64, operator(name));
        }
    }
    let source = detect_step_source(&facts);
    assert!(matches!(source, Some(StepSource::Operators(_))), "{source:?}");
    let settings = TimelineSettings { step_source: source, ..TimelineSettings::default() };
    let (events, summary) = facts.run_with(&settings);
    let ends = events.iter().filter(|event| matches!(event.kind, EventKind::StepEnd { .. }));
    assert_eq!(ends.map(brief).collect::<Vec<_>>(), ["20 step 1", "30 step 2", "40 step 3", "50 step 4"]);
    let steps = events.iter().filter(|event| matches!(event.kind, EventKind::Operator { .. })).map(|event| event.step);
    assert_eq!(steps.collect::<Vec<_>>(), [1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5]);
    assert_eq!((summary.steps, summary.latest_step), (4, 5));

    let backward = Fact::Autograd { phase: AutogradPhase::Backward, device: NPU };
    facts.at(60, backward);
    assert_eq!(detect_step_source(&facts), None, "one backward pass is no five steps");
    for time in 61..64 {
        facts.at(time, Fact::LoopTurn { kind: LoopKind::ModuleCall, device: NPU, loop_id: 1 });
    }
    let calls = StepSource::Loop { kind: LoopKind::ModuleCall, loops: LoopSet::of(1) };
    assert_eq!(detect_step_source(&facts), Some(calls), "calls of a model say more");
}

#[test]
fn device_and_kind_filters_hide_without_changing_anything() {
    let second = BlockProperties { device: Device::Npu(1), ..pool(Pool::PytorchCaching) };
    let mut facts = Facts::ending_at(9);
    facts.at(1, ON).at(2, allocation(second, 0x10, 1)).at(3, allocation(pool(Pool::PytorchCaching), 0x10, 2));
    facts.at(4, allocation(driver(Device::Host), 0x10, 4)).at(5, free(pool(Pool::PytorchCaching), 0x10));
    let devices = DeviceFilter { all_npus: false, npus: vec![0], host: false };
    let settings = showing(EventFilter { devices, ..EventFilter::ALL });
    let (events, summary) = facts.run_with(&settings);
    // A free without device finds the first block at its address.
    assert_eq!(
        events.iter().map(brief).collect::<Vec<_>>(),
        ["1 start", "3 malloc #2 2 used 2/0", "9 free~ #2 2 used 2/0"]
    );
    assert_eq!(summary.pools.len(), 3);

    let kinds = EventKinds { allocations: false, ..EventKinds::ALL };
    let (events, _) = facts.run_with(&showing(EventFilter { kinds, ..EventFilter::ALL }));
    assert!(events.iter().all(|event| !matches!(event.kind, EventKind::Malloc(_))));
    assert_eq!(events.len(), 4, "start and three frees");
}

#[test]
fn settings_that_change_show_other_things_from_then_on() {
    let settings = Fact::ProcessInfo { key: ProcessInfoKey::Settings, text: b"" };
    let block = pool(Pool::PytorchCaching);
    let operator = Fact::OperatorBegin {
        framework: Framework::Aten,
        device: Device::Npu(0),
        name: StringId::NONE,
        detail: StringId::NONE,
    };
    let mut facts = Facts::ending_at(20);
    facts.at(1, settings).at(2, ON).at(3, allocation(block, 0x10, 1)).at(4, allocation(block, 0x20, 2)).at(5, operator);
    facts.at(6, SHADOW).at(7, settings).at(8, ON);
    facts.at(9, free(block, 0x10)).at(10, allocation(block, 0x30, 4)).at(11, operator).at(12, free(block, 0x30));
    let memory = EventKinds { launches: false, ..EventKinds::ALL };
    let launches = EventKinds { allocations: false, frees: false, ..EventKinds::ALL };
    let filter = |kinds| EventFilter { kinds, ..EventFilter::ALL };
    let changing = TimelineSettings { later_filters: vec![filter(launches)], ..showing(filter(memory)) };
    let (events, _) = facts.run_with(&changing);
    let shown: Vec<_> = events
        .iter()
        .map(|event| match event.kind {
            EventKind::Operator { .. } => format!("{} operator", event.timestamp_ns),
            _ => brief(event),
        })
        .collect();
    // Blocks that were shown have their end, whatever is shown by then.
    let expected = [
        "2 start",
        "3 malloc #1 1 used 1/0",
        "4 malloc #2 2 used 3/0",
        "6 stop",
        "8 start",
        "9 free #1 1 used 2/0",
        "11 operator",
        "20 free~ #2 2 used 2/0",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn card_samples_are_carried_to_later_events() {
    let mut facts = Facts::default();
    facts.at(1, allocation(driver(NPU), 0x10, 1));
    facts.at(2, Fact::CardSample { device: NPU, used_bytes: 70, process_bytes: 30, total_bytes: 100 });
    facts.at(3, allocation(driver(NPU), 0x20, 1)).at(4, allocation(driver(Device::Npu(1)), 0x20, 1));
    let cards: Vec<_> = facts
        .run()
        .0
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Malloc(block) => Some(block.card.map(|card| (card.process_bytes, card.device_bytes))),
            _ => None,
        })
        .collect();
    assert_eq!(cards, [None, Some((30, 70)), None]);
}

#[test]
fn facts_of_the_future_are_counted() {
    let mut facts = Facts::default();
    facts.at(1, Fact::Unknown { kind: 60, payload: b"?" });
    let (events, summary) = facts.run();
    assert!(events.is_empty());
    assert_eq!((summary.facts, summary.unknown_facts), (1, 1));
}

/// Clocks of cards are compared with the host's, not the same: a card may seem to be quicker than the launch.
#[test]
fn a_kernel_that_seems_to_start_before_its_launch_keeps_its_times() {
    let mut facts = Facts::ending_at(20);
    facts.wall_offset_ns = 1_000;
    let name = facts.string("Add_8");
    let kernel = |phase, name| {
        let (device, stream_id, task_id, detail) = (NPU, 3, 7, StringId::NONE);
        Fact::Kernel { phase, device, name, stream_id, task_id, detail }
    };
    facts.on_thread(9, 10, kernel(KernelPhase::ExecuteStart, StringId::NONE));
    facts.on_thread(9, 14, kernel(KernelPhase::ExecuteEnd, StringId::NONE));
    facts.on_thread(2, 20, kernel(KernelPhase::Launch, name));
    let (events, summary) = facts.run();
    let told: Vec<_> = events.iter().map(|event| (&event.kind, event.timestamp_ns, event.thread_id)).collect();
    let expected = [
        (KernelPhase::Launch, 1_020, 1_020, 2),
        (KernelPhase::ExecuteStart, 1_010, 1_020, 9),
        (KernelPhase::ExecuteEnd, 1_014, 1_020, 9),
    ];
    let kernels: Vec<_> = told
        .iter()
        .filter_map(|(kind, time, thread)| match kind {
            EventKind::Kernel { phase, at_ns, .. } => Some((*phase, *at_ns, *time, *thread)),
            _ => None,
        })
        .collect();
    assert_eq!(kernels, expected);
    assert_eq!((summary.kernels_launched, summary.kernels_ended), (1, 1));
}

#[test]
fn the_first_refusal_has_a_snapshot_of_what_was_held_then() {
    let mut facts = Facts::default();
    let name = facts.string("OOM_Snapshot");
    let after = facts.string("OOM_Snapshot After");
    let refusal = Fact::AllocationFailed { properties: driver(NPU), size_bytes: 90, flag: 0, error: 6 };
    let taken = |name| Fact::Snapshot { device: NPU, name, numbers: SnapshotNumbers::default() };
    facts.at(1, heap(pool(Pool::PytorchCaching), 0x1000, 60));
    facts.at(2, allocation(pool(Pool::PytorchCaching), 0x1000, 40));
    facts.at(3, Fact::CardSample { device: NPU, used_bytes: 70, process_bytes: 60, total_bytes: 100 });
    facts.at(4, refusal);
    // The framework gives its cache back, asks again, and gives up.
    facts.at(5, free(pool(Pool::PytorchCaching), 0x1000));
    facts.at(6, refusal).at(7, taken(name)).on_thread(2, 8, taken(after));
    // Another failure is another story, and so is one after the driver has given memory.
    facts.at(9, refusal).at(10, allocation(driver(NPU), 0x9000, 90)).at(11, refusal);
    let (events, _) = facts.run();
    let snapshots: Vec<(u64, u64, u64, u64)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::SnapshotAtRefusal { numbers } => {
                Some((event.timestamp_ns, numbers.reserved_bytes, numbers.allocated_bytes, numbers.free_bytes))
            }
            _ => None,
        })
        .collect();
    assert_eq!(snapshots, [(4, 60, 40, 30), (9, 60, 0, 30), (11, 60, 0, 30)]);
    let own: Vec<(u64, bool, StackId)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Snapshot { is_repeated, .. } => Some((event.timestamp_ns, *is_repeated, event.python_stack)),
            _ => None,
        })
        .collect();
    assert_eq!(own, [(7, true, StackId(9)), (8, false, StackId(9))]);
}

#[test]
fn a_pool_that_gives_up_has_the_segments_that_its_thread_has_told() {
    let mut facts = Facts::default();
    let segment = |address| PoolSegment { address, size_bytes: 20, ..PoolSegment::default() };
    let told = |address| Fact::PoolSegment { device: NPU, segment: segment(address) };
    let gives_up = |segments| Fact::PoolRefusal {
        device: NPU,
        refusal: PoolRefusal { requested_bytes: 90, segments, ..PoolRefusal::default() },
    };
    facts.at(1, told(0x1000)).on_thread(2, 2, told(0x2000)).at(3, told(0x3000)).at(4, gives_up(2));
    // One of these was not recorded.
    facts.on_thread(2, 5, gives_up(2)).at(6, gives_up(0));
    let (events, _) = facts.run();
    let seen: Vec<Vec<u64>> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::PoolGaveUp(gave_up) => Some(gave_up.segments.iter().map(|segment| segment.address).collect()),
            _ => None,
        })
        .collect();
    assert_eq!(seen, [vec![0x1000, 0x3000], vec![], vec![]]);
}

#[test]
fn a_snapshot_without_a_refusal_is_the_first_one() {
    let mut facts = Facts::default();
    let name = facts.string("OOM_Snapshot");
    facts.at(1, Fact::Snapshot { device: NPU, name, numbers: SnapshotNumbers::default() });
    // A program without a framework pool has nothing that a snapshot would say.
    facts.at(2, Fact::AllocationFailed { properties: driver(NPU), size_bytes: 90, flag: 0, error: 6 });
    let kinds: Vec<EventKind> = facts.run().0.into_iter().map(|event| event.kind).collect();
    assert!(matches!(kinds[..], [EventKind::Snapshot { is_repeated: false, .. }, EventKind::AllocationFailed { .. }]));
}

#[test]
fn a_pass_in_a_thread_of_its_own_gives_the_same() {
    let mut facts = Facts::ending_at(100_000);
    for number in 0..9_000u64 {
        facts.at(2 * number, allocation(driver(NPU), number << 12, 64));
        if number % 3 > 0 {
            facts.at(2 * number + 1, free(driver(NPU), number << 12));
        }
    }
    let (mut events, mut told) = (Vec::new(), Vec::new());
    let mut take = |event: TimelineEvent| events.push(event);
    let settings = TimelineSettings::default();
    let summary = run_ahead(&facts, &settings, &mut take, &mut |done, all| told.push((done, all)));
    assert!(told.last().is_some_and(|(done, all)| done >= all && *all == 15_000), "{told:?}");
    let (expected, expected_summary) = facts.run();
    assert_eq!((events.len(), format!("{summary:?}")), (expected.len(), format!("{expected_summary:?}")));
    assert!(events == expected);
}

#[test]
fn whoever_looks_at_events_may_fail() {
    let mut facts = Facts::default();
    (0..50_000).for_each(|number| {
        facts.at(number, allocation(driver(NPU), number << 12, 64));
    });
    let mut take = |_: TimelineEvent| panic!("seen enough");
    let fails = || run_ahead(&facts, &TimelineSettings::default(), &mut take, &mut |_, _| {});
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(fails)).is_err());
}
