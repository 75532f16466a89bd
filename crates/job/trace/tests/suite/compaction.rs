//! A file at its limit makes room by leaving out blocks that came and went, and nothing else.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use msmemscope_event::{AllocationInterface, BlockProperties, Device, Fact, MemoryType, Pool, StringId};
use msmemscope_trace::Trace;
use proptest::prelude::*;

use crate::support::{Kept, Recording, Threads, allocation, caching, free, read_all};

const CHUNKS: u64 = 24;
const LIMIT_BYTES: u64 = CHUNKS * 256 * 1024 + 4096;
const ALWAYS: &[Range<u64>] = std::slice::from_ref(&(0..u64::MAX));

/// Blocks alive at the end, by their place, with the time they began.
fn alive(records: &[Kept]) -> BTreeMap<String, u64> {
    let mut alive = BTreeMap::new();
    for record in records {
        let (kind, rest) = record.text.split_once(' ').expect("a fact with fields");
        let field =
            |name: &str| rest.split_once(name).map(|(_, value)| value.split([',', ' ']).next().expect("a value"));
        let place = field(if rest.contains("handle: ") { "handle: " } else { "address: " });
        match (kind, place) {
            ("Allocation" | "AllocationWithHandle", Some(place)) => {
                alive.insert(place.to_owned(), record.monotonic_ns);
            }
            ("Free" | "FreeByHandle", Some(place)) => {
                alive.remove(place);
            }
            _ => {}
        }
    }
    alive
}

/// Everything but allocations, frees and regions, in order.
fn others(records: &[Kept]) -> Vec<&Kept> {
    let is_other = |record: &&Kept| {
        !["Allocation", "Free", "LabelPush", "LabelPop", "Thread"].iter().any(|kind| record.text.starts_with(kind))
    };
    records.iter().filter(is_other).collect()
}

#[test]
fn a_loop_before_the_start_can_last_for_ever() {
    let mut threads = Threads::new(LIMIT_BYTES);
    let mut time = 1_000;
    let mut rounds = 0;
    threads.write(1, time, &Fact::DefineString { id: StringId(1), text: b"weights" });
    threads.write(1, time + 1, &allocation(7 << 40, 4096));
    // Far more than fits: about 60 chunks.
    for number in 0..1_500_000u64 {
        time += 30;
        let thread_id = 1 + (number % 3) as u32;
        let address = (number / 2 % 64) << 21;
        let fact = if number % 2 == 0 { allocation(address, number) } else { free(address) };
        while !threads.write(thread_id, time, &fact) {
            assert!(threads.recording.file.compact(ALWAYS, time) > 0);
            rounds += 1;
        }
    }
    let trace = threads.trace();
    let completeness = trace.completeness();
    assert!(completeness.file_bytes <= LIMIT_BYTES);
    assert_eq!(completeness.compactions, rounds);
    assert!(rounds > 1 && completeness.is_complete());
    assert_eq!(completeness.records_left_out + completeness.records, 1_500_002);
    let records = read_all(&trace);
    assert_eq!(alive(&records), BTreeMap::from([((7u64 << 40).to_string(), 1_001)]));
    assert_eq!(trace.definitions().string(StringId(1)), "weights");
}

#[test]
fn what_matters_stays() {
    let mut threads = Threads::new(LIMIT_BYTES);
    let host = BlockProperties { pool: Pool::HostPinned, device: Device::Host, ..driver(AllocationInterface::Alloc) };
    let free_of_driver = |address| Fact::Free {
        properties: BlockProperties { device: Device::Unknown, ..driver(AllocationInterface::Alloc) },
        address,
    };
    let begin = |properties, address| Fact::Allocation { properties, address, size_bytes: 512 };
    let other_device = BlockProperties { device: Device::Npu(1), ..caching() };
    let label = Fact::LabelAddress { address: 0x5010, level: 1, label: StringId(1) };
    let with_handle = |handle| Fact::AllocationWithHandle { properties: caching(), address: 64, size_bytes: 8, handle };
    let (push, pop) =
        (Fact::LabelPush { level: 1, label: StringId(1) }, Fact::LabelPop { level: 1, label: StringId(1) });
    let facts = [
        (true, begin(driver(AllocationInterface::Alloc), 0x1000)), // never freed
        (false, begin(host, 0x2000)),
        (false, free_of_driver(0x2000)), // says neither pool nor device of the block
        (true, allocation(0x3000, 1)),
        (true, allocation(0x3000, 2)), // the end of the first is missing
        (true, free(0x3000)),
        (true, allocation(0x4000, 1)),
        (true, Fact::Free { properties: other_device, address: 0x4000 }),
        (true, allocation(0x5000, 0x100)),
        (true, label), // finds the block
        (true, free(0x5000)),
        (true, free(0x6000)), // of something unknown
        (false, with_handle(3)),
        (false, Fact::FreeByHandle { properties: caching(), handle: 3 }),
        (true, with_handle(4)),
        (true, Fact::HeapRegistered { properties: caching(), address: 0, size_bytes: 1 << 30 }),
        (false, push),
        (false, allocation(0x7000, 1)),
        (false, free(0x7000)),
        (false, pop),
        (true, push),
        (true, allocation(0x8000, 1)),
        (true, pop),
        (true, push), // the thread is still in it
    ];
    for (time, (_, fact)) in (2_000..).zip(&facts) {
        threads.write(1, time, fact);
    }
    fill(&mut threads, 10_000);
    assert!(threads.recording.file.compact(ALWAYS, 100_000_000) > 0);
    let expected: Vec<String> =
        facts.iter().filter(|(stays, _)| *stays).map(|(_, fact)| format!("{fact:?} StackId(0) StackId(0)")).collect();
    let found: Vec<String> = read_all(&threads.trace())
        .into_iter()
        .filter(|record| record.monotonic_ns < 10_000)
        .map(|record| record.text)
        .collect();
    assert_eq!(found, expected);
}

fn driver(interface: AllocationInterface) -> BlockProperties {
    BlockProperties {
        pool: Pool::Hal,
        memory_type: MemoryType::Device,
        interface,
        ..BlockProperties::framework(Pool::Hal, Device::Npu(0))
    }
}

/// Writes blocks that come and go until the file is full. Returns the time.
fn fill(threads: &mut Threads, mut time: u64) -> u64 {
    loop {
        for fact in [allocation(0x9000, 1), free(0x9000)] {
            time += 1;
            if !threads.write(1, time, &fact) {
                return time;
            }
        }
    }
}

#[test]
fn events_outside_the_shadow_stay() {
    let mut threads = Threads::new(LIMIT_BYTES);
    let end = fill(&mut threads, 1_000);
    let before = read_all(&threads.trace());
    // Everything matters.
    assert_eq!(threads.recording.file.compact(&[], end), 0);
    assert_eq!(threads.recording.file.compact(std::slice::from_ref(&(end + 1..u64::MAX)), end), 0);
    assert_eq!(read_all(&threads.trace()), before);
    // The first half does not.
    let middle = before[before.len() / 2].monotonic_ns;
    assert!(threads.recording.file.compact(std::slice::from_ref(&(0..middle)), end) > 0);
    let after = read_all(&threads.trace());
    assert!(after.len() < before.len());
    let later =
        |records: &[Kept]| records.iter().filter(|record| record.monotonic_ns >= middle).cloned().collect::<Vec<_>>();
    assert_eq!(later(&after), later(&before));
}

/// Single steps of a long training are recorded: what happens between them takes no room for good.
#[test]
fn every_pause_makes_room() {
    for pairs_in_pause in [2_000, 10_000, 60_000] {
        let mut threads = Threads::new(2 << 20);
        let (mut time, mut rounds) = (1_000, 0);
        let mut pauses: Vec<Range<u64>> = Vec::new();
        let mut windows: Vec<Range<u64>> = Vec::new();
        let mut pair = |threads: &mut Threads, time: &mut u64, pauses: &[Range<u64>]| {
            for fact in [allocation(0x9000, 1), free(0x9000)] {
                *time += 30;
                while !threads.write(1, *time, &fact) {
                    assert!(threads.recording.file.compact(pauses, *time) > 0, "{} pauses", pauses.len());
                    rounds += 1;
                }
            }
        };
        for _ in 0..600_000 / pairs_in_pause {
            let start = time + 1;
            (0..50).for_each(|_| pair(&mut threads, &mut time, &pauses));
            windows.push(start..time + 1);
            pauses.push(time + 1..u64::MAX);
            (0..pairs_in_pause).for_each(|_| pair(&mut threads, &mut time, &pauses));
            pauses.last_mut().expect("a pause").end = time + 1;
        }
        assert!(rounds > 2, "{rounds} rounds");
        let mut in_window = vec![0; windows.len()];
        for record in read_all(&threads.trace()) {
            if let Some(window) = windows.iter().position(|window| window.contains(&record.monotonic_ns))
                && !record.text.starts_with("Thread ")
            {
                in_window[window] += 1;
            }
        }
        assert_eq!(in_window, vec![100; windows.len()]);
    }
}

#[test]
fn the_smallest_file_makes_room_too() {
    let mut threads = Threads::new(1 << 20);
    threads.write(1, 999, &allocation(7 << 40, 4096));
    let mut time = 1_000;
    for _ in 0..200_000 {
        for fact in [allocation(0x9000, 1), free(0x9000)] {
            time += 30;
            while !threads.write(1, time, &fact) {
                assert!(threads.recording.file.compact(ALWAYS, time) > 0);
            }
        }
    }
    assert!(threads.trace().completeness().compactions > 2);
    let alive = alive(&read_all(&threads.trace()));
    assert_eq!(alive.get(&(7u64 << 40).to_string()), Some(&999));
}

#[test]
fn files_with_too_few_chunks_and_buffered_ones_are_left_alone() {
    for (buffered, limit_bytes) in [(false, 3 * 256 * 1024), (true, LIMIT_BYTES)] {
        let recording = Recording::new(buffered, limit_bytes);
        let mut threads = Threads::of(recording);
        let end = fill(&mut threads, 1_000);
        assert_eq!(threads.recording.file.compact(ALWAYS, end), 0);
    }
}

#[test]
fn what_is_kept_back_can_be_had_in_the_end() {
    let mut threads = Threads::new(LIMIT_BYTES);
    let end = fill(&mut threads, 1_000);
    let mut chunks = 0;
    while threads.recording.file.allocate_last_chunk(9, end).is_ok() {
        chunks += 1;
    }
    assert_eq!(chunks, CHUNKS / 4);
    assert!(threads.trace().completeness().file_bytes <= LIMIT_BYTES);
}

/// A round that is cut off, and one whose chunks are not cleaned up, leave every record once.
#[test]
fn a_round_counts_when_it_is_complete() {
    const COMPACTIONS: usize = 80;
    const REPLACED_IN: usize = 40;
    const MADE_IN: usize = 44;
    let mut threads = Threads::new(LIMIT_BYTES);
    threads.write(1, 1_001, &allocation(1, 8));
    threads.seal(1);
    threads.write(2, 1_002, &allocation(2, 8));
    threads.seal(2);
    let mut bytes = threads.recording.bytes();
    let chunk = |index: usize| 4096 + index * 256 * 1024;
    let mut read = |change: &dyn Fn(&mut [u8])| {
        change(&mut bytes);
        let trace = Trace::from_bytes(bytes.clone()).expect("trace");
        read_all(&trace).iter().map(|record| record.monotonic_ns).collect::<Vec<_>>()
    };
    assert_eq!(read(&|_| {}), [1_001, 1_002]);
    // The second is made to replace the first.
    assert_eq!(read(&|bytes| bytes[chunk(1) + MADE_IN] = 1), [1_001]);
    assert_eq!(read(&|bytes| bytes[chunk(0) + REPLACED_IN] = 1), [1_001]);
    assert_eq!(read(&|bytes| bytes[COMPACTIONS] = 1), [1_002]);
    assert_eq!(read(&|bytes| bytes[chunk(0) + 12..][..4].fill(0)), [1_002]);
    assert_eq!(read(&|bytes| bytes[chunk(0)..][..4].fill(0)), [1_002]);
    assert_eq!(read(&|bytes| bytes[chunk(0) + REPLACED_IN] = 0), [1_002]);
}

/// A region that is open from one pause to the next is around what was recorded in between, in chunks that stay.
#[test]
fn a_region_around_a_window_stays() {
    let pauses = [0..2_000, 3_000..u64::MAX];
    let mut threads = Threads::new(LIMIT_BYTES);
    threads.write(1, 1_100, &Fact::LabelPush { level: 1, label: StringId(1) });
    threads.seal(1);
    threads.write(1, 2_500, &allocation(5, 8));
    threads.seal(1);
    threads.write(1, 3_100, &Fact::LabelPop { level: 1, label: StringId(1) });
    threads.seal(1);
    let end = fill(&mut threads, 3_200);
    assert!(threads.recording.file.compact(&pauses, end) > 0);
    let kept: Vec<u64> = read_all(&threads.trace()).iter().map(|record| record.monotonic_ns).collect();
    assert!([1_100, 2_500, 3_100].iter().all(|time| kept.contains(time)), "{:?}", &kept[..3]);
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Begin(u64),
    End(u64),
    Note,
    Push,
    Pop,
    Seal,
    Compact,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (0..12u64).prop_map(Action::Begin),
        6 => (0..12u64).prop_map(Action::End),
        1 => Just(Action::Note),
        1 => Just(Action::Push),
        1 => Just(Action::Pop),
        3 => Just(Action::Seal),
        1 => Just(Action::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn what_is_alive_and_everything_else_survives(
        actions in prop::collection::vec((1..4u32, action()), 1..250),
        lengths in (1_000..2_000u64, 300..1_500u64, 1..500u64, 300..2_000u64),
    ) {
        let (start, first, window, second) = lengths;
        let pauses = [start..start + first, start + first + window..start + first + window + second];
        let mut threads = Threads::new(LIMIT_BYTES);
        let mut written = Vec::new();
        let mut live = std::collections::HashSet::new();
        let mut depth = HashMap::<u32, u32>::new();
        for ((thread_id, action), time) in actions.into_iter().zip((1_000..).step_by(10)) {
            let depth = depth.entry(thread_id).or_default();
            let label = StringId(1);
            let fact = match action {
                Action::Begin(address) if live.insert(address) => allocation(address, time),
                Action::End(address) if live.remove(&address) => free(address),
                Action::Note => Fact::Loss { reason: msmemscope_event::LossReason::TextCut, count: time },
                Action::Push => {
                    *depth += 1;
                    Fact::LabelPush { level: *depth, label }
                }
                Action::Pop if *depth > 0 => {
                    *depth -= 1;
                    Fact::LabelPop { level: *depth + 1, label }
                }
                Action::Seal => {
                    threads.seal(thread_id);
                    continue;
                }
                Action::Compact => {
                    threads.recording.file.compact(&pauses, time);
                    continue;
                }
                _ => continue,
            };
            // A file that is full ends the experiment.
            if !threads.write(thread_id, time, &fact) {
                break;
            }
            let text = format!("{fact:?} StackId(0) StackId(0)");
            written.push(Kept { monotonic_ns: time, thread_id, text });
        }
        let found = read_all(&threads.trace());
        let found: Vec<Kept> = found.into_iter().filter(|record| !record.text.starts_with("Thread ")).collect();
        prop_assert_eq!(alive(&found), alive(&written));
        // What a window saw of the pauses around it is there as well.
        for end in pauses.iter().map(|pause| pause.end) {
            let before = |records: &[Kept]| -> Vec<Kept> {
                records.iter().filter(|record| record.monotonic_ns < end).cloned().collect()
            };
            prop_assert_eq!(alive(&before(&found)), alive(&before(&written)));
        }
        prop_assert_eq!(others(&found), others(&written));
        let outside = |records: &[Kept]| -> Vec<Kept> {
            let is_outside = |record: &&Kept| !pauses.iter().any(|pause| pause.contains(&record.monotonic_ns));
            records.iter().filter(is_outside).cloned().collect()
        };
        prop_assert_eq!(outside(&found), outside(&written));
        // Of whatever is kept, the regions around it are.
        prop_assert_eq!(labelled(&found, &found), labelled(&written, &found));
    }
}

/// Depth of labels at each of the records that were kept, as one list of all records tells it.
fn labelled(records: &[Kept], kept: &[Kept]) -> Vec<(u64, u32)> {
    let kept: std::collections::HashSet<u64> = kept.iter().map(|record| record.monotonic_ns).collect();
    let mut depth = HashMap::<u32, u32>::new();
    let mut depths = Vec::new();
    for record in records {
        let depth = depth.entry(record.thread_id).or_default();
        match record.text.split(' ').next() {
            Some("LabelPush") => *depth += 1,
            Some("LabelPop") => *depth -= 1,
            _ if kept.contains(&record.monotonic_ns) => depths.push((record.monotonic_ns, *depth)),
            _ => {}
        }
    }
    depths
}
