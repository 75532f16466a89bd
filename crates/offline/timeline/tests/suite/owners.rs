//! Owners over whole recordings.

use msmemscope_event::{AccessKind, BlockProperties, Device, Fact, Framework, Pool, RecordingState, StringId};
use msmemscope_timeline::owner::{LEVEL_COMPONENT, LEVEL_DETAIL_1, LEVEL_PROCESS, LEVEL_USER_1};
use msmemscope_timeline::{UnplacedLabels, collect_owners};

use crate::support::{Facts, NPU, allocation, driver, free, heap, pool};

fn push(level: u32, label: StringId) -> Fact<'static> {
    Fact::LabelPush { level, label }
}

fn pop(level: u32, label: StringId) -> Fact<'static> {
    Fact::LabelPop { level, label }
}

fn touch(address: u64) -> Fact<'static> {
    Fact::Access {
        kind: AccessKind::Write,
        framework: Framework::Aten,
        device: NPU,
        operator: StringId::NONE,
        address,
        size_bytes: 1,
        element_type: StringId::NONE,
        shape: StringId::NONE,
        format: StringId::NONE,
        output_position: 0,
    }
}

#[test]
fn allocators_name_the_first_level() {
    let mut facts = Facts::default();
    facts.at(0, heap(pool(Pool::Atb), 1, 1));
    let kinds = [Pool::PytorchCaching, Pool::PytorchWorkspace, Pool::Mindspore, Pool::Atb].map(pool);
    let all = kinds.into_iter().chain([driver(NPU), driver(Device::Host), pool(Pool::HostTensor)]);
    for (number, properties) in (1u64..).zip(all) {
        facts.at(number, allocation(properties, 0x10, 1));
    }
    let owners = collect_owners(&facts);
    let named: Vec<Option<&str>> = (1..=8).map(|allocation_id| owners.owner(allocation_id)).collect();
    let expected =
        [Some("PTA"), Some("PTA_WORKSPACE"), Some("MINDSPORE"), Some("ATB"), Some("CANN@HCCL"), None, None, None];
    assert_eq!(named, expected);
}

#[test]
fn regions_of_the_allocating_thread_count() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::default();
    let [component, phase, user] = ["fsdp2", "activation", "my\nlayer, 1"].map(|text| facts.string(text));
    facts.on_thread(1, 1, push(LEVEL_COMPONENT, component)).on_thread(1, 1, push(LEVEL_PROCESS, phase));
    facts.on_thread(2, 2, push(LEVEL_USER_1, user));
    facts.on_thread(1, 3, allocation(caching, 0x10, 1));
    facts.on_thread(2, 4, allocation(caching, 0x20, 1));
    facts.on_thread(1, 5, pop(LEVEL_PROCESS, phase)).on_thread(1, 6, allocation(caching, 0x30, 1));
    facts.at(7, touch(0x10)).at(8, touch(0x18));
    let owners = collect_owners(&facts);
    assert_eq!(owners.owner(1), Some("PTA@fsdp2@activation@ops"));
    assert_eq!(owners.owner(2), Some("PTA@my\\nlayer; 1"));
    assert_eq!(owners.owner(3), Some("PTA@fsdp2"));
    assert_eq!(owners.owner(99), None);
}

#[test]
fn labels_of_an_address_belong_to_the_block_that_lives_there() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::default();
    let [weight, gradient] = ["weight", "gradient"].map(|text| facts.string(text));
    let label = |address, label| Fact::LabelAddress { address, level: LEVEL_DETAIL_1, label };
    facts.at(1, label(0x10, weight)).at(2, allocation(caching, 0x10, 8)).at(3, label(0x18, weight));
    facts.at(4, label(0x10, weight)).at(5, label(0x10, gradient)).at(6, free(caching, 0x10));
    facts.at(7, label(0x10, weight)).at(8, allocation(caching, 0x10, 8));
    facts.at(9, allocation(driver(NPU), 0x50, 8)).at(10, label(0x50, weight));
    let owners = collect_owners(&facts);
    assert_eq!(owners.owner(1), Some("PTA@gradient"), "the latest label of a level counts");
    assert_eq!(owners.owner(2), Some("PTA"));
    assert_eq!(owners.owner(3), Some("CANN@HCCL"));
}

#[test]
fn an_address_inside_a_block_labels_the_block() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::default();
    let [first, second] = ["first", "second"].map(|text| facts.string(text));
    let label = |address, label| Fact::LabelAddress { address, level: LEVEL_USER_1, label };
    facts.at(1, allocation(driver(NPU), 0x100, 0x100));
    facts.at(2, allocation(caching, 0x100, 0x40)).at(3, allocation(caching, 0x140, 0x40));
    facts.at(4, label(0x13f, first)).at(5, label(0x150, second)).at(6, label(0x180, first));
    facts.at(7, free(caching, 0x140)).at(8, allocation(caching, 0x140, 0x10)).at(9, label(0x150, first));
    facts.at(10, allocation(pool(Pool::Mindspore), 0x800, 0x10)).at(11, label(0x808, second));
    let owners = collect_owners(&facts);
    let named: Vec<Option<&str>> = (1..=5).map(|allocation_id| owners.owner(allocation_id)).collect();
    let expected = ["CANN@HCCL", "PTA@first", "PTA@second", "PTA", "MINDSPORE@second"].map(Some);
    assert_eq!(named, expected);
    assert_eq!(owners.unplaced(), UnplacedLabels { beyond_the_third: 0, without_block: 2 });
}

#[test]
fn user_labels_of_an_address_come_behind_those_that_are_there() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::default();
    let [region, one, two, three, weight] = ["region", "one", "two", "three", "weight"].map(|text| facts.string(text));
    let label = |address, level, label| Fact::LabelAddress { address, level, label };
    facts.at(1, push(LEVEL_USER_1, region)).at(2, allocation(caching, 0x10, 1)).at(3, pop(LEVEL_USER_1, region));
    facts.at(4, allocation(caching, 0x20, 1));
    for (time, text) in (5..).zip([one, region, one, two, three, two]) {
        facts.at(time, label(0x10, LEVEL_USER_1, text)).at(time, label(0x20, LEVEL_USER_1, text));
    }
    facts.at(20, label(0x10, LEVEL_DETAIL_1, weight)).at(21, label(0x10, LEVEL_USER_1 + 2, three));
    let owners = collect_owners(&facts);
    assert_eq!(owners.owner(1), Some("PTA@weight@region@one@two"));
    assert_eq!(owners.owner(2), Some("PTA@one@region@two"));
    assert_eq!(owners.unplaced(), UnplacedLabels { beyond_the_third: 3, without_block: 0 });
}

#[test]
fn labels_from_before_the_start_count() {
    let caching = pool(Pool::PytorchCaching);
    let mut facts = Facts::default();
    let [load, worker, given] = ["load", "worker", "given"].map(|text| facts.string(text));
    facts.at(1, Fact::Recording { state: RecordingState::Shadow });
    facts.at(2, push(LEVEL_USER_1, load)).at(3, allocation(caching, 0x10, 1)).at(4, pop(LEVEL_USER_1, load));
    facts.at(5, allocation(caching, 0x20, 1)).on_thread(2, 6, push(LEVEL_USER_1, worker));
    for address in [0x10, 0x20] {
        facts.at(7, Fact::LabelAddress { address, level: LEVEL_USER_1, label: given });
    }
    facts.at(8, allocation(pool(Pool::HostTensor), 0x30, 1)).at(9, Fact::Recording { state: RecordingState::On });
    facts.on_thread(2, 10, allocation(caching, 0x40, 1));
    let owners = collect_owners(&facts);
    let named: Vec<Option<&str>> = (1..=4).map(|allocation_id| owners.owner(allocation_id)).collect();
    assert_eq!(named, [Some("PTA@load@given"), Some("PTA@given"), None, Some("PTA@worker")]);
}

#[test]
fn a_region_at_the_start_does_not_claim_older_blocks() {
    let caching = BlockProperties::framework(Pool::PytorchCaching, NPU);
    let mut facts = Facts::default();
    let [user, weight] = ["start region", "weight"].map(|text| facts.string(text));
    facts.at(1, Fact::Recording { state: RecordingState::Shadow });
    facts.at(2, allocation(caching, 0x10, 8)).at(2, allocation(caching, 0x20, 8));
    facts.at(3, Fact::LabelAddress { address: 0x20, level: LEVEL_DETAIL_1, label: weight });
    facts.at(4, push(LEVEL_USER_1, user)).at(5, Fact::Recording { state: RecordingState::On });
    let owners = collect_owners(&facts);
    assert_eq!(owners.owner(1), Some("PTA"));
    assert_eq!(owners.owner(2), Some("PTA@weight"));
}
